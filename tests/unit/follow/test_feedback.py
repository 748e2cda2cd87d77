# SPDX-License-Identifier: Apache-2.0

"""What tenants read on their servers."""

import pytest
import sqlalchemy as sa

from tests.unit import stored
from tests.unit.db import conftest as db_fixtures
from tests.unit.db import test_db
from virtco import exception
from virtco import hints
from virtco.db import models
from virtco.db import records
from virtco.follow import feedback
from virtco.model import states

database, migrated = db_fixtures.database, db_fixtures.migrated

NOW_S = 10_000.0


class Nova:
    def __init__(self):
        self.metadata = {}
        self.calls = 0
        self.error = None
        self.building = set()

    def set_metadata(self, uuid, values):
        self.calls += 1
        if self.error:
            raise self.error
        if uuid in self.building:
            return False
        self.metadata.setdefault(uuid, {}).update(values)
        return True


@pytest.fixture
def told(database):
    with database.writer() as session:
        session.add(test_db.group('sort'))
        session.flush()
        session.add_all([
            test_db.member('p-sort', 0, instance_uuid='vm-0', host='h0',
                           state=states.MemberState.RUNNING),
            test_db.member('p-sort', 1, instance_uuid='vm-1', host='h1',
                           state=states.MemberState.RESERVED),
            test_db.coflow('p-sort', cct_s=2.0)])
    return feedback.Feedback(database, Nova(), lambda: NOW_S)


def test_there_may_be_more_groups_than_variables_of_a_query(told, database):
    stored.many_groups(database, 40_001)
    assert told.wanted()['vm-0']['virtco.planned_cct_s'] == '2.000'


def test_no_matrix_is_read_to_tell_times(told, database):
    asked = []
    sa.event.listen(database.engine, 'before_cursor_execute',
                    lambda *args: asked.append(args[2]))
    assert told.wanted()
    assert any('coflows.cct_s' in one for one in asked)
    assert not any('coflows.tm' in one for one in asked)


def ignored(database, uuid, why, at=NOW_S, kind='hint_ignored'):
    with database.writer() as session:
        records.add_event(session, project_id='p', group_name='',
                          instance_uuid=uuid, kind=kind, detail=why,
                          created_at=at)


def test_the_group_and_both_ccts(told, database):
    assert told.turn() == 1
    nova = told._nova
    assert nova.metadata == {'vm-0': {
        'virtco.group': 'sort', 'virtco.row': '0',
        'virtco.planned_cct_s': '2.000', 'virtco.why': 'planned CCT 2 s'}}
    assert told.turn() == 0
    with database.writer() as session:
        session.get(models.Coflow, 'c-p-sort').measured_cct_s = 2.5
    assert told.turn() == 1
    assert nova.metadata['vm-0']['virtco.measured_cct_s'] == '2.500'
    assert nova.metadata['vm-0']['virtco.why'] == (
        'planned CCT 2 s; measured CCT 2.5 s')
    assert hints.select(nova.metadata['vm-0']) == {}


def test_a_nova_that_is_away(told, caplog):
    told._nova.error = exception.NovaUnavailable(why='HTTP 503')
    assert (told.turn(), told.turn()) == (0, 0)
    assert caplog.text.count('not told') == 1
    told._nova.error = None
    assert told.turn() == 1
    assert told._nova.metadata


def test_a_server_that_nova_fails_for_keeps_no_other_waiting(told, database):
    ignored(database, 'full', 'why')
    write = told._nova.set_metadata

    def quota(uuid, values):
        if uuid == 'full':
            raise exception.NovaUnavailable(why='HTTP 403')
        return write(uuid, values)

    told._nova.set_metadata = quota
    assert (told.turn(), told.turn(), told.turn()) == (0, 1, 0)
    assert told._nova.metadata.keys() == {'vm-0'}


def test_an_ignored_hint(told, database):
    ignored(database, 'bad', 'virtco:tm[0][1]: apples')
    ignored(database, 'bad', 'virtco:tm[0][1]: pears')
    ignored(database, 'long', 'x' * 242)
    ignored(database, 'fits', 'x' * 241)
    ignored(database, 'old', 'n', NOW_S - feedback.UNPLANNED_S - 1)
    assert told.turn() == 4
    nova = told._nova
    assert nova.metadata['bad'] == {
        'virtco.why': 'hint ignored: virtco:tm[0][1]: pears'}
    assert nova.metadata['long'] == {
        'virtco.why': 'hint ignored: ' + 'x' * 238 + '...'}
    assert nova.metadata['fits'] == {
        'virtco.why': 'hint ignored: ' + 'x' * 241}
    assert 'old' not in nova.metadata
    assert hints.select(nova.metadata['bad']) == {}


def test_a_server_without_a_plan_names_no_part_of_the_operators(told,
                                                                database):
    ignored(database, 'vm', 'earlier')
    ignored(database, 'vm', 'mysql://db-1 is away', kind='neutral')
    told.turn()
    assert told._nova.metadata['vm'] == {
        'virtco.why': 'neutral: placed without a plan; '
                      'the operator sees the reason'}


def test_a_member_is_not_told_of_an_earlier_hint(told, database):
    ignored(database, 'vm-0', 'no')
    told.turn()
    assert told._nova.metadata['vm-0']['virtco.why'] == 'planned CCT 2 s'


def test_a_server_that_is_not_ready_is_told_later(told, database,
                                                  monkeypatch):
    monkeypatch.setattr(feedback, 'MOST_A_TURN', 1)
    nova = told._nova
    nova.building = {'a'}
    ignored(database, 'a', 'no')
    assert told.turn() == 0
    # It keeps the next from nothing.
    assert told.turn() == 1
    assert set(nova.metadata) == {'vm-0'}
    nova.building = set()
    assert told.turn() == 1
    assert nova.metadata['a'] == {'virtco.why': 'hint ignored: no'}
    assert told.turn() == 0
