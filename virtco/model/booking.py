# SPDX-License-Identifier: Apache-2.0

"""The ledger of room: no host is booked above its free room in Nova. Pure.

Of each host and resource: booked + Nova's own <= capacity. The *room* is the
capacity less Nova's own, so it is what all bookings share. Nova does not tell
it: its numbers include some bookings and lack others.

A member is *settled* when it has run on its host for so long that Nova's
numbers include it. Until then they may or may not. Hence the room lies
between two bounds, and young bookings remember where: each holds the room of
its host at the time of its commit. A VM without a group is a booking, too,
until Nova's numbers surely include it; then the rooms shrink by it.
"""

from collections.abc import Mapping
import dataclasses

#: How long after a VM was built Nova's numbers may lack it: compute services
#: write them again after ``[compute] update_resources_interval``, 60 s.
SETTLED_S = 60.0
#: Longest time between a VM's coming or leaving, when its compute service
#: writes its numbers, and the answer to a scheduler that read them before.
NUMBERS_S = 10.0
#: Longest time for which a VM on its way to a host is booked there without a
#: notification.
MOVE_S = 600.0
#: Sums of floating point numbers differ by less.
ROUNDING = 1e-6

#: Amounts of the resources, in this order.
Vector = tuple[float, ...]
RESOURCES = ('vcpus', 'memory_mb', 'disk_gb')
NOTHING: Vector = (0.0,) * len(RESOURCES)


@dataclasses.dataclass(frozen=True, slots=True)
class Account:
    """Bookings on one host, per resource.

    :ivar settled: demand of members that Nova's numbers include.
    :ivar claimed: demand of members that have a VM, and of VMs without a group
        that came lately; the numbers may include them.
    :ivar planned: demand of members without a VM; the numbers lack them.
    :ivar room: largest room that a young booking remembers; None without any.
        All shrink with VMs that come without a group, see
        :func:`virtco.db.bookings.lessen_room`.
    """

    settled: Vector
    claimed: Vector
    planned: Vector
    room: Vector | None = None

    def __add__(self, other: 'Account') -> 'Account':
        return Account(_add(self.settled, other.settled),
                       _add(self.claimed, other.claimed),
                       _add(self.planned, other.planned),
                       self.room or other.room)

    def room_in(self, shown: Vector) -> Vector:
        """Return the host's room for bookings.

        :param shown: free capacity, as Nova says.
        """
        least = _add(shown, self.settled)
        most = _add(least, self.claimed)
        return tuple(map(min, map(max, least, self.room or least), most))

    def left_in(self, shown: Vector) -> Vector:
        """Return the room that may still be booked, at most Nova's free
        capacity.
        """
        return tuple(max(0.0, r - b - c - p) for r, b, c, p in zip(
            self.room_in(shown), self.settled, self.claimed, self.planned))


class Ledger:
    """Accounts by host, and the free capacity that Nova shows."""

    def __init__(self, accounts: Mapping[str, Account],
                 shown: Mapping[str, Vector]):
        self._accounts = accounts
        self._shown = shown

    def room(self, host: str) -> Vector:
        account = self._accounts.get(host)
        shown = self._shown[host]
        return shown if account is None else account.room_in(shown)

    def left(self) -> dict[str, Vector]:
        """Return the room that may still be booked on each host."""
        return {host: shown if host not in self._accounts
                else self._accounts[host].left_in(shown)
                for host, shown in self._shown.items()}

    def admits(self, wanted: Mapping[str, Vector]) -> bool:
        """Return whether these demands fit on their hosts."""
        left = self.left()
        return all(host in left and fits(demand, left[host])
                   for host, demand in wanted.items())


def fits(demand: Vector, free: Vector) -> bool:
    return all(need <= have + ROUNDING
               for need, have in zip(demand, free, strict=True))


def _add(a: Vector, b: Vector) -> Vector:
    return tuple(x + y for x, y in zip(a, b, strict=True))
