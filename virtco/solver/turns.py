# SPDX-License-Identifier: Apache-2.0

"""Where a job goes that computes and sends in turn with others.

The search counts what running coflows have left as if it were sent once, so it
goes around a job that would have made room. Here the running jobs are left out
of the search, and hosts are closed to it instead: those whose links carry any
job, those whose links carry one that does not fit in turn, those outside of
one rack. Of the answers, and of the search's own, the one is taken with which
most workers compute (:mod:`virtco.solver.judging.sharing`), as long as
ordinary coflows lose no more by it.
"""

from collections.abc import Callable
from collections.abc import Iterator
import dataclasses

import numpy as np

from virtco import exception
from virtco.model import snapshot
from virtco.scheduling.periodic import shifts
from virtco.solver import budget as budgets
from virtco.solver.judging import sharing
from virtco.solver.model import instance as instances
from virtco.solver.model import objectives

#: Part of the time that the search without regard to turns may take.
SEARCH_SHARE = 0.5
#: Jobs with a smaller score do not fit in turn.
FIT = 0.97
#: Single jobs beside which it is tried, and racks, those with most room.
MOST_JOBS = 4
MOST_RACKS = 4
#: Of the own workers; a smaller gain is none.
LEAST_GAIN = 0.005
#: What ordinary coflows may wait beyond the best placement for them, as a
#: share of all that they wait.
MOST_DELAY = 0.1
#: Work to shift two jobs against each other, and a handful of them.
PAIR_UNITS = 2e6
TURN_UNITS = 8e7

# Host per VM, or None where nothing fits.
Solve = Callable[[snapshot.PlacementProblem, budgets.Budget],
                 tuple[str, ...] | None]


def best(problem: snapshot.PlacementProblem, found: snapshot.Plan,
         solve: Solve, budget: budgets.Budget) -> tuple[str, ...]:
    """The host of each VM, the plan's own where no other is better.

    :param found: by the search that knows no turns.
    :param solve: finds a placement in a problem.
    """
    if not budget.holds(2 * TURN_UNITS):
        return found.hosts
    inst = instances.build(problem, reduce=False)
    return _Choice(inst, budget).best(found.hosts, solve)


class _Choice:
    """:ivar jobs: running and own."""

    def __init__(self, inst: instances.Instance, budget: budgets.Budget):
        self._inst, self._budget = inst, budget
        self._problem = inst.problem
        self._index = {host.name: i
                       for i, host in enumerate(inst.problem.hosts)}
        self.jobs = sharing.Jobs(inst)
        # As if the jobs that run were not there.
        self._others = dataclasses.replace(inst.problem, active=tuple(
            one for one in inst.problem.active if one.iteration is None))
        self._ordinary = instances.build(self._others, reduce=False)

    def best(self, first: tuple[str, ...], solve: Solve) -> tuple[str, ...]:
        seen = {first: self._judged(first)}
        if self._is_alone(first):
            return first
        proposals = list(self._proposals(first))
        for number, closed in enumerate(proposals):
            if not self._budget.holds(TURN_UNITS):
                break
            hosts = solve(
                dataclasses.replace(
                    self._others, excluded_hosts=self._others.excluded_hosts
                    | closed),
                self._budget.slice(1 / (len(proposals) - number)))
            if hosts is not None and hosts not in seen:
                seen[hosts] = self._judged(hosts)
        least_s = min(delay_s for _computing, delay_s in seen.values())
        most_s = least_s + MOST_DELAY * float(
            self._ordinary.running_prefix_s.sum())
        allowed = {hosts: computing for hosts, (computing, delay_s)
                   in seen.items() if delay_s <= most_s}
        least_gain = LEAST_GAIN * sum(
            job.workers for job in self.jobs.own(self._assign(first)))
        chosen = first if first in allowed else next(iter(allowed))
        for hosts, computing in allowed.items():
            if computing > allowed[chosen] + least_gain:
                chosen = hosts
        return chosen

    def _assign(self, hosts: tuple[str, ...]) -> np.ndarray:
        return np.array([self._index[hosts[vms[0]]]
                         for vms in self._inst.node_vms], np.int64)

    def _judged(self, hosts: tuple[str, ...]) -> tuple[float, float]:
        """Workers that compute, and what ordinary coflows wait."""
        self._budget.spend(TURN_UNITS)
        assign = self._assign(hosts)
        n_running = len(self._ordinary.running)
        delay_s = 0.0
        if n_running:
            delay_s = float(objectives.prefix_cct_s(
                self._ordinary, objectives.own_loads(
                    self._ordinary, assign))[:n_running].sum())
        return self.jobs.computing(assign), delay_s

    def _is_alone(self, hosts: tuple[str, ...]) -> bool:
        """Whether it sends nothing between hosts: no other is better."""
        return not any(job.busy_s for job in self.jobs.own(
            self._assign(hosts)))

    def _proposals(self, first: tuple[str, ...]) -> Iterator[frozenset[str]]:
        """Sets of hosts to close."""
        everywhere = frozenset(self._index)
        closed_by = {job.job_id: self._near(frozenset(job.busy_s))
                     for job in self.jobs.running}
        fitting = self._fitting(first)
        found = [frozenset().union(*(closed_by[name] for name in closed_by
                                     if name not in fitting)),
                 frozenset().union(*closed_by.values())]
        for name in sorted(fitting, key=lambda one: (-fitting[one], one)
                           )[:MOST_JOBS]:
            found.append(frozenset().union(*(
                hosts for other, hosts in closed_by.items()
                if other != name)) - closed_by[name])
        found += [everywhere - rack for rack in self._racks()]
        found.append(frozenset())
        yield from dict.fromkeys(
            closed for closed in found if closed != everywhere)

    def _fitting(self, first: tuple[str, ...]) -> dict[str, float]:
        """Scores of the jobs that fit in turn with the own ones, were they to
        meet at the links that keep each of them busy longest.
        """
        own = [dataclasses.replace(job, busy_s={0: job.send_s})
               for job in self.jobs.own(self._assign(first))]
        found = {}
        for job in self.jobs.running:
            other = dataclasses.replace(job, busy_s={0: job.send_s})
            if any(one.send_s / one.period_s + other.send_s / other.period_s
                   > 1 + 1e-9 for one in own):
                continue
            if not self._budget.in_time():
                break
            self._budget.spend(PAIR_UNITS)
            score = min((shifts.compatibility([one, other]) for one in own),
                        default=1.0)
            if score >= FIT:
                found[job.job_id] = score
        return found

    def _near(self, links: frozenset[object]) -> frozenset[str]:
        """Hosts that send through one of these links."""
        inst, m = self._inst, self._inst.n_hosts
        ports = np.fromiter(links, np.int64, len(links))
        used = np.zeros(inst.n_fabric, bool)
        used[ports] = True
        near = used[:m] | used[m:2 * m]
        for row in inst.port_out[1:]:
            near |= (row >= 0) & (used[row]
                                  | used[row + len(inst.uplinks)])
        return frozenset(inst.host_name(host)
                         for host in np.flatnonzero(near).tolist())

    def _racks(self) -> list[frozenset[str]]:
        """Hosts below the lowest switches, those with most room first."""
        inside: dict[str, set[str]] = {}
        for host in self._problem.hosts:
            leaf = self._problem.tree.leaf_of.get(host.name)
            if leaf is not None:
                inside.setdefault(leaf, set()).add(host.name)
        room = {host.name: host.free[0] if host.free else 0.0
                for host in self._problem.hosts}
        return [frozenset(inside[leaf]) for leaf in sorted(
            inside, key=lambda one: (-sum(room[host] for host in inside[one]),
                                     one))[:MOST_RACKS]]


def solver(run: Callable[[snapshot.PlacementProblem, budgets.Budget],
                         tuple[str, ...]]) -> Solve:
    """None where nothing fits."""
    def solve(problem: snapshot.PlacementProblem, budget: budgets.Budget
              ) -> tuple[str, ...] | None:
        try:
            return run(problem, budget)
        except exception.PlacementInfeasible:
            return None

    return solve
