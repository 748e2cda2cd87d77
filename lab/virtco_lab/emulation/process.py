# SPDX-License-Identifier: Apache-2.0

"""Child processes of a run, inside its namespaces."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import os
import pathlib
import queue
import subprocess
import sys
import threading
import time
from typing import Any

from virtco import exception
from virtco_lab.emulation import namespaces
from virtco_lab.emulation import patience

# The machine's proxies, if any, do not reach into the namespaces.
_NO_PROXY = {'no_proxy': '*', 'NO_PROXY': '*'}


_NO_CHANGE: dict[str, str] = {}
# Seconds of waiting after which the last line of the awaited process is shown.
_SHOW_S = 10.0
_SHOWN = 120

Say = Callable[[str], object]
#: Group -> option -> value.
Options = Mapping[str, Mapping[str, Any]]


class ProcessFailed(exception.VirtcoException):
    """A child process ended while it was needed."""

    msg_fmt = '%(what)s ended with status %(status)s. %(said)s'


class NotReady(exception.VirtcoException):
    """A wait was given up because nothing advanced for too long."""

    msg_fmt = ('%(what)s did not happen: nothing advanced for %(stall_s).0f '
               's. %(said)s')


def _scheduled(niceness: int) -> list[str]:
    """Return the command that changes our priority by a niceness."""
    policy = os.sched_getscheduler(0)
    if policy not in (os.SCHED_FIFO, os.SCHED_RR):
        return ['nice', '-n', str(niceness)]
    return ['chrt', '--rr', str(min(
        max(os.sched_getparam(0).sched_priority - niceness,
            os.sched_get_priority_min(policy)),
        os.sched_get_priority_max(policy)))]


class Child:
    """A process that dies with this one and logs to a file.

    Start it from the main thread: the kernel ends it with the *thread* that
    started it. It has a session of its own, so that Ctrl-C reaches the
    owner alone, which then stops its children in order.
    """

    def __init__(self, what: str, argv: Sequence[str],
                 log: pathlib.Path, namespace: str | None = None,
                 piped: bool = False, own_log: pathlib.Path | None = None,
                 environment: Mapping[str, str] = _NO_CHANGE,
                 niceness: int = 0):
        """Keep the command and the files of its logs.

        :param log: file of its output.
        :param own_log: file to which it logs itself.
        :param environment: environment in addition to ours.
        :param niceness: added to ours; less means more processor time. Where
            we run at a real-time priority it is subtracted from that.
        """
        self.what = what
        self._logs = [patience.Log(path) for path in (own_log, log) if path]
        command = [*_scheduled(niceness),
                   'setpriv', '--pdeathsig', 'TERM', *argv]
        if namespace is not None:
            command = [*namespaces.within(namespace), *command]
        pipe = subprocess.PIPE if piped else subprocess.DEVNULL
        with log.open('ab') as sink:
            self.popen = subprocess.Popen(
                command, stdin=pipe, stdout=pipe if piped else sink,
                stderr=sink, env={**os.environ, **_NO_PROXY, **environment},
                start_new_session=True)
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        if piped:
            self._reader.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        with self.popen.stdout as stdout:
            for line in stdout:
                self._lines.put(line)
        self._lines.put(b'')

    def check(self) -> None:
        """Check that the process has not ended.

        :raises ProcessFailed: when it has ended.
        """
        status = self.popen.poll()
        if status is not None and not self._reader.is_alive():
            raise ProcessFailed(what=self.what, status=status,
                                said=self.said())

    def said(self) -> str:
        """Return the last lines of its logs, for people."""
        return '\n'.join(f'{log.path} ends with:\n  ' + '\n  '.join(log.tail())
                         for log in self._logs if log.path.exists())

    def last_line(self) -> str:
        """Return the last line that it logged; '(nothing)' if there is none.

        The line is of its own log where it has one, else of its output.
        """
        return self._logs[0].tail(1)[0]

    def log_advanced(self) -> bool:
        """Read new lines of its logs; return whether one is unlike all before.

        Lines that differ in numbers alone are alike.
        """
        return any([log.advanced() for log in self._logs])

    def pids(self) -> list[int]:
        """Return the ids of the process and its descendants."""
        return patience.family(self.popen.pid)

    def write_line(self, line: str) -> None:
        """Write a line to its standard input; fail where it has ended."""
        assert self.popen.stdin is not None
        try:
            self.popen.stdin.write(line.encode() + b'\n')
            self.popen.stdin.flush()
        except BrokenPipeError:
            self.popen.wait()
            self.check()

    def has_line(self) -> bool:
        """Return whether :meth:`read_line` would not wait."""
        return not self._lines.empty()

    def read_line(self) -> str:
        """Read its next line of output.

        :raises ProcessFailed: when it ended instead.
        """
        line = self._lines.get()
        if not line:
            self.popen.wait()
            self.check()
        return line.decode()

    def stop(self, grace_s: float = 5.0) -> None:
        """End it, gently at first."""
        if self.popen.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.popen.stdin.close()
        if self.popen.poll() is None:
            self.popen.terminate()
        try:
            self.popen.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()


def wait_until(condition: Callable[[], object], what: str,
               children: Sequence[Child] = (), *, of: Child | None = None,
               say: Say | None = None,
               progress: Callable[[], object] | None = None,
               stall_s: float = patience.STALL_S, interval_s: float = 0.1
               ) -> None:
    """Poll until a condition holds, for as long as something gets on.

    That is when a child has work, logs a new sort of line, or when what
    ``progress`` returns changes.

    :param of: the child that is waited for, whose words are shown.
    :param say: gets a line from time to time while it lasts.
    :raises NotReady: when nothing of that happened for ``stall_s``.
    :raises ProcessFailed: when one of the children ended meanwhile.
    """
    began_s = shown_s = time.monotonic()
    clock = patience.IdleClock(
        lambda: [pid for child in children for pid in child.pids()])
    n_advances = 0
    while not condition():
        for child in children:
            child.check()
            n_advances += child.log_advanced()
        clock.note((n_advances, progress and progress()))
        if clock.read_s() > stall_s:
            raise NotReady(what=what, stall_s=stall_s,
                           said=of.said() if of is not None else '')
        now_s = time.monotonic()
        if say is not None and now_s - shown_s >= _SHOW_S:
            shown_s = now_s
            said = f': {of.last_line()[:_SHOWN]}' if of is not None else ''
            say(f'still waiting for {what}, {now_s - began_s:.0f} s{said}')
        time.sleep(interval_s)


def script(name: str) -> str:
    """Return the path of a console script of this Python environment."""
    return os.path.join(os.path.dirname(sys.executable), name)


def ini(groups: Options) -> str:
    """Format options as an ini file; a list repeats its option."""
    lines = []
    for group, options in groups.items():
        lines.append(f'[{group}]')
        for name, value in options.items():
            for one in value if isinstance(value, list) else [value]:
                lines.append(f'{name} = {one}')
    return '\n'.join(lines) + '\n'
