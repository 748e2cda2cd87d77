# SPDX-License-Identifier: Apache-2.0

"""What is packed reads back the same, and the kernel's marks are known."""

import struct

from hypothesis import given
from hypothesis import strategies as st
import pytest

from edge_module.qdisc import wire
from edge_module.tcplan import minors
from edge_module.tcplan import model


@given(st.integers(0x10, 0xffff), st.integers(1, 0xffff),
       st.integers(1, 50 * 10 ** 9), st.integers(1, 50 * 10 ** 9),
       st.integers(0, 7), st.integers(64 * 1024, 10 ** 6))
def test_class_reads_back(minor, parent, rate, ceil, prio, quantum):
    wanted = model.HtbClass(minor, parent, rate * 8, ceil * 8, prio,
                            quantum, None)
    kind, flags, body = wire.set_class(7, wanted)
    assert kind == wire.RTM_NEWTCLASS and flags == wire.NLM_F_CREATE
    assert len(body) % 4 == 0
    shown = wire.read_class(body)
    assert shown is not None and shown[0] == wanted


def test_class_under_the_root_has_no_parent_class():
    wanted = model.HtbClass(1, minors.ROOT, 8000, 8000, 0, 65536, None)
    body = bytearray(wire.set_class(7, wanted)[2])
    # We name the qdisc, "7000:"; the kernel shows TC_H_ROOT.
    assert body[12:16] == (wire.ROOT_HANDLE).to_bytes(4, 'little')
    assert wire.read_class(bytes(body))[0] == wanted
    body[12:16] = wire.TC_H_ROOT.to_bytes(4, 'little')
    assert wire.read_class(bytes(body))[0] == wanted
    body[12:16] = (wire.ROOT_HANDLE | 0x10).to_bytes(4, 'little')
    assert wire.read_class(bytes(body))[0].parent == 0x10


def test_class_of_another_qdisc_is_not_ours():
    wanted = model.HtbClass(0x10, 1, 8000, 8000, 0, 65536, None)
    body = bytearray(wire.set_class(7, wanted)[2])
    body[8:12] = (0x20010).to_bytes(4, 'little')
    assert wire.read_class(bytes(body)) is None


def test_our_qdisc_is_known_by_its_mark():
    assert wire.read_qdisc(wire.root_qdisc(7)[2]).is_ours
    other = wire.Qdisc('htb', wire.ROOT_HANDLE, wire.TC_H_ROOT, 10)
    assert not other.is_ours


def test_leaf_reads_back():
    wanted = model.HtbClass(0x33, 1, 8000, 8000, 0, 65536, 131072, 1564)
    kind, flags, body = wire.set_leaf(7, wanted)
    # Of rtnetlink.h and netlink.h: a new qdisc; create or replace it.
    assert (kind, flags) == (36, 0x400 | 0x100)
    leaf = wire.read_qdisc(body)
    assert leaf.kind == 'tbf' and leaf.limit_bytes == 131072
    assert leaf.packet_bytes == 1564
    assert leaf.parent == wire.ROOT_HANDLE | 0x33


def test_options_are_read_by_the_kind_of_the_qdisc():
    head = wire.TCMSG.pack(0, 7, 0x70000000, wire.TC_H_ROOT, 0)
    options = wire.attr(2, wire.attr(2, b'1234'))
    for kind in b'tbf', b'bfifo':
        assert wire.read_qdisc(head + wire.attr(1, kind + b'\0') + options
                               ).r2q is None
    assert not wire.read_qdisc(head + wire.attr(1, b'htb\0')).is_ours


# Of the kernel's gen_stats.h, and of rtnetlink.h.
BASIC, QUEUE, PKT64, STATS2 = 1, 3, 8, 7


def counters(*parts):
    return b''.join(wire.attr(kind, payload) for kind, payload in parts)


def shown(handle, parent, *parts):
    return wire.TCMSG.pack(0, 7, handle, parent, 0) + wire.attr(
        1, b'htb\0') + (wire.attr(STATS2, counters(*parts))
                        if parts else b'')


SENT = (BASIC, struct.pack('=QI', 5000, 6))
QUEUED = (QUEUE, struct.pack('=5I', 1, 70, 8, 9, 10))
#: The kernel counts packets in 64 bits beside the 32 of old.
MANY = (PKT64, struct.pack('=Q', 2 ** 33))


@pytest.mark.parametrize(('parts', 'expected'), [
    ((), None), ((QUEUED,), wire.ClassStats(0, 0, 70, 8)),
    ((SENT,), wire.ClassStats(5000, 6, 0, 0)),
    ((SENT, QUEUED), wire.ClassStats(5000, 6, 70, 8)),
    ((SENT, MANY), wire.ClassStats(5000, 2 ** 33, 0, 0))])
def test_counters_of_a_class(parts, expected):
    body = shown(0x70000033, 0x70000001, *parts)
    found = expected and (0x33, expected)
    assert wire.read_stats(body) == found
    assert wire.read_stats(shown(0x10033, 0x70000001, SENT)) is None


def test_a_class_that_nobody_saw_counted_nothing():
    assert wire.ClassStats() == wire.ClassStats(
        sent_bytes=0, sent_packets=0, backlog_bytes=0, drops=0)


def test_what_a_leaf_dropped():
    """A leaf's qdisc is called as the class that it hangs from."""
    assert wire.read_leaf_drops(shown(0x330000, 0x70000033, QUEUED)) == (
        0x33, 8)
    for handle, parent in ((0x340000, 0x70000033), (0x330000, 0x10033)):
        assert wire.read_leaf_drops(shown(handle, parent, QUEUED)) is None
    assert wire.read_leaf_drops(shown(0x330000, 0x70000033)) is None


def nested(*parts):
    """Attributes (number, payload), each to a multiple of four bytes."""
    return b''.join(
        struct.pack('=HH', 4 + len(payload), kind) + payload
        + bytes(-len(payload) % 4) for kind, payload in parts)


def tcmsg(*numbers):
    return struct.pack('=BxxxiIII', 0, *numbers)


def test_attributes_are_padded_and_split_again():
    data = wire.attr(1, b'abc') + wire.attr(2, b'') + wire.attr(3, b'12345')
    assert data == nested((1, b'abc'), (2, b''), (3, b'12345'))
    assert list(wire.attrs(b'head' + data, 4)) == [
        (1, b'abc'), (2, b''), (3, b'12345')]
    assert list(wire.attrs(nested((2, b'')), 0)) == [(2, b'')]
    # Two bits of a number say how its payload is to be read.
    assert list(wire.attrs(nested((0xc005, b'x')), 0)) == [(5, b'x')]
    # What is damaged ends it: a length without its own bytes, and a rest.
    assert list(wire.attrs(nested((1, b'a')) + b'\3\0\7\0', 0)) == [
        (1, b'a')]
    assert list(wire.attrs(nested((1, b'a')) + b'\4\0', 0)) == [(1, b'a')]


def test_messages_of_the_root_and_of_questions():
    root = tcmsg(7, 0x70000000, 0xFFFFFFFF, 0)
    assert wire.root_qdisc(7) == (36, 0x600, root + nested(
        (1, b'htb\0'), (2, nested(
            (2, struct.pack('=5I', 3, 0x7c0, 2, 0, 0))))))
    assert wire.delete_root(7) == (37, 0, root)
    assert wire.delete_class(7, 0x12) == (41, 0, tcmsg(7, 0x70000012, 0, 0))
    assert wire.dump_request(42, 7) == (42, 0, tcmsg(7, 0, 0, 0))
    assert wire.dump_request(42, 7, 9) == (42, 0, tcmsg(7, 0, 9, 0))
    assert wire.filter_info(1, 0x0800) == 0x10000 | 0x0008
    assert [wire.is_of(root, ifindex) for ifindex in (7, 8)] == [True, False]


MOST = 2 ** 32 - 1


def ratespec(rate, overhead=0, least=0):
    """Of an Ethernet, which needs no table of rates."""
    return struct.pack('=BBHhHI', 0, 1, overhead, -1, least, rate)


@pytest.mark.parametrize('rate, burst_bytes, ticks', [
    # A tick is 64 ns; 4 ms at the rate, within 1600 bytes and 512 KiB.
    (1_000_000, 0, 62_500), (400_000, 0, 62_500), (200_000, 0, 125_000),
    (2 ** 27, 0, 61_035), (2 ** 28, 0, 30_517), (1, 0, MOST),
    (10, 0, 2_500_000_000),
    (1_000_000, 2 ** 16, 1_024_000), (1_000_000, 3999, 62_500)])
def test_a_class_may_save_up_a_burst(rate, burst_bytes, ticks):
    wanted = model.HtbClass(0x33, 0x10, 8 * rate, 8 * 1_000_000, 3, 65536,
                            None, None, 24, 84, burst_bytes)
    ceil_ticks = 1_024_000 if burst_bytes == 2 ** 16 else 62_500
    assert wire.set_class(7, wanted) == (
        40, 0x400, tcmsg(7, 0x70000033, 0x70000010, 0) + nested(
            (1, b'htb\0'), (2, nested((1, ratespec(rate, 24, 84) + ratespec(
                1_000_000, 24, 84) + struct.pack(
                    '=5I', ticks, ceil_ticks, 65536, 0, 3))))))


@pytest.mark.parametrize('rate, ceil', [
    (MOST - 1, MOST - 1), (MOST - 1, MOST), (MOST, MOST),
    (5, 2 ** 33), (2 ** 33, 2 ** 34)])
def test_rates_beyond_32_bits_are_told_in_64(rate, ceil):
    options = dict(wire.attrs(dict(wire.attrs(wire.set_class(
        7, model.HtbClass(0x33, 0x10, 8 * rate, 8 * ceil, 0, 0, None))[2],
        20))[2], 0))
    assert options[1][:24] == ratespec(min(rate, MOST)) + ratespec(
        min(ceil, MOST))
    assert {kind: struct.unpack('=Q', options[kind])[0]
            for kind in options.keys() - {1}} == {
        kind: number for kind, number in ((6, rate), (7, ceil))
        if number >= MOST}


@pytest.mark.parametrize('packet_bytes', [1564, None])
@pytest.mark.parametrize('limit_bytes', [131072, None])
def test_a_leafs_queue_cuts_packets_and_never_binds(packet_bytes,
                                                    limit_bytes):
    wanted = model.HtbClass(0x33, 0x10, 8000, 8000, 0, 65536, limit_bytes,
                            packet_bytes)
    longest = packet_bytes or 2 ** 20
    assert wire.set_leaf(7, wanted)[2] == tcmsg(
        7, 0x330000, 0x70000033, 0) + nested((1, b'tbf\0'), (2, nested(
            (1, ratespec(MOST) + bytes(12) + struct.pack(
                '=3I', limit_bytes or 0, 0, longest)),
            (4, struct.pack('=Q', 10 ** 15)),
            (6, struct.pack('=I', longest)))))
