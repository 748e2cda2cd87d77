# SPDX-License-Identifier: Apache-2.0

"""How many threads answer requests."""

import threading
import types

import pytest

from tests import patience
from virtco.api import listeners


class Task:
    """A request that is answered once the test says so."""

    def __init__(self, path='/v1/coflows'):
        self.requests = [types.SimpleNamespace(path=path)]
        self.began, self.may_end = threading.Event(), threading.Event()

    def service(self):
        self.began.set()
        assert self.may_end.wait(60)

    def cancel(self):
        """waitress does not cancel what runs."""


@pytest.mark.parametrize(('most', 'n_tasks', 'n_threads'), [
    (6, 0, 4), (2, 0, 2), (6, 3, 4), (6, 4, 4), (6, 5, 5), (6, 9, 6)])
def test_threads_come_as_they_are_needed(most, n_tasks, n_threads):
    found = listeners.Dispatcher(most)
    tasks = [Task() for _ in range(n_tasks)]

    def is_idle(n):
        return lambda: len(found.threads) - found.active_count == n

    patience.wait_for(is_idle(min(most, 4)), 'threads that wait')
    for number, one in enumerate(tasks):
        found.add_task(one)
        if number < most:
            assert one.began.wait(60)
    assert len(found.threads) == n_threads
    for one in tasks:
        one.may_end.set()
    for one in tasks:
        assert one.began.wait(60)
    patience.wait_for(is_idle(n_threads), 'the end of all')
    found.shutdown()
    assert not found.threads


def test_idle_threads_end_one_by_one():
    found = listeners.Dispatcher(12)
    many = [Task() for _ in range(12)]
    for one in many:
        found.add_task(one)
    assert len(found.threads) == 12
    for one in many:
        one.may_end.set()
    for n_threads in (*range(11, 3, -1), 4, 4):
        patience.wait_for(lambda: not found.active_count, 'idle threads')
        one = Task()
        found.add_task(one)
        patience.wait_for(lambda n=n_threads: len(found.threads) == n,
                          f'{n_threads} threads')
        one.may_end.set()
    found.shutdown()


def test_a_request_without_a_path_waits_like_others():
    """Of what is no HTTP waitress knows no path."""
    found = listeners.Dispatcher(1)
    first, garbage = Task(), Task()
    garbage.requests = [types.SimpleNamespace()]
    for one in (first, garbage):
        found.add_task(one)
        one.may_end.set()
    assert garbage.began.wait(60)
    found.shutdown()


def test_monitoring_waits_for_nobody():
    """All threads wait for a database that hangs, and more requests do."""
    found = listeners.Dispatcher(2)
    others = [Task() for _ in range(4)]
    for one in others:
        found.add_task(one)
    asked = [Task('/health'), Task('/metrics')]
    for one in asked:
        found.add_task(one)
    for one in asked:
        assert one.began.wait(5)
    assert not others[-1].began.is_set()
    for one in (*asked, *others):
        one.may_end.set()
    assert others[-1].began.wait(60)
    found.shutdown()
    assert not found.threads
