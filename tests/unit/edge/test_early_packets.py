# SPDX-License-Identifier: Apache-2.0

"""Packets in unmanaged queues whose flows have a class now."""

import pytest

from edge_module import early_packets
from edge_module.classify import classified
from edge_module.qdisc import wire
from edge_module.tcplan import minors
from virtco.wire import edge_policy

PORTS = [5, 6]
OLD = classified.Entry(6, '10.0.0.2', '10.0.0.9')
NEW = classified.Entry(5, '10.0.0.1', '10.0.0.9')
OTHER = classified.Entry(5, '10.0.0.1', '10.0.0.8')
SEAT = minors.seats([5, 6])[5]
#: The own class of tap1, and one to a limited host; then the same of tap2.
OWN, LIMITED = minors.FIRST_PORT + 5, minors.of_limited(3, SEAT)
OWN_2, LIMITED_2 = minors.FIRST_PORT + 6, minors.of_limited(3, SEAT + 1)


def policy():
    return edge_policy.EdgePolicy('h1', 1, 60.0, 1e8, 1e8, 2e6, tuple(
        edge_policy.CoflowClass(
            name, name, minor, rate_bps, 1e8, 0, tuple(
                edge_policy.Destination(f'h{number}', minor + number, 0.5,
                                        rate_bps / 2, 1e8)
                for number in (1, 2)))
        for name, minor, rate_bps in (('a', 0x10, 3e7), ('b', 0x20, 5e6))),
        unmanaged=edge_policy.Unmanaged(2e6, (), tuple(
            edge_policy.DestinationLimit(host, slot, 1e6, ())
            for host, slot in (('h2', 3), ('h3', 4)))))


class Early:
    """Queues after a first classification, with a clock."""

    def __init__(self):
        self.queues = early_packets.EarlyPackets()
        self.now_s, self.n_reads, self.stats = 100.0, 0, {}
        assert not self.find({OLD: 0x11})

    def read(self):
        self.n_reads += 1
        return self.stats

    def find(self, entries):
        return self.queues.find(policy(), entries, PORTS, self.read,
                                self.now_s)

    def are_sent(self):
        return self.queues.are_sent(self.read, self.now_s)

    def wait(self, minor, backlog_bytes=0, sent_bytes=0):
        self.stats[minor] = wire.ClassStats(sent_bytes, 9, backlog_bytes, 3)


@pytest.fixture
def early():
    return Early()


@pytest.mark.parametrize('minor', [OWN, LIMITED])
def test_what_the_port_of_a_new_flow_queued_goes_at_a_part_of_its_rate(
        early, minor):
    early.wait(minor, backlog_bytes=3000, sent_bytes=500)
    assert early.find({OLD: 0x11, NEW: 0x12})
    assert early.queues.rates_bps == {
        minors.UNMANAGED: 3.75e6, 0x12: -3.75e6} | (
        {minors.of_limit(3): 3.75e6} if minor == LIMITED else {})
    # Nothing more is new.
    assert not early.find({OLD: 0x11, NEW: 0x12})
    assert early.queues.rates_bps[minors.UNMANAGED] == 3.75e6
    early.wait(minor, backlog_bytes=9000, sent_bytes=3499)
    assert not early.are_sent()
    assert early.queues.rates_bps[minors.UNMANAGED] == 3.75e6
    # What came behind them does not count.
    early.wait(minor, backlog_bytes=9000, sent_bytes=3500)
    assert early.are_sent() and early.queues.rates_bps == {}
    assert not early.are_sent()


@pytest.mark.parametrize('minor', [
    OWN_2, LIMITED_2, minors.of_limited(4, SEAT), minors.of_limited(0, SEAT),
    minors.HOST, minors.of_limit(3), 0x10,
    minors.of_control(OWN)])
def test_other_queues_do_not_matter(early, minor):
    early.wait(minor, backlog_bytes=3000)
    early.wait(OWN)
    assert not early.find({OLD: 0x11, NEW: 0x12})
    assert early.queues.rates_bps == {} and not early.are_sent()


def test_each_flow_counts_once_and_raises_the_limit_of_its_host(early):
    early.wait(OWN, backlog_bytes=3000)
    early.wait(LIMITED, backlog_bytes=1)
    assert early.find({NEW: 0x12, OTHER: 0x11})
    lent = {0x11: -3.75e6, 0x12: -3.75e6}
    assert early.queues.rates_bps == lent | {
        minors.UNMANAGED: 7.5e6, minors.of_limit(3): 3.75e6}
    third, fourth = (classified.Entry(5, '10.0.0.1', f'10.0.0.{last}')
                     for last in (7, 6))
    # Another flow of a class that lends already makes it lend no more.
    assert early.find({NEW: 0x12, OTHER: 0x11, third: 0x22, fourth: 0x12})
    assert early.queues.rates_bps == lent | {
        0x22: -6.25e5, minors.UNMANAGED: 8.125e6, minors.of_limit(3): 4.375e6}
    early.wait(OWN, sent_bytes=3000)
    assert not early.are_sent()
    early.wait(LIMITED, sent_bytes=1)
    assert early.are_sent()


def test_flows_that_are_only_counted_have_no_class(early):
    early.wait(OWN, backlog_bytes=3000)
    assert not early.find({OLD: 0x11, NEW: OWN})
    assert early.n_reads == 0


def test_flows_at_the_uplink_have_no_port(early):
    early.wait(OWN, backlog_bytes=3000)
    at_uplink = classified.Entry(2, '10.0.0.1', '10.0.0.9')
    assert not early.find({OLD: 0x11, at_uplink: 0x12})
    assert early.n_reads == 0


def test_after_a_start_nothing_is_new():
    queues = early_packets.EarlyPackets()
    assert not queues.find(policy(), {NEW: 0x12}, PORTS,
                           lambda: {OWN: wire.ClassStats(0, 0, 3000)}, 1.0)
    assert queues.rates_bps == {}


def test_a_queue_is_served_for_a_second_at_most(early):
    early.wait(OWN, backlog_bytes=3000)
    assert early.find({OLD: 0x11, NEW: 0x12})
    early.now_s += 0.999
    assert not early.are_sent()
    early.now_s += 0.001
    assert early.are_sent() and early.queues.rates_bps == {}


def test_a_class_that_is_gone_has_no_queue(early):
    early.wait(OWN, backlog_bytes=3000)
    assert early.find({OLD: 0x11, NEW: 0x12})
    early.stats = {}
    assert early.are_sent()
