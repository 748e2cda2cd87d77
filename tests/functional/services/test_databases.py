# SPDX-License-Identifier: Apache-2.0

"""The database layer and a controller on MariaDB and PostgreSQL.

The same tests as on SQLite, which run in their own files.
"""

import contextlib
import subprocess
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
from tests.unit.db import test_indexes
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
            'names_are_bytes',
            'every_name_has_a_binary_collation',
            'the_generation_stands_or_it_is_a_conflict',
            'a_name_is_unique_among_the_living',
            'retiring_ends_coflows_and_frees_rows',
            'members_are_found_by_their_host',
            'usage_counts_the_living_of_a_project',
            'events_are_bounded_per_project',
            'readings_take_their_places_by_two_statements',
            'purging_keeps_what_lives',
            'conflicts_are_tried_again',
            'what_was_read_or_written_stays_readable',
            'what_may_send_once_more_is_live')),
        (test_indexes, ('no_question_scans_a_table_that_tenants_fill',)),
        (placements, (
            'a_batch_gets_the_plan_of_its_first',
            'groups_are_told_apart_by_each_byte_of_their_names',
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


def test_its_clock_is_the_machines(migrated):
    assert migrated.now_s() == pytest.approx(time.time(), abs=5)


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


@pytest.mark.parametrize(('kind', 'statement'), [
    ('mariadb', 'SELECT SLEEP(1.5)'), ('postgresql', 'SELECT pg_sleep(1.5)')])
def test_an_operator_waits_longer_for_an_answer(kind, statement, databases,
                                                tmp_path):
    url = databases.make(kind, tmp_path)
    for answer_s, waits in (1, False), (60, True):
        database = db_session.Database(url, 5, answer_s)
        with contextlib.nullcontext() if waits else pytest.raises(
                exception.DatabaseUnavailable):
            with db_session.translated(), database.engine.begin() as found:
                found.exec_driver_sql(statement)
        database.dispose()


def test_a_database_of_latin_letters_has_room_for_all_names(databases,
                                                            tmp_path):
    """The tables bring a collation, whatever the server or a URL says."""
    connection = databases.make('mariadb', tmp_path) + '?charset=utf8'
    database = db_session.Database(connection, 5)
    with database.engine.begin() as statements:
        statements.exec_driver_sql(
            f'ALTER DATABASE {database.engine.url.database} '
            'CHARACTER SET latin1')
    migration.upgrade(database)
    test_db.test_names_are_bytes(database)
    test_db.test_every_name_has_a_binary_collation(database)
    database.dispose()


def test_a_collation_of_another_hand_is_told_and_can_be_mended(databases,
                                                               tmp_path):
    database = db_session.Database(
        databases.make_current('mariadb', tmp_path), 5)
    name = database.engine.url.database
    with database.writer() as session:
        session.add_all([test_db.group('sort'), test_db.group('SORT'),
                         test_db.group('\U0001f600')])
    with database.engine.begin() as statements:
        secret = statements.scalar(sa.select(models.Cluster.secret))
        statements.exec_driver_sql(
            'ALTER TABLE settings CONVERT TO CHARACTER SET utf8mb4 '
            'COLLATE utf8mb4_general_ci')
    with pytest.raises(exception.Invalid) as error:
        migration.upgrade(database)
    assert str(error.value).startswith(
        'collation of table settings: expected utf8mb4_nopad_bin (save the '
        'rows with mariadb-dump')
    server = databases.server('mariadb')
    rows = server.run('mariadb-dump', '--no-defaults', '--user=root',
                      f'--socket={server.home / "socket"}',
                      '--no-create-info', '--complete-insert', '--replace',
                      name)
    with database.engine.begin() as statements:
        statements.exec_driver_sql(f'DROP DATABASE {name}')
        statements.exec_driver_sql(f'CREATE DATABASE {name}')
    database.dispose()
    migration.upgrade(database)
    subprocess.run(
        ['mariadb', '--no-defaults', '--user=root', '--protocol=tcp',
         f'--host={database.engine.url.host}',
         f'--port={database.engine.url.port}', name],
        input=rows, text=True, check=True)
    migration.check(database)
    with database.reader() as session:
        assert {one.name for one in session.scalars(
            sa.select(models.Group))} == {'sort', 'SORT', '\U0001f600'}
        assert session.scalar(sa.select(models.Cluster.secret)) == secret
    database.dispose()


def test_a_database_with_another_encoding_is_refused(databases, tmp_path):
    connection = databases.make('postgresql', tmp_path)
    server = sa.create_engine(connection, isolation_level='AUTOCOMMIT')
    with server.connect() as statements:
        statements.exec_driver_sql(
            "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' "
            "LC_CTYPE 'C' TEMPLATE template0")
    server.dispose()
    database = db_session.Database(
        connection.rpartition('/')[0] + '/latin', 5)
    with pytest.raises(exception.Invalid, match='encoding of the database: '
                       'expected UTF8 .*, got LATIN1'):
        migration.check(database)
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
