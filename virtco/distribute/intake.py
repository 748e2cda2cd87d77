# SPDX-License-Identifier: Apache-2.0

"""Hands reports of edge modules to the rooms, on a thread of its own.

Counters are cumulative, so the newest report of a host stands for all of its
epoch before it: what waits is bounded by the number of hosts. Of measurements
the newest of a host waits, too: it is ordered one at a time, and storing many
that nobody ordered would keep all others waiting.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterable
import logging
import threading
import time
from typing import Any

from virtco import periodic
from virtco.wire import reports

LOG = logging.getLogger(__name__)

MOST_OTHERS = 10_000
#: Pause after reports were taken: of 1,000 a second, those that come meanwhile
#: take a fifth less processor time in one go than one by one.
GATHERED_S = 0.05
#: Time that a few large reports take.
TAKES_S = 0.05
#: Epochs of a host whose last reports wait; edge modules begin a new one after
#: a boot.
MOST_EPOCHS = 16


class Intake(threading.Thread):
    """Thread that hands reports to the rooms.

    :param report: takes a host and its report.
    :param heard: takes hosts whose last report still holds.
    :param failed: is called when one of them raises.
    :param is_answering: see :func:`virtco.periodic.give_way`.
    """

    def __init__(self, report: Callable[[str, reports.Report], None],
                 heard: Callable[[set[str]], None],
                 failed: Callable[[], None] = lambda: None,
                 is_answering: Callable[[float], bool] = lambda within_s: False
                 ):
        super().__init__(name='intake', daemon=True)
        self._report = report
        self._heard = heard
        self._failed = failed
        self._is_answering = is_answering
        self._hosts: set[str] = set()
        # Newest message of a host, by its reader, and for each epoch of it.
        self._newest: dict[tuple[str, Callable[..., None]],
                           dict[str, tuple[Any, ...]]] = {}
        self._others: collections.deque[tuple[Callable[..., None], Any]] = (
            collections.deque(maxlen=MOST_OTHERS))
        self._there_is_some = threading.Condition()
        self._ending = threading.Event()
        self._n_lost = 0
        self._spent_s: dict[str, float] = {}

    def stop(self) -> None:
        """Hand over the rest, and end the thread."""
        self._ending.set()
        with self._there_is_some:
            self._there_is_some.notify()
        self.join(5)

    def add_report(self, host: str, report: reports.Report,
                   epoch: str = '') -> None:
        """Queue the newest report of a host.

        :param epoch: epoch of its counters: those of a new one do not count
            what the last report of the one before does.
        """
        self.add_newest(host, self._report, host, report, epoch=epoch)

    def add_newest(self, host: str, work: Callable[..., None], *said: Any,
                   epoch: str = '') -> None:
        """Have ``work`` take the newest message of a host for it, and that of
        each epoch.
        """
        with self._there_is_some:
            by_epoch = self._newest.setdefault((host, work), {})
            by_epoch.pop(epoch, None)
            if len(by_epoch) == MOST_EPOCHS:
                del by_epoch[next(iter(by_epoch))]
            by_epoch[epoch] = said
            self._there_is_some.notify()

    def take_spent_s(self, host: str) -> float:
        """Return the processor time of a host's messages since the last call.
        """
        with self._there_is_some:
            return self._spent_s.pop(host, 0.0)

    def add_heard(self, hosts: Iterable[str]) -> None:
        """Queue the sign of life of hosts without a report."""
        with self._there_is_some:
            self._hosts.update(hosts)
            self._there_is_some.notify()

    def add(self, work: Callable[..., None], said: Any) -> None:
        """Have ``work`` take a message; of too many the oldest is lost.
        """
        with self._there_is_some:
            self._others.append((work, said))
            self._there_is_some.notify()

    def run(self) -> None:
        while True:
            with self._there_is_some:
                while not (self._newest or self._hosts or self._others):
                    if self._ending.is_set():
                        return
                    self._there_is_some.wait()
            periodic.give_way(self._is_answering, TAKES_S)
            self._take()
            self._ending.wait(GATHERED_S)

    def _take(self) -> None:
        """Hand over all reports and messages."""
        with self._there_is_some:
            newest, self._newest = self._newest, {}
            hosts, self._hosts = self._hosts, set()
            others = list(self._others)
            self._others.clear()
        # A report says that its host is there, too.
        hosts -= {host for host, work in newest if work == self._report}
        if hosts:
            self._attempt(self._heard, hosts)
        for (host, work), by_epoch in newest.items():
            for said in by_epoch.values():
                self._charge(host, work, *said)
        for work, said in others:
            self._attempt(work, said)

    def _charge(self, host: str, work: Callable[..., None], *args: Any
                ) -> None:
        """Run work on a host's message, and note its processor time."""
        began_s = time.thread_time()
        self._attempt(work, *args)
        with self._there_is_some:
            self._spent_s[host] = (self._spent_s.get(host, 0.0)
                                   + time.thread_time() - began_s)

    def _attempt(self, work: Callable[..., None], *args: Any) -> None:
        """Run work on a report; log the first failure and the recovery."""
        try:
            work(*args)
        except Exception as error:
            # The next report makes up for it. A database that is away is
            # one line, not one per report.
            if not self._n_lost:
                LOG.warning('Cannot take in what edges say: %s', error)
            self._n_lost += 1
            self._failed()
        else:
            if self._n_lost:
                LOG.info('What edges say is taken in again; %d reports or '
                         'measurements were lost.', self._n_lost)
            self._n_lost = 0
