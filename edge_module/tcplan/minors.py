# SPDX-License-Identifier: Apache-2.0

"""Minor numbers of the HTB classes.

Pure. The controller assigns the minors of coflows and their destinations
(``edge_policy.FIRST_MINOR`` to ``LAST_MINOR``); this module derives the others
from them and from the ports, so that a restart finds every class where it was.
"""

from collections.abc import Iterable

from virtco.wire import edge_policy

ROOT = 0
LINK = edge_policy.ROOT_MINOR
# The host's own traffic, and all that no hook saw.
HOST = edge_policy.DEFAULT_MINOR
# Parent of the classes of VM ports, for their unmanaged traffic.
UNMANAGED = 3
# Parent of the classes for control packets.
CONTROL = 4
# Traffic of ports that the agent does not know, or not yet. Older releases had
# an inner class at 5.
UNKNOWN = 6
#: More than any minor: distinguishes the classes of several uplinks.
FURTHER = 0x10000

FIRST_PORT, N_PORTS = 0x7000, 0x1000
# Control packets where the classification is at the uplink, which sees no
# ports; those of ports follow.
UPLINK_CONTROL = 0x9000
# Classes of unmanaged traffic by destination host: 64, with a child per port.
# The kernel reserves the minor 0xffff, which no child has.
_FIRST_LIMIT, _LIMIT_BITS, _LIMIT_PORTS = 0xc000, 8, 253
# Child of all packets of ports that the agent does not know.
UNKNOWN_SEAT = _LIMIT_PORTS + 1


def of_ports(ifindexes: Iterable[int]) -> dict[int, int]:
    """Return the minor of each VM port's unmanaged traffic, by ifindex.

    Up to 4095 ports of a host have different minors.
    """
    return {ifindex: FIRST_PORT + place
            for ifindex, place in _places(ifindexes, N_PORTS - 1).items()}


def is_port(minor: int) -> bool:
    return FIRST_PORT <= minor < FIRST_PORT + N_PORTS


def is_unlimited(minor: int) -> bool:
    """Return whether a class has unmanaged traffic to hosts without a limit.
    """
    return is_port(minor) or minor == UNKNOWN


def of_control(port_minor: int) -> int:
    """Return the minor of a VM port's control packets.

    :param port_minor: see :func:`of_ports`.
    """
    return UPLINK_CONTROL + port_minor - FIRST_PORT


def is_control(minor: int) -> bool:
    """Return whether a class holds control packets."""
    return UPLINK_CONTROL <= minor < UPLINK_CONTROL + N_PORTS


def of_limit(slot: int) -> int:
    """Return the minor of all unmanaged traffic to one limited host.

    :param slot: slot of the host; 0 stands for all hosts without a limit.
    """
    return _FIRST_LIMIT | slot << _LIMIT_BITS


def seats(ifindexes: Iterable[int]) -> dict[int, int]:
    """Give each port of a host a number from 1 to 253 for limited classes.

    See :func:`of_limited`.
    """
    return _places(ifindexes, _LIMIT_PORTS)


def _places(ifindexes: Iterable[int], n_places: int) -> dict[int, int]:
    """Give ports numbers from 1 to ``n_places``, unique while there is room.

    A port that comes later has a higher index, and changes no other port's
    number; one that leaves may change that of a later one.
    """
    found: dict[int, int] = {}
    taken: set[int] = set()
    for ifindex in sorted(set(ifindexes)):
        places = (1 + (ifindex - 1 + step) % n_places
                  for step in range(n_places))
        found[ifindex] = next((place for place in places
                               if place not in taken),
                              1 + (ifindex - 1) % n_places)
        taken.add(found[ifindex])
    return found


def of_limited(slot: int, seat: int) -> int:
    """Return the minor of a VM port's unmanaged traffic to one limited host.

    :param slot: slot of the host; see :func:`of_limit`.
    :param seat: seat of the port; see :func:`seats` and :data:`UNKNOWN_SEAT`.
    """
    return of_limit(slot) | seat


def limit_of(minor: int) -> int | None:
    """Return the slot of a class of limited traffic; None for others."""
    if minor < _FIRST_LIMIT:
        return None
    return (minor - _FIRST_LIMIT) >> _LIMIT_BITS


def seat_of(minor: int) -> int:
    """Return the seat of a class of limited traffic; 0 for other classes."""
    return 0 if minor < _FIRST_LIMIT else minor & (1 << _LIMIT_BITS) - 1


def has_turns(minor: int) -> bool:
    """Return whether a class is of VM ports, which takes turns with others."""
    return is_unlimited(minor) or seat_of(minor) > 0
