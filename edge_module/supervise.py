# SPDX-License-Identifier: Apache-2.0

"""Threads that may die and are started again."""

from collections.abc import Callable
import errno
import resource
import threading
import time

from oslo_log import log as logging

LOG = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.2
_LAST_PAUSE_S = 5.0


class Supervised:
    """Thread that restarts its work when it ends by an exception.

    :ivar name: name of the thread, for its messages.
    """

    def __init__(self, name: str, work: Callable[[], None],
                 stop: threading.Event,
                 changed: Callable[[], None] = lambda: None):
        self.name = name
        self._problem: str | None = None
        self._began_s = 0.0
        self._work = work
        self._stop = stop
        self._changed = changed
        self._thread = threading.Thread(target=self._run, name=name,
                                        daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def problem(self) -> str | None:
        """Error that ended the work, None without one; it stays until the
        work has lasted for as long as the longest pause.
        """
        lasted_s = time.monotonic() - self._began_s
        return None if lasted_s >= _LAST_PAUSE_S else self._problem

    def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._stop.is_set():
            self._began_s = time.monotonic()
            try:
                self._work()
            except Exception as error:
                self._problem = (f'The thread {self.name} died: '
                                 + describe(error))
                LOG.exception('The thread %s died, it begins anew', self.name)
                self._changed()
            self._stop.wait(pause_s)
            pause_s = min(_LAST_PAUSE_S, 2 * pause_s)


def describe(error: Exception) -> str:
    """Return an error as a line of text, with a hint for full limits."""
    if isinstance(error, OSError) and error.errno in (errno.EMFILE,
                                                      errno.ENFILE):
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return (f'Out of file descriptors, of which {most} are allowed '
                f'({threading.active_count()} threads): {error}')
    return str(error) or repr(error)
