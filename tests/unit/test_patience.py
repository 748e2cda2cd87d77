# SPDX-License-Identifier: Apache-2.0


import subprocess
import sys
import time
import types

import pytest

from tests import patience
from virtco_lab.emulation import patience as lab_patience

BUSY = 'import time\nwhile time.process_time() < 1.0: pass'


def test_what_does_not_come_is_named_with_its_log(tmp_path):
    log = tmp_path / 'log'
    log.write_text('one\ntwo\n')
    with pytest.raises(AssertionError, match=r'(?s)a pig.*log ends with.*two'):
        patience.wait_for(lambda: False, 'a pig', 0.3, log)


def test_a_value_comes_back():
    values = iter([0, '', 'x'])
    assert patience.wait_for(lambda: next(values)) == 'x'


def test_what_waits_for_a_processor_is_waited_for(monkeypatch):
    """Ten seconds of starving beside a limit of half a second."""
    clock = iter(range(1000))
    starved = iter(range(10))
    waited_ns = [0]

    def look(_pids, only_waits):
        assert only_waits
        waited_ns[0] += next(starved, None) is not None and 1_000_000_000
        return {'thread': waited_ns[0]}

    fake = types.SimpleNamespace(monotonic=lambda: float(next(clock)),
                                 sleep=lambda _s: None)
    monkeypatch.setattr(patience, 'time', fake)
    monkeypatch.setattr(lab_patience, 'time', fake)
    monkeypatch.setattr(lab_patience, 'task_times', look)
    waiting = patience.Patience('it', 1.5)
    for _ in range(10):
        waiting.pause()
    with pytest.raises(AssertionError, match='it did not come'):
        for _ in range(3):
            waiting.pause()


def test_children_are_counted():
    """Two that share a processor wait for it about half the time each."""
    watch, begin_s = patience.Stopwatch(), time.monotonic()
    children = [subprocess.Popen(['taskset', '-c', '0', sys.executable, '-c',
                                  BUSY]) for _ in range(2)]
    pids = {child.pid for child in children}

    def starved_s():
        return sum(value for (pid, _thread), value
                   in patience.waited_ns().items() if pid in pids) / 1e9

    patience.wait_for(lambda: starved_s() > 0.2, 'a wait for a processor')
    # Both may wait at once, for a third.
    assert watch.seconds() <= max(time.monotonic() - begin_s - 0.2, 0)
    for child in children:
        assert patience.wait_end(child) == 0
