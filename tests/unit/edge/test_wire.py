# SPDX-License-Identifier: Apache-2.0

"""What is packed reads back the same, and the kernel's marks are known."""

from hypothesis import given
from hypothesis import strategies as st

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
    leaf = wire.read_qdisc(wire.set_leaf(7, wanted)[2])
    assert leaf.kind == 'tbf' and leaf.limit_bytes == 131072
    assert leaf.packet_bytes == 1564
    assert leaf.parent == wire.ROOT_HANDLE | 0x33
