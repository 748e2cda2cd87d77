# SPDX-License-Identifier: Apache-2.0

"""One line when the controller goes, and one when it is back.

Several threads of the edge module ask the controller, each in its own time,
and all of them notice that it is away.
"""

from collections.abc import Iterator
import contextlib
import threading
import time

from oslo_log import log as logging

from virtco import exception

LOG = logging.getLogger(__name__)


class Outage:
    """Whether the controller is away. Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began_s: float | None = None

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Around a question to the controller."""
        asked_s = time.monotonic()
        try:
            yield
        except exception.ControllerUnavailable as error:
            self.begin(str(error))
            raise
        except exception.NotFound:
            self._end(asked_s)  # It answers, but knows nothing of this.
            raise
        self._end(asked_s)

    def begin(self, why: str) -> None:
        """Say why, unless it was said before.

        :param why: a sentence.
        """
        with self._lock:
            level = logging.WARNING if self._began_s is None else logging.DEBUG
            if self._began_s is None:
                self._began_s = time.monotonic()
        LOG.log(level, '%s The last policy holds.', why)

    def _end(self, asked_s: float) -> None:
        """An answer to what was asked before the outage does not end it."""
        with self._lock:
            if self._began_s is None or asked_s < self._began_s:
                return
            lasted_s = time.monotonic() - self._began_s
            self._began_s = None
        LOG.info('The controller answers again after %.1f s.', lasted_s)
