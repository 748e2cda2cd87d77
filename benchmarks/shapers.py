# SPDX-License-Identifier: Apache-2.0

"""What enforcement takes of the speed that this machine has.

``python -m benchmarks.shapers`` (root) lets a VM send to one of another
hypervisor, over veth, as fast as it can: by one and by eight TCP streams, and
by UDP datagrams of 1,500 bytes each. Nothing limits the rate but the
processors. In turn the uplink has

* *bare*: no queue,
* *htb*: the kernel's HTB with one class, and nothing that classifies,
* *virtco*: what the edge module makes of a policy with ten classes, without a
  limit that is reached.

It prints Gbit/s, and the median over the rounds of what virtco takes of the
speed of *bare* and of *htb*. Then it prints the processor time of a datagram
with 10, 1,000 and 10,000 classes, beyond *htb*. It takes two minutes.
"""

import argparse
from collections.abc import Iterator
import contextlib
import json
import statistics
from typing import Any

from benchmarks import edge_overhead
from tests.netns.edge import bed as beds
from tests.netns.edge import conftest
from tests.netns.edge import policies
from virtco.wire import edge_policy

STREAMS = 1, 8
CLASSES = 10, 1000, 10_000
LINK_BPS = edge_overhead.UNLIMITED_BPS
# With the headers of UDP and IPv4, 1,500.
_DATAGRAM_BYTES = 1472
# Room for the windows of all streams.
_QUEUE_BYTES = 64 << 20
_WARM_UP_S, _MEASURE_S = 0.5, 1.5
BARE, HTB, VIRTCO = 'bare', 'htb', 'virtco'


class Site:
    """Two hypervisors with a VM each."""

    def __init__(self) -> None:
        self.bed = beds.Bed(2)
        self.src, self.sink = self.bed.add_vm('h1'), self.bed.add_vm('h2')

    def policy(self, classes: int) -> edge_policy.EdgePolicy:
        """A coflow of the two VMs, and others that send nothing.

        :param classes: two for each coflow.
        """
        builder = policies.PolicyBuilder('h1', LINK_BPS)
        for number in range(classes // 2):
            builder.coflow(f'C{number}', LINK_BPS / 2 / classes,
                           [(self.src, self.sink, 1)], ceil_bps=LINK_BPS,
                           port=None if number == 0 else 10_000 + number)
        return builder.build()

    @contextlib.contextmanager
    def shaped(self, case: str, classes: int = CLASSES[0]) -> Iterator[None]:
        """Have the uplink as a case says."""
        netns = self.bed.ns('h1')
        if case == BARE:
            yield
        elif case == HTB:
            with edge_overhead.tree(netns, edge_overhead.UPLINK, LINK_BPS,
                                    _QUEUE_BYTES):
                yield
        else:
            edge = conftest.Edge(self.bed, 'h1', LINK_BPS)
            edge.set_ports()
            edge.set_policy(self.policy(classes))
            yield
            edge.call('cleanup')

    def tcp_bps(self, streams: int) -> float:
        """Payload rate of so many TCP streams."""
        return sum(beds.measure(
            [beds.Flow(self.src, self.sink, 6001 + number)
             for number in range(streams)], _WARM_UP_S, _MEASURE_S))

    def datagram_ns(self, count: int) -> float:
        """Processor time of a datagram of 1,500 bytes."""
        return edge_overhead.blast(self.src, self.sink.ip, count,
                                   _DATAGRAM_BYTES)


def speeds(site: Site, rounds: int, packets: int) -> dict[str, Any]:
    """Measure the cases in turn.

    :returns: by traffic: bit/s of each case, and what virtco takes of it.
    """
    seen: dict[str, dict[str, list[float]]] = {}
    for _ in range(rounds):
        for case in (BARE, HTB, VIRTCO):
            with site.shaped(case):
                for streams in STREAMS:
                    seen.setdefault(f'{streams} x TCP', {}).setdefault(
                        case, []).append(site.tcp_bps(streams))
                seen.setdefault('UDP, 1,500 bytes', {}).setdefault(
                    case, []).append(1500 * 8e9 / site.datagram_ns(packets))
    return {traffic: {
        **{f'{case}_bps': round(statistics.median(found))
           for case, found in cases.items()},
        **{f'lost_of_{case}': round(1 - statistics.median(
            ours / theirs for ours, theirs in zip(
                cases[VIRTCO], cases[case], strict=True)), 4)
           for case in (BARE, HTB)}} for traffic, cases in seen.items()}


def costs(site: Site, rounds: int, packets: int) -> dict[str, float]:
    """Nanoseconds of a datagram beyond HTB's, by number of classes."""
    ratios: dict[int, list[float]] = {}
    least_ns = float('inf')
    for classes in CLASSES * rounds:
        with site.shaped(VIRTCO, classes):
            ours_ns = [site.datagram_ns(packets) for _ in range(3)]
        with site.shaped(HTB):
            theirs_ns = [site.datagram_ns(packets) for _ in range(3)]
        least_ns = min(least_ns, *theirs_ns)
        ratios.setdefault(classes, []).append(
            statistics.median(ours_ns) / statistics.median(theirs_ns))
    return {str(classes): round((statistics.median(found) - 1) * least_ns)
            for classes, found in ratios.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--packets', type=int, default=50_000)
    parser.add_argument('--json', action='store_true')
    arguments = parser.parse_args()
    site = Site()
    try:
        with edge_overhead.nobody_reads(site.sink):
            found = {'speeds': speeds(site, arguments.rounds,
                                      arguments.packets),
                     'ns_by_classes': costs(site, min(arguments.rounds, 3),
                                            arguments.packets)}
    finally:
        site.bed.close()
    if arguments.json:
        print(json.dumps(found))
        return
    print(f'{"":18}' + ''.join(f'{case:>9}' for case in (BARE, HTB, VIRTCO))
          + '  Gbit/s   taken of bare, of htb')
    for traffic, row in found['speeds'].items():
        print(f'{traffic:18}' + ''.join(
            f'{row[f"{case}_bps"] / 1e9:9.2f}'
            for case in (BARE, HTB, VIRTCO)) + f'{"":11}'
            f'{row["lost_of_bare"]:12.1%}{row["lost_of_htb"]:9.1%}')
    print('ns per datagram beyond htb, by classes:', found['ns_by_classes'])


if __name__ == '__main__':
    main()
