# SPDX-License-Identifier: Apache-2.0

"""The leader's lock: names, leases, and services that do not answer."""

import os
import socket
import sys
import threading

import pytest

from tests import patience
from tests.unit import stored
from virtco import exception
from virtco.cmd import controller
from virtco.leadership import lock as locks

LEASE_S = 3.0


def make(url, **kwargs):
    return locks.Lock(url, LEASE_S, b'virtco-test', **kwargs)


@pytest.mark.parametrize('url, found', [
    ('etcd3+http://h:2379', 'etcd3+http://h:2379?lock_timeout=3&'
     'membership_timeout=3&timeout=3'),
    ('redis://h?lock_timeout=9', 'redis://h?lock_timeout=9&'
     'membership_timeout=3&timeout=3'),
    ('mysql://u:p@h/db', 'mysql://u:p@h/db')])
def test_a_lock_ends_with_the_lease(url, found):
    assert locks._with_lease(url, LEASE_S) == found


@pytest.mark.parametrize('connection, url, name', [
    ('mysql+pymysql://u:p@h:1/one?charset=utf8', 'mysql://u:p@h:1/one',
     b'virtco-one'),
    ('postgresql+psycopg2://u@h/two', 'postgresql://u@h/two', b'virtco-two'),
    ('sqlite:////var/lib/v.db', 'file:///var/lib/leader-of-v.db',
     b'virtco-v.db')])
def test_the_lock_is_where_the_database_is(connection, url, name, tmp_path):
    config = tmp_path / 'virtco.conf'
    config.write_text(f'[database]\nconnection = {connection}\n')
    conf = controller.make_conf(['--config-file', str(config)])
    assert locks.url_of(conf) == url
    assert locks.name_of(conf) == name


def test_a_lock_service_that_does_not_work_is_no_end(caplog):
    found = make('file:///proc/nowhere/lock')
    assert not found.hold() and not found.hold()
    assert caplog.text.count('does not work') == 1
    with pytest.raises(exception.Invalid, match='backend_url'):
        make('nothing://h').start()


def test_a_lock_on_a_file_is_one(tmp_path):
    one, other = (make(f'file://{tmp_path}/leader') for _ in range(2))
    assert one.is_file and one.hold() and one.hold()
    assert not other.hold()
    one.close()
    assert other.hold()
    other.close()


def test_a_lock_not_renewed_for_a_lease_is_not_held(tmp_path):
    now_s = 100.0
    found = make(f'file://{tmp_path}/leader', clock=lambda: now_s)
    found.is_file = False
    assert found.hold()
    now_s += LEASE_S + 1
    assert not found.is_held()
    assert found.hold()
    found.close()


def test_a_service_that_does_not_answer_keeps_nobody_waiting(
        tmp_path, monkeypatch):
    answered = threading.Event()
    found = make(f'file://{tmp_path}/leader')
    monkeypatch.setattr(found, '_lease_s', 0.5)
    monkeypatch.setattr(found, '_connect', answered.wait)
    watch = patience.Stopwatch()
    found.start()
    assert not found.is_held()
    found.close()
    assert watch.seconds() < 5
    answered.set()


class Service:
    """A driver's coordinator and lock in one; ``free`` and ``ours`` are what
    the service says.

    :ivar told: what it was asked to do, in order.
    :ivar error: raised by whatever asks for the lock.
    """

    def __init__(self):
        self.told, self.error = [], None
        self.free = self.ours = True
        self.acquired = False
        self.takes_s = lambda: None
        self._lease = self

    def start(self):
        self.told.append('start')

    def get_lock(self, name):
        self.told.append(name)
        return self

    def acquire(self, blocking):
        assert not blocking
        self.takes_s()
        if self.error is not None:
            raise self.error
        self.acquired = self.free
        return self.free

    def release(self):
        self.told.append('release')
        raise RuntimeError('nothing is held')

    def stop(self):
        self.told.append('stop')

    def refresh(self):
        return int(self.ours)

    def heartbeat(self):
        self.told.append('heartbeat')

    def is_still_owner(self):
        return self.ours


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


def served(monkeypatch, url, service):
    """A lock at that service, and the clock that it goes by."""
    clock = Clock()
    found = make(url, clock=clock)
    monkeypatch.setattr(found, '_make', lambda: service)
    return found, clock


def test_a_lock_is_held_for_a_lease_since_it_was_asked_for(monkeypatch):
    service = Service()
    found, clock = served(monkeypatch, 'zookeeper://h', service)
    assert not found.is_held() and not found.is_file

    def wait():
        clock.now_s += 1.0

    service.takes_s = wait
    assert found.hold()
    clock.now_s = 100.0 + LEASE_S
    assert found.is_held()
    clock.now_s += 0.1
    assert not found.is_held()
    assert found.hold()
    # It was connected to once.
    assert service.told == ['start', b'virtco-test']


def test_a_lock_that_another_holds_is_tried_again(monkeypatch, caplog):
    service = Service()
    found, _clock = served(monkeypatch, 'zookeeper://h', service)
    service.free = False
    assert not found.hold() and caplog.messages == []
    service.free = True
    assert found.hold()
    assert service.told == ['start', b'virtco-test']


@pytest.mark.parametrize(('url', 'beats'), [
    ('etcd3+http://h', []), ('redis://h', ['heartbeat', 'heartbeat'])])
def test_a_lock_that_ended_meanwhile_is_lost(monkeypatch, caplog, url, beats):
    service = Service()
    found, _clock = served(monkeypatch, url, service)
    assert found.hold() and found.hold()
    service.ours = False
    assert not found.hold()
    assert not service.acquired
    assert service.told == ['start', b'virtco-test', *beats, 'release',
                            'stop']
    # Threads of other tests may log, too.
    (message,) = [one.getMessage() for one in caplog.records
                  if one.name.startswith('virtco.leadership')]
    assert 'it ended the lock of a process that was silent' in message
    # The next turn connects again.
    assert found.hold() and service.told[-2:] == ['start', b'virtco-test']


class Database(Service):
    """A driver whose lock is that of a connection."""

    @property
    def _conn(self):
        return self

    def cursor(self):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.told.append('exit')

    def execute(self, text):
        self.told.append(text)

    def rollback(self):
        self.told.append('rollback')


def test_a_lock_of_a_database_says_that_it_is_there(monkeypatch):
    service = Database()
    found, _clock = served(monkeypatch, 'mysql://h/db', service)
    assert found.hold() and found.hold()
    assert service.told[2:] == ['SELECT 1', 'exit', 'rollback']


def test_each_outage_is_told_once(monkeypatch, caplog):
    service = Service()
    found, _clock = served(monkeypatch, 'zookeeper://h', service)
    for n_told in (1, 2):
        service.error = OSError('first\nsecond')
        assert not found.hold() and not found.hold()
        assert caplog.text.count('zookeeper does not work: first') == n_told
        assert 'second' not in caplog.text
        service.error = None
        assert found.hold()
        service.acquired = False
    # An error without words is told by its kind.
    service.error = KeyError()
    assert not found.hold() and 'does not work: KeyError' in caplog.text


def test_no_driver_is_no_outage():
    with pytest.raises(exception.Invalid, match='backend_url'):
        make('nothing://h').hold()


def test_its_thread_renews_it_until_it_is_closed(monkeypatch):
    service = Database()
    found, _clock = served(monkeypatch, 'mysql://h/db', service)
    monkeypatch.setattr(found, '_lease_s', 0.03)
    found.start()
    assert found._has_tried.is_set() and found._thread.daemon
    patience.wait_for(lambda: service.told.count('rollback') > 2,
                      poll_s=0.002)
    found._lease_s = 5.0
    found.close()
    assert not found._thread.is_alive()
    assert service.told[-2:] == ['release', 'stop']


def test_a_start_waits_for_a_lease_at_most(monkeypatch):
    found, _clock = served(monkeypatch, 'mysql://h/db', Database())
    waited_s = []

    class Tried(threading.Event):
        def wait(self, timeout_s):
            waited_s.append(timeout_s)
            return super().wait(timeout_s)

    found._has_tried = Tried()
    found.start()
    assert waited_s == [LEASE_S] and found.is_held()
    found.close()


class Turns:
    """Ends a thread after some turns, and notes how long it waited."""

    def __init__(self):
        self.waited_s = []

    def wait(self, for_s):
        self.waited_s.append(for_s)
        return len(self.waited_s) == 3


def test_six_turns_make_a_lease(monkeypatch):
    found, _clock = served(monkeypatch, 'mysql://h/db', Database())
    found._stop = Turns()
    found._run()
    assert found._stop.waited_s == [LEASE_S / 6] * 3


def test_a_driver_does_not_load_eventlet(monkeypatch, tmp_path):
    """Nothing here uses it, but its library would if it is there."""
    monkeypatch.setitem(sys.modules, 'eventlet', sys)
    monkeypatch.delitem(sys.modules, 'eventlet')
    make(f'file://{tmp_path}/leader')._make()
    assert sys.modules['eventlet'] is None


def test_a_service_of_redis_is_tried_once_a_turn():
    coordinator = make('redis://127.0.0.1:1')._make()
    client = coordinator._make_client(
        coordinator._parsed_url, coordinator._options, 1)
    assert client.get_retry()._retries == 0


@pytest.mark.parametrize(('lease_s', 'lease'), [
    (0.2, '1'), (1.4, '1'), (1.6, '2'), (30.0, '30')])
def test_a_lease_of_a_service_is_whole_seconds(lease_s, lease):
    assert locks._with_lease('redis://h?timeout=7', lease_s) == (
        f'redis://h?lock_timeout={lease}&membership_timeout={lease}'
        '&timeout=7')


@pytest.mark.parametrize(('length', 'kept'), [(57, 57), (58, 57)])
def test_a_lock_has_a_name_that_mysql_takes(length, kept):
    conf = stored.conf(database={
        'connection': f'mysql+pymysql://u@h/{"n" * length}'})
    assert locks.name_of(conf) == b'virtco-' + b'n' * kept


def test_a_lock_may_be_elsewhere():
    conf = stored.conf(leadership={'backend_url': 'redis://h'})
    assert locks.url_of(conf) == 'redis://h'
    assert locks.of_database('mariadb+pymysql://u:p@h/db?charset=x') == (
        'mysql://u:p@h/db')


def test_a_process_has_a_name():
    assert locks.name_of_process() == f'{socket.gethostname()}:{os.getpid()}'
