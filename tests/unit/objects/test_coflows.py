# SPDX-License-Identifier: Apache-2.0

"""Coflows as the API shows and changes them, over a real database."""

import itertools
import json
import types

import numpy as np
import pytest
import sqlalchemy as sa

from tests.unit import plain
from tests.unit import stored
from tests.unit.state import test_live_state as known
from virtco import exception
from virtco import periodic
from virtco.db import models
from virtco.model import live
from virtco.model import states
from virtco.objects import coflows
from virtco.state import live_state
from virtco.wire import coflow_bodies as wire

STATE = states.CoflowState
SCHEDULE = live.Schedule(5.0, (live.CoflowSchedule(
    'c-p-a', 3, 1.0, 9.0, live.FlowRates(
        live.Pairs([('h0', 'h1'), ('h0', 'h2')]), np.array([2.0, 3.0]))),))


class Bench:
    """A group of three VMs, its coflow, and the counters of them."""

    def __init__(self, **values):
        self.conf = stored.conf(limits={'max_registered_per_project': 2})
        self.database = stored.database()
        stored.add(
            self.database, stored.group(
                cct_s=4.0, lower_bound_s=2.0, gap=0.5, why='planned so',
                bottleneck='h0 egress'),
            stored.coflow('p-a', **{'cct_s': 4.5, 'arrival': 1.5,
                                    'why': 'as told'} | values),
            *(stored.member('p-a', row, f'h{row}',
                            planned_host=f'h{min(row, 1)}')
              for row in range(3)))
        self.live = live_state.LiveState()
        self.changed, self.now_s = [], 50.0
        self.coflows = plain.Plain(coflows.Coflows(
            self.conf, stored.state(self.database, self.live,
                                    invalidate=self.changed.append),
            lambda: self.now_s))

    def count(self, sent_bytes, **values):
        self.live.load_groups(
            [known.member('p-a', i, f'h{i}') for i in range(3)],
            [known.stored('c-p-a', 'p-a', **values)])
        self.live.intake('h0', known.report(0, coflow_id='c-p-a'), 10.0)
        self.live.intake('h0', known.report(sent_bytes, coflow_id='c-p-a'),
                         12.0)

    def show(self, schedule=coflows.NO_SCHEDULE, coflow_id='c-p-a'):
        return self.coflows.show(coflow_id, schedule)

    def row(self, coflow_id='c-p-a'):
        with self.database.reader() as session:
            return session.get(models.Coflow, coflow_id)


@pytest.fixture
def bench():
    return Bench()


def some(found, **expected):
    assert {key: found[key] for key in expected} == expected


def test_what_the_database_says_is_shown(bench):
    some(bench.show(), id='c-p-a', name='c', group='p-a', group_name='a',
         project_id='p', state='active', n_vms=3, n_flows=3,
         size_bytes=175.0, sent_bytes=0.0, remaining_bytes=175.0,
         iteration=1, iterations=1, priority_class=0, weight=1.0,
         in_debt=False, rank=None, rate_bps=0.0, cct_s=4.5,
         measured_cct_s=None, measured_cct_error_s=None, first_byte=None,
         last_byte=None, lower_bound_s=2.0, gap=0.5, arrival=1.5,
         bound_scope='any placement under these constraints',
         ended=None, expires=None, predicted_end=None,
         why='planned CCT 4.5 s; as told', plan_notes='planned so',
         hosts=['h0', 'h1', 'h2'],
         n_elsewhere=1, warnings=0, measured_period_s=None,
         counted_compute_s=None, planned_bottleneck={
             'level': 'host', 'port': 'h0', 'direction': 'egress'})
    members = bench.show()['members']
    assert members[2] == {
        'row': 2, 'instance_uuid': 'p-a-2', 'display_name': 'vm2',
        'state': 'running', 'host': 'h2', 'planned_host': 'h1',
        'expires_at': None}
    assert len(members) == 3 and bench.show()['events'] == []


def test_the_counters_know_it_first(bench):
    bench.count(60, arrival=8.0)
    some(bench.show(SCHEDULE), sent_bytes=pytest.approx(60.0),
         remaining_bytes=pytest.approx(115.0), rank=3, rate_bps=5.0,
         predicted_end=9.0, arrival=8.0, first_byte=11.0, last_byte=11.0,
         measured_cct_s=None, iteration=1)
    # More than was hinted leaves nothing to send.
    some(Bench(sent_bytes=200.0).show(), sent_bytes=200.0,
         remaining_bytes=0.0)


def test_what_is_over_has_its_times_and_no_rank(bench):
    bench.count(150)
    bench.live.intake('h1', known.report(25, coflow_id='c-p-a'), 13.0)
    bench.live.advance(14.0)
    some(bench.show(SCHEDULE), state='done', ended=14.0, rank=None,
         rate_bps=0.0, predicted_end=None, remaining_bytes=0.0,
         measured_cct_s=pytest.approx(2.0),
         measured_cct_error_s=pytest.approx(1.0))


@pytest.mark.parametrize('state', [STATE.DONE, STATE.RETIRED])
def test_an_end_in_the_database_is_an_end(state):
    """Who declared it, or deleted the VMs, told the database first."""
    bench = Bench(state=state, ended_at=40.0, sent_bytes=9.0,
                  measured_cct_s=3.0, measured_cct_error_s=0.5,
                  first_byte_at=30.0, last_byte_at=33.0)
    bench.count(60)
    some(bench.show(SCHEDULE), state=state, ended=40.0, rank=None,
         measured_cct_s=3.0, measured_cct_error_s=0.5, first_byte=30.0,
         last_byte=33.0, remaining_bytes=0.0, iteration=1)
    some(Bench(state=state, ended_at=40.0).show(), ended=40.0,
         remaining_bytes=0.0)


def test_debts_and_warnings_are_shown(bench):
    bench.live.load_debts({'p': 5.0})
    with bench.database.writer() as session:
        for number, name in enumerate(('a', 'a', 'b')):
            session.add(models.Event(
                project_id='p', group_name=name, group_id=None,
                instance_uuid='', kind=f'k{number}', detail='d',
                created_at=float(number)))
    found = bench.show()
    some(found, in_debt=True, warnings=2)
    assert [event['kind'] for event in found['events']] == ['k1', 'k0']
    assert found['events'][0] == {
        'at': 1.0, 'kind': 'k1', 'project_id': 'p', 'group_name': 'a',
        'group': None, 'instance_uuid': '', 'detail': 'd'}
    assert len(bench.coflows.events('p')) == 3
    assert bench.coflows.events('q') == []


def test_the_newest_twenty_events_are_shown(bench):
    stored.add(bench.database, *(models.Event(
        project_id='p', group_name='a', group_id=None, instance_uuid='',
        kind='k', detail='d', created_at=float(number))
        for number in range(25)))
    assert [event['at'] for event in bench.show()['events']] == list(
        range(24, 4, -1))


def test_coflows_are_found_by_project_and_state(bench):
    stored.add(bench.database, stored.coflow(
        None, id='d', project_id='q', state=STATE.REGISTERED,
        created_at=2.0))
    bench.count(60)

    def found(**values):
        return [one['id'] for one in bench.coflows.find(SCHEDULE, **values)]

    assert found() == ['c-p-a', 'd']
    assert found(project_id='q') == ['d']
    assert found(state='active') == ['c-p-a'] and found(state='done') == []
    assert found(limit=1) == ['d']
    assert found(limit=1, marker='d') == ['c-p-a']
    assert found(limit=1, marker='c-p-a') == []
    # States are known after the rows: later pages are looked through.
    assert found(limit=1, state='active') == ['c-p-a']
    for project_id, marker in (('p', 'd'), (None, 'none')):
        with pytest.raises(exception.NotFound, match=marker):
            found(project_id=project_id, marker=marker)
    shown = bench.coflows.find(SCHEDULE)
    some(shown[0], rank=3, sent_bytes=pytest.approx(60.0),
         hosts=['h0', 'h1', 'h2'])
    some(shown[1], rank=None, group_name=None, hosts=[], n_elsewhere=0,
         warnings=0, planned_bottleneck=None, lower_bound_s=None, gap=None,
         bound_scope=None, why='no planned CCT', plan_notes='')


def test_a_search_for_one_of_a_state_asks_seldom(bench, monkeypatch):
    stored.add(bench.database, *(
        stored.coflow('p-a', id=f'c{i}', position=i, state=STATE.DONE)
        for i in range(39)))
    monkeypatch.setattr(coflows, 'MOST_ROWS', 20)
    asked = []
    real = coflows.records.list_coflows
    monkeypatch.setattr(coflows.records, 'list_coflows', lambda *args, **given:
                        asked.append(given['limit']) or real(*args, **given))
    found = bench.coflows.find(SCHEDULE, state='planned', limit=1)
    assert (found, asked) == ([], [1, 4, 16, 20])
    found = bench.coflows.find(SCHEDULE, state='done', limit=1)
    assert [one['id'] for one in found] == ['c38'] and asked[4:] == [1]


def test_a_list_gives_way_to_placements(bench, monkeypatch):
    stored.add(bench.database, *(
        stored.coflow('p-a', id=f'c{i}', position=i) for i in range(4)))
    monkeypatch.setattr(coflows, 'AT_ONCE', 2)
    monkeypatch.setattr(coflows, 'AHEAD_S', 60.0)
    asked, placing = [], [False, True, False, False]
    bench.coflows._of.is_answering = lambda within_s: (
        asked.append(within_s), placing.pop(0))[1]
    assert [one['id'] for one in bench.coflows.find(SCHEDULE)] == [
        'c-p-a', 'c0', 'c1', 'c2', 'c3']
    # Before each of three parts, of which the second one waits.
    assert asked == [*[coflows.TAKES_S] * 3, coflows.TAKES_S / 2]


def test_a_short_list_waits_for_placements_in_proportion(bench, monkeypatch):
    bench.coflows._of.is_answering = lambda within_s: True
    slept = []
    now_s = itertools.count(0.0, 0.004)
    monkeypatch.setattr(periodic, 'time', types.SimpleNamespace(
        monotonic=lambda: next(now_s), sleep=slept.append))
    for n_rows, n_waits in ((1, 0), (50, 7)):
        slept.clear()
        stored.add(bench.database, *(
            stored.coflow('p-a', id=f'c{i}', position=i)
            for i in range(n_rows - 1)))
        assert len(bench.coflows.find(SCHEDULE)) == n_rows
        assert len(slept) == n_waits


@pytest.mark.parametrize(('text', 'expected'), [
    ('cap of vm-3, 2 Gbit/s out', ('vm', 'cap of vm-3, 2 Gbit/s', 'egress')),
    ('cap of vm-3, 2 Gbit/s in', ('vm', 'cap of vm-3, 2 Gbit/s', 'ingress')),
    (None, None), ('', None), ('h0 ingress', ('host', 'h0', 'ingress')),
    ('rack 1 up', ('rack', 'rack 1', 'up')),
    ('r down', ('rack', 'r', 'down')),
    ('h0->h1', ('pair', 'h0->h1', 'egress')), ('nothing', None)])
def test_a_bottleneck_is_taken_apart(text, expected):
    assert coflows._bottleneck(text) == (
        None if expected is None else wire.PlannedPort(**dict(
            zip(('level', 'port', 'direction'), expected))))


MATRIX = [[0, 5, 7], [0, 0, 0], [9, 0, 0]]


@pytest.mark.parametrize('as_text', [False, True])
def test_a_matrix_is_registered(bench, as_text):
    found = bench.coflows.register(
        'p', 'x', json.dumps(MATRIX) if as_text else MATRIX)
    some(found, name='x', state='registered', n_vms=3, n_flows=3,
         size_bytes=21.0, iterations=1, iteration=0, project_id='p',
         group=None, group_name=None, members=[], events=[], period_s=None,
         compute_s=None, rank_hint=False, order=None)
    row = bench.row(found['id'])
    assert (row.created_at, row.position, row.weight, row.priority_class,
            row.sent_bytes) == (50.0, 0, 1.0, 0, 0.0)
    assert json.loads(row.tm) == {'n': 3, 'flows': [
        [0, 1, 5], [0, 2, 7], [2, 0, 9]]}
    assert bench.coflows.project_of(found['id']) == 'p'


def test_the_only_matrix_tells_how_it_is_sent(bench):
    one = {'name': 'x', 'tm': MATRIX, 'iterations': 4, 'period': '3s',
           'compute': '1s', 'order': 'mrtf', 'rank_hint': True}
    some(bench.coflows.register('p', 'x', [one]), iterations=4,
         period_s=3.0, compute_s=1.0, order='mrtf', rank_hint=True)
    some(bench.coflows.register('p', 'x', [one, {'name': 'y', 'tm': MATRIX}]
                                ), iterations=1, period_s=None,
         compute_s=None, order=None, rank_hint=True, n_flows=6,
         size_bytes=42.0)


def test_bytes_of_a_vm_to_itself_are_told(bench):
    bench.coflows.register('p', 'x', MATRIX)
    assert bench.coflows.events() == []
    bench.coflows.register('p', 'x', [[7, 1], [0, 0]])
    event, = bench.coflows.events()
    some(event, kind='self_flows', project_id='p', group_name='x', at=50.0,
         detail='bytes of a VM to itself are ignored: VM 0 7 B')


@pytest.mark.parametrize('name', ['', 'a ', 'a\x9b2J', 'a\nb'])
def test_a_terminal_obeys_no_name(bench, name):
    with pytest.raises(exception.HintInvalid) as caught:
        bench.coflows.register('p', name, MATRIX)
    assert caught.value.kwargs['field'] == 'name'


def test_a_project_registers_so_many(bench):
    for _ in range(2):
        bench.coflows.register('p', 'x', MATRIX)
    with pytest.raises(exception.QuotaExceeded) as caught:
        bench.coflows.register('p', 'x', MATRIX)
    assert caught.value.kwargs['value'] == 3
    assert bench.coflows.register('q', 'x', MATRIX)


def test_no_matrix_is_read_to_show_a_coflow(bench):
    asked = []
    sa.event.listen(bench.database.engine, 'before_cursor_execute',
                    lambda *args: asked.append(args[2]))
    assert bench.show()
    assert bench.coflows.project_of('c-p-a') == 'p'
    assert not any('coflows.tm' in one for one in asked)


def test_a_project_registers_so_many_flows(bench, monkeypatch):
    monkeypatch.setattr(coflows, 'MOST_REGISTERED_FLOWS', 5)
    bench.coflows.register('p', 'x', MATRIX)
    with pytest.raises(exception.QuotaExceeded) as caught:
        bench.coflows.register('p', 'x', MATRIX)
    assert caught.value.kwargs == {
        'field': 'flows of registered matrices', 'value': 6,
        'limit': 'at most 5 per project'}
    bench.coflows.register('p', 'x', [[0, 1], [1, 0]])


def test_class_and_weight_are_set(bench):
    bench.coflows.change('c-p-a', {'weight': 2.0})
    assert (bench.row().weight, bench.row().priority_class) == (2.0, 0)
    bench.coflows.change('c-p-a', {'priority_class': 4})
    assert (bench.row().weight, bench.row().priority_class) == (2.0, 4)
    assert bench.row().state == 'active' and bench.changed == [['p-a']] * 2


def test_an_end_is_declared(bench):
    bench.count(60, iterations=0, iteration=7)
    bench.coflows.change('c-p-a', {'state': 'done'})
    row = bench.row()
    assert (row.state, row.ended_at, row.why, row.iteration,
            row.iterations) == ('done', 50.0, 'declared done', 7, 7)
    assert (row.first_byte_at, row.last_byte_at) == (11.0, 11.0)
    assert bench.live.status('c-p-a').state == 'done'
    assert bench.changed == [['p-a']]
    # Once is enough.
    bench.now_s = 99.0
    bench.coflows.change('c-p-a', {'state': 'done'})
    assert bench.row().ended_at == 50.0


@pytest.mark.parametrize(('values', 'iteration'), [
    ({'iteration': 0}, 1), ({'iteration': 5, 'iterations': 9}, 5)])
def test_an_end_without_counters_is_of_the_stored_iteration(values,
                                                            iteration):
    bench = Bench(**values)
    bench.coflows.change('c-p-a', {'state': 'done'})
    assert (bench.row().iteration, bench.row().iterations) == (
        iteration, iteration)
    assert bench.row().first_byte_at is None


def test_what_is_only_registered_or_retired_is_not_declared_done():
    bench = Bench(state=STATE.REGISTERED)
    with pytest.raises(exception.Invalid):
        bench.coflows.change('c-p-a', {'state': 'done'})
    assert bench.row().state == STATE.REGISTERED
    bench = Bench(state=STATE.RETIRED)
    bench.coflows.change('c-p-a', {'state': 'done'})
    assert bench.row().state == STATE.RETIRED and bench.row().why == 'as told'


def test_a_coflow_is_given_up(bench):
    bench.count(60)
    bench.coflows.delete('c-p-a')
    assert bench.row() is None and bench.live.status('c-p-a') is None
    assert bench.changed == [['p-a']]
    for action in (bench.coflows.delete, bench.coflows.project_of,
                   lambda one: bench.coflows.change(one, {}),
                   lambda one: bench.coflows.show(one, SCHEDULE)):
        with pytest.raises(exception.NotFound):
            action('c-p-a')
    assert bench.changed == [['p-a']]


def test_a_registered_matrix_has_no_group_to_be_read_again(bench):
    found = bench.coflows.register('p', 'x', MATRIX)['id']
    bench.coflows.change(found, {'weight': 2.0})
    bench.coflows.delete(found)
    assert not bench.changed and bench.row(found) is None


@pytest.mark.parametrize('values, promise', [
    ({}, None), ({'deadline_at': 60.0}, 'no'),
    ({'deadline_at': 60.0, 'is_promised': True}, 'yes'),
    ({'deadline_at': 50.0, 'is_promised': True}, 'yes'),
    ({'deadline_at': 49.0, 'is_promised': True}, 'missed'),
    ({'deadline_at': 40.0, 'is_promised': True, 'ended_at': 40.0}, 'kept'),
    ({'deadline_at': 40.0, 'is_promised': True, 'ended_at': 41.0}, 'missed'),
    ({'deadline_at': 60.0, 'is_promised': False, 'ended_at': 41.0}, 'no')])
def test_what_became_of_a_deadline(values, promise):
    state = STATE.DONE if 'ended_at' in values else STATE.ACTIVE
    some(Bench(state=state, **values).show(), promise=promise,
         deadline=values.get('deadline_at'))
