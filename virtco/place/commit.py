# SPDX-License-Identifier: Apache-2.0

"""Writes a plan down, if its premises still hold."""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import orm

from virtco import exception
from virtco.db import bookings
from virtco.db import codec
from virtco.db import groups as db_groups
from virtco.db import members as db_members
from virtco.db import models
from virtco.model import booking
from virtco.model import snapshot
from virtco.model import states
from virtco.objects import group_rules
from virtco.place import membership
from virtco.place import problem as problem_builder
from virtco.place import question as requests
from virtco.wire import placement as wire

#: Subject of a conflict with a promise that was not seen; its id is that of
#: the group.
PROMISE = 'promise'


class Commit:
    """Writer of one attempt's plan, in the session of its transaction.

    :param plan: plan with a host for each of ``rows``.
    :param reads: the reader that made the view.
    """

    def __init__(self, reads: membership.Reader, session: orm.Session,
                 request: wire.Placement, view: membership.View,
                 rows: Sequence[int], plan: snapshot.Plan):
        self._reads = reads
        self._session = session
        self._request = request
        self._view = view
        self._plan = plan
        self._placed = dict(zip(rows, plan.hosts, strict=True))
        self._expires_at = reads.expiry_s()

    def write(self) -> None:
        """Write the group, its plan and its bookings.

        :raises virtco.exception.Conflict: when what it rests on is gone.
        """
        view, session = self._view, self._session
        # The generation's row serialises the commits. It is written first:
        # only reads after it see the commits of others.
        self._advance()
        self._check_room()
        self._check_promise()
        if view.is_new:
            self._insert()
        self._reads.note(session, self._request, view.notes,
                         view.group.name, view.group.id)
        if view.is_advice:
            self._advise()
        elif not view.is_new:
            self._update()

    def _check_promise(self) -> None:
        """Refuse a promise made beside others that it did not see.

        :raises virtco.exception.Conflict:
        """
        judged = self._view.judged
        if judged is not None and judged.promise.promised:
            for coflow_id, group_id in db_groups.promised(
                    self._session, self._reads.clock()).items():
                if coflow_id not in judged.beside:
                    raise exception.Conflict(what=PROMISE, id=group_id)

    def _insert(self) -> None:
        """Insert all rows of a new group without reading any of them."""
        view, session = self._view, self._session
        changes = {member.row_index: values
                   for member, values in self._plans()}
        changes[view.member.row_index] = self._taken()
        db_groups.insert(session, models.Group, [
            view.group.columns() | _figures(self._plan)
            | {'rules': view.rules.record()}])
        db_groups.insert(session, models.Member, [
            member.columns() | changes.get(member.row_index, {})
            for member in view.members])
        db_groups.insert(session, models.Coflow, [
            coflow.columns() | {'cct_s': codec.finite(cct_s)}
            for coflow, cct_s in zip(view.coflows, self._plan.coflow_cct_s,
                                     strict=True)])

    def _update(self) -> None:
        """Write the new plan of a group that exists already."""
        view, session = self._view, self._session
        for member, values in self._plans():
            self._set(member, values)
        self._drop_plans()
        write_figures(session, view.group.id, [
            coflow.id for coflow in view.coflows if coflow.is_live],
            self._plan, rules=view.rules.record())
        if not self._set(view.member, self._taken()):
            raise exception.Conflict(what='member', id=view.member.row_index)

    def _advance(self) -> None:
        """Commit on the generation of the snapshot, or on a later one in
        which the group has the same members.
        """
        view, connection = self._view, self._session.connection()
        try:
            db_groups.advance(connection, view.generation)
        except exception.Conflict:
            db_groups.advance(connection)
            if not view.is_new and _seen(view.members) != _seen(
                    db_groups.members(self._session, view.group.id)):
                raise

    def _check_room(self) -> None:
        """Check that the plan still fits.

        :raises Conflict: where it does not fit any more.
        """
        view, demand = self._view, requests.vector(self._request.flavor)
        self._wanted = problem_builder.sum_by_host(
            (self._placed[m.row_index], demand) for m in view.members
            if m is view.member or (
                not view.is_advice and m.instance_uuid is None
                and m.row_index in self._placed))
        self._ledger = bookings.ledger(
            self._session.connection(), self._reads.clock(),
            requests.free(self._request, self._wanted), self._wanted,
            view.beside())
        if not self._ledger.admits(self._wanted):
            raise exception.Conflict(what='room', id=min(self._wanted))

    def _plans(self) -> Iterator[tuple[models.Member, dict[str, Any]]]:
        """Yield each member without a VM and its planned columns."""
        columns = _of_flavor(self._request)
        for member in self._view.members:
            index = member.row_index
            if (member.instance_uuid is None and index in self._placed
                    and index != self._view.member.row_index):
                host = self._placed[index]
                yield member, {'state': states.MemberState.PLANNED,
                               'host': host, 'planned_host': host,
                               'expires_at': self._expires_at, **columns,
                               **self._booked_on(host)}

    def _drop_plans(self) -> None:
        """Free the members without a VM that this plan leaves out."""
        self._session.execute(sa.update(models.Member).where(
            models.Member.group_id == self._view.group.id,
            models.Member.state == states.MemberState.PLANNED,
            models.Member.row_index.not_in(self._placed)).values(
                state=states.MemberState.VACANT, host=None, expires_at=None))

    def _booked_on(self, host: str) -> dict[str, float | None]:
        """Return the booking columns: when, and the room left on the host."""
        return {'placed_at': self._reads.clock(), **dict(zip(
            bookings.ROOM, self._ledger.room(host)))}

    def _advise(self) -> None:
        """Book the planned host for a VM that has one; Nova decides.

        Until Nova says where it is, it takes room on both hosts.
        """
        member = self._view.member
        host = self._placed[member.row_index]
        self._session.execute(sa.update(models.Member).where(
            models.Member.instance_uuid == member.instance_uuid,
            models.Member.state == states.MemberState.RUNNING).values(
                planned_host=host))
        bookings.claim(
            self._session, self._request.instance_uuid, host,
            _of_flavor(self._request), True,
            self._reads.clock() + booking.MOVE_S)

    def _set(self, member: models.Member, values: dict[str, Any]) -> bool:
        """Change a member that has no VM, or this one; False for another."""
        done = self._session.execute(sa.update(models.Member).where(
            models.Member.group_id == member.group_id,
            models.Member.row_index == member.row_index,
            models.Member.instance_uuid.is_(None) | (
                models.Member.instance_uuid == self._request.instance_uuid)
        ).values(values))
        return done.rowcount > 0  # type: ignore[attr-defined, no-any-return]

    def _taken(self) -> dict[str, Any]:
        """Return the columns of the member that a request reserves."""
        host = self._placed[self._view.member.row_index]
        return {'state': states.MemberState.RESERVED, 'host': host,
                'planned_host': host,
                **taken_by(self._request, self._expires_at),
                **self._booked_on(host)}


def write_figures(session: orm.Session, group_id: str,
                  coflow_ids: Iterable[str], plan: snapshot.Plan,
                  **values: str) -> None:
    """Store the figures of a group's new plan.

    :param coflow_ids: ids of the coflows that are planned.
    :param values: other columns of the group.
    """
    session.execute(sa.update(models.Group).where(
        models.Group.id == group_id).values(_figures(plan) | values))
    for coflow_id, cct_s in zip(coflow_ids, plan.coflow_cct_s):
        session.execute(sa.update(models.Coflow).where(
            models.Coflow.id == coflow_id).values(cct_s=codec.finite(cct_s)))


def join_server_group(connection: sa.Connection, request: wire.Placement,
                      planned: db_members.Planned) -> None:
    """Store the server group of an instance that becomes a member."""
    rules = connection.execute(sa.select(models.Group.rules).where(
        models.Group.id == planned.group_id)).scalar_one()
    members = connection.execute(sa.select(
        models.Member.row_index, models.Member.instance_uuid,
        models.Member.host).where(
            models.Member.group_id == planned.group_id)).all()
    found = group_rules.of_record(rules).joined(membership.server_group(
        request, members, {planned.index})).record()
    if found != rules:
        connection.execute(sa.update(models.Group).where(
            models.Group.id == planned.group_id).values(rules=found))


def taken_by(request: wire.Placement,
             expires_at: float) -> dict[str, Any]:
    """Return the columns of the member that the instance becomes."""
    return {'instance_uuid': request.instance_uuid,
            'display_name': (request.display_name or '')[:255],
            'reservation_id': request.reservation_id or '',
            'expires_at': expires_at, **_of_flavor(request)}


def _of_flavor(request: wire.Placement) -> dict[str, float | None]:
    """Return the columns of a member that its flavor decides."""
    return msgspec.structs.asdict(request.flavor) | {
        name: getattr(request, name) for name in wire.CAPS}


def _seen(members: Sequence[models.Member]) -> list[tuple[Any, ...]]:
    return [(m.row_index, m.instance_uuid, m.state, m.host)
            for m in members]


def _figures(plan: snapshot.Plan) -> dict[str, Any]:
    """Return the certificate of the plan as columns of its group."""
    found: dict[str, Any] = {
        name: codec.finite(getattr(plan, name))
        for name in ('cct_s', 'lower_bound_s', 'gap', 'objective_s')}
    return found | {
        'method': plan.method, 'bottleneck': plan.bottleneck[:520],
        'why': '; '.join([f'bottleneck: {plan.bottleneck}', *plan.notes])}
