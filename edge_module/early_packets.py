# SPDX-License-Identifier: Apache-2.0

"""Packets that VMs queued before their coflow had a class. Pure.

They stay in the queue of the port's unmanaged traffic, which beside busy
coflows drains at a few packets a second, while TCP's sender waits for their
acknowledgements: after a hint that came 2 s late a flow stood still for
another 1.2 s. So unmanaged traffic has the coflow's rate, too, until these
packets are sent. The kernel ignores a new priority of a class with packets,
and a leaf at the idle rate owes tokens for a minute: only the leaf's parent
becomes faster at once.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping

from edge_module.classify import classified as classify
from edge_module.qdisc import wire
from edge_module.tcplan import minors
from virtco.wire import edge_policy

#: Seconds for which these packets are served so at most.
MOST_S = 1.0
#: Reads the counters of the classes, by minor.
Read = Callable[[], Mapping[int, wire.ClassStats]]


class EarlyPackets:
    """Queues of ports with packets of flows that have a class now.

    :ivar rate_bps: sum of the rates of their coflows; 0 without such queues.
    :ivar limits_bps: the same of those towards a limited host, by its slot.
    """

    def __init__(self) -> None:
        self.rate_bps = 0.0
        self.limits_bps: dict[int, float] = {}
        # By minor the sent bytes after which the packets are gone.
        self._last_bytes: dict[int, int] = {}
        self._until_s = 0.0
        # Before the first classification nothing is known of the flows.
        self._known: Collection[classify.Key] | None = None

    def find(self, policy: edge_policy.EdgePolicy, table: classify.Table,
             read: Read, now_s: float) -> bool:
        """Find the queues after a classification; return whether there are
        new ones.
        """
        known, self._known = self._known, table.entries.keys()
        if known is None:
            return False
        coflow_of = {minor: coflow for coflow in policy.classes
                     for minor in (coflow.minor, *(
                         child.minor for child in coflow.destinations))}
        # At the uplink entries name no port, and no port has a class.
        ifindexes = dict(table.hooks)
        new = {(key.dev, coflow_of[minor])
               for key in table.entries.keys() - known
               if (minor := table.entries[key]) in coflow_of
               and key.dev in ifindexes}
        if not new:
            return False
        stats = read()
        own = minors.of_ports(ifindexes.values())
        seats = minors.seats(ifindexes.values())
        begun = set()
        limited = set()
        for dev, coflow in new:
            ifindex = ifindexes[dev]
            for minor, seen in stats.items():
                if seen.backlog_bytes and (
                        minor == own[ifindex]
                        or minors.seat_of(minor) == seats[ifindex]):
                    self._last_bytes[minor] = (seen.sent_bytes
                                               + seen.backlog_bytes)
                    begun.add(coflow)
                    limited.add((minors.limit_of(minor), coflow))
        for slot, coflow in limited:
            if slot is not None:
                self.limits_bps[slot] = (self.limits_bps.get(slot, 0.0)
                                         + coflow.rate_bps)
        self.rate_bps += sum(coflow.rate_bps for coflow in begun)
        if begun:
            self._until_s = now_s + MOST_S
        return bool(begun)

    def are_sent(self, read: Read, now_s: float) -> bool:
        """Return whether the packets are all sent now, or were served for
        long.
        """
        if not self._last_bytes:
            return False
        if now_s < self._until_s:
            stats = read()
            if any(minor in stats and stats[minor].sent_bytes < last_bytes
                   for minor, last_bytes in self._last_bytes.items()):
                return False
        self._last_bytes, self.limits_bps, self.rate_bps = {}, {}, 0.0
        return True
