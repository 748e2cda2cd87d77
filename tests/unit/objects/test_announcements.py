# SPDX-License-Identifier: Apache-2.0

"""Coflows announced for VMs that run: their room, names and ends."""

import json

import pytest

from tests.unit import stored
from virtco import exception
from virtco.db import groups as db_groups
from virtco.db import models
from virtco.db import records
from virtco.model import states
from virtco.objects import announcements

MATRIX = [[0, 100, 50], [0, 0, 25], [7, 0, 0]]
DONE = states.CoflowState.DONE


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    monkeypatch.setattr(announcements, 'MAX_COFLOWS', 3)


class Bench:
    """A group 'a' of three rows with one hinted coflow 'c'."""

    def __init__(self):
        self.conf = stored.conf()
        self.database = stored.database()
        stored.add(self.database, stored.group(), stored.coflow('p-a'))
        self.changed = []
        self.now_s = 100.0
        self.announcements = announcements.Announcements(
            self.conf, stored.state(self.database,
                                    invalidate=self.changed.append),
            lambda: self.now_s)

    def events(self):
        with self.database.reader() as session:
            return records.list_events(session)

    def announce(self, name='x', matrix=MATRIX, group='a', expires_s=60.0,
                 project_id='p'):
        return self.announcements.announce(project_id, group, name, matrix,
                                           expires_s)

    def coflows(self):
        with self.database.reader() as session:
            return {one.name: one
                    for one in db_groups.coflows(session, 'p-a')}

    def end(self, name, ended_s, **values):
        with self.database.writer() as session:
            (one,) = session.query(models.Coflow).filter_by(name=name)
            one.state, one.ended_at, one.iteration = DONE, ended_s, 1
            for key, value in values.items():
                setattr(one, key, value)

    def generation(self):
        with self.database.reader() as session:
            return db_groups.generation(session)


@pytest.fixture
def bench():
    return Bench()


@pytest.mark.parametrize('as_text', [False, True])
def test_a_coflow_begins_over_the_vms_of_a_group(bench, as_text):
    (coflow_id,) = bench.announce(
        matrix=json.dumps(MATRIX) if as_text else MATRIX)
    found = bench.coflows()['x']
    assert found.id == coflow_id
    assert json.loads(found.tm) == [[0, 1, 100], [0, 2, 50], [1, 2, 25],
                                    [2, 0, 7]]
    assert (found.position, found.expires_at, found.created_at) == (
        1, 160.0, 100.0)
    assert bench.changed == [['p-a']]
    # Who plans at the same time has to look again.
    assert bench.generation() == 2


def test_bytes_of_a_vm_to_itself_are_told(bench):
    bench.announce()
    assert bench.events() == []
    bench.announce('y', [[1, 1, 0], [0, 2, 0], [0, 0, 0]])
    event, = bench.events()
    assert (event.kind, event.group_name, event.detail) == (
        'self_flows', 'a',
        'bytes of a VM to itself are ignored: VM 0 1 B, VM 1 2 B')


def test_several_stand_behind_those_that_are_there(bench):
    bench.announce(matrix=[{'name': name, 'tm': MATRIX} for name in 'xy'])
    assert {name: one.position for name, one in bench.coflows().items()} == {
        'c': 0, 'x': 1, 'y': 2}
    bench.announce('z')
    assert bench.coflows()['z'].position == 3
    bench = Bench()
    with bench.database.writer() as session:
        session.query(models.Coflow).delete()
    bench.announce()
    assert bench.coflows()['x'].position == 0


def test_who_announces_a_name_again_replaces_it(bench):
    first = bench.announce()
    second = bench.announce(matrix=[[0, 5, 0], [0, 0, 0], [0, 0, 0]])
    assert first != second
    assert json.loads(bench.coflows()['x'].tm) == [[0, 1, 5]]
    assert bench.coflows().keys() == {'c', 'x'}


@pytest.mark.parametrize('name', ['', ' a', 'a\x1b[2J', 'a\nb'])
def test_a_terminal_obeys_no_name(bench, name):
    with pytest.raises(exception.HintInvalid) as caught:
        bench.announce(name)
    assert caught.value.kwargs['field'] == 'name'


def test_the_names_of_the_hint_are_taken(bench):
    with pytest.raises(exception.HintInvalid) as caught:
        bench.announce('c')
    assert caught.value.kwargs['field'] == 'name'
    assert bench.coflows().keys() == {'c'} and bench.changed == []


@pytest.mark.parametrize(('matrix', 'field'), [
    ([[0, 1], [1, 0]], 'tm'), ([[0] * 4] * 4, 'tm'),
    ([{'name': 'x', 'tm': MATRIX, 'iterations': 2}], 'iterations'),
    ([{'name': 'x', 'tm': MATRIX, 'iterations': 0}], 'iterations')])
def test_a_matrix_fits_the_group_and_is_sent_once(bench, matrix, field):
    with pytest.raises(exception.HintInvalid) as caught:
        bench.announce(matrix=matrix)
    assert caught.value.kwargs['field'] == field
    assert bench.coflows().keys() == {'c'}


@pytest.mark.parametrize(('group', 'project_id'), [('b', 'p'), ('a', 'q')])
def test_the_group_lives_and_is_the_projects(bench, group, project_id):
    with pytest.raises(exception.NotFound):
        bench.announce(group=group, project_id=project_id)
    assert bench.announce(project_id=None)


def test_there_is_room_for_so_many(bench):
    """The coflow of the hint takes none of it."""
    for name in ('x', 'y', 'z'):
        bench.announce(name)
    with pytest.raises(exception.QuotaExceeded) as caught:
        bench.announce('w')
    assert (caught.value.kwargs['value'], caught.value.kwargs['limit']) == (
        4, 'at most 3')
    assert bench.coflows().keys() == {'c', 'x', 'y', 'z'}
    bench.announce('y')
    assert bench.coflows().keys() == {'c', 'x', 'y', 'z'}


def test_the_oldest_that_ended_make_room(bench):
    for name in ('x', 'y', 'z'):
        bench.announce(name)
    bench.end('x', 130.0)
    bench.end('z', 120.0)
    # One that may send once more has not ended.
    bench.end('y', 110.0, iterations=0)
    bench.announce('w')
    assert bench.coflows().keys() == {'c', 'w', 'x', 'y'}
    with pytest.raises(exception.QuotaExceeded) as caught:
        bench.announce(matrix=[{'name': name, 'tm': MATRIX}
                               for name in ('u', 'v')])
    # Two that live and two that are new.
    assert caught.value.kwargs['value'] == 4
    assert bench.coflows().keys() == {'c', 'w', 'x', 'y'}


def test_what_ended_stays_while_there_is_room(bench, monkeypatch):
    monkeypatch.setattr(announcements, 'MAX_COFLOWS', 4)
    bench.announce('x')
    bench.end('x', 1.0)
    bench.announce('y')
    assert bench.coflows().keys() == {'c', 'x', 'y'}


def test_the_project_has_its_bounds_too(bench):
    bench.conf.set_override('max_flows_per_project', 7, 'limits')
    bench.announce('x')
    with pytest.raises(exception.HintInvalid):
        bench.announce('y')
    assert bench.coflows().keys() == {'c', 'x'}
    # What is replaced counts no more, and an announcement is no group.
    bench.conf.set_override('max_groups_per_project', 1, 'limits')
    assert bench.announce('x')
