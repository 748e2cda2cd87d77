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
beyond *htb*: with 10, 1,000 and 10,000 classes, and of the parts of the first:

* *hooks*: *htb* with programs that do nothing where virtco's are,
* *programs*: *htb* with virtco's programs,
* *tree*: virtco's tree, with a program that does nothing but name the class,
* *whole leaves*: virtco with a queue that cannot cut super-packets.

It takes three minutes.
"""

import argparse
from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import ctypes
import json
import os
import socket
import statistics
import struct
import time
from typing import Any

from benchmarks import edge_overhead
from edge_module.classify import bpf_maps
from edge_module.privileged import pinned
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
HOOKS, PROGRAMS, TREE, WHOLE = 'hooks', 'programs', 'tree', 'whole leaves'
PARTS = HOOKS, PROGRAMS, TREE, WHOLE
# The first destination of the first coflow, whose packets are sent.
_MINOR = 0x11
_RUNS = 50
_SCHED_CLS, _PRIORITY_AT = 3, 32
_TCX_INGRESS, _TCX_EGRESS = 46, 47


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
        if case == BARE:
            yield
        elif case == HTB:
            with self._htb():
                yield
        elif case == HOOKS:
            with self._htb(), self._attached(None):
                yield
        elif case != VIRTCO:
            with self.shaped(VIRTCO), self._part(case):
                yield
        else:
            netns = self.bed.ns('h1')
            edge = conftest.Edge(self.bed, 'h1', LINK_BPS)
            edge.set_ports()
            # Nobody else loads the programs.
            beds.in_netns(netns, edge_overhead.as_helper,
                          edge.enforcer.set_policy, self.policy(classes),
                          time.monotonic())
            yield
            edge.call('cleanup')

    def _htb(self) -> contextlib.AbstractContextManager[None]:
        return edge_overhead.tree(self.bed.ns('h1'), edge_overhead.UPLINK,
                                  LINK_BPS, _QUEUE_BYTES)

    @contextlib.contextmanager
    def _part(self, case: str) -> Iterator[None]:
        """Leave a part of what virtco has made."""
        netns, dev = self.bed.ns('h1'), edge_overhead.UPLINK
        if case == PROGRAMS:
            beds.run('tc', 'qdisc', 'del', 'dev', dev, 'root', netns=netns)
            with self._htb():
                yield
        elif case == TREE:
            beds.in_netns(netns, _detach_all)
            with self._attached(_MINOR):
                yield
        else:
            leaf = ('dev', dev, 'parent', f'7000:{_MINOR:x}')
            beds.run('tc', 'qdisc', 'del', *leaf, netns=netns)
            beds.run('tc', 'qdisc', 'add', *leaf, 'bfifo', 'limit',
                     _QUEUE_BYTES, netns=netns)
            yield

    @contextlib.contextmanager
    def _attached(self, minor: int | None) -> Iterator[None]:
        """Have programs that do nothing at the VM's port and the uplink, or
        the former put packets into a class.
        """
        links = beds.in_netns(self.bed.ns('h1'), lambda: [
            _attach(self.src.dev, _TCX_INGRESS, minor),
            _attach(edge_overhead.UPLINK, _TCX_EGRESS, None)])
        try:
            yield
        finally:
            for link in links:
                os.close(link)

    def tcp_bps(self, streams: int) -> float:
        """Payload rate of so many TCP streams."""
        return sum(beds.measure(
            [beds.Flow(self.src, self.sink, 6001 + number)
             for number in range(streams)], _WARM_UP_S, _MEASURE_S))

    def datagrams_ns(self, count: int) -> list[float]:
        """Processor time of a datagram of 1,500 bytes, in many short runs."""
        return [edge_overhead.blast(
            self.src, self.sink.ip, count // _RUNS, _DATAGRAM_BYTES)
            for _ in range(_RUNS)]


def fastest_ns(runs_ns: Iterable[float]) -> float:
    """Return the time of the tenth that is fastest, as others work meanwhile.
    """
    return statistics.quantiles(runs_ns, n=10)[0]


def _detach_all() -> None:
    for link in pinned.Tables().path.glob('link-*'):
        link.unlink()


def _attach(dev: str, place: int, minor: int | None) -> int:
    """Attach a program that goes on, after it has set the class or not."""
    code = b''
    if minor is not None:
        classid = bpf_maps.classid(minor)
        # r2 = classid; skb->priority = r2
        code = struct.pack('=BBhiBBhi', 0xb7, 2, 0, classid,
                           0x63, 0x21, _PRIORITY_AT, 0)
    # r0 = -1; exit
    code += struct.pack('=BBhiBBhi', 0xb7, 0, 0, -1, 0x95, 0, 0, 0)
    library = ctypes.CDLL('libbpf.so.1', use_errno=True)
    program = pinned._checked(library.bpf_prog_load(
        _SCHED_CLS, b'part', b'Apache-2.0', code, len(code) // 8, None),
        'load')
    try:
        return pinned._checked(library.bpf_link_create(
            program, socket.if_nametoindex(dev), place, None), 'attach')
    finally:
        os.close(program)


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
                    case, []).append(1500 * 8e9 / fastest_ns(
                        site.datagrams_ns(packets)))
    return {traffic: {
        **{f'{case}_bps': round(statistics.median(found))
           for case, found in cases.items()},
        **{f'lost_of_{case}': round(1 - statistics.median(
            ours / theirs for ours, theirs in zip(
                cases[VIRTCO], cases[case], strict=True)), 4)
           for case in (BARE, HTB)}} for traffic, cases in seen.items()}


def costs(site: Site, rounds: int, packets: int) -> dict[str, int]:
    """Nanoseconds of a datagram beyond HTB's, by number of classes or part."""
    runs_ns: dict[str, list[float]] = {}
    for case, classes in [*((VIRTCO, classes) for classes in CLASSES),
                          *((part, CLASSES[0]) for part in PARTS),
                          (HTB, 0)] * rounds:
        with site.shaped(case, classes):
            runs_ns.setdefault(str(classes) if case == VIRTCO else case,
                               []).extend(site.datagrams_ns(packets))
    bare_ns = fastest_ns(runs_ns.pop(HTB))
    return {name: round(fastest_ns(found) - bare_ns)
            for name, found in runs_ns.items()}


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
                     'ns_beyond_htb': costs(site, arguments.rounds,
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
    print('ns per datagram beyond htb, by classes and of their parts:',
          found['ns_beyond_htb'])


if __name__ == '__main__':
    main()
