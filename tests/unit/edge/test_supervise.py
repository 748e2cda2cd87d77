# SPDX-License-Identifier: Apache-2.0

"""Threads that die, and files that cannot be written."""

import errno
import resource
import threading
import types

from edge_module import kept_state as state
from edge_module import supervise


def test_work_that_dies_begins_anew_and_is_named():
    stop, again, told = threading.Event(), threading.Event(), []
    runs = []

    def work():
        runs.append(1)
        if len(runs) == 1:
            raise ValueError('a bug')
        again.set()
        stop.wait(20)

    supervised = supervise.Supervised('report', work, stop,
                                      lambda: told.append(supervised.problem))
    supervised.start()
    assert again.wait(20)
    assert 'report' in supervised.problem and 'a bug' in supervised.problem
    assert told == [supervised.problem]
    stop.set()


def test_work_that_lasts_is_well_again(monkeypatch):
    monkeypatch.setattr(supervise, '_FIRST_PAUSE_S', 0.01)
    now = types.SimpleNamespace(s=100.0)
    now.monotonic = lambda: now.s
    monkeypatch.setattr(supervise, 'time', now)
    stop, again = threading.Event(), threading.Event()
    runs = []

    def work():
        runs.append(1)
        if len(runs) == 1:
            now.s += 60.0
            raise ValueError('a bug')
        again.set()
        stop.wait(20)

    supervised = supervise.Supervised('ports', work, stop)
    supervised.start()
    assert again.wait(20)
    now.s += 4.9
    assert 'a bug' in supervised.problem
    now.s = 165.0
    assert supervised.problem is None
    stop.set()


def test_pauses_grow_to_five_seconds():
    pauses, daemons = [], set()

    def work():
        daemons.add(threading.current_thread().daemon)
        raise ValueError('a bug')

    stop = types.SimpleNamespace(is_set=lambda: len(pauses) == 7,
                                 wait=pauses.append)
    supervised = supervise.Supervised('ports', work, stop)
    supervised.start()
    supervised._thread.join(20)
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    # The program need not wait for its end.
    assert daemons == {True}


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path,
                                                          monkeypatch):
    files = state.StateDir(str(tmp_path))
    files.save('policy', {'generation': 1})

    def full(descriptor):
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr(state.os, 'fsync', full)
    for _ in range(3):
        files.save('policy', {'generation': 2})
    assert [path.name for path in tmp_path.iterdir()] == ['policy.json']
    assert files.load('policy') == {'generation': 1}


def test_running_out_of_file_descriptors_is_named():
    told = supervise.describe(OSError(errno.EMFILE, 'Too many open files'))
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert 'file descriptors' in told and str(limit) in told
    assert supervise.describe(OSError('another')) == 'another'
