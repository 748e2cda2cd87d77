# SPDX-License-Identifier: Apache-2.0

"""The thread of the scheduler loop: what wakes it, and how much it takes."""

import itertools
import time
import types

import pytest

from tests import patience
from virtco import metrics
from virtco import periodic
from virtco.decide import lateness
from virtco.decide import loop


class Time:
    """The processor's time of a thread that only computes.

    :ivar slept_s: each pause.
    """

    def __init__(self):
        self.used_s, self.slept_s = 3.0, []

    def thread_time(self):
        return self.used_s

    def monotonic(self):
        return sum(self.slept_s)

    def sleep(self, lasts_s):
        self.slept_s.append(lasts_s)


@pytest.fixture
def make():
    """Make a loop that computes what it is told to, and stop it."""
    made = []

    def make(compute, interval_s=600.0):
        found = loop.Loop(
            types.SimpleNamespace(scheduler=types.SimpleNamespace(
                interval_s=interval_s, wire_overhead_fraction=0.05)),
            None, None, None, metrics.Metrics())
        found.run_once = lambda: compute(found)
        made.append(found)
        return found

    yield make
    for found in made:
        found.stop()
        assert not found.is_alive()


def test_jobs_send_what_their_headers_take_too(make, monkeypatch):
    asked = []
    monkeypatch.setattr(lateness, 'Lateness', asked.append)
    make(counting([]))
    assert asked == [1.05]


def counting(turns):
    def compute(found):
        found._urgent = False
        turns.append(time.monotonic())
    return compute


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
    assert found.is_alive() and found.daemon


def test_it_computes_unasked_after_its_interval(make):
    found = make(counting(turns := []), interval_s=0.02)
    found.start()
    patience.wait_for(lambda: len(turns) > 3)
    assert turns[3] - turns[0] >= 3 * 0.02


def test_a_storm_of_requests_takes_half_a_core(make, monkeypatch):
    """The other half is for those who report, ask and are answered."""
    monkeypatch.setattr(loop, 'time', clock := Time())
    costs_s = [0.5, 0.25, 2.0]

    def compute(found):
        clock.used_s += costs_s[len(clock.slept_s)]
        found._stopping = len(clock.slept_s) == 2

    make(compute).run()
    assert clock.slept_s == costs_s


def test_placements_go_first_for_a_while(make, monkeypatch):
    monkeypatch.setattr(loop, 'time', clock := Time())
    costs_s = [0.01, 0.25, 2.0]

    def compute(found):
        clock.used_s += costs_s[len(clock.slept_s)]
        found._stopping = len(clock.slept_s) == 2

    found = make(compute)
    found.is_placing = lambda: True
    found.run()
    assert clock.slept_s == pytest.approx([0.09, 0.5, 2.0])


@pytest.mark.parametrize('n_busy, waits_s', [
    (0, 0.0), (3, 3 * periodic.LOOK_S), (10 ** 6, periodic.AHEAD_S)])
def test_it_begins_while_no_call_is_answered(make, monkeypatch, n_busy,
                                             waits_s):
    """But it does not wait long."""
    monkeypatch.setattr(loop, 'time', clock := Time())
    monkeypatch.setattr(periodic, 'time', clock)
    found = make(lambda found: setattr(found, '_stopping', True))
    busy = itertools.chain(itertools.repeat(True, n_busy),
                           itertools.repeat(False))
    found.is_answering = lambda within_s: next(busy)
    found.run()
    assert clock.monotonic() == pytest.approx(waits_s, abs=periodic.LOOK_S / 2)


def test_a_failure_is_counted_and_ends_nothing(make, monkeypatch):
    monkeypatch.setattr(loop, 'time', clock := Time())

    def compute(found):
        clock.used_s += 0.5
        found._stopping = len(clock.slept_s) == 2
        raise ValueError

    found = make(compute, interval_s=7.0)
    found.run()
    # Urgent all the time, it pauses all the same.
    assert clock.slept_s == [7.0, 0.5, 7.0, 0.5]
    failures = found._metrics.loop_failures.labels('scheduler')
    assert failures._value.get() == 2
