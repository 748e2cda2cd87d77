# SPDX-License-Identifier: Apache-2.0

"""Which VMs' ports send much that belongs to no coflow. Pure.

The addresses to which all ports send are read every half minute, for
profiles. Of the few ports that fill the link they are read with each report:
a hint that comes late has to find what was sent before it.
"""

from collections.abc import Collection
from collections.abc import Mapping
import heapq

from edge_module.qdisc import wire
from edge_module.tcplan import minors
from virtco import units

#: Of the link, between two looks.
LEAST_S = 0.01
#: Those that send most.
MOST = 8
_NOTHING = wire.ClassStats()


class HeavyPorts:
    """The last counters of the ports' classes."""

    def __init__(self) -> None:
        self._stats: Mapping[int, wire.ClassStats] = {}

    def find(self, stats: Mapping[int, wire.ClassStats],
             ifindexes: Collection[int], link_bps: float) -> list[int]:
        """The ports, by index, that sent so much since the last call, or
        have something waiting; those that sent most first.

        :param stats: of all classes, by minor.
        :param link_bps: of the uplink.
        """
        before, self._stats = self._stats, stats
        slots = {minors.limit_of(minor) for minor in stats
                 if minors.is_limited_port(minor)}
        least_bytes = link_bps / units.BITS_PER_BYTE * LEAST_S
        found = []
        for ifindex, seat in minors.seats(ifindexes).items():
            new_bytes = backlog_bytes = 0
            for minor in (minors.of_port(ifindex), *(
                    minors.of_limited(slot, seat)
                    for slot in slots if slot is not None)):
                seen = stats.get(minor, _NOTHING)
                last = before.get(minor, _NOTHING).sent_bytes
                # A class that began anew counts from 0.
                new_bytes += seen.sent_bytes - (
                    last if last <= seen.sent_bytes else 0)
                backlog_bytes += seen.backlog_bytes
            if new_bytes >= least_bytes or backlog_bytes:
                found.append((new_bytes, ifindex))
        return [ifindex for _, ifindex in heapq.nlargest(MOST, found)]
