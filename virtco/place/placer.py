# SPDX-License-Identifier: Apache-2.0

"""Answers Nova's question: where should this VM go?"""

from collections.abc import Callable
import dataclasses
import hashlib
import logging

import msgspec
from oslo_config import cfg
import sqlalchemy as sa
from sqlalchemy import orm
import tenacity

from virtco import exception
from virtco import hints
from virtco import metrics
from virtco.db import bookings
from virtco.db import groups as db_groups
from virtco.db import members as db_members
from virtco.db import models
from virtco.model import snapshot
from virtco.model import states
from virtco.objects import settings
from virtco.place import answer as answers
from virtco.place import commit
from virtco.place import deadline as deadlines
from virtco.place import deadline_promises
from virtco.place import decisions
from virtco.place import membership
from virtco.place import planning
from virtco.place import question as requests
from virtco.place import replanning
from virtco.place import siblings
from virtco.state import state as known
from virtco.wire import placement as wire

LOG = logging.getLogger(__name__)
#: Fields of a question that differ while the same one is asked again. The free
#: resources of 1,000 hosts take a tenth of a sibling's time, too.
_APART = {'hosts', 'unplanned_passes'}


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """Request for an instance as it came from Nova.

    :ivar fingerprint: the same for the very same question.
    :ivar is_known: the database has an answer to an earlier question about
        the instance.
    """

    request: wire.Placement
    fingerprint: str
    is_known: bool


class Placer:
    """Plans on a snapshot, commits if nothing came in between."""

    def __init__(self, conf: cfg.ConfigOpts, state: known.State,
                 settings: settings.Settings, metrics: metrics.Metrics,
                 pace: deadlines.Pace, decisions: decisions.Decisions,
                 clock: Callable[[], float]):
        self._database = state.database
        self._state = state
        self._decisions = decisions
        self._metrics = metrics
        self._clock = clock
        self._retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(exception.Conflict),
            stop=tenacity.stop_after_delay(conf.placement.deadline_s),
            wait=tenacity.wait_random_exponential(0.005, 0.1),
            after=lambda _: metrics.plan_conflicts.inc(), reraise=True)
        self._reader = membership.Reader(conf, clock)
        self._siblings = siblings.Siblings(lambda: state.live.drained)
        self._planning = planning.Planning(conf, settings, metrics, state,
                                           pace, clock)
        self.replanning = replanning.Replanning(state, settings, pace,
                                                decisions, clock)
        self.promises = deadline_promises.Promises(
            state.live, lambda: settings.is_fair, clock)

    def place(self, request: wire.Placement,
              deadline: deadlines.Deadline) -> wire.Answer:
        """Answer ``PUT /v1/placements/{instance_uuid}``.

        :raises virtco.exception.TooLate:
        :raises virtco.exception.DatabaseUnavailable:
        :raises virtco.exception.Conflict: after too many attempts.
        """
        try:
            return self._retrying(self._attempt, request,
                                  _fingerprint(request), deadline)
        finally:
            # Requests that wait for this answer read it, or go on without.
            self._planning.window.leave(deadline)

    def _attempt(self, request: wire.Placement, fingerprint: str,
                 deadline: deadlines.Deadline) -> wire.Answer:
        deadline.enter('read')
        try:
            outline = hints.outline(request.hints, request.metadata,
                                    self._reader.limits)
            if outline is None:
                return answers.neutral(request.instance_uuid, request.offers,
                                       'no hint')
            digest = outline.digest
            key = request.project_id, outline.coflow_name
            if self._siblings.expects(key, digest):
                found = self._as_sibling(request, fingerprint, outline,
                                         deadline)
                if found is not None:
                    return found
                deadline.enter('read')
            hint = outline.read(self._reader.limits)
            with self._database.reader() as session:
                stored, is_known = _stored(session, request, fingerprint)
                if stored is not None:
                    return stored
                view = self._reader.view(session, request, hint)
        except exception.HintInvalid as error:
            return self._ignored(request, fingerprint, error, deadline)
        if view.keeps_matrix:
            self._siblings.remember(key, view.group.id, digest)
        question = Question(request, fingerprint, is_known)
        planned = view.planned()
        if planned is not None and planned.host in request.offers:
            deadline.enter('commit')
            with self._database.writer() as session:
                db_groups.advance(session.connection())
                _check_reserved(session, request, planned)
                answer = self._assign(
                    session.connection(), question, planned, view.wishes,
                    view.notes, deadline)
                if answer is not None:
                    self._reader.note(session, request, view.notes,
                                      planned.group_name, planned.group_id)
                    deadline.claim()
                    return answer
        return self._planned(question, view, deadline)

    def _as_sibling(self, request: wire.Placement, fingerprint: str,
                    outline: hints.Outline, deadline: deadlines.Deadline
                    ) -> wire.Answer | None:
        """Answer in one transaction for a member of a group that is planned.

        Most questions end here. None for any other, such as the very same
        question again.
        """
        deadline.enter('commit')
        with self._database.statements() as connection:
            # Written first, as MariaDB freezes the view of a transaction at
            # its first read.
            db_groups.advance(connection)
            planned = self._siblings.find(
                connection, request, (request.project_id,
                                      outline.coflow_name), outline.index)
            if planned is None or planned.fingerprint == fingerprint:
                return None
            answer = self._assign(
                connection, Question(request, fingerprint,
                                     planned.fingerprint is not None),
                planned, outline.wishes, (), deadline)
            if answer is not None:
                deadline.claim()
        return answer

    def _assign(self, connection: sa.Connection, question: Question,
                planned: db_members.Planned, wishes: hints.Wishes,
                notes: membership.Notes, deadline: deadlines.Deadline
                ) -> wire.Answer | None:
        """Make the instance a member whose host is planned.

        None where the host has no room for it: the plan was made for another
        flavor, or others have come. A host that is reserved for the instance
        stays its own.
        """
        request = question.request
        is_taken = planned.state == states.MemberState.RESERVED
        if not is_taken and not bookings.ledger(
                connection, self._clock(),
                requests.free(request, {planned.host}), [planned.host],
                bookings.Beside(planned.group_id, planned.index)).admits(
                    {planned.host: requests.vector(request.flavor)}):
            return None
        answer = self._siblings.answer(
            request, planned, self._planning.allowed(
                request, wishes, planned.host), notes)
        if not is_taken:
            db_members.take(connection, planned, commit.taken_by(
                request, self._reader.expiry_s()))
        if request.server_group is not None:
            commit.join_server_group(connection, request, planned)
        self._remember(connection, question, answer)
        return answer

    def _planned(self, question: Question, view: membership.View,
                 deadline: deadlines.Deadline) -> wire.Answer:
        """Plan for a question, commit the plan, and build the answer."""
        request = question.request
        solution = self._planning.solution(request, view, deadline)
        if solution is None:
            return self._without_plan(question, view, deadline)
        problem, rows, plan = solution
        if view.deadline is not None:
            self._judge(request, view, view.deadline, problem, plan)
        is_advice = view.is_advice  # a commit changes the member
        ranked = self._planning.rank(solution, view.member.row_index,
                                     deadline)
        answer = _answer(request, view, plan, rows, ranked)
        answer = msgspec.structs.replace(
            answer, allowed=self._planning.allowed(request, view.wishes,
                                                   answer.host or ''))
        self._siblings.remember(
            (request.project_id, view.group.name), view.group.id, '', tuple(
                found.host for found in ranked if found.feasible))
        deadline.enter('commit')
        try:
            with self._database.writer() as session:
                commit.Commit(self._reader, session, request, view, rows,
                              plan).write()
                self._remember(session.connection(), question, answer)
                deadline.claim()
        except exception.Conflict as error:
            if error.kwargs.get('what') == commit.PROMISE:
                # Changes by other processes are read each second only.
                self._state.invalidate([error.kwargs['id']])
                self._state.refresh()
            raise
        if not is_advice:
            self.replanning.keep(request, view, problem, rows)
            self._decisions.add(decisions.Decision(
                view.group.id, problem, rows, plan, deadline.spent_s()))
        return answer

    def _judge(self, request: wire.Placement, view: membership.View,
               deadline: hints.Deadline, problem: snapshot.PlacementProblem,
               plan: snapshot.Plan) -> None:
        """Promise a new group its deadline, or say why not."""
        view.judged = judged = self.promises.judge(
            deadline, problem, plan, view.group.n_vms)
        promise = judged.promise
        for coflow in view.coflows:
            coflow.deadline_at = promise.at
            coflow.is_promised = promise.promised
        text = f'deadline {deadline}: {promise.why}'
        view.notes.append(('deadline', text))
        LOG.info('Instance %s: %s', request.instance_uuid, text)

    def _without_plan(self, question: Question, view: membership.View,
                      deadline: deadlines.Deadline) -> wire.Answer:
        """Answer without a plan; store a refusal, as it prevents the boot."""
        request = question.request
        answer = answers.neutral(
            request.instance_uuid, request.offers,
            'no valid placement: ' + '; '.join(
                detail for _kind, detail in view.notes),
            refused=view.refused)
        if view.refused is not None:
            LOG.warning('Instance %s: %s', request.instance_uuid,
                        view.refused)
            deadline.enter('commit')
            with self._database.writer() as session:
                self._reader.note(session, request, view.notes,
                                  view.group.name,
                                  None if view.is_new else view.group.id)
                self._remember(session.connection(), question, answer)
                deadline.claim()
        return answer

    def _ignored(self, request: wire.Placement, fingerprint: str,
                 error: exception.HintInvalid, deadline: deadlines.Deadline
                 ) -> wire.Answer:
        """Store and return the answer to a hint that cannot be used."""
        deadline.enter('commit')
        with self._database.writer() as session:
            stored, is_known = _stored(session, request, fingerprint,
                                       str(error))
            if stored is not None:
                return stored
            self._metrics.ignored_hints.inc()
            LOG.warning('Instance %s: %s', request.instance_uuid, error)
            name = requests.named_group(request)
            group = db_groups.find(session, request.project_id, name)
            answer = answers.neutral(
                request.instance_uuid, request.offers, str(error),
                status='ignored',
                group=group.id if group is not None else None)
            self._reader.note(session, request,
                              [('hint_ignored', str(error))], name,
                              answer.group)
            self._remember(session.connection(), Question(
                request, fingerprint, is_known), answer)
            deadline.claim()
        return answer

    def _remember(self, connection: sa.Connection, question: Question,
                  answer: wire.Answer) -> None:
        """Store an answer, for the same question asked again."""
        db_members.remember(
            connection, answer.instance_uuid, question.is_known, {
                'project_id': question.request.project_id,
                'group_id': answer.group,
                'fingerprint': question.fingerprint,
                'answer': answers.ENCODER.encode(answer).decode(),
                'updated_at': self._clock()})


def _check_reserved(session: orm.Session, request: wire.Placement,
                    planned: db_members.Planned) -> None:
    """Check that a reservation that was read did not end meanwhile: another
    one may have its room.

    :raises virtco.exception.Conflict:
    """
    if planned.state == states.MemberState.RESERVED:
        member = db_groups.member_of(session, request.instance_uuid)
        if member is None or member.host != planned.host:
            raise exception.Conflict(what='member', id=planned.index)


def _stored(session: orm.Session, request: wire.Placement,
            fingerprint: str, why_ignored: str = ''
            ) -> tuple[wire.Answer | None, bool]:
    """Find the answer to the very same question, while it still holds.

    :param why_ignored: reason for which the hint is of no use now, if it is.
    :returns: the answer, and whether there is one to any question.
    """
    before = db_members.fingerprint(session.connection(),
                                    request.instance_uuid)
    is_known = before is not None
    found = (session.get(models.Placement, request.instance_uuid)
             if before == fingerprint else None)
    if found is None:
        return None, is_known
    answer = answers.DECODER.decode(found.answer)
    if answer.status == 'planned':
        member = db_groups.member_of(session, request.instance_uuid)
        # A VM that runs is to move, maybe from a host of the same ones.
        if (member is None or member.host != answer.host
                or member.state != states.MemberState.RESERVED):
            return None, is_known
    elif answer.why != why_ignored:
        return None, is_known  # there may be room, or its group, by now
    return answer, is_known


def _answer(request: wire.Placement, view: membership.View,
            plan: snapshot.Plan, rows: tuple[int, ...],
            ranked: tuple[snapshot.RankedHost, ...]) -> wire.Answer:
    """Build the answer to Nova: the planned host first, then the others."""
    hosts = dict(zip(rows, plan.hosts))
    chosen = hosts[view.member.row_index]
    order = sorted((r for r in ranked if r.host in request.offers),
                   key=lambda r: r.host != chosen)
    why = next((r.why for r in order if r.host == chosen), 'as planned')
    listed = [wire.RankedHost(r.host, rank, r.feasible, r.cct_s,
                              r.objective_s, r.why)
              for rank, r in zip(range(answers.MOST_HOSTS), order)]
    return wire.Answer(
        instance_uuid=request.instance_uuid, status='planned', host=chosen,
        group=view.group.id, group_name=view.group.name,
        row=view.member.row_index,
        why='; '.join([why, *(detail for _kind, detail in view.notes),
                       *view.remarks]),
        hosts=listed,
        # Nova may lack the time to ask again for each VM of a batch.
        rows=msgspec.UNSET if view.is_advice else {
            str(row): host for row, host in hosts.items()},
        deadline=view.judged.promise if view.judged is not None else None,
        **answers.figures(plan))


def _fingerprint(request: wire.Placement) -> str:
    """Digest a question; of its hosts only the names."""
    return hashlib.sha256(msgspec.msgpack.encode([
        list(request.offers), *(getattr(request, name)
                                for name in request.__struct_fields__
                                if name not in _APART)])).hexdigest()
