# SPDX-License-Identifier: Apache-2.0

"""Groups, their members and coflows in the database.

Functions over a session; the caller owns the transaction.
"""

import collections
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy import orm

from virtco import exception
from virtco.db import models
from virtco.db import session as db_session
from virtco.model import states

_ONLY_ROW = 1

# Built once: building a statement takes longer than running it.
_CLUSTER = models.Base.metadata.tables['cluster'].c
_GENERATION = db_session.Prepared(
    sa.select(_CLUSTER.generation).where(_CLUSTER.id == _ONLY_ROW))
_ADVANCE = sa.update(models.Base.metadata.tables['cluster']).where(
    _CLUSTER.id == _ONLY_ROW).values(generation=_CLUSTER.generation + 1)
_ADVANCE_FROM = db_session.Prepared(_ADVANCE.where(
    _CLUSTER.generation == sa.bindparam('expected', type_=sa.BigInteger)))
_ADVANCE_ANY = db_session.Prepared(_ADVANCE)
_FIND = sa.select(models.Group).where(
    models.Group.project_id == sa.bindparam('project_id'),
    models.Group.name == sa.bindparam('name'), models.Group.live_key == '')
_MEMBER_OF = sa.select(models.Member).where(
    models.Member.instance_uuid == sa.bindparam('instance_uuid'))
_N_GROUPS = db_session.Prepared(
    sa.select(sa.func.count()).select_from(models.Group).where(
        models.Group.project_id == sa.bindparam('project_id'),
        models.Group.live_key == ''))
_TRAFFIC = db_session.Prepared(sa.select(
    sa.func.coalesce(sa.func.sum(models.Coflow.n_flows), 0),
    sa.func.coalesce(sa.func.sum(models.Coflow.size_bytes), 0.0)).join(
        models.Group, models.Group.id == models.Coflow.group_id).where(
            models.Group.project_id == sa.bindparam('project_id'),
            models.Group.live_key == ''))
_HOSTS = sa.select(
    models.Member.group_id, models.Member.host,
    sa.and_(models.Member.state == states.MemberState.RUNNING,
            models.Member.host != models.Member.planned_host)).where(
        models.Member.group_id.in_(
            sa.bindparam('group_ids', expanding=True))).order_by(
                models.Member.group_id, models.Member.row_index)
_INSERT: dict[type[models.Base], sa.Insert] = {
    model: sa.insert(models.Base.metadata.tables[model.__tablename__])
    for model in (models.Group, models.Member, models.Coflow)}


def generation(session: orm.Session) -> int:
    """Read the generation of all reservations, before any row of them."""
    return _GENERATION.run(session.connection()).scalar() or 0


def secret(session: orm.Session) -> str:
    """Read the cloud's secret, which all processes share."""
    return session.scalar(sa.select(_CLUSTER.secret)) or ''


def advance(connection: sa.Connection, expected: int | None = None) -> None:
    """Count the generation on; everything that reserves or releases does.

    :param expected: generation that the caller's snapshot saw, None = any.
    :raises virtco.exception.Conflict: when it is another one by now.
    """
    done = (_ADVANCE_ANY.run(connection) if expected is None else
            _ADVANCE_FROM.run(connection, {'expected': expected}))
    if done.rowcount == 0:
        raise exception.Conflict(what='generation', id=expected)


def insert(session: orm.Session, model: type[models.Base],
           rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert groups, members or coflows by their columns."""
    session.connection().execute(_INSERT[model], rows)


def find(session: orm.Session, project_id: str,
         name: str) -> models.Group | None:
    """Find the living group of a name."""
    return session.scalar(_FIND, {'project_id': project_id, 'name': name})


def living(session: orm.Session, project_id: str | None, group: str
           ) -> list[models.Group]:
    """List living groups of an id or name, of one project or of all."""
    query = sa.select(models.Group).where(
        models.Group.retired_at.is_(None), sa.or_(
            models.Group.id == group, models.Group.name == group))
    if project_id is not None:
        query = query.where(models.Group.project_id == project_id)
    return list(session.scalars(query))


def only_living(session: orm.Session, project_id: str | None, group: str
                ) -> models.Group:
    """Find the only living group of an id or name.

    :raises virtco.exception.Invalid: where several projects have the name.
    """
    found = living(session, project_id, group)
    # A tenant may name a group as the id of another one.
    found = [one for one in found if one.id == group] or found
    if not found:
        raise exception.NotFound(what='Group', id=group)
    if len(found) > 1:
        raise exception.Invalid(
            field='group', value=group, limit='an id, as several projects '
            'have a group of this name')
    return found[0]


def living_by_id(session: orm.Session) -> dict[str, models.Group]:
    """Return the groups that are not retired."""
    return {group.id: group for group in session.scalars(sa.select(
        models.Group).where(models.Group.retired_at.is_(None)))}


def members(session: orm.Session, group_id: str) -> list[models.Member]:
    """List the members of a group by their rows."""
    return list(session.scalars(
        sa.select(models.Member).where(models.Member.group_id == group_id)
        .order_by(models.Member.row_index)))


def member_of(session: orm.Session,
              instance_uuid: str) -> models.Member | None:
    """Find the row that an instance fills; None where no group has it."""
    return session.scalar(_MEMBER_OF, {'instance_uuid': instance_uuid})


def coflows(session: orm.Session, group_id: str) -> list[models.Coflow]:
    return list(session.scalars(
        sa.select(models.Coflow).where(models.Coflow.group_id == group_id)
        .order_by(models.Coflow.position)))


def hosts_by_group(session: orm.Session, group_ids: Collection[str]
                   ) -> tuple[dict[str, list[str | None]],
                              collections.Counter[str]]:
    """List the host of each row per group, and count the VMs that run on
    another host than planned.
    """
    hosts: dict[str, list[str | None]] = {}
    elsewhere: collections.Counter[str] = collections.Counter()
    for group_id, host, is_elsewhere in session.connection().execute(
            _HOSTS, {'group_ids': list(group_ids)}).all():
        hosts.setdefault(group_id, []).append(host)
        if is_elsewhere:
            elsewhere[group_id] += 1
    return hosts, elsewhere


def running_by_plan(session: orm.Session) -> dict[str, int]:
    """Count VMs of groups that run where planned, elsewhere, or without a
    plan.
    """
    found = dict.fromkeys(('planned', 'other', 'none'), 0)
    kinds = (models.Member.planned_host.is_not(None),
             models.Member.host == models.Member.planned_host)
    for has_plan, is_there, count in session.execute(
            sa.select(*kinds, sa.func.count())
            .join(models.Group, models.Group.id == models.Member.group_id)
            .where(models.Group.retired_at.is_(None),
                   models.Member.state == states.MemberState.RUNNING)
            .group_by(*kinds)):
        found['none' if not has_plan else
              'planned' if is_there else 'other'] += count
    return found


def coflows_by_state(session: orm.Session) -> dict[str, int]:
    """Count coflows by state, from an index alone."""
    return {state: count for state, count in session.execute(
        sa.select(models.Coflow.state, sa.func.count())
        .group_by(models.Coflow.state))}


def living_members(session: orm.Session,
                   only: Collection[str] | None = None
                   ) -> list[models.Member]:
    """List the members of groups that are not retired.

    :param only: ids of groups; None takes all.
    """
    query = sa.select(models.Member).join(
        models.Group, models.Group.id == models.Member.group_id).where(
            models.Group.retired_at.is_(None))
    if only is not None:
        query = query.where(models.Member.group_id.in_(only))
    return list(session.scalars(query))


class Believed(NamedTuple):
    """A VM of the model.

    :ivar state: state of its row, a :class:`virtco.model.states.MemberState`.
    :ivar addresses: addresses of its ports, as Nova told them, by spaces.
    :ivar egress_limit_bps: limit by Neutron's rules, as the ingress one; None:
        no limit.
    """

    instance_uuid: str
    project_id: str
    state: str
    host: str | None
    addresses: str = ''
    egress_limit_bps: float | None = None
    ingress_limit_bps: float | None = None


def living_vms(session: orm.Session) -> list[Believed]:
    """List the rows with a VM, by project."""
    return [Believed(*row) for row in session.execute(
        sa.select(models.Member.instance_uuid, models.Group.project_id,
                  models.Member.state, models.Member.host,
                  models.Member.addresses, models.Member.egress_limit_bps,
                  models.Member.ingress_limit_bps)
        .join(models.Group, models.Group.id == models.Member.group_id)
        .where(models.Group.retired_at.is_(None),
               models.Member.instance_uuid.is_not(None))
        .order_by(models.Group.project_id, models.Member.instance_uuid))]


def living_coflows(session: orm.Session,
                   only: Collection[str] | None = None
                   ) -> list[models.Coflow]:
    """List coflows that are planned, active or between two iterations.

    :param only: ids of groups; None takes all.
    """
    query = sa.select(models.Coflow).where(models.Coflow.is_live)
    if only is not None:
        query = query.where(models.Coflow.group_id.in_(only))
    return list(session.scalars(query))


def expired(session: orm.Session, now_s: float) -> list[models.Member]:
    """List members whose ``expires_at`` has passed; NULL never does."""
    return list(session.scalars(
        sa.select(models.Member).where(models.Member.expires_at < now_s)))


def usage(session: orm.Session, project_id: str) -> tuple[int, int, float]:
    """Count the living groups of a project, their flows and bytes."""
    connection, whose = session.connection(), {'project_id': project_id}
    n_groups = _N_GROUPS.run(connection, whose).scalar() or 0
    n_flows, size_bytes = _TRAFFIC.run(connection, whose).one()
    return n_groups, int(n_flows), float(size_bytes)


def take_host(member: models.Member) -> None:
    """Leave the row to its VM, if it has one, without a host."""
    member.state = states.MemberState.VACANT
    member.host = None
    member.expires_at = None


def vacate(member: models.Member) -> None:
    """Free a row of its VM; another VM of the group may take it."""
    take_host(member)
    member.instance_uuid = None
    member.display_name = member.addresses = ''
    member.egress_limit_bps = member.ingress_limit_bps = None
    member.planned_host = None
    member.event_at = None


def retire(session: orm.Session, group: models.Group, now_s: float) -> None:
    """End a group: its name is free again, its coflows are over."""
    group.live_key = group.id
    group.retired_at = now_s
    for coflow in coflows(session, group.id):
        if coflow.state != states.CoflowState.DONE:
            # A coflow that was not sent to the end has no measured time.
            coflow.measured_cct_s = coflow.measured_cct_error_s = None
            coflow.why = 'ended: no VM of its group is left'
        coflow.state = states.CoflowState.RETIRED
        coflow.ended_at = coflow.ended_at or now_s
    for member in members(session, group.id):
        vacate(member)


def promised(session: orm.Session, now_s: float) -> dict[str, str | None]:
    """Return live coflows with a promised deadline in the future, by id, and
    the group of each.
    """
    return {coflow_id: group_id for coflow_id, group_id in session.execute(
        sa.select(models.Coflow.id, models.Coflow.group_id).where(
            models.Coflow.is_live, models.Coflow.is_promised,
            models.Coflow.deadline_at > now_s))}
