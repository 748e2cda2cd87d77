# SPDX-License-Identifier: Apache-2.0

"""The ledger of bytes: each is credited once, whoever reports it when."""

import itertools
import types

from hypothesis import given
from hypothesis import strategies as st
import msgspec
import pytest

from tests.unit import made
from tests.unit.state import test_live_state as known
from virtco.state import host_state
from virtco.state import live_state
from virtco.state import progress
from virtco.state import schedule_input

SIZES = '[[0,1,1000],[0,2,1000],[1,2,1000]]'
GIVE_UP_S = schedule_input.Rules().ending.give_up_s


def place(state, hosts, sent='[]', anew=False):
    state.load_groups(
        [known.member('g', row, host) for row, host in enumerate(hosts)],
        [known.stored(flows=SIZES, progress=sent)], {'g'}, anew)


def lives(hosts=('h0', 'h1', 'h2')):
    state = live_state.LiveState()
    place(state, hosts)
    return state


def credited(state):
    return state.status('c').sent_bytes


def test_what_the_old_host_reports_after_a_migration_is_credited():
    state = lives()
    state.intake('h0', known.report(destinations={'h1': 400}), 1.0)
    place(state, ('h3', 'h1', 'h2'))
    state.intake('h3', known.report(destinations={'h1': 100}), 2.0)
    late = known.report(destinations={'h1': 900})
    for at_s in (2.5, 2.6):
        state.intake('h0', late, at_s)
        assert credited(state) == 1000
    assert state.take_unsaved().findings == ()


@pytest.mark.parametrize(('now', 'told', 'expected'), [
    (('h3', 'h1', 'h2'), {'h1': 900}, [900, 0, 0]),
    (('h3', 'h1', 'h2'), {'h1': 400, 'h2': 50}, [400, 25, 25]),
    # The receiver moved, and both.
    (('h0', 'h9', 'h2'), {'h1': 900}, [587.5, 312.5, 0]),
    (('h3', 'h9', 'h2'), {'h1': 430}, [406.9, 11.5, 11.5]),
    (('h0', 'h1', 'h2'), {'h1': 1900}, [1000, 0, 0])])
def test_late_bytes_are_credited_after_a_takeover_too(now, told, expected):
    """Where a VM was before is not known any more, but that it was there."""
    state = lives()
    state.intake('h0', known.report(destinations={'h1': 400}), 1.0)
    place(state, now)
    unsaved = state.take_unsaved()
    later = live_state.LiveState()
    place(later, now, unsaved.coflows[0]['progress'], True)
    later.load_hosts([types.SimpleNamespace(**host_state.encoded(row))
                      for row in unsaved.hosts])
    for at_s in (2.0, 2.1):
        later.intake('h0', known.report(destinations=told), at_s)
        assert known.sent(later) == pytest.approx(expected, abs=1)
        assert credited(later) == pytest.approx(min(1000, sum(told.values())))
    assert later.take_unsaved().findings == ()


@pytest.mark.parametrize('is_dead', [True, False])
def test_bytes_that_a_dead_host_had_not_reported_are_told(is_dead):
    state = lives()
    state.intake('h0', known.report(destinations={'h1': 400}), 1.0)
    place(state, ('h3', 'h1', 'h2'))
    if not is_dead:
        state.intake('h0', known.report(destinations={'h1': 500}), 2.0)
    for now_s in (progress.MISSING_S, progress.MISSING_S + 1,
                  progress.MISSING_S + 2):
        state.advance(now_s)
    found = state.take_unsaved().findings
    assert [(one.kind, one.key[0], one.coflow_id) for one in found] == [
        ('report_missing', 'h0', 'c')] * is_dead
    if is_dead:
        assert found[0].detail == (
            'h0 reported nothing since a VM of coflow c left it: bytes that '
            'the VM sent in the last 30 s there are not counted')
    assert credited(state) == (400 if is_dead else 500)


def test_a_host_that_was_forgotten_says_nothing_anew_when_it_is_back():
    """It counted before what it reports now, as nobody remembers; a VM may
    come back, too.
    """
    state = lives()
    state.intake('h0', known.report(destinations={'h1': 400}), 1.0)
    place(state, ('h3', 'h1', 'h2'))
    state.forget_hosts({'h0', 'h1'})
    state.intake('h0', known.report(destinations={'h1': 500}), 2.0)
    assert credited(state) == 400
    assert [(one.kind, one.key[0]) for one in
            state.take_unsaved().findings] == [('report_refused', 'h0')]
    # It is known who has a VM.
    state.intake('h1', known.report(destinations={'h2': 30}), 2.5)
    assert credited(state) == 430
    place(state, ('h0', 'h1', 'h2'))
    state.intake('h0', known.report(destinations={'h1': 100}, epoch='new'),
                 3.0)
    assert credited(state) == 530


def test_who_left_before_it_sent_is_not_missed():
    state = lives()
    state.intake('h0', known.report(0), 1.0)
    place(state, ('h3', 'h1', 'h2'))
    state.advance(progress.MISSING_S + 1)
    assert state.take_unsaved().findings == ()


@given(st.lists(st.tuples(
    st.integers(0, 2), st.integers(1, 2), st.integers(1, 90),
    st.integers(0, 4), st.booleans(), st.booleans()), max_size=25))
def test_credited_is_what_was_sent(steps):
    """Row, destination, bytes, and what comes in between: a VM moves, an
    edge begins anew, a report is lost, doubled or comes once more after
    later ones, another process leads, perhaps before all was written.
    """
    hosts = ['h0', 'h1', 'h2']
    state, sent, totals, epochs, now_s = lives(hosts), 0, {}, {}, 1.0
    names = itertools.count(5)
    reported, saved, counted = [], {}, '[]'

    def write():
        nonlocal counted
        unsaved = state.take_unsaved()
        for row in unsaved.coflows:
            counted = row['progress']
        saved.update((row['host'], host_state.encoded(row))
                     for row in unsaved.hosts)

    def report(host, twice=True):
        found = msgspec.structs.replace(known.report(
            destinations=dict(totals.get(host, {})),
            epoch=str(epochs.get(host, 0))), boot_id='boot',
            boot_ms=len(reported))
        reported.append((host, found))
        for at_s in (now_s, now_s + 0.1)[:1 + twice]:
            state.intake(host, found, at_s)

    def begin(rows):
        """A class is reported before it sends."""
        place(state, hosts)
        for row in rows:
            report(hosts[row])
        write()

    begin(range(3))
    for row, target, size, event, is_late, twice in steps:
        now_s += 0.5
        target = max(target, row + 1)
        if target < 3 and sent + size < 1000:
            host, way = hosts[row], hosts[target]
            of_host = totals.setdefault(host, {})
            of_host[way] = of_host.get(way, 0) + size
            sent += size
            if not is_late:
                report(host, twice)
        if event == 1:
            hosts[row] = f'h{next(names)}'
            begin([row])
        elif event == 2:
            report(hosts[row])
            totals[hosts[row]] = {}
            epochs[hosts[row]] = epochs.get(hosts[row], 0) + 1
            write()
        elif event == 3:
            if twice:
                write()
            state = live_state.LiveState()
            place(state, hosts, counted, True)
            state.load_hosts([types.SimpleNamespace(**columns)
                              for columns in saved.values()])
        elif event == 4:
            for host, late in reported:
                state.intake(host, late, now_s + 0.2)
    now_s += 1
    for host in totals:
        report(host)
    assert credited(state) == pytest.approx(sent, rel=1e-6, abs=1)


def test_what_a_host_cannot_know_is_refused_and_named():
    state = lives()
    for sent in (10 ** 12, 2 * 10 ** 12):
        state.intake('h9', known.report(sent, backlog=5), 1.0)
    assert credited(state) == 0 and state.debts() == {}
    unsaved = state.take_unsaved()
    (refused,) = unsaved.findings
    assert (refused.kind, refused.key[0], refused.coflow_id) == (
        'report_refused', 'h9', 'c')
    assert 'bytes of coflow c' in refused.detail
    state.saved(unsaved)
    assert state.take_unsaved().findings == ()
    # Its queue keeps nothing alive.
    state.intake('h0', known.report(destinations={'h1': 1000, 'h2': 1000}),
                 2.0)
    state.intake('h1', known.report(1000), 2.0)
    (ended,) = state.advance(3.0)
    assert ended.state == 'done'
    (row,) = state.take_unsaved().coflows
    assert row['why'] == 'ended: all bytes sent'


@pytest.mark.parametrize(('sent', 'backlog', 'is_told'), [
    (5, 0, True), (0, 5, True), (0, 0, False)])
def test_a_refusal_names_what_was_reported(sent, backlog, is_told):
    state = lives()
    for now_s in (1.0, 2.0):
        state.intake('h9', known.report(sent, backlog=backlog), now_s)
        unsaved = state.take_unsaved()
        state.saved(unsaved)
        # Each is told once.
        assert len(unsaved.findings) == (is_told and now_s == 1.0)


def test_so_many_findings_are_told(monkeypatch):
    monkeypatch.setattr(progress, 'MOST_TOLD', 2)
    state = lives()
    for host in ('h7', 'h8', 'h9'):
        state.intake(host, known.report(5), 1.0)
    assert [one.key[0] for one in state.take_unsaved().findings] == [
        'h7', 'h8']


def test_a_port_of_a_vm_that_is_reserved_elsewhere_moves_nothing():
    state = live_state.LiveState()
    state.load_groups(
        [known.member('g', 0, 'h0', known.states.MemberState.RESERVED)],
        [known.stored()])
    for host, found in (('h9', {}), ('h0', {'g-0': True})):
        state.intake(host, made.report(ports=[{'vm': 'g-0'}]), 1.0)
        assert state.waiting(host) == found
    (refused,) = state.take_unsaved().findings
    assert refused.detail == (
        'h9 reports a port of VM g-0, which is reserved on h0: refused')


@pytest.mark.parametrize('sent', [0, 500])
def test_a_coflow_always_ends(sent):
    """Bytes were lost, or never came; VMs wait in vain."""
    state = lives(('h0', 'h1', None))
    state.intake('h0', known.report(destinations={'h1': sent}, backlog=7),
                 1.0)
    assert state.advance(1.0) == state.advance(GIVE_UP_S) == []
    (ended,) = state.advance(GIVE_UP_S + 1)
    assert ended.state == 'done'
    (row,) = state.take_unsaved().coflows
    assert row['why'].startswith('ended: given up: hardly a byte for 3600 s')


@pytest.mark.parametrize(('sent', 'step_s'), [
    (500, 10.0), (1020, 0.5), (None, 1.0)])
def test_a_coflow_ends_although_its_vms_keep_their_connections(sent, step_s):
    """Hints that are too large or too small, and none."""
    state = live_state.LiveState()
    state.load_groups(
        [known.member('g', row, host)
         for row, host in enumerate(('h0', 'h1'))],
        [known.stored(flows=f'[[0,1,{10 ** 9}]]',
                      is_estimated=sent is None)], {'g'})
    sent_bytes, now_s, ended_s = (sent or 900) * 10 ** 6, 0.0, None
    while ended_s is None and now_s < 3 * GIVE_UP_S:
        now_s += step_s
        sent_bytes += 66
        state.intake('h0', known.report(destinations={'h1': sent_bytes}),
                     now_s)
        if state.advance(now_s) and state.status('c').state == 'done':
            ended_s = now_s
    assert GIVE_UP_S <= ended_s < 2 * GIVE_UP_S + 2 * step_s
    (row,) = state.take_unsaved().coflows
    assert row['why'].startswith('ended: given up: ')


def test_a_coflow_that_gets_on_slowly_goes_on():
    state = live_state.LiveState()
    state.load_groups(
        [known.member('g', row, host)
         for row, host in enumerate(('h0', 'h1'))],
        [known.stored(flows=f'[[0,1,{10 ** 9}]]')], {'g'})
    for hour in range(1, 20):
        state.intake('h0', known.report(destinations={
            'h1': 1.01e6 * hour}), (GIVE_UP_S - 1) * hour)
        state.advance((GIVE_UP_S - 1) * hour)
    assert state.status('c').state == 'active'


def test_who_begins_waits_for_a_byte_from_then_on():
    """The machine's clock may have been set since the coflow arrived."""
    state, began_s = lives(('h0', 'h1', None)), 9 * GIVE_UP_S
    assert state.advance(began_s) == []
    assert state.advance(began_s + GIVE_UP_S - 1) == []
    assert len(state.advance(began_s + GIVE_UP_S)) == 1


def test_a_queue_of_a_host_that_all_vms_left_is_forgotten():
    state = lives()
    state.intake('h0', known.report(
        destinations={'h1': 1000, 'h2': 1000}, backlog=9), 1.0)
    state.intake('h1', known.report(1000), 1.0)
    assert state.advance(2.0) == []
    place(state, ('h3', 'h1', 'h2'))
    assert [one.state for one in state.advance(3.0)] == ['done']
