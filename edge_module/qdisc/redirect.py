# SPDX-License-Identifier: Apache-2.0

"""Netlink messages of the receiver's side: IFB, redirection, u32 filters.

Pure bytes in and out, as in ``wire``; layouts of ``linux/pkt_cls.h``.
"""

import ipaddress
import struct

from edge_module.classify import classified as classify
from edge_module.qdisc import wire

IFB_DEV = 'virtco-in'

_IFLA_IFNAME, _IFLA_LINKINFO, _IFLA_INFO_KIND = 3, 18, 1
_TC_H_INGRESS = 0xFFFFFFF1
# Preference of the redirecting filter, by which it is known as ours.
_REDIRECT_PREF = wire.R2Q_MARK
_REDIRECT_INFO = wire.filter_info(_REDIRECT_PREF, wire.ETH_P_ALL)
_U32_CLASSID, _U32_SEL, _U32_ACT = 1, 5, 7
_ACT_KIND, _ACT_OPTIONS, _MIRRED_PARMS = 1, 2, 2
_TC_ACT_STOLEN, _MIRRED_EGRESS_REDIRECT = 4, 1
_MIRRED = struct.Struct('=IIiiiiI')
_SELECTOR = struct.Struct('=BBBxHHHHI')
_KEY = struct.Struct('>II')
_KEY_OFFSET = struct.Struct('=ii')
_TERMINAL = 1
_NESTED = 0x8000
# Preference of the filters of an IP version. They are asked about every
# packet and read the version themselves: the kernel asks filters of IP about
# no packet with a VLAN tag.
_PREFS = {4: 3, 6: 4}
# Where the addresses and the destination port stand in a header without
# options: source, destination, port.
_OFFSETS = {4: (12, 16, 20), 6: (8, 24, 40)}
_VERSION_MASK, _PORT_MASK = 0xF0000000, 0x0000FFFF


def add_ifb(name: str, ifindex: int = 0) -> wire.Message:
    """Create an intermediate device and set it up.

    :param ifindex: index of one that stands, and is only set up.
    """
    up = wire.IFINFOMSG.pack(0, 0, ifindex, wire.IFF_UP, wire.IFF_UP)
    if ifindex:
        return wire.RTM_NEWLINK, 0, up
    return (wire.RTM_NEWLINK, wire.NLM_F_CREATE | wire.NLM_F_EXCL, up
            + wire.attr(_IFLA_IFNAME, name.encode() + b'\0')
            + wire.attr(_IFLA_LINKINFO, wire.attr(_IFLA_INFO_KIND,
                                                  b'ifb\0')))


def delete_link(ifindex: int) -> wire.Message:
    """Build the request that deletes a network device."""
    return wire.link(wire.RTM_DELLINK, ifindex)


def ingress_qdisc(ifindex: int) -> wire.Message:
    """Build the request for a qdisc that holds filters of received packets.
    """
    return wire.tc(wire.RTM_NEWQDISC, wire.NLM_F_CREATE | wire.NLM_F_EXCL,
                   ifindex, wire.INGRESS_HANDLE, _TC_H_INGRESS, 0,
                   wire.attr(wire.KIND, b'ingress\0'))


def delete_ingress(ifindex: int) -> wire.Message:
    """Build the request that deletes the qdisc of :func:`ingress_qdisc`."""
    return wire.tc(wire.RTM_DELQDISC, 0, ifindex, wire.INGRESS_HANDLE,
                   _TC_H_INGRESS)


def _new_filter(ifindex: int, parent: int, info: int, options: bytes
                ) -> wire.Message:
    return wire.tc(wire.RTM_NEWTFILTER, wire.NLM_F_CREATE | wire.NLM_F_EXCL,
                   ifindex, 0, parent, info, wire.attr(wire.KIND, b'u32\0'),
                   wire.attr(wire.OPTIONS, options))


def _selector(keys: list[tuple[int, int, int]]) -> bytes:
    """Encode a u32 selector.

    :param keys: (mask, value, offset from the network header) of each.
    """
    return _SELECTOR.pack(_TERMINAL, 0, len(keys), 0, 0, 0, 0, 0) + b''.join(
        _KEY.pack(mask, value) + _KEY_OFFSET.pack(offset, 0)
        for mask, value, offset in keys)


def match_all(ifindex: int, parent: int, info: int, classid: int
              ) -> wire.Message:
    """Put every packet into a class."""
    return _new_filter(ifindex, parent, info, wire.attr(
        _U32_CLASSID, classid.to_bytes(4, 'little')) + wire.attr(
            _U32_SEL, _selector([(0, 0, 0)])))


def redirect_all(ifindex: int, target: int) -> wire.Message:
    """Send every received packet through the queue of another device."""
    action = wire.attr(_ACT_KIND, b'mirred\0') + wire.attr(
        _ACT_OPTIONS | _NESTED, wire.attr(_MIRRED_PARMS, _MIRRED.pack(
            0, 0, _TC_ACT_STOLEN, 0, 0, _MIRRED_EGRESS_REDIRECT, target)))
    options = wire.attr(_U32_ACT, wire.attr(1, action)) + wire.attr(
        _U32_SEL, _selector([(0, 0, 0)]))
    return _new_filter(ifindex, wire.INGRESS_HANDLE, _REDIRECT_INFO, options)


def dump_redirects(ifindex: int) -> wire.Message:
    """Build the request for all filters of the ingress qdisc."""
    return wire.dump_request(wire.RTM_GETTFILTER, ifindex,
                             wire.INGRESS_HANDLE)


def redirect_target(body: bytes) -> int | None:
    """Parse the target of a filter of :func:`redirect_all`; None for others.
    """
    data = dict(wire.attrs(body, wire.TCMSG.size)).get(wire.OPTIONS, b'')
    for kind in (_U32_ACT, 1, _ACT_OPTIONS, _MIRRED_PARMS):
        data = dict(wire.attrs(data, 0)).get(kind, b'')
    if (wire.TCMSG.unpack_from(body)[4] >> 16 != _REDIRECT_PREF
            or len(data) < _MIRRED.size):
        return None
    *_, action, target = _MIRRED.unpack_from(data)
    return int(target) if action == _MIRRED_EGRESS_REDIRECT else None


def delete_redirect(ifindex: int) -> wire.Message:
    """Build the request that deletes the filter of :func:`redirect_all`."""
    return wire.tc(wire.RTM_DELTFILTER, 0, ifindex, 0, wire.INGRESS_HANDLE,
                   _REDIRECT_INFO)


def _words(address: str) -> list[int]:
    packed = ipaddress.ip_address(address).packed
    return [int.from_bytes(packed[at:at + 4], 'big')
            for at in range(0, len(packed), 4)]


def match_pair(ifindex: int, key: classify.Entry, minor: int) -> wire.Message:
    """Build the request for a filter that puts a pair's packets into a class.
    """
    version = 6 if key.is_ipv6 else 4
    source, target, port = _OFFSETS[version]
    keys = [(_VERSION_MASK, version << 28, 0), *(
        (0xFFFFFFFF, word, offset + 4 * index)
        for address, offset in ((key.src_ip, source), (key.dst_ip, target))
        for index, word in enumerate(_words(address)))]
    if key.dst_port:
        keys.append((_PORT_MASK, key.dst_port, port))
    options = wire.attr(_U32_CLASSID, (
        wire.ROOT_HANDLE | minor).to_bytes(4, 'little')) + wire.attr(
        _U32_SEL, _selector(keys))
    return _new_filter(ifindex, wire.ROOT_HANDLE, wire.filter_info(
        _PREFS[version], wire.ETH_P_ALL), options)


def dump_pairs(ifindex: int) -> wire.Message:
    """Build the request for all filters of our HTB on a device."""
    return wire.dump_request(wire.RTM_GETTFILTER, ifindex, wire.ROOT_HANDLE)


def read_pair(body: bytes) -> tuple[classify.Entry, int, int] | None:
    """Parse (key, handle, info) of a filter of :func:`match_pair`, or None."""
    _, _, handle, _, info = wire.TCMSG.unpack_from(body)
    _, options = wire.kind_and_options(body)
    selector = options.get(_U32_SEL)
    if selector is None or _U32_CLASSID not in options:
        return None
    is_ipv6 = info >> 16 == _PREFS[6]
    words, port = [], 0
    for index in range(selector[2]):
        mask, value = _KEY.unpack_from(selector, _SELECTOR.size + 16 * index)
        if mask == _PORT_MASK:
            port = value
        elif mask != _VERSION_MASK:
            words.append(value.to_bytes(4, 'big'))
    half = 4 if is_ipv6 else 1
    if len(words) != 2 * half:
        return None
    source, target = (str(ipaddress.ip_address(b''.join(part)))
                      for part in (words[:half], words[half:]))
    return classify.Entry(0, source, target, port), handle, info


def delete_pair(ifindex: int, handle: int, info: int) -> wire.Message:
    """Build the request that deletes a filter of :func:`match_pair`.

    :param handle: handle as :func:`read_pair` returns it, like ``info``.
    """
    return wire.tc(wire.RTM_DELTFILTER, 0, ifindex, handle, wire.ROOT_HANDLE,
                   info)
