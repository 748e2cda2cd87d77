# SPDX-License-Identifier: Apache-2.0

"""Reasons for a placement, by answers to slightly changed questions. Pure.

Each question changes one thing of the problem as it was planned: a running
coflow is not there, a host has room for one more VM, a port is twice as fast.
A change that would have sent the VM to another host, or would have made its
group or all coflows together faster, is a reason for the placement.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import math
from typing import Any

from virtco import exception
from virtco import units
from virtco.model import cluster
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import planner
from virtco.solver.model import caps

#: Changes of each kind that are tried.
MOST_COFLOWS = 8
MOST_HOSTS = 8
#: Ports that limit alike.
MOST_PORTS = 4
#: Hosts of the ranking whose coflows may have decided.
MOST_ALTERNATIVES = 5
#: A difference below this part is none.
TOLERANCE = 0.01


@dataclasses.dataclass(frozen=True, slots=True)
class Reason:
    """Effect of one change of the problem on the placement.

    :ivar kind: ``coflow`` (one less), ``room`` (for one VM more) or ``rate``
        (twice as much).
    :ivar subject: the coflow, host or port that is changed.
    :ivar host: host of the VM in this case.
    :ivar cct_s: CCT of its group in this case.
    :ivar instead_of_s: CCT of its group as planned.
    :ivar saved_objective_s: time by which all coflows together would end
        earlier than with the VM on its host and the same change; 0 for
        ``rate``.
    :ivar limiting: the port that would decide the group's time, if known.
    """

    kind: str
    subject: str
    host: str
    cct_s: float
    instead_of_s: float
    saved_objective_s: float = 0.0
    limiting: str = ''

    @property
    def text(self) -> str:
        """For people."""
        then, now = map(units.format_time, (self.cct_s, self.instead_of_s))
        times = f'{then} instead of {now}'
        if math.isclose(self.cct_s, self.instead_of_s, rel_tol=TOLERANCE):
            times = f'{now} as now'
        if self.kind == 'coflow':
            return (f'without coflow {self.subject}, {self.host} would be '
                    f'first: {times}')
        if self.kind == 'room':
            saved = units.format_time(self.saved_objective_s)
            return (f'with one slot more on {self.subject}: {times}, '
                    f'all coflows together {saved} less')
        limiting = f'; then {self.limiting} limits' if self.limiting else ''
        return f'with twice the rate at {self.subject}: {times}{limiting}'


@dataclasses.dataclass(frozen=True, slots=True)
class Explanation:
    """Reasons of a placement.

    :ivar is_complete: there was time for every question.
    """

    reasons: tuple[Reason, ...]
    is_complete: bool


def explain(problem: snapshot.PlacementProblem, plan: snapshot.Plan,
            vm_index: int, budget: budgets.Budget, seed: int = 0
            ) -> Explanation:
    """Explain why the VM is planned for its host.

    :param plan: plan of the problem.
    :param budget: time for all questions; the rate is asked for first, then
        rooms, then coflows.
    :raises virtco.exception.Invalid: for a plan of another problem.
    """
    asked = _Asked(problem, plan, vm_index, budget, seed)
    reasons: list[Reason] = []
    is_complete = True
    for questions in (asked.rates(), asked.rooms(), asked.coflows()):
        for reason in questions:
            if reason is not None:
                reasons.append(reason)
            if not budget.in_time():
                is_complete = False
                break
    return Explanation(tuple(reasons), is_complete)


class _Asked:
    def __init__(self, problem: snapshot.PlacementProblem,
                 plan: snapshot.Plan, vm_index: int, budget: budgets.Budget,
                 seed: int):
        self._problem = problem
        self._vm_index = vm_index
        self._budget = budget
        self._seed = seed
        # The figures of the plan may be of another problem, such as one
        # with wishes or of several groups.
        self._plan = planner.evaluate(problem, plan, budget.slice(0.1))
        self._host = plan.hosts[vm_index]
        self._ranked = self._rank(problem)

    def _rank(self, problem: snapshot.PlacementProblem
              ) -> tuple[snapshot.RankedHost, ...]:
        return planner.rank_hosts(problem, self._plan, self._vm_index,
                                  budget_s=self._budget.left_s(),
                                  clock=self._budget.clock)

    def rates(self) -> Iterator[Reason | None]:
        """Ask whether faster ports help; those that limit alike, together."""
        problem, found, ports = self._problem, self._plan, list[str]()
        while (len(ports) < MOST_PORTS and found.bottleneck not in ports
               and not _less(found.cct_s, self._plan.cct_s)):
            faster = with_twice(problem, found.bottleneck)
            if faster is None:
                return
            ports.append(found.bottleneck)
            problem = faster
            found = planner.evaluate(problem, self._plan,
                                     self._budget.slice(0.1))
        if _less(found.cct_s, self._plan.cct_s):
            yield Reason(
                'rate', ' and '.join(ports), self._host, found.cct_s,
                self._plan.cct_s, limiting=''
                if found.bottleneck in ports else found.bottleneck)

    def rooms(self) -> Iterator[Reason | None]:
        need = self._problem.vms[self._vm_index].demand
        full = [found.host for found in self._ranked if not found.feasible
                and self._is_allowed(found.host)]
        for n, host in enumerate(full[:MOST_HOSTS]):
            yield self._with_room(host, need,
                                  min(MOST_HOSTS, len(full)) - n)

    def _is_allowed(self, host: str) -> bool:
        allowed = self._problem.vms[self._vm_index].allowed
        return (host not in self._problem.excluded_hosts
                and (allowed is None or host in allowed))

    def _with_room(self, host: str, need: Sequence[float], n_left: int
                   ) -> Reason | None:
        """Judge room on a host: move the VM alone, or plan the group again."""
        roomier = dataclasses.replace(self._problem, hosts=tuple(
            dataclasses.replace(one, free=tuple(
                map(sum, zip(one.free, need)))) if one.name == host else one
            for one in self._problem.hosts))
        best = self._plan.objective_s, self._plan.cct_s, self._host
        for found in self._rank(roomier):
            if found.feasible and _less(found.objective_s, best[0]):
                best = found.objective_s, found.cct_s, found.host
        try:
            again = planner.plan(
                roomier, objective=self._plan.objective, seed=self._seed,
                budget_s=self._budget.left_s() / (2 * n_left),
                clock=self._budget.clock)
        except exception.PlacementInfeasible:
            again = self._plan
        if _less(again.objective_s, best[0]):
            best = (again.objective_s, again.cct_s,
                    again.hosts[self._vm_index])
        saved_s = self._plan.objective_s - best[0]
        return None if not _less(best[0], self._plan.objective_s) else (
            Reason('room', host, best[2], best[1], self._plan.cct_s, saved_s))

    def coflows(self) -> Iterator[Reason | None]:
        rivals = [found.host for found in self._ranked
                  if found.feasible and found.host != self._host]
        for coflow_id in _busiest(self._problem,
                                  rivals[:MOST_ALTERNATIVES]):
            ranked = self._rank(dataclasses.replace(
                self._problem, active=tuple(
                    one for one in self._problem.active
                    if one.coflow_id != coflow_id)))
            own = next(one for one in ranked if one.host == self._host)
            first = ranked[0]
            yield None if not _less(
                first.objective_s, own.objective_s) else Reason(
                    'coflow', coflow_id, first.host, first.cct_s,
                    self._plan.cct_s, own.objective_s - first.objective_s)


def _less(one_s: float, other_s: float) -> bool:
    return one_s < other_s * (1 - TOLERANCE)


def _busiest(problem: snapshot.PlacementProblem, hosts: Sequence[str]
             ) -> list[str]:
    """List ids of the running coflows that keep these hosts busy longest."""
    rates = {host.name: (host.egress_bps, host.ingress_bps)
             for host in problem.hosts}
    wanted = set(hosts)
    found = {}
    for one in problem.active:
        found[one.coflow_id] = sum(
            size_bytes / max(1.0, rates[host][i])
            for i, ends in enumerate((one.out_bytes, one.in_bytes))
            for host, size_bytes in ends if host in wanted)
    order = sorted(found, key=lambda name: -found[name])
    return [name for name in order if found[name] > 0][:MOST_COFLOWS]


def with_twice(problem: snapshot.PlacementProblem, port: str
               ) -> snapshot.PlacementProblem | None:
    """Return the problem with a port twice as fast; None for no such port.

    :param port: port as a plan names it, such as ``'h3 egress'``, ``'rack r1
        up'`` or ``'cap of vm-3, 2 Gbit/s out'``.
    """
    for name, link, column in _links(problem):
        if name == port:
            twice = dataclasses.replace(
                link, **{column: 2 * getattr(link, column)})
            owners: tuple[Sequence[Any], ...] = (
                problem.hosts, problem.vms, problem.tree.subtrees)
            hosts, vms, subtrees = (
                tuple(twice if one is link else one for one in some)
                for some in owners)
            return dataclasses.replace(
                problem, hosts=hosts, vms=vms, tree=cluster.Tree(
                    subtrees, problem.tree.leaf_of))
    return None


def _links(problem: snapshot.PlacementProblem
           ) -> Iterator[tuple[str, Any, str]]:
    """Yield the name of each port, its owner and the field with its rate."""
    for host in problem.hosts:
        for way in ('egress', 'ingress'):
            yield f'{host.name} {way}', host, f'{way}_bps'
    for one in problem.tree.subtrees:
        for way, column in (('up', 'uplink_out_bps'),
                            ('down', 'uplink_in_bps')):
            yield f'{one.level} {one.name} {way}', one, column
    for vm in problem.vms:
        for column in caps.WAYS:
            yield caps.port_name(vm, column), vm, column
