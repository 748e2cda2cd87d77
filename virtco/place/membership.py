# SPDX-License-Identifier: Apache-2.0

"""The group and the member of an instance."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Sequence
import dataclasses
import logging
from typing import Any

from oslo_config import cfg
from sqlalchemy import orm

from virtco import exception
from virtco import hint_matrix
from virtco import hints
from virtco.db import bookings
from virtco.db import codec
from virtco.db import groups as db_groups
from virtco.db import members as db_members
from virtco.db import models
from virtco.db import records
from virtco.model import booking
from virtco.model import coflow as coflow_model
from virtco.model import states
from virtco.objects import group_rules
from virtco.objects import new_groups
from virtco.place import applications
from virtco.place import deadline_promises
from virtco.place import question as requests
from virtco.wire import placement as wire

LOG = logging.getLogger(__name__)

# Kind and detail of events.
Notes = Sequence[tuple[str, str]]


@dataclasses.dataclass
class View:
    """State of a group in the database as one attempt read it.

    :ivar member: member that the instance is, or becomes.
    :ivar free: offered host -> what may be booked there.
    :ivar is_new: the group does not exist yet.
    :ivar matrices: matrices of the live coflows.
    :ivar keeps_matrix: the group's are those of the hint.
    :ivar notes: (kind, detail) of events to write down with the commit.
    :ivar wishes: wishes of the tenant for the group.
    :ivar rules: to be stored, these wishes and the server groups.
    :ivar server_group: server group of the request.
    :ivar remarks: on the measurements that the plan is made by.
    :ivar deadline: deadline of the hint, of a new group only.
    :ivar judged: whether it is promised.
    :ivar refused: the required wish that could not be met.
    """

    generation: int
    group: models.Group
    members: list[models.Member]
    coflows: list[models.Coflow]
    member: models.Member
    free: dict[str, booking.Vector]
    is_new: bool
    matrices: tuple[coflow_model.Coflow, ...]
    keeps_matrix: bool
    notes: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    wishes: hints.Wishes = hints.Wishes()
    rules: group_rules.Rules = group_rules.Rules()
    server_group: group_rules.ServerGroup | None = None
    refused: exception.WishRefused | None = None
    remarks: list[str] = dataclasses.field(default_factory=list)
    deadline: hints.Deadline | None = None
    judged: deadline_promises.Judged | None = None

    @property
    def is_advice(self) -> bool:
        """Whether the instance has a host and the answer only ranks."""
        return self.member.state in (states.MemberState.RESERVED,
                                     states.MemberState.RUNNING)

    def beside(self) -> bookings.Beside:
        """Name the bookings that this answer replaces; they do not count."""
        return bookings.Beside(
            self.group.id, -1 if self.is_advice else self.member.row_index,
            not self.is_advice, self.member.instance_uuid or '')

    def planned(self) -> db_members.Planned | None:
        """Return the member if it has a host and is not running there yet."""
        group, member = self.group, self.member
        if member.host is None or member.state not in (
                states.MemberState.PLANNED, states.MemberState.RESERVED):
            return None
        return db_members.Planned(
            group.id, group.name, member.row_index, member.state,
            member.host, group.cct_s, group.lower_bound_s, group.gap,
            group.method, group.bottleneck)


class Reader:
    """Reader of the rows that a placement rests on."""

    def __init__(self, conf: cfg.ConfigOpts, clock: Callable[[], float]):
        self._conf = conf
        self.clock = clock
        self.limits = new_groups.limits_of(conf)

    def view(self, session: orm.Session, request: wire.Placement,
             hint: hints.Hint) -> View:
        """Read all that a placement needs, and choose the row.

        :raises virtco.exception.HintInvalid: no such group, no free row, a
            bound of the project, …
        """
        generation = db_groups.generation(session)
        member = db_groups.member_of(session, request.instance_uuid)
        if member is not None:
            group = session.get(models.Group, member.group_id)
        else:
            group = db_groups.find(session, request.project_id,
                                   hint.coflow_name)
        is_new = group is None
        notes: list[tuple[str, str]] = []
        told: Notes = ()
        if group is None:
            matrices, told = self._matrices(session, request, hint)
            new_groups.check_project(session, self._conf, request.project_id,
                                     matrices, 1)
            group, members, coflows = new_groups.new_group(
                session, request.project_id, hint, matrices, self.clock())
        else:
            members = db_groups.members(session, group.id)
            coflows = db_groups.coflows(session, group.id)
            decoded = [codec.decode_coflow(coflow) for coflow in coflows]
            if hint.coflows and hint.coflows != tuple(
                    matrix for matrix, coflow in zip(decoded, coflows)
                    if coflow.expires_at is None):
                notes.append(('matrix_differs',
                              'the group keeps the matrix it began with'))
            matrices = tuple(
                matrix for matrix, coflow in zip(decoded, coflows)
                if coflow.is_live)
        rules = group_rules.of_record(group.rules or '').asking(hint.wishes)
        keeps_matrix = not notes
        if is_new and 1 < request.num_instances < group.n_vms:
            notes.append(('rows_left', (
                f'{request.num_instances} servers for a matrix of '
                f'{group.n_vms} rows; the others wait for servers that join')))
        notes += told
        if is_new and (ignored := hint_matrix.self_flows(hint.coflows)):
            notes.append(('self_flows', ignored))
        if is_new and hint.preflight:
            notes.append((
                'preflight', 'the hosts are checked after the launch')
                if self._conf.probe.check_groups != 'never' else (
                'preflight_off', f'{hints.PREFLIGHT} does nothing here, the '
                                 'hosts are not checked'))
        if member is None:
            member = _choose_row(members, request, hint, notes)
        else:
            member = next(m for m in members
                          if m.row_index == member.row_index)
        view = View(
            generation, group, members, coflows, member, {}, is_new, matrices,
            keeps_matrix, notes, rules.wishes,
            deadline=hint.deadline if is_new else None)
        view.server_group = server_group(request, members, batch_rows(
            request, members, member))
        view.rules = rules.joined(view.server_group)
        view.free = bookings.ledger(
            session.connection(), self.clock(), requests.free(request),
            beside=view.beside()).left()
        return view

    def _matrices(self, session: orm.Session, request: wire.Placement,
                  hint: hints.Hint
                  ) -> tuple[tuple[coflow_model.Coflow, ...], Notes]:
        """Return the matrices of a new group, with notes about them."""
        if hint.coflows:
            return hint.coflows, ()
        if hint.tm_ref is None and hint.app is not None:
            return applications.matrices(
                session, request.project_id, hint, hint.app,
                request.num_instances, self.limits)
        if hint.tm_ref is None:
            raise exception.HintInvalid(
                field=hints.COFLOW, value=repr(hint.coflow_name),
                limit=f'the name of a living group, or {hints.TM} beside it')
        found = session.get(models.Coflow, hint.tm_ref)
        if (found is None or found.group_id is not None
                or found.project_id != request.project_id):
            raise exception.HintInvalid(
                field=hints.TM_REF, value=repr(hint.tm_ref),
                limit='the id of a matrix registered in this project')
        # Longer than a hint may be: that is why it was registered.
        return hint_matrix.parse_matrix(
            found.tm, hint.coflow_name, self.limits), ()

    def expiry_s(self) -> float:
        """Return the time at which a reservation made now expires."""
        return self.clock() + float(
            self._conf.placement.reservation_ttl_s)

    def note(self, session: orm.Session, request: wire.Placement,
             notes: Notes, group_name: str, group_id: str | None) -> None:
        """Write events down."""
        for kind, detail in notes:
            records.add_event(
                session,
                project_id=request.project_id, group_name=group_name,
                group_id=group_id, instance_uuid=request.instance_uuid,
                kind=kind, detail=detail, created_at=self.clock())


def server_group(request: wire.Placement, members: Sequence[Any],
                 rows: Collection[int]) -> group_rules.ServerGroup | None:
    """Return the request's server group over rows; None without one.

    Hosts count where instances of no row are, or the asked one itself.

    :param members: members of its group, or these three columns of them.
    :param rows: rows of the members of the request: a batch is in its server
        group as a whole.
    """
    group = request.server_group
    if group is None:
        return None
    known = set(group.members)
    own = {m.row_index for m in members if m.instance_uuid in known
           }.union(rows)
    return group_rules.ServerGroup(
        group.policy, tuple(sorted(own)), tuple(
            sorted(set(group.hosts).difference(
                m.host for m in members if m.row_index in own
                and m.instance_uuid not in (None, request.instance_uuid)))),
        group.max_per_host or 1)


def batch_rows(request: wire.Placement,
               members: Sequence[models.Member],
               member: models.Member) -> frozenset[int]:
    """Return the rows that the VMs of this request have or will take."""
    key = request.reservation_id
    known = {m.row_index for m in members
             if key and m.reservation_id == key} | {member.row_index}
    n_missing = max(0, request.num_instances - len(known))
    start = member.row_index
    free = sorted((m.row_index for m in members
                   if m.instance_uuid is None
                   and m.row_index not in known),
                  key=lambda i: (i - start) % len(members))
    return frozenset(known | set(free[:n_missing]))


def _choose_row(members: Sequence[models.Member],
                request: wire.Placement, hint: hints.Hint,
                notes: list[tuple[str, str]]) -> models.Member:
    """Choose the asked row, or the next one without a VM."""
    n_vms = len(members)
    if hint.index is not None and hint.index >= n_vms:
        raise exception.HintInvalid(field=hints.INDEX, value=hint.index,
                                    limit=f'a row between 0 and {n_vms - 1}')
    wanted = hint.index
    if wanted is None:
        wanted = (request.launch_index or 0) % n_vms
    used = {m.row_index for m in members if m.instance_uuid is not None}
    for step in range(n_vms):
        index = (wanted + step) % n_vms
        if index in used:
            continue
        if step and hint.index is not None:
            detail = f'row {wanted} has a VM already, this one got {index}'
            LOG.info('Instance %s: %s', request.instance_uuid, detail)
            notes.append(('index_taken', detail))
        return members[index]
    raise exception.HintInvalid(
        field=hints.COFLOW, value=repr(hint.coflow_name),
        limit=f'a group with a free row; all {n_vms} have a VM')
