# SPDX-License-Identifier: Apache-2.0

"""Which ports send much that belongs to no coflow."""

from edge_module import heavy_ports
from edge_module.qdisc import wire
from edge_module.tcplan import minors

#: A hundredth of a second of it is 10,000 bytes.
LINK_BPS = 8e6


def stats(**sent):
    """Bytes of each port's own class, as p5=100."""
    return {minors.FIRST_PORT + int(name[1:]): wire.ClassStats(size)
            for name, size in sent.items()}


def find(found, seen, ifindexes=(5, 6, 7)):
    return found.find(seen, ifindexes, LINK_BPS)


def test_what_was_sent_since_the_last_look_counts():
    found = heavy_ports.HeavyPorts()
    assert find(found, stats(p5=10_000, p6=9_999)) == [5]
    assert find(found, stats(p5=19_999, p6=20_000)) == [6]
    # A class that began anew counts from nothing.
    assert find(found, stats(p5=10_000, p6=9_999)) == [5]
    # Nothing new is nothing, however much there was.
    assert find(found, stats(p5=10_000, p6=9_999)) == []
    assert find(found, {}) == []


def test_classes_of_limits_count_too():
    found = heavy_ports.HeavyPorts()
    seen = stats(p5=4000) | {
        minors.of_limited(0, 5): wire.ClassStats(3000),
        minors.of_limited(3, 5): wire.ClassStats(3000),
        minors.of_limited(3, 6): wire.ClassStats(9000),
        # Inner classes and coflows are no ports.
        minors.of_limit(3): wire.ClassStats(90_000),
        0x10: wire.ClassStats(90_000)}
    assert find(found, seen) == [5]


def test_what_waits_is_heavy_however_little_it_sends():
    seen = stats(p5=1) | {
        minors.of_limited(2, 6): wire.ClassStats(backlog_bytes=1)}
    assert find(heavy_ports.HeavyPorts(), seen) == [6]


def test_those_that_send_most_are_the_ones_that_are_read():
    sent = {f'p{ifindex}': 10_000 + 10 * ifindex for ifindex in range(1, 12)}
    assert find(heavy_ports.HeavyPorts(), stats(**sent), range(1, 12)) == [
        11, 10, 9, 8, 7, 6, 5, 4]
