# SPDX-License-Identifier: Apache-2.0

"""Stages of set partition: the relaxed linear program, with rounding."""

import numpy as np

from virtco.solver import budget as budgets
from virtco.solver import targets
from virtco.solver.partition import setpartition
from virtco.solver.stages import state as states

#: Nodes times hosts beyond which it is not tried.
MAX_CELLS = 1e6
#: Placements whose sets it starts with.
SEEDS = 4
#: Work for each node and host to set it up, and below which it is not worth
#: beginning.
SETUP_UNITS = 500.0
LEAST_UNITS = 1000.0
#: Work for each host and running coflow to find the hosts that are alike.
ALIKE_UNITS = 350.0


def solve(state: states.State, budget: budgets.Budget) -> None:
    """Prove that nothing is better, or find it, for what one coflow takes."""
    if state.local.is_single():
        _narrow(state, budget)


def again(state: states.State, budget: budgets.Budget) -> None:
    """With what else was found."""
    if state.certify or state.partition is not None:
        _narrow(state, budget)
        if state.partition is not None and not state.is_closed() and (
                state.partition.link()):
            _narrow(state, budget)


def lower_targets(state: states.State, budget: budgets.Budget) -> None:
    """Several coflows: better prefix CCTs by set partition."""
    if state.local.is_single() or state.inst.pipe or not np.isfinite(
            state.answer.value.objective_s) or _is_too_large(state) or (
            not budget.holds(ALIKE_UNITS * state.inst.n_hosts
                             * (1 + len(state.inst.running)))):
        return
    state.relaxed = True
    state.offer(states.Method.LOWERED_TARGETS, targets.improve(
        state.inst, state.answer.assign, budget, state.objective))


def _narrow(state: states.State, budget: budgets.Budget) -> None:
    upper_s = state.answer.value.cct_s
    if not 0 < upper_s < np.inf or _is_too_large(state) or (
            not budget.in_time()):
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
    cells = state.inst.n_nodes * state.inst.n_hosts
    if state.partition is None:
        if not budget.holds(LEAST_UNITS * cells):
            return None
        budget.spend(SETUP_UNITS * cells)
        state.partition = setpartition.Partition(state.inst, budget)
        for members in state.sets:
            state.partition.pool.add(members,
                                     state.partition.within_s(upper_s))
    state.partition.budget = budget
    return state.partition


def _is_too_large(state: states.State) -> bool:
    return state.inst.n_nodes * state.inst.n_hosts > MAX_CELLS
