# SPDX-License-Identifier: Apache-2.0

"""Planners to compare with that the product does not have.

They know a group's VMs and traffic at most, and no other coflow.
"""

from collections.abc import Callable
import math
import random
import time

import numpy as np

from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import planner as solver
from virtco.solver.model import instance as instances
from virtco.solver.starts import candidates
from virtco.solver.starts import feasible
from virtco_lab.placement import choreo

Rule = Callable[[instances.Instance, int, budgets.Budget],
                np.ndarray | None]


def plan(problem: snapshot.PlacementProblem, *, planner: str = 'virtco',
         objective: snapshot.Objective = snapshot.Objective.ONLINE,
         seed: int = 0, budget_s: float = 1.0,
         clock: Callable[[], float] = time.monotonic) -> snapshot.Plan:
    """Place a group by one of :data:`RULES` or a planner of the product.

    Any valid placement is the answer, with a note, where a rule gets stuck.

    :raises virtco.exception.PlacementInfeasible: when nothing fits.
    :raises virtco.exception.Invalid: for a name that is no planner.
    """
    if planner not in RULES:
        return solver.plan(problem, planner=planner, objective=objective,
                           seed=seed, budget_s=budget_s, clock=clock)
    budget = budgets.Budget(budgets.clock_of(clock), budget_s)
    inst = instances.build(problem)
    assign = RULES[planner](inst, seed, budget)
    notes: tuple[str, ...] = ()
    if assign is None:
        assign = feasible.any_placement(inst, seed, budget)
        notes = (f'{planner} got stuck; any valid placement instead',)
    return solver.evaluate(problem, snapshot.Plan(
        hosts=inst.to_hosts(assign), cct_s=0.0, coflow_cct_s=(),
        objective=objective, objective_s=0.0, lower_bound_s=0.0, gap=0.0,
        method=snapshot.Method.OTHER, notes=notes), budget)


def min_machines(inst: instances.Instance) -> np.ndarray | None:
    """Use as few hosts as possible (Choreo section 6): largest VM first.

    A host that is in use is filled before an empty one is opened.
    """
    def choose(filler: candidates.Filler, node: int, hosts: np.ndarray) -> int:
        used = np.isin(hosts, filler.assign[filler.assign >= 0])
        if used.any():
            return candidates.fullest(filler, node, hosts[used])
        return int(hosts[filler.left()[hosts].argmax()])
    return candidates.first_fit(inst, candidates.by_size(inst), choose)


def round_robin(inst: instances.Instance) -> np.ndarray | None:
    """Take the next host in the list that has room (Choreo section 6)."""
    last = -1

    def choose(filler: candidates.Filler, node: int, hosts: np.ndarray) -> int:
        nonlocal last
        after = hosts[hosts > last]
        last = int(after[0] if len(after) else hosts[0])
        return last
    return candidates.first_fit(inst, range(inst.n_nodes), choose)


#: Rules by name. A greedy rule without an end of its own has no deadline: with
#: one it would be another rule.
RULES: dict[str, Rule] = {
    'random': lambda inst, seed, budget: candidates.random_fit(
        inst, random.Random(seed)),
    'round-robin': lambda inst, seed, budget: round_robin(inst),
    'min-machines': lambda inst, seed, budget: min_machines(inst),
    'choreo': lambda inst, seed, budget: choreo.place(
        inst, budgets.Budget(budget.clock, math.inf)),
}
