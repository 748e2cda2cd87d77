# SPDX-License-Identifier: Apache-2.0

"""Waiting without a limit on the clock: what starves for a processor advances.

A limit counts seconds in which no thread of the test or of its child
processes was runnable without a processor. On a machine that is busy with
something else a limit so lasts as much longer as its processors are taken; on
a quiet one it is wall time. What runs counts, unlike in
:mod:`virtco_lab.emulation.patience`: a loop without end is a failure.
"""

import pathlib
import time

from virtco_lab.emulation import patience

LIMIT_S = 60.0
_POLL_S = 0.02


def waited_ns():
    """Time that each thread of ours waited for a processor."""
    return patience.task_times(patience.family(), only_waits=True)


class Stopwatch:
    """Wall time since it was made, less what our threads waited in vain."""

    def __init__(self):
        self._begin_s, self._waited_ns = time.monotonic(), waited_ns()

    def seconds(self):
        starved_ns = sum(value - self._waited_ns.get(thread, 0)
                         for thread, value in waited_ns().items())
        return max(0.0, time.monotonic() - self._begin_s - starved_ns / 1e9)


class Answer:
    """Wall time since it was made, less what the thread that waited longest
    waited in vain: of an answer that several threads make by turns, a little
    too much is taken off at most.
    """

    def __init__(self):
        self._begin_s, self._waited_ns = time.monotonic(), waited_ns()

    def seconds(self):
        starved_ns = max((value - self._waited_ns.get(thread, 0)
                          for thread, value in waited_ns().items()),
                         default=0)
        return max(0.0, time.monotonic() - self._begin_s - starved_ns / 1e9)


class Patience:
    """Ends after ``limit_s`` seconds in which nothing of ours starved.

    :param what: what is waited for; the error says it did not come.
    :param log: file whose end the error shows.
    """

    def __init__(self, what, limit_s=LIMIT_S, log=None):
        self.what, self.limit_s, self.log = what, limit_s, log
        self._begin_s = time.monotonic()
        self._clock = patience.IdleClock(is_work_idle=True)

    def pause(self, poll_s=_POLL_S):
        """Sleep for a moment.

        :raises AssertionError: when it is at its end.
        """
        time.sleep(poll_s)
        assert self._clock.read_s() < self.limit_s, self._error()

    def _error(self):
        error = (f'{self.what} did not come within {self.limit_s:g} s in '
                 f'which nothing waited for a processor '
                 f'({time.monotonic() - self._begin_s:.0f} s in all)')
        if self.log is not None:
            lines = pathlib.Path(self.log).read_text(
                errors='replace').splitlines()
            error += '\n'.join([f'; {self.log} ends with', *lines[-20:]])
        return error


def wait_for(check, what='it', limit_s=LIMIT_S, log=None, poll_s=_POLL_S):
    """Poll until ``check()`` is true; its value."""
    patience = Patience(what, limit_s, log)
    while not (value := check()):
        patience.pause(poll_s)
    return value


def wait_end(process, what='the end of a process', limit_s=LIMIT_S, log=None):
    """Exit code of a subprocess.Popen, once it has ended."""
    wait_for(lambda: process.poll() is not None, what, limit_s, log)
    return process.returncode
