# SPDX-License-Identifier: Apache-2.0

"""What stands on a device, as the kernel lists qdiscs and classes."""

import contextlib
import errno
import struct
import types

import pytest

from edge_module.privileged import operations
from edge_module.qdisc import htb
from edge_module.qdisc import shared_root
from edge_module.qdisc import wire
from edge_module.tcplan import model
from edge_module.tcplan import shape
from tests.unit.edge import test_tcplan
from virtco import exception

TREE = shape.build_tree(test_tcplan.policy(
    [test_tcplan.coflow(0x10, 40e6, (1, 1))]), test_tcplan.LINK_BPS)
LEAVES = {minor for minor, item in TREE.items()
          if item.limit_bytes is not None}
LO, OTHER = 1, 99


def counted(sent_bytes=0, packets=0, drops=0):
    """Counters as the kernel nests them; see gen_stats.h."""
    return wire.attr(7, wire.attr(1, struct.pack('=QI', sent_bytes, packets))
                     + wire.attr(3, struct.pack('=5I', 0, 0, drops, 0, 0)))


class Kernel:
    """Lists the qdiscs and classes that it was told to make."""

    def __init__(self):
        self.qdiscs, self.classes, self.made = [], [], []
        self.filters = []

    def tc_change(self, changes):
        for one in changes:
            kind, _, body = one.message()
            self.made.append(one)
            if kind == wire.RTM_NEWTFILTER:
                self.filters.append(body)
                continue
            if kind == wire.RTM_NEWQDISC:
                self.qdiscs.append(body)
            else:
                # The kernel tells which qdisc hangs from a leaf.
                head = list(wire.TCMSG.unpack_from(body))
                minor = head[2] & 0xffff
                head[4] = (minor << 16) * (minor in LEAVES)
                self.classes.append(
                    wire.TCMSG.pack(*head) + body[wire.TCMSG.size:]
                    + counted(100 * minor, minor))
        return []

    def tc_dump(self, message):
        _, ifindex, _, parent, _ = wire.TCMSG.unpack_from(message[2])
        assert ifindex == LO
        if message[0] == wire.RTM_GETTFILTER:
            assert parent == shared_root.HANDLE
            return list(self.filters)
        if message[0] == wire.RTM_GETQDISC:
            assert parent == 0
            return list(self.qdiscs)
        assert parent in (wire.ROOT_HANDLE, shared_root.HANDLE)
        return [body for body in self.classes
                if parent == wire.ROOT_HANDLE
                or wire.handle_of(body) >> 16 == 1]


@pytest.fixture
def uplink():
    found = htb.Uplink(Kernel(), 'lo')
    # Qdiscs of every device are listed.
    found.kernel.qdiscs.append(wire.root_qdisc(OTHER)[2])
    return found


def stands(uplink):
    uplink.ensure_root()
    uplink.set_classes(TREE.values(), {})
    # A class of another qdisc comes along.
    uplink.kernel.classes.append(wire.TCMSG.pack(
        0, LO, 0x70001, 0x70000, 0) + wire.attr(1, b'htb\0') + counted(1))


def test_the_tree_that_was_set_is_the_one_that_stands(uplink):
    stands(uplink)
    found = uplink.snapshot()
    assert found.present and found.foreign is None and found.tree == TREE
    assert found.stats == uplink.stats() == uplink.class_stats() == {
        minor: wire.ClassStats(100 * minor, minor, 0, 0) for minor in TREE}


def test_drops_are_those_of_the_leaves(uplink):
    stands(uplink)
    minor = min(LEAVES)
    leaf = next(body for body in uplink.kernel.qdiscs
                if wire.TCMSG.unpack_from(body)[2] == minor << 16)
    uplink.kernel.qdiscs.append(leaf + counted(drops=5))
    for found in uplink.snapshot().stats, uplink.stats():
        assert {one: stats.drops for one, stats in found.items()
                if stats.drops} == {minor: 5}
    assert uplink.class_stats()[minor].drops == 0
    # One whose class went meanwhile is of nobody.
    uplink.kernel.classes.clear()
    assert uplink.snapshot().stats == {} == uplink.stats()


@pytest.mark.parametrize('handle, foreign', [
    (0x80010000, 'tbf 8001:'), (0, None)])
def test_a_qdisc_of_somebody_else(uplink, handle, foreign):
    """A device's default one has no handle, and may be replaced."""
    uplink.kernel.qdiscs.append(wire.TCMSG.pack(
        0, LO, handle, wire.TC_H_ROOT, 0) + wire.attr(wire.KIND, b'tbf\0'))
    found = uplink.snapshot()
    assert (found.present, found.foreign, found.tree) == (False, foreign, {})
    assert uplink.stats() == {}
    assert not uplink.delete_root()


def test_our_qdisc_is_deleted_by_root(uplink, monkeypatch):
    sent = []
    monkeypatch.setattr(htb, 'kernel', types.SimpleNamespace(
        tc_send=lambda messages: sent.extend(messages) or []))
    uplink.ensure_root()
    assert uplink.delete_root() and sent == [wire.delete_root(LO)]


def parts(uplink):
    made = [one.part for one in uplink.kernel.made
            if isinstance(one, operations.Share)]
    uplink.kernel.made.clear()
    return made


def queue(minor):
    """A class of somebody else in the HTB around ours."""
    return wire.set_class(LO, model.HtbClass(
        minor, 0xfffe, 8000, 8000, 0, 1500, None), shared_root.HANDLE)


def of_others(uplink, *messages):
    for kind, _flags, body in messages:
        (uplink.kernel.qdiscs if kind == wire.RTM_NEWQDISC
         else uplink.kernel.classes).append(body)


def test_our_tree_is_inside_an_htb_of_open_vswitch(uplink):
    of_others(uplink, shared_root.root(LO), shared_root.link(LO))
    found = uplink.snapshot()
    assert (found.present, found.foreign, found.is_inside) == (
        False, None, True)
    uplink.ensure_root(found)
    assert parts(uplink) == ['container', 'sieve', 'tree']
    assert not uplink.is_around_new
    uplink.set_classes(TREE.values(), {})
    found = uplink.snapshot()
    assert (found.present, found.foreign, found.is_inside, found.tree) == (
        True, None, True, TREE)
    assert found.stats == uplink.stats() != {}
    of_others(uplink, queue(2))
    assert {minor: found.ceil_bps for minor, found in uplink.snapshot(
        ).others.items()} == {2: 8000, 0xfffe: 8 * (2 ** 32 - 1)}
    # Without the filter no packet comes to it.
    uplink.kernel.filters.clear()
    found = uplink.snapshot()
    assert (found.present, found.foreign, found.is_inside) == (
        False, None, True)
    uplink.ensure_root(found)
    assert uplink.snapshot().present


def test_an_htb_of_another_layout_is_somebody_elses(uplink):
    of_others(uplink, shared_root.root(LO), queue(0xfffc))
    found = uplink.snapshot()
    assert (found.foreign, found.is_inside) == ('htb 1:', False)


@pytest.mark.parametrize('stood, made', [
    (False, ['root', 'link', 'container', 'sieve', 'tree']),
    (True, ['instead', 'link', 'container', 'sieve', 'tree'])])
def test_where_others_may_come_there_is_room_for_them(uplink, stood, made):
    if stood:
        uplink.ensure_root()
    assert not uplink.is_around_new
    uplink.is_shared = True
    uplink.ensure_root(uplink.snapshot())
    assert parts(uplink) == made and uplink.is_around_new


@pytest.mark.parametrize('others, with_root', [((), True), ((2,), False)])
def test_only_what_is_ours_is_taken_away(uplink, monkeypatch, others,
                                         with_root):
    sent = []
    monkeypatch.setattr(htb, 'kernel', types.SimpleNamespace(
        tc_send=lambda messages: sent.extend(messages) or []))
    uplink.is_shared = True
    uplink.ensure_root(uplink.snapshot())
    of_others(uplink, *map(queue, others))
    assert uplink.delete_root()
    assert sent == shared_root.removal(LO, with_root)


@pytest.mark.parametrize('lost', ['filters', 'qdiscs'])
@pytest.mark.parametrize('code, is_refused', [
    (errno.ENOENT, False), (errno.EBUSY, True)])
def test_what_others_left_of_ours_is_taken_away(uplink, monkeypatch, lost,
                                                code, is_refused):
    sent = []
    monkeypatch.setattr(htb, 'kernel', types.SimpleNamespace(
        tc_send=lambda messages: sent.extend(messages) or [code]))
    of_others(uplink, shared_root.root(LO), shared_root.link(LO), queue(2))
    assert not uplink.delete_root()
    uplink.ensure_root(uplink.snapshot())
    getattr(uplink.kernel, lost).clear()
    with (pytest.raises(exception.KernelRefused) if is_refused
          else contextlib.nullcontext()):
        assert uplink.delete_root()
    assert sent == shared_root.removal(LO, with_root=False)


def test_a_device_that_is_not_there(uplink):
    uplink.dev = 'none such'
    for call in (uplink.ifindex, uplink.frame_bytes, uplink.snapshot,
                 uplink.stats):
        with pytest.raises(exception.NotFound, match='none such'):
            call()
    uplink.dev = 'lo'
    assert uplink.frame_bytes() == 65536 + 64


def test_the_root_is_the_own_one(uplink):
    uplink.ensure_root()
    root, = (wire.read_qdisc(body) for body in uplink.kernel.qdiscs[1:])
    assert root.is_ours
    assert operations.AddRoot(LO).message()[2] == uplink.kernel.qdiscs[1]
