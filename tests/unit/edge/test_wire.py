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
    assert shown is not None and shown.htb_class == wanted


def test_class_under_the_root_has_no_parent_class():
    wanted = model.HtbClass(1, minors.ROOT, 8000, 8000, 0, 65536, None)
    body = bytearray(wire.set_class(7, wanted)[2])
    # We name the qdisc, "1:"; the kernel shows TC_H_ROOT.
    assert body[12:16] == (wire.ROOT_HANDLE).to_bytes(4, 'little')
    assert wire.read_class(bytes(body)).htb_class == wanted
    body[12:16] = wire.TC_H_ROOT.to_bytes(4, 'little')
    assert wire.read_class(bytes(body)).htb_class == wanted
    body[12:16] = (wire.ROOT_HANDLE | 0x10).to_bytes(4, 'little')
    assert wire.read_class(bytes(body)).htb_class.parent == 0x10


def test_class_of_another_qdisc_is_not_ours():
    wanted = model.HtbClass(0x10, 1, 8000, 8000, 0, 65536, None)
    body = bytearray(wire.set_class(7, wanted)[2])
    body[8:12] = (0x20010).to_bytes(4, 'little')
    assert wire.read_class(bytes(body)) is None


def test_our_qdisc_is_known_by_its_mark():
    ours = wire.read_qdisc(wire.root_qdisc(7, 2)[2])
    assert ours.is_ours and ours.ifindex == 7 and ours.default_minor == 2
    other = wire.Qdisc(7, 'htb', wire.ROOT_HANDLE, wire.TC_H_ROOT, 10, 2)
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
    body = shown(0x10033, 0x10001, *parts)
    found = expected and (0x33, expected)
    assert wire.read_stats(body) == found
    assert wire.read_stats(shown(0x20033, 0x10001, SENT)) is None


def test_what_a_leaf_dropped():
    """A leaf's qdisc is called as the class that it hangs from."""
    assert wire.read_leaf_drops(shown(0x330000, 0x10033, QUEUED)) == (0x33, 8)
    for handle, parent in ((0x340000, 0x10033), (0x330000, 0x20033)):
        assert wire.read_leaf_drops(shown(handle, parent, QUEUED)) is None
    assert wire.read_leaf_drops(shown(0x330000, 0x10033)) is None
