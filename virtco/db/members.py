# SPDX-License-Identifier: Apache-2.0

"""A member on its planned host, in few statements that are built once.

Most questions of Nova end here, and building a statement anew costs more than
the database takes to run it.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

import sqlalchemy as sa

from virtco import exception
from virtco.db import models
from virtco.db import session as db_session
from virtco.model import states
from virtco.wire import placement

_TABLES = models.Base.metadata.tables
_GROUPS, _MEMBERS = _TABLES['groups'].c, _TABLES['members'].c
_PLACEMENTS = _TABLES['placements'].c


@dataclasses.dataclass(frozen=True, slots=True)
class Planned:
    """A member that has a host and no VM there, and its group's plan.

    :ivar fingerprint: fingerprint of the last question about the instance.
    """

    group_id: str
    group_name: str
    index: int
    state: str
    host: str
    cct_s: float | None
    lower_bound_s: float | None
    gap: float | None
    method: str
    bottleneck: str | None
    fingerprint: str | None = None


_FINGERPRINT = sa.select(_PLACEMENTS.fingerprint).where(
    _PLACEMENTS.instance_uuid == sa.bindparam('instance_uuid'))
_OWN = _TABLES['members'].alias()
_VACANT = sa.select(
    _GROUPS.id, _GROUPS.name, _MEMBERS.row_index, _MEMBERS.state,
    _MEMBERS.host, _GROUPS.cct_s, _GROUPS.lower_bound_s, _GROUPS.gap,
    _GROUPS.method, _GROUPS.bottleneck, _FINGERPRINT.scalar_subquery()).where(
        _GROUPS.project_id == sa.bindparam('project_id'),
        _GROUPS.name == sa.bindparam('name'), _GROUPS.live_key == '',
        _MEMBERS.group_id == _GROUPS.id,
        # SQLite would read the vacant rows of all groups by the index of ids.
        sa.func.coalesce(_MEMBERS.instance_uuid, '') == '',
        ~sa.exists().where(
            _OWN.c.instance_uuid == sa.bindparam('instance_uuid')))
_AT = db_session.Prepared(_VACANT.where(
    _MEMBERS.row_index == sa.bindparam('number', type_=sa.Integer)))
# From the one that the number names on, and from the first after the last.
_FROM = db_session.Prepared(_VACANT.order_by(
    sa.case((_MEMBERS.row_index >= sa.bindparam(
        'number', type_=sa.Integer) % _GROUPS.n_vms, 0), else_=1),
    _MEMBERS.row_index).limit(1))


def next_planned(connection: sa.Connection, project_id: str, name: str,
                 instance_uuid: str, index: int | None,
                 launch_index: int) -> Planned | None:
    """Find the member of a living group that a new instance would become.

    None when there is none, when it has no planned host, or when the
    instance is a member already.

    :param index: row of the member, if one is asked for.
    """
    found = (_FROM if index is None else _AT).run(connection, {
        'project_id': project_id, 'name': name,
        'instance_uuid': instance_uuid,
        'number': launch_index if index is None else index}).first()
    if found is None:
        return None
    return Planned(*found) if (
        found.state == states.MemberState.PLANNED
        and found.host is not None) else None


_TAKE = db_session.Prepared(sa.update(_TABLES['members']).where(
    _MEMBERS.group_id == sa.bindparam('of_group'),
    _MEMBERS.row_index == sa.bindparam('of_index'),
    _MEMBERS.host == sa.bindparam('on_host'),
    _MEMBERS.instance_uuid.is_(None),
    _MEMBERS.state == states.MemberState.PLANNED).values({
        name: sa.bindparam(name) for name in (
            'instance_uuid', 'display_name', 'reservation_id', 'expires_at',
            'vcpus', 'memory_mb', 'disk_gb', *placement.CAPS)} | {
        'state': states.MemberState.RESERVED,
        'planned_host': sa.bindparam('on_host')}))


def take(connection: sa.Connection, planned: Planned,
         values: Mapping[str, Any]) -> None:
    """Make the instance that member, on its planned host.

    The generation was counted on before.

    :param values: columns of the member.
    :raises virtco.exception.Conflict: when another one took it, or it has
        another host by now.
    """
    done = _TAKE.run(connection, {
        'of_group': planned.group_id, 'of_index': planned.index,
        'on_host': planned.host, **values})
    if done.rowcount == 0:
        raise exception.Conflict(what='member', id=planned.index)


_INSERT = db_session.Prepared(sa.insert(_TABLES['placements']))
_UPDATE = db_session.Prepared(sa.update(_TABLES['placements']).where(
    _PLACEMENTS.instance_uuid == sa.bindparam('of')).values({
        name: sa.bindparam(name) for name in (
            'project_id', 'group_id', 'fingerprint', 'answer', 'updated_at')}))
_LAST = db_session.Prepared(_FINGERPRINT)


def fingerprint(connection: sa.Connection, instance_uuid: str
                ) -> str | None:
    """Read the fingerprint of the last question about an instance."""
    found: str | None = _LAST.run(
        connection, {'instance_uuid': instance_uuid}).scalar()
    return found


def remember(connection: sa.Connection, instance_uuid: str, is_known: bool,
             values: Mapping[str, Any]) -> None:
    """Keep a question's fingerprint and its answer.

    :param is_known: an earlier answer is replaced.
    :param values: columns of the placement.
    """
    if is_known:
        done = _UPDATE.run(connection, {'of': instance_uuid, **values})
        if done.rowcount:
            return
    _INSERT.run(connection, {'instance_uuid': instance_uuid, **values})
