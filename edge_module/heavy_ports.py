# SPDX-License-Identifier: Apache-2.0

"""The VM ports that send most traffic outside coflows. Pure.

Destination addresses of all ports are read every half minute, for profiles.
Those of the few ports that fill the link are read with each report: a hint
that comes late needs the bytes sent before it.
"""

from collections.abc import Collection
from collections.abc import Mapping
import heapq

from edge_module.qdisc import wire
from edge_module.tcplan import minors
from virtco import units

#: Least traffic of a heavy port between two calls, as time of the full link.
LEAST_S = 0.01
#: Most ports that are heavy at once.
MOST = 8


class HeavyPorts:
    """Finder of heavy ports, with the last counters of their classes."""

    def __init__(self) -> None:
        self._stats: Mapping[int, wire.ClassStats] = {}

    def find(self, stats: Mapping[int, wire.ClassStats],
             ifindexes: Collection[int], link_bps: float) -> list[int]:
        """Return the ifindexes of heavy ports, most unmanaged bytes first.

        A port is heavy if it sent at least LEAST_S of the link's capacity
        since the last call, or has packets queued.

        :param stats: counters of all classes, by minor.
        :param link_bps: speed of the uplink.
        """
        before, self._stats = self._stats, stats
        slots = {minors.limit_of(minor) for minor in stats
                 if minors.seat_of(minor)}
        least_bytes = link_bps / units.BITS_PER_BYTE * LEAST_S
        found = []
        own = minors.of_ports(ifindexes)
        for ifindex, seat in minors.seats(ifindexes).items():
            new_bytes, waits = 0, False
            for minor in (own[ifindex], *(
                    minors.of_limited(slot, seat)
                    for slot in slots if slot is not None)):
                seen = stats.get(minor, wire.NO_STATS)
                last = before.get(minor, wire.NO_STATS).sent_bytes
                # The counter of a new class starts from 0.
                new_bytes += seen.sent_bytes - (
                    last if last <= seen.sent_bytes else 0)
                waits |= seen.backlog_bytes > 0
            if new_bytes >= least_bytes or waits:
                found.append((new_bytes, ifindex))
        return [ifindex for _, ifindex in heapq.nlargest(MOST, found)]
