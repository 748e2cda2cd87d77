# SPDX-License-Identifier: Apache-2.0

"""Bounds that cost little, and tiny problems whole."""

import numpy as np

from virtco.solver import budget as budgets
from virtco.solver import smallgroup
from virtco.solver.bounds import lowerbounds
from virtco.solver.stages import state as states


def first(state: states.State, budget: budgets.Budget) -> None:
    """What costs next to nothing and often closes the gap."""
    _anchored_sets(state, budget, growths=0)
    if not state.local.is_single():
        state.raise_floor(lowerbounds.objective(state.inst, budget))


def better(state: states.State, budget: budgets.Budget) -> None:
    """With larger search trees, where the first ones were too small."""
    if not state.bounded:
        _anchored_sets(state, budget, growths=2)


def exhaust(state: states.State, budget: budgets.Budget) -> None:
    """A small group where trees or pipes tie the hosts together.

    The other bounds are weaker there.
    """
    inst = state.inst
    if not state.local.is_single() or not smallgroup.enumerable(inst) or not (
            inst.uplinks or inst.pipe):
        return
    result = smallgroup.enumerate_all(inst, state.answer.value.objective_s,
                                      budget)
    if result is not None:
        state.offer(states.Method.EXHAUSTIVE, result[1])
        state.raise_bound(result[0])


def _anchored_sets(state: states.State, budget: budgets.Budget,
                   growths: int) -> None:
    bound = lowerbounds.in_tree(state.inst, np.inf, budget, growths)
    state.bounded = bound.complete
    if bound.lower_s >= state.lower_s:
        state.critical, state.sets = bound.order, bound.sets
        state.raise_bound(bound.lower_s)


def try_all(state: states.State, budget: budgets.Budget) -> None:
    """Several coflows that can be placed in few ways only."""
    if state.local.is_single():
        return
    assign = smallgroup.try_all(
        state.inst, lambda trial: states.key(state.evaluate(trial)))
    if assign is not None:
        state.offer(states.Method.EXHAUSTIVE, assign)
        state.raise_floor(state.answer.value.objective_s)
