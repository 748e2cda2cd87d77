# SPDX-License-Identifier: Apache-2.0

"""Members that are taken, the leader's row, orders, limits of a server."""

import os
import socket
import sqlite3
import sys
import time
import types

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from tests.unit.db import test_db as made
from virtco import exception
from virtco.db import bounds
from virtco.db import groups
from virtco.db import leader
from virtco.db import members
from virtco.db import models
from virtco.db import orders
from virtco.db import session as db_session
from virtco.model import states

RUNNING = states.MemberState.RUNNING
PLANNED = states.MemberState.PLANNED
SECRET = 'of the cloud'


@pytest.fixture
def session(database):
    with database.writer() as found:
        yield found


def _add(session, *rows):
    session.add_all(rows)
    session.flush()


@pytest.fixture
def planned(session):
    _add(session, made.group(n_vms=4, cct_s=3.0, lower_bound_s=2.0, gap=0.5,
                             method='exact', bottleneck='egress'),
         made.group('b', 'q'), made.group('c', live_key='gone'))
    _add(session, made.member('p-a', 0, state=PLANNED, host='h0'),
         made.member('p-a', 1, state=RUNNING, host='h1', instance_uuid='i'),
         made.member('p-a', 2, state=PLANNED, host='h2'),
         made.member('p-a', 3, host='h3'),
         made.member('p-c', 0, state=PLANNED, host='h9'))
    return session.connection()


@pytest.mark.parametrize(('index', 'launch', 'found'), [
    (None, 0, 0), (None, 1, 2), (None, 2, 2), (None, 4, 0), (None, 6, 2),
    (None, 3, None), (0, 9, 0), (2, 0, 2), (1, 0, None), (3, 0, None),
    (7, 0, None)])
def test_the_member_that_a_new_instance_becomes(planned, index, launch,
                                                found):
    one = members.next_planned(planned, 'p', 'a', 'new', index, launch)
    assert (one and one.index) == found
    if one is not None:
        assert (one.group_id, one.group_name, one.host, one.cct_s,
                one.lower_bound_s, one.gap, one.method, one.bottleneck) == (
            'p-a', 'a', f'h{found}', 3.0, 2.0, 0.5, 'exact', 'egress')


@pytest.mark.parametrize(('project', 'name', 'uuid'), [
    ('q', 'a', 'new'), ('p', 'b', 'new'), ('p', 'c', 'new'),
    ('p', 'a', 'i')])
def test_no_member_of_another_group_or_twice(planned, project, name, uuid):
    assert members.next_planned(planned, project, name, uuid, None, 0) is None


def test_a_planned_member_without_a_host_is_none(planned, session):
    session.execute(sa.update(models.Member).values(host=None))
    assert members.next_planned(planned, 'p', 'a', 'new', 0, 0) is None


def _values(uuid='new'):
    return {'instance_uuid': uuid, 'display_name': 'd', 'reservation_id': 'r',
            'expires_at': 9.0, 'vcpus': 4.0, 'memory_mb': 5.0,
            'disk_gb': 6.0, 'egress_cap_bps': 7.0, 'ingress_cap_bps': None,
            'egress_burst_bytes': 8.0, 'ingress_burst_bytes': 0.0}


def test_a_member_is_taken_once_and_seen(planned, session):
    one = members.next_planned(planned, 'p', 'a', 'new', 2, 0)
    groups.advance(planned)
    members.take(planned, one, _values())
    session.expire_all()
    row = session.get(models.Member, ('p-a', 2))
    assert {name: getattr(row, name) for name in _values()} == _values()
    assert (row.state, row.host, row.planned_host) == (
        states.MemberState.RESERVED, 'h2', 'h2')
    assert session.get(models.Cluster, 1).generation == 2
    assert session.get(models.Member, ('p-a', 0)).instance_uuid is None
    with pytest.raises(exception.Conflict):
        members.take(planned, one, _values('late'))


@pytest.mark.parametrize('changed', [
    {'host': 'h8'}, {'state': states.MemberState.RESERVED},
    {'instance_uuid': 'other'}])
def test_a_member_that_changed_is_not_taken(planned, session, changed):
    one = members.next_planned(planned, 'p', 'a', 'new', 2, 0)
    session.execute(sa.update(models.Member).where(
        models.Member.row_index == 2).values(changed))
    with pytest.raises(exception.Conflict):
        members.take(planned, one, _values())


def test_the_last_answer_is_remembered(session):
    connection = session.connection()

    def answer(text):
        return {'project_id': 'p', 'group_id': None, 'fingerprint': text,
                'answer': text * 2, 'updated_at': 1.0}

    for is_known, text in (False, 'a'), (True, 'b'):
        members.remember(connection, 'i', is_known, answer(text))
    # One that was purged meanwhile.
    members.remember(connection, 'j', True, answer('c'))
    assert members.fingerprint(connection, 'i') == 'b'
    assert members.fingerprint(connection, 'j') == 'c'
    assert members.fingerprint(connection, 'k') is None


def _seen(*values):
    """As the database of these tests has it."""
    return leader.Seen(*values, SECRET)


def test_one_leads(session):
    session.execute(sa.update(models.Cluster).values(secret=SECRET))
    seen = leader.current(session)
    assert (seen.epoch, seen.beat, seen.name) == (0, 0, '')
    assert leader.take_over(session, seen, 'a', 'a:1') == 1
    assert leader.take_over(session, seen, 'b', 'b:1') is None
    leader.beat(session, 1)
    leader.beat(session, 1)
    assert leader.current(session) == _seen(1, 2, 'a', 'a:1')
    # It lives: what was seen before its beat is old.
    assert leader.take_over(session, _seen(1, 1, 'a', 'a:1'), 'b',
                            'b:1') is None
    leader.check(session, 1)
    for wrong in 0, 2:
        with pytest.raises(exception.Deposed):
            leader.beat(session, wrong)
        with pytest.raises(exception.Deposed):
            leader.check(session, wrong)
        leader.resign(session, wrong)
    assert leader.current(session).name == 'a'
    assert leader.take_over(session, leader.current(session), 'b',
                            'b:1') == 2
    assert leader.current(session) == _seen(2, 0, 'b', 'b:1')
    leader.resign(session, 2)
    assert leader.current(session) == _seen(2, 0, '', '')


def test_who_leads_is_checked_last(database, monkeypatch):
    """Its row is locked from then on, and the work may wait for others."""
    seen = []

    def fence(session):
        # What the work wants to write is written.
        assert not session.new and not session.dirty
        seen.append(session.get(models.Cluster, 1).generation)
        if len(seen) > 1:
            raise exception.Deposed(epoch=1)

    def work(session):
        session.get(models.Cluster, 1).generation += 1
        return 'done'

    monkeypatch.setattr(database, 'fence', fence)
    assert database.as_leader(work) == 'done'
    with pytest.raises(exception.Deposed):
        database.as_leader(work)
    with database.reader() as session:
        assert session.get(models.Cluster, 1).generation == seen[0]
    assert seen == [seen[0], seen[0] + 1]


def test_writers_of_the_leader_do_not_exclude_each_other():
    asked = []
    leader.check(types.SimpleNamespace(scalar=lambda query: asked.append(
        str(query.compile(dialect=postgresql.dialect()))) or 1), 1)
    assert asked[0].endswith(' FOR SHARE')


def test_tickets_are_of_a_cloud_and_an_epoch():
    keys = {_seen(1, 2, 'a', 'a:1').ticket_key,
            _seen(11, 2, 'a', 'a:1').ticket_key,
            leader.Seen(1, 2, 'a', 'a:1', 'other').ticket_key}
    assert len(keys) == 3
    # Every process knows the same, whatever the beat.
    assert _seen(1, 3, 'b', 'b:1').ticket_key in keys


def test_an_epoch_is_raised_within_reason(session):
    session.execute(sa.update(models.Cluster).values(secret=SECRET))
    leader.take_over(session, leader.current(session), 'a', 'a:1')
    leader.beat(session, 1)
    for wrong in 0, 1, 1_000_002:
        with pytest.raises(exception.Invalid, match='above 1, at most'):
            leader.raise_epoch(session, wrong)
    leader.raise_epoch(session, 2)
    assert leader.current(session) == _seen(2, 0, '', '')
    leader.raise_epoch(session, 1_000_002)
    assert leader.current(session).epoch == 1_000_002


def _order(order_id, state=orders.WAITING, at=0.0, kind='check',
           expires_at=100.0):
    return models.Order(id=order_id, kind=kind, state=state, ordered_at=at,
                        expires_at=expires_at, document='')


def _ids(found):
    return [one.id for one in found]


def test_orders_of_a_kind(session):
    for one in (_order('b', at=2.0), _order('a', at=2.0), _order('c', at=1.0),
                _order('d', kind='probe')):
        orders.add(session, one, 9)
    assert _ids(orders.find(session, models.Order.kind == 'check')) == [
        'c', 'a', 'b']
    assert _ids(orders.find(
        session, models.Order.state == orders.WAITING)) == [
            'd', 'c', 'a', 'b']
    assert orders.get(session, 'a', 'check').id == 'a'
    assert orders.get(session, 'a', 'probe') is None
    assert orders.get(session, 'x', 'check') is None
    orders.save(session, 'a', orders.RUNNING, 'text')
    orders.save(session, 'b', orders.DONE, 'done')
    session.expire_all()
    assert _ids(orders.find(
        session, models.Order.state == orders.WAITING)) == ['d', 'c']
    assert orders.get(session, 'a', 'check').document == 'text'
    # One that was taken up does not expire any more.
    orders.save(session, 'c', orders.WAITING, 'text')
    orders.get(session, 'd', 'probe').expires_at = 1.0
    orders.get(session, 'a', 'check').expires_at = 1.0
    session.flush()
    orders.restart(session)
    session.expire_all()
    found = orders.find(session, models.Order.state == orders.WAITING)
    assert {one.id: one.expires_at for one in found} == {
        'd': 1.0, 'c': orders.NEVER_S, 'a': orders.NEVER_S}


def test_so_many_may_be_under_way(session):
    orders.add(session, _order('r', orders.RUNNING, expires_at=0.0), 1)
    orders.add(session, _order('late', expires_at=5.0), 2)
    orders.add(session, _order('done', orders.DONE, at=5.0), 2)
    orders.add(session, _order('probe', kind='probe'), 1)
    with pytest.raises(exception.Invalid, match='2 under way'):
        orders.add(session, _order('more', at=4.9), 2)
    # No leader takes it up any more.
    orders.add(session, _order('more', at=5.0), 2)


def test_the_last_orders_that_are_over_are_kept(session):
    n = 50
    _add(session, _order('run', orders.RUNNING), _order('probe', kind='probe',
                                                        state=orders.DONE),
         *(_order(f'o{i}', orders.DONE, at=float(i)) for i in range(n)),
         _order('wait', at=0.5))
    orders.add(session, _order('new', at=99.0), 9)
    assert len(orders.find(session, models.Order.kind == 'check')) == n + 3
    # What waited long enough is over, too.
    orders.add(session, _order('newer', at=100.0, expires_at=200.0), 9)
    assert set(_ids(orders.find(session, models.Order.kind == 'check'))) == {
        'run', 'newer', 'new', *(f'o{i}' for i in range(1, n))}
    assert len(orders.find(session, models.Order.kind == 'probe')) == 1


def _finding(subject, kind, found_at):
    return models.Finding(subject=subject, kind=kind, found_at=found_at,
                          document='')


def test_findings_are_replaced_by_their_subject(session):
    assert orders.signature(session) == (0, 0.0)
    orders.replace_findings(session, [], [
        _finding('h2', 'host', 1.0), _finding('h1', 'leaf', 2.0),
        _finding('h1', 'host', 3.0)])
    session.flush()
    assert orders.signature(session) == (3, 3.0)
    orders.replace_findings(session, ['h1'], [_finding('h1', 'leaf', 2.5)])
    session.flush()
    assert orders.signature(session) == (2, 2.5)
    assert [(one.subject, one.kind) for one in orders.findings(session)] == [
        ('h1', 'leaf'), ('h2', 'host')]


class _Connection:
    """What a driver gives, over a socket of ours; notes statements."""

    def __init__(self, sock):
        self.fileno = sock.fileno
        self.seen = []

    def cursor(self):
        return self

    def execute(self, statement):
        self.seen.append(statement)

    def commit(self):
        self.seen.append('commit')

    def close(self):
        pass


@pytest.mark.parametrize(('url', 'statements'), [
    ('postgresql', ["SET lock_timeout = '3s'",
                    "SET idle_in_transaction_session_timeout = '5s'"]),
    ('mysql', ['SET SESSION innodb_lock_wait_timeout = 3',
               'SET SESSION autocommit = @@SESSION.autocommit '
               '/*M!, SESSION idle_transaction_timeout = 5 */'])])
def test_what_a_connection_waits_for(url, statements):
    engine = sa.create_engine('sqlite://')
    engine.dialect = sa.dialects.registry.load(url)()
    bounds.put_on(engine, 2.6)
    with socket.socket() as sock:
        connection = _Connection(sock)
        *_, connected = engine.pool.dispatch.connect
        connected(connection, None)
        assert connection.seen == [*statements, 'commit']
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert [sock.getsockopt(socket.IPPROTO_TCP, name) for name in (
            socket.TCP_USER_TIMEOUT, socket.TCP_KEEPIDLE,
            socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)] == [10_000, 5, 1, 5]


def test_a_driver_that_has_the_socket_or_none():
    with socket.socket() as sock:
        bounds._watch_server(types.SimpleNamespace(_sock=sock))
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    bounds._watch_server(types.SimpleNamespace())
    ours, theirs = socket.socketpair()
    with ours, theirs:
        bounds._watch_server(ours)


class _Server:
    """Notes statements, as a connection to such a server."""

    def __init__(self, name):
        self.dialect = types.SimpleNamespace(name=name)
        self.seen = []

    def exec_driver_sql(self, statement):
        self.seen.append(statement.partition('timeout')[2])


@pytest.mark.parametrize(('name', 'before', 'after'), [
    ('postgresql', [" = '600s'"], []),
    ('mysql', [' = 600 */'], [' = 5 */']),
    ('mariadb', [' = 600 */'], [' = 5 */']), ('sqlite', [], [])])
def test_a_migration_may_be_silent_for_longer(name, before, after):
    server = _Server(name)
    with bounds.time_to_migrate(server):
        assert server.seen == before
    assert server.seen == before + after
    server.seen.clear()
    with pytest.raises(ValueError), bounds.time_to_migrate(server):
        raise ValueError
    assert server.seen == before + after


def _conf(connection, **values):
    return types.SimpleNamespace(
        database=types.SimpleNamespace(connection=connection, **values),
        controller=types.SimpleNamespace(state_dir='state',
                                         db_timeout_s=0.25))


def test_where_the_database_is():
    assert db_session.default_connection(_conf('sqlite://x')) == 'sqlite://x'
    assert db_session.default_connection(_conf(None)) == (
        f'sqlite:///{os.getcwd()}/state/virtco.sqlite')
    found = db_session.Database.from_conf(_conf('sqlite://',
                                                max_pool_size=None))
    assert found.timeout_s == 0.25 and found.is_sqlite


@pytest.mark.parametrize(('connection', 'words'), [
    ('no url with a secret', 'dialect'),
    ('oracle://u:secret@h/n', 'pip install cx_Oracle'),
    ('mysql://u:secret@h/n', 'pip install mysqlclient'),
    ('nothing://u:secret@h/n', 'dialect')])
def test_a_connection_that_is_none(connection, words, monkeypatch):
    for name in ('cx_Oracle', 'MySQLdb'):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(exception.Invalid, match=words) as error:
        db_session.Database(connection)
    assert 'u:secret' not in str(error.value)
    assert f"got '{connection.partition(':')[0]}'" in str(error.value)


def test_a_database_makes_its_directory(tmp_path):
    path = tmp_path / 'a' / 'b' / 'db.sqlite'
    found = db_session.Database(f'sqlite:///{path}')
    assert found.timeout_s == 0.4
    with found.statements() as connection:
        connection.execute(sa.text('CREATE TABLE t (i INTEGER)'))
    with found.reader() as session:
        assert session.connection().execute(sa.text(
            'PRAGMA foreign_keys')).scalar() == 1
        assert session.connection().execute(sa.text(
            'PRAGMA journal_mode')).scalar() == 'wal'
        assert session.connection().execute(sa.text(
            'PRAGMA synchronous')).scalar() == 1
    assert found.engine.pool._timeout == 1
    assert db_session.Database(f'sqlite:///{path}', 3.0
                               ).engine.pool._timeout == 3.0
    found.dispose()
    with sqlite3.connect(path) as connection:
        assert connection.execute('SELECT COUNT(*) FROM t').fetchone() == (0,)


@pytest.mark.parametrize('is_replaced', [False, True])
def test_a_file_that_is_gone_is_noticed(database, is_replaced):
    with database.reader() as session:
        leader.current(session)
    path = database.engine.url.database
    os.rename(path, path + '.away')
    if is_replaced:
        with open(path, 'w', encoding='utf-8'):
            pass
    for opened in database.reader, database.writer, database.statements:
        with pytest.raises(exception.DatabaseUnavailable, match='removed'):
            with opened():
                raise AssertionError('not with a file that is gone')


def test_the_first_file_is_the_one(tmp_path):
    path = tmp_path / 'file'
    path.touch()
    found = db_session._File(str(path))
    for _ in range(2):
        found.check()
        found.remember()
    path.rename(tmp_path / 'away')
    path.touch()
    # As a connection does that was opened between the two.
    found.remember()
    with pytest.raises(exception.DatabaseUnavailable, match='replaced'):
        found.check()


def test_a_writer_waits_for_as_long_as_it_says(database):
    with database.writer():
        for limit_s in 0.0, 0.3:
            with pytest.raises(exception.DatabaseUnavailable,
                               match='it is busy'):
                with database.writer(limit_s):
                    raise AssertionError('not while another one writes')


def test_a_writer_that_fails_leaves_nothing_and_lets_others(database):
    with pytest.raises(KeyError), database.writer() as session:
        _add(session, made.group())
        raise KeyError
    with database.writer() as session:
        assert session.get(models.Group, 'p-a') is None


def test_the_tries_of_a_conflict_are_counted(database, monkeypatch):
    tried, waits_s = [], []
    monkeypatch.setattr(time, 'sleep', waits_s.append)

    def work(session):
        tried.append(session)
        raise exception.Conflict(what='x', id=1)

    for attempts, expected in ((), 4), ((2,), 6):
        with pytest.raises(exception.Conflict):
            database.retried(work, *attempts)
        assert len(tried) == expected
    # Those that wait for each other do not meet again.
    assert len(waits_s) == 4 and all(0 < one < 0.02 for one in waits_s)


@pytest.mark.parametrize(('timeout_s', 'options', 'wait_s'), [
    (0.4, {}, 1), (3.0, {}, 3.0), (0.4, {'pool_timeout': 7}, 7)])
def test_connections_to_a_server(timeout_s, options, wait_s):
    """None is made before the first statement; no server listens there."""
    found = db_session.Database('postgresql+psycopg2://u@127.0.0.1:1/n',
                                timeout_s, **options)
    assert not found.is_sqlite
    assert found.engine.pool._timeout == wait_s
    # Nothing yields when a connection is given back: threads are real.
    assert not any('yield' in listener.__name__
                   for listener in found.engine.pool.dispatch.checkin)
    with socket.socket() as sock:
        connection = _Connection(sock)
        *_, connected = found.engine.pool.dispatch.connect
        connected(connection, None)
    assert connection.seen[0] == "SET lock_timeout = '5s'"
    with pytest.raises(exception.DatabaseUnavailable), found.reader() as one:
        one.execute(sa.text('SELECT 1'))


def test_who_writes_says_so_as_it_begins(database):
    """Who began as a reader could not wait for its turn."""
    begun = []
    database.dispose()
    sa.event.listen(
        database.engine, 'connect',
        lambda connection, _record: connection.set_trace_callback(
            begun.append))
    for begin in (database.reader, database.writer, database.statements):
        with begin() as found:
            found.execute(sa.text('SELECT 1'))
    assert [statement for statement in begun if 'BEGIN' in statement] == [
        'BEGIN', 'BEGIN IMMEDIATE', 'BEGIN IMMEDIATE']
    # Nothing looks for listeners at each statement.
    assert not database.engine._has_events
    assert not database._writing._has_events


def test_commits_leave_the_log_to_a_checkpoint(database, tmp_path):
    """A commit that wrote it into the database would wait for the disk."""
    def stored():
        with open(tmp_path / 'db.sqlite', 'rb') as file:
            return b'of a report' in file.read()

    for i in range(3):
        with database.writer() as session:
            session.add(models.Host(host=f'h{i}', first_seen=1.0,
                                    report='of a report' * 200_000))
    assert not stored()
    database.checkpoint()
    assert stored()
