# SPDX-License-Identifier: Apache-2.0

"""Stages of local search, and their start placements."""

import itertools

from virtco.solver import budget as budgets
from virtco.solver.moves import localsearch
from virtco.solver.stages import proofs
from virtco.solver.stages import search_state as states

#: Moves per node of the first runs, and how many there are. Without them one
#: run in a hundred ended a third behind (groups together, three resources).
QUICK = 500, 3
#: Moves per node, and how often, from the best so far.
DEEPER = ((2000, 1), (6000, 2))
#: Moves per node, and how many of the pool's best they are spent on.
ROUNDS = ((500, 5), (1500, 3), (5000, 2))
#: Part of what is left that set partition may take between rounds.
PARTITION_SHARE = 0.3
#: Proven ratio at which no more moves are made.
CLOSE = 1e-3
#: Temperature of a search from what is good already.
REHEAT = 0.03


def quick(state: states.State, budget: budgets.Budget) -> None:
    """Anneal the best placement there is a few times, from a high heat."""
    first, (per_node, runs) = state.answer.assign, QUICK
    for i in range(runs):
        state.anneal(first, state.moves(per_node), hot(state),
                     power(state, i), budget)
        if state.is_done(budget):
            return


def deepen(state: states.State, budget: budgets.Budget) -> None:
    """Anneal the best so far again and again, reheated and hot in turn."""
    for per_node, runs in DEEPER:
        for i in range(runs):
            state.anneal(state.starts(1)[0].assign, state.moves(per_node),
                         _heat(state, 1 + i), power(state, 1 + i), budget)
            if state.is_done(budget):
                return


def rounds(state: states.State, budget: budgets.Budget) -> None:
    """Anneal the pool's best and prove in turn.

    Again as long as that helps, or there is time to prove something.
    """
    if state.is_closed(CLOSE):
        return
    for _ in itertools.count():
        before_s = state.answer.value.objective_s
        for per_node, breadth in ROUNDS:
            for i, start in enumerate(state.starts(breadth)):
                state.anneal(start.assign, state.moves(per_node),
                             _heat(state, i), power(state, i), budget)
                if state.is_done(budget):
                    return
            if not state.task.certify:
                proofs.again(state, budget.slice(PARTITION_SHARE))
            if state.is_done(budget) or state.is_closed(CLOSE):
                return
        if not (state.task.certify
                or state.answer.value.objective_s < before_s * (1 - CLOSE)):
            return


def hot(state: states.State) -> float:
    """Choose the temperature of a search from anywhere."""
    return (localsearch.HOT if state.local.is_single()
            else localsearch.HOT_OF_MANY)


def _heat(state: states.State, rank: int) -> float:
    """Choose the temperature by rank in the pool: one keeps it, one does not.
    """
    keeps = rank % 2 == (1 if state.local.is_single() else 0)
    return REHEAT if keeps else hot(state)


def power(state: states.State, rank: int) -> int:
    """Choose the norm for the pool's rank-th: p = 2 ** the result."""
    return (5 if state.local.is_single() else 3) + rank % 2
