# SPDX-License-Identifier: Apache-2.0

"""How long a database server that stands still is waited for."""

import socket
import time

import psycopg2
from psycopg2 import extensions
import pytest
import sqlalchemy as sa

from virtco.db import bounds


@pytest.mark.parametrize('driver', ['mysql+pymysql', 'mariadb+pymysql'])
def test_mariadb_is_waited_for_by_the_driver(driver):
    url = bounds.limited(sa.make_url(f'{driver}://u@h/d?charset=utf8mb4'))
    assert url.query == {'charset': 'utf8mb4', 'connect_timeout': '5',
                         'read_timeout': '10', 'write_timeout': '10'}
    _, options = url.get_dialect()().create_connect_args(url)
    assert (options['connect_timeout'], options['read_timeout'],
            options['write_timeout']) == (5, 10, 10)


def test_postgresql_is_waited_for_by_a_callback(monkeypatch):
    found = []
    monkeypatch.setattr(extensions, 'set_wait_callback', found.append)
    url = bounds.limited(sa.make_url('postgresql+psycopg2://u@h/d'))
    assert url.query == {'connect_timeout': '5'}
    (wait,) = found
    assert (wait.func, wait.keywords) == (bounds._wait, {'answer_s': 10})


class Connection:
    """Wants what the test says, one after the other."""

    def __init__(self, *states):
        self._states = list(states)
        self.ours, self.theirs = socket.socketpair()

    def poll(self):
        return self._states.pop(0)

    def fileno(self):
        return self.ours.fileno()


@pytest.fixture
def make():
    made = []

    def call(*states):
        made.append(Connection(*states))
        return made[-1]
    yield call
    for one in made:
        one.ours.close()
        one.theirs.close()


def test_an_answer_ends_the_wait(make):
    made = make(extensions.POLL_WRITE, extensions.POLL_READ,
                extensions.POLL_OK)
    made.theirs.send(b'x')
    bounds._wait(made, 10)
    assert made._states == []


@pytest.mark.parametrize('state', [extensions.POLL_READ,
                                   extensions.POLL_WRITE])
def test_a_server_that_stands_still_is_an_error(make, state):
    made = make(*[state] * 3)
    if state == extensions.POLL_WRITE:
        made.ours.setblocking(False)
        try:
            while True:
                made.ours.send(b'x' * 65536)
        except BlockingIOError:
            pass
    began_s = time.monotonic()
    with pytest.raises(psycopg2.OperationalError, match='within 0.05 s'):
        bounds._wait(made, 0.05)
    assert time.monotonic() - began_s >= 0.05
    assert len(made._states) == 2
