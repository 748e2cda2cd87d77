# SPDX-License-Identifier: Apache-2.0

"""Netlink messages of devlink: ports of network cards, and their rates.

Pure bytes in and out, as in ``wire``; layouts of ``linux/devlink.h``.
"""

import re
import struct

from edge_module.qdisc import wire
from edge_module.tcplan import vf_rates
from virtco import units

#: Stands for the type of devlink's messages, which is the kernel's choice.
KIND = 0
#: Request for that type; it is the answer's attribute 1.
FAMILY: wire.Message = (16, 0, struct.pack('=BBxx', 3, 1)
                        + wire.attr(2, b'devlink\0'))
PORT_GET, RATE_GET = 5, 74
_COMMANDS = {'set': 75, 'make': 76, 'delete': 77}
_GENERIC = struct.Struct('=BBxx')
_U16, _U32, _U64 = map(struct.Struct, ('=H', '=I', '=Q'))
_BUS, _CARD, _PORT, _IFINDEX, _FLAVOUR = 1, 2, 3, 6, 77
_SHARE, _MOST, _GROUP, _PARENT = 166, 167, 168, 169
_VF = _U16.pack(4)
_LABEL = re.compile(rb'virtco-([1-9a-f][0-9a-f]{0,3})')
_STEP_BYTES = int(units.bps_to_bytes_per_s(vf_rates.STEP_BPS))


def family(answer: bytes) -> int:
    """Return the type of devlink's messages."""
    kind, = _U16.unpack_from(dict(wire.attrs(answer, _GENERIC.size))[1])
    return int(kind)


def request(command: int, name: vf_rates.Name | None = None) -> wire.Message:
    """Build a request for a port or a rate; without a name, for a dump."""
    return KIND, 0, _GENERIC.pack(command, 1) + (
        b'' if name is None else _named(name))


def change(step: vf_rates.Step) -> wire.Message:
    """Make the devlink message that changes a rate object, in bytes/s."""
    body = _named(step.name)
    for kind, mbps in (_SHARE, step.share_mbps), (_MOST, step.most_mbps):
        if mbps is not None:
            body += wire.attr(kind, _U64.pack(mbps * _STEP_BYTES))
    if step.group is not None:
        body += _text(_PARENT, _label(step.group))
    return KIND, 0, _GENERIC.pack(_COMMANDS[step.what], 1) + body


def _named(name: vf_rates.Name) -> bytes:
    return _text(_BUS, name.bus) + _text(_CARD, name.card) + (
        _text(_GROUP, _label(name.group)) if name.port is None
        else wire.attr(_PORT, _U32.pack(name.port)))


def _text(kind: int, value: str) -> bytes:
    return wire.attr(kind, value.encode() + b'\0')


def _label(group: int) -> str:
    return f'virtco-{group:x}' if group else ''


def _group(label: bytes) -> int:
    found = _LABEL.fullmatch(label.rstrip(b'\0'))
    return int(found[1], 16) if found else vf_rates.OTHERS if label else 0


def _of_card(found: dict[int, bytes]) -> vf_rates.Name:
    bus, card = (found[kind].rstrip(b'\0').decode()
                 for kind in (_BUS, _CARD))
    return vf_rates.Name(bus, card, _U32.unpack(found[_PORT])[0]
                         if _PORT in found else None,
                         _group(found.get(_GROUP, b'')))


def read_function(body: bytes) -> tuple[int, vf_rates.Name] | None:
    """Parse (ifindex, name) of a virtual function's port; None for others."""
    found = dict(wire.attrs(body, _GENERIC.size))
    if found.get(_FLAVOUR) != _VF or _IFINDEX not in found:
        return None
    return _U32.unpack(found[_IFINDEX])[0], _of_card(found)


def read_rate(body: bytes) -> tuple[vf_rates.Name, vf_rates.Rate]:
    """Parse a rate; a group of another program has the name ``OTHERS``."""
    found = dict(wire.attrs(body, _GENERIC.size))
    share, most = (-(-_U64.unpack(found[kind])[0] // _STEP_BYTES)
                   for kind in (_SHARE, _MOST))
    return _of_card(found), vf_rates.Rate(
        share, most, _group(found.get(_PARENT, b'')))
