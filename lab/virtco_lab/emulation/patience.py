# SPDX-License-Identifier: Apache-2.0

"""Timeouts of idle time rather than of elapsed time.

A process makes progress while it runs or waits for a processor. On a busy
machine it may need ten times as long, so only the time counts in which it was
idle.
"""

from collections.abc import Callable
from collections.abc import Iterable
import contextlib
import pathlib
import re
import time

import psutil

#: Idle seconds after which the awaited thing is thought not to come.
STALL_S = 60.0
_SAMPLE_S = 0.5
_NS = 1e-9
_NUMBERS = re.compile(r'[0-9a-f-]*\d[0-9a-f-]*')

Pids = Callable[[], Iterable[int]]


def family(pid: int | None = None) -> list[int]:
    """List the ids of this process, or of another, and of all descendants.

    A process that has ended has none.
    """
    try:
        one = psutil.Process(pid)
        return [one.pid, *(child.pid for child in one.children(
            recursive=True))]
    except psutil.NoSuchProcess:
        return []


class IdleClock:
    """Counts the seconds in which no thread of some processes had work.

    :param pids: gives the processes to look at.
    :param is_work_idle: count also those in which they ran, and leave out only
        those in which one waited for a processor.
    """

    def __init__(self, pids: Pids = family, is_work_idle: bool = False):
        self._pids = pids
        self._is_work_idle = is_work_idle
        self._idle_s = 0.0
        self._at_s = time.monotonic()
        self._tasks: dict[tuple[int, int], int] | None = None
        self._known: object = None

    def note(self, progress: object) -> None:
        """Restart the count of idle time when ``progress`` changed."""
        if progress != self._known:
            self._known = progress
            self._idle_s = 0.0

    def read_s(self) -> float:
        """Return idle seconds since the start or the last progress."""
        passed_s = time.monotonic() - self._at_s
        if passed_s >= _SAMPLE_S:
            tasks = task_times(self._pids(), self._is_work_idle)
            if self._tasks is not None:
                busy_s = max((spent - self._tasks.get(task, 0)
                              for task, spent in tasks.items()),
                             default=0) * _NS
                self._idle_s += max(0.0, passed_s - busy_s)
            self._tasks = tasks
            self._at_s += passed_s
        return self._idle_s


def task_times(pids: Iterable[int], only_waits: bool = False
               ) -> dict[tuple[int, int], int]:
    """Read the nanoseconds that tasks ran or waited to run.

    :param only_waits: leave out those in which it ran.
    :returns: by (process, thread).
    """
    found = {}
    for pid in pids:
        # A process that ends meanwhile has no times any more.
        with contextlib.suppress(OSError):
            for path in pathlib.Path(f'/proc/{pid}/task').iterdir():
                with contextlib.suppress(OSError):
                    ran, waited, _ = (path / 'schedstat').read_text().split()
                    found[pid, int(path.name)] = int(waited) + (
                        0 if only_waits else int(ran))
    return found


class Log:
    """A log file that is read as it grows."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        self._offset = path.stat().st_size if path.exists() else 0
        self._seen: set[str] = set()

    def advanced(self) -> bool:
        """Read the new lines; return True when one is unlike all before.

        Lines that differ in numbers alone are alike: a loop of retries makes
        no progress.
        """
        try:
            with self.path.open('rb') as file:
                file.seek(self._offset)
                text = file.read()
        except FileNotFoundError:
            return False
        self._offset += len(text)
        fresh = {_NUMBERS.sub('', line)
                 for line in text.decode(errors='replace').splitlines()}
        known = len(self._seen)
        self._seen |= fresh
        return len(self._seen) > known

    def tail(self, n_lines: int = 10) -> list[str]:
        """Return the last lines of the file."""
        try:
            lines = self.path.read_text(errors='replace').splitlines()
        except FileNotFoundError:
            lines = []
        return lines[-n_lines:] or ['(nothing)']
