# SPDX-License-Identifier: Apache-2.0

"""The door of the room: answers in time, whatever happens."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import concurrent.futures
import logging
import threading
import time
from typing import Any
from typing import TYPE_CHECKING

import msgspec
from oslo_config import cfg

from virtco import exception
from virtco import hints
from virtco import metrics
from virtco import periodic
from virtco import startup
from virtco.db import bookings
from virtco.db import groups as db_groups
from virtco.db import models
from virtco.db import records
from virtco.db import session as db_session
from virtco.model import booking
from virtco.model import states
from virtco.objects import reasons
from virtco.objects import settings
from virtco.place import answer as answers
from virtco.place import deadline as deadlines
from virtco.place import decisions
from virtco.place import journal
from virtco.place import newest
from virtco.place import problem
from virtco.place import question as requests
from virtco.state import state as known
from virtco.wire import fields
from virtco.wire import placement as wire
from virtco.wire import plan as plan_wire

if TYPE_CHECKING:
    from virtco.place import adviser as advisers
    from virtco.place import placer

LOG = logging.getLogger(__name__)

#: Placements worked on at the same time; more are answered without an opinion.
WORKERS = 8
#: Time from one look for rows that are planned again to the next.
REPLAN_S = 0.5
#: Latest requests, whose hosts stand for those of a question without any.
MOST_REQUESTS = 4


class Place:
    """Room that chooses hosts of VMs.

    :param changed: is told the ids of groups that were planned.
    :param preflight: is told the ids of groups whose tenants want their hosts
        checked.
    :param free: function that reads the free room from Nova; None where it
        cannot be asked.
    """

    def __init__(self, conf: cfg.ConfigOpts, state: known.State,
                 settings: settings.Settings, counts: metrics.Metrics,
                 turns: periodic.Turns, starting: startup.Startup,
                 changed: Callable[[Iterable[str]], None],
                 free: Callable[[], Mapping[str, booking.Vector]] | None = (
                     None),
                 clock: Callable[[], float] = time.time,
                 preflight: Callable[[Iterable[str]], None] | None = None):
        self._conf = conf
        self._preflight = preflight
        self._offers: newest.Newest[str, list[wire.Offer]] = newest.Newest(
            MOST_REQUESTS)
        self._free = free or self._offered
        self._state = state
        self._settings = settings
        self._metrics = counts
        self._turns = turns
        self._startup = starting
        self._changed = changed
        self._clock = clock
        self._placer: placer.Placer | None = None
        self._pace = deadlines.Pace()
        self._metrics.placements_under_way.set_function(
            lambda: self._pace.n_under_way)
        self._is_used = False
        self._journal = journal.Journal(state.database, clock)
        self._decisions = decisions.Decisions(state.database)
        self._pool = concurrent.futures.ThreadPoolExecutor(
            WORKERS, thread_name_prefix='placement')

    def start(self) -> None:
        self._turns.every(journal.INTERVAL_S, 'write the journal',
                          self._write, is_last=True)
        self._turns.every(REPLAN_S, 'plan again', self._replan)

    def _replan(self) -> None:
        """Plan rows again that Nova has not asked about."""
        if self._placer is not None and (
                changed := self._placer.replanning.turn()):
            self._changed(changed)

    def _write(self) -> None:
        self._journal.write()
        self._decisions.write()

    def load_planner(self, is_used: bool) -> None:
        """Load the planner, the last step of the start.

        A planner that does not work makes placements neutral and the health
        bad, but what runs keeps its policies.

        :param is_used: there were hosts before the start.
        """
        try:
            from virtco.place import placer
            from virtco.solver import planner
            if is_used:
                self._is_used = True
                planner.load_libraries()
        except Exception:
            LOG.exception('The planner does not work.')
            self._startup.failed('the planner does not work')
            return
        self._placer = placer.Placer(
            self._conf, self._state, self._settings, self._metrics,
            self._pace, self._decisions, self._clock)
        self._startup.ready()

    def is_alive(self) -> bool:
        return self._placer is not None

    def is_busy(self) -> bool:
        """Tell whether placements are under way."""
        return self._pace.n_under_way > 0

    def needs_interpreter(self, within_s: float) -> bool:
        """Tell whether placements need the interpreter within so long."""
        return self._pace.needs_interpreter(within_s)

    def stop(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def use(self, *_anything: Any) -> None:
        """Load the planner's libraries at the first sign of use.

        No launch should wait for them, and an idle controller needs none.
        """
        if not self._is_used and self._placer is not None:
            self._is_used = True
            from virtco.solver import planner
            threading.Thread(target=planner.load_libraries,
                             name='libraries', daemon=True).start()

    def answer(self, request: wire.Placement,
               is_gone: Callable[[], bool] = lambda: False) -> wire.Answer:
        """Answer within ``[placement] deadline_s``, whatever happens.

        :param is_gone: whether the client closed its connection: nothing is
            committed then.
        """
        self._metrics.nova_unplanned.inc(request.unplanned_passes)
        key = request.reservation_id or request.instance_uuid
        if len(request.hosts) > 1 or self._offers.get(key) is None:
            # News of a server that was placed already have its host alone.
            self._offers.put(key, request.hosts)
        with self._metrics.placement_seconds.time():
            answer = self._place(request, is_gone)
        self.use()
        if answer.status == 'neutral' and answer.refused is None:
            self._journal.add(request, answer)
        if self._settings.is_shadow:
            answer = self._in_shadow(request, answer)
        self._metrics.placements.labels(answer.status).inc()
        return answer

    def _place(self, request: wire.Placement,
               is_gone: Callable[[], bool]) -> wire.Answer:
        if self._placer is None:
            return self._no_opinion(request, 'starting',
                                    self._startup.why() or 'no planner')
        try:
            answer = self._in_time(self._placer, request, is_gone)
        except exception.TooLate as error:
            phase = error.kwargs['phase']
            self._metrics.late_placements.labels(phase).inc()
            return self._no_opinion(request, 'deadline', str(error), phase)
        except exception.DatabaseUnavailable as error:
            return self._no_opinion(request, 'database', str(error))
        except exception.Conflict as error:
            return self._no_opinion(request, 'conflict', str(error))
        except Exception as error:
            LOG.exception('No placement for %s.', request.instance_uuid)
            return self._no_opinion(request, 'error', repr(error))
        if answer.status == 'planned' and answer.group is not None:
            self._changed([answer.group])
            if self._preflight is not None and hints.wants_preflight(
                    request.hints, request.metadata):
                self._preflight([answer.group])
        return answer

    def _in_shadow(self, request: wire.Placement,
                   answer: wire.Answer) -> wire.Answer:
        """Log a planned answer and return a neutral one instead."""
        if answer.status != 'planned' and answer.refused is None:
            return answer
        why = (f'shadow mode: planned on {answer.host}'
               if answer.status == 'planned' else f'shadow mode: {answer.why}')
        LOG.info('Instance %s: %s.', request.instance_uuid, why)
        self._metrics.shadow_placements.labels(answer.status).inc()
        return answers.neutral(request.instance_uuid, request.offers, why,
                               group=answer.group)

    def _in_time(self, placer: 'placer.Placer', request: wire.Placement,
                 is_gone: Callable[[], bool]) -> wire.Answer:
        """Place within the deadline.

        :raises virtco.exception.TooLate: with nothing committed.
        """
        deadline = deadlines.Deadline(self._conf.placement.deadline_s,
                                      is_gone=is_gone)
        self._pace.admit(deadline)
        try:
            future = self._pool.submit(self._work, placer, request, deadline)
        except RuntimeError:  # the system has no more threads
            deadline.give_up()
            self._pace.leave(deadline)
            raise
        future.add_done_callback(lambda _: self._pace.leave(deadline))
        try:
            return future.result(deadline.left_s())
        except concurrent.futures.TimeoutError:
            if deadline.give_up():
                future.cancel()
                raise deadline.too_late() from None
        return future.result(db_session.PATIENCE_S)

    def _work(self, placer: 'placer.Placer', request: wire.Placement,
              deadline: deadlines.Deadline) -> wire.Answer:
        """Place on a worker's thread; learn the time that each phase took."""
        started_s = time.thread_time()
        try:
            return placer.place(request, deadline)
        finally:
            self._pace.learn(deadline, time.thread_time() - started_s)
            for phase, spent_s in deadline.spent_s().items():
                self._metrics.phase_seconds.labels(phase).observe(spent_s)

    def _no_opinion(self, request: wire.Placement, reason: str,
                    why: str, slow_phase: str | None = None
                    ) -> wire.Answer:
        """Answer neutrally, and log and count the reason."""
        self._metrics.placement_failures.labels(reason).inc()
        LOG.warning('No opinion on instance %s: %s',
                    request.instance_uuid, why)
        return answers.neutral(request.instance_uuid, request.offers, why,
                               slow_phase=slow_phase)

    def placement(self, instance_uuid: str) -> wire.Kept:
        """Return the last answer for an instance, and where it is now.

        :raises virtco.exception.NotFound: when there was none.
        """
        with self._state.database.reader() as session:
            found = session.get(models.Placement, instance_uuid)
            if found is not None:
                answer = answers.DECODER.decode(found.answer)
                since = found.project_id, found.updated_at
            elif event := records.newest_event(session, instance_uuid,
                                               reasons.NEUTRAL):
                answer = msgspec.structs.replace(
                    answers.neutral(instance_uuid, (), event.detail),
                    group_name=event.group_name)
                since = event.project_id, event.created_at
            else:
                raise exception.NotFound(what='Placement', id=instance_uuid)
            member = db_groups.member_of(session, instance_uuid)
        return wire.Kept(
            **msgspec.structs.asdict(answer), project_id=since[0], at=since[1],
            state=member.state if member is not None else None,
            host_now=member.host if member is not None else None)

    def explain(self, placement: wire.Kept,
                budget_s: float | None) -> wire.Explanation:
        """Explain the reasons for a placement.

        :param placement: answer of :meth:`placement`.
        :param budget_s: time to spend; None: some.
        :raises virtco.exception.Starting:
        """
        if self._placer is None:
            raise exception.Starting(why=self._startup.why())
        from virtco.place import whatif
        group_id = placement.group
        return whatif.explain(
            placement, self._decisions.find(group_id)
            if group_id and placement.status == 'planned' else None,
            whatif.EXPLAIN_S if budget_s is None else budget_s)

    def free_after_bookings(self, free: Mapping[str, booking.Vector]
                            ) -> dict[str, booking.Vector]:
        """Subtract bookings from the resources shown as free.

        :param free: free room as Nova or placement shows it.
        :raises virtco.exception.DatabaseUnavailable:
        """
        with self._state.database.reader() as session:
            return bookings.ledger(session.connection(), self._clock(),
                                   free).left()

    def what_if(self, request: plan_wire.PlanRequest) -> plan_wire.Plan:
        """Answer ``POST /v1/plans``.

        :raises virtco.exception.Starting:
        :raises virtco.exception.PlacementInfeasible:
        """
        if self._placer is None:
            raise exception.Starting(why=self._startup.why())
        from virtco.place import whatif
        if request.hosts is None:
            request = msgspec.structs.replace(request, hosts=[
                plan_wire.GivenHost(host=host, free=fields.Resources(*left))
                for host, left in self._room(request.alone).items()])
        hosts = [one.host for one in request.hosts or ()]
        settings = self._settings.get()
        now_s = self._clock()
        unknown_bps = self._conf.placement.default_link_bps
        found = whatif.answer(
            self._conf, request, settings,
            dict.fromkeys(hosts, (unknown_bps, unknown_bps))
            | self._state.live.payload_rates(
                hosts, now_s, self._settings.is_fair),
            self._state.live.payload_tree(now_s),
            () if request.alone else self._state.live.loads(None),
            self._placer.promises.judge)
        with self._state.database.reader() as session:
            names = records.coflow_names(
                session, [one.coflow_id for one in found.delays])
        return msgspec.structs.replace(found, delays=sorted((
            msgspec.structs.replace(one, **dict(zip(
                ('name', 'project_id'),
                names.get(one.coflow_id, (None, None)))))
            for one in found.delays), key=lambda one: (
                one.before_s - one.after_s, one.name or '')))

    def adviser(self) -> 'advisers.Adviser':
        """Make the searcher of moves that would pay."""
        from virtco.place import adviser as advisers
        return advisers.Adviser(
            self._conf, self._state, self._settings, self._room, self._clock)

    def _offered(self) -> dict[str, booking.Vector]:
        """Map each host to its free resources in the newest request."""
        return {offer.host: requests.vector(offer.free)
                for _key, offers in self._offers.items() for offer in offers}

    def _room(self, alone: bool = False) -> dict[str, booking.Vector]:
        """Map all hosts to their free resources, as for a launch.

        :param alone: whether rooms of groups' VMs count as free.
        :raises virtco.exception.Invalid: when nothing is known of any.
        :raises virtco.exception.NovaUnavailable:
        """
        free = self._free()
        if not free:
            raise exception.Invalid(
                field='hosts', value=None,
                limit='the free hosts, as none is known (Nova has not asked '
                      'yet, and without [nova] auth_type it cannot be asked)')
        room = (self._without_groups if alone
                else self.free_after_bookings)(free)
        return {host: left for host, left in room.items()
                if host not in self._state.live.drained}

    def _without_groups(self, free: Mapping[str, booking.Vector]
                        ) -> dict[str, booking.Vector]:
        """Add the demands of running VMs of groups to the free room."""
        with self._state.database.reader() as session:
            members = db_groups.living_members(session)
        return problem.sum_by_host([*free.items(), *(
            (member.host, requests.vector(member))
            for member in members if member.host is not None
            and member.state == states.MemberState.RUNNING)])
