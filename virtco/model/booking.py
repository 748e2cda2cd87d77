# SPDX-License-Identifier: Apache-2.0

"""How much of each host is booked though Nova's numbers do not show it. Pure.

A member is *settled* when it has run on its host for so long that the numbers
which Nova's schedulers read include it. Until then they may or may not, and
only their own change tells: each member remembers the room that Nova showed on
its host for settled and later members together. What the numbers have shrunk
by since is what they include.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses

#: How long after a VM was built Nova's numbers may lack it: compute services
#: write them again after ``[compute] update_resources_interval``, 60 s.
SETTLED_S = 60.0

Vector = tuple[float, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Booking:
    """A member that has a host.

    :ivar has_vm: Nova may have claimed the room.
    :ivar is_settled: Nova's numbers include it.
    :ivar room: of the host when it was booked, None when that is not known.
    """

    host: str
    demand: Vector
    has_vm: bool
    is_settled: bool
    room: Vector | None = None


def is_settled(is_running: bool, placed_at: float | None,
               now_s: float) -> bool:
    """A clock that was set back makes nothing young for long."""
    return is_running and (placed_at is None
                           or abs(now_s - placed_at) >= SETTLED_S)


def rooms(bookings: Iterable[Booking], shown: Mapping[str, Vector]
          ) -> dict[str, tuple[Vector, Vector]]:
    """Room and held capacity of each host with a booking.

    The room is what the host has for members, settled ones included. What is
    held is to be taken off what Nova shows as free.

    :param shown: host -> free capacity, as Nova says.
    """
    by_host: dict[str, list[Booking]] = {}
    for booking in bookings:
        if booking.host in shown:
            by_host.setdefault(booking.host, []).append(booking)
    return {host: _room(found, shown[host])
            for host, found in by_host.items()}


def _room(bookings: list[Booking], shown: Vector) -> tuple[Vector, Vector]:
    zero = (0.0,) * len(shown)
    settled = _sum(zero, (b.demand for b in bookings if b.is_settled))
    claimed = _sum(zero, (b.demand for b in bookings
                          if b.has_vm and not b.is_settled))
    planned = _sum(zero, (b.demand for b in bookings if not b.has_vm))
    # None of the young ones is in Nova's numbers, or all of them are: the
    # room lies in between, and the members remember where.
    least = _add(shown, settled)
    most = _add(least, claimed)
    room = least
    for booking in bookings:
        if booking.room is not None and not booking.is_settled:
            room = tuple(map(max, room, booking.room))
    room = tuple(map(min, room, most))
    # The room is no more than most, so no more is left than is shown.
    left = (r - b - c - p for r, b, c, p in zip(
        room, settled, claimed, planned))
    return room, tuple(max(0.0, s - f) for s, f in zip(shown, left))


def _sum(start: Vector, vectors: Iterable[Vector]) -> Vector:
    total = start
    for vector in vectors:
        total = _add(total, vector)
    return total


def _add(a: Vector, b: Vector) -> Vector:
    return tuple(x + y for x, y in zip(a, b, strict=True))
