# SPDX-License-Identifier: Apache-2.0

"""Child processes: what they are given, and how they end."""

import os
import signal
import time
import types

import pytest

from virtco_lab.emulation import patience
from virtco_lab.emulation import process


@pytest.fixture(name='start')
def _start(tmp_path):
    made = []

    def start(code, **options):
        made.append(process.Child('the thing', ['sh', '-c', code],
                                  tmp_path / 'log', **options))
        return made[-1]

    yield start
    for child in made:
        child.stop(0.0)


def _ended(child):
    child.popen.wait()
    return (child._logs[-1].path).read_text()


def test_a_child_has_our_environment_no_proxy_and_its_own(start, monkeypatch):
    monkeypatch.setenv('OURS', 'inherited')
    monkeypatch.setenv('http_proxy', 'http://x')
    child = start('echo "$OURS $no_proxy $NO_PROXY $OWN"; cat; echo err >&2',
                  environment={'OWN': 'given', 'no_proxy': 'own'})
    # It reads nothing, and what it says is in its log.
    assert _ended(child) == 'inherited own * given\nerr\n'


def test_a_child_has_a_session_of_its_own(start):
    child = start('read word', piped=True)
    assert os.getsid(child.popen.pid) == child.popen.pid
    assert child.pids() == [child.popen.pid]
    family = start('sleep 60 & wait')
    deadline_s = time.monotonic() + 10
    while len(family.pids()) < 2 and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert family.pids()[0] == family.popen.pid
    assert len(family.pids()) == 2
    for pid in family.pids():
        os.kill(pid, signal.SIGKILL)
    family.popen.wait()
    assert family.pids() == []


def test_a_child_runs_in_its_namespace_and_ends_with_us(monkeypatch,
                                                        tmp_path):
    started = []
    monkeypatch.setattr(process.subprocess, 'Popen', lambda argv, **options: (
        started.append(argv), types.SimpleNamespace(stdin=None))[1])
    process.Child('x', ['a', 'b'], tmp_path / 'log', namespace='there')
    process.Child('x', ['a', 'b'], tmp_path / 'log', niceness=-3)
    assert started == [
        ['nsenter', '--net=/run/netns/there', 'nice', '-n', '0', 'setpriv',
         '--pdeathsig', 'TERM', 'a', 'b'],
        ['nice', '-n', '-3', 'setpriv', '--pdeathsig', 'TERM', 'a', 'b']]


@pytest.mark.parametrize(('niceness', 'priority'), [
    (-15, '20'), (0, '5'), (10, '1'), (-200, '99')])
def test_niceness_counts_at_real_time_priority_too(monkeypatch, niceness,
                                                   priority):
    """The kernel knows no niceness there, and packets waited for the agents.
    """
    monkeypatch.setattr(os, 'sched_getscheduler', lambda _: os.SCHED_RR)
    monkeypatch.setattr(os, 'sched_getparam', lambda _: os.sched_param(5))
    assert process._scheduled(niceness) == ['chrt', '--rr', priority]


def test_lines_go_both_ways(start):
    child = start('read one; echo got $one; read two; echo $two; exit 3',
                  piped=True)
    assert not child.has_line()
    child.write_line('first')
    assert child.read_line() == 'got first\n'
    child.check()
    child.write_line('second')
    assert child.read_line() == 'second\n'
    with pytest.raises(process.ProcessFailed, match=(
            r'the thing ended with status 3\. ')):
        child.read_line()
    with pytest.raises(process.ProcessFailed, match='status 3'):
        child.write_line('x' * 100_000)
        child.write_line('x')


def test_both_logs_are_told_the_own_one_first(start, tmp_path):
    own = tmp_path / 'own'
    child = start('echo out; exit 1', own_log=own)
    _ended(child)
    assert child.said() == f'{tmp_path}/log ends with:\n  out'
    assert child.last_line() == '(nothing)'
    own.write_text('first\nlast\n')
    assert child.said() == (f'{own} ends with:\n  first\n  last\n'
                            f'{tmp_path}/log ends with:\n  out')
    assert child.last_line() == 'last'
    with pytest.raises(process.ProcessFailed, match=(
            r'(?s)status 1\. .*own ends with:\n  first')):
        child.check()


def test_a_log_of_either_sort_advances(start, tmp_path):
    own = tmp_path / 'own'
    child = start('echo out', own_log=own)
    _ended(child)
    assert child.log_advanced() is True
    assert child.log_advanced() is False
    own.write_text('one\n')
    assert child.log_advanced() is True
    own.write_text('one\n')
    assert child.log_advanced() is False


@pytest.mark.parametrize(('code', 'grace_s', 'status'), [
    ('trap "exit 5" TERM; echo; while :; do sleep 0.01; done', 20, 5),
    ('trap "" TERM; echo; while :; do sleep 0.01; done', 0.05,
     -signal.SIGKILL), ('echo; exit 4', 20, 4)])
def test_a_child_is_ended_gently_at_first(start, code, grace_s, status):
    child = start(code, piped=True)
    assert child.read_line() == '\n'
    if status == 4:
        child.popen.wait()
    child.stop(grace_s)
    assert child.popen.returncode == status
    child.stop(grace_s)


def test_a_child_that_reads_ends_with_its_input(start):
    child = start('cat; exit 6', piped=True)
    child.popen.terminate = lambda: None
    child.stop(20)
    assert child.popen.returncode == 6


# Waiting.

class Clock:
    now_s = 100.0

    def __init__(self):
        self.waits_s = []

    def monotonic(self):
        return self.now_s

    def sleep(self, wait_s):
        self.waits_s.append(wait_s)
        self.now_s += 4.0


@pytest.fixture(name='clock')
def _clock(monkeypatch):
    found = Clock()
    found.idle_s, found.notes = 0.0, []
    monkeypatch.setattr(process, 'time', found)
    monkeypatch.setattr(process.patience, 'IdleClock', lambda pids: (
        types.SimpleNamespace(
            note=lambda what: found.notes.append((what, list(pids()))),
            read_s=lambda: found.idle_s)))
    return found


class Child:
    def __init__(self, advances=(), line='x'):
        self._advances, self._line = list(advances), line
        self.n_checks = 0

    def check(self):
        self.n_checks += 1

    def log_advanced(self):
        return self._advances.pop(0) if self._advances else False

    def pids(self):
        return [7, 8]

    def last_line(self):
        return self._line

    def said(self):
        return 'its words'


def test_what_is_so_already_is_not_waited_for(clock):
    process.wait_until(lambda: True, 'x', [Child()])
    assert not clock.waits_s and not clock.notes


def test_words_and_numbers_of_all_children_are_progress(clock):
    answers = iter((False, False, False, True))
    numbers = iter((5, 5, 6))
    one, other = Child([True, False, True]), Child([True])
    process.wait_until(lambda: next(answers), 'x', [one, other],
                       progress=lambda: next(numbers))
    assert clock.notes == [(progress, [7, 8, 7, 8]) for progress in (
        (2, 5), (2, 5), (3, 6))]
    assert one.n_checks == other.n_checks == 3
    assert clock.waits_s == [0.1, 0.1, 0.1]
    answers = iter((False, True))
    process.wait_until(lambda: next(answers), 'x', interval_s=0.5)
    assert clock.notes[-1] == ((0, None), []) and clock.waits_s[-1] == 0.5


@pytest.mark.parametrize(('idle_s', 'is_over'), [(9.0, False), (9.1, True)])
def test_what_does_not_advance_is_given_up(clock, idle_s, is_over):
    clock.idle_s = idle_s
    answers = iter((False, True))
    if is_over:
        with pytest.raises(process.NotReady, match=(
                'x did not happen: nothing advanced for 9 s. its words')):
            process.wait_until(lambda: next(answers), 'x', of=Child(),
                               stall_s=9.0)
    else:
        process.wait_until(lambda: next(answers), 'x', stall_s=9.0)


def test_what_lasts_is_told_each_ten_seconds(clock):
    answers = iter([False] * 7 + [True])
    said = []
    process.wait_until(lambda: next(answers), 'a pig', of=Child(
        line='y' * 200), say=said.append)
    # Looked at each four seconds.
    assert said == [f'still waiting for a pig, {at_s} s: {"y" * 120}'
                    for at_s in (12, 24)]
    answers = iter([False] * 4 + [True])
    process.wait_until(lambda: next(answers), 'a pig', say=said.append)
    assert said[2:] == ['still waiting for a pig, 12 s']


# Logs.

def test_a_log_advances_by_lines_unlike_all_before(tmp_path):
    path = tmp_path / 'log'
    path.write_text('old\n')
    log = patience.Log(path)
    assert log.advanced() is False
    for text, is_news in (('old\n', True), ('try 1 of a1b2\n', True),
                          ('try 22 of 99ff\n', False), ('new\n', True),
                          ('old\ntry 3 of 4\n', False), ('', False)):
        with path.open('a') as file:
            file.write(text)
        assert log.advanced() is is_news, text
    assert log.tail(2) == ['old', 'try 3 of 4']
    path.write_text(''.join(f'{n}\n' for n in range(30)))
    assert log.tail() == [str(n) for n in range(20, 30)]
    none = patience.Log(tmp_path / 'none')
    assert none.advanced() is False and none.tail() == ['(nothing)']
    (tmp_path / 'none').write_text('a\n')
    assert none.advanced() is True


@pytest.fixture(name='idle')
def _idle(monkeypatch):
    """A clock of idleness whose time and tasks are the test's."""
    found = types.SimpleNamespace(now_s=10.0, tasks={}, asked=[])
    monkeypatch.setattr(patience, 'time', types.SimpleNamespace(
        monotonic=lambda: found.now_s))
    monkeypatch.setattr(patience, 'task_times', lambda pids, only_waits: (
        found.asked.append((list(pids), only_waits)), dict(found.tasks))[1])
    return found


def test_seconds_count_in_which_no_thread_had_work(idle):
    clock = patience.IdleClock(lambda: [5])
    idle.tasks = {(5, 5): 10 ** 9, (5, 6): 0}
    idle.now_s += 0.49
    assert clock.read_s() == 0.0 and not idle.asked
    # The first look is where it begins.
    idle.now_s += 0.02
    assert clock.read_s() == 0.0
    assert idle.asked == [([5], False)]
    # The one that worked longest: 0.3 of 1 s.
    idle.tasks = {(5, 5): 1_100_000_000, (5, 6): 300_000_000}
    idle.now_s += 1.0
    assert clock.read_s() == pytest.approx(0.7)
    # One that came meanwhile worked all the time, and longer.
    idle.tasks[5, 7] = 2_500_000_000
    idle.now_s += 2.0
    assert clock.read_s() == pytest.approx(0.7)
    idle.tasks = {}
    idle.now_s += 1.5
    assert clock.read_s() == pytest.approx(2.2)
    clock.note('new')
    assert clock.read_s() == 0.0


def test_work_may_count_as_idle(idle):
    clock = patience.IdleClock(lambda: [5], is_work_idle=True)
    idle.now_s += 1.0
    clock.read_s()
    assert idle.asked == [([5], True)]
