# SPDX-License-Identifier: Apache-2.0

"""Steps of a starting controller, for /health, the log and systemd."""

from collections.abc import Iterator
import contextlib
import logging
import threading
import time

from virtco import systemd
from virtco.wire import health as wire

LOG = logging.getLogger(__name__)

#: A step that takes longer is logged again, each time this has passed.
STILL_S = 10.0


class Startup:
    """The steps of one start, which another thread may ask about."""

    def __init__(self) -> None:
        self.since = time.time()
        #: Step that is being done; None when the start is over.
        self.what: str | None = 'its first step'
        self._failure: str | None = None

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Log the step of the start, and log it again while it lasts."""
        self.what = what
        LOG.info('Starting: %s.', what)
        systemd.notify(STATUS=f'Starting: {what}')
        done = threading.Event()
        threading.Thread(target=self._remind, args=(what, done),
                         name='startup', daemon=True).start()
        try:
            yield
        finally:
            done.set()

    def _remind(self, what: str, done: threading.Event) -> None:
        """Log now and then that a step still lasts."""
        started = time.monotonic()
        while not done.wait(STILL_S):
            LOG.info('Still %s, for %.0f s.', what,
                     time.monotonic() - started)

    def ready(self) -> None:
        self.what = None
        LOG.info('Ready after %.1f s, %.1f s of them computing.',
                 time.time() - self.since, time.process_time())
        systemd.notify(READY=1, STATUS='Serving')

    def failed(self, why: str) -> None:
        """End the start although not everything works."""
        self.what, self._failure = None, why
        systemd.notify(STATUS=f'Failing: {why}')

    def stopping(self) -> None:
        """Tell systemd that the controller stops."""
        systemd.notify(STOPPING=1)

    def why(self) -> str | None:
        """Tell why there is no plan yet; None when there can be one."""
        if self.what is None:
            return self._failure
        return f'the controller is starting: {self.what}'

    def document(self) -> wire.Health:
        """Make the body of ``GET /health`` until everything is ready."""
        return wire.Health(status='starting', what=self.what,
                           since=self.since,
                           for_s=round(time.time() - self.since, 3))
