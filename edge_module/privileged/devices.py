# SPDX-License-Identifier: Apache-2.0

"""Kinds of network devices, read from the kernel by netlink."""

import os
import re
import socket
import struct
from typing import NamedTuple

from edge_module.privileged import kernel_calls as kernel
from edge_module.qdisc import wire

_IFLA_ADDRESS, _IFLA_IFNAME = 1, 3
_IFLA_MASTER, _IFLA_LINKINFO = 10, 18
_ETHERNET_BYTES = 6
_INFO_KIND, _INFO_DATA, _INFO_SLAVE_KIND = 1, 2, 4
_IFLA_TUN_TYPE, _IFF_TAP = 3, b'\x02'
_IFLA_PHYS_PORT_NAME = 38
_IFLA_STATS64, _SENT_FRAMES = 23, struct.Struct('=8xQ')


_REPRESENTOR = re.compile(r'(?:c\d+)?pf\d+vf\d+')
_SWITCHES = ('openvswitch', 'bridge')
_TUNNELS = ('geneve', 'vxlan', 'gretap', 'ip6gretap', 'erspan', 'ip6erspan')


class Device(NamedTuple):
    """Attributes of a network device.

    :ivar kind: kind of a virtual device, such as ``tun``; '' for others.
    :ivar port_name: name of the port of a switching network card, such as
        ``pf0vf3``; '' for others.
    :ivar has_master: whether it is a port of a bridge or another switch.
    :ivar master_kind: kind of its master, such as ``bridge``; '' without.
    :ivar is_tap: whether it is a tap rather than a point-to-point tunnel.
    :ivar ifindex: its index; 0 for a device that does not exist.
    :ivar mac: Ethernet address; '' for a device that has none.
    :ivar is_up: whether it is set up.
    """

    kind: str = ''
    port_name: str = ''
    has_master: bool = False
    master_kind: str = ''
    is_tap: bool = False
    ifindex: int = 0
    mac: str = ''
    is_up: bool = False

    @property
    def is_representor(self) -> bool:
        """Whether it stands for a virtual function of a card."""
        return _REPRESENTOR.fullmatch(self.port_name) is not None

    @property
    def is_port(self) -> bool:
        """Whether a VM can be behind it: no bond, NIC or tunnel of the host.

        A tap has no master before the switch takes it, and where the host
        routes.
        """
        if not self.has_master:
            return self.is_tap
        return self.master_kind in _SWITCHES and (
            self.is_tap or self.kind == 'veth' or self.is_representor)

    @property
    def is_tunnel(self) -> bool:
        """Whether it is a port by which a switch encapsulates packets."""
        return self.master_kind in _SWITCHES and self.kind in _TUNNELS


class OfHost(NamedTuple):
    """Devices that no VM is behind.

    :ivar macs: Ethernet addresses of all of them.
    :ivar tunnels: name, index and kind of each tunnel of a switch.
    """

    macs: frozenset[str]
    tunnels: frozenset[tuple[str, int, str]]


def ifindex(dev: str) -> int:
    """Return the index of a device, 0 without one."""
    try:
        return socket.if_nametoindex(dev)
    except OSError:
        return 0


def name(number: int) -> str:
    """Return the name of a device; '' when it is gone."""
    try:
        return socket.if_indextoname(number)
    except OSError:
        return ''


def of_host() -> OfHost:
    """Read the devices that no VM is behind."""
    found = {dev: device for dev, device in links().items()
             if not device.is_port}
    return OfHost(
        frozenset(device.mac for device in found.values() if device.mac),
        frozenset((dev, device.ifindex, device.kind)
                  for dev, device in found.items() if device.is_tunnel))


def links() -> dict[str, Device]:
    """Read all devices, by name."""
    return dict(map(read, kernel.tc_dump(wire.link(wire.RTM_GETLINK, 0))))


def look(dev: str) -> Device:
    """Read a device from the kernel; one without an index if there is none."""
    try:
        return read(_ask(dev))[1]
    except OSError:
        return Device()


def sent_frames(dev: str) -> int:
    """Return the number of frames that a device sent; 0 without it.

    A card counts the frames that it makes of super-packets.
    """
    try:
        found = dict(wire.attrs(_ask(dev), wire.IFINFOMSG.size))
        sent: int = _SENT_FRAMES.unpack_from(found[_IFLA_STATS64])[0]
        return sent
    except (OSError, KeyError):
        return 0


def _ask(dev: str) -> bytes:
    return kernel.ask(wire.link(wire.RTM_GETLINK, ifindex(dev)))


def read(answer: bytes) -> tuple[str, Device]:
    """Decode the kernel's answer about a device, with its name."""
    found = dict(wire.attrs(answer, wire.IFINFOMSG.size))
    info = dict(wire.attrs(found.get(_IFLA_LINKINFO, b''), 0))
    dev, kind, master_kind, port_name = (
        os.fsdecode(value.rstrip(b'\0')) for value in (
            found.get(_IFLA_IFNAME, b''), info.get(_INFO_KIND, b''),
            info.get(_INFO_SLAVE_KIND, b''),
            found.get(_IFLA_PHYS_PORT_NAME, b'')))
    data = dict(wire.attrs(info.get(_INFO_DATA, b''), 0))
    mac = found.get(_IFLA_ADDRESS, b'')
    _, _, ifindex, flags, _ = wire.IFINFOMSG.unpack_from(answer)
    return dev, Device(
        kind, port_name, _IFLA_MASTER in found, master_kind,
        kind == 'tun' and data.get(_IFLA_TUN_TYPE) == _IFF_TAP,
        ifindex,
        mac.hex(':') if len(mac) == _ETHERNET_BYTES and any(mac) else '',
        bool(flags & wire.IFF_UP))
