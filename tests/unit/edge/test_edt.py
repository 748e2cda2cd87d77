# SPDX-License-Identifier: Apache-2.0

"""What the program of departure times is told, over maps in memory.

Whether the kernel takes it is for tests in namespaces.
"""

import types

from hypothesis import given
from hypothesis import strategies as st
import pytest

from edge_module.qdisc import wire
from edge_module.shaper import edt
from edge_module.shaper import sharing
from edge_module.tcplan import minors
from edge_module.tcplan import model
from edge_module.tcplan import shape
from tests.unit.edge import test_tcplan
from virtco import exception

LINK_BPS = test_tcplan.LINK_BPS
LEAF = model.HtbClass(0x11, 0x10, 8_000_000, 16_000_000, 3, 7000, 50_000,
                      1500, 24, 84)


@given(st.builds(
    model.HtbClass, minor=st.just(0x11), parent=st.integers(0, 0xffff),
    rate_bps=st.integers(8, 10 ** 12), ceil_bps=st.integers(8, 10 ** 12),
    prio=st.integers(0, 7), quantum_bytes=st.integers(1, 10 ** 6),
    limit_bytes=st.none() | st.integers(1, 10 ** 8),
    packet_bytes=st.none() | st.integers(1, 10 ** 5),
    overhead_bytes=st.integers(0, 100), frame_min_bytes=st.integers(0, 100)),
    st.integers(0, 10 ** 9))
def test_a_class_comes_back_as_it_was(item, rate_bytes_per_s):
    rate_bps = 8.0 * rate_bytes_per_s
    assert edt.read_class(0x11, edt.pack_class(item, rate_bps)) == (
        item, rate_bps)


@pytest.mark.parametrize(('limit_bytes', 'rate_bps', 'wait_ns'), [
    (50_000, 8e6, 50_000_000), (50_000, 1e12, 5_000_000),
    (50_000, 8e5, 200_000_000), (None, 8e6, 5_000_000),
    # A class at rest begins with little, which is no rate to divide by.
    (50, 0.0, 200_000_000)])
def test_how_long_a_packet_may_wait(limit_bytes, rate_bps, wait_ns):
    item = model.HtbClass(0x11, 0x10, 8, 8, 0, 1, limit_bytes)
    assert edt._wait_ns(item, rate_bps) == wait_ns
    assert edt._HEAD.unpack_from(edt.pack_class(item, rate_bps))[:2] == (
        int(rate_bps / 8), wait_ns)


def seen(sent_bytes=0, sent_packets=0, backlog_bytes=0, drops=0):
    return wire.ClassStats(sent_bytes, sent_packets, backlog_bytes, drops)


@pytest.mark.parametrize(('before', 'now', 'sent_bps', 'has_queue'), [
    # 10 frames of 1000 bytes and 24 each on the wire, in half a second.
    (seen(500, 5), seen(10_500, 15), 8 * 10_240 / 0.5, False),
    # Short ones take 84 bytes each at least.
    (seen(), seen(400, 10), 8 * 840 / 0.5, False),
    (seen(500, 5), seen(), 0.0, False),
    (seen(drops=1), seen(drops=1), 0.0, False),
    (seen(drops=1), seen(drops=2), 0.0, True),
    # A quarter of the queue, 12.5 ms at 8 Mbit/s, waits often.
    (seen(), seen(backlog_bytes=12_500), 0.0, False),
    (seen(), seen(backlog_bytes=12_600), 0.0, True)])
def test_what_a_class_used(before, now, sent_bps, has_queue):
    found = edt._use(LEAF, before, now, 0.5, 8e6)
    assert found == sharing.Use(pytest.approx(sent_bps), has_queue)


def test_counters_of_two_are_added():
    assert edt._sum(seen(1, 2, 3, 4), seen(10, 20, 30, 40)) == (
        seen(11, 22, 33, 44))


class Map:
    """A map of the program's, in memory."""

    def __init__(self):
        self.values = {}
        self.n_set = 0

    def get(self, minor, copies=1):
        return self.values.get(minor)

    def set(self, minor, value):
        self.values[minor] = value
        self.n_set += 1

    def delete(self, minor):
        self.values.pop(minor, None)


class Shaper:
    """A shaper whose program is in place, and what the program counts."""

    def __init__(self, *coflows):
        self.shaper = edt.EdtShaper(None, 'eth0', pace_s=0)
        self.shaper._copies = 2
        self.maps = {name: Map() for name in ('classes', 'states', 'counts')}
        self.shaper._program = types.SimpleNamespace(maps=self.maps)
        self.tree = shape.build_tree(test_tcplan.policy(coflows), LINK_BPS)
        self.shaper.set_classes(self.tree.values(), {})

    def rate_bps(self, minor):
        return edt.read_class(minor, self.maps['classes'].values[minor])[1]

    def count(self, minor, *each):
        self.maps['counts'].set(minor, b''.join(
            edt._COUNT.pack(*one) for one in each))


@pytest.fixture
def two():
    return Shaper(test_tcplan.coflow(0x10, 60e6),
                  test_tcplan.coflow(0x20, 10e6, prio=1))


def test_classes_are_written_with_counters_at_zero(two):
    leaves = {minor for minor, item in two.tree.items()
              if item.limit_bytes is not None}
    assert two.maps['classes'].values.keys() == two.tree.keys()
    assert two.maps['counts'].values == dict.fromkeys(leaves, bytes(48))
    assert two.maps['states'].values == dict.fromkeys(leaves, bytes(16))
    assert {minor: edt.read_class(minor, value)[0] for minor, value
            in two.maps['classes'].values.items()} == two.tree
    assert (two.rate_bps(0x11), two.rate_bps(0x21)) == (60e6, 10e6)
    assert two.rate_bps(minors.LINK) == 0
    # A class that changes goes on counting.
    two.count(0x11, (5, 1, 0), (7, 2, 3))
    two.shaper.set_classes([two.tree[0x11]], two.tree)
    assert two.shaper._leaf_stats(0x11) == seen(12, 3, 0, 3)


def test_without_the_program_nothing_is_written():
    shaper = edt.EdtShaper(None, 'eth0', pace_s=0)
    with pytest.raises(exception.NotFound, match='eth0'):
        shaper.set_classes([], {})
    shaper.pace(1.0)
    shaper.delete_classes([0x11])


def test_counters_of_leaves_are_those_of_all_above(two):
    two.count(0x11, (5, 1, 0), (7, 2, 3))
    two.count(0x21, (100, 10, 1), (0, 0, 0))
    found = two.shaper.stats()
    assert found[0x11] == found[0x10] == seen(12, 3, 0, 3)
    assert found[minors.LINK] == seen(112, 13, 0, 4)
    assert two.shaper.class_stats() == found
    del two.maps['states'].values[0x11]
    assert two.shaper.stats()[0x11] == seen()


def test_what_waits_is_told_by_the_time_of_the_last(two, monkeypatch):
    monkeypatch.setattr(edt.time, 'monotonic_ns', lambda: 10 ** 9)
    for next_ns, backlog_bytes in ((10 ** 9 + 2_000_000, 15_000),
                                   (10 ** 9, 0), (5, 0)):
        two.maps['states'].set(0x11, edt._STATE.pack(next_ns, 0))
        assert two.shaper._leaf_stats(0x11).backlog_bytes == backlog_bytes


def test_unused_rate_is_handed_on(two):
    two.shaper.pace(100.0)
    n_set = two.maps['classes'].n_set
    # Nothing changes while nobody sends.
    two.shaper.pace(100.5)
    assert two.maps['classes'].n_set == n_set
    # The second one drops, the first one is idle.
    two.count(0x21, (625_000, 500, 1))
    two.shaper.pace(101.0)
    assert two.rate_bps(0x21) > 30e6
    assert two.rate_bps(0x11) + two.rate_bps(0x21) <= LINK_BPS
    # It has its rate of before when it rests.
    two.shaper.pace(101.5)
    two.shaper.pace(102.0)
    assert two.rate_bps(0x21) < 12e6


def test_small_changes_are_not_worth_a_write(two):
    for factor, is_written in ((1.004, False), (0.996, False),
                               (1.006, True), (0.994, True)):
        two.shaper.pace(100.0)
        was_bps = dict(two.shaper._rates_bps)
        two.shaper._rates_bps[0x11] = was_bps[0x11] / factor
        two.shaper._put(0x11)
        n_set = two.maps['classes'].n_set
        two.shaper.pace(100.0)
        assert (two.maps['classes'].n_set > n_set) is is_written
        two.shaper._rates_bps.update(was_bps)


def test_classes_that_go_are_forgotten(two):
    two.shaper.delete_classes([0x11, 0x99])
    for one in two.maps.values():
        assert 0x11 not in one.values and 0x21 in one.values
    assert 0x11 not in two.shaper.stats()


def test_queues_of_the_device():
    kind, flags, body = edt._fq(7, wire.TC_H_ROOT, wire.ROOT_HANDLE)
    assert kind == wire.RTM_NEWQDISC
    assert flags == wire.NLM_F_CREATE | wire.NLM_F_REPLACE
    found = wire.read_qdisc(body)
    assert (found.kind, found.handle) == ('fq', wire.ROOT_HANDLE)
    assert wire.is_root_of(body, 7) and not wire.is_root_of(body, 8)
    assert edt.processors() >= 1


@pytest.mark.parametrize(('queues', 'made'), [
    (0, ['fq']), (1, ['fq']), (3, ['mq', 'fq', 'fq', 'fq'])])
def test_each_queue_of_a_device_has_its_own(monkeypatch, queues, made):
    sent = []
    monkeypatch.setattr(edt.glob, 'glob', lambda _pattern: [''] * queues)
    monkeypatch.setattr(edt.htb, 'send', lambda _kernel, messages, _what: (
        sent.extend(body for _kind, _flags, body in messages)))
    edt.EdtShaper(None, 'eth0')._make_queues(7)
    assert [wire.read_qdisc(body).kind for body in sent] == made
    parents = [wire.TCMSG.unpack_from(body)[3] for body in sent]
    assert parents == [wire.TC_H_ROOT] + [
        wire.ROOT_HANDLE | number for number in range(1, len(made))]
