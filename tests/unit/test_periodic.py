# SPDX-License-Identifier: Apache-2.0

"""Work that comes again and again, and what a service manager is told."""

import logging
import socket
import threading
import time

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
        self.turns = periodic.Turns(self.counts)
        self.turns.every(interval_s, 'work', self.work)

    def work(self):
        self.n_turns += 1
        if self.error is not None:
            raise self.error

    def attempt(self):
        self.turns.attempt('work', self.work)

    def count(self, name, **labels):
        return self.counts.registry.get_sample_value(name, labels) or 0


@pytest.fixture
def bench():
    found = Bench()
    yield found
    found.turns.stop()


def wait_for(check):
    patience.wait_for(check, poll_s=0.002)


def test_turns_come_until_they_are_stopped(bench):
    assert not bench.turns.is_alive()
    bench.turns.start()
    wait_for(lambda: bench.n_turns >= 2)
    assert bench.turns.is_alive()
    # A program that ends does not wait for them.
    assert {thread.daemon for thread in bench.turns._threads} == {True}
    bench.turns.stop()
    assert not bench.turns.is_alive()
    n_turns = bench.n_turns
    time.sleep(0.01)
    assert bench.n_turns == n_turns


def test_a_first_turn_may_be_early_and_one_more_the_last():
    bench, order = Bench(60.0), []
    bench.turns.every(60.0, 'early', lambda: order.append('early'), first_s=0)
    bench.turns.every(60.0, 'last', lambda: order.append('last'), is_last=True)
    bench.turns.start()
    wait_for(lambda: order)
    # Those who wait notice what comes sooner.
    bench.turns.every(60.0, 'now', lambda: order.append('now'), first_s=0)
    wait_for(lambda: len(order) == 2)
    bench.turns.stop()
    assert order == ['early', 'now', 'last'] and bench.n_turns == 0


def test_the_last_turns_do_not_wait_for_one_that_hangs(bench, monkeypatch):
    monkeypatch.setattr(periodic, 'END_S', 0.01)
    goes_on, order = threading.Event(), []
    bench.turns.every(60.0, 'hang', lambda: order.append('hangs')
                      or goes_on.wait(60) and order.append('done'), first_s=0)
    bench.turns.every(60.0, 'last', lambda: order.append('last'), is_last=True)
    bench.turns.start()
    wait_for(lambda: order)
    bench.turns.end()
    assert order == ['hangs', 'last']
    goes_on.set()
    bench.turns.stop()
    assert order == ['hangs', 'last', 'done']


def test_a_turn_may_be_hastened():
    bench, goes_on = Bench(60.0), threading.Event()
    bench.turns.every(60.0, 'other', bench.turns.stop)
    bench.turns.every(60.0, 'slow', lambda: goes_on.wait(60), first_s=0)
    bench.turns.start()
    bench.turns.hasten('work', 0.0)
    wait_for(lambda: bench.n_turns == 1)
    # One that is late already, and one that comes early enough.
    bench.turns.hasten('work', time.monotonic() + 0.05)
    bench.turns.hasten('work', time.monotonic() + 60.0)
    wait_for(lambda: bench.n_turns == 2)
    goes_on.set()
    bench.turns.stop()


def test_a_turn_after_the_one_under_way_may_be_hastened():
    turns, n_begun = periodic.Turns(metrics.Metrics()), []
    goes_on = threading.Event()
    turns.every(60.0, 'slow', lambda: n_begun.append(1) or goes_on.wait(60),
                first_s=0)
    turns.start()
    wait_for(lambda: n_begun)
    turns.hasten('slow', 0.0)
    goes_on.set()
    wait_for(lambda: len(n_begun) == 2)
    # Once.
    wait_for(lambda: turns._due_s)
    assert turns._due_s['slow'] > time.monotonic() + 30.0
    turns.stop()


def test_turns_that_hang_keep_nothing_else_waiting(bench):
    """Each has its thread meanwhile, and does not overlap itself."""
    goes_on, hanging = threading.Event(), []

    def hang(number):
        hanging.append(number)
        goes_on.wait(60)

    for number in range(5):
        bench.turns.every(0.001, f'hang {number}',
                          lambda number=number: hang(number))
    bench.turns.start()
    wait_for(lambda: len(hanging) == 5)
    n_turns = bench.n_turns
    wait_for(lambda: bench.n_turns > n_turns + 5)
    assert sorted(hanging) == [*range(5)]
    assert len(bench.turns._threads) <= 5 + periodic.WAITING + 1
    goes_on.set()
    wait_for(lambda: len(hanging) > 10)
    bench.turns.stop()
    assert not bench.turns._threads


def test_threads_that_are_not_needed_end(bench):
    goes_on, n_begun = threading.Event(), []
    for number in range(5):
        bench.turns.every(
            60.0, f'hang {number}',
            lambda: n_begun.append(1) or goes_on.wait(60), first_s=0)
    bench.turns.start()
    wait_for(lambda: len(n_begun) == 5)
    goes_on.set()
    wait_for(lambda: len(bench.turns._threads) <= periodic.WAITING)


def test_without_a_further_thread_turns_wait_for_each_other(bench,
                                                            monkeypatch):
    bench.turns.start()
    wait_for(lambda: bench.n_turns)

    def refuse(_thread):
        raise RuntimeError("can't start new thread")

    goes_on, hangs = threading.Event(), threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, 'start', refuse)
        for number in range(2):
            bench.turns.every(0.001, f'hang {number}',
                              lambda: hangs.set() or goes_on.wait(60))
        hangs.wait(60)
        goes_on.set()
        n_turns = bench.n_turns
        wait_for(lambda: bench.n_turns > n_turns)


def test_a_stop_waits_for_what_is_under_way():
    bench, goes_on, order = Bench(60.0), threading.Event(), []
    bench.turns.every(60.0, 'slow', lambda: order.append('begun')
                      or goes_on.wait(60) and order.append('done'), first_s=0)
    bench.turns.every(60.0, 'last', lambda: order.append('last'), is_last=True)
    bench.turns.start()
    wait_for(lambda: order)
    threading.Timer(0.05, goes_on.set).start()
    bench.turns.stop()
    assert order == ['begun', 'done', 'last']


def test_what_fails_again_and_again_is_said_once(bench, caplog):
    bench.error = exception.NovaUnavailable(why='away')
    for _ in range(3):
        bench.attempt()
    assert len(caplog.messages) == 1 and 'work' in caplog.messages[0]
    assert bench.count('virtco_flush_failures_total') == 3
    bench.error = exception.NovaUnavailable(why='refused')
    bench.attempt()
    assert len(caplog.messages) == 2
    # After a turn that went well it is news again.
    bench.error = None
    bench.attempt()
    bench.error = exception.NovaUnavailable(why='refused')
    bench.attempt()
    assert len(caplog.messages) == 3
    assert bench.count('virtco_loop_failures_total', loop='work') == 0


def test_a_mistake_is_counted_and_logged(bench, caplog):
    bench.error = ZeroDivisionError('oops')
    for _ in range(2):
        bench.attempt()
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
