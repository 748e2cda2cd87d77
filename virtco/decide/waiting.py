# SPDX-License-Identifier: Apache-2.0

"""At which port a coflow waits, and for whom. Pure."""

from collections.abc import Sequence
import dataclasses

import numpy as np

from virtco.model import live
from virtco.state import schedule_input as known


@dataclasses.dataclass(frozen=True, slots=True)
class Waiting:
    """The port where a coflow waits longest.

    :ivar host: host of the port that serves the coflow last.
    :ivar direction: ``egress`` or ``ingress``.
    :ivar busy_s: time until the port has served it and all before it.
    :ivar n_before: number of coflows that the port serves before it.
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
    """Find the bottleneck of each coflow with bytes left between hosts.

    The port where the bytes of the coflow and of all that rank before it take
    longest (the prefix CCT of Varys' and VirtCO's orders). Back-filling lets a
    coflow move earlier elsewhere, not end earlier there.
    """
    flows = {coflow.live.coflow_id: coflow.live.flows
             for coflow in snapshot.coflows}
    hosts = snapshot.hosts
    ports = live.Ports(hosts.names, snapshot.egress_bps, snapshot.ingress_bps)
    n_hosts = len(hosts.names)
    busy_s = np.zeros(2 * n_hosts)
    served: list[list[str]] = [[] for _ in busy_s]
    found = {}
    for coflow in schedule.coflows:
        left = flows[coflow.coflow_id]
        own_s = ports.busy_s(left, hosts.number_of)
        busy_s += own_s
        crossed = np.flatnonzero(own_s).tolist()
        if crossed:
            last = max(crossed, key=lambda port: (
                busy_s[port], hosts.names[port % n_hosts], port))
            found[coflow.coflow_id] = Waiting(
                hosts.names[last % n_hosts],
                'ingress' if last >= n_hosts else 'egress',
                float(busy_s[last]) * snapshot.size_factor,
                len(served[last]), served[last])
        for port in crossed:
            served[port].append(coflow.coflow_id)
    return found
