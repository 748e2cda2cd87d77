# SPDX-License-Identifier: Apache-2.0

"""Plans a group from the knowledge of it and of the cloud."""

from collections.abc import Callable
import dataclasses
import functools
import logging
import zlib

from oslo_config import cfg

from virtco import exception
from virtco import hints
from virtco import metrics
from virtco import units
from virtco.db import models
from virtco.model import booking
from virtco.model import cluster
from virtco.model import snapshot
from virtco.model import states
from virtco.objects import group_rules
from virtco.objects import settings
from virtco.place import answer as answers
from virtco.place import deadline as deadlines
from virtco.place import membership
from virtco.place import problem as problem_builder
from virtco.place import question as requests
from virtco.place import window
from virtco.place import wishes
from virtco.solver import planner
from virtco.state import route as routes
from virtco.state import state as known
from virtco.wire import placement as wire

LOG = logging.getLogger(__name__)

# Problem, the row of each of its VMs, and the plan of their hosts.
Solution = tuple[snapshot.PlacementProblem, tuple[int, ...], snapshot.Plan]


class Planning:
    """Planner of one group's placement from the live state.

    :param state: rates of hosts and of pairs of them, loads of other coflows,
        remaining fractions.
    :ivar window: window in which groups wait for each other.
    """

    def __init__(self, conf: cfg.ConfigOpts, settings: settings.Settings,
                 counts: metrics.Metrics, state: known.State,
                 pace: deadlines.Pace, clock: Callable[[], float]):
        self._conf = conf
        self._settings = settings
        self._metrics = counts
        self._live = state.live
        self._rates = state.rates
        self._pace = pace
        self._clock = clock
        self.window = window.Window(conf, settings, counts, pace)

    def solution(self, request: wire.Placement, view: membership.View,
                 deadline: deadlines.Deadline) -> Solution | None:
        """Find a plan; None if none is valid, and the view's notes say why.

        :raises virtco.exception.TooLate: when what comes after it would not
            be in time.
        """
        with self._live.held():
            build = self._known(request, view)
        # Nobody has to wait for the 3 ms that it takes beside 500 coflows.
        return self._solve(build(), view, deadline)

    def allowed(self, request: wire.Placement, wish: hints.Wishes,
                host: str) -> list[str] | None:
        """List the offered hosts that meet the required wishes.

        What Nova's filter drops for one VM of a request is gone for the next.
        So the switch that a VM shall have of its own (spread) counts only
        where the request has no other VM.

        :param host: host of the plan.
        :returns: None when nothing is required.
        """
        required = wish.required
        levels = [one.level for one, counts in (
            (required.within, True),
            (required.spread, request.num_instances == 1)) if one and counts]
        if not levels:
            return None
        tree = self._live.payload_tree(self._clock())
        return sorted(set(request.offers).intersection(
            *(wishes.below_the_same(tree, level, host) for level in levels)))

    def rank(self, solution: Solution, row: int,
             deadline: deadlines.Deadline
             ) -> tuple[snapshot.RankedHost, ...]:
        """Rank the hosts for one member, the others placed as planned.

        Empty where no host has room: the member keeps its own.
        """
        problem, rows, plan = solution
        deadline.enter('rank')
        try:
            return planner.rank_hosts(
                problem, plan, rows.index(row),
                budget_s=self._budget_s(deadline, 'commit'),
                most=answers.MOST_HOSTS, is_cancelled=deadline.is_abandoned)
        except exception.PlacementInfeasible:
            return ()

    def _budget_s(self, deadline: deadlines.Deadline, *later: str) -> float:
        """Return the seconds a phase may take leaving time for later ones."""
        return max(0.0, min(float(self._conf.placement.budget_s),
                            deadline.left_s()
                            - self._pace.expected_s(*later)))

    def _known(self, request: wire.Placement, view: membership.View
               ) -> Callable[[], snapshot.PlacementProblem]:
        """Collect room, rates and loads for the problem of all members."""
        free = self._open_hosts(view)
        hosts = free.keys() | {member.host for member in view.members
                               if member.host}
        now_s = self._clock()
        self._live.meet(hosts, now_s)
        chosen = self._rates.choose(hosts, now_s,
                                    lambda: self._live.wire_tree(now_s))
        view.remarks = [chosen.text] if chosen.text else []
        coflows = tuple(
            matrix.scaled(self._live.remaining_fraction(coflow.id))
            for matrix, coflow in zip(
                view.matrices, (c for c in view.coflows if c.is_live)))
        return functools.partial(
            problem_builder.build,
            self._vms(request, view, frozenset(free)), coflows, free,
            self._live.payload_rates(hosts, now_s, self._settings.is_fair),
            self._live.payload_tree(now_s), self._live.loads(view.group.id),
            self._live.payload_pairs(chosen.rates_bps))

    def _open_hosts(self, view: membership.View
                    ) -> dict[str, booking.Vector]:
        """Map usable candidates to their bookable resources.

        Usable is a host that is not drained, or planned for the group before.
        """
        planned = {member.host for member in view.members
                   if member.state != states.MemberState.RUNNING}
        drained = self._live.drained - planned
        free = {host: left for host, left in view.free.items()
                if host not in drained}
        if not free:
            view.notes.append(('infeasible', 'every candidate host is '
                                             'drained'))
        return free

    def _vms(self, request: wire.Placement, view: membership.View,
             candidates: frozenset[str]) -> tuple[cluster.Vm, ...]:
        """Describe the members to the planner; one with a VM stays in place,
        and beside an answer that only ranks one with a plan, too.
        """
        running = [member.instance_uuid is not None
                   and member is not view.member for member in view.members]
        # Flavors of the members; the asked one's holds where no VM is yet.
        given = [member if has_vm else request
                 for member, has_vm in zip(view.members, running)]
        caps = self._live.payload_caps([
            _capped(*pair) for pair in zip(given, view.members)])
        found = []
        for member, has_vm, flavor, caps_bps in zip(
                view.members, running, given, caps):
            stays = member.host is not None and (has_vm or (
                view.is_advice and member is not view.member))
            found.append(cluster.Vm(
                member.instance_uuid or f'member {member.row_index}',
                requests.vector(member if has_vm else request.flavor),
                member.host if stays else None, stays,
                None if stays else candidates, *caps_bps,
                flavor.egress_burst_bytes, flavor.ingress_burst_bytes))
        return tuple(found)

    def _solve(self, problem: snapshot.PlacementProblem,
               view: membership.View, deadline: deadlines.Deadline
               ) -> Solution | None:
        """Plan the open rows, or where they do not fit the one alone."""
        groups = [view.server_group] if view.server_group is not None else []
        rows = tuple(member.row_index for member in view.members)
        problem = group_rules.constrained(problem, rows, groups)
        if view.is_new and view.wishes.within is None:
            # With other new groups that ask now.
            part = self.window.plan(
                (view.group.project_id, view.group.name),
                wishes.constrained(problem, view.wishes), deadline)
            if part is not None:
                return part.problem, rows, part.plan
        deadline.enter('solve')
        met = self._plan(problem, view, deadline)
        # Where a wish is refused, a part of the group is no answer.
        if met is None and view.refused is None:
            # Members that have neither VM nor host are left out.
            kept = [i for i, member in enumerate(view.members)
                    if member is view.member or (
                        member.instance_uuid and member.host)]
            rows = tuple(rows[i] for i in kept)
            met = self._plan(group_rules.constrained(dataclasses.replace(
                problem, vms=tuple(problem.vms[i] for i in kept),
                coflows=problem_builder.among(problem.coflows, kept)),
                rows, groups), view, deadline)
        return None if met is None else (met.problem, rows, met.plan)

    def _plan(self, problem: snapshot.PlacementProblem,
              view: membership.View, deadline: deadlines.Deadline
              ) -> wishes.Met | None:
        """Plan with the view's wishes; None and a note if nothing fits."""
        if self._budget_s(deadline, 'rank', 'commit') == 0:
            raise deadline.too_late()

        def solve(some: snapshot.PlacementProblem) -> snapshot.Plan:
            return planner.plan(
                some, objective=snapshot.Objective(
                    self._settings['objective']),
                planner=self._settings['planner'],
                seed=zlib.crc32(view.group.id.encode()),
                budget_s=self._budget_s(deadline, 'rank', 'commit'),
                on_incumbent=functools.partial(LOG.debug, '%s'),
                is_cancelled=deadline.is_abandoned)

        try:
            with self._metrics.plan_seconds.time():
                met = wishes.plan(problem, view.wishes, solve)
        except exception.WishRefused as error:
            view.refused = error
            view.notes.append(('wish_refused', str(error)))
            return None
        except exception.PlacementInfeasible as error:
            view.notes.append(('infeasible', str(error)))
            return None
        view.notes += [('wish_unmet', text) for text in met.notes]
        self._metrics.plans.labels(met.plan.relaxed).inc()
        return met


def _capped(given: wire.Placement | models.Member, member: models.Member
            ) -> routes.Member:
    """Describe the limits of a member's VM.

    :param given: has the flavor's.
    """
    return routes.Member(
        member.instance_uuid, member.host, False,
        (units.number(given.egress_cap_bps),
         units.number(given.ingress_cap_bps)),
        (units.number(member.egress_limit_bps),
         units.number(member.ingress_limit_bps)))
