# SPDX-License-Identifier: Apache-2.0

"""Netlink messages of HTB and its leaves, packed and unpacked.

Pure bytes in and out. A general netlink library spends most of an update on
encoding: 533 ms for a thousand classes, against 9 ms packed here. Layouts are
those of ``linux/pkt_sched.h`` and ``linux/rtnetlink.h``.
"""

from collections.abc import Iterator
import dataclasses
import socket
import struct
from typing import NamedTuple

from edge_module.tcplan import minors
from edge_module.tcplan import model
from virtco import units
from virtco.wire import edge_policy

RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK, RTM_SETLINK = 16, 17, 18, 19
RTM_NEWQDISC = 36
RTM_DELQDISC = 37
RTM_GETQDISC = 38
RTM_NEWTCLASS = 40
RTM_DELTCLASS = 41
RTM_GETTCLASS = 42
RTM_NEWTFILTER = 44
RTM_DELTFILTER = 45
RTM_GETTFILTER = 46
IFF_UP = 1
NLM_F_REPLACE = 0x100
NLM_F_EXCL = 0x200
NLM_F_CREATE = 0x400

TC_H_ROOT = 0xFFFFFFFF
# Handle of the ingress qdisc.
INGRESS_HANDLE = 0xFFFF0000
ETH_P_ALL = 0x0003
ROOT_MAJOR = edge_policy.CLASS_MAJOR
ROOT_HANDLE = ROOT_MAJOR << 16
# Class of another program's HTB in which ours may be (shared_root).
INSIDE = 1 << 16 | 0xfffd
# Every class names its quantum, so that this divisor decides nothing: it is
# how the qdisc is known as ours after a restart.
R2Q_MARK = 0x7c0

TCMSG = struct.Struct('=BxxxiIII')
IFINFOMSG = struct.Struct('=BxHiII')
_ATTR = struct.Struct('=HH')
RATESPEC = struct.Struct('=BBHhHI')
_HTB_OPT = struct.Struct('=12s12sIIIII')
_HTB_GLOB = struct.Struct('=IIIII')
_U32 = struct.Struct('=I')
_U64 = struct.Struct('=Q')
_BASIC = struct.Struct('=QI')
_QUEUE = struct.Struct('=IIIII')
# Both with their headers, as kernels send them.
_STATS = struct.Struct('=HHQI4xHHIIIII')
_TBF_OPT = struct.Struct('=12s12sIII')

KIND, OPTIONS, _STATS2 = 1, 2, 7
HTB_PARMS, _HTB_INIT, HTB_RATE64, HTB_CEIL64 = 1, 2, 6, 7
TBF_PARMS, TBF_RATE64, _TBF_BURST = 1, 4, 6
# Bytes per second at which even the longest super-packet takes no nanosecond.
# Otherwise one that was queued whole would never fit into the burst of a leaf
# that has begun to cut, and block it.
_UNBOUND = 10 ** 15
_STATS_BASIC, _STATS_QUEUE, _STATS_PKT64 = 1, 3, 8
_STATS_AT = 20
_LINKLAYER_ETHERNET = 1
_NS_PER_TICK = 64
_U32_MAX = 0xFFFFFFFF
# Time of sending at full rate that a class may save up: some super-packets at
# 1 Gbit/s, so that packets that meet need no timer each, and a timer may be
# late; far less than a switch holds.
_BURST_S = 0.004
_MIN_BURST_BYTES = 1600
# Most that a class saves up, reached from 1 Gbit/s on; switches hold little
# more.
_MAX_BURST_BYTES = 512 * 1024

# A message without its header: type, flags, body.
Message = tuple[int, int, bytes]


@dataclasses.dataclass(frozen=True, slots=True)
class Qdisc:
    """A qdisc of a device as the kernel shows it."""

    kind: str
    handle: int
    parent: int
    r2q: int | None = None
    limit_bytes: int | None = None
    packet_bytes: int | None = None

    @property
    def is_ours(self) -> bool:
        """An HTB that this module made, at the root or inside another."""
        return (self.kind == 'htb' and self.parent in (TC_H_ROOT, INSIDE)
                and self.handle == ROOT_HANDLE and self.r2q == R2Q_MARK)


class ClassStats(NamedTuple):
    """Counters of one class since it was created; bytes on the wire."""

    sent_bytes: int = 0
    sent_packets: int = 0
    backlog_bytes: int = 0
    drops: int = 0

    @property
    def counts(self) -> model.Counts:
        """Cumulative counters: bytes and packets sent, and packets dropped."""
        return model.Counts(self.sent_bytes, self.sent_packets, self.drops)


#: Counters of a class that is not there.
NO_STATS = ClassStats()


def attr(kind: int, payload: bytes) -> bytes:
    """Pack a netlink attribute with its header, padded to 4 bytes."""
    length = _ATTR.size + len(payload)
    return _ATTR.pack(length, kind) + payload + b'\0' * (-length % 4)


def attrs(data: bytes, offset: int) -> Iterator[tuple[int, bytes]]:
    """Yield kind and value of each netlink attribute from an offset on."""
    unpack, header, end = _ATTR.unpack_from, _ATTR.size, len(data)
    while offset + header <= end:
        length, kind = unpack(data, offset)
        if length < header:
            return
        yield kind & 0x3fff, data[offset + header:offset + length]
        offset += (length + 3) & ~3


def tc(kind: int, flags: int, ifindex: int, handle: int = 0, parent: int = 0,
       info: int = 0, *attributes: bytes) -> Message:
    """Build a message about a qdisc, class or filter of a device."""
    return kind, flags, TCMSG.pack(0, ifindex, handle, parent, info) + (
        b''.join(attributes))


def link(kind: int, ifindex: int, *attributes: bytes) -> Message:
    """Build a message about a network device."""
    return kind, 0, IFINFOMSG.pack(0, 0, ifindex, 0, 0) + (
        b''.join(attributes))


def root_qdisc(ifindex: int) -> Message:
    """Put our HTB at the root of a device that has none.

    Without NLM_F_REPLACE the kernel refuses when somebody was faster.
    """
    return new_htb(ifindex, ROOT_HANDLE, TC_H_ROOT, R2Q_MARK, minors.HOST,
                   NLM_F_EXCL)


def new_htb(ifindex: int, handle: int, parent: int, r2q: int, default: int,
            flag: int) -> Message:
    """Make the message that creates an HTB."""
    return tc(RTM_NEWQDISC, NLM_F_CREATE | flag, ifindex, handle, parent, 0,
              attr(KIND, b'htb\0'), attr(OPTIONS, attr(
                  _HTB_INIT, _HTB_GLOB.pack(3, r2q, default, 0, 0))))


def delete_root(ifindex: int) -> Message:
    return tc(RTM_DELQDISC, 0, ifindex, ROOT_HANDLE, TC_H_ROOT)


def set_class(ifindex: int, wanted: model.HtbClass, root: int = ROOT_HANDLE,
              flag: int = 0) -> Message:
    """Create a class or change its parameters in place.

    :param root: handle of the HTB that it belongs to.
    :param flag: NLM_F_EXCL leaves a class that stands as it is.
    """
    rate = units.bps_to_bytes_per_s(wanted.rate_bps)
    ceil = units.bps_to_bytes_per_s(wanted.ceil_bps)
    framing = wanted.overhead_bytes, wanted.frame_min_bytes
    options = attr(HTB_PARMS, _HTB_OPT.pack(
        _ratespec(rate, *framing), _ratespec(ceil, *framing),
        _buffer_ticks(rate, wanted.burst_bytes),
        _buffer_ticks(ceil, wanted.burst_bytes), wanted.quantum_bytes, 0,
        wanted.prio))
    if rate >= _U32_MAX:
        options += attr(HTB_RATE64, _U64.pack(int(rate)))
    if ceil >= _U32_MAX:
        options += attr(HTB_CEIL64, _U64.pack(int(ceil)))
    return tc(RTM_NEWTCLASS, NLM_F_CREATE | flag, ifindex,
              root | wanted.minor, root | wanted.parent, 0,
              attr(KIND, b'htb\0'), attr(OPTIONS, options))


def set_leaf(ifindex: int, wanted: model.HtbClass) -> Message:
    """Give a leaf its queue, or the one it has other parameters.

    A bfifo inside a TBF whose rate never binds: it is there for its limit on
    packets, by which it cuts longer super-packets into frames, and which can
    be changed without losing what is queued.
    """
    packet_bytes = wanted.packet_bytes or model.WHOLE_BYTES
    options = attr(TBF_PARMS, _TBF_OPT.pack(
        _ratespec(_U32_MAX), bytes(RATESPEC.size), wanted.limit_bytes or 0,
        # The last is the burst at a peak rate, of which there is none. The
        # kernel does not show the burst, but it does show this.
        0, packet_bytes))
    options += attr(TBF_RATE64, _U64.pack(_UNBOUND))
    options += attr(_TBF_BURST, _U32.pack(packet_bytes))
    return tc(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, ifindex,
              wanted.minor << 16, ROOT_HANDLE | wanted.minor, 0,
              attr(KIND, b'tbf\0'), attr(OPTIONS, options))


def delete_class(ifindex: int, minor: int) -> Message:
    """Build the message that deletes a class of our HTB with its queue."""
    return tc(RTM_DELTCLASS, 0, ifindex, ROOT_HANDLE | minor)


def filter_info(pref: int, protocol: int) -> int:
    """Pack a filter's preference, and its protocol in network order."""
    return pref << 16 | socket.htons(protocol)


def dump_request(message_type: int, ifindex: int, parent: int = 0) -> Message:
    """Build a request for a dump of a device's qdiscs, classes or filters.

    :param parent: handle of a qdisc, to dump its classes only.
    """
    return tc(message_type, 0, ifindex, 0, parent)


def handle_of(body: bytes) -> int:
    """Parse the handle of a qdisc, class or filter from a message's body."""
    return int(TCMSG.unpack_from(body)[2])


def is_of(body: bytes, ifindex: int) -> bool:
    """Return whether a qdisc, class or filter belongs to a device."""
    return bool(TCMSG.unpack_from(body)[1] == ifindex)


def _ratespec(rate: float, overhead: int = 0, least: int = 0) -> bytes:
    # The link layer is named so that the kernel wants no rate table.
    return RATESPEC.pack(0, _LINKLAYER_ETHERNET, overhead, -1, least,
                          min(int(rate), _U32_MAX))


def _buffer_ticks(rate: float, least_bytes: int) -> int:
    burst_bytes = max(_MIN_BURST_BYTES, least_bytes,
                      min(_MAX_BURST_BYTES, rate * _BURST_S))
    return min(_U32_MAX, int(burst_bytes / rate * 1e9 / _NS_PER_TICK))


def kind_and_options(body: bytes) -> tuple[bytes, dict[int | None, bytes]]:
    """Parse the kind and the options of a qdisc, class or filter."""
    found = dict(attrs(body, TCMSG.size))
    return found.get(KIND, b'').rstrip(b'\0'), dict(
        attrs(found.get(OPTIONS, b''), 0))


def read_qdisc(body: bytes) -> Qdisc:
    """Decode a qdisc; fields of other kinds are None."""
    _, _, handle, parent, _ = TCMSG.unpack_from(body)
    kind, options = kind_and_options(body)
    r2q = limit = packet_bytes = None
    if kind == b'htb' and _HTB_INIT in options:
        _, r2q, *_ = _HTB_GLOB.unpack_from(options[_HTB_INIT])
    elif kind == b'tbf' and TBF_PARMS in options:
        _, _, limit, _, packet_bytes = _TBF_OPT.unpack_from(
            options[TBF_PARMS])
    return Qdisc(kind.decode(), handle, parent, r2q, limit, packet_bytes)


def read_class(body: bytes, major: int = ROOT_MAJOR
               ) -> tuple[model.HtbClass, int, ClassStats] | None:
    """Parse (class, handle of its leaf, counters); None for another qdisc's.
    """
    _, _, handle, parent, info = TCMSG.unpack_from(body)
    attributes = dict(attrs(body, TCMSG.size))
    if handle >> 16 != major or attributes.get(KIND) != b'htb\0':
        return None
    options = dict(attrs(attributes.get(OPTIONS, b''), 0))
    (rate_spec, ceil_spec, _, _, quantum, _, prio
     ) = _HTB_OPT.unpack_from(options[HTB_PARMS])
    parent_minor = minors.ROOT if parent == TC_H_ROOT else parent & 0xffff
    _, _, overhead, _, least, _ = RATESPEC.unpack(rate_spec)
    return model.HtbClass(
        handle & 0xffff, parent_minor,
        shown_rate(rate_spec, options.get(HTB_RATE64)),
        shown_rate(ceil_spec, options.get(HTB_CEIL64)), prio, quantum,
        None, overhead_bytes=overhead, frame_min_bytes=least), info, (
            _stats_of(body) or NO_STATS)


def read_stats(body: bytes, major: int = ROOT_MAJOR
               ) -> tuple[int, ClassStats] | None:
    """Parse only (minor, counters) of a class; None for another qdisc's."""
    handle, stats = handle_of(body), _stats_of(body)
    if handle >> 16 != major or stats is None:
        return None
    return handle & 0xffff, stats


def read_leaf_drops(body: bytes) -> tuple[int, int] | None:
    """Parse (minor, dropped packets) of a leaf's qdisc; None unless ours.

    The class's own drops leave out frames of a super-packet that is cut.
    """
    _, _, handle, parent, _ = TCMSG.unpack_from(body)
    if parent >> 16 != ROOT_MAJOR or handle >> 16 != parent & 0xffff:
        return None
    stats = _stats_of(body)
    return None if stats is None else (handle >> 16, stats.drops)


def shown_rate(spec: bytes, wide: bytes | None) -> int:
    """Return a rate of the kernel in bit/s; rates above 34 Gbit/s are wide."""
    rate = (_U64.unpack_from(wide)[0] if wide is not None
            else RATESPEC.unpack_from(spec)[5])
    return int(units.bytes_per_s_to_bps(rate))


def _stats_of(body: bytes) -> ClassStats | None:
    """Parse the counters of a qdisc or class; None without any.

    All classes are read several times a second, so nothing is copied where
    the counters are in the usual order.
    """
    unpack, header, end = _ATTR.unpack_from, _ATTR.size, len(body)
    offset = TCMSG.size
    while offset + header <= end:
        length, kind = unpack(body, offset)
        if length < header:
            break
        if kind & 0x3fff == _STATS2:
            return _read_stats(body, offset + header, offset + length)
        offset += (length + 3) & ~3
    return None


def _read_stats(body: bytes, start: int, end: int) -> ClassStats:
    """Parse the attributes of counters from ``start`` to ``end``."""
    if end - start >= _STATS.size:
        (length, kind, sent_bytes, sent_packets, _, next_kind, _, backlog,
         drops, _, _) = _STATS.unpack_from(body, start)
        if (length, kind, next_kind) == (_STATS_AT, _STATS_BASIC,
                                         _STATS_QUEUE):
            return ClassStats(sent_bytes, sent_packets, backlog, drops)
    found = dict(attrs(body[start:end], 0))
    sent_bytes, sent_packets = _BASIC.unpack_from(
        found.get(_STATS_BASIC, bytes(_BASIC.size)))
    if _STATS_PKT64 in found:
        sent_packets, = _U64.unpack_from(found[_STATS_PKT64])
    _, backlog, drops, _, _ = _QUEUE.unpack_from(
        found.get(_STATS_QUEUE, bytes(_QUEUE.size)))
    return ClassStats(sent_bytes, sent_packets, backlog, drops)
