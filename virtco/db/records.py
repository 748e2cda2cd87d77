# SPDX-License-Identifier: Apache-2.0

"""Coflow queries, hosts, rates, settings, events and placements."""

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import orm

from virtco.db import models

#: Events of a project; the oldest are dropped.
KEPT_EVENTS = 1000
#: Values of an IN; of more, all rows are read, or :func:`parts` of them.
MOST_IN = 500
#: Options of a query for coflows that wants neither matrix nor progress, which
#: may have a megabyte each.
WITHOUT_MATRIX = (orm.defer(models.Coflow.tm),
                  orm.defer(models.Coflow.progress))
_LISTED = sa.select(
    *(column for column in models.Coflow.__table__.columns
      if column.name not in ('tm', 'progress')),
    models.Coflow.is_live.label('is_live'),
    models.Group.name.label('group_name'), models.Group.lower_bound_s,
    models.Group.gap, models.Group.bottleneck,
    models.Group.why.label('plan_notes')).outerjoin(
        models.Group, models.Group.id == models.Coflow.group_id)
#: A coflow without matrix and progress, and the plan of its group. An object
#: of the database takes five times as long.
Listed: Any = msgspec.defstruct(
    'Listed', [column.name for column in _LISTED.selected_columns], gc=False)


def parts(values: list[str]) -> Iterator[list[str]]:
    """Cut values into lists for an IN each."""
    for start in range(0, len(values), MOST_IN):
        yield values[start:start + MOST_IN]


def list_coflows(session: orm.Session, *, project_id: str | None = None,
                 states: Collection[str] = (), server: str | None = None,
                 limit: int = 5000,
                 before: Any = None) -> list[Any]:
    """List the newest coflows in order of age, each as :data:`Listed`.

    :param states: stored states; empty: any.
    :param server: name of a server of the group; None: any.
    :param before: only older coflows than this one; None: all.
    """
    age = (models.Coflow.created_at, models.Coflow.position, models.Coflow.id)
    newest = sa.select(models.Coflow.id).order_by(
        *(column.desc() for column in age)).limit(limit)
    if before is not None:
        # The first condition is for the index, which pairs do not use.
        newest = newest.where(
            models.Coflow.created_at <= before.created_at,
            sa.tuple_(*age) < (before.created_at, before.position, before.id))
    if project_id is not None:
        newest = newest.where(models.Coflow.project_id == project_id)
    if states:
        newest = newest.where(models.Coflow.state.in_(states))
    if server is not None:
        newest = newest.where(models.Coflow.group_id.in_(sa.select(
            models.Member.group_id).where(
                models.Member.display_name == server)))
    # MariaDB would join all coflows with their groups before it sorts them.
    ids = newest.subquery()
    query = _LISTED.join(ids, ids.c.id == models.Coflow.id).order_by(*age)
    return [Listed(*row) for row in session.connection().execute(query)]


def find_coflow(session: orm.Session, coflow_id: str) -> Any:
    """Find a coflow as :data:`Listed`; None where there is none."""
    row = session.connection().execute(
        _LISTED.where(models.Coflow.id == coflow_id)).one_or_none()
    return None if row is None else Listed(*row)


def coflow_names(session: orm.Session, ids: list[str]
                 ) -> dict[str, tuple[str, str]]:
    """Return the name and the project id of each coflow, by its id."""
    return {coflow_id: (name, project_id)
            for coflow_id, name, project_id in session.execute(sa.select(
                models.Coflow.id, models.Coflow.name,
                models.Coflow.project_id).where(models.Coflow.id.in_(ids)))}


def count_registered(session: orm.Session, project_id: str
                     ) -> tuple[int, int]:
    """Count the matrices that a project has registered, and their flows."""
    count, n_flows = session.execute(sa.select(
        sa.func.count(), sa.func.sum(models.Coflow.n_flows)).where(
            models.Coflow.project_id == project_id,
            models.Coflow.group_id.is_(None))).one()
    return count, int(n_flows or 0)


def list_hosts(session: orm.Session) -> list[models.Host]:
    """List the stored hosts, in no particular order."""
    return list(session.scalars(sa.select(models.Host)))


def save_progress(session: orm.Session, coflows: list[dict[str, Any]],
                  hosts: list[dict[str, Any]]) -> None:
    """Write counters in two statements, since other writers wait meanwhile.

    A coflow that was declared done or retired meanwhile stays so.

    :param coflows: columns per coflow; ``id`` says which.
    :param hosts: columns per host; ``host`` says which.
    """
    _update_many(session, models.Coflow.__table__, 'id', coflows,
                 sa.and_(models.Coflow.is_live))
    names = sa.select(models.Host.host)
    if len(hosts) <= MOST_IN:
        names = names.where(
            models.Host.host.in_([row['host'] for row in hosts]))
    known = set(session.scalars(names))
    _update_many(session, models.Host.__table__, 'host',
                 [row for row in hosts if row['host'] in known])
    session.add_all([models.Host(**row) for row in hosts
                     if row['host'] not in known])


def _update_many(session: orm.Session, table: Any, key: str,
                 rows: list[dict[str, Any]],
                 *conditions: sa.ColumnElement[bool]) -> None:
    if not rows:
        return
    # SQLAlchemy sets the columns that the parameters name.
    session.connection().execute(
        table.update().where(table.c[key] == sa.bindparam('updated'),
                             *conditions),
        [{'updated' if name == key else name: value
          for name, value in row.items()} for row in rows])


def forget_hosts(session: orm.Session, hosts: Collection[str]) -> None:
    """Delete hosts with their readings, drains and findings.

    Claims stay: they are about Nova's servers, and expire.
    """
    for column in (models.Host.host, models.Reading.src, models.Reading.dst,
                   models.Drain.host):
        _delete_in(session, column, list(hosts))
    _delete_in(session, models.Finding.subject, list(hosts),
               models.Finding.kind.startswith('host-'))


def list_readings(session: orm.Session,
                  after_s: float = 0.0) -> list[models.Reading]:
    """List readings measured after a time, in chronological order."""
    return list(session.scalars(sa.select(models.Reading).where(
        models.Reading.measured_at > after_s).order_by(
            models.Reading.measured_at)))


def save_readings(session: orm.Session, rows: list[dict[str, Any]]) -> None:
    """Write readings, in place of those that had their places, in two
    statements, since other writers wait meanwhile.
    """
    connection, of = session.connection(), models.Reading.__table__.c
    connection.execute(sa.delete(models.Reading).where(*(
        of[name] == sa.bindparam(name) for name in ('src', 'dst', 'slot'))),
        rows)
    connection.execute(sa.insert(models.Reading), rows)


def forget_readings(session: orm.Session, before_s: float, depth: int
                    ) -> int:
    """Delete rows that are too old, or beyond the number of places."""
    return session.connection().execute(sa.delete(models.Reading).where(
        sa.or_(models.Reading.measured_at < before_s,
               models.Reading.slot >= depth))).rowcount


def settings(session: orm.Session) -> dict[str, str]:
    return {row.name: row.value
            for row in session.scalars(sa.select(models.Setting))}


def save_settings(session: orm.Session, values: dict[str, str]) -> None:
    """Store settings by name; the others keep their values."""
    for name, value in values.items():
        session.merge(models.Setting(name=name, value=value))


def list_projects(session: orm.Session) -> list[models.Project]:
    """List the projects that have a row, by id; others have the defaults."""
    return list(session.scalars(
        sa.select(models.Project).order_by(models.Project.project_id)))


def project(session: orm.Session, project_id: str) -> models.Project:
    """Read a project's class and weight, or the defaults."""
    return (session.get(models.Project, project_id)
            or models.Project(project_id=project_id))


def save_debts(session: orm.Session, debts: Mapping[str, float]) -> None:
    """Store the projects' debts.

    :param debts: bytes per project.
    """
    for project_id, debt_bytes in debts.items():
        found = project(session, project_id)
        found.debt_bytes = debt_bytes
        session.merge(found)


def change_coflows_of(session: orm.Session, project_id: str,
                      values: dict[str, Any]) -> None:
    """Set columns of a project's coflows that are not over."""
    session.execute(sa.update(models.Coflow).where(
        models.Coflow.project_id == project_id,
        models.Coflow.is_live).values(values))


def add_event(session: orm.Session, **values: Any) -> None:
    """Add an event and drop the project's oldest beyond KEPT_EVENTS."""
    event = models.Event(**values)
    session.add(event)
    drop_oldest(session, models.Event.id, KEPT_EVENTS,
                models.Event.project_id == event.project_id)


def drop_oldest(session: orm.Session, column: Any, keep: int,
                *which: sa.ColumnElement[bool]) -> None:
    """Delete rows beyond the newest ones.

    :param column: column that grows with time.
    """
    # The inner query stands apart: MariaDB does not delete from a table
    # that a subquery of the same statement reads.
    oldest = session.scalar(sa.select(column).where(*which).order_by(
        column.desc()).offset(keep).limit(1))
    if oldest is not None:
        session.execute(sa.delete(column.class_).where(
            column <= oldest, *which))


def list_events(session: orm.Session, *, project_id: str | None = None,
                group_name: str | None = None, limit: int = 100
                ) -> list[models.Event]:
    """List events, the newest first."""
    query = sa.select(models.Event).order_by(
        models.Event.id.desc()).limit(limit)
    if project_id is not None:
        query = query.where(models.Event.project_id == project_id)
    if group_name is not None:
        query = query.where(models.Event.group_name == group_name)
    return list(session.scalars(query))


def newest_event(session: orm.Session, instance_uuid: str,
                 kind: str) -> models.Event | None:
    """Return the latest event of a kind about a server; None without one."""
    return session.scalar(sa.select(models.Event).where(
        models.Event.instance_uuid == instance_uuid,
        models.Event.kind == kind).order_by(
            models.Event.id.desc()).limit(1))


def latest_events(session: orm.Session, kinds: Collection[str],
                  since_s: float, limit: int = 1000
                  ) -> dict[str, models.Event]:
    """Read the latest event of these kinds about each server, from the newest
    events.
    """
    query = sa.select(models.Event).where(
        models.Event.kind.in_(kinds), models.Event.created_at >= since_s,
        models.Event.instance_uuid != '').order_by(
            models.Event.created_at.desc(),
            models.Event.id.desc()).limit(limit)
    return {event.instance_uuid: event for event in reversed(
        session.scalars(query).all())}


def count_events(session: orm.Session, projects: Collection[str]
                 ) -> dict[tuple[str, str], int]:
    """Count events per (project, name of the group), from an index alone."""
    query = sa.select(
        models.Event.project_id, models.Event.group_name,
        sa.func.count()).group_by(models.Event.project_id,
                                  models.Event.group_name)
    if len(projects) <= MOST_IN:
        query = query.where(models.Event.project_id.in_(projects))
    return {(project, name): count
            for project, name, count in session.execute(query)}


def purge(session: orm.Session, before_s: float) -> dict[str, int]:
    """Delete rows that ended before that time; return their numbers."""
    retired = (models.Group.retired_at.is_not(None)
               & (models.Group.retired_at < before_s))
    ids = list(session.scalars(sa.select(models.Group.id).where(retired)))
    counts = {}
    for name, column in (('coflows', models.Coflow.group_id),
                         ('members', models.Member.group_id),
                         ('decisions', models.Decision.group_id),
                         ('groups', models.Group.id)):
        counts[name] = _delete_in(session, column, ids)
    for name, statement in (
            ('placements', sa.delete(models.Placement).where(
                models.Placement.updated_at < before_s,
                models.Placement.instance_uuid.not_in(
                    sa.select(models.Member.instance_uuid).where(
                        models.Member.instance_uuid.is_not(None))))),
            ('events', sa.delete(models.Event).where(
                models.Event.created_at < before_s))):
        done = session.execute(statement)
        counts[name] = done.rowcount  # type: ignore[attr-defined]
    return counts


def _delete_in(session: orm.Session, column: Any, ids: list[str],
               *conditions: sa.ColumnElement[bool]) -> int:
    """Delete the rows whose column has one of the values; return how many."""
    deleted = 0
    for some in parts(ids):
        done = session.execute(sa.delete(column.class_).where(
            column.in_(some), *conditions))
        deleted += done.rowcount  # type: ignore[attr-defined]
    return deleted
