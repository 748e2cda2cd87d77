# SPDX-License-Identifier: Apache-2.0

"""What a tenant asks for reads its own rows, however many others have."""

import pytest
import sqlalchemy as sa

from benchmarks import queries
from tests import plans
from virtco.db import members

#: They read an index in its order and stop at their limit.
LIMITED = {'operator: coflow list', 'operator: coflow list --marker',
           'operator: event list', 'operator: profile list',
           'operator: app list'}
#: It counts all, by an index alone.
COUNTING = {'metrics: coflows'}


def test_no_question_scans_a_table_that_tenants_fill(database):
    queries.fill(database, 2000)
    found = {name: plans.scans(database, ask)
             for name, ask in queries.QUESTIONS.items()}
    assert {name: scans for name, scans in found.items() if scans
            and name not in LIMITED | COUNTING} == {}
    assert any('ix_coflows_age' in scan and 'sorted' not in scan
               for scan in found['operator: coflow list'])


@pytest.mark.parametrize('name', ['event list', 'profile list', 'app list'])
def test_a_scan_is_found(database, name):
    """The check itself: without its index a question scans."""
    if not database.is_sqlite:
        pytest.skip('the same check')
    with database.engine.begin() as connection:
        for index in ('ix_events_project_age', 'ix_events_project_group',
                      'ix_profile_hours_project_id'):
            connection.execute(sa.text(f'DROP INDEX {index}'))
    assert plans.scans(database, queries.QUESTIONS[name])


@pytest.mark.parametrize('index', [None, 1])
def test_a_sibling_reads_the_vacant_rows_of_its_group_alone(database, index):
    """SQLite may search an index by what most rows have in common."""
    asked = []

    def note(_connection, _cursor, statement, parameters, *_context):
        asked.append((statement, parameters))

    with database.reader() as session:
        sa.event.listen(database.engine, 'before_cursor_execute', note)
        members.next_planned(session.connection(), 'p', 'g', 'u', index, 0)
        sa.event.remove(database.engine, 'before_cursor_execute', note)
        rows = session.connection().exec_driver_sql(
            'EXPLAIN QUERY PLAN ' + asked[-1][0], asked[-1][1])
        (found,) = [row[-1] for row in rows
                    if row[-1].startswith('SEARCH members ')]
    assert 'group_id=?' in found
