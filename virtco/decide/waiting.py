# SPDX-License-Identifier: Apache-2.0

"""At which port a coflow waits, and for whom. Pure."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math

from virtco import units
from virtco.model import live
from virtco.state import schedule_input as known

Port = tuple[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Waiting:
    """The port where a coflow waits longest.

    :ivar host: whose port serves it last.
    :ivar direction: ``egress`` or ``ingress``.
    :ivar busy_s: until the port has served it and all before it.
    :ivar n_before: how many are served there before it.
    """

    host: str
    direction: str
    busy_s: float
    n_before: int
    _served: Sequence[str]

    @property
    def waits_for(self) -> tuple[str, ...]:
        """Ids of those that are served there before it, by rank."""
        return tuple(self._served[:self.n_before])


def find(schedule: live.Schedule, snapshot: known.Snapshot
         ) -> dict[str, Waiting]:
    """For each coflow with bytes left between hosts: its bottleneck.

    The port where the bytes of the coflow and of all that rank before it take
    longest (the prefix CCT of Varys' and VirtCO's orders). Back-filling lets a
    coflow move earlier elsewhere, not end earlier there.
    """
    flows = {coflow.live.coflow_id: coflow.live.flows
             for coflow in snapshot.coflows}
    rate_bps = _rates(snapshot)
    load_bytes = dict.fromkeys(rate_bps, 0.0)
    served: dict[Port, list[str]] = {port: [] for port in rate_bps}
    found = {}
    for coflow in schedule.coflows:
        ports = _bytes_of(flows[coflow.coflow_id])
        for port, left_bytes in ports.items():
            load_bytes[port] += left_bytes
        if ports:
            busy_s, last = max(
                (units.BITS_PER_BYTE * load_bytes[port] / rate_bps[port]
                 if rate_bps[port] > 0 else math.inf, port)
                for port in ports)
            found[coflow.coflow_id] = Waiting(
                *last, busy_s * snapshot.size_factor, len(served[last]),
                served[last])
        for port in ports:
            served[port].append(coflow.coflow_id)
    return found


def _rates(snapshot: known.Snapshot) -> dict[Port, float]:
    return {(host, direction): rate_bps
            for direction, rates_bps in (('egress', snapshot.egress_bps),
                                         ('ingress', snapshot.ingress_bps))
            for host, rate_bps in zip(snapshot.hosts.names,
                                      rates_bps.tolist())}


def _bytes_of(flows: Sequence[live.LiveFlow]) -> Mapping[Port, float]:
    """Bytes left at each port."""
    ports: dict[Port, float] = {}
    for flow in flows:
        if flow.remaining_bytes > 0 and flow.src_host != flow.dst_host:
            for port in ((flow.src_host, 'egress'),
                         (flow.dst_host, 'ingress')):
                ports[port] = ports.get(port, 0.0) + flow.remaining_bytes
    return ports
