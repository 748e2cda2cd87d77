# SPDX-License-Identifier: Apache-2.0

"""Flows that sent and then fell silent, and the queues that tell."""

import types

import numpy as np
import pytest

from tests.unit import made
from tests.unit.state import test_live_state as known
from virtco.decide import policy_documents
from virtco.model import live
from virtco.model import matrix as matrices
from virtco.scheduling import endings
from virtco.state import byte_counters
from virtco.state import live_state
from virtco.state import route as routes
from virtco.state import schedule_input
from virtco.state import sending as sending_model
from virtco.state import silent_flows
from virtco.wire import reports

report, left_bytes = known.report, known.left_bytes


@pytest.fixture
def overstated():
    """One flow of h0 has ended after a quarter of its hint, at 1 s."""
    found = live_state.LiveState()
    found.load_groups(
        [known.member('g', i, f'h{i}') for i in range(3)],
        [known.stored(flows='[[0,1,4000000],[0,2,4000000],[1,2,1000000]]')])
    found.meet({'h1', 'h2'}, 0.0)
    found.intake('h0', report(destinations={'h1': 0, 'h2': 0}), 0.5)
    found.intake('h0', report(destinations={'h1': 1e6, 'h2': 1e6}), 1.0)
    return found


def sending(state):
    """Bytes by which pairs get rates; None: by all that is left."""
    (coflow,) = state.snapshot(schedule_input.Options(), 2.0).coflows
    found = coflow.live.sending
    return None if found is None else found.remaining_bytes.tolist()


def goes_on(state, to_s, h1_bytes=1e6, h2_bytes=1e6, h1_queue=0, h2_queue=0,
            other_queue=0):
    state.intake('h0', made.report(
        epoch='e', link={'egress_bps': 1e8, 'ingress_bps': 1e8},
        coflows=[{'coflow_id': 'c', 'sent_bytes': h1_bytes + h2_bytes,
                  'backlog_bytes': h1_queue + h2_queue + other_queue,
                  'destinations': [
                      {'host': 'h1', 'sent_bytes': h1_bytes,
                       'backlog_bytes': h1_queue},
                      {'host': 'h2', 'sent_bytes': h2_bytes,
                       'backlog_bytes': h2_queue}]}],
        uplink_sent_bytes=h1_bytes + h2_bytes), to_s)


def test_a_flow_that_falls_silent_while_others_send_gets_no_rate(overstated):
    goes_on(overstated, 1.5, h2_bytes=1.5e6)
    assert sending(overstated) is None
    goes_on(overstated, 2.0, h2_bytes=2e6)
    # That of h1 has sent nothing yet.
    assert sending(overstated) == pytest.approx([0, 2e6, 1e6])
    assert left_bytes(overstated) == pytest.approx([3e6, 2e6, 1e6])


def test_its_next_bytes_give_a_silent_flow_its_rate_back(overstated):
    goes_on(overstated, 1.5, h2_bytes=1.5e6)
    goes_on(overstated, 2.0, h2_bytes=2e6)
    assert sending(overstated) is not None
    goes_on(overstated, 2.1, h1_bytes=1.1e6, h2_bytes=2e6)
    assert sending(overstated) is None


@pytest.mark.parametrize(('queues', 'is_silent'), [
    ({}, True),
    ({'h2_queue': 1500}, True),
    ({'h1_queue': 1500}, False),
    ({'h1_queue': 1500, 'h2_queue': 1500}, False),
    # An older edge module, or a class that destinations share.
    ({'other_queue': 1500}, False),
    ({'h2_queue': 1500, 'other_queue': 3000}, False)])
def test_a_flow_is_not_silent_while_something_waits_for_it(
        overstated, queues, is_silent):
    goes_on(overstated, 1.5, h2_bytes=1.5e6)
    goes_on(overstated, 2.0, h2_bytes=2e6)
    goes_on(overstated, 2.1, h2_bytes=2.1e6, **queues)
    assert (sending(overstated) is not None) == is_silent


def test_queues_are_those_of_the_last_report():
    queues = sending_model.Sending()
    pairs = live.Pairs([('a', 'b'), ('a', 'c'), ('d', 'b')])
    assert not queues.is_queued
    # A destination may have two classes while it changes from one to another.
    assert not queues.take('a', reports.CoflowCounters(
        'c', 0, backlog_bytes=5, destinations=tuple(
            reports.DestinationCounter('b', 0, size) for size in (2, 3, 0))))
    assert queues.is_queued
    assert queues.are_queues_empty(pairs).tolist() == [False, True, True]
    assert queues.take('a', None)
    assert not queues.is_queued
    assert queues.are_queues_empty(pairs).all()


def test_a_silent_flow_keeps_its_class_with_the_least_rate(overstated):
    """Where its next bytes are counted, and give it its rate back."""
    def rates():
        options = schedule_input.Options(work_conserving=False)
        made = policy_documents.compute(
            overstated.snapshot(options, 2.0), None)
        overstated.keep_minors(made.minors)
        (one,) = made.of_host['h0'].policy().classes
        return {child.host: child.rate_bps for child in one.destinations}

    goes_on(overstated, 1.5, h2_bytes=1.5e6)
    before = rates()
    goes_on(overstated, 2.0, h2_bytes=2e6)
    after = rates()
    assert 0 < after['h1'] < 0.02 * before['h1']
    assert after['h2'] > 1.5 * before['h2']
    goes_on(overstated, 2.1, h1_bytes=1.01e6, h2_bytes=2e6)
    assert rates()['h1'] > 0.9 * before['h1']


def test_a_host_that_does_not_report_is_not_silent(overstated):
    overstated.intake('h1', report(0), 1.0)
    overstated.intake('h1', report(100_000), 2.5)
    overstated.intake('h1', report(200_000), 3.2)
    assert sending(overstated) is None


def test_after_a_pause_of_all_nobody_was_silent(overstated):
    goes_on(overstated, 1.9)
    goes_on(overstated, 3.0, h2_bytes=2e6)
    assert sending(overstated) is None
    goes_on(overstated, 3.5, h2_bytes=2.5e6)
    goes_on(overstated, 4.0, h2_bytes=3e6)
    assert sending(overstated) == pytest.approx([0, 1e6, 1e6])


def test_a_few_bytes_are_no_beginning_of_a_flow(overstated):
    goes_on(overstated, 1.5, h2_bytes=1.5e6)
    overstated.intake('h1', report(60), 1.5)
    for at_s, h2_bytes in ((2.0, 2e6), (2.5, 2.5e6)):
        overstated.intake('h1', report(60), at_s)
        goes_on(overstated, at_s, h2_bytes=h2_bytes)
    assert sending(overstated)[2] == pytest.approx(1e6, rel=1e-3)


PAIRS = [('h0', 'h1'), ('h0', 'h2'), ('h1', 'h2')]
RULES = endings.Rules(quiet_s=2.0, start_bytes=1000.0, done_fraction=0.75)


def silent(sent, at_s, sizes=(4e6, 2e6, 2e3), moved_s=20.0, heard_s=None,
           queued=(), rows=(0, 1, 2)):
    """Bytes of silent flows, per pair; each flow runs between two hosts.

    :param at_s: when each last sent.
    :param rows: of the VMs that run.
    """
    counting = byte_counters.CoflowProgress(sizes)
    for flow, (size_bytes, flow_s) in enumerate(zip(sent, at_s)):
        if size_bytes:
            counting.credit(np.array([flow]), size_bytes)
            counting.moved((flow_s, flow_s), False)
    queues = sending_model.Sending()
    for host, dst in queued:
        queues.take(host, reports.CoflowCounters(
            'c', 0, backlog_bytes=5, destinations=(
                (reports.DestinationCounter(dst, 0, 5),) if dst else ())))
    found = silent_flows.silent_bytes(types.SimpleNamespace(
        model=types.SimpleNamespace(is_estimated=False), counting=counting,
        route=routes.Route(
            matrices.Matrix.of(3, [0, 0, 1], [1, 2, 2], sizes),
            {row: routes.Member('vm', f'h{row}', True) for row in rows},
            True), sending=queues, moved_s=moved_s), (heard_s or {}).get,
        RULES)
    return None if found is None else found.tolist()


HEARD = dict.fromkeys(('h0', 'h1'), 20.0)


@pytest.mark.parametrize(('at_s', 'expected'), [
    ((18.0, 20.0, 20.0), [3e6, 0, 0]), ((18.1, 20.0, 20.0), None),
    ((20.0, 18.0, 20.0), [0, 1e6, 0]), ((20.0, 20.0, 17.0), [0, 0, 1e3])])
def test_who_sent_and_then_nothing_is_silent(at_s, expected):
    assert silent((1e6, 1e6, 1e3), at_s, heard_s=HEARD) == expected


@pytest.mark.parametrize(('sent', 'expected'), [
    # A thousand bytes are a beginning, and a quarter of a small flow.
    ((1000, 1e6, 1e3), [4e6 - 1000, 0, 0]), ((999, 1e6, 1e3), None)])
def test_a_beginning_is_more_than_noise(sent, expected):
    assert silent(sent, (10.0, 20.0, 20.0), heard_s=HEARD) == expected


@pytest.mark.parametrize(('sent', 'expected'), [
    (500, [0, 0, 1500]), (499, None),
    # Of one that is all counted, its tail.
    (1989, [0, 0, 11]), (1990, [0, 0, 10]), (2000, [0, 0, 10])])
def test_a_small_flow_begins_with_its_quarter(sent, expected):
    assert silent((1e6, 1e6, sent), (20.0, 20.0, 10.0), heard_s=HEARD
                  ) == expected


@pytest.mark.parametrize(('heard_s', 'expected'), [
    ({'h0': 20.0, 'h1': 20.0}, [3e6, 0, 0]),
    ({'h0': 12.0, 'h1': 20.0}, [3e6, 0, 0]),
    ({'h0': 11.9, 'h1': 20.0}, None), ({'h0': 99.0, 'h1': 20.0},
                                       [3e6, 0, 0])])
def test_the_source_must_have_told_since(heard_s, expected):
    assert silent((1e6, 1e6, 1e3), (10.0, 20.0, 20.0), heard_s=heard_s
                  ) == expected


@pytest.mark.parametrize(('queued', 'expected'), [
    ([('h0', 'h1')], None), ([('h0', 'h2')], [3e6, 0, 0]),
    ([('h0', '')], None), ([('h1', '')], [3e6, 0, 0])])
def test_who_has_a_queue_is_not_silent(queued, expected):
    assert silent((1e6, 1e6, 1e3), (10.0, 20.0, 20.0), heard_s=HEARD,
                  queued=queued) == expected


def test_where_nobody_else_sent_since_nobody_is_silent():
    """A source that told after all of them has no later bytes to tell of."""
    assert silent((1e6, 1e6, 1e3), (18.5, 20.0, 20.0),
                  heard_s={'h0': 30.0, 'h1': 30.0}) is None
    assert silent_flows.never('h') == -np.inf and byte_counters.TAIL == 5e-3


def test_who_is_gone_is_not_silent():
    """Nobody sends to VM 1 any more."""
    sent = (1e6, 1e6, 1e3), (10.0, 20.0, 20.0)
    assert silent(*sent, heard_s=HEARD) == [3e6, 0, 0]
    assert silent(*sent, heard_s=HEARD, rows=(0, 2)) is None


@pytest.mark.parametrize('is_known', [True, False])
def test_a_host_that_never_reported_says_of_nobody_that_it_is_silent(
        overstated, is_known):
    """VM 0 moved there, and what it sends is not known."""
    goes_on(overstated, 1.5, h2_bytes=1.5e6)
    goes_on(overstated, 2.0, h2_bytes=2e6)
    assert sending(overstated) is not None
    if is_known:
        overstated.meet({'h9'}, 2.0)
    overstated.load_groups(
        [known.member('g', i, host)
         for i, host in enumerate(('h9', 'h1', 'h2'))],
        [known.stored(flows='[[0,1,4000000],[0,2,4000000],[1,2,1000000]]')])
    assert sending(overstated) is None


def test_a_queue_stays_where_a_vm_is(overstated):
    """Another one moves; one without a host is nowhere."""
    tracked = overstated._groups.coflows['c']
    for host in ('h0', 'h2'):
        tracked.sending.take(host, reports.CoflowCounters(
            'c', 0, backlog_bytes=7))
    tracked.place({row: routes.Member(f'vm{row}', host, host is not None)
                   for row, host in enumerate(('h0', None, 'h3'))})
    assert tracked.sending._queues.keys() == {'h0'}


def test_what_waits_is_told_by_destination():
    pairs = live.Pairs((('h0', 'h1'), ('h0', 'h2'), ('h1', 'h2'),
                        ('h2', 'h0')))
    queues = sending_model.Sending()
    shares = np.array([3.0, 1.0, 5.0, 0.0])
    assert queues.queued_bytes(pairs, shares).tolist() == [0, 0, 0, 0]
    queues.take('h0', reports.CoflowCounters(
        'c', 0, backlog_bytes=100, destinations=(
            reports.DestinationCounter('h2', 0, 100),)))
    # Although more is left for h1.
    assert queues.queued_bytes(pairs, shares).tolist() == [0, 100, 0, 0]
    queues.take('h0', reports.CoflowCounters(
        'c', 0, backlog_bytes=140, destinations=(
            reports.DestinationCounter('h2', 0, 100),)))
    queues.take('h1', reports.CoflowCounters('c', 0, backlog_bytes=7))
    queues.take('h2', reports.CoflowCounters('c', 0, backlog_bytes=9))
    assert queues.queued_bytes(pairs, shares).tolist() == [30, 110, 7, 0]
