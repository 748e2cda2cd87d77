# SPDX-License-Identifier: Apache-2.0

"""Groups that wait together, planned in one problem. Pure.

Each group comes with the problem that it would be alone. They are joined,
planned at once, and each gets its part of the plan back, with the figures
that it has beside the others.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import itertools
import time
from typing import TypeVar

from virtco import exception
from virtco.model import cluster
from virtco.model import coflow as coflow_model
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import planner

Rule = TypeVar('Rule', snapshot.ServerGroup, snapshot.Within,
               snapshot.Spread)


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """Plan of one group, beside the others.

    :ivar problem: problem as if the others had come just before: their room is
        gone and their coflows run.
    """

    problem: snapshot.PlacementProblem
    plan: snapshot.Plan


def plan(problems: Sequence[snapshot.PlacementProblem], *,
         objective: snapshot.Objective = snapshot.Objective.ONLINE,
         planner_name: str = 'virtco', seed: int = 0, budget_s: float = 1.0,
         clock: Callable[[], float] = time.monotonic,
         plan_one: Callable[..., snapshot.Plan] = planner.plan
         ) -> tuple[Part, ...]:
    """Place groups that wait together; one alone is planned as ever.

    :param budget_s: budget of all of them.
    :param plan_one: another planner to compare with.
    :raises virtco.exception.PlacementInfeasible: when not all fit.
    """
    budget = budgets.Budget(budgets.clock_of(clock), budget_s)
    found = plan_one(
        problems[0] if len(problems) == 1 else join(problems),
        objective=objective, planner=planner_name, seed=seed,
        budget_s=budget_s, clock=clock)
    if len(problems) == 1:
        return (Part(problems[0], found),)
    return _parts(problems, found, budget)


def again(problems: Sequence[snapshot.PlacementProblem],
          hosts: Sequence[Sequence[str]], *,
          objective: snapshot.Objective = snapshot.Objective.ONLINE,
          seed: int = 0, budget_s: float = 1.0,
          clock: Callable[[], float] = time.monotonic,
          is_cancelled: Callable[[], bool] | None = None
          ) -> tuple[Part, ...] | None:
    """Place groups again that have hosts, but are not built.

    :param problems: problems whose VMs are pinned where they stay, and the
        rooms of the other VMs are free.
    :param hosts: present hosts of each problem's VMs.
    :returns: None where the objective would not fall, or no search ended.
    """
    budget = budgets.Budget(budgets.clock_of(clock), budget_s,
                            is_cancelled=is_cancelled)
    joined = join(problems)
    try:
        found = planner.plan(joined, objective=objective, seed=seed,
                             budget_s=budget_s, clock=clock,
                             is_cancelled=is_cancelled)
        before = planner.evaluate(joined, dataclasses.replace(
            found, hosts=tuple(itertools.chain.from_iterable(hosts))), budget)
    except exception.PlacementInfeasible:
        return None
    if budget.is_stopped() or found.objective_s >= before.objective_s:
        return None
    return _parts(problems, found, budget)


def _parts(problems: Sequence[snapshot.PlacementProblem],
           found: snapshot.Plan, budget: budgets.Budget) -> tuple[Part, ...]:
    """Divide a joint plan among its problems."""
    hosts = _split(found.hosts, problems)
    return tuple(
        Part(own, planner.evaluate(own, dataclasses.replace(
            found, hosts=placed), budget))
        for own, placed in zip(_beside(problems, hosts), hosts))


def join(problems: Sequence[snapshot.PlacementProblem]
         ) -> snapshot.PlacementProblem:
    """Join the problems of all groups; take the least room told of a host.

    VMs may go where they might alone. Trees and pairs' rates are those that
    any of the problems knows.
    """
    n_vms = sum(len(problem.vms) for problem in problems)
    vms: list[cluster.Vm] = []
    coflows: list[coflow_model.Coflow] = []
    server_groups: list[snapshot.ServerGroup] = []
    within: list[snapshot.Within] = []
    spread: list[snapshot.Spread] = []
    for number, problem in enumerate(problems):
        first = len(vms)
        allowed = frozenset(host.name for host in problem.hosts
                            ) - problem.excluded_hosts
        coflows += [_shifted(coflow, f'{number}/', first, n_vms)
                    for coflow in problem.coflows]
        server_groups += [_moved(one, first) for one in problem.server_groups]
        within += [_moved(one, first) for one in problem.within]
        spread += [_moved(one, first) for one in problem.spread]
        vms += [
            vm if vm.pinned is not None else dataclasses.replace(
                vm, allowed=(
                    allowed if vm.allowed is None else vm.allowed & allowed))
            for vm in problem.vms]
    rates: dict[tuple[str, str], float] = {}
    for problem in problems:
        rates |= problem.pair_rate_bps or {}
    return dataclasses.replace(
        problems[0], hosts=_hosts(problems), vms=tuple(vms),
        coflows=tuple(coflows), active=_active(problems),
        tree=_tree(problems),
        server_groups=tuple(server_groups), within=tuple(within),
        spread=tuple(spread), pair_rate_bps=rates or None,
        hose_limits=any(problem.hose_limits for problem in problems),
        excluded_hosts=frozenset())


def _moved(rule: Rule, first: int) -> Rule:
    """Shift a rule's members to the VMs of all groups, from ``first``."""
    return dataclasses.replace(rule, members=tuple(
        first + member for member in rule.members))


def _tree(problems: Sequence[snapshot.PlacementProblem]) -> cluster.Tree:
    """Unite the trees of several problems."""
    subtrees: dict[str, cluster.Subtree] = {}
    leaf_of: dict[str, str] = {}
    for problem in problems:
        subtrees |= {one.name: one for one in problem.tree.subtrees}
        leaf_of |= problem.tree.leaf_of
    return cluster.Tree(tuple(subtrees.values()), leaf_of)


def _hosts(problems: Sequence[snapshot.PlacementProblem]
           ) -> tuple[cluster.Host, ...]:
    """Unite the hosts of several problems, with the least room of each."""
    found: dict[str, cluster.Host] = {}
    for problem in problems:
        for host in problem.hosts:
            seen = found.get(host.name, host)
            found[host.name] = dataclasses.replace(host, free=tuple(
                map(min, host.free, seen.free)))
    return tuple(found.values())


def _active(problems: Sequence[snapshot.PlacementProblem]
            ) -> tuple[snapshot.ActiveCoflow, ...]:
    """Merge the running coflows; each problem knows those on its hosts."""
    if all(problem.active == problems[0].active for problem in problems):
        return problems[0].active
    found: dict[str, snapshot.ActiveCoflow] = {}
    for problem in problems:
        for load in problem.active:
            seen = found.get(load.coflow_id, load)
            found[load.coflow_id] = snapshot.ActiveCoflow(
                load.coflow_id,
                tuple((dict(seen.out_bytes) | dict(load.out_bytes)).items()),
                tuple((dict(seen.in_bytes) | dict(load.in_bytes)).items()),
                tuple(dict.fromkeys((*seen.pairs, *load.pairs))))
    return tuple(found.values())


def _shifted(coflow: coflow_model.Coflow, prefix: str, first: int,
             n_vms: int) -> coflow_model.Coflow:
    """Shift a coflow to the VMs of all groups, from ``first``."""
    return dataclasses.replace(
        coflow.renumbered(n_vms, range(first, first + coflow.n_vms)),
        name=prefix + coflow.name)


def _split(hosts: Sequence[str],
           problems: Iterable[snapshot.PlacementProblem]
           ) -> list[tuple[str, ...]]:
    """Divide hosts of one plan among its problems."""
    left = iter(hosts)
    return [tuple(next(left) for _ in problem.vms) for problem in problems]


def _beside(problems: Sequence[snapshot.PlacementProblem],
            hosts: Sequence[tuple[str, ...]]
            ) -> list[snapshot.PlacementProblem]:
    """Build each problem with the others in place."""
    running = [[_placed(coflow, f'{number}/', placed)
                for coflow in problem.coflows]
               for number, (problem, placed) in enumerate(
                   zip(problems, hosts))]
    found = []
    for number, problem in enumerate(problems):
        others = [k for k in range(len(problems)) if k != number]
        taken: dict[str, list[tuple[float, ...]]] = (
            collections.defaultdict(list))
        for k in others:
            for vm, host in zip(problems[k].vms, hosts[k]):
                if vm.pinned is None:
                    taken[host].append(vm.demand)
        found.append(dataclasses.replace(
            problem,
            hosts=tuple(_less(host, taken[host.name])
                        for host in problem.hosts),
            active=problem.active + tuple(
                load for k in others for load in running[k])))
    return found


def _less(host: cluster.Host,
          demands: Iterable[tuple[float, ...]]) -> cluster.Host:
    """Return the host with its room less some demands."""
    free = host.free
    for demand in demands:
        free = tuple(max(0.0, have - need)
                     for have, need in zip(free, demand))
    return dataclasses.replace(host, free=free)


def _placed(coflow: coflow_model.Coflow, prefix: str,
            hosts: Sequence[str]) -> snapshot.ActiveCoflow:
    """Build the running coflow of one that is placed on these hosts."""
    return snapshot.ActiveCoflow.of(prefix + coflow.name, (
        (hosts[src], hosts[dst], size_bytes)
        for src, dst, size_bytes in coflow.matrix.rows()
        if hosts[src] != hosts[dst]))
