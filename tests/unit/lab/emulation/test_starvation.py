# SPDX-License-Identifier: Apache-2.0

"""How much a run's processes waited for a processor."""

import types

import pytest

from virtco_lab.emulation import starvation

_S = 10 ** 9
_REAL_STOLEN_S = starvation._stolen_s


@pytest.fixture
def kernel(monkeypatch):
    """Nanoseconds that threads ran and waited, and a clock; to be set."""
    state = {'now_s': 100.0, 'ran': {}, 'waited': {}, 'stolen_s': 0.0}

    def task_times(pids, only_waits=False):
        return {task: state['waited'].get(task, 0)
                + (0 if only_waits else ran)
                for task, ran in state['ran'].items() if task[0] in pids}
    monkeypatch.setattr(starvation.patience, 'task_times', task_times)
    monkeypatch.setattr(starvation, '_stolen_s', lambda: state['stolen_s'])
    monkeypatch.setattr(starvation.os, 'cpu_count', lambda: 2)
    monkeypatch.setattr(starvation.time, 'monotonic',
                        lambda: state['now_s'])
    return state


def test_the_thread_that_waited_most_counts(kernel):
    kernel['ran'] = {(1, 1): 5 * _S, (1, 2): 0, (2, 2): 0, (3, 3): 0}
    kernel['waited'] = {(2, 2): 4 * _S}
    watch = starvation.Watch(lambda: [1, 2])
    kernel['now_s'] += 10.0
    kernel['ran'] = {(1, 1): 6 * _S, (1, 2): 2 * _S, (2, 2): 0, (3, 3): 0}
    kernel['waited'] = {(1, 2): _S, (2, 2): 7 * _S, (3, 3): 9 * _S}
    usage = watch.read()
    assert usage.waited == pytest.approx(0.3)
    assert usage.ran == pytest.approx({1: 0.3, 2: 0.0})
    assert usage.ran_by([1, 2, 4]) == pytest.approx(0.3)


def test_what_a_hypervisor_steals_is_waited_for(kernel):
    kernel['stolen_s'] = 5.0
    watch = starvation.Watch(lambda: [])
    kernel['now_s'], kernel['stolen_s'] = 110.0, 9.0
    assert watch.read().waited == pytest.approx(0.2)


def test_nothing_to_look_at_waited_for_nothing(kernel):
    watch = starvation.Watch(lambda: [])
    kernel['now_s'] += 1.0
    assert watch.read() == starvation.Usage(0.0, {})


def test_a_thread_that_came_meanwhile_counts_from_its_start(kernel):
    kernel['ran'] = {(1, 1): 5 * _S}
    watch = starvation.Watch(lambda: [1])
    kernel['now_s'] += 4.0
    kernel['ran'] = {(1, 1): 4 * _S, (1, 9): 2 * _S}
    kernel['waited'] = {(1, 9): _S}
    usage = watch.read()
    # What counts less than before ran for nothing.
    assert usage.ran == pytest.approx({1: 0.5}, rel=1e-12)
    assert usage.waited == pytest.approx(0.25, rel=1e-12)


def test_a_thread_that_came_between_two_looks_did_not_wait(
        kernel, monkeypatch):
    monkeypatch.setattr(
        starvation.patience, 'task_times', lambda pids, only_waits=False: (
            {} if only_waits else {(1, 1): 4 * kernel['now_s']}))
    watch = starvation.Watch(lambda: [1])
    kernel['now_s'] += 1.0
    assert watch.read().ran == pytest.approx({1: 4e-9})


def test_what_is_not_told_is_not_stolen(monkeypatch):
    for times, stolen_s in ((types.SimpleNamespace(steal=2.5), 2.5),
                            (types.SimpleNamespace(), 0.0)):
        monkeypatch.setattr(starvation.psutil, 'cpu_times', lambda: times)
        assert _REAL_STOLEN_S() == stolen_s


def test_processors_that_nobody_counts_are_one(kernel, monkeypatch):
    monkeypatch.setattr(starvation.os, 'cpu_count', lambda: None)
    watch = starvation.Watch(lambda: [])
    kernel['now_s'], kernel['stolen_s'] = 110.0, 4.0
    assert watch.read().waited == pytest.approx(0.4)
