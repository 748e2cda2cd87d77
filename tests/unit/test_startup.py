# SPDX-License-Identifier: Apache-2.0

"""What a start says of itself."""

import logging
import socket
import threading

import pytest

from tests import patience
from virtco import startup


def test_a_step_is_told_and_told_again_while_it_lasts(caplog, monkeypatch):
    monkeypatch.setattr(startup, 'STILL_S', 0.001)
    caplog.set_level(logging.INFO)
    start = startup.Startup()
    with start.step('reading'):
        assert start.why() == 'the controller is starting: reading'
        assert start.document().what == 'reading'
        while 'Still reading, for 0 s.' not in caplog.messages:
            pass
    assert caplog.messages[0] == 'Starting: reading.'


def test_when_it_is_over_nothing_is_being_done():
    start = startup.Startup()
    start.ready()
    assert start.what is None
    assert start.why() is None
    start.failed('the planner does not work')
    assert start.what is None
    assert start.why() == 'the planner does not work'


@pytest.fixture
def manager(tmp_path, monkeypatch):
    """A service manager, and what it was told."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as found:
        found.bind(str(tmp_path / 's'))
        found.settimeout(5)
        monkeypatch.setenv('NOTIFY_SOCKET', str(tmp_path / 's'))
        yield lambda: found.recv(200).decode()


def test_the_service_manager_is_told_of_each_step(manager):
    start = startup.Startup()
    assert start.what == 'its first step'
    with start.step('reading'):
        assert manager() == 'STATUS=Starting: reading'
    start.ready()
    assert manager() == 'READY=1\nSTATUS=Serving'
    start.failed('no planner')
    assert manager() == 'STATUS=Failing: no planner'
    start.stopping()
    assert manager() == 'STOPPING=1'


def test_a_step_that_is_over_is_not_told_again(monkeypatch):
    monkeypatch.setattr(startup, 'STILL_S', 3600.0)
    start = startup.Startup()

    def reminders():
        return [thread for thread in threading.enumerate()
                if thread.name == 'startup' and thread not in before]

    before = set(threading.enumerate())
    with pytest.raises(KeyError), start.step('reading'):
        (reminder,) = reminders()
        assert reminder.daemon
        raise KeyError
    patience.wait_for(lambda: not reminders(), poll_s=0.002)
    document = start.document()
    assert 0 <= document.for_s < 60
    assert document.for_s == round(document.for_s, 3)
    assert (document.status, document.since) == (
        'starting', start.since)
