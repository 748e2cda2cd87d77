# SPDX-License-Identifier: Apache-2.0

"""Work on a thread of its own, and what a service manager is told."""

import logging
import socket
import threading

import pytest
from rich import console

from tests import patience
from virtco import exception
from virtco import metrics
from virtco import periodic
from virtco import screenshot
from virtco import systemd


class Bench:
    def __init__(self, interval_s=0.001):
        self.counts, self.n_turns, self.error = metrics.Metrics(), 0, None
        self.periodic = periodic.Periodic('work', interval_s, self.work,
                                          self.counts)

    def work(self):
        self.n_turns += 1
        if self.error is not None:
            raise self.error

    def count(self, name, **labels):
        return self.counts.registry.get_sample_value(name, labels) or 0


def test_turns_come_until_they_are_stopped():
    bench = Bench()
    assert not bench.periodic.is_alive()
    bench.periodic.stop()  # what never began has nothing to wait for
    bench = Bench()
    bench.periodic.start()
    patience.wait_for(lambda: bench.n_turns >= 2, poll_s=0.002)
    assert bench.periodic.is_alive()
    # A program that ends does not wait for it.
    assert {thread.daemon for thread in threading.enumerate()
            if thread.name == 'work'} == {True}
    bench.periodic.stop()
    assert not bench.periodic.is_alive()


def test_a_stop_may_not_wait():
    bench = Bench(60.0)
    bench.periodic.start()
    bench.periodic.stop(wait=False)
    patience.wait_for(lambda: not bench.periodic.is_alive(), poll_s=0.002)
    assert bench.n_turns == 0


def test_what_fails_again_and_again_is_said_once(caplog):
    bench = Bench()
    bench.error = exception.NovaUnavailable(why='away')
    for _ in range(3):
        bench.periodic.attempt()
    assert len(caplog.messages) == 1 and 'work' in caplog.messages[0]
    assert bench.count('virtco_flush_failures_total') == 3
    bench.error = exception.NovaUnavailable(why='refused')
    bench.periodic.attempt()
    assert len(caplog.messages) == 2
    # After a turn that went well it is news again.
    bench.error = None
    bench.periodic.attempt()
    bench.error = exception.NovaUnavailable(why='refused')
    bench.periodic.attempt()
    assert len(caplog.messages) == 3
    assert bench.count('virtco_loop_failures_total', loop='work') == 0


def test_a_mistake_is_counted_and_logged(caplog):
    bench = Bench()
    bench.error = ZeroDivisionError('oops')
    for _ in range(2):
        bench.periodic.attempt()
    assert bench.count('virtco_loop_failures_total', loop='work') == 2
    assert 'oops' in caplog.text


@pytest.mark.parametrize('is_abstract', [False, True])
def test_systemd_is_told(tmp_path, monkeypatch, is_abstract):
    address = (f'@virtco-{tmp_path.name}-{id(tmp_path)}' if is_abstract
               else str(tmp_path / 's'))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind('\0' + address[1:] if is_abstract else address)
        manager.settimeout(5)
        monkeypatch.setenv('NOTIFY_SOCKET', address)
        systemd.notify(READY=1, STATUS='Serving')
        assert manager.recv(100) == b'READY=1\nSTATUS=Serving'


def test_without_systemd_nobody_is_told(tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    monkeypatch.delenv('NOTIFY_SOCKET', raising=False)
    systemd.notify(READY=1)
    assert caplog.messages == []
    monkeypatch.setenv('NOTIFY_SOCKET', str(tmp_path / 'nobody'))
    systemd.notify(READY=1)
    assert 'READY=1' in caplog.text


def test_a_picture_needs_no_font_of_the_network(tmp_path):
    screen = console.Console(record=True, file=open('/dev/null', 'w'))
    screen.print('hello')
    screenshot.save(screen, tmp_path / 'x.svg', 'title')
    text = (tmp_path / 'x.svg').read_text()
    assert 'hello' in text and 'monospace' in text
    assert 'url(http' not in text and 'url("http' not in text
    assert '@font-face' not in text
