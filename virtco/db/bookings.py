# SPDX-License-Identifier: Apache-2.0

"""Members that have a host, by the host."""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from virtco.db import models
from virtco.model import booking
from virtco.model import states

_MEMBERS = models.Base.metadata.tables['members'].c
#: Columns of what Nova showed, in the order of a demand's resources.
ROOM = ('room_vcpus', 'room_memory_mb', 'room_disk_gb')
DEMAND = ('vcpus', 'memory_mb', 'disk_gb')
_BOOKING = sa.select(
    _MEMBERS.group_id, _MEMBERS.row_index, _MEMBERS.host, _MEMBERS.state,
    _MEMBERS.placed_at, *(_MEMBERS[name] for name in DEMAND + ROOM))
_YOUNG = _BOOKING.where(
    _MEMBERS.host.is_not(None),
    (_MEMBERS.expires_at > 0)  # what is not null, by the index
    | (_MEMBERS.placed_at > sa.bindparam('since_s')))
_IS_OLD = (_MEMBERS.host.in_(sa.bindparam('hosts', expanding=True)),
           _MEMBERS.state == states.MemberState.RUNNING,
           _MEMBERS.placed_at.is_(None)
           | (_MEMBERS.placed_at <= sa.bindparam('since_s')))
_OLD = _BOOKING.where(*_IS_OLD)
_OLD_DEMANDS = sa.select(
    _MEMBERS.host, *(sa.func.sum(_MEMBERS[name]) for name in DEMAND)
).where(*_IS_OLD).group_by(_MEMBERS.host)


def young(session: orm.Session, since_s: float) -> list[Any]:
    """Members of all groups that are reserved, planned, or came to their
    host after that time.
    """
    return list(session.connection().execute(_YOUNG, {'since_s': since_s}))


def old(session: orm.Session, since_s: float,
        hosts: Collection[str]) -> list[Any]:
    """Members that have run on one of these hosts since then."""
    return list(session.connection().execute(
        _OLD, {'since_s': since_s, 'hosts': list(hosts)})) if hosts else []


def old_demands(session: orm.Session, since_s: float,
                hosts: Collection[str]) -> dict[str, booking.Vector]:
    """Of the members that :func:`old` finds, together per host.

    A host may have hundreds of them, so the database adds them up.
    """
    return {row[0]: tuple(map(float, row[1:]))
            for row in session.connection().execute(_OLD_DEMANDS, {
                'since_s': since_s, 'hosts': list(hosts)})} if hosts else {}


def rooms(rows: Iterable[Any], shown: Mapping[str, booking.Vector],
          now_s: float
          ) -> dict[str, tuple[booking.Vector, booking.Vector]]:
    """Room and held capacity per host, see :func:`virtco.model.booking.rooms`.

    :param rows: of :func:`young` and :func:`old`.
    """
    return booking.rooms((booking.Booking(
        row.host, tuple(row[5:8]), row.state != states.MemberState.PLANNED,
        booking.is_settled(row.state == states.MemberState.RUNNING,
                           row.placed_at, now_s),
        tuple(row[8:11]) if row.room_vcpus is not None else None)
        for row in rows), shown)


def give_back(session: orm.Session, host: str,
              demand: Mapping[str, float]) -> None:
    """A settled member leaves: there is so much less room for members.

    Nova's numbers may have shown its room as free before we knew.
    """
    session.execute(sa.update(models.Member).where(
        models.Member.host == host,
        models.Member.room_vcpus.is_not(None)).values({
            room: models.Base.metadata.tables['members'].c[room]
            - demand[name] for room, name in zip(ROOM, DEMAND)}))
