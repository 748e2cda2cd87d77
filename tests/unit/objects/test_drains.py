# SPDX-License-Identifier: Apache-2.0

"""Drained hosts, projects and the history, over a real database."""

import pytest

from tests.unit import plain
from tests.unit import stored
from tests.unit.state import test_live_state as known
from virtco import exception
from virtco.db import models
from virtco.objects import drains
from virtco.objects import projects
from virtco.state import live_state


class Bench:
    def __init__(self):
        self.database = stored.database()
        self.live = live_state.LiveState()
        self.live.meet({'h0', 'h1'}, 1.0)
        self.live.load_groups(
            [known.member('g', i, f'h{i}') for i in range(2)], [])
        self.n_changes, self.now_s, self.forgiven = 0, 10.0, []
        self.history = plain.Plain(drains.History(
            self.database, lambda: self.now_s))
        self.forgotten = []
        state = stored.state(
            self.database, self.live, invalidate=self.changed,
            forget_hosts=self.forgotten.append,
            forgiven=self.forgiven.append)
        self.drains = plain.Plain(drains.Drains(state, lambda: self.now_s))
        self.projects = plain.Plain(projects.Projects(state))

    def changed(self):
        self.n_changes += 1

    def changes(self):
        return [(row['at'], row['who'], row['what'], row['before'],
                 row['after']) for row in self.history.list()]


@pytest.fixture
def bench():
    return Bench()


NOTHING = {'host': 'h0', 'drain': None, 'drain_reason': None,
           'drain_since': None}


def test_a_host_is_drained_until_it_is_in_use_again(bench):
    assert bench.drains.show('h0') == NOTHING
    bench.drains.drain('h0', 'disk', 'admin')
    assert bench.live.drained == {'h0'} and bench.n_changes == 1
    assert bench.drains.show('h0') == {
        'host': 'h0', 'drain': 'draining', 'drain_reason': 'disk',
        'drain_since': 10.0}
    assert bench.drains.show('h1') == NOTHING | {'host': 'h1'}
    # Its last VM is gone.
    bench.live.load_groups([known.member('g', 1, 'h1')], [])
    assert bench.drains.show('h0')['drain'] == 'drained'
    bench.now_s = 20.0
    bench.drains.undrain('h0', 'other')
    assert bench.live.drained == frozenset() and bench.n_changes == 2
    assert bench.changes() == [
        (20.0, 'other', 'host h0', 'drained: disk', 'in use'),
        (10.0, 'admin', 'host h0', 'in use', 'drained: disk')]


def test_the_same_reason_again_changes_nothing(bench):
    bench.drains.drain('h0', 'disk', 'admin')
    bench.now_s = 20.0
    bench.drains.drain('h0', 'disk', 'admin')
    assert bench.drains.show('h0')['drain_since'] == 10.0
    bench.drains.drain('h0', 'fan', 'admin')
    assert bench.drains.show('h0')['drain_since'] == 20.0
    assert bench.changes() == [
        (20.0, 'admin', 'host h0', 'drained: disk', 'drained: fan'),
        (10.0, 'admin', 'host h0', 'in use', 'drained: disk')]


def test_only_what_is_there_is_drained_or_undrained(bench):
    with pytest.raises(exception.NotFound):
        bench.drains.drain('h9', 'disk', 'admin')
    with pytest.raises(exception.NotFound):
        bench.drains.undrain('h0', 'admin')
    assert bench.changes() == [] and bench.n_changes == 0


def test_only_a_host_without_vms_is_forgotten(bench):
    with pytest.raises(exception.NotFound):
        bench.drains.forget('h9', 'admin')
    with pytest.raises(exception.Conflict, match='Host h0 has 1 VMs of'):
        bench.drains.forget('h0', 'admin')
    assert bench.forgotten == bench.changes() == []
    bench.live.load_groups([known.member('g', 1, 'h1')], [])
    bench.drains.forget('h0', 'admin')
    assert bench.forgotten == [{'h0'}]
    assert bench.changes() == [(10.0, 'admin', 'host h0', 'known',
                                'forgotten')]


def test_drains_survive_a_restart(bench):
    bench.drains.drain('h1', 'disk', 'admin')
    again = live_state.LiveState()
    drains.Drains(stored.state(bench.database, again), lambda: 10.0).load()
    assert again.drained == {'h1'}


def test_the_history_has_the_newest_first(bench):
    for number in range(3):
        bench.now_s = float(number)
        bench.history.add('who', f'what {number}', 'before', 'after')
    assert [row[:3] for row in bench.changes()] == [
        (2.0, 'who', 'what 2'), (1.0, 'who', 'what 1'),
        (0.0, 'who', 'what 0')]
    assert [row['what'] for row in bench.history.list(1)] == ['what 2']


def shown(project_id='p', **values):
    return {'project_id': project_id, 'priority_class': 0, 'weight': 1.0,
            'debt_bytes': 0.0} | values


def test_a_project_has_what_operators_gave_it(bench):
    stored.add(bench.database, stored.group(), stored.coflow('p-a'))
    assert bench.projects.find() == []
    assert bench.projects.show('p') == shown()
    assert bench.projects.change('p', {'weight': 2.5}) == shown(weight=2.5)
    assert bench.projects.change('p', {'priority_class': 3}) == shown(
        weight=2.5, priority_class=3)
    assert bench.projects.find() == [shown(weight=2.5, priority_class=3)]
    assert bench.n_changes == 2
    # Its coflows in flight have it, too.
    with bench.database.reader() as session:
        (coflow,) = session.query(models.Coflow)
        assert (coflow.weight, coflow.priority_class) == (2.5, 3)


def test_a_debt_is_forgiven_and_others_told(bench):
    bench.live.load_debts({'p': 85.0, 'q': 25.0})
    assert bench.projects.show('p')['debt_bytes'] == 85.0
    assert bench.projects.show('q')['debt_bytes'] == 25.0
    assert bench.projects.change('p', {'weight': 2.0})['debt_bytes'] == 85.0
    assert bench.forgiven == []
    assert bench.projects.change('p', {'debt_bytes': 0.0}) == shown(
        weight=2.0)
    assert bench.forgiven == ['p']
    assert bench.live.debts() == {'q': 25.0}


def test_no_debt_is_forgiven_where_the_answer_is_an_error(bench, monkeypatch):
    bench.live.load_debts({'p': 85.0})

    def fail(_work):
        raise exception.DatabaseUnavailable(why='away')

    monkeypatch.setattr(bench.database, 'retried', fail)
    with pytest.raises(exception.DatabaseUnavailable):
        bench.projects.change('p', {'debt_bytes': 0})
    assert bench.live.debts() == {'p': 85.0} and bench.forgiven == []
