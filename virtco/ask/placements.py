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

"""Answers Nova's question: where should this VM go?"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import hashlib
import logging
import math
import threading
import time
from typing import Any
import zlib

import msgspec
from oslo_config import cfg
from sqlalchemy import orm
import tenacity

from virtco.ask import deadline as deadlines
from virtco.ask import membership
from virtco.ask import neutral
from virtco.ask import problem as problem_builder
from virtco.ask import request as requests
from virtco.ask import window
from virtco.db import codec
from virtco.db import groups as db_groups
from virtco.db import models
from virtco.db import records
from virtco.db import session as db_session
from virtco import exception
from virtco import hints
from virtco.know import live_state
from virtco.know import settings
from virtco.know import snapshot as snapshots
from virtco import metrics
from virtco.model import snapshot
from virtco.model import states
from virtco.solver import planner

LOG = logging.getLogger(__name__)

MOST_RANKINGS = 256

# The problem, the row of each of its VMs, and where they go.
Solution = tuple[snapshot.PlacementProblem, tuple[int, ...], snapshot.Plan]


class Placer:
    """Plans on a snapshot, commits if nothing came in between.

    :param state: tells rates, what other coflows have to move, and what is
        left of those of a group.
    """

    def __init__(self, conf: cfg.ConfigOpts, database: db_session.Database,
                 settings: settings.Settings,
                 metrics: metrics.Metrics,
                 state: live_state.LiveState,
                 pace: deadlines.Pace,
                 clock: Callable[[], float] = time.time):
        self._conf = conf
        self._database = database
        self._settings = settings
        self._metrics = metrics
        self._state = state
        self._pace = pace
        self._clock = clock
        self._rankings = Rankings()
        self._seats = membership.Seats(conf, clock)
        self._window = window.Window(conf, settings, metrics, pace)

    def place(self, request: requests.Placement,
              deadline: deadlines.Deadline) -> dict[str, Any]:
        """Answer ``PUT /v1/placements/{instance_uuid}``.

        :raises virtco.exception.TooLate:
        :raises virtco.exception.DatabaseUnavailable:
        :raises virtco.exception.Conflict: after too many attempts.
        """
        try:
            return self._attempts(request, deadline)
        finally:
            self._window.leave(deadline)

    def _attempts(self, request: requests.Placement,
                  deadline: deadlines.Deadline) -> dict[str, Any]:
        fingerprint = _fingerprint(request)
        for attempt in tenacity.Retrying(
                retry=tenacity.retry_if_exception_type(exception.Conflict),
                stop=tenacity.stop_after_attempt(
                    self._conf.placement.attempts)
                | tenacity.stop_after_delay(self._conf.placement.deadline_s),
                wait=tenacity.wait_random_exponential(0.005, 0.1),
                after=lambda _: self._metrics.plan_conflicts.inc(),
                reraise=True):
            with attempt:
                return self._attempt(request, fingerprint, deadline)
        raise AssertionError('unreachable')

    def _attempt(self, request: requests.Placement, fingerprint: str,
                 deadline: deadlines.Deadline) -> dict[str, Any]:
        deadline.enter('read')
        try:
            hint = hints.parse(request.hints, request.metadata,
                               self._seats.limits)
            if hint is None:
                return neutral.answer(request.instance_uuid,
                                      request.host_names(), 'no hint')
            with self._database.reader() as session:
                stored = self._stored(session, request, fingerprint)
                if stored is not None:
                    return stored
                view = self._seats.view(session, request, hint)
        except exception.HintInvalid as error:
            return self._ignored(request, fingerprint, error, deadline)
        return self._planned(request, fingerprint, view, deadline)

    def _stored(self, session: orm.Session, request: requests.Placement,
                fingerprint: str) -> dict[str, Any] | None:
        """The answer to the very same question, while it still holds."""
        found = records.placement(session, request.instance_uuid)
        if found is None or found.fingerprint != fingerprint:
            return None
        answer: dict[str, Any] = msgspec.json.decode(found.answer)
        if answer['status'] == 'planned':
            member = db_groups.member_of(session, found.instance_uuid)
            if member is None or member.host != answer['host']:
                return None
        return answer

    def _planned(self, request: requests.Placement, fingerprint: str,
                 view: membership.View, deadline: deadlines.Deadline
                 ) -> dict[str, Any]:
        mode = _mode(request, view.member)
        if mode is membership.Mode.ASSIGN:
            rows: Sequence[int] = (view.member.row_index,)
            plan = self._plan_of(view.group, (view.member.host or '',))
            answer = _answer(request, view, plan, self._alternates(
                request, view.group.id), plan.hosts[0])
        else:
            question = self._question(request, view)
            if _stays(question, view.member):
                solution: Solution | None = self._as_planned(question, view)
            else:
                solution = (self._together(question, view, mode, deadline)
                            or self._solve(question, view, mode, deadline))
            if solution is None:
                return neutral.answer(
                    request.instance_uuid, request.host_names(),
                    'no valid placement: ' + '; '.join(
                        detail for _kind, detail in view.notes))
            problem, rows, plan = solution
            position = rows.index(view.member.row_index)
            deadline.enter('rank')
            ranked = planner.rank_hosts(
                problem, plan, position,
                budget_s=self._budget_s(deadline, 'commit'))
            answer = _answer(request, view, plan, ranked,
                             plan.hosts[position])
            self._rankings.put(view.group.id, tuple(
                found.host for found in ranked if found.feasible))
            if mode is membership.Mode.PLAN:
                # Nova may lack the time to ask again for each VM of a batch.
                answer['rows'] = {str(row): host
                                  for row, host in zip(rows, plan.hosts)}
        deadline.enter('commit')
        with self._database.writer() as session:
            self._seats.commit(session, request, view, plan, rows, mode, {
                offer.host: offer.free.vector for offer in request.hosts})
            _remember(session, request, fingerprint, answer, view.group.id,
                      self._clock())
            session.flush()
            deadline.claim()
        return answer

    def _budget_s(self, deadline: deadlines.Deadline, *later: str) -> float:
        """What a phase may take, so that there is time for later ones."""
        return max(0.0, min(float(self._conf.placement.budget_s),
                            deadline.left_s()
                            - self._pace.expected_s(*later)))

    def _question(self, request: requests.Placement,
                  view: membership.View) -> problem_builder.Question:
        rows = tuple(self._row(request, view, member)
                     for member in view.members)
        free = {entry.host: entry.free.vector
                for entry in request.hosts}
        hosts = free.keys() | {row.host for row in rows if row.host}
        now_s = self._clock()
        self._state.meet(hosts, now_s)
        coflows = tuple(
            codec.decode_coflow(c).scaled(
                self._state.remaining_fraction(c.id))
            for c in view.coflows if c.is_live)
        return problem_builder.Question(
            row=view.member.row_index, rows=rows, coflows=coflows, free=free,
            capacities=self._state.payload_rates(
                hosts, now_s, self._settings['order'] == snapshots.FAIR),
            loads=self._state.loads(view.group.id), held=view.held,
            batch=self._seats.batch_rows(request, view.members,
                                         view.member),
            server_group=request.server_group)

    def _row(self, request: requests.Placement, view: membership.View,
             member: models.Member) -> problem_builder.Row:
        own = member is view.member
        has_vm = member.instance_uuid is not None and not own
        return problem_builder.Row(
            index=member.row_index,
            demand=(request.flavor.vector
                    if own or not has_vm else
                    (member.vcpus, member.memory_mb, member.disk_gb)),
            host=member.host, instance_uuid=member.instance_uuid,
            fixed=has_vm and member.host is not None,
            in_nova=(member.state == states.MemberState.RUNNING
                     or (has_vm and bool(member.reservation_id)
                         and member.reservation_id
                         == request.reservation_id)))

    def _as_planned(self, question: problem_builder.Question,
                    view: membership.View) -> Solution:
        problem, rows = problem_builder.build(question, keep_planned=True,
                                              respect_held=False)
        by_row = {m.row_index: m.host for m in view.members}
        return problem, rows, self._plan_of(view.group, tuple(
            by_row[row] or by_row[question.row] or '' for row in rows))

    def _plan_of(self, group: models.Group, hosts: tuple[str, ...]
                 ) -> snapshot.Plan:
        """The plan by which the group was placed, as far as it is stored."""
        return snapshot.Plan(
            hosts=hosts, cct_s=_number(group.cct_s),
            coflow_cct_s=(), objective=snapshot.Objective(
                self._settings['objective']),
            objective_s=_number(group.objective_s),
            lower_bound_s=_number(group.lower_bound_s),
            gap=_number(group.gap),
            method=snapshot.Method.of_record(group.method))

    def _alternates(self, request: requests.Placement, group_id: str
                    ) -> tuple[snapshot.RankedHost, ...]:
        """The other hosts, in the order in which they suited the first of
        the group: a member whose host is planned waits for no ranking.
        """
        offered = dict.fromkeys(request.host_names())
        order = [host for host in self._rankings.get(group_id)
                 if host in offered]
        return tuple(
            snapshot.RankedHost(host, True, math.inf, math.inf, 'as planned')
            for host in dict.fromkeys(order) | offered)

    def _together(self, question: problem_builder.Question,
                  view: membership.View, mode: membership.Mode,
                  deadline: deadlines.Deadline) -> Solution | None:
        """A new group's part of a plan with others that ask now."""
        if not view.is_new or mode is not membership.Mode.PLAN:
            return None
        problem, rows = problem_builder.build(question)
        part = self._window.plan((view.group.project_id, view.group.name),
                                 problem, deadline)
        return None if part is None else (part.problem, rows, part.plan)

    def _solve(self, question: problem_builder.Question,
               view: membership.View, mode: membership.Mode,
               deadline: deadlines.Deadline) -> Solution | None:
        """Plan the open rows; with less and less, until something fits.

        :raises virtco.exception.TooLate: when what comes after it would not
            be in time.
        """
        deadline.enter('solve')
        keep = mode is membership.Mode.ADVICE
        tries: list[dict[str, bool]] = [
            {'keep_planned': keep},
            {'keep_planned': keep, 'respect_held': False},
            {'respect_held': False, 'alone': True}]
        for options in tries:
            problem, rows = problem_builder.build(question, **options)
            budget_s = self._budget_s(deadline, 'rank', 'commit')
            if budget_s == 0:
                raise deadline.too_late()
            try:
                with self._metrics.plan_seconds.time():
                    plan = planner.plan(
                        problem,
                        objective=snapshot.Objective(
                            self._settings['objective']),
                        planner=self._settings['planner'],
                        seed=zlib.crc32(view.group.id.encode()),
                        budget_s=budget_s, on_incumbent=_log_progress)
            except exception.PlacementInfeasible as error:
                view.notes.append(('infeasible', str(error)))
                continue
            self._metrics.plans.labels(plan.relaxed).inc()
            return problem, rows, plan
        return None

    def _ignored(self, request: requests.Placement, fingerprint: str,
                 error: exception.HintInvalid, deadline: deadlines.Deadline
                 ) -> dict[str, Any]:
        deadline.enter('commit')
        answer = neutral.answer(request.instance_uuid, request.host_names(),
                                str(error), status='ignored')
        with self._database.writer() as session:
            stored = self._stored(session, request, fingerprint)
            if stored is not None:
                return stored
            self._metrics.ignored_hints.inc()
            LOG.warning('Instance %s: %s', request.instance_uuid, error)
            name = hints.select(request.hints | request.metadata).get(
                hints.COFLOW)
            name = name[:255] if isinstance(name, str) else ''
            group = db_groups.find(session, request.project_id, name)
            answer['group'] = group.id if group is not None else None
            self._seats.note(session, request, 'hint_ignored', str(error),
                             name, answer['group'])
            _remember(session, request, fingerprint, answer,
                      answer['group'], self._clock())
            session.flush()
            deadline.claim()
        return answer


class Rankings:
    """The last groups' hosts, best first; what is not there any more only
    makes alternates come in Nova's order.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hosts: dict[str, tuple[str, ...]] = {}

    def put(self, group_id: str, hosts: tuple[str, ...]) -> None:
        with self._lock:
            self._hosts.pop(group_id, None)
            self._hosts[group_id] = hosts
            if len(self._hosts) > MOST_RANKINGS:
                del self._hosts[next(iter(self._hosts))]

    def get(self, group_id: str) -> tuple[str, ...]:
        with self._lock:
            return self._hosts.get(group_id, ())


def _mode(request: requests.Placement,
          member: models.Member) -> membership.Mode:
    if member.state in (states.MemberState.RESERVED,
                        states.MemberState.RUNNING):
        return membership.Mode.ADVICE
    if member.state == states.MemberState.PLANNED and any(
            offer.host == member.host and problem_builder.fits(
                request.flavor.vector, offer.free.vector)
            for offer in request.hosts):
        return membership.Mode.ASSIGN
    return membership.Mode.PLAN


def _stays(question: problem_builder.Question,
           member: models.Member) -> bool:
    """Whether a VM that was told its host before is told the same again."""
    return (member.state == states.MemberState.RESERVED
            and member.host in question.free)


def _answer(request: requests.Placement, view: membership.View,
            plan: snapshot.Plan, ranked: tuple[snapshot.RankedHost, ...],
            chosen: str) -> dict[str, Any]:
    finite = codec.finite
    offered = {entry.host for entry in request.hosts}
    order = sorted((r for r in ranked if r.host in offered),
                   key=lambda r: r.host != chosen)
    listed = {r.host for r in order}
    order += [snapshot.RankedHost(host, False, math.inf, math.inf,
                                  'not considered')
              for host in sorted(offered - listed)]
    own = next((r for r in order if r.host == chosen), None)
    notes = [detail for _kind, detail in view.notes]
    return {
        'instance_uuid': request.instance_uuid, 'status': 'planned',
        'host': chosen, 'group': view.group.id,
        'group_name': view.group.name, 'row': view.member.row_index,
        'why': '; '.join([own.why if own else 'as planned', *notes]),
        'hosts': [{'host': r.host, 'rank': i, 'feasible': r.feasible,
                   'cct_s': finite(r.cct_s),
                   'objective_s': finite(r.objective_s), 'why': r.why}
                  for i, r in enumerate(order)],
        'cct_s': finite(plan.cct_s),
        'lower_bound_s': finite(plan.lower_bound_s),
        'gap': finite(plan.gap), 'method': plan.method,
        'bottleneck': plan.bottleneck}


def _log_progress(progress: snapshot.Progress) -> None:
    LOG.debug('%s', progress)


def _number(value: float | None) -> float:
    return math.inf if value is None else value


def _fingerprint(request: requests.Placement) -> str:
    return hashlib.sha256(msgspec.json.encode(msgspec.structs.replace(
        request, unplanned_passes=0))).hexdigest()


def _remember(session: orm.Session, request: requests.Placement,
              fingerprint: str, answer: Mapping[str, Any],
              group_id: str | None, now_s: float) -> None:
    session.merge(models.Placement(
        instance_uuid=request.instance_uuid,
        project_id=request.project_id, group_id=group_id,
        fingerprint=fingerprint,
        answer=msgspec.json.encode(answer).decode(),
        updated_at=now_s))
