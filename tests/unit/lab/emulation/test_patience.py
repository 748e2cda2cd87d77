# SPDX-License-Identifier: Apache-2.0

"""Waiting is for progress: work, new words or numbers, not the clock."""

import os
import subprocess
import sys
import time

import pytest

from virtco_lab.emulation import patience
from virtco_lab.emulation import process

STALL_S = 0.6
BUSY = ('import time\nend = time.monotonic() + 1.6\n'
        'while time.monotonic() < end: pass')
ASLEEP = 'print("no news"); import time; time.sleep(600)'
RETRIES = ('import sys, time\nfor i in range(600):\n'
           '    print("try", i, flush=True); time.sleep(0.1)')


@pytest.fixture
def start(tmp_path):
    made = []

    def start(code, **kwargs):
        made.append(process.Child('the thing', [sys.executable, '-uc', code],
                                  tmp_path / 'log', **kwargs))
        return made[-1]

    yield start
    for child in made:
        child.stop()


def test_one_that_works_is_waited_for(start):
    """1.6 seconds of work, though only 0.6 without progress are allowed."""
    child = start(BUSY)
    process.wait_until(lambda: child.popen.poll() is not None, 'its end',
                       [child], stall_s=STALL_S)


@pytest.mark.parametrize('code', [ASLEEP, RETRIES])
def test_one_that_sleeps_or_tries_again_is_not(start, code):
    child = start(code)
    began_s = time.monotonic()
    with pytest.raises(process.NotReady, match=(
            r'(?s)a pig to fly did not happen: nothing advanced for 1 s.*'
            r'/log ends with:\n  (no news|try)')):
        process.wait_until(lambda: False, 'a pig to fly', [child], of=child,
                           stall_s=STALL_S)
    assert time.monotonic() - began_s >= STALL_S


@pytest.mark.parametrize('code', [
    # Words of a new sort, and then a new number of them.
    'import time\nfor c in "abcdefghij": print(c * 3); time.sleep(0.2)',
    'import time; time.sleep(1.6)'])
def test_new_words_and_numbers_are_progress(start, code):
    child = start(code)
    numbers = iter(range(10 ** 9))
    process.wait_until(
        lambda: child.popen.poll() is not None, 'its end', [child],
        progress=None if 'abc' in code else lambda: next(numbers),
        stall_s=1.5 * STALL_S)


def test_what_lasts_is_shown_with_its_last_words(start, monkeypatch):
    monkeypatch.setattr(process, '_SHOW_S', 0.2)
    child = start(ASLEEP)
    said = []
    with pytest.raises(process.NotReady):
        process.wait_until(lambda: False, 'a pig to fly', [child], of=child,
                           say=said.append, stall_s=STALL_S)
    assert said[-1].startswith('still waiting for a pig to fly, ')
    assert said[-1].endswith(' s: no news')


def test_lines_come_one_by_one_also_when_it_ended(start):
    child = start('print("one"); print("two")', piped=True)
    for wanted in ('one', 'two'):
        process.wait_until(child.has_line, 'a line', [child])
        assert child.read_line() == wanted + '\n'
    with pytest.raises(process.ProcessFailed, match='status 0'):
        process.wait_until(lambda: False, 'a third', [child])


def test_idle_clock_stands_while_someone_works():
    busy = subprocess.Popen([sys.executable, '-c', BUSY])
    try:
        working = patience.IdleClock(lambda: [busy.pid])
        nobody = patience.IdleClock(lambda: [])
        for _ in range(6):
            time.sleep(0.2)
            working.read_s(), nobody.read_s()
        assert nobody.read_s() >= 0.5
        assert working.read_s() < 0.5 * nobody.read_s()
    finally:
        busy.kill()
        busy.wait()


def test_times_are_with_or_without_what_ran():
    thread, ran_ns = (os.getpid(), os.getpid()), time.thread_time_ns()
    waits = patience.task_times([os.getpid()], only_waits=True)
    times = patience.task_times([os.getpid()])
    assert times[thread] - waits[thread] > 0.5 * ran_ns


def test_what_has_ended_has_no_times():
    child = subprocess.Popen(['true'])
    child.wait()
    assert patience.task_times([child.pid]) == {}


def test_progress_starts_the_idle_clock_anew():
    clock = patience.IdleClock(lambda: [])
    clock.note(1)
    for _ in range(3):
        time.sleep(0.6)
        clock.read_s()
    idle_s = clock.read_s()
    clock.note(1)
    assert clock.read_s() == idle_s > 0
    clock.note(2)
    assert clock.read_s() == 0


def test_family_is_this_process_and_its_children():
    child = subprocess.Popen(['sleep', '60'])
    try:
        assert {os.getpid(), child.pid} <= set(patience.family())
    finally:
        child.kill()
        child.wait()
