# SPDX-License-Identifier: Apache-2.0

"""Work that comes again and again, on a thread of its own."""

from collections.abc import Callable
import logging
import threading

from virtco import exception
from virtco import metrics

LOG = logging.getLogger(__name__)
STOP_S = 5.0


class Periodic:
    """Calls ``work`` each ``interval_s``; an error is logged and counted, and
    the next turn comes all the same. What turn after turn fails for the same
    reason is logged once.
    """

    def __init__(self, name: str, interval_s: float,
                 work: Callable[[], object], counts: metrics.Metrics):
        self._name = name
        self._interval_s = interval_s
        self._work = work
        self._counts = counts
        self._said = ''
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name=name,
                                        daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, wait: bool = True) -> None:
        """Stop the thread.

        :param wait: for the turn that is under way.
        """
        self._stop.set()
        if wait and self._thread.is_alive():
            self._thread.join(STOP_S)

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _loop(self) -> None:
        while not self._stop.wait(self._interval_s):
            self.attempt()

    def attempt(self) -> None:
        """Run the work once, and log an error."""
        try:
            self._work()
            self._said = ''
        except exception.VirtcoException as error:
            self._counts.flush_failures.inc()
            if str(error) != self._said:
                self._said = str(error)
                LOG.warning('Could not %s: %s', self._name, error)
        except Exception:
            self._counts.loop_failures.labels(self._name).inc()
            LOG.exception('Could not %s.', self._name)
