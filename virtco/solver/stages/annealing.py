# SPDX-License-Identifier: Apache-2.0

"""Stages of local search, and what it starts from."""

from collections.abc import Iterator
import itertools

import numpy as np

from virtco import exception
from virtco.solver import budget as budgets
from virtco.solver.model import instance as instances
from virtco.solver.model import traffic
from virtco.solver.moves import localsearch
from virtco.solver.moves import mincut
from virtco.solver.stages import carvings
from virtco.solver.stages import proofs
from virtco.solver.stages import state as states
from virtco.solver.starts import candidates
from virtco.solver.starts import sequence

#: Moves per node from each of the first starts.
QUICK_MOVES = 500
#: Proven ratio from which on the first starts are worse than what is there.
#: On 20 hard instances of 100 x 100 at 0.5 s the mean ratio to the best known
#: was 1.007 instead of 1.011, the largest 1.055 instead of 1.101.
NEAR = 0.3
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

Found = tuple[states.Method, np.ndarray | None]


def quick(state: states.State, budget: budgets.Budget) -> None:
    """Good answers before anything is proven.

    Carving's, where it has come near already: the starts are worse. Sums
    over running coflows are always near, that says nothing.
    """
    if state.pool and state.local.is_single() and state.is_closed(NEAR):
        return
    moves = state.moves(QUICK_MOVES)
    for i, (method, start) in enumerate(_first_starts(state, budget)):
        if start is not None:
            state.offer(method, start)
            state.anneal(start, moves, _hot(state), _power(state, i), budget)
        if state.is_done(budget):
            return


def deepen(state: states.State, budget: budgets.Budget) -> None:
    """Anneal the best again and again, from a low heat."""
    for per_node, runs in DEEPER:
        for i in range(runs):
            state.anneal(state.starts(1)[0].assign, state.moves(per_node),
                         _heat(state, 1 + i), _power(state, 1 + i), budget)
            if state.is_done(budget):
                return


def rounds(state: states.State, budget: budgets.Budget) -> None:
    """More starts, then annealing, proofs and carvings in turn.

    Again as long as that helps, or there is time to prove something.
    """
    if state.is_closed(CLOSE):
        return
    for method, start in _more_starts(state, budget):
        if start is not None:
            state.add(method, start)
        if state.is_done(budget):
            return
    for _ in itertools.count():
        before_s = state.answer.value.objective_s
        for per_node, breadth in ROUNDS:
            _round(state, per_node, breadth, budget)
            if state.is_done(budget) or state.is_closed(CLOSE):
                return
        if not (state.certify
                or state.answer.value.objective_s < before_s * (1 - CLOSE)):
            return


def _round(state: states.State, per_node: int, breadth: int,
           budget: budgets.Budget) -> None:
    for i, start in enumerate(state.starts(breadth)):
        state.anneal(start.assign, state.moves(per_node), _heat(state, i),
                     _power(state, i), budget)
        if state.is_done(budget):
            return
    if not state.certify:
        proofs.again(state, budget.slice(PARTITION_SHARE))
    if not state.is_closed(CLOSE):
        carvings.between(state, budget)


def _hot(state: states.State) -> float:
    return (localsearch.HOT if state.local.is_single()
            else localsearch.HOT_OF_MANY)


def _heat(state: states.State, rank: int) -> float:
    """Start temperature for the pool's rank-th: one keeps it, one does not."""
    keeps = rank % 2 == (1 if state.local.is_single() else 0)
    return REHEAT if keeps else _hot(state)


def _power(state: states.State, rank: int) -> int:
    """Of the norm, as a power of 2."""
    return (5 if state.local.is_single() else 3) + rank % 2


def _first_starts(state: states.State, budget: budgets.Budget
                  ) -> Iterator[Found]:
    best_fit, units = state.answer.assign, candidates.units(state.inst)
    if budget.holds(units):
        budget.spend(units)
        yield states.Method.SPREAD, candidates.spread(state.inst, state.rng)
    # Merging comes first.
    if budget.holds(2 * units):
        yield states.Method.MIN_CUT, mincut.place(
            state.inst, state.seed, budget, state.moves(mincut.MOVES))
    yield states.Method.BEST_FIT, best_fit


def _more_starts(state: states.State, budget: budgets.Budget
                 ) -> Iterator[Found]:
    yield (states.Method.ONE_AFTER_ANOTHER,
           _one_after_another(state, budget))
    candidates.spend(state.inst, budget)
    yield states.Method.PACK, candidates.pack(state.inst)


def _one_after_another(state: states.State, budget: budgets.Budget
                       ) -> np.ndarray | None:
    """Several groups, each placed online after those of lower bound."""
    inst = state.inst
    parts = sequence.groups(inst)
    solve = state.solve
    if len(parts) < 2 or state.local.is_single() or solve is None:
        return None

    def place(part: instances.Instance) -> np.ndarray:
        outcome = solve(part, budget.slice(1 / len(parts)))
        state.local.moves_done += outcome.moves
        return outcome.assign

    order = sequence.by_bound(inst, parts, budget)
    try:
        assign = sequence.place_in_order(inst, parts, order, place)
    except exception.PlacementInfeasible:
        return None
    filler = candidates.Filler(inst)
    for node in np.flatnonzero((assign >= 0) & (inst.fixed < 0)):
        filler.put(int(node), int(assign[node]))
    return candidates.fill(filler, traffic.both_ways(inst))
