# SPDX-License-Identifier: Apache-2.0

"""Answers without a plan, written down later.

Nobody waits for it: such an answer is given where there is no time, or no
database. Of a storm of them the newest are kept.
"""

import collections
from collections.abc import Callable
import dataclasses
import threading

from virtco import exception
from virtco import hints
from virtco.db import records
from virtco.db import session as db_session
from virtco.wire import placement as wire

#: Of an event.
NEUTRAL = 'neutral'
MOST_WAITING = 200
INTERVAL_S = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class _Entry:
    project_id: str
    group_name: str
    instance_uuid: str
    detail: str
    created_at: float


class Journal:
    """Keeps answers without a plan until they are written as events."""

    def __init__(self, database: db_session.Database,
                 clock: Callable[[], float]):
        self._database = database
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: collections.deque[_Entry] = collections.deque(
            maxlen=MOST_WAITING)

    def add(self, request: wire.Placement,
            answer: wire.Answer) -> None:
        """Nothing is noted of a server without a hint."""
        said = hints.select(request.hints | request.metadata)
        if not said:
            return
        name = said.get(hints.COFLOW)
        with self._lock:
            self._entries.append(_Entry(
                request.project_id,
                name[:255] if isinstance(name, str) else '',
                answer.instance_uuid, answer.why[:4000], self._clock()))

    def write(self) -> None:
        """Write the waiting answers; without a database they go on waiting."""
        with self._lock:
            entries = list(self._entries)
        if not entries:
            return
        try:
            with self._database.writer(db_session.PATIENCE_S) as session:
                for entry in entries:
                    records.add_event(session, kind=NEUTRAL,
                                      **dataclasses.asdict(entry))
        except (exception.DatabaseUnavailable, exception.Conflict):
            return
        with self._lock:
            for entry in entries:
                if self._entries and self._entries[0] is entry:
                    self._entries.popleft()
