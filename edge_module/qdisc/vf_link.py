# SPDX-License-Identifier: Apache-2.0

"""Netlink messages of ``ip link set DEV vf N``: virtual functions of a card
that is not in switchdev mode.

Pure bytes in and out, as in ``wire``; layouts of ``linux/if_link.h``.
"""

from collections.abc import Iterator
import struct

from edge_module.qdisc import wire
from edge_module.tcplan import minors
from edge_module.tcplan import vf_rates

_VFINFO_LIST, _EXT_MASK = 22, 29
#: With virtual functions, without their counters, which a card may read from
#: its firmware.
_MASK = 1 | 8
_VF_INFO, _MAC, _RATE = 1, 1, 6
_MAC_BYTES = 6
_U32 = struct.Struct('=I')
_VF_RATE = struct.Struct('=III')


def request(ifindex: int) -> wire.Message:
    """Build a request for a device with its virtual functions."""
    return wire.link(wire.RTM_GETLINK, ifindex,
                     wire.attr(_EXT_MASK, _U32.pack(_MASK)))


def rate_of(share_mbps: int, most_mbps: int) -> vf_rates.Rate:
    """Return a rate of virtco's; no function is in a group without it."""
    return vf_rates.Rate(share_mbps, most_mbps,
                         minors.LINK if share_mbps or most_mbps else 0)


def read(answer: bytes) -> Iterator[tuple[str, vf_rates.Name, vf_rates.Rate]]:
    """Yield Ethernet address, name and rate of each virtual function."""
    _, _, ifindex, _, _ = wire.IFINFOMSG.unpack_from(answer)
    found = dict(wire.attrs(answer, wire.IFINFOMSG.size))
    for _, info in wire.attrs(found.get(_VFINFO_LIST, b''), 0):
        parts = dict(wire.attrs(info, 0))
        if _MAC in parts and _RATE in parts:
            number, share_mbps, most_mbps = _VF_RATE.unpack_from(parts[_RATE])
            mac = parts[_MAC][_U32.size:][:_MAC_BYTES]
            yield mac.hex(':'), vf_rates.Name(
                vf_rates.CARD, str(ifindex), number), rate_of(
                    share_mbps, most_mbps)


def change(step: vf_rates.Step) -> wire.Message:
    """Make the message that sets the rate of a virtual function."""
    return wire.link(wire.RTM_SETLINK, int(step.name.card), wire.attr(
        _VFINFO_LIST, wire.attr(_VF_INFO, wire.attr(_RATE, _VF_RATE.pack(
            step.name.port, step.share_mbps, step.most_mbps)))))
