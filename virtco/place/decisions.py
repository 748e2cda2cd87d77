# SPDX-License-Identifier: Apache-2.0

"""Inputs of each plan, kept to explain its decisions later.

They are written after the answer, so no answer waits for it. When plans come
faster than they are written, only the newest are kept.
"""

from collections.abc import Mapping
import time
import zlib

import msgspec
from sqlalchemy import orm

from virtco.db import models
from virtco.db import session as db_session
from virtco.model import snapshot
from virtco.place import newest

MOST_WAITING = 20
#: Hosts, flows and loads of a problem; a larger one is not kept.
MOST_ENTRIES = 50_000
#: Processor time for packing in one turn: others want the processor.
TURN_S = 0.05


class Decision(msgspec.Struct, frozen=True):
    """Problem and plan of a group, as they are stored.

    :ivar rows: row of the group for each VM of the problem.
    :ivar spent_s: time per phase of the answer.
    """

    group_id: str
    problem: snapshot.PlacementProblem
    rows: tuple[int, ...]
    plan: snapshot.Plan
    spent_s: Mapping[str, float]


_DECODER = msgspec.msgpack.Decoder(Decision)


def pack(decision: Decision) -> bytes:
    """Encode a decision for the database, as compressed MessagePack."""
    return zlib.compress(msgspec.msgpack.encode(decision), 1)


def unpack(document: bytes) -> Decision | None:
    """Decode a decision; None if another version wrote it."""
    try:
        return _DECODER.decode(zlib.decompress(document))
    except (msgspec.MsgspecError, zlib.error):
        return None


class Decisions:
    """Problems of planned groups, kept so that they can be explained."""

    def __init__(self, database: db_session.Database):
        self._database = database
        self._waiting: newest.Newest[str, Decision] = newest.Newest(
            MOST_WAITING)

    def add(self, decision: Decision) -> None:
        """Keep a problem until it is written, unless it is too large."""
        if _entries(decision.problem) <= MOST_ENTRIES:
            self._waiting.put(decision.group_id, decision)

    def write(self) -> None:
        """Write the waiting decisions; without a database they go on waiting.
        """
        until_s = time.thread_time() + TURN_S
        waiting = self._waiting.items()
        packed = {group_id: pack(decision) for group_id, decision in waiting
                  if time.thread_time() < until_s}

        def save(session: orm.Session, decision: Decision) -> None:
            session.merge(models.Decision(
                group_id=decision.group_id,
                document=packed[decision.group_id]))

        self._waiting.write(self._database, [
            one for one in waiting if one[0] in packed], save)

    def find(self, group_id: str) -> Decision | None:
        """Return the decision about a group; None where none is kept.

        :raises virtco.exception.DatabaseUnavailable:
        """
        waiting = self._waiting.get(group_id)
        if waiting is not None:
            return waiting
        with self._database.reader() as session:
            found = session.get(models.Decision, group_id)
            return unpack(found.document) if found is not None else None


def _entries(problem: snapshot.PlacementProblem) -> int:
    """Count hosts, flows and loads of a problem."""
    return (len(problem.hosts) + len(problem.pair_rate_bps or ())
            + sum(len(one.flows) for one in problem.coflows)
            + sum(len(one.out_bytes) + len(one.in_bytes) + len(one.pairs)
                  for one in problem.active))
