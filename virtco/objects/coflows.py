# SPDX-License-Identifier: Apache-2.0

"""Coflows as the API shows and changes them."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Literal
import uuid

import msgspec
from oslo_config import cfg
from sqlalchemy import orm

from virtco import exception
from virtco import hint_encoding
from virtco import hint_matrix
from virtco import periodic
from virtco.db import codec
from virtco.db import groups as db_groups
from virtco.db import models
from virtco.db import records
from virtco.model import live
from virtco.model import snapshot
from virtco.model import states
from virtco.objects import new_groups
from virtco.objects import reasons
from virtco.state import state as known
from virtco.state import summary
from virtco.wire import coflow_bodies as wire

EVENTS_SHOWN = 20
#: Flows of all matrices that a project has registered, 50 MB in the database.
MOST_REGISTERED_FLOWS = 2_000_000
#: Rows that a search for coflows of a state reads at a time, at most.
MOST_ROWS = 5000
#: Rows that a list shows in a row before it gives way to calls of Nova, the
#: time that they take, and the longest wait for it. Fewer rows wait less long:
#: one would keep its caller waiting for the calls of all others.
AT_ONCE, TAKES_S, AHEAD_S = 100, 0.01, 0.06
NO_SCHEDULE = live.Schedule(0.0, ())
#: Fields of a coflow that are shown as they are stored.
_AS_STORED = (
    'id', 'name', 'project_id', 'group_name', 'n_vms', 'n_flows',
    'size_bytes', 'dst_port', 'iterations', 'period_s', 'compute_s',
    'rank_hint', 'priority_class', 'weight', 'cct_s', 'lower_bound_s', 'gap')
#: States of which the counters of a coflow may know before the database.
_COUNTED = (*states.LIVE_STATES, states.CoflowState.DONE)


class Coflows:
    """Coflows that live, and matrices that are registered.

    :ivar is_answering: see :func:`virtco.periodic.give_way`.
    """

    def __init__(self, conf: cfg.ConfigOpts, state: known.State,
                 clock: Callable[[], float]):
        self._conf = conf
        self._state = state
        self._clock = clock
        self.is_answering: Callable[[float], bool] = lambda within_s: False

    def find(self, schedule: live.Schedule, project_id: str | None = None,
             state: str | None = None, server: str | None = None,
             limit: int = wire.MOST_LISTED, marker: str | None = None,
             retired: bool = True) -> list[wire.Coflow]:
        """List coflows by project, state and server; None means any.

        :param schedule: the newest.
        :param server: name of a server of the coflow's group.
        :param limit: most coflows, which are the newest.
        :param marker: id of a coflow; only older ones are listed.
        :param retired: whether retired coflows are listed, too.
        :raises virtco.exception.NotFound: for a marker that is gone.
        """
        # Read before the database: a coflow that ends meanwhile is in one of
        # both.
        statuses = self._state.live.statuses()
        page = limit
        with self._state.database.reader() as session:
            before = None if marker is None else _get(session, marker)
            if before and project_id not in (None, before.project_id):
                raise exception.NotFound(what='Coflow', id=marker)
            found: list[wire.Coflow] = []
            while True:
                rows = records.list_coflows(
                    session, project_id=project_id, server=server,
                    states=_stored_as(state, retired), limit=page,
                    before=before)
                found = [c for c in self._show(session, schedule, rows,
                                               statuses)
                         if state in (None, c.state)] + found
                if len(rows) < page or len(found) >= limit:
                    return found[-limit:]
                before = rows[0]
                # Few rows may be in the state: not a query for each of them.
                page = min(MOST_ROWS, 4 * page)

    def events(self, project_id: str | None = None) -> list[wire.Event]:
        """List the events of a project, or of all, the newest first."""
        with self._state.database.reader() as session:
            return [_event(event) for event in records.list_events(
                session, project_id=project_id)]

    def show(self, coflow_id: str, schedule: live.Schedule
             ) -> wire.Coflow:
        status = self._state.live.status(coflow_id)
        with self._state.database.reader() as session:
            coflow = records.find_coflow(session, coflow_id)
            if coflow is None:
                raise _gone(coflow_id)
            (shown,) = self._show(session, schedule, [coflow],
                                  {coflow_id: status} if status else {})
            group_name = shown.group_name
            return msgspec.structs.replace(
                shown,
                members=[_member(m) for m in db_groups.members(
                    session, coflow.group_id)] if coflow.group_id else [],
                events=[_event(e) for e in records.list_events(
                    session, project_id=coflow.project_id,
                    group_name=group_name, limit=EVENTS_SHOWN)]
                if group_name else [])

    def _show(self, session: orm.Session, schedule: live.Schedule,
              coflows: Sequence[Any], statuses: Mapping[str, summary.Status]
              ) -> list[wire.Coflow]:
        """Show stored coflows with the state that is in memory only.

        :param coflows: see :data:`virtco.db.records.Listed`.
        """
        warnings = records.count_events(
            session, {coflow.project_id for coflow in coflows})
        ranked = {c.coflow_id: c for c in schedule.coflows}
        debts = self._state.live.debts()
        found: list[wire.Coflow] = []
        while len(found) < len(coflows):
            some = coflows[len(found):len(found) + AT_ONCE]
            part = len(some) / AT_ONCE
            periodic.give_way(self.is_answering, TAKES_S * part,
                              AHEAD_S * part)
            hosts, elsewhere = db_groups.hosts_by_group(
                session, {c.group_id for c in some if c.group_id})
            found += [self._show_one(
                coflow, statuses.get(coflow.id), ranked.get(coflow.id),
                in_debt=coflow.project_id in debts,
                hosts=hosts.get(coflow.group_id or '', []),
                n_elsewhere=elsewhere[coflow.group_id],
                warnings=warnings.get(
                    (coflow.project_id, coflow.group_name), 0))
                for coflow in some]
        return found

    def _show_one(self, coflow: Any, status: summary.Status | None,
                  ranked: live.CoflowSchedule | None, **of_group: Any
                  ) -> wire.Coflow:
        sent_bytes = (status or coflow).sent_bytes
        # The counters know of an end and of the next beginning first, the
        # database of a declared end and of a deletion.
        if status is not None and coflow.is_live:
            state, ended_s = status.state, status.ended_s
            measured = summary.measured(status.span)
        else:
            state, ended_s = coflow.state, coflow.ended_at
            measured = {name: getattr(coflow, name)
                        for name in summary.measured(None)}
        arrival = status.arrival_s if status is not None else None
        over = state in (states.CoflowState.DONE, states.CoflowState.RETIRED)
        if over:
            ranked = None
        return wire.Coflow(
            **{name: getattr(coflow, name) for name in _AS_STORED},
            group=coflow.group_id, state=state, sent_bytes=sent_bytes,
            remaining_bytes=0.0 if over else max(
                0.0, coflow.size_bytes - sent_bytes),
            iteration=(status or coflow).iteration, order=coflow.served_by,
            measured_period_s=status.measured_period_s
            if status is not None else None,
            counted_compute_s=status.counted_compute_s
            if status is not None else None,
            rank=ranked.rank if ranked is not None else None,
            rate_bps=float(ranked.flow_rates.rate_bps.sum())
            if ranked is not None else 0.0,
            measured_cct_s=measured['measured_cct_s'] if over else None,
            measured_cct_error_s=measured['measured_cct_error_s']
            if over else None,
            first_byte=measured['first_byte_at'],
            last_byte=measured['last_byte_at'],
            bound_scope=None if coflow.lower_bound_s is None
            else snapshot.Scope.CONSTRAINTS,
            planned_bottleneck=_bottleneck(coflow.bottleneck),
            created=coflow.created_at,
            arrival=arrival or coflow.arrival, deadline=coflow.deadline_at,
            promise=_promise(coflow, ended_s, self._clock()),
            ended=ended_s, expires=coflow.expires_at,
            predicted_end=codec.finite(ranked.predicted_end_s)
            if ranked is not None else None,
            why=reasons.of_coflow(
                coflow.cct_s, measured['measured_cct_s'] if over else None,
                coflow.why),
            plan_notes=coflow.plan_notes or '', **of_group)

    def register(self, project_id: str, name: str,
                 matrix: Any) -> wire.Coflow:
        """Keep a matrix; its id is the hint ``virtco:tm_ref``.

        :param matrix: matrix as in ``virtco:tm``, as JSON text or decoded.
        :raises virtco.exception.HintInvalid:
        """
        limits = new_groups.limits_of(self._conf)
        hint_matrix.as_name('name', name, limits)
        coflows = hint_matrix.parse_matrix(matrix, name, limits)
        only = coflows[0] if len(coflows) == 1 else None
        coflow = models.Coflow(
            id=str(uuid.uuid4()), project_id=project_id, name=name,
            state=states.CoflowState.REGISTERED, n_vms=coflows[0].n_vms,
            n_flows=sum(len(c.matrix) for c in coflows),
            size_bytes=sum(c.size_bytes for c in coflows),
            iterations=only.iterations if only else 1,
            period_s=only.period_s if only else None,
            compute_s=only.compute_s if only else None,
            served_by=only.order if only else None,
            rank_hint=any(c.rank_hint for c in coflows),
            tm=hint_encoding.encode_matrix(coflows, name),
            created_at=self._clock())
        most = self._conf.limits.max_registered_per_project

        def save(session: orm.Session) -> None:
            n_matrices, n_flows = records.count_registered(session,
                                                           project_id)
            for field, value, limit in (
                    ('registered matrices', n_matrices + 1, most),
                    ('flows of registered matrices',
                     n_flows + coflow.n_flows, MOST_REGISTERED_FLOWS)):
                if value > limit:
                    raise exception.QuotaExceeded(
                        field=field, value=value,
                        limit=f'at most {limit} per project')
            session.add(coflow)
            if ignored := hint_matrix.self_flows(coflows):
                records.add_event(
                    session, project_id=project_id, group_name=name,
                    kind='self_flows', detail=ignored,
                    created_at=coflow.created_at)

        self._state.database.retried(save)
        return self.show(coflow.id, NO_SCHEDULE)

    def change(self, coflow_id: str, values: Mapping[str, Any]) -> None:
        """Declare it done, or set its class or weight."""
        status = self._state.live.status(coflow_id)
        iteration = status.iteration if status is not None else 0
        measured = (summary.measured(status.span)
                    if status is not None else {})

        def save(session: orm.Session) -> str | None:
            coflow = _get(session, coflow_id)
            if 'state' in values:
                self._declare_done(coflow, iteration)
                for name, value in measured.items():
                    setattr(coflow, name, value)
            if 'priority_class' in values:
                coflow.priority_class = values['priority_class']
            if 'weight' in values:
                coflow.weight = values['weight']
            return coflow.group_id

        group_id = self._state.database.retried(save)
        if 'state' in values:
            self._state.live.finish(coflow_id, self._clock())
        self._changed(group_id)

    def _declare_done(self, coflow: models.Coflow, iteration: int) -> None:
        """Change a coflow's state to done, unless it is retired.

        :param iteration: iteration by the counters; the database may be
            behind.
        """
        if coflow.state == states.CoflowState.REGISTERED:
            raise exception.Invalid(
                field='state', value='done',
                limit='no new state for a coflow without VMs')
        if coflow.state != states.CoflowState.RETIRED:
            coflow.state = states.CoflowState.DONE
            coflow.ended_at = coflow.ended_at or self._clock()
            coflow.why = 'declared done'
            coflow.iteration = coflow.iterations = max(
                1, iteration, coflow.iteration)

    def delete(self, coflow_id: str) -> None:
        """Forget a registered matrix, or give up a coflow.

        The VMs stay; a group whose last coflow goes has nothing to schedule
        but keeps its rows until its VMs are deleted.
        """
        def remove(session: orm.Session) -> str | None:
            coflow = _get(session, coflow_id)
            session.delete(coflow)
            return coflow.group_id

        group_id = self._state.database.retried(remove)
        self._state.live.drop(coflow_id)
        self._changed(group_id)

    def _changed(self, group_id: str | None) -> None:
        """Have a group read again; a registered matrix has none."""
        if group_id is not None:
            self._state.invalidate([group_id])

    def project_of(self, coflow_id: str) -> str:
        """Return the id of the project that owns a coflow.

        :raises virtco.exception.NotFound:
        """
        with self._state.database.reader() as session:
            return _get(session, coflow_id).project_id


def _stored_as(state: str | None, retired: bool) -> Collection[str]:
    """Return the stored states of coflows in a state; empty for any.

    Nearly all coflows are retired: a look at the newest ones finds them.
    """
    if state is None and not retired:
        return set(states.CoflowState) - {states.CoflowState.RETIRED}
    if state in (None, states.CoflowState.RETIRED):
        return ()
    return _COUNTED if state in _COUNTED else (str(state),)


def _get(session: orm.Session, coflow_id: str) -> models.Coflow:
    coflow = session.get(models.Coflow, coflow_id,
                         options=records.WITHOUT_MATRIX)
    if coflow is None:
        raise _gone(coflow_id)
    return coflow


def _gone(coflow_id: str) -> exception.NotFound:
    return exception.NotFound(what='Coflow', id=coflow_id)


def _member(row: models.Member) -> wire.Member:
    return wire.Member(
        row=row.row_index, instance_uuid=row.instance_uuid,
        display_name=row.display_name, state=row.state, host=row.host,
        planned_host=row.planned_host, expires_at=row.expires_at)


def _bottleneck(text: str | None) -> wire.PlannedPort | None:
    """Parse the planner's name of the port that decides the plan."""
    port, _, direction = (text or '').rpartition(' ')
    if port.startswith('cap of '):
        return wire.PlannedPort(
            level='vm', port=port,
            direction='egress' if direction == 'out' else 'ingress')
    if port:
        level = 'rack' if direction in ('up', 'down') else 'host'
        return wire.PlannedPort(level=level, port=port, direction=direction)
    if '->' in (text or ''):
        return wire.PlannedPort(level='pair', port=direction,
                                direction='egress')
    return None


def _event(row: models.Event) -> wire.Event:
    return wire.Event(
        at=row.created_at, kind=row.kind, project_id=row.project_id,
        group_name=row.group_name, group=row.group_id,
        instance_uuid=row.instance_uuid, detail=row.detail)


def _promise(coflow: models.Coflow, ended_s: float | None, now_s: float
             ) -> Literal['yes', 'no', 'kept', 'missed'] | None:
    """Tell how a deadline stands; None without one.

    ``yes`` and ``no`` as told at the launch, then ``kept`` or ``missed``.
    """
    due_s = coflow.deadline_at
    if due_s is None or not coflow.is_promised:
        return None if due_s is None else 'no'
    if ended_s is None and now_s <= due_s:
        return 'yes'
    return 'kept' if ended_s is not None and ended_s <= due_s else 'missed'
