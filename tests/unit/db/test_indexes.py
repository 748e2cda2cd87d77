# SPDX-License-Identifier: Apache-2.0

"""What a tenant asks for reads its own events, however many others have."""

import pytest
import sqlalchemy as sa

from virtco.db import records


@pytest.fixture
def session(database):
    with database.reader() as found:
        yield found


@pytest.fixture
def plans(session):
    """How SQLite does what it is asked to."""
    found = []
    connection = session.connection()

    @sa.event.listens_for(connection, 'before_cursor_execute')
    def explain(_connection, cursor, statement, parameters, *_context):
        if statement.startswith('SELECT'):
            cursor.execute(f'EXPLAIN QUERY PLAN {statement}', parameters)
            found.extend(row[-1] for row in cursor.fetchall())
    return found


@pytest.mark.parametrize(('ask', 'index'), [
    (lambda session: records.count_events(session, {'p'}),
     'ix_events_project_group'),
    (lambda session: records.list_events(session, project_id='p'),
     'ix_events_project_id'),
    (lambda session: records.list_events(session, project_id='p',
                                         group_name='g'),
     'ix_events_project_group'),
    (lambda session: records.newest_event(session, 'vm', 'neutral'),
     'ix_events_instance_uuid')])
def test_events_are_found_by_an_index(session, plans, ask, index):
    ask(session)
    assert plans and all(
        plan.startswith('SEARCH events') and index in plan for plan in plans)
