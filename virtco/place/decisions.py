# SPDX-License-Identifier: Apache-2.0

"""What each plan rested on, kept for those who ask what decided.

It is written down behind the answer: nobody waits for it, and of a storm of
plans the newest are kept.
"""

import collections
from collections.abc import Mapping
import threading
import time
import zlib

import msgspec

from virtco import exception
from virtco.db import models
from virtco.db import session as db_session
from virtco.model import snapshot

MOST_WAITING = 20
#: Hosts, flows and loads of a problem; a larger one is not kept.
MOST_ENTRIES = 50_000
#: Of one turn, to pack: others want the processor.
TURN_S = 0.05


class Decision(msgspec.Struct, frozen=True):
    """:ivar rows: of the group, for each VM of the problem.
    :ivar spent_s: time per phase of the answer.
    """

    group_id: str
    problem: snapshot.PlacementProblem
    rows: tuple[int, ...]
    plan: snapshot.Plan
    spent_s: Mapping[str, float]


_DECODER = msgspec.msgpack.Decoder(Decision)


def pack(decision: Decision) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(decision), 1)


def unpack(document: bytes) -> Decision | None:
    """Decode a decision; None if another version wrote it."""
    try:
        return _DECODER.decode(zlib.decompress(document))
    except (msgspec.MsgspecError, zlib.error):
        return None


class Decisions:
    def __init__(self, database: db_session.Database):
        self._database = database
        self._lock = threading.Lock()
        self._waiting: collections.OrderedDict[str, Decision] = (
            collections.OrderedDict())

    def add(self, decision: Decision) -> None:
        if _entries(decision.problem) > MOST_ENTRIES:
            return
        with self._lock:
            self._waiting.pop(decision.group_id, None)
            self._waiting[decision.group_id] = decision
            if len(self._waiting) > MOST_WAITING:
                self._waiting.popitem(last=False)

    def write(self) -> None:
        """Write the waiting decisions; without a database they go on waiting.
        """
        until_s = time.thread_time() + TURN_S
        with self._lock:
            waiting = list(self._waiting.values())
        packed = []
        for decision in waiting:
            if time.thread_time() < until_s:
                packed.append((decision, pack(decision)))
        if not packed:
            return
        try:
            with self._database.writer(db_session.PATIENCE_S) as session:
                for decision, document in packed:
                    session.merge(models.Decision(
                        group_id=decision.group_id, document=document))
        except (exception.DatabaseUnavailable, exception.Conflict):
            return
        with self._lock:
            for decision, _document in packed:
                if self._waiting.get(decision.group_id) is decision:
                    del self._waiting[decision.group_id]

    def find(self, group_id: str) -> Decision | None:
        """:raises virtco.exception.DatabaseUnavailable:"""
        waiting = self._waiting.get(group_id)
        if waiting is not None:
            return waiting
        with self._database.reader() as session:
            found = session.get(models.Decision, group_id)
            return unpack(found.document) if found is not None else None


def _entries(problem: snapshot.PlacementProblem) -> int:
    return (len(problem.hosts) + len(problem.pair_rate_bps or ())
            + sum(len(one.flows) for one in problem.coflows)
            + sum(len(one.out_bytes) + len(one.in_bytes) + len(one.pairs)
                  for one in problem.active))
