# SPDX-License-Identifier: Apache-2.0

"""How many threads answer requests."""

import threading

import pytest

from tests import patience
from virtco.api import listeners


class Task:
    """A request that is answered once the test says so."""

    def __init__(self):
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
