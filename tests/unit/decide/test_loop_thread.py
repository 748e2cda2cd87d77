# SPDX-License-Identifier: Apache-2.0

"""The thread of the scheduler loop: what wakes it, and how much it takes."""

import time
import types

import pytest

from tests import patience
from virtco import metrics
from virtco.decide import loop


@pytest.fixture
def make():
    """Make a loop that computes what it is told to, and stop it."""
    made = []

    def make(compute, interval_s=600.0):
        found = loop.Loop(
            types.SimpleNamespace(scheduler=types.SimpleNamespace(
                interval_s=interval_s, wire_overhead_fraction=0.05)),
            None, None, None, metrics.Metrics())
        found.run_once = compute(found)
        made.append(found)
        return found

    yield make
    for found in made:
        found.stop()
        assert not found.is_alive()


def counting(turns):
    def of(found):
        def run_once():
            found._urgent = False
            turns.append(time.monotonic())
        return run_once
    return of


def test_it_computes_at_once_and_when_it_is_woken(make):
    found = make(counting(turns := []))
    assert not found.is_alive()
    found.start()
    patience.wait_for(lambda: len(turns) == 1)
    # Not urgent: it waits for its time, which does not come.
    found.notify(False)
    for n_turns in (2, 3):
        found.notify(True)
        patience.wait_for(lambda n=n_turns: len(turns) == n)
    # It does not keep the process from ending.
    assert found.is_alive() and found._thread.daemon


def test_it_computes_unasked_after_its_interval(make):
    found = make(counting(turns := []), interval_s=0.02)
    found.start()
    patience.wait_for(lambda: len(turns) > 3)
    assert turns[3] - turns[0] >= 3 * 0.02


def test_a_storm_of_requests_takes_half_a_core(make):
    """The other half is for those who report, ask and are answered."""
    turns = []

    def of(found):
        def run_once():
            began_s = time.thread_time()
            while time.thread_time() - began_s < 0.01:
                pass
            turns.append(time.monotonic())
        return run_once

    found = make(of)
    found.start()
    patience.wait_for(lambda: len(turns) > 5)
    assert turns[5] - turns[0] >= 5 * 2 * 0.01


def test_a_failure_is_counted_and_ends_nothing(make):
    turns = []

    def of(found):
        def run_once():
            turns.append(time.monotonic())
            raise ValueError
        return run_once

    found = make(of, interval_s=0.02)
    found.start()
    patience.wait_for(lambda: len(turns) > 2)
    # A pause, though it is urgent all the time.
    assert turns[2] - turns[0] >= 2 * 0.02
    failures = found._metrics.loop_failures.labels('scheduler')
    assert failures._value.get() >= 2
