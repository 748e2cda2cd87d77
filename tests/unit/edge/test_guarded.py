# SPDX-License-Identifier: Apache-2.0

"""The agent's side of the helper: questions, its start, and its end."""

import concurrent.futures
import os
import pwd
import subprocess
import threading
import time
import types

from oslo_config import cfg
from oslo_privsep import priv_context
import pytest

from edge_module.privileged import guarded
from virtco import exception


@pytest.fixture
def channel(monkeypatch):
    """A channel to a helper that answers."""
    found = types.SimpleNamespace(running=True, lock=threading.Lock(),
                                  outstanding_msgs={})
    monkeypatch.setattr(guarded.context, 'channel', found)
    return found


def test_a_question_reaches_the_helper(channel, monkeypatch):
    asked = []
    monkeypatch.setattr(guarded, 'call', guarded.perform)
    monkeypatch.setattr(guarded.kernel, 'tc_change',
                        lambda changes: asked.append(changes) or [5])
    assert guarded.alive() and guarded.tc_change([]) == [5]
    assert asked == [[]]


def test_the_helpers_time_is_that_of_its_process(monkeypatch):
    monkeypatch.setattr(guarded, '_helper_pid', os.getpid())
    before_s = time.process_time()
    assert before_s <= guarded.cpu_s() <= time.process_time()


@pytest.mark.parametrize('channel', [
    None, types.SimpleNamespace(running=False)])
def test_without_a_helper_nothing_is_asked(channel, monkeypatch):
    asked = []
    monkeypatch.setattr(guarded.context, 'channel', channel)
    monkeypatch.setattr(guarded, 'call', lambda *call: asked.append(call))
    assert not guarded.alive()
    with pytest.raises(exception.KernelRefused) as caught:
        guarded.tc_change([])
    assert caught.value.kwargs == {'what': 'make the call tc_change',
                                   'count': 1, 'why': 'the helper is gone'}
    assert asked == []


def test_what_the_helper_refuses_is_an_error(channel, monkeypatch):
    monkeypatch.setattr(guarded, 'call', guarded.perform)
    with pytest.raises(exception.KernelRefused, match='tc_change: '):
        guarded.tc_change([7])


def test_all_that_wait_hear_of_the_helpers_end(channel):
    """Whoever waits for the process itself still can."""
    waiting = concurrent.futures.Future()
    channel.outstanding_msgs[3] = waiting
    with subprocess.Popen('cat', stdin=subprocess.PIPE) as helper:
        thread = threading.Thread(target=guarded._tell_of_end,
                                  args=(helper.pid,))
        thread.start()
        thread.join(0.02)
        assert channel.running and not waiting.done()
        helper.stdin.close()
        assert isinstance(waiting.exception(20), ConnectionResetError)
        thread.join(20)
        assert not guarded.alive()
        assert helper.wait(20) == 0


def test_privileges_are_dropped_once_the_helper_stands(monkeypatch):
    """The groups before the user, who could not change them."""
    steps = []
    options = cfg.CONF[guarded._SECTION]
    told = threading.Event()

    def note(name):
        return lambda *values: steps.append((name, *values))

    def start(method):
        steps.append(('start', method, options.user, options.group,
                      options.helper_command))

    def tell_of_end(pid):
        steps.append(('watch', pid, threading.current_thread().daemon))
        told.set()

    def initgroups(*values):
        assert told.wait(20)
        steps.append(('initgroups', *values))

    monkeypatch.setattr(guarded.ctypes, 'CDLL', lambda name: (
        types.SimpleNamespace(prctl=note('prctl'))))
    monkeypatch.setattr(guarded.context, 'start', start)
    monkeypatch.setattr(guarded, 'seal', lambda: 4711)
    monkeypatch.setattr(guarded, '_helper_pid', 0)
    monkeypatch.setattr(guarded, '_tell_of_end', tell_of_end)
    monkeypatch.setattr(guarded.os, 'initgroups', initgroups)
    for name in 'setgid', 'setuid':
        monkeypatch.setattr(guarded.os, name, note(name))
    user, helper = pwd.getpwnam('daemon'), pwd.getpwnam('nobody')
    try:
        guarded.start_and_drop('daemon', 'nobody')
    finally:
        for name in 'user', 'group', 'helper_command':
            cfg.CONF.clear_override(name, guarded._SECTION)
    assert guarded._helper_pid == 4711
    # PR_SET_NO_NEW_PRIVS of prctl(2); its other arguments must be zero.
    assert steps == [
        ('prctl', 38, 1, 0, 0, 0),
        ('start', priv_context.Method.FORK, str(helper.pw_uid),
         str(helper.pw_gid), 'false'),
        ('watch', 4711, True), ('initgroups', 'daemon', user.pw_gid),
        ('setgid', user.pw_gid), ('setuid', user.pw_uid)]
