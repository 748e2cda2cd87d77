# SPDX-License-Identifier: Apache-2.0

"""Totals over restarts of the kernel's counters."""

import json
import operator

from hypothesis import given
from hypothesis import strategies as st
import msgspec
from msgspec import structs
import pytest

from edge_module import counters
from edge_module.classify import classified as classify
from edge_module.qdisc import wire
from edge_module.tcplan import minors
from edge_module.tcplan import model
from tests.unit.edge import test_tcplan
from virtco.wire import edge_policy
from virtco.wire import reports

STATS = {1: wire.ClassStats(1000), 2: wire.ClassStats(100, 0, 4, 1),
         0x10: wire.ClassStats(900, 2), 0x11: wire.ClassStats(600, 1, 7, 2),
         0x12: wire.ClassStats(300, 1, 3, 1)}


def _counters():
    fresh = counters.Counters()
    fresh.name_classes([test_tcplan.coflow(0x10, 1e6, (2, 1))])
    return fresh


def _by_host(entry):
    return {item.host: item.sent_bytes
            for item in entry.destinations}


def test_one_reading():
    seen = _counters()
    seen.add_stats(STATS)
    entry, = seen.coflows()
    assert (entry.coflow_id, entry.sent_bytes, entry.sent_packets,
            entry.drops, entry.backlog_bytes) == ('c16', 900, 2, 3, 10)
    assert _by_host(entry) == {'h2': 600, 'h3': 300}
    assert {item.host: item.backlog_bytes
            for item in entry.destinations} == {'h2': 7, 'h3': 3}
    assert seen.sums()['uplink_sent_bytes'] == 1000
    assert seen.shared()['host'] == reports.PartCounters(100, 1, 4)


def test_bytes_of_rdma_count_once_when_a_card_is_away_for_a_moment():
    seen = _counters()
    for sent_bytes, received_bytes in (500, 300), (0, 0), (600, 400):
        seen.add_rdma(sent_bytes, received_bytes)
    assert (seen.sums()['unshaped_sent_bytes'],
            seen.sums()['rdma_received_bytes']) == (600, 400)
    # The card was reset.
    seen.add_rdma(50, 400)
    assert seen.sums()['unshaped_sent_bytes'] == 650


@pytest.mark.parametrize('is_restarted', [False, True])
def test_a_class_that_becomes_anothers_begins_from_nothing(is_restarted):
    """Its minor is free before its queue is sent, which may take longer."""
    def of_other(seen):
        return {one.coflow_id: one for one in seen.coflows()}['other']

    seen = _counters()
    seen.add_stats(STATS)
    if is_restarted:
        seen = counters.Counters(json.loads(msgspec.json.encode(
            seen.to_rows())))
    other = structs.replace(test_tcplan.coflow(0x11, 1e6), coflow_id='other')
    seen.name_classes([other])
    seen.add_stats(STATS)
    entry = of_other(seen)
    assert (entry.sent_bytes, entry.sent_packets, entry.drops) == (0, 0, 0)
    seen.add_stats(STATS | {0x11: wire.ClassStats(650, 3, 0, 2)})
    entry = of_other(seen)
    assert (entry.sent_bytes, entry.sent_packets, entry.drops) == (50, 2, 0)
    # Its class was made anew.
    seen.add_stats(STATS | {0x11: wire.ClassStats(30, 1, 0, 0)})
    entry = of_other(seen)
    assert (entry.sent_bytes, entry.sent_packets) == (80, 3)


@pytest.mark.parametrize('name', [
    ('leaf', 'another part', '', '2'), ('shared', 'unmanage', '', ''),
    ('leaf', 'host', '', '2x'), ('coflow', 'c16', '', ''),
    ('destination', 'c16', 'h2', '1-')])
def test_saved_rows_of_names_that_are_unknown_are_left_out(name):
    """Each report would fail, until the next boot."""
    seen = counters.Counters([(name, (1, 1, 1), (1, 1, 1))])
    seen.add_stats(STATS)
    assert seen.sums()['uplink_sent_bytes'] == 1000
    assert name not in [row[0] for row in seen.to_rows()]


def test_coflows_of_further_uplinks_that_ended_leave_one_sum():
    """A row for each would be saved for ever."""
    seen, sent_bytes = _counters(), 0
    for number in range(3):
        minor = 0x10 + 3 * number
        seen.name_classes([test_tcplan.coflow(minor, 1e6, (2, 1))])
        seen.add_stats({minors.LINK: wire.ClassStats(1000),
                        minor: wire.ClassStats(40),
                        minors.FURTHER + minor: wire.ClassStats(50)})
        sent_bytes += 50
        # The class of the further uplink outlives the other one for a moment.
        seen.name_classes([])
        for stats in ({minors.FURTHER + minor: wire.ClassStats(50)}, {}):
            seen.add_stats({minors.LINK: wire.ClassStats(1000)} | stats)
            assert seen.sums()['uplink_sent_bytes'] == 1000 + sent_bytes
    assert [name.where for name, _, _ in seen.to_rows()
            if name.subject == 'further'] == ['']


def test_coflows_are_counted_on_every_uplink():
    seen, further = _counters(), minors.FURTHER
    stats = STATS | {further + minor: found
                     for minor, found in STATS.items()} | {
        2 * further + 0x11: wire.ClassStats(5, 1, 1, 1)}
    seen.add_stats(stats)
    entry, = seen.coflows()
    assert (entry.sent_bytes, entry.sent_packets, entry.drops,
            entry.backlog_bytes) == (1800, 4, 7, 21)
    assert _by_host(entry) == {'h2': 1205, 'h3': 600}
    # So that what is left of it, less the coflow's, is of others at the first.
    assert seen.sums()['uplink_sent_bytes'] == 1000 + 900
    assert seen.shared()['host'] == reports.PartCounters(100, 1, 4)
    # A tree that is made once more counts on by itself.
    stats[further + 0x10] = wire.ClassStats(10)
    again = counters.Counters(json.loads(json.dumps(seen.to_rows())))
    again.name_classes([test_tcplan.coflow(0x10, 1e6, (2, 1))])
    again.add_stats(stats)
    entry, = again.coflows()
    assert (entry.sent_bytes, _by_host(entry)['h2']) == (1810, 1205)
    assert again.sums()['uplink_sent_bytes'] == 1000 + 910
    # The coflow goes, and nothing that was sent is taken back.
    again.name_classes([])
    again.add_stats({minors.LINK: STATS[minors.LINK]})
    assert again.coflows() == () and again.sums()['uplink_sent_bytes'] == 1910


def test_queues_of_others_are_of_the_uplink():
    """With OVN or Open vSwitch, whatever is in them."""
    seen = _counters()
    seen.add_stats(STATS | {-1: wire.ClassStats(0), -2: wire.ClassStats(70)})
    assert seen.sums()['uplink_sent_bytes'] == 1070
    seen.add_stats(STATS | {-3: wire.ClassStats(5)})
    assert seen.sums()['uplink_sent_bytes'] == 1075
    again = counters.Counters(json.loads(json.dumps(seen.to_rows())))
    again.add_stats(STATS | {-2: wire.ClassStats(1), -3: wire.ClassStats(6)})
    assert again.sums()['uplink_sent_bytes'] == 1077
    assert seen.shared()['host'] == reports.PartCounters(100, 1, 4)


def test_parts_that_are_no_data():
    seen = _counters()
    stats = STATS | {3: wire.ClassStats(500), 4: wire.ClassStats(60),
                     0x7005: wire.ClassStats(400, 0, 9, 2),
                     0x7006: wire.ClassStats(100, 0, 1, 3),
                     0x9005: wire.ClassStats(60, 1, 66, 5)}
    seen.add_stats(stats)
    assert [one.sent_bytes for one in seen.coflows()] == [900]
    assert seen.shared()['unmanaged'] == reports.PartCounters(500, 5, 10)
    assert seen.shared()['control'] == reports.PartCounters(60, 5, 66)
    # Ports go; their drops stay, over a restart too.
    del stats[0x7006], stats[0x9005]
    again = counters.Counters(json.loads(json.dumps(seen.to_rows())))
    again.add_stats({minor: stats[minor] for minor in (1, 2, 3, 4, 0x7005)})
    assert {part: found.drops for part, found in again.shared().items()
            } == {'host': 1, 'unmanaged': 5, 'control': 5}


def test_class_that_was_made_anew_counts_on():
    seen = _counters()
    seen.add_stats(STATS)
    seen.add_stats({})  # somebody took the qdisc away
    seen.add_stats({minor: wire.ClassStats(5) for minor in STATS})
    entry, = seen.coflows()
    assert entry.sent_bytes == 905
    assert _by_host(entry) == {'h2': 605, 'h3': 305}


def test_restart_of_the_module_counts_on():
    seen = _counters()
    seen.add_stats(STATS)
    rows = json.loads(json.dumps(seen.to_rows()))
    again = counters.Counters(rows)
    again.name_classes([test_tcplan.coflow(0x10, 1e6, (2, 1))])
    again.add_stats(STATS)
    assert again.coflows() == seen.coflows()


def test_coflow_stays_until_its_classes_are_gone():
    seen = _counters()
    seen.add_stats(STATS)
    seen.name_classes([])
    seen.add_stats(STATS)
    assert seen.coflows()[0].sent_bytes == 900
    seen.add_stats({1: STATS[1], 2: STATS[2]})
    assert not seen.coflows()
    assert seen.sums()['uplink_sent_bytes'] == 1000


def test_coflow_that_left_without_a_kernel_is_forgotten():
    seen = _counters()
    seen.add_stats(STATS)
    seen.name_classes([])
    seen.add_stats({})
    assert not seen.coflows()


def test_class_of_another_coflow_counts_for_it():
    seen = _counters()
    seen.add_stats(STATS)
    other = structs.replace(
        test_tcplan.coflow(0x10, 1e6, (2, 1)), coflow_id='other')
    seen.name_classes([other])
    seen.add_stats({minor: wire.ClassStats(5) for minor in STATS})
    sent = {entry.coflow_id: entry.sent_bytes
            for entry in seen.coflows()}
    assert sent == {'other': 5}


def test_coflow_id_may_hold_anything():
    seen = counters.Counters()
    seen.name_classes([structs.replace(
        test_tcplan.coflow(0x10, 1e6), coflow_id='a/b:c d')])
    seen.add_stats(STATS)
    entry, = seen.coflows()
    assert entry.coflow_id == 'a/b:c d'
    assert _by_host(entry) == {'h2': 600}


def test_pairs_tell_port_and_device():
    seen = counters.Counters()
    seen.add_pairs({
        ('tap1', classify.Entry(5, '10.0.0.1', '10.0.0.2', 80)):
            model.Counts(5, 1),
        ('tap1', classify.Entry(5, '10.0.0.1', '10.0.0.2')):
            model.Counts(7, 2),
        # Seen at the uplink's egress.
        ('', classify.Entry(0, '10.0.0.3', '10.0.0.2')):
            model.Counts(9, 3)})
    assert seen.pairs() == (
        reports.PairCounter('10.0.0.1', '10.0.0.2', 5, 'tap1', 80, 1),
        reports.PairCounter('10.0.0.1', '10.0.0.2', 7, 'tap1', None, 2),
        reports.PairCounter('10.0.0.3', '10.0.0.2', 9, None, None, 3))
    # Controllers read what edges write.
    for one in seen.pairs():
        assert msgspec.json.decode(msgspec.json.encode(one),
                                   type=reports.PairCounter) == one
    seen.add_pairs({})
    assert not seen.pairs()


@given(st.lists(st.lists(st.tuples(*[st.integers(0, 1000)] * 3), min_size=1),
                min_size=1))
def test_total_is_the_sum_over_all_lives(lives):
    total = counters.Total()
    expected = [0, 0, 0]
    for increments in lives:
        raw = [0, 0, 0]
        total.update(model.Counts())
        for increment in increments:
            for sums in (raw, expected):
                sums[:] = map(operator.add, sums, increment)
            total.update(model.Counts(*raw))
    assert total.value == tuple(expected)


def test_a_counter_that_restarts_alone_counts_on_alone():
    """The queue of a leaf may be another, but its class the same."""
    total = counters.Total()
    total.update(model.Counts(500, 5, 3))
    total.update(model.Counts(600, 6, 1))
    assert total.value == (600, 6, 4)
    total.update(model.Counts(600, 2, 1))
    assert total.value == (600, 8, 4)


def test_limited_destinations_count_for_their_host():
    seen = counters.Counters()

    def limit(host):
        seen.name_limits(edge_policy.Unmanaged(1e6, (), (
            edge_policy.DestinationLimit(host, 3, 1e6, ()),)))

    def count(sent):
        inner, leaf = minors.of_limit(3), minors.of_limited(3, 8)
        seen.add_stats({
            inner: wire.ClassStats(sent, 1), leaf: wire.ClassStats(
                sent, 1, 40, 2), 0xc000: wire.ClassStats(9, 1)})

    limit('h2')
    count(500)
    assert seen.limited() == (reports.LimitCounter('h2', 500, 40),
                              reports.LimitCounter(None, 9, 0))
    assert seen.shared()['unmanaged'] == reports.PartCounters(0, 2, 40)
    assert seen.limited_drops() == {'h2': 2}
    # The slot is another host's now.
    limit('h4')
    count(600)
    assert [row.host for row in seen.limited()] == [None, 'h4']
    # It is nobody's, and its class goes later: one row for all others.
    seen.name_limits(edge_policy.Unmanaged(1e6))
    for classes in ({minors.of_limit(3): wire.ClassStats(700, 1)}, {}):
        seen.add_stats({**classes, 0xc000: wire.ClassStats(19, 2)})
        assert seen.limited() == (reports.LimitCounter(None, 19, 0),)


def test_peers_are_those_that_send_now_and_most(monkeypatch):
    monkeypatch.setattr(counters, 'MOST_PEERS', 2)
    seen = counters.Counters()
    counted = {('tap1', '10.0.0.2'): model.Counts(50, 7),
               ('tap1', '10.0.0.3'): model.Counts(900, 2),
               ('tap2', '10.0.0.2'): model.Counts(60, 3)}
    seen.add_peers(counted)
    most = reports.PeerCounter('tap1', '10.0.0.3', 900, 2)
    assert seen.peers() == (
        most, reports.PeerCounter('tap2', '10.0.0.2', 60, 3))
    del counted['tap2', '10.0.0.2']
    seen.add_peers(counted)
    assert seen.peers() == (
        most, reports.PeerCounter('tap1', '10.0.0.2', 50, 7))
    # Its entry was made anew.
    seen.add_peers({('tap1', '10.0.0.3'): model.Counts(8, 1)})
    assert seen.peers() == (
        reports.PeerCounter('tap1', '10.0.0.3', 908, 3),)
    seen.add_pairs({('tap1', classify.Entry(5, 'a', 'b')):
                    model.Counts(5, 1)})
    seen.add_peers({})
    assert seen.peers() == () and len(seen.pairs()) == 1
    seen.add_peers(counted)
    seen.add_pairs({})
    assert len(seen.peers()) == 2 and seen.pairs() == ()


def test_rows_of_another_version_are_left_out():
    row = ['uplink', '', '', ''], [4, 2, 0], [3, 1, 0]
    seen = counters.Counters([
        row, ['uplink', '', '', '', 4, 3],
        [['something', '', '', ''], [1, 1, 1], [1, 1, 1]]])
    assert seen.sums()['uplink_sent_bytes'] == 7
    assert json.loads(json.dumps(seen.to_rows())) == [[*row]]


def test_two_ports_share_a_limit_and_each_a_part():
    seen = counters.Counters()
    seen.name_limits(test_tcplan.unmanaged({1: 1e6, 2: 2e6}))
    seen.add_stats({
        minors.of_limit(1): wire.ClassStats(700),
        minors.of_limited(1, 6): wire.ClassStats(300, 1, 40, 2),
        minors.of_limited(1, 7): wire.ClassStats(400, 1, 5, 3),
        minors.of_limit(2): wire.ClassStats(11),
        minors.of_limited(2, 6): wire.ClassStats(11, 1, 6, 4)})
    assert set(seen.limited()) == {reports.LimitCounter('h1', 700, 45),
                                   reports.LimitCounter('h2', 11, 6)}
    assert seen.limited_drops() == {'h1': 5, 'h2': 4}
    assert seen.shared()['unmanaged'] == reports.PartCounters(0, 9, 51)
    seen.name_limits(None)
    assert seen.limited_drops() == {'': 9}


def test_a_policy_that_names_it_keeps_a_class_that_is_not_there():
    seen = _counters()
    seen.add_stats(STATS)
    seen.add_stats({1: STATS[1]})
    assert [one.sent_bytes for one in seen.coflows()] == [900]
    assert seen.coflows()[0].backlog_bytes == 0


def test_ports_that_come_and_go_leave_one_row():
    """Their drops stay, and nothing waits in what is gone."""
    seen = counters.Counters()
    for minor in range(0x7005, 0x7009):
        seen.add_stats({1: wire.ClassStats(9, 1, 77), 3: wire.ClassStats(9),
                        minor: wire.ClassStats(5, 1, 4, 2)})
    assert seen.shared()['unmanaged'] == reports.PartCounters(9, 8, 4)
    assert len([name for name, *_ in seen.to_rows()
                if name.kind == 'leaf']) == 2
