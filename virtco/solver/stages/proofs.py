# SPDX-License-Identifier: Apache-2.0

"""Stages that prove: bounds, set partition, small groups whole.

Set partition is the relaxed linear program, with its rounding.
"""

import numpy as np

from virtco.solver import budget as budgets
from virtco.solver import smallgroup
from virtco.solver.bounds import lowerbounds
from virtco.solver.partition import setpartition
from virtco.solver.stages import search_state as states

#: Nodes times hosts beyond which it is not tried.
MAX_CELLS = 1e6
#: Part of its first time that it has where hosts are tied together. It knows
#: neither uplinks nor pairs, so that its placements are seldom good there.
TIED_SHARE = 0.5
#: Placements whose sets it starts with.
SEEDS = 4
#: Work for each node and host to set it up, and below which it is not worth
#: beginning.
SETUP_UNITS = 500.0
LEAST_UNITS = 1000.0


def bound(state: states.State, budget: budgets.Budget) -> None:
    """Bound by cheapest sets: it costs little and often closes the gap."""
    state.bound = lowerbounds.anchored_sets(state.inst, np.inf, budget,
                                            growths=0)
    state.raise_bound(state.bound.lower_s)
    if not state.local.is_single():
        state.raise_floor(lowerbounds.objective(state.inst, budget))


def try_all(state: states.State, budget: budgets.Budget) -> None:
    """Judge all placements of several coflows where they are few."""
    if state.local.is_single():
        return
    assign = smallgroup.try_all(state.inst, state.task.objective, budget)
    if assign is not None:
        state.offer(states.Method.EXHAUSTIVE, assign)
        state.raise_floor(state.answer.value.objective_s)


def exhaust(state: states.State, budget: budgets.Budget) -> None:
    """Enumerate a small group where trees or pipes tie the hosts together.

    The other bounds are weaker there.
    """
    inst = state.inst
    if not (state.local.is_single() and inst.is_tied
            and smallgroup.enumerable(inst)):
        return
    lower_s, assign = smallgroup.enumerate_all(
        inst, state.answer.value.objective_s, budget, state.lower_s)
    state.offer(states.Method.EXHAUSTIVE, assign)
    state.raise_bound(lower_s)


def solve(state: states.State, budget: budgets.Budget) -> None:
    """Prove that t cannot be less, or find a placement, for one coflow."""
    if state.local.is_single():
        narrow(state, state.answer.value.cct_s, budget.slice(
            TIED_SHARE if state.inst.is_tied else 1.0))


def prove(state: states.State, budget: budgets.Budget) -> None:
    """Narrow the bounds of t with the placements found since.

    t is that of all coflows together. Placements that are found on the way are
    judged by the objective.
    """
    narrow(state, state.answer.value.cct_s, budget)


def narrow(state: states.State, upper_s: float, budget: budgets.Budget
           ) -> None:
    """Raise the bound of t by set partition, or find a placement.

    :param upper_s: time that is to be beaten.
    """
    if not 0 < upper_s < np.inf or not budget.in_time():
        return
    partition = _begun(state, upper_s, budget)
    if partition is None:
        return
    state.relaxed = True
    for start in state.starts(SEEDS):
        partition.pool.add_placement(start.assign,
                                     partition.within_s(upper_s), budget)

    def judge(assign: np.ndarray) -> float:
        value = state.evaluate(assign)
        state.add(states.Method.SET_PARTITION, assign, value)
        return value.cct_s

    state.raise_bound(partition.narrow(state.lower_s, upper_s, judge))


def _begun(state: states.State, upper_s: float, budget: budgets.Budget
           ) -> setpartition.Partition | None:
    """Return the set partition, set up once; None where it takes too long."""
    cells = state.inst.n_nodes * state.inst.n_hosts
    if state.partition is None:
        if cells > MAX_CELLS or not budget.holds(LEAST_UNITS * cells):
            return None
        budget.spend(SETUP_UNITS * cells)
        state.partition = setpartition.Partition(state.inst, budget)
        for members in state.bound.sets:
            state.partition.pool.add(members,
                                     state.partition.within_s(upper_s))
    state.partition.budget = budget
    return state.partition
