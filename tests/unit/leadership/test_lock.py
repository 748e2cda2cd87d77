# SPDX-License-Identifier: Apache-2.0

"""The leader's lock: names, leases, and services that do not answer."""

import threading

import pytest

from tests import patience
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
