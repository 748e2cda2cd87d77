# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Which row of which group an instance gets, and the commit of a plan."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import enum
import json
import logging
from typing import Any
import uuid

from oslo_config import cfg
import sqlalchemy as sa
from sqlalchemy import orm

from virtco.ask import problem as problem_builder
from virtco.ask import request as requests
from virtco.db import codec
from virtco.db import groups as db_groups
from virtco.db import models
from virtco.db import records
from virtco import exception
from virtco import hint_matrix
from virtco import hints
from virtco.model import coflow as coflow_model
from virtco.model import snapshot
from virtco.model import states
from virtco import units

LOG = logging.getLogger(__name__)

# A VM that was given its host this long ago is booked by the hypervisor and
# no longer in the free capacity that Nova reports.
NOVA_BOOKS_S = 10.0


class Mode(enum.Enum):
    """ADVICE: the instance has its host, the answer only ranks the others.
    ASSIGN: it takes the host that is planned for its row. PLAN: the open
    rows of the group are planned.
    """

    ADVICE = 'advice'
    ASSIGN = 'assign'
    PLAN = 'plan'


@dataclasses.dataclass
class View:
    """What one attempt saw of the database.

    :ivar member: the row of the instance in question.
    :ivar is_new: the group does not exist yet.
    :ivar notes: (kind, detail) of events to write down with the commit.
    """

    generation: int
    group: models.Group
    members: list[models.Member]
    coflows: list[models.Coflow]
    member: models.Member
    held: dict[str, problem_builder.Vector]
    is_new: bool
    notes: list[tuple[str, str]] = dataclasses.field(default_factory=list)


def limits_of(conf: cfg.ConfigOpts) -> hints.Limits:
    return hints.Limits(
        max_vms=conf.limits.max_vms_per_group,
        max_flows=conf.limits.max_flows_per_group,
        max_bytes_per_flow=conf.limits.max_bytes_per_flow,
        max_bytes=conf.limits.max_bytes_per_group,
        max_coflows=conf.limits.max_coflows_per_group,
        max_text_bytes=conf.limits.max_text_bytes)


class Seats:
    def __init__(self, conf: cfg.ConfigOpts, clock: Callable[[], float]):
        self._conf = conf
        self._clock = clock
        self.limits = limits_of(conf)

    def view(self, session: orm.Session, request: requests.Placement,
             hint: hints.Hint) -> View:
        """Read all that a placement needs, and choose the row.

        :raises virtco.exception.HintInvalid: no such group, no free row, a
            bound of the project, …
        """
        generation = db_groups.generation(session)
        member = db_groups.member_of(session, request.instance_uuid)
        if member is not None:
            group = db_groups.get(session, member.group_id)
        else:
            group = db_groups.find(session, request.project_id,
                                   hint.coflow_name)
        is_new = group is None
        notes: list[tuple[str, str]] = []
        if group is None:
            group, coflows = self._new_group(session, request, hint)
            members = [_vacant(group.id, i) for i in range(group.n_vms)]
        else:
            members = db_groups.members(session, group.id)
            coflows = db_groups.coflows(session, group.id)
            notes += _differences(hint, coflows)
        if member is None:
            member = _choose_row(members, request, hint, notes)
        else:
            member = next(m for m in members
                          if m.row_index == member.row_index)
        return View(generation, group, members, coflows, member,
                    self._held(session, group.id), is_new, notes)

    def _held(self, session: orm.Session, group_id: str
              ) -> dict[str, problem_builder.Vector]:
        """What other groups have reserved and Nova does not know yet."""
        return problem_builder.sum_by_host(
            (m.host, (m.vcpus, m.memory_mb, m.disk_gb))
            for m in db_groups.other_reservations(
                session, group_id, self._expiry() - NOVA_BOOKS_S)
            if m.host is not None)

    def _new_group(self, session: orm.Session, request: requests.Placement,
                   hint: hints.Hint
                   ) -> tuple[models.Group, list[models.Coflow]]:
        matrices = self._matrices(session, request, hint)
        self._check_project(session, request.project_id, matrices)
        given = records.project(session, request.project_id)
        now_s = self._clock()
        group = models.Group(
            id=str(uuid.uuid4()), project_id=request.project_id,
            name=hint.coflow_name, live_key='', n_vms=matrices[0].n_vms,
            created_at=now_s, method='', why='')
        return group, [models.Coflow(
            id=str(uuid.uuid4()), group_id=group.id,
            project_id=group.project_id, name=matrix.name, position=i,
            state=states.CoflowState.PLANNED, n_vms=matrix.n_vms,
            n_flows=len(matrix.flows), size_bytes=matrix.size_bytes,
            dst_port=matrix.dst_port, iterations=matrix.iterations,
            period_s=matrix.period_s, compute_s=matrix.compute_s,
            rank_hint=matrix.rank_hint, iteration=0,
            tm=codec.encode_flows(matrix), progress='[]', sent_bytes=0.0,
            priority_class=given.priority_class,
            weight=given.weight, why='', created_at=now_s)
            for i, matrix in enumerate(matrices)]

    def _matrices(self, session: orm.Session, request: requests.Placement,
                  hint: hints.Hint) -> tuple[coflow_model.Coflow, ...]:
        if hint.coflows:
            return hint.coflows
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
        matrices = hint_matrix.parse_matrix_text(
            found.tm, hint.coflow_name, self.limits)
        if hint.index is not None and hint.index >= matrices[0].n_vms:
            raise exception.HintInvalid(
                field=hints.INDEX, value=hint.index,
                limit=f'between 0 and {matrices[0].n_vms - 1}')
        return matrices

    def _check_project(self, session: orm.Session, project_id: str,
                       matrices: Sequence[coflow_model.Coflow]) -> None:
        n_groups, n_flows, size_bytes = db_groups.usage(session, project_id)
        bounds = self._conf.limits
        n_flows += sum(len(matrix.flows) for matrix in matrices)
        size_bytes += sum(matrix.size_bytes for matrix in matrices)
        for field, value, most, shown in (
                ('groups', n_groups + 1, bounds.max_groups_per_project, str),
                ('flows', n_flows, bounds.max_flows_per_project, str),
                ('bytes', size_bytes, bounds.max_bytes_per_project,
                 units.format_size)):
            if value > most:
                raise exception.HintInvalid(
                    field=f'{field} of the project',
                    value=shown(value),
                    limit=f'at most {shown(most)} in living groups')

    def batch_rows(self, request: requests.Placement,
                   members: Sequence[models.Member],
                   member: models.Member) -> frozenset[int]:
        """Rows that the VMs of this request have or will take."""
        key = request.reservation_id
        known = {m.row_index for m in members
                 if key and m.reservation_id == key} | {member.row_index}
        n_missing = max(0, request.num_instances - len(known))
        start = member.row_index
        free = sorted((m.row_index for m in members
                       if m.instance_uuid is None
                       and m.row_index not in known),
                      key=lambda i: (i < start, i))
        return frozenset(known | set(free[:n_missing]))

    def commit(self, session: orm.Session, request: requests.Placement,
               view: View, plan: snapshot.Plan, rows: Sequence[int],
               mode: Mode, free: Mapping[str, problem_builder.Vector]
               ) -> None:
        """Write the plan down.

        :raises virtco.exception.Conflict: when what it rests on is gone.
        """
        placed = dict(zip(rows, plan.hosts, strict=True))
        # First of all: the row of the generation serialises the commits, and
        # only what is read after it is what the others have committed.
        if mode is Mode.PLAN:
            self._advance_checked(session, request, view, placed, free)
        elif mode is Mode.ASSIGN:
            db_groups.advance(session)
        if view.is_new:
            if mode is Mode.PLAN:
                self._plan_new(request, view, placed)
            session.add(view.group)
            session.flush()
            session.add_all([*view.members, *view.coflows])
            session.flush()
        for kind, detail in view.notes:
            self.note(session, request, kind, detail, view.group.name,
                      view.group.id)
        if mode is Mode.ADVICE:
            self._advise(session, view.member,
                         placed[view.member.row_index])
            return
        if mode is Mode.PLAN:
            if not view.is_new:
                self._plan_others(session, request, view, placed)
            _save_figures(session, view, plan)
        self._seat(session, request, view.member,
                   placed[view.member.row_index], mode)

    def _advance_checked(self, session: orm.Session,
                         request: requests.Placement, view: View,
                         placed: Mapping[int, str],
                         free: Mapping[str, problem_builder.Vector]) -> None:
        """Commit on the generation of the snapshot, or on a later one in
        which the plan is as valid: same members, and still room for it.
        """
        try:
            db_groups.advance(session, view.generation)
        except exception.Conflict:
            db_groups.advance(session)
            if not self._still_valid(session, request, view, placed, free):
                raise

    def _still_valid(self, session: orm.Session, request: requests.Placement,
                     view: View, placed: Mapping[int, str],
                     free: Mapping[str, problem_builder.Vector]) -> bool:
        if not view.is_new and _rows_of(view.members) != _rows_of(
                db_groups.members(session, view.group.id)):
            return False
        held = self._held(session, view.group.id)
        if held == view.held:
            return True
        demand = request.flavor.vector
        wanted = problem_builder.sum_by_host(
            (placed[m.row_index], demand) for m in view.members
            if m.instance_uuid is None and m.row_index in placed)
        return all(problem_builder.fits(
            need, problem_builder.minus(free[host], held[host])
            if host in held else free[host])
            for host, need in wanted.items() if host in free)

    def _plan_others(self, session: orm.Session, request: requests.Placement,
                     view: View, placed: Mapping[int, str]) -> None:
        for member, values in self._plans(request, view, placed):
            session.execute(_row(view.group.id, member.row_index).values(
                **values))

    def _plan_new(self, request: requests.Placement, view: View,
                  placed: Mapping[int, str]) -> None:
        """Of a group that is yet to be written: in one statement with it.
        """
        for member, values in self._plans(request, view, placed):
            for name, value in values.items():
                setattr(member, name, value)

    def _plans(self, request: requests.Placement, view: View,
               placed: Mapping[int, str]
               ) -> Iterator[tuple[models.Member, dict[str, Any]]]:
        """Rows that no VM has yet, and what is planned for them."""
        demand = dict(zip(problem_builder.RESOURCES,
                          request.flavor.vector,
                          strict=True))
        expires_at = self._expiry()
        for member in view.members:
            index = member.row_index
            if (member.instance_uuid is None and index in placed
                    and index != view.member.row_index):
                yield member, {'state': states.MemberState.PLANNED,
                               'host': placed[index],
                               'planned_host': placed[index],
                               'expires_at': expires_at, **demand}

    def _advise(self, session: orm.Session, member: models.Member,
                host: str) -> None:
        """A VM that runs is to move there; Nova has the word."""
        session.execute(sa.update(models.Member).where(
            models.Member.instance_uuid == member.instance_uuid,
            models.Member.state == states.MemberState.RUNNING).values(
                planned_host=host))

    def _seat(self, session: orm.Session, request: requests.Placement,
              member: models.Member, host: str, mode: Mode) -> None:
        change = sa.update(models.Member).where(
            models.Member.group_id == member.group_id,
            models.Member.row_index == member.row_index,
            models.Member.instance_uuid.is_(None)
            | (models.Member.instance_uuid == request.instance_uuid))
        if mode is Mode.ASSIGN:
            change = change.where(models.Member.host == host)
        done = session.execute(change.values(
            instance_uuid=request.instance_uuid,
            display_name=(request.display_name or '')[:255],
            reservation_id=(request.reservation_id or '')[:255],
            state=states.MemberState.RESERVED, host=host, planned_host=host,
            expires_at=self._expiry(),
            **dict(zip(problem_builder.RESOURCES,
                       request.flavor.vector,
                       strict=True))))
        if done.rowcount == 0:  # type: ignore[attr-defined]
            raise exception.Conflict(what='row', id=member.row_index)

    def _expiry(self) -> float:
        return self._clock() + float(
            self._conf.placement.reservation_ttl_s)

    def note(self, session: orm.Session, request: requests.Placement,
             kind: str, detail: str, group_name: str,
             group_id: str | None) -> None:
        records.add_event(
            session, keep=self._conf.limits.max_events_per_project,
            project_id=request.project_id, group_name=group_name,
            group_id=group_id, instance_uuid=request.instance_uuid,
            kind=kind, detail=detail, created_at=self._clock())


def _row(group_id: str, index: int) -> sa.Update:
    """Change of a row that has no VM (yet)."""
    return sa.update(models.Member).where(
        models.Member.group_id == group_id,
        models.Member.row_index == index,
        models.Member.instance_uuid.is_(None))


def _rows_of(members: Sequence[models.Member]) -> list[tuple[Any, ...]]:
    return [(m.row_index, m.instance_uuid, m.state, m.host)
            for m in members]


def _vacant(group_id: str, index: int) -> models.Member:
    return models.Member(
        group_id=group_id, row_index=index, instance_uuid=None,
        display_name='', reservation_id='', state=states.MemberState.VACANT,
        host=None, expires_at=None, vcpus=0.0, memory_mb=0.0, disk_gb=0.0)


def _choose_row(members: Sequence[models.Member],
                request: requests.Placement, hint: hints.Hint,
                notes: list[tuple[str, str]]) -> models.Member:
    """The asked row, or the next one that no VM has."""
    n_vms = len(members)
    if hint.index is not None and hint.index >= n_vms:
        raise exception.HintInvalid(field=hints.INDEX, value=hint.index,
                                    limit=f'between 0 and {n_vms - 1}')
    wanted = hint.index
    if wanted is None:
        wanted = (request.launch_index or 0) % n_vms
    used = db_groups.used_rows(members)
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


def _differences(hint: hints.Hint, coflows: Sequence[models.Coflow]
                 ) -> list[tuple[str, str]]:
    if not hint.coflows:
        return []
    mine = [(c.name, c.n_vms, c.dst_port, *_recurrence(c),
             codec.encode_flows(c)) for c in hint.coflows]
    first = [(c.name, c.n_vms, c.dst_port, *_recurrence(c), json.dumps(
        json.loads(c.tm), separators=(',', ':'))) for c in coflows]
    if mine == first:
        return []
    return [('matrix_differs', 'the group keeps the matrix it began with')]


def _recurrence(coflow: coflow_model.Coflow | models.Coflow
                ) -> tuple[int, float | None, float | None, bool]:
    return (coflow.iterations, coflow.period_s, coflow.compute_s,
            coflow.rank_hint)


def _save_figures(session: orm.Session, view: View,
                  plan: snapshot.Plan) -> None:
    """The certificate of the plan, with the group and its coflows."""
    session.execute(sa.update(models.Group).where(
        models.Group.id == view.group.id).values(
            cct_s=codec.finite(plan.cct_s),
            lower_bound_s=codec.finite(plan.lower_bound_s),
            gap=codec.finite(plan.gap),
            objective_s=codec.finite(plan.objective_s),
            method=plan.method[:255], bottleneck=plan.bottleneck[:520],
            why='; '.join([f'bottleneck: {plan.bottleneck}', *plan.notes])))
    planned = [c for c in view.coflows if c.is_live]
    for coflow, cct_s in zip(planned, plan.coflow_cct_s):
        session.execute(sa.update(models.Coflow).where(
            models.Coflow.id == coflow.id).values(cct_s=codec.finite(cct_s)))
