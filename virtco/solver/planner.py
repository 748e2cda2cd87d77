# SPDX-License-Identifier: Apache-2.0

"""The planner: a problem in, a valid placement with its certificate out.

Pure: the clock is an argument, randomness comes from the seed. For one
problem and seed the answer is the same unless the time budget cut the
search short (a note says when it did).
"""

from collections.abc import Callable
import dataclasses
import math
import random
import time

import numpy as np

from virtco import exception
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import choices
from virtco.solver import residual
from virtco.solver.bounds import lowerbounds
from virtco.solver.judging import judge
from virtco.solver.model import caps
from virtco.solver.model import instance as instances
from virtco.solver.model import objectives
from virtco.solver.moves import localsearch
from virtco.solver.moves import ranking
from virtco.solver.stages import search_state as states
from virtco.solver.starts import candidates

PLANNERS = ('virtco', 'virtco-printed', 'spread', 'min-cut')
#: Parts of the budget that the online search and the printed planner have
#: where schedules are compared.
ONLINE_SHARE, PRINTED_SHARE = 0.5, 0.3
#: Calls of numpy to make arrays of a problem, and cells for each host and
#: VM or running coflow.
BUILD_CALLS = 300
BUILD_CELLS = 10
#: Work to rank a host, for each coflow.
RANK_UNITS = 100.0
#: Part of the budget that a baseline's bound may take.
BOUND_SHARE = 0.25


def plan(problem: snapshot.PlacementProblem, *,
         objective: snapshot.Objective = snapshot.Objective.ONLINE,
         planner: str = 'virtco', seed: int = 0, budget_s: float = 1.0,
         clock: Callable[[], float] = time.monotonic,
         certify: bool = False,
         on_incumbent: states.OnIncumbent | None = None,
         is_cancelled: Callable[[], bool] | None = None) -> snapshot.Plan:
    """Place the movable VMs of a problem.

    :param planner: one of :data:`PLANNERS`.
    :param budget_s: time to spend, in seconds of ``clock``.
    :param clock: a machine's, or a :class:`~virtco.solver.budget.Counter`:
        with it the plan is the same on any machine.
    :param certify: whether the rest of the budget is spent on a better bound
        and placement when the search of ``virtco`` ends early without a proof.
    :param on_incumbent: called with a :class:`~snapshot.Progress` whenever
        the search of ``virtco`` finds a better placement or bound. When it
        returns something true, the best placement so far is the answer.
    :param is_cancelled: see :class:`~virtco.solver.budget.Budget`.
    :raises virtco.exception.PlacementInfeasible: when no placement keeps
        the hard constraints.
    :raises virtco.exception.Invalid: when the problem makes no sense.
    """
    if planner not in PLANNERS:
        raise exception.Invalid(field='planner', value=planner,
                                limit=f'one of {", ".join(PLANNERS)}')
    if math.isnan(budget_s) or budget_s < 0:
        raise exception.Invalid(field='budget_s', value=budget_s,
                                limit='at least 0 s')
    budget = budgets.Budget(budgets.clock_of(clock), budget_s,
                            is_cancelled=is_cancelled)
    task = states.Task(objective, seed, budget, certify, on_incumbent)
    if planner != 'virtco':
        return _baseline(problem, planner, task)
    if is_judged(problem, objective):
        return _judged(problem, task, budget_s)
    return _answer(*choices.run(_read(problem, budget), task), objective)


def is_judged(problem: snapshot.PlacementProblem,
              objective: snapshot.Objective) -> bool:
    """Return whether schedules are compared: no pair has a rate of its own."""
    return (objective == snapshot.Objective.ONLINE and bool(problem.active)
            and bool(problem.coflows) and problem.pair_rate_bps is None)


def _judged(problem: snapshot.PlacementProblem, task: states.Task,
            budget_s: float) -> snapshot.Plan:
    """Compare the online search's answer with the printed planner's.

    No objective that is cheap enough to search by knows the real schedule:
    sums of prefix CCTs take sharing for free, residual bandwidth takes it for
    impossible. Where simulating takes too long, the online answer stands.
    """
    budget = task.budget
    inst = _read(problem, budget)
    own = _searched(inst, task, ONLINE_SHARE * budget_s)
    if own.value.cct_s > 0:
        judged = judge.Judge(inst, budget)
        own_s = judged.cost_s(own.assign)
        if own_s is not None and budget.in_time():
            printed = _printed(inst, task, PRINTED_SHARE * budget_s)
            own = dataclasses.replace(own, moves=own.moves + printed.moves)
            if (printed.assign != own.assign).any():
                printed_s = judged.cost_s(printed.assign)
                if printed_s is not None and printed_s < own_s:
                    own = dataclasses.replace(
                        own, assign=printed.assign,
                        method=snapshot.Method.VIRTCO_PRINTED)
    return _answer(inst, own, task.objective)


def _searched(whole: instances.Instance, task: states.Task,
              most_s: float) -> states.Outcome:
    """Search a problem; the answer is by its own hosts."""
    reduced, found = choices.run(whole, dataclasses.replace(
        task, budget=task.budget.slice(1.0, most_s)))
    return dataclasses.replace(found, assign=reduced.host_index[found.assign])


def _printed(whole: instances.Instance, task: states.Task,
             most_s: float = math.inf) -> states.Outcome:
    """Search by Algorithm 2 of the paper: alone, on residual bandwidth."""
    return _searched(
        _read(residual.residual(whole), task.budget),
        states.Task(snapshot.Objective.ISOLATED, task.seed, task.budget),
        most_s)


def _baseline(problem: snapshot.PlacementProblem,
              planner: str, task: states.Task) -> snapshot.Plan:
    """Plan by one of the rules to compare with, with a bound."""
    budget = task.budget
    inst = _read(problem, budget)
    lower_s = lowerbounds.anchored_sets(
        inst, math.inf, budget.slice(BOUND_SHARE)).lower_s
    moves = 0
    notes: tuple[str, ...] = ()
    placed: np.ndarray | None
    if planner == 'virtco-printed':
        found = _printed(inst, task)
        placed, moves, notes = found.assign, found.moves, found.notes
    else:
        # A rule without an end of its own would be another rule.
        placed = _by_rule(planner, inst, task.seed,
                          budgets.Budget(budget.clock, math.inf))
    if placed is None:
        placed = choices.any_placement(inst, task.seed, budget)
        notes = (f'{planner} got stuck; any valid placement instead',)
    return _answer(inst, states.Outcome(
        placed, objectives.evaluate(inst, placed, task.objective),
        snapshot.Method(planner), lower_s=lower_s, moves=moves,
        notes=notes), task.objective)


def _by_rule(planner: str, whole: instances.Instance, seed: int,
             budget: budgets.Budget) -> np.ndarray | None:
    """Place by a rule that knows no coflow; return None when stuck."""
    for inst in choices.parts(whole):
        candidates.spend(inst, budget)
        placed = (candidates.spread(inst, random.Random(seed))
                  if planner == 'spread'
                  else localsearch.min_cut(inst, seed, budget))
        if placed is not None:
            return placed
    return None


def load_libraries() -> None:
    """Import linear programming, which only large groups need.

    It takes a third of a second, so scipy has it wait for its first use, and
    a quarter of the controller's memory.
    """
    import scipy.optimize  # noqa: F401


def rank_hosts(problem: snapshot.PlacementProblem, plan: snapshot.Plan,
               vm_index: int, *, budget_s: float = math.inf,
               clock: Callable[[], float] = time.monotonic,
               most: int | None = None,
               is_cancelled: Callable[[], bool] | None = None
               ) -> tuple[snapshot.RankedHost, ...]:
    """Rank the problem's hosts for one VM: best first, infeasible last.

    Exact: each host's objective and t are those of the placement in which
    this VM (with its affinity group) goes there and the others stay.

    :param budget_s: time to spend; hosts for which none is left come behind
        the others with a lower bound of their objective, and say so.
    :param most: hosts to name beside the planned one; None: all of them.
    :param is_cancelled: see :class:`~virtco.solver.budget.Budget`.
    :raises virtco.exception.Invalid: for a plan of another problem.
    """
    if not 0 <= vm_index < len(problem.vms):
        raise exception.Invalid(field='vm_index', value=vm_index,
                                limit=f'a VM index below {len(problem.vms)}')
    budget = budgets.Budget(budgets.clock_of(clock), budget_s,
                            is_cancelled=is_cancelled)
    inst = _read(problem, budget)
    assign = _assignment(inst, plan)

    def in_time() -> bool:
        budget.spend(RANK_UNITS * ranking.CHUNK_HOSTS
                     * (1 + len(problem.active)))
        return budget.in_time()

    slowest_s, _cap = caps.slowest(problem)
    return tuple(
        found if found.cct_s >= slowest_s
        else dataclasses.replace(found, cct_s=slowest_s)
        for found in ranking.rank(inst, plan.objective, assign, vm_index,
                                  in_time, most))


def evaluate(problem: snapshot.PlacementProblem, plan: snapshot.Plan,
             budget: budgets.Budget) -> snapshot.Plan:
    """Evaluate in this problem a placement that was found in any other.

    :raises virtco.exception.Invalid: for a plan of other VMs or hosts.
    """
    inst = _read(problem, budget)
    assign = _assignment(inst, plan)
    value = objectives.evaluate(inst, assign, plan.objective)
    lower_s = lowerbounds.anchored_sets(
        inst, value.cct_s, budget.slice(BOUND_SHARE)).lower_s
    return _answer(inst, states.Outcome(
        assign, value, plan.method, lower_s=lower_s, moves=plan.iterations,
        notes=plan.notes, relaxed=plan.relaxed), plan.objective)


def _assignment(inst: instances.Instance, plan: snapshot.Plan) -> np.ndarray:
    """Return the plan's host per node."""
    problem = inst.problem
    if len(plan.hosts) != len(problem.vms) or not set(plan.hosts) <= {
            host.name for host in problem.hosts}:
        raise exception.Invalid(field='plan.hosts', value=plan.hosts,
                                limit='one known host per VM')
    return inst.from_hosts(plan.hosts)


def _read(problem: snapshot.PlacementProblem, budget: budgets.Budget
          ) -> instances.Instance:
    """Turn a problem into arrays, charged to the budget."""
    budget.spend_numpy(BUILD_CALLS, BUILD_CELLS * len(problem.hosts)
                       * (len(problem.vms) + len(problem.active)))
    return instances.build(problem)


def _answer(inst: instances.Instance, found: states.Outcome,
            objective: snapshot.Objective) -> snapshot.Plan:
    value = objectives.evaluate(inst, found.assign, objective)
    bound_s = min(found.lower_s, value.cct_s)
    return caps.applied(snapshot.Plan(
        hosts=inst.to_hosts(found.assign), cct_s=value.cct_s,
        coflow_cct_s=value.coflow_cct_s, objective=objective,
        objective_s=value.objective_s, lower_bound_s=bound_s,
        gap=snapshot.gap(value.cct_s, bound_s),
        method=found.method, iterations=found.moves,
        bottleneck=(inst.port_name(value.port) if value.port >= 0
                    else 'none'), notes=found.notes,
        objective_bound_s=min(found.floor_s, value.objective_s),
        bound_scope=(snapshot.Scope.CONSTRAINTS if len(inst.movable)
                     else snapshot.Scope.PLACEMENT),
        relaxed=found.relaxed), inst.problem)
