# SPDX-License-Identifier: Apache-2.0

"""Server-sent events to browsers, of which none holds a thread.

waitress ends an answer with the function that made it. :class:`Task` leaves
the connection open where the application asked for that, and gives its thread
back; one thread writes to all viewers, and runs only while there are some.
"""

import collections
from collections.abc import Callable
import logging
import threading
from typing import Any

from waitress import channel
from waitress import task

LOG = logging.getLogger(__name__)

#: Key of the environment: a function that takes the task to keep.
KEEP = 'virtco.keep'
#: Viewers at the same time, of all projects and of one; others look again by
#: themselves.
MOST_VIEWERS = 256
MOST_OF_PROJECT = 32
#: Time between two looks whether something changed.
TURN_S = 1.0
#: Turns without a change after which viewers hear that the server is there.
#: Shorter than the silence after which a connection is closed.
SILENT_TURNS = 10
CHANGED = b'event: changed\ndata:\n\n'
ALIVE = b'event: alive\ndata:\n\n'


class Task(task.WSGITask):  # type: ignore[misc]
    """A request to waitress whose answer may stay open after its thread."""

    def finish(self) -> None:
        keep = (self.environ or {}).get(KEEP)
        if keep is not None and self.wrote_header and keep(self):
            self.close_on_finish = False
        else:
            super().finish()

    def is_ready(self) -> bool:
        """Tell whether the viewer took all that was written."""
        return not self.channel.total_outbufs_len

    def write(self, data: bytes) -> None:
        """Write to the viewer.

        :raises OSError: when it is gone.
        """
        try:
            super().write(data)
        except channel.ClientDisconnected as error:
            raise ConnectionResetError from error

    def close(self) -> None:
        """End the connection."""
        self.channel.close_when_flushed = True
        self.channel.server.pull_trigger()


class Viewers:
    """All who watch; :meth:`changed` may be called by any thread.

    :param wait: waits for a time in seconds.
    """

    def __init__(self, wait: Callable[[float], Any] | None = None):
        self._wait = wait or threading.Event().wait
        self._lock = threading.Lock()
        # Each with its project.
        self._viewers: dict[Task, str] = {}
        self._runs = False
        self._is_changed = False
        self._silent_turns = 0

    def changed(self, *_: object) -> None:
        """Tell all viewers with the next turn to look again."""
        self._is_changed = True

    def add(self, project_id: str, viewer: Task) -> bool:
        """Keep a viewer; False: there are too many, or of its project."""
        with self._lock:
            n_of = collections.Counter(self._viewers.values())
            if (n_of.total() >= MOST_VIEWERS
                    or n_of[project_id] >= MOST_OF_PROJECT):
                return False
            self._viewers[viewer] = project_id
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, name='viewers',
                                 daemon=True).start()
        return True

    def _run(self) -> None:
        """Write until the last viewer is gone."""
        while True:
            self._wait(TURN_S)
            self.turn()
            with self._lock:
                if not self._viewers:
                    self._runs = False
                    return

    def turn(self) -> None:
        """Write once to each viewer, if there is something to say."""
        self._silent_turns += 1
        if self._is_changed:
            self._is_changed = False
            event = CHANGED
        elif self._silent_turns >= SILENT_TURNS:
            event = ALIVE
        else:
            return
        self._silent_turns = 0
        for viewer in list(self._viewers):
            try:
                # A viewer that does not read misses events, not data.
                if viewer.is_ready():
                    viewer.write(event)
                continue
            except OSError:
                pass
            except Exception:
                LOG.exception('A viewer is let go.')
                viewer.close()
            with self._lock:
                self._viewers.pop(viewer, None)
