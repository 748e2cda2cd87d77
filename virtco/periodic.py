# SPDX-License-Identifier: Apache-2.0

"""Work that comes again and again, on a thread of its own."""

from collections.abc import Callable
import logging
import threading

from virtco import exception
from virtco import metrics

LOG = logging.getLogger(__name__)
STOP_S = 5.0


class Periodic(threading.Thread):
    """Calls ``work`` each ``interval_s``; an error is logged and counted, and
    the next turn comes all the same. What turn after turn fails for the same
    reason is logged once.
    """

    def __init__(self, name: str, interval_s: float,
                 work: Callable[[], object], counts: metrics.Metrics):
        super().__init__(name=name, daemon=True)
        self._interval_s = interval_s
        self._work = work
        self._counts = counts
        self._said = ''
        self._is_ending = threading.Event()

    def stop(self, wait: bool = True) -> None:
        """Stop the thread.

        :param wait: whether to wait for the turn that is under way.
        """
        self._is_ending.set()
        if wait and self.is_alive():
            self.join(STOP_S)

    def run(self) -> None:
        while not self._is_ending.wait(self._interval_s):
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
                LOG.warning('Could not %s: %s', self.name, error)
        except Exception:
            self._counts.loop_failures.labels(self.name).inc()
            LOG.exception('Could not %s.', self.name)
