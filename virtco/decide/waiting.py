# SPDX-License-Identifier: Apache-2.0

"""Port at which a coflow waits, and the coflows before it. Pure."""

import collections
from collections.abc import Sequence
import dataclasses

import numpy as np

from virtco.model import live
from virtco.state import schedule_input as known

# Host and direction of a host's port, or a VM's cap.
Port = tuple[str, str] | live.Cap


@dataclasses.dataclass(frozen=True, slots=True)
class Waiting:
    """The port or cap where a coflow waits longest.

    :ivar host: host of the port that serves the coflow last.
    :ivar direction: ``egress`` or ``ingress``.
    :ivar busy_s: time until the port has served it and all before it.
    :ivar n_before: number of coflows that the port serves before it.
    :ivar vm: VM whose cap it is; None: it is the host's port.
    """

    host: str
    direction: str
    busy_s: float
    n_before: int
    _served: Sequence[str]
    vm: str | None = None

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
    lives = {coflow.live.coflow_id: coflow.live for coflow in snapshot.coflows}
    hosts = snapshot.hosts
    ports = live.Ports(hosts.names, snapshot.egress_bps, snapshot.ingress_bps)
    numbers = [(name, direction) for direction in ('egress', 'ingress')
               for name in hosts.names]
    busy_s: dict[Port, float] = collections.defaultdict(float)
    served: dict[Port, list[str]] = collections.defaultdict(list)
    found = {}
    for coflow in schedule.coflows:
        one = lives[coflow.coflow_id]
        own_s = ports.busy_s(one.flows, hosts.number_of)
        crossed: list[Port] = []
        for number in np.flatnonzero(own_s).tolist():
            crossed.append(numbers[number])
            busy_s[numbers[number]] += own_s[number]
        if one.capped is not None:
            for cap, each_s in one.capped.busy_s(one.flows).items():
                if each_s > 0:
                    crossed.append(cap)
                    busy_s[cap] += each_s
        if crossed:
            last = max(crossed, key=lambda port: (busy_s[port], port))
            found[coflow.coflow_id] = Waiting(
                last[0], last[1], float(busy_s[last]) * snapshot.size_factor,
                len(served[last]), served[last],
                last.vm if isinstance(last, live.Cap) else None)
        for port in crossed:
            served[port].append(coflow.coflow_id)
    return found
