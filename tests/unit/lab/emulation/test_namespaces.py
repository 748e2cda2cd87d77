# SPDX-License-Identifier: Apache-2.0

"""Names, owners and remains of runs, in directories of the test's own."""

import contextlib
import errno
import os
import pathlib
import signal
import stat
import subprocess
import threading

import pytest

from virtco_lab.emulation import janitor
from virtco_lab.emulation import namespaces


@pytest.fixture(name='there')
def _there(monkeypatch, tmp_path):
    """No namespaces, but those that the test names."""
    names = []
    monkeypatch.setattr(namespaces, 'RUNS_DIR', tmp_path / 'a' / 'runs')
    monkeypatch.setattr(namespaces, '_MEMORY_DIR', tmp_path / 'memory')
    monkeypatch.setattr(namespaces, '_NETNS_DIR', tmp_path / 'netns')
    monkeypatch.setattr(namespaces.netns, 'listnetns', lambda: names)
    return names


def _mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_run_is_claimed_by_this_process(there, tmp_path):
    run, other = namespaces.new_run(), namespaces.new_run()
    assert run != other
    assert len(run) == 6 and int(run, 16) >= 0
    assert _mode(namespaces.run_dir(run)) == 0o700
    pid, _started = (namespaces.run_dir(run) / 'owner').read_text().split()
    assert int(pid) == os.getpid()
    assert not namespaces.is_stale(run)
    assert namespaces.list_runs() == {run, other}
    assert _mode(namespaces.RUNS_DIR) & 0o700 == 0o700


def test_a_run_is_stale_once_its_owner_is_gone(there):
    run = namespaces.new_run()
    owner = namespaces.run_dir(run) / 'owner'
    assert namespaces.is_stale('000000')
    pid, started = owner.read_text().split()
    # Another process has its number by now.
    owner.write_text(f'{pid} {int(started) + 1}')
    assert namespaces.is_stale(run)
    with subprocess.Popen(['sleep', '60']) as process:
        owner.write_text(
            f'{process.pid} {namespaces._started(process.pid)}')
        assert not namespaces.is_stale(run)
        process.kill()
    assert namespaces.is_stale(run)
    owner.write_text('nonsense')
    assert namespaces.is_stale(run)


def test_the_start_of_a_process_is_its_own(there):
    started = namespaces._started(os.getpid())
    with subprocess.Popen(['sleep', '60']) as process:
        later = namespaces._started(process.pid)
        process.kill()
    uptime_s = float(pathlib.Path('/proc/uptime').read_text().split()[0])
    assert started <= later <= uptime_s * os.sysconf('SC_CLK_TCK') + 1
    assert later > started - 1


def test_files_of_a_run_are_in_memory_where_there_is_any(there, tmp_path):
    run = namespaces.new_run()
    assert namespaces.scratch_dir(run) == namespaces.run_dir(run)
    (tmp_path / 'memory').mkdir()
    for _ in range(2):
        path = namespaces.scratch_dir(run)
        assert path == tmp_path / 'memory' / f'virtco-emu-{run}'
        assert _mode(path) == 0o700


def test_names_tell_a_run_from_anything_else(there):
    there += ['virtco-emu-abc123-h0', 'virtco-emu-abc123-core',
              'virtco-emu-def456-h0', 'virtco-emu-xyz123-h0', 'other',
              'virtco-emu-abc123', 'a-virtco-emu-abc123-h0']
    assert namespaces.name('abc123', 'h0') == 'virtco-emu-abc123-h0'
    assert namespaces.list_names('abc123') == [
        'virtco-emu-abc123-core', 'virtco-emu-abc123-h0']
    assert len(namespaces.list_names()) == 3
    assert namespaces.list_runs() == {'abc123', 'def456'}
    run = namespaces.new_run()
    (namespaces.RUNS_DIR / '.fresh').mkdir()
    assert namespaces.list_runs() == {'abc123', 'def456', run}
    assert namespaces.path('x') == str(namespaces._NETNS_DIR / 'x')


def test_stale_runs_are_swept_and_no_others(there, monkeypatch, tmp_path):
    mine = namespaces.new_run()
    there += ['virtco-emu-fff456-h0', 'virtco-emu-abc123-h0',
              'virtco-emu-abc123-h1', f'virtco-emu-{mine}-h0']
    removed, ended = [], []
    monkeypatch.setattr(namespaces.netns, 'remove', removed.append)
    monkeypatch.setattr(namespaces, '_end_processes',
                        lambda *words: ended.append(words))
    (tmp_path / 'memory').mkdir()
    left = namespaces.scratch_dir('abc123')
    assert namespaces.sweep() == ['abc123', 'fff456']
    assert removed == ['virtco-emu-abc123-h0', 'virtco-emu-abc123-h1',
                       'virtco-emu-fff456-h0']
    assert ended == [(removed[:2], 3.0), (removed[2:], 3.0)]
    assert not left.exists()
    assert namespaces.run_dir(mine).exists()
    namespaces.release(mine, 0.5)
    assert not namespaces.run_dir(mine).exists()
    assert ended[-1] == ([f'virtco-emu-{mine}-h0'], 0.5)


def test_a_namespace_that_is_gone_is_removed(monkeypatch):
    def remove(_name):
        raise FileNotFoundError

    monkeypatch.setattr(namespaces.netns, 'remove', remove)
    namespaces.remove('x')


@pytest.fixture(name='inside')
def _inside(there, tmp_path):
    """The namespace of this process, by a name."""
    (tmp_path / 'netns').mkdir()
    (tmp_path / 'netns' / 'here').symlink_to('/proc/self/ns/net')
    return ['here', 'gone']


def test_processes_in_namespaces_are_found_but_this_one(inside):
    with subprocess.Popen(['sleep', '60']) as process:
        assert process.pid in namespaces._pids_in(inside)
        assert os.getpid() not in namespaces._pids_in(inside)
        assert namespaces._pids_in(['gone']) == []
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        # One that nobody waited for is no process any more.
        assert process.pid not in namespaces._pids_in(inside)


@pytest.mark.parametrize(('code', 'number'), [
    ('echo; read word', signal.SIGTERM),
    ('trap "" TERM; echo; read word', signal.SIGKILL)])
def test_processes_are_ended_gently_first(monkeypatch, code, number):
    with subprocess.Popen(['sh', '-c', code], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        monkeypatch.setattr(namespaces, '_pids_in', lambda names: (
            [process.pid] if names == ['x'] and process.poll() is None
            else []))
        namespaces._end_processes(['x'], 0.1 if (
            number == signal.SIGKILL) else 60)
        assert process.wait() == -number


def test_who_has_ended_meanwhile_is_no_error(monkeypatch):
    told = []

    def kill(pid, number):
        told.append((pid, number))
        raise ProcessLookupError

    monkeypatch.setattr(namespaces.os, 'kill', kill)
    monkeypatch.setattr(namespaces, '_pids_in', lambda names: [5, 6])
    namespaces._end_processes(['x'], -1.0)
    assert told == [(5, signal.SIGTERM), (6, signal.SIGTERM),
                    (5, signal.SIGKILL), (6, signal.SIGKILL)]


@pytest.mark.parametrize('fails', [False, True])
def test_a_thread_leaves_a_namespace_as_it_came(monkeypatch, fails):
    came = os.stat('/proc/thread-self/ns/net').st_ino
    entered = []

    def setns(name, flags):
        entered.append(os.fstat(name).st_ino if isinstance(name, int)
                       else name)

    def function():
        assert entered == ['x']
        return 1 / 0 if fails else 5

    monkeypatch.setattr(namespaces.netns, 'setns', setns)
    with pytest.raises(ZeroDivisionError) if (
            fails) else contextlib.nullcontext():
        assert namespaces.call('x', function) == 5
    assert entered == ['x', came]


def test_a_function_is_called_in_a_thread_that_has_entered(monkeypatch):
    entered = []
    monkeypatch.setattr(namespaces.netns, 'setns', lambda name, flags: (
        entered.append((name, flags, threading.current_thread()))))
    with namespaces.executor('x', 3) as pool:
        assert pool._max_workers == 3
        found = pool.submit(threading.current_thread).result()
    assert entered == [('x', 0, found)]
    assert found is not threading.main_thread()
    assert found.name.startswith('x')


@pytest.mark.parametrize('status', [0, -1])
def test_a_namespace_is_made_in_a_thread_of_its_own(monkeypatch, status):
    attached = []

    class Library:
        def __init__(self, name, use_errno):
            assert name is None and use_errno

        def unshare(self, flags):
            assert flags == 0x40000000
            return status

    monkeypatch.setattr(namespaces.ctypes, 'CDLL', Library)
    monkeypatch.setattr(namespaces.ctypes, 'get_errno', lambda: errno.EPERM)
    monkeypatch.setattr(namespaces.netns, 'attach',
                        lambda *words: attached.append(words))
    if status:
        with pytest.raises(PermissionError) as caught:
            namespaces.create('x')
        assert caught.value.filename == 'x' and not attached
    else:
        namespaces.create('x')
        assert attached == [('x', 'thread-self')]


# The janitor.

def test_a_janitor_releases_the_run_once_its_owner_is_gone(monkeypatch,
                                                           tmp_path):
    released = tmp_path / 'released'
    popen = subprocess.Popen
    started = []

    def start(argv, stdin, start_new_session):
        started.append(argv[1:])
        assert start_new_session
        return popen(['sh', '-c', f'cat; echo {argv[-1]} >{released}'],
                     stdin=stdin, start_new_session=True)

    monkeypatch.setattr(janitor.subprocess, 'Popen', start)
    one = janitor.Janitor('abc123')
    assert started == [['-m', 'virtco_lab.emulation.janitor', 'abc123']]
    assert not released.exists()
    one.dismiss()
    assert released.read_text() == 'abc123\n'


def test_a_janitor_is_deaf_to_signals_and_reads_to_the_end(monkeypatch):
    story = []
    monkeypatch.setattr(janitor.signal, 'signal',
                        lambda *words: story.append(words))
    monkeypatch.setattr(janitor.sys, 'argv', ['x', 'abc123'])
    monkeypatch.setattr(janitor.sys, 'stdin', type('Stdin', (), {
        'buffer': type('Buffer', (), {
            'read': staticmethod(lambda: story.append('read'))})}))
    monkeypatch.setattr(janitor.namespaces, 'release', story.append)
    janitor.main()
    assert story == [*((number, signal.SIG_IGN) for number in (
        signal.SIGINT, signal.SIGTERM, signal.SIGHUP)), 'read', 'abc123']
