# SPDX-License-Identifier: Apache-2.0

"""The database layer and a controller on MariaDB and PostgreSQL.

The same tests as on SQLite, which run in their own files.
"""

import contextlib
import sys
import time

import pytest
import sqlalchemy as sa

from tests import databases as real_databases
from tests import forks
from tests import patience
from tests.functional.controller import harness
from tests.functional.controller import test_placements as placements
from tests.unit.db import test_db
from virtco import exception
from virtco.db import bounds
from virtco.db import leader
from virtco.db import migration
from virtco.db import models
from virtco.db import session as db_session

KINDS = tuple(real_databases.SERVERS)

# Found by pytest as tests of this module, with this module's fixtures.
for module, names in (
        (test_db, (
            'the_migrations_make_what_the_models_say',
            'upgrading_twice_changes_nothing',
            'a_schema_of_another_version_is_refused',
            'the_generation_stands_or_it_is_a_conflict',
            'a_name_is_unique_among_the_living',
            'retiring_ends_coflows_and_frees_rows',
            'members_are_found_by_their_host',
            'usage_counts_the_living_of_a_project',
            'events_are_bounded_per_project',
            'purging_keeps_what_lives',
            'conflicts_are_tried_again',
            'what_was_read_stays_readable',
            'what_may_send_once_more_is_live')),
        (placements, (
            'a_batch_gets_the_plan_of_its_first',
            'the_same_question_gets_the_same_answer',
            'a_group_of_separate_requests',
            'explicit_rows_and_a_taken_one',
            'nova_has_the_last_word',
            'moves_and_deletes_follow_nova',
            'a_failed_build_releases',
            'a_group_leaves_room_for_what_others_reserved',
            'a_registered_matrix_by_reference'))):
    globals().update({f'test_{name}': getattr(module, f'test_{name}')
                      for name in names})


@pytest.fixture(scope='module', params=KINDS)
def migrated(request, databases, tmp_path_factory):
    found = db_session.Database(databases.make_current(
        request.param, tmp_path_factory.mktemp(request.param)), 5)
    yield found
    found.dispose()


of_another_version = test_db.of_another_version


@pytest.fixture
def database(migrated):
    with migrated.writer() as session:
        for table in reversed(models.Base.metadata.sorted_tables):
            session.execute(table.delete())
        session.add(models.Cluster(id=1, generation=1))
    return migrated


@pytest.fixture(scope='module', params=KINDS)
def controller(request, databases, tmp_path_factory):
    home = tmp_path_factory.mktemp(request.param)
    connection = databases.make_current(request.param, home)
    with harness.running(
            home, {'database': {'connection': connection}}) as found:
        yield found


@pytest.fixture
def tenant(controller):
    return controller.tenant()


@pytest.mark.parametrize('kind', KINDS)
def test_the_schema_is_made_by_hand(kind, databases, tmp_path):
    config = tmp_path / 'virtco.conf'
    config.write_text('[database]\nconnection = '
                      f'{databases.make(kind, tmp_path)}\n')
    for command in ('sync', 'version'):
        done = forks.run(
            [sys.executable, '-m', 'virtco.cmd.manage', '--config-file',
             str(config), 'db', command])
        assert done.returncode == 0, done.stderr
    assert done.stdout == (f'database {migration.head()}, '
                           f'code {migration.head()}\n')


@pytest.mark.parametrize('kind', KINDS)
def test_a_migration_may_be_slow(kind, databases, tmp_path, monkeypatch):
    """On a busy machine seconds pass between two of its statements."""
    monkeypatch.setattr(bounds, 'SILENT_S', 1)
    database = db_session.Database(databases.make(kind, tmp_path), 5)
    made = []

    def be_slow(_connection, _cursor, statement, *_others):
        made.append(statement.lstrip().startswith('CREATE TABLE'))
        if sum(made) == 3 and made[-1]:
            time.sleep(1.5)

    sa.event.listen(database.engine, 'before_cursor_execute', be_slow)
    migration.upgrade(database)
    assert sum(made) > 3
    assert migration.current(database) == migration.head()
    database.dispose()


def test_a_silent_process_keeps_nobody_from_leading(database):
    """Its machine lost its network within a transaction."""
    with database.writer() as session:
        session.add(models.Leader(id=1, epoch=1, beat=0, name='a',
                                  address=''))
    with database.reader() as session:
        seen = leader.current(session)
    with contextlib.suppress(exception.VirtcoException), (
            database.writer()) as silent:
        leader.check(silent, 1)

        def follows():
            with contextlib.suppress(exception.VirtcoException), (
                    database.writer()) as session:
                return leader.take_over(session, seen, 'b', '')

        assert patience.wait_for(follows, 'the next leader', 20) == 2
        with pytest.raises(sa.exc.SQLAlchemyError):
            leader.beat(silent, 1)
        raise exception.Deposed(epoch=1)
