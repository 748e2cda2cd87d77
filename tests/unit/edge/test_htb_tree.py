# SPDX-License-Identifier: Apache-2.0

"""Leaves of a tree that first send what they have queued."""

import dataclasses
import math

import pytest

from edge_module.qdisc import htb_tree as edge_tree
from edge_module.qdisc import wire
from edge_module.tcplan import model
from edge_module.tcplan import shape
from tests.unit.edge import dictionaries
from tests.unit.edge import test_tcplan
from virtco import exception

LINK_BPS = 100e6
SETTINGS = model.TreeSettings(frame_bytes=1564)


def built(*coflows):
    return shape.build_tree(test_tcplan.policy(coflows), LINK_BPS, SETTINGS)


FAST = built(test_tcplan.coflow(0x10, 40e6))
#: Its leaf cuts what it passed whole.
SLOW = built(test_tcplan.coflow(0x10, 0.2e6, ceil_bps=0.3e6))
NONE = built()
#: Minors of the coflow's classes, children first.
ALL = (0x11, 0x10)


@pytest.fixture
def keeper():
    found = edge_tree.TreeKeeper(dictionaries.Uplink())
    found.change(FAST, SETTINGS, 50.0)
    return found


def queue(keeper, sent_bytes, backlog_bytes):
    keeper.uplink.seen[0x11] = wire.ClassStats(sent_bytes, 1, backlog_bytes)


def looks(keeper):
    return keeper.uplink.asked.count('class_stats')


def test_the_trees_are_those_that_the_tests_want():
    assert FAST[0x11].packet_bytes == model.WHOLE_BYTES
    assert SLOW[0x11].packet_bytes == 1564


def test_one_that_slows_down_sends_whole_packets_first(keeper):
    queue(keeper, 1000, 700)
    keeper.change(SLOW, SETTINGS, 50.0)
    assert keeper.is_draining and keeper.is_waiting
    held = keeper.uplink.tree[0x11]
    assert held.rate_bps > SLOW[0x11].rate_bps
    assert held.packet_bytes == 1564
    # What it has queued now was queued before it cut.
    queue(keeper, 1100, 650)
    keeper.change(SLOW, SETTINGS, 50.0)
    assert keeper._draining == {0x11: 1750}
    for sent_bytes, is_draining in ((1749, True), (1750, False)):
        queue(keeper, sent_bytes, 900)
        keeper.change(SLOW, SETTINGS, 50.0)
        assert keeper.is_draining == is_draining
    assert keeper.uplink.tree == SLOW and not keeper.is_waiting


@pytest.mark.parametrize('sent_bytes', [0, 1000])
def test_an_empty_one_slows_down_at_once(keeper, sent_bytes):
    queue(keeper, sent_bytes, 0)
    keeper.change(SLOW, SETTINGS, 50.0)
    assert not keeper.is_draining and keeper.uplink.tree == SLOW


def test_one_that_speeds_up_again_waits_for_nothing(keeper):
    queue(keeper, 1000, 700)
    keeper.change(SLOW, SETTINGS, 50.0)
    keeper.change(FAST, SETTINGS, 50.0)
    assert not keeper.is_draining and keeper.uplink.tree == FAST


def test_nothing_is_read_where_nothing_may_be_held(keeper):
    before = looks(keeper)
    keeper.change(FAST, SETTINGS, 50.0)
    keeper.change(built(test_tcplan.coflow(0x10, 30e6)), SETTINGS, 50.0)
    assert looks(keeper) == before
    keeper.change(NONE, SETTINGS, 50.0)
    assert looks(keeper) == before + 1


def test_one_that_leaves_may_get_packets_until_it_is_looked_at_again(keeper):
    update = keeper.change(NONE, SETTINGS, 50.0)
    assert keeper._draining == {0x11: math.inf} and update.leave == ()
    queue(keeper, 1000, 1)
    assert keeper.change(NONE, SETTINGS, 50.0).leave == ()
    queue(keeper, 1001, 0)
    assert keeper.change(NONE, SETTINGS, 50.0).leave == ALL
    assert not keeper.is_draining
    assert keeper.is_waiting
    # It is no reason to begin anew that one leaves already.
    keeper.uplink.tree[0x11] = keeper._known[1][0x11] = dataclasses.replace(
        keeper._known[1][0x11], rate_bps=8000)
    keeper.change(NONE, SETTINGS, 50.0)
    assert not keeper.is_draining


def test_one_that_is_idle_already_can_keep_nothing(keeper):
    idle = dict(FAST) | {0x11: dataclasses.replace(
        FAST[0x11], rate_bps=model.IDLE_RATE_BPS)}
    keeper.change(idle, SETTINGS, 50.0)
    assert keeper.change(NONE, SETTINGS, 50.0).leave == ALL


def test_times_to_leave_are_kept(keeper):
    for due_s in 40.0, 50.0, 60.0:
        keeper.change(NONE, SETTINGS, due_s)
    assert not keeper.is_due(49.9) and keeper.is_due(50.0)
    keeper.change(FAST, SETTINGS, 70.0)
    assert not keeper.is_due(1e9) and not keeper.is_waiting


def leaving(keeper):
    for _ in range(2):
        keeper.change(NONE, SETTINGS, 50.0)


def test_those_whose_time_is_over_are_deleted(keeper):
    leaving(keeper)
    assert keeper.delete(NONE, 49.0) == []
    assert keeper.is_due(50.0)
    assert keeper.delete(NONE, 50.0) == list(ALL)
    assert keeper.uplink.tree == NONE == keeper._known[1]
    assert not keeper.is_waiting


def test_a_parent_stays_with_its_children(keeper):
    leaving(keeper)
    queue(keeper, 1, 10)
    assert keeper.delete(NONE, 50.0) == []
    assert keeper.delete(NONE, 79.9) == []
    assert keeper.delete(NONE, 80.0) == [0x11, 0x10]


@pytest.mark.parametrize('call', [
    lambda keeper: keeper.delete(NONE, 50.0),
    lambda keeper: keeper.change(FAST, SETTINGS, 50.0)])
def test_after_a_refusal_everything_is_read(keeper, call):
    leaving(keeper)
    keeper.uplink.refuses |= {'set_classes', 'delete_classes'}
    with pytest.raises(exception.KernelRefused):
        call(keeper)
    assert not keeper.is_known and keeper.is_waiting


def test_what_stands_is_not_changed_by_adding(keeper):
    queue(keeper, 1000, 700)
    assert keeper.change({**NONE, **keeper.current()}, SETTINGS, 50.0
                         ).leave == ()
    assert keeper.uplink.tree == FAST and not keeper.is_draining


def test_no_rate_rises_before_others_fell():
    uplink = dictionaries.Uplink()
    asked = []
    make = uplink.set_classes

    def set_classes(classes, current):
        asked.append({item.minor: item.rate_bps - current[item.minor].rate_bps
                      if item.minor in current else None for item in classes})
        make(classes, current)

    uplink.set_classes = set_classes
    found = edge_tree.TreeKeeper(uplink)
    found.change(FAST, SETTINGS, 50.0)
    assert len(asked) == 1 and set(asked.pop().values()) == {None}
    found.change(built(test_tcplan.coflow(0x10, 30e6),
                       test_tcplan.coflow(0x20, 70e6)), SETTINGS, 50.0)
    found.change(FAST, SETTINGS, 50.0)
    slower, made, slower_again, faster = asked
    assert set(made.values()) == {None}
    assert max(*slower.values(), *slower_again.values()) < 0
    assert min(faster.values()) > 0
