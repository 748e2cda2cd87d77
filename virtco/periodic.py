# SPDX-License-Identifier: Apache-2.0

"""Work that comes again and again, on few threads."""

from collections.abc import Callable
import contextlib
import heapq
import logging
import math
import threading
import time

from virtco import exception
from virtco import metrics

LOG = logging.getLogger(__name__)
STOP_S = 5.0
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
        # A heap: time, name and turn of each work that is not under way.
        self._due: list[tuple[float, str, Callable[[], None]]] = []
        # Time of the next turn of work that is under way.
        self._early_s: dict[str, float] = {}
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
        def turn() -> None:
            self.attempt(name, work)
            after(interval_s)

        def after(wait_s: float) -> None:
            with self._changed:
                due_s = min(time.monotonic() + wait_s,
                            self._early_s.pop(name, math.inf))
                heapq.heappush(self._due, (due_s, name, turn))
                if self._due[0][1] == name:
                    self._changed.notify()

        after(interval_s if first_s is None else first_s)
        if is_last:
            self._last[name] = work

    def hasten(self, name: str, at_s: float) -> None:
        """Have the next turn of work come at this time, unless it comes
        earlier.

        :param at_s: time on the monotonic clock.
        """
        with self._changed:
            self._early_s[name] = at_s
            for place, (due_s, other, turn) in enumerate(self._due):
                if other == name:
                    del self._early_s[name]
                    self._due[place] = min(due_s, at_s), name, turn
                    heapq.heapify(self._due)
                    self._changed.notify()
                    return

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

    def stop(self) -> None:
        """Begin no more turns, wait a moment for those that are under way, and
        call once more what is to be last.
        """
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()
        until_s = time.monotonic() + STOP_S
        for thread in list(self._threads):
            thread.join(max(0.0, until_s - time.monotonic()))
        for name, work in self._last.items():
            self.attempt(name, work)

    def _take(self) -> None:
        """Take turns until enough other threads wait for them."""
        with self._changed:
            while not self._is_ending and self._n_waiting < WAITING:
                wait_s = (self._due[0][0] - time.monotonic() if self._due
                          else None)
                if wait_s is None or wait_s > 0:
                    self._n_waiting += 1
                    self._changed.wait(wait_s)
                    self._n_waiting -= 1
                    continue
                _due_s, _name, turn = heapq.heappop(self._due)
                if not self._n_waiting:
                    # Where the system has no more threads, the others wait.
                    with contextlib.suppress(RuntimeError):
                        self.start()
                self._changed.release()
                try:
                    turn()
                finally:
                    self._changed.acquire()
            self._threads.discard(threading.current_thread())
