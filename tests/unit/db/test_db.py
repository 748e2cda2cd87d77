# SPDX-License-Identifier: Apache-2.0

"""The schema and the transactions of the database layer."""

import concurrent.futures
import threading
import time

from alembic import autogenerate
from alembic import migration as alembic_migration
import pytest
import sqlalchemy as sa

from tests import databases as real_databases
from virtco import exception
from virtco.db import bookings
from virtco.db import groups
from virtco.db import leader
from virtco.db import migration
from virtco.db import models
from virtco.db import records
from virtco.db import session as db_session
from virtco.model import states


def group(name='a', project_id='p', **values):
    return models.Group(**{
        'id': f'{project_id}-{name}', 'project_id': project_id, 'name': name,
        'live_key': '', 'n_vms': 2, 'created_at': 1.0, 'method': '',
        'why': ''} | values)


def member(group_id, index, **values):
    return models.Member(**{
        'group_id': group_id, 'row_index': index, 'display_name': '',
        'reservation_id': '', 'state': states.MemberState.VACANT,
        'vcpus': 1.0, 'memory_mb': 2.0, 'disk_gb': 3.0} | values)


def coflow(group_id, **values):
    return models.Coflow(**{
        'id': f'c-{group_id}', 'group_id': group_id, 'project_id': 'p',
        'name': 'c', 'state': states.CoflowState.PLANNED, 'n_vms': 2,
        'n_flows': 1, 'size_bytes': 5.0, 'tm': '[[0,1,5]]',
        'created_at': 1.0} | values)


def _is_as_the_models_say(database):
    with database.engine.connect() as connection:
        context = alembic_migration.MigrationContext.configure(
            connection, opts={'compare_type': True,
                              'compare_server_default': True})
        assert autogenerate.compare_metadata(
            context, models.Base.metadata) == []
    assert migration.current(database) == migration.head()


def test_a_new_database_is_as_the_models_say(database):
    _is_as_the_models_say(database)


def test_the_migrations_make_what_the_models_say(tmp_path):
    database = db_session.Database(f'sqlite:///{tmp_path}/of-initial.sqlite')
    real_databases.make_initial(database)
    assert migration.current(database) == 'initial'
    migration.upgrade(database)
    _is_as_the_models_say(database)
    database.dispose()


def test_the_rows_that_always_exist_are_made_once(database):
    with database.reader() as session:
        secret = groups.secret(session)
    assert len(secret) == 64
    migration.upgrade(database)
    with database.reader() as session:
        assert groups.secret(session) == secret
        assert leader.current(session) == leader.Seen(0, 0, '', '', secret)


def test_upgrading_twice_changes_nothing(database):
    with database.writer() as session:
        session.add(group())
    migration.upgrade(database)
    with database.reader() as session:
        assert groups.find(session, 'p', 'a') is not None


def test_a_directory_that_is_a_file_now_holds_no_database(tmp_path):
    home = tmp_path / 'state'
    database = db_session.Database(f'sqlite:///{home}/db.sqlite')
    migration.upgrade(database)
    home.rename(tmp_path / 'away')
    home.write_text('')
    for begin in (database.reader, database.writer, database.statements):
        with pytest.raises(exception.DatabaseUnavailable,
                           match='removed or replaced'), begin():
            pass
    database.dispose()


@pytest.mark.parametrize('cut_off', [
    "UPDATE alembic_version SET version_num = 'initial'",
    'DELETE FROM alembic_version'])
def test_an_upgrade_that_was_cut_off_is_made_again(database, cut_off):
    """MariaDB commits each change of a table by itself."""
    with database.engine.begin() as connection:
        connection.exec_driver_sql(cut_off)
    migration.upgrade(database)
    _is_as_the_models_say(database)


def test_a_database_in_use_is_not_taken_for_an_installation(database):
    with database.writer() as session:
        session.execute(sa.update(models.Leader).values(epoch=7))
        session.execute(sa.delete(sa.table('alembic_version')))
    with pytest.raises(exception.Conflict):
        migration.upgrade(database)
    with database.reader() as session:
        assert leader.current(session).epoch == 7


def test_an_upgrade_checks_its_result(database, monkeypatch):
    def refuse(_connection):
        raise exception.Invalid(field='collation', value='x', limit='y')

    monkeypatch.setattr(migration.collation, 'check', refuse)
    with pytest.raises(exception.Invalid, match='collation'):
        migration.upgrade(database)


@pytest.mark.parametrize(('name', 'long_text'), [
    ('postgresql', 'TEXT'), ('mysql', 'MEDIUMTEXT'), ('sqlite', 'TEXT')])
def test_the_schema_is_for_production_databases_too(name, long_text):
    """Long texts are long, and indexes short enough for MariaDB."""
    dialect = sa.dialects.registry.load(name)()
    for table in models.Base.metadata.sorted_tables:
        text = str(sa.schema.CreateTable(table).compile(dialect=dialect))
        assert 'TEXT(' not in text
        for constraint in table.constraints:
            if isinstance(constraint, sa.UniqueConstraint):
                assert 4 * sum(c.type.length for c in
                               constraint.columns) < 3072
    column = models.Base.metadata.tables['coflows'].c.tm
    assert column.type.compile(dialect=dialect) == long_text


def test_the_generation_stands_or_it_is_a_conflict(database):
    with database.reader() as session:
        seen = groups.generation(session)
    with database.writer() as session:
        groups.advance(session.connection(), seen)
    with pytest.raises(exception.Conflict), database.writer() as session:
        session.add(group())
        groups.advance(session.connection(), seen)
    with database.reader() as session:
        assert groups.generation(session) == seen + 1
        assert groups.find(session, 'p', 'a') is None


def test_a_name_is_unique_among_the_living(database):
    with database.writer() as session:
        session.add(group())
        session.add(group(project_id='q'))
    with pytest.raises(exception.Conflict), database.writer() as session:
        session.add(group(id='other'))
    with database.writer() as session:
        groups.retire(session, groups.find(session, 'p', 'a'), 5.0)
    with database.writer() as session:
        session.add(group(id='other'))


def test_a_vm_is_a_member_once(database):
    with database.writer() as session:
        session.add(group())
        session.flush()
        session.add(member('p-a', 0, instance_uuid='i'))
    with pytest.raises(exception.Conflict), database.writer() as session:
        session.add(member('p-a', 1, instance_uuid='i'))


def test_retiring_ends_coflows_and_frees_rows(database):
    with database.writer() as session:
        session.add(group())
        session.flush()
        session.add_all([member('p-a', 0, instance_uuid='i', host='h',
                                state=states.MemberState.RUNNING),
                         coflow('p-a')])
    with database.writer() as session:
        groups.retire(session, session.get(models.Group, 'p-a'), 5.0)
    with database.reader() as session:
        assert groups.living_members(session) == []
        assert groups.living_coflows(session) == []
        assert groups.member_of(session, 'i') is None
        row, = groups.members(session, 'p-a')
        assert (row.state, row.host) == (states.MemberState.VACANT, None)


def test_members_are_found_by_their_host(database):
    """Young are those that are reserved, planned or were built lately."""
    with database.writer() as session:
        session.add(group())
        session.flush()
        session.add_all([
            member('p-a', 0, host='h1', expires_at=9.0, placed_at=1.0,
                   state=states.MemberState.PLANNED),
            member('p-a', 1, host='h1', placed_at=1.0,
                   state=states.MemberState.RUNNING, room_vcpus=7.0,
                   room_memory_mb=8.0, room_disk_gb=9.0),
            member('p-a', 2, host='h2', placed_at=None,
                   state=states.MemberState.RUNNING),
            member('p-a', 3, host='h1', placed_at=5.0,
                   state=states.MemberState.RUNNING), member('p-a', 4)])
    shown = {host: (9.0, 9.0, 9.0) for host in ('h1', 'h2', 'h9')}
    with database.reader() as session:
        found = bookings.ledger(session.connection(), 62.0, shown)
        # Nothing is young on the others.
        assert found.left() == {'h1': (7.0, 5.0, 3.0), 'h2': shown['h2'],
                                'h9': shown['h9']}
        assert [bookings.ledger(session.connection(), 62.0, shown, [
            host]).room(host) for host in shown] == [
                (10.0, 11.0, 12.0), (10.0, 11.0, 12.0), (9.0, 9.0, 9.0)]
    with database.writer() as session:
        bookings.lessen_room(session, 'h1', {
            'vcpus': 1.0, 'memory_mb': 2.0, 'disk_gb': 3.0})
    with database.reader() as session:
        rows = groups.members(session, 'p-a')
        assert [row.room_disk_gb for row in rows] == [
            None, 6.0, None, None, None]
        assert (rows[1].room_vcpus, rows[1].room_memory_mb) == (6.0, 6.0)


def test_usage_counts_the_living_of_a_project(database):
    with database.writer() as session:
        for i, name in enumerate('abc'):
            session.add(group(name))
            session.flush()
            session.add(coflow(f'p-{name}', size_bytes=10.0 ** i))
        groups.retire(session, session.get(models.Group, 'p-c'), 5.0)
    with database.reader() as session:
        assert groups.usage(session, 'p') == (2, 2, 11.0)
        assert groups.usage(session, 'q') == (0, 0, 0.0)


def test_events_are_bounded_per_project(database, monkeypatch):
    monkeypatch.setattr(records, 'KEPT_EVENTS', 3)
    for i in range(7):
        with database.writer() as session:
            for project in 'pq':
                records.add_event(
                    session, project_id=project, group_name='g',
                    instance_uuid='', kind='k', detail=str(i),
                    created_at=float(i))
    with database.reader() as session:
        for project in 'pq':
            found = records.list_events(session, project_id=project)
            assert [e.detail for e in found] == ['6', '5', '4']
        assert records.count_events(session, {'p', 'q'}) == {
            ('p', 'g'): 3, ('q', 'g'): 3}


def test_readings_take_their_places_by_two_statements(database):
    """Other writers wait until all are written."""
    written = []

    @sa.event.listens_for(database.engine, 'before_cursor_execute')
    def note(_connection, _cursor, statement, *_context):
        if 'readings' in statement:
            written.append(statement.split()[0])

    for rate_bps, slots in (1.0, range(3)), (2.0, range(1, 40)):
        with database.writer() as session:
            records.save_readings(session, [{
                'src': 'a', 'dst': dst, 'slot': slot, 'rate_bps': rate_bps,
                'lower_bound': False, 'loss': 0.0, 'rtt_s': None,
                'rtt_median_s': 0.5, 'rtt_p99_s': None, 'method': 'train',
                'measured_at': rate_bps + slot} for dst in 'bB'
                for slot in slots])
    sa.event.remove(database.engine, 'before_cursor_execute', note)
    assert written == ['DELETE', 'INSERT'] * 2
    with database.reader() as session:
        assert {(one.dst, one.slot): one.rate_bps
                for one in records.list_readings(session)} == {
            (dst, slot): 2.0 if slot else 1.0
            for dst in 'bB' for slot in range(40)}


def test_purging_keeps_what_lives(database):
    with database.writer() as session:
        for name, retired_at in (('old', 5.0), ('new', 50.0),
                                 ('live', None)):
            session.add(group(name, live_key=name if retired_at else '',
                              retired_at=retired_at))
            session.flush()
            session.add_all([
                member(f'p-{name}', 0, instance_uuid=f'i-{name}'),
                coflow(f'p-{name}'),
                models.Decision(group_id=f'p-{name}', document=b''),
                models.Placement(
                    instance_uuid=f'i-{name}', project_id='p',
                    group_id=f'p-{name}', fingerprint='', answer='{}',
                    updated_at=5.0)])
        session.add(models.Placement(
            instance_uuid='gone', project_id='p', fingerprint='',
            answer='{}', updated_at=5.0))
    with database.writer() as session:
        counts = records.purge(session, 10.0)
    # The placement of 'old' went with its row, the one without a row too.
    assert counts == {'coflows': 1, 'members': 1, 'groups': 1,
                      'placements': 2, 'events': 0,
                      'decisions': 1}
    with database.reader() as session:
        assert session.get(models.Group, 'p-live') is not None
        assert session.get(models.Group, 'p-new') is not None
        assert session.get(models.Group, 'p-old') is None


def test_a_database_in_memory_serves_all_threads():
    database = db_session.Database('sqlite://')

    def read():
        with database.reader() as session:
            return session.execute(sa.text('SELECT 1')).scalar()

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert read() == pool.submit(read).result() == 1
    database.dispose()


def test_a_writer_that_waits_too_long_fails(database):
    release = threading.Event()
    holding = threading.Event()

    def hold():
        with database.writer() as session:
            groups.advance(session.connection())
            holding.set()
            release.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert holding.wait(30)
    started = time.monotonic()
    try:
        with pytest.raises(exception.DatabaseUnavailable):
            with database.writer():
                raise AssertionError('not while another one writes')
        assert time.monotonic() - started < 5
        # Readers see what was before.
        with database.reader() as session:
            assert groups.generation(session) == 1
    finally:
        release.set()
        thread.join()
    with database.writer() as session:
        groups.advance(session.connection())


def test_conflicts_are_tried_again(database):
    attempts = []

    def work(session):
        attempts.append(1)
        if len(attempts) < 3:
            raise exception.Conflict(what='x', id=1)
        groups.advance(session.connection())
        return 'done'

    assert database.retried(work) == 'done'
    with database.reader() as session:
        assert groups.generation(session) == 2

    def never(_session):
        raise exception.Conflict(what='x', id=1)

    with pytest.raises(exception.Conflict):
        database.retried(never)


def test_what_was_read_or_written_stays_readable(database):
    with database.writer() as session:
        session.add(found := group())
    assert (found.name, found.n_vms) == ('a', 2)
    with database.reader() as session:
        found = groups.find(session, 'p', 'a')
    assert (found.name, found.n_vms) == ('a', 2)


def test_no_database_is_said_in_one_line(tmp_path):
    path = tmp_path / 'db.sqlite'
    path.write_text('not a database' * 100)
    with pytest.raises(exception.DatabaseUnavailable) as error:
        migration.upgrade(db_session.Database(f'sqlite:///{path}'))
    assert '\n' not in str(error.value)
    assert 'file is not a database' in str(error.value)


@pytest.mark.parametrize(('state', 'iteration', 'iterations', 'is_live'), [
    ('registered', 0, 1, False), ('planned', 0, 1, True),
    ('active', 1, 1, True), ('done', 1, 1, False), ('done', 1, 2, True),
    ('done', 2, 2, False), ('done', 7, 0, True), ('active', 2, 2, True),
    ('retired', 1, 0, False)])
def test_what_may_send_once_more_is_live(database, state, iteration,
                                         iterations, is_live):
    with database.writer() as session:
        session.add(group())
        session.flush()
        session.add(coflow('p-a', state=state, iteration=iteration,
                           iterations=iterations))
    with database.reader() as session:
        assert session.get(models.Coflow, 'c-p-a').is_live == is_live
        assert len(groups.living_coflows(session)) == is_live
    # What was counted is written down for the living only.
    with database.writer() as session:
        records.save_progress(session, [
            {'id': 'c-p-a', 'sent_bytes': 3.0}], [])
    with database.reader() as session:
        found = session.get(models.Coflow, 'c-p-a')
        assert found.sent_bytes == (3.0 if is_live else 0.0)


@pytest.fixture
def of_another_version(database):
    with database.engine.begin() as connection:
        connection.execute(sa.text(
            "UPDATE alembic_version SET version_num = '019'"))
    yield database
    with database.engine.begin() as connection:
        connection.execute(sa.text(
            "UPDATE alembic_version SET version_num = 'list_order'"))


def test_a_schema_of_another_version_is_refused(of_another_version):
    for refused in (migration.upgrade, migration.check):
        with pytest.raises(exception.Invalid) as error:
            refused(of_another_version)
        assert str(error.value).startswith(
            'schema of the database: expected one that this version knows '
            '(list_order, vm_limits, vm_addresses, '
            'initial; ')
        assert str(error.value).endswith(', got revision 019.')
    assert migration.current(of_another_version) == '019'


#: That a comparison by a language takes for one another.
NAMES = ('sort', 'SORT', 'Sort', 's\xf6rt', 'so\u0308rt', 'sort ', 'ss',
         '\xdf', '\U0001f600', '\U0001f601', '\u6392\u5e8f')


def test_names_are_bytes(database):
    with database.writer() as session:
        for i, name in enumerate(NAMES):
            session.add(group(name, id=str(i), why=name, n_vms=i + 1))
            session.add(group('a', project_id=name, id=f'of {i}'))
            records.save_settings(session, {name: name})
            records.add_event(session, project_id=name,
                              group_name=name, kind='k', detail=name,
                              created_at=1.0)
    with database.reader() as session:
        for i, name in enumerate(NAMES):
            found = groups.find(session, 'p', name)
            assert (found.id, found.name, found.why) == (str(i), name, name)
            assert [one.id for one in groups.living(session, None, name)] == [
                str(i)]
            assert groups.usage(session, name)[0] == 1
            assert [one.detail for one in records.list_events(
                session, project_id=name)] == [name]
        assert groups.find(session, 'p', 's\xf6Rt') is None
        assert set(records.settings(session)) >= set(NAMES)
        assert list(session.scalars(
            sa.select(models.Group.name).where(models.Group.project_id == 'p')
            .order_by(models.Group.name))) == sorted(NAMES, key=str.encode)
    with pytest.raises(exception.Conflict), database.writer() as session:
        session.add(group('\U0001f600', id='again'))


COLLATIONS = {
    'sqlite': "SELECT 'BINARY'",
    'postgresql': 'SELECT collation_name FROM information_schema.columns '
                  "WHERE table_schema = 'public' AND data_type = "
                  "'character varying' AND table_name <> 'alembic_version'",
    'mysql': 'SELECT collation_name FROM information_schema.columns '
             'WHERE table_schema = DATABASE() AND table_name <> '
             "'alembic_version' AND collation_name IS NOT NULL"}


def test_every_name_has_a_binary_collation(database):
    with database.engine.connect() as connection:
        found = set(connection.exec_driver_sql(
            COLLATIONS[database.engine.dialect.name]).scalars())
    assert found in ({'BINARY'}, {'C'}, {'utf8mb4_nopad_bin'})


class Turn:
    """A lock of writers that notes how long each would wait for it."""

    def __init__(self):
        self.waits_s = []

    def acquire(self, timeout):
        self.waits_s.append(timeout)
        return True

    def release(self):
        """Nobody else waits."""


def test_a_writer_waits_for_others_as_long_as_it_may(database):
    database._sqlite_turn = turn = Turn()
    for patience_s in ((), (10 * database.timeout_s,)):
        with database.writer(*patience_s):
            pass
    with database.statements():
        pass
    database.retried(lambda _session: None)
    assert turn.waits_s == [
        database.timeout_s, 10 * database.timeout_s, database.timeout_s,
        db_session.PATIENCE_S]
    assert db_session.PATIENCE_S > database.timeout_s
