# SPDX-License-Identifier: Apache-2.0

"""Delivers messages to the controller in order, in the background."""

import collections
import threading
import time
from typing import Any

from oslo_log import log as logging

from nova_filters import controller_connection as connection

LOG = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 10.0
#: Status where many at one address, as behind a proxy, have new tokens.
TOO_MANY = 429

# method, path, body and time.monotonic() after which nobody needs it
Message = tuple[str, str, dict[str, Any], float]


class Sender:
    """A bounded queue and one daemon thread; nobody waits for either.

    While the controller does not answer, the first message is tried again
    and again and the latest ``queue_size`` are kept.
    """

    def __init__(self, link: connection.Connection, *, queue_size: int,
                 timeout_s: float):
        self._link = link
        self._timeout_s = timeout_s
        self._queue: collections.deque[Message] = collections.deque()
        self._queue_size = queue_size
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def put(self, method: str, path: str, body: dict[str, Any],
            max_age_s: float = float('inf')) -> None:
        """Deliver it some time, unless max_age_s seconds pass before."""
        with self._changed:
            if len(self._queue) >= self._queue_size:
                LOG.warning('%s %s is lost: %d others wait for the virtco '
                            'controller', *self._queue.popleft()[:2],
                            self._queue_size)
            self._queue.append(
                (method, path, body, time.monotonic() + max_age_s))
            if self._thread is None or not self._thread.is_alive():
                # Here, not earlier: Nova forks its workers before this.
                self._thread = threading.Thread(
                    target=self._run, daemon=True, name='virtco-sender')
                self._thread.start()
            self._changed.notify()

    def _run(self) -> None:
        pause_s = 0.0
        while True:
            time.sleep(pause_s)
            with self._changed:
                self._changed.wait_for(lambda: self._queue)
                message = self._queue[0]
            if self._deliver(message):
                pause_s = 0.0
                with self._changed:
                    if self._queue and self._queue[0] is message:
                        self._queue.popleft()
            elif pause_s:
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            else:
                pause_s = FIRST_PAUSE_S
                LOG.warning('%s %s and what follows wait for the virtco '
                            'controller at %s', *message[:2], self._link.url)

    def _deliver(self, message: Message) -> bool:
        """Deliver a message; False when it should be tried again later."""
        method, path, body, expires_s = message
        if time.monotonic() > expires_s:
            return True
        try:
            self._link.send(method, path, body, self._timeout_s)
        except connection.Unanswered:
            return False
        except connection.Refused as error:
            status = error.kwargs.get('status', 0)
            if status >= 500 or status == TOO_MANY:
                return False
            LOG.warning('%s %s: %s', method, path, error)
        except Exception:  # the next message may be better
            LOG.exception('%s %s is dropped', method, path)
        return True
