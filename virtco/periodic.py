# SPDX-License-Identifier: Apache-2.0

"""Work that comes again and again, on few threads."""

from collections.abc import Callable
import contextlib
import logging
import math
import threading
import time

from virtco import exception
from virtco import metrics

LOG = logging.getLogger(__name__)
#: Longest waits for turns that are under way at the end: before the last ones,
#: for which the next leader waits, and after them.
END_S, STOP_S = 1.0, 5.0
#: Threads that wait for the next turn: one to take it, one to wait on.
WAITING = 2
#: Longest wait for calls of Nova, and how often it looks.
AHEAD_S, LOOK_S = 0.3, 0.005


def give_way(is_answering: Callable[[float], bool], takes_s: float,
             ahead_s: float = AHEAD_S) -> None:
    """Let calls of Nova go first for a while: the interpreter serves one
    thread at a time, so they take twice as long beside other work.

    :param is_answering: whether a call does more than solve within so many
        seconds.
    :param takes_s: time that the work takes.
    :param ahead_s: longest wait.
    """
    latest_s = time.monotonic() + ahead_s
    while is_answering(takes_s) and time.monotonic() < latest_s:
        time.sleep(LOOK_S)


class Turns:
    """Threads that call work again and again.

    Who takes a turn leaves another thread waiting for the next one: a turn
    that hangs keeps no other work from its turns. An error is logged and
    counted, and the next turn comes all the same. What turn after turn fails
    for the same reason is logged once.
    """

    def __init__(self, counts: metrics.Metrics):
        self._counts = counts
        self._changed = threading.Condition()
        # Each work, and the time between its turns.
        self._works: dict[str, tuple[Callable[[], object], float]] = {}
        # Time of each next turn; while work is under way, of a hastened one.
        self._due_s: dict[str, float] = {}
        self._under_way: set[str] = set()
        self._last: dict[str, Callable[[], object]] = {}
        self._said: dict[str, str] = {}
        self._threads: set[threading.Thread] = set()
        self._n_waiting = 0
        self._is_ending = False

    def every(self, interval_s: float, name: str, work: Callable[[], object],
              first_s: float | None = None, is_last: bool = False) -> None:
        """Call ``work`` again and again, so long after its last turn.

        :param first_s: time until the first turn; None: an interval.
        :param is_last: whether :meth:`stop` calls it once more.
        """
        self._works[name] = work, interval_s
        self.hasten(name, time.monotonic() + (
            interval_s if first_s is None else first_s))
        if is_last:
            self._last[name] = work

    def hasten(self, name: str, at_s: float) -> None:
        """Have the next turn of work come at this time, unless it comes
        earlier.

        :param at_s: time on the monotonic clock.
        """
        with self._changed:
            self._due_s[name] = min(at_s, self._due_s.get(name, math.inf))
            self._changed.notify()

    def attempt(self, name: str, work: Callable[[], object]) -> None:
        """Call ``work`` once, and log an error."""
        try:
            work()
            self._said[name] = ''
        except exception.VirtcoException as error:
            self._counts.flush_failures.inc()
            if str(error) != self._said.get(name):
                self._said[name] = str(error)
                LOG.warning('Could not %s: %s', name, error)
        except Exception:
            self._counts.loop_failures.labels(name).inc()
            LOG.exception('Could not %s.', name)

    def start(self) -> None:
        thread = threading.Thread(target=self._take, name='turns', daemon=True)
        thread.start()
        self._threads.add(thread)

    def is_alive(self) -> bool:
        """Return whether turns are taken."""
        return any(thread.is_alive() for thread in list(self._threads))

    def end(self) -> None:
        """Begin no more turns, wait a moment for those that are under way, and
        call once more what is to be last.
        """
        until_s = time.monotonic() + END_S
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()
            while self._under_way and time.monotonic() < until_s:
                self._changed.wait(LOOK_S)
        for name, work in self._last.items():
            self.attempt(name, work)
        self._last.clear()

    def stop(self) -> None:
        """End, and wait for the threads of turns that are still under way.
        """
        self.end()
        until_s = time.monotonic() + STOP_S
        for thread in list(self._threads):
            thread.join(max(0.0, until_s - time.monotonic()))

    def _take(self) -> None:
        """Take turns until enough other threads wait for them."""
        with self._changed:
            while not self._is_ending and self._n_waiting < WAITING:
                due_s, name = min(
                    ((due_s, name) for name, due_s in self._due_s.items()
                     if name in self._works
                     and name not in self._under_way),
                    default=(threading.TIMEOUT_MAX, ''))
                wait_s = due_s - time.monotonic()
                if wait_s > 0:
                    self._n_waiting += 1
                    self._changed.wait(wait_s)
                    self._n_waiting -= 1
                    continue
                work, interval_s = self._works[name]
                del self._due_s[name]
                self._under_way.add(name)
                if not self._n_waiting:
                    # Where the system has no more threads, the others wait.
                    with contextlib.suppress(RuntimeError):
                        self.start()
                self._changed.release()
                try:
                    self.attempt(name, work)
                finally:
                    self._changed.acquire()
                self._under_way.discard(name)
                self.hasten(name, time.monotonic() + interval_s)
            self._threads.discard(threading.current_thread())
