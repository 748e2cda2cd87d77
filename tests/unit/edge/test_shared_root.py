# SPDX-License-Identifier: Apache-2.0

"""Messages that put our tree into an HTB of others, byte by byte."""

import dataclasses
import socket
import struct

import pytest

from edge_module.qdisc import shared_root
from edge_module.qdisc import wire
from tests.unit.edge import test_wire

ROOT, OUTER, LINK, INSIDE, OURS = (
    0xFFFFFFFF, 0x10000, 0x1FFFE, 0x1FFFD, 0x70000000)
nested, tcmsg = test_wire.nested, test_wire.tcmsg


def htb(r2q, default):
    return nested((1, b'htb\0'), (2, nested(
        (2, struct.pack('=5I', 3, r2q, default, 0, 0)))))


def test_a_root_is_for_a_device_without_one():
    assert shared_root.root(7) == shared_root.root(7, False)


@pytest.mark.parametrize('instead, flags', [(False, 0x600), (True, 0x500)])
def test_the_root_is_as_open_vswitch_has_it(instead, flags):
    assert shared_root.root(7, instead) == (
        36, flags, tcmsg(7, OUTER, ROOT, 0) + htb(0x7c1, 1))
    found = wire.read_qdisc(shared_root.root(7, instead)[2])
    assert shared_root.is_ours(found) and not found.is_ours
    for name, value in (('handle', 0x20000), ('r2q', 10)):
        assert not shared_root.is_ours(dataclasses.replace(
            found, **{name: value}))


@pytest.mark.parametrize('make, handle, parent, rate', [
    (shared_root.link, LINK, OUTER, 2 ** 32 - 1),
    (shared_root.container, INSIDE, LINK, 1500)])
def test_our_class_borrows_all_that_the_link_has(make, handle, parent, rate):
    kind, flags, body = make(7)
    assert (kind, flags, body[:20]) == (40, 0x600, tcmsg(7, handle, parent, 0))
    options = dict(wire.attrs(dict(wire.attrs(body, 20))[2], 0))
    found, ceil, buffer, cbuffer, quantum, level, prio = struct.unpack(
        '=12s12sIIIII', options[1])
    assert wire.shown_rate(found, None) == 8 * rate
    assert struct.unpack('=BBHhHI', ceil)[5] == 2 ** 32 - 1
    assert (quantum, level, prio) == (65536, 0, 0)
    assert (buffer == cbuffer) == (rate > 1500) and buffer >= cbuffer > 0


def test_what_no_queue_has_goes_to_our_class():
    info = 0x7c0 << 16 | socket.htons(3)
    assert shared_root.sieve(7) == (
        44, 0x600, tcmsg(7, 0, OUTER, info) + nested((1, b'u32\0'), (2, nested(
            (1, struct.pack('=I', INSIDE)),
            (5, struct.pack('=BBBxHHHHI', 1, 0, 1, 0, 0, 0, 0, 0)
             + bytes(16))))))
    assert shared_root.is_sieve(shared_root.sieve(7)[2])
    assert not shared_root.is_sieve(tcmsg(7, 0, OUTER, info + 1))
    assert shared_root.tree(7) == (
        36, 0x600, tcmsg(7, OURS, INSIDE, 0) + htb(0x7c0, 2))
    assert wire.read_qdisc(shared_root.tree(7)[2]).is_ours
    assert not wire.read_qdisc(shared_root.root(7)[2]).is_ours


def test_what_is_ours_is_taken_away():
    info = 0x7c0 << 16 | socket.htons(3)
    assert shared_root.removal(7, with_root=True) == [
        (37, 0, tcmsg(7, OUTER, ROOT, 0))]
    assert shared_root.removal(7, with_root=False) == [
        (45, 0, tcmsg(7, 0, OUTER, info)), (41, 0, tcmsg(7, INSIDE, 0, 0))]
