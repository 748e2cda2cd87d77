# SPDX-License-Identifier: Apache-2.0

"""Which class has which minor.

Pure. The controller gives out those of coflows and their destinations
(``edge_policy.FIRST_MINOR`` to ``LAST_MINOR``); the module derives its own
from them and from the ports, so that a restart finds every class where it was.
"""

from collections.abc import Iterable

from virtco.wire import edge_policy

ROOT = 0
LINK = edge_policy.ROOT_MINOR
# What nobody classifies: the host itself.
HOST = edge_policy.DEFAULT_MINOR
# Parent of the classes of VM ports, for their unmanaged traffic.
UNMANAGED = 3
# Parent of the classes for control packets: those of coflows and of ports.
CONTROL = 4
# Parent of all that is not a coflow's data.
SHARED = 5
INNER = frozenset({LINK, UNMANAGED, CONTROL, SHARED})
RESERVED = INNER | {HOST}

# The number of these is a power of two.
FIRST_PORT, N_PORTS = 0x7000, 0x1000
_CONTROL_BIT = 0x8000
# Coflows with a class of their own for control packets, and classes that all
# others share: the kernel looks at every class when one is made.
_OWN_CONTROL, _SHARED_CONTROL = 1024, 15
_FIRST_PORT_CONTROL = 0x9000
# Of unmanaged traffic by destination host: 64 classes with a child per port.
# The last child's number is none of the kernel's own.
_FIRST_LIMIT, _LIMIT_BITS, _LIMIT_PORTS = 0xc000, 8, 254

# Class of what is counted and not shaped: no device has the index 0, and no
# queue of Open vSwitch has this number.
NOBODY = FIRST_PORT


def of_port(ifindex: int) -> int:
    """Class of what a VM's port sends unmanaged.

    Ports whose indexes differ by a multiple of 4096 share one.
    """
    return FIRST_PORT + ifindex % N_PORTS


def is_port(minor: int) -> bool:
    return FIRST_PORT <= minor < FIRST_PORT + N_PORTS


def of_port_control(ifindex: int) -> int:
    """Class of the control packets that a VM's port sends unmanaged, and of
    those that acknowledge what a coflow sent to it.
    """
    return _FIRST_PORT_CONTROL + ifindex % N_PORTS


def is_port_control(minor: int) -> bool:
    return _FIRST_PORT_CONTROL <= minor < _FIRST_PORT_CONTROL + N_PORTS


def of_control(coflow_minor: int) -> int:
    """Class of a coflow's control packets, from the minor of its class.

    The controller gives out the lowest minors first: coflows share one only
    where more than a thousand minors are in use.
    """
    if coflow_minor >= edge_policy.FIRST_MINOR + _OWN_CONTROL:
        return _CONTROL_BIT | 1 + coflow_minor % _SHARED_CONTROL
    return _CONTROL_BIT | coflow_minor


def controlled_by(minor: int) -> int | None:
    """The coflow's minor for that of its control packets; None for others.

    That of a class that coflows share is no coflow's.
    """
    if _CONTROL_BIT <= minor < _FIRST_PORT_CONTROL:
        return minor ^ _CONTROL_BIT
    return None


def of_limit(slot: int) -> int:
    """Class of all unmanaged traffic to one host; slot 0 is of the others."""
    return _FIRST_LIMIT | slot << _LIMIT_BITS


def seats(ifindexes: Iterable[int]) -> dict[int, int]:
    """Number the ports of a host for :func:`of_limited`, from 1.

    Up to 254 ports have different numbers. A port that comes later has a
    higher index, and changes no other port's number.
    """
    found: dict[int, int] = {}
    taken: set[int] = set()
    for ifindex in sorted(set(ifindexes)):
        places = (1 + (ifindex + step) % _LIMIT_PORTS
                  for step in range(_LIMIT_PORTS))
        seat = next((place for place in places if place not in taken),
                    1 + ifindex % _LIMIT_PORTS)
        taken.add(seat)
        found[ifindex] = seat
    return found


def of_limited(slot: int, seat: int) -> int:
    """Class of what a VM's port sends to it.

    :param seat: see :func:`seats`.
    """
    return of_limit(slot) | seat


def limit_of(minor: int) -> int | None:
    """The slot to which a class belongs, None for others."""
    if minor < _FIRST_LIMIT:
        return None
    return (minor - _FIRST_LIMIT) >> _LIMIT_BITS


def is_limited_port(minor: int) -> bool:
    return minor > _FIRST_LIMIT and minor & (1 << _LIMIT_BITS) - 1 > 0


def has_turns(minor: int) -> bool:
    """Whether a VM's port sends through it, in turn with other ports."""
    return is_port(minor) or is_limited_port(minor)
