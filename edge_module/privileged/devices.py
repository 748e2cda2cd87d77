# SPDX-License-Identifier: Apache-2.0

"""What kind of thing a network device is, as the kernel says it."""

import socket
import struct
from typing import NamedTuple

from edge_module.privileged import kernel_calls as kernel
from edge_module.qdisc import wire

_RTM_GETLINK = 18
_IFINFOMSG = struct.Struct('=BxHiII')
_IFLA_MASTER, _IFLA_LINKINFO, _INFO_KIND = 10, 18, 1
_IFLA_PHYS_PORT_NAME = 38


class Device(NamedTuple):
    """:ivar kind: of a virtual device, such as ``tun``; '' of others.

    :ivar port_name: of a port of a card that switches, such as ``pf0vf3``.
    :ivar has_master: whether it is a port of a bridge or another switch.
    """

    kind: str
    port_name: str
    has_master: bool


def look(dev: str) -> Device | None:
    """None when it is not there."""
    try:
        answer = kernel.ask((_RTM_GETLINK, 0, _IFINFOMSG.pack(
            0, 0, socket.if_nametoindex(dev), 0, 0)))
    except OSError:
        return None
    return read(answer)


def read(answer: bytes) -> Device:
    found = dict(wire.attrs(answer, _IFINFOMSG.size))
    info = dict(wire.attrs(found.get(_IFLA_LINKINFO, b''), 0))
    kind, port_name = (value.rstrip(b'\0').decode() for value in (
        info.get(_INFO_KIND, b''), found.get(_IFLA_PHYS_PORT_NAME, b'')))
    return Device(kind, port_name, _IFLA_MASTER in found)


def may_be_port(dev: str) -> bool:
    """Whether it is a port of a switch or a tap, or not there at all."""
    found = look(dev)
    # The kernel refuses what is not there.
    return found is None or found.has_master or found.kind == 'tun'
