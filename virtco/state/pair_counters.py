# SPDX-License-Identifier: Apache-2.0

"""Counters of pairs of VMs. Pure.

Under ``order = fair`` nothing tells the coflows apart but the pairs of VMs
that the edge modules count at the VMs' ports. Bytes between VMs of a group
outside of its coflows are counted there, too, also within a host.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import itertools
import math

import numpy as np

from virtco.state import inflight
from virtco.wire import reports

# Edge modules read these counters every few seconds, and less often when
# there are many: silence of a shorter time than this means nothing.
QUIET_S = 30.0

# VM, source and destination address, destination port or 0.
Key = tuple[str, str, str, int]


# Coflow, and the index of the flow that a pair's bytes belong to.
Owner = tuple[inflight.Tracked, int]


def find_owners(coflows: Iterable[inflight.Tracked],
                addresses: inflight.Addresses) -> dict[Key, Owner]:
    """Return the flow of each pair; the first coflow's if two have the pair.
    """
    owners: dict[Key, Owner] = {}
    for tracked in coflows:
        for flow in tracked.route.crossing.tolist():
            for key in _keys(tracked, flow, addresses):
                owners.setdefault(key, (tracked, flow))
    return owners


def _keys(tracked: inflight.Tracked, flow: int,
          addresses: inflight.Addresses) -> Iterator[Key]:
    """Yield the keys of a flow's counters, one for each pair of addresses."""
    src_vm, dst_vm = tracked.vms(flow)
    for src_ip, dst_ip in itertools.product(
            addresses.get(src_vm, ('', ()))[1],
            addresses.get(dst_vm, ('', ()))[1]):
        yield src_vm, src_ip, dst_ip, tracked.model.dst_port or 0


class PairCounters:
    """The last counters of the pairs at one host."""

    def __init__(self) -> None:
        self._last: dict[Key, float] = {}

    def credit(self, host: str, report: reports.Report,
               owners: Mapping[Key, Owner], wire_factor: float
               ) -> list[tuple[Owner, float]]:
        """Count the new bytes of a report; return the flows that moved and
        their bytes of payload.

        A pair that is seen for the first time (the controller is new, the VM
        has moved here, the coflow had a class before) is taken to repeat what
        is counted already: bytes count late rather than twice.
        """
        seen = totals(report)
        moved = []
        for key, value in seen.items():
            if key not in owners or host not in owners[key][0].hosts:
                continue
            tracked, flow = owners[key]
            last = self._last.get(key)
            if last is None:
                new_bytes = (value / wire_factor
                             - tracked.counted_bytes(flow))
            else:
                new_bytes = (value - last if value >= last else value
                             ) / wire_factor
            if new_bytes > 0:
                tracked.counting.credit(np.array([flow]), new_bytes)
                moved.append(((tracked, flow), new_bytes))
        self._last = seen
        return moved


def totals(report: reports.Report) -> dict[Key, float]:
    """Return the bytes counted in all for each pair of a host."""
    vms = {port.dev: port.vm for port in report.ports}
    return {(vms[pair.dev], pair.src_ip, pair.dst_ip, pair.dst_port or 0):
            pair.sent_bytes for pair in report.pairs if pair.dev in vms}


def shares(seen: Mapping[Key, float], tracked: inflight.Tracked,
           flows: Sequence[int], addresses: inflight.Addresses
           ) -> np.ndarray:
    """Return each flow's share of the bytes between two hosts.

    :param seen: result of :func:`totals`.
    :returns: array of shape (n_flows,) with the sum 1: by the pairs' counters
        where there are any, else by what the flows have left.
    """
    counted = np.array([math.fsum(
        seen.get(key, 0.0) for key in _keys(tracked, flow, addresses))
        for flow in flows])
    for weights in (counted, tracked.counting.remaining_bytes()[flows],
                    np.ones(len(counted))):
        total = weights.sum()
        if total > 0:
            return np.asarray(weights / total)
    return counted


#: IP and TCP headers with time stamps, of a packet.
HEADER_BYTES = 52


class PeerCounters:
    """The last counters of the ports of one host."""

    def __init__(self) -> None:
        self._epoch: str | None = None
        self._rows: tuple[reports.PeerCounter, ...] = ()
        self._last: dict[tuple[str, str], float] = {}

    def take(self, report: reports.Report) -> Iterator[tuple[
            str, str, float]]:
        """Yield VM, address and payload bytes since the last report.

        Of a first report nothing is new: what it counts was told to whoever
        led before. Counters that went back began anew.
        """
        if report.peers == self._rows and report.epoch == self._epoch:
            return
        vms = {port.dev: port.vm for port in report.ports}
        last, self._last = self._last, {}
        is_first, self._epoch = self._epoch != report.epoch, report.epoch
        self._rows = report.peers
        for row in report.peers:
            value = float(max(0, row.sent_bytes
                              - HEADER_BYTES * row.sent_packets))
            key = row.dev, row.dst_ip
            self._last[key] = value
            before = last.get(key, 0.0)
            new_bytes = value - before if value >= before else value
            if not is_first and new_bytes > 0 and row.dev in vms:
                yield vms[row.dev], row.dst_ip, new_bytes
