# SPDX-License-Identifier: Apache-2.0

"""Answers without a plan, written down later.

Nobody waits for it: such an answer is given where there is no time, or no
database. Of a storm of them the newest are kept.
"""

from collections.abc import Callable
import itertools
from typing import Any

from virtco import hints
from virtco.db import records
from virtco.db import session as db_session
from virtco.objects import reasons
from virtco.place import newest
from virtco.place import question as requests
from virtco.wire import placement as wire

MOST_WAITING = 200
INTERVAL_S = 1.0


class Journal:
    """Keeps answers without a plan until they are written as events."""

    def __init__(self, database: db_session.Database,
                 clock: Callable[[], float]):
        self._database = database
        self._clock = clock
        self._entries: newest.Newest[int, dict[str, Any]] = newest.Newest(
            MOST_WAITING)
        self._number = itertools.count()

    def add(self, request: wire.Placement,
            answer: wire.Answer) -> None:
        """Note the answer of a server with a hint."""
        if not hints.select(request.hints | request.metadata):
            return
        self._entries.put(next(self._number), {
            'project_id': request.project_id,
            'group_name': requests.named_group(request),
            'instance_uuid': answer.instance_uuid,
            'detail': answer.why[:4000], 'created_at': self._clock()})

    def write(self) -> None:
        """Write the waiting answers; without a database they go on waiting."""
        self._entries.write(
            self._database, self._entries.items(),
            lambda session, entry: records.add_event(
                session, kind=reasons.NEUTRAL, **entry))
