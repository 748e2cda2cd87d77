# SPDX-License-Identifier: Apache-2.0

"""Profiles in the database: one row per group and hour."""

from collections.abc import Mapping
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import orm

from virtco.db import models
from virtco.db import records
from virtco.profiles import learning
from virtco.profiles import pairs

_HOUR = models.ProfileHour
#: Rows of all projects that a list for an operator is made of, the newest.
MOST_SHOWN = 1000
#: Characters of pairs that are read of one group, 0.2 s of work: all hours of
#: four weeks of 25 VMs that send to each other, the last 21 of 142 VMs.
MOST_CHARS = 8_000_000


def add(session: orm.Session, hour: int,
        counted: Mapping[str, pairs.Bytes], keep: int) -> None:
    """Add the counts of an hour; groups that are gone are left out.

    :param keep: rows of each project that are kept, the newest.
    """
    projects = set()
    for ids in records.parts(list(counted)):
        rows = {row.group_id: row for row in session.scalars(sa.select(
            _HOUR).where(_HOUR.hour == hour, _HOUR.group_id.in_(ids)))}
        for group in session.scalars(sa.select(models.Group).where(
                models.Group.id.in_(ids))):
            found = counted[group.id]
            projects.add(group.project_id)
            row = rows.get(group.id)
            if row is None:
                session.add(_HOUR(
                    group_id=group.id, hour=hour, project_id=group.project_id,
                    group_name=group.name, app=group.app, n_vms=group.n_vms,
                    pairs=pairs.encode(found)))
            else:
                row.pairs = pairs.encode(pairs.merged(
                    pairs.decode(row.pairs), found))
    for project_id in projects:
        records.drop_oldest(session, _HOUR.hour, keep,
                            _HOUR.project_id == project_id)


def purge(session: orm.Session, before_hour: int) -> None:
    """Delete the rows of all projects for hours before this one."""
    session.execute(sa.delete(_HOUR).where(_HOUR.hour < before_hour))


def _newest(project_id: str | None) -> sa.FromClause:
    """Select rows of a project, or the newest of all projects, without pairs.
    """
    asked = sa.select(_HOUR.group_id, _HOUR.project_id, _HOUR.group_name,
                      _HOUR.app, _HOUR.n_vms, _HOUR.hour)
    if project_id is not None:
        return asked.where(_HOUR.project_id == project_id).subquery()
    return asked.order_by(_HOUR.hour.desc()).limit(MOST_SHOWN).subquery()


def list_groups(session: orm.Session, project_id: str | None
                ) -> Sequence[sa.Row[tuple[str, str, str, str, int, int,
                                           int, int]]]:
    """List group, project, name, app, VMs, first and last hour, and hours.

    :param project_id: None takes the newest rows of all projects.
    """
    row = _newest(project_id).c
    return session.execute(sa.select(
        row.group_id, sa.func.max(row.project_id),
        sa.func.max(row.group_name), sa.func.max(row.app),
        sa.func.max(row.n_vms), sa.func.min(row.hour),
        sa.func.max(row.hour), sa.func.count()).group_by(
            row.group_id).order_by(
                sa.func.max(row.hour).desc(), row.group_id)).all()


def find(session: orm.Session, project_id: str | None, group: str
         ) -> str | None:
    """Find a group's id by its id or name; of several the latest."""
    for column in (_HOUR.group_id, _HOUR.group_name):
        asked = sa.select(_HOUR.group_id).where(column == group)
        if project_id is not None:
            asked = asked.where(_HOUR.project_id == project_id)
        found = session.scalar(asked.order_by(_HOUR.hour.desc()).limit(1))
        if found is not None:
            return found
    return None


def hours(session: orm.Session, group_id: str) -> list[models.ProfileHour]:
    """List a group's latest rows, the earliest hour first.

    All of them, unless they have more than MOST_CHARS together.
    """
    found: list[models.ProfileHour] = []
    left_chars = MOST_CHARS
    with session.scalars(sa.select(_HOUR).where(
            _HOUR.group_id == group_id).order_by(
                _HOUR.hour.desc()).execution_options(yield_per=16)) as rows:
        for row in rows:
            left_chars -= len(row.pairs)
            if found and left_chars < 0:
                break
            found.append(row)
    return found[::-1]


def launches(session: orm.Session, project_id: str, app: str
             ) -> list[learning.Launch]:
    """List the latest launches of an application, the last one first."""
    latest = session.execute(sa.select(_HOUR.group_id).where(
        _HOUR.project_id == project_id, _HOUR.app == app).group_by(
            _HOUR.group_id).order_by(
                sa.func.max(_HOUR.hour).desc(), _HOUR.group_id).limit(
                    learning.MOST_LAUNCHES)).scalars().all()
    found = []
    for group_id in latest:
        rows = hours(session, group_id)
        found.append(learning.Launch(rows[0].n_vms, pairs.merged(
            *(pairs.decode(row.pairs) for row in rows))))
    return found


def list_apps(session: orm.Session, project_id: str | None
              ) -> Sequence[sa.Row[tuple[str, str, int, int]]]:
    """List project, application, number of launches and last hour.

    :param project_id: None takes the newest rows of all projects.
    """
    row = _newest(project_id).c
    return session.execute(sa.select(
        row.project_id, row.app, sa.func.count(sa.distinct(row.group_id)),
        sa.func.max(row.hour)).where(row.app != '').group_by(
            row.project_id, row.app).order_by(row.project_id, row.app)).all()


def forget_app(session: orm.Session, project_id: str, app: str) -> bool:
    """Forget an application; return False when it had no launches."""
    done = session.execute(sa.update(_HOUR).where(
        _HOUR.project_id == project_id, _HOUR.app == app).values(app=''))
    session.execute(sa.update(models.Group).where(
        models.Group.project_id == project_id, models.Group.app == app
    ).values(app=''))
    return bool(done.rowcount)  # type: ignore[attr-defined]
