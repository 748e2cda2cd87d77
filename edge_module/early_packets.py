# SPDX-License-Identifier: Apache-2.0

"""Packets that VMs queued before their coflow had a class. Pure.

They stay in the queue of the port's unmanaged traffic, which beside busy
coflows drains at a few packets a second, while TCP's sender waits for their
acknowledgements: after a hint that came 2 s late a flow stood still for
another 1.2 s. So the flow's class lends unmanaged traffic a part of its rate
until these packets are sent: the rates still fit the link, however often flows
come and go. The limit towards the flow's host rises likewise, but none towards
another. The kernel ignores a new priority of a class with packets, and a leaf
at the idle rate owes tokens for a minute: only the leaf's parent becomes
faster at once.
"""

import collections
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping

from edge_module.classify import classified as classify
from edge_module.qdisc import wire
from edge_module.tcplan import minors
from virtco.wire import edge_policy

#: Seconds for which these packets are served so at most.
MOST_S = 1.0
#: Part of its rate that a class lends.
LENT = 0.25
#: Reads the counters of the classes, by minor.
Read = Callable[[], Mapping[int, wire.ClassStats]]


class EarlyPackets:
    """Queues of ports with packets of flows that have a class now.

    :ivar rates_bps: rate that is added meanwhile, by minor: to all unmanaged
        traffic and to that towards a host with a limit; less than 0 for the
        classes of these flows. Empty without such queues.
    """

    def __init__(self) -> None:
        self.rates_bps: collections.defaultdict[int, float] = (
            collections.defaultdict(float))
        # Sent bytes by minor, after which the early packets are gone.
        self._last_bytes: dict[int, int] = {}
        self._until_s = 0.0
        # Before the first classification nothing is known of the flows.
        self._known: Collection[classify.Entry] | None = None

    def find(self, policy: edge_policy.EdgePolicy,
             entries: Mapping[classify.Entry, int], ports: Collection[int],
             read: Read, now_s: float) -> bool:
        """Find the queues after a classification; return whether there are
        new ones.

        :param ports: ifindexes of the VM ports. Entries at the uplink name
            none of them.
        """
        known, self._known = self._known, entries.keys()
        if known is None:
            return False
        # Host and rate of each class of data; without a host that of all.
        targets = {coflow.minor: ('', coflow.rate_bps)
                   for coflow in policy.classes} | {
            child.minor: (child.host, child.rate_bps)
            for coflow in policy.classes for child in coflow.destinations}
        new = {(entry.ifindex, minor) for entry in entries.keys() - known
               if (minor := entries[entry]) in targets
               and entry.ifindex in ports}
        if not new:
            return False
        slots = {limit.host: limit.slot for limit in policy.unmanaged.limits
                 } if policy.unmanaged is not None else {}
        stats = read()
        own, seats = minors.of_ports(ports), minors.seats(ports)
        begun = set()
        for ifindex, minor in new:
            # Packets that wait towards other hosts are none of this flow.
            slot = slots.get(targets[minor][0])
            if self._waits(own[ifindex], stats):
                begun.add((minors.UNMANAGED, minor))
            if slot is not None and self._waits(
                    minors.of_limited(slot, seats[ifindex]), stats):
                begun |= {(minors.UNMANAGED, minor),
                          (minors.of_limit(slot), minor)}
        lending = {minor for _, minor in begun} - self.rates_bps.keys()
        for faster, minor in begun:
            if minor in lending:
                self.rates_bps[faster] += LENT * targets[minor][1]
                self.rates_bps[minor] = -LENT * targets[minor][1]
        if begun:
            self._until_s = now_s + MOST_S
        return bool(begun)

    def _waits(self, leaf: int, stats: Mapping[int, wire.ClassStats]) -> bool:
        """Note the bytes queued in a leaf; return whether there are any."""
        seen = stats.get(leaf)
        if seen is None or not seen.backlog_bytes:
            return False
        self._last_bytes[leaf] = seen.sent_bytes + seen.backlog_bytes
        return True

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
        self._last_bytes = {}
        self.rates_bps.clear()
        return True
