# SPDX-License-Identifier: Apache-2.0

"""Stages of local search, and their start placements."""

import itertools

import numpy as np

from virtco.solver import budget as budgets
from virtco.solver.bounds import lowerbounds
from virtco.solver.moves import localsearch
from virtco.solver.stages import proofs
from virtco.solver.stages import search_state as states
from virtco.solver.starts import candidates

#: Moves per node of the first runs, and how many there are. Fewer left one run
#: in a hundred a third behind (groups together, three resources).
QUICK = 500, 3
#: Moves per node with a set of nodes put together, and how many such runs in
#: a row may find nothing better.
REGROUP = 50, 2
#: Moves per node from coflows placed in turn, and how many orders. On 58
#: batches of three to five groups (benchmarks.batches) the mean CCT fell
#: from 1.086 of the optimum to 1.011, with a tenth of work more, before their
#: schedules were compared.
IN_TURN = 100, 12
#: Calls of numpy to put a set together.
GATHER_CALLS = 40
#: Moves per node, and how often, from the best so far.
DEEPER = ((2000, 1), (6000, 2))
#: Moves per node, and how many of the pool's best they are spent on.
ROUNDS: tuple[tuple[int, int], ...] = ((500, 5), (1500, 3), (5000, 2))
#: Share of the time left that set partition may take between rounds.
PARTITION_SHARE = 0.3
#: Both where hosts are tied together. On 32 instances of rack18x40 at 1 s of
#: work, with rounds as long as there is time, the mean ratio to the best fell
#: from 1.022 to 1.008.
TIED_ROUNDS = ((6000, 2), (20000, 1))
TIED_SHARE = 0.1
#: Proven ratio at which no more moves are made.
CLOSE = 1e-3
#: Temperature at which a search starts from a good placement.
REHEAT = 0.03


def quick(state: states.State, budget: budgets.Budget) -> None:
    """Anneal the best placement there is a few times, from a high heat."""
    first, (per_node, runs) = state.answer.assign, QUICK
    for i in range(runs):
        state.anneal(first, state.moves(per_node), hot(state),
                     power(state, i), budget)
        if state.is_done(budget):
            return


def in_turn(state: states.State, budget: budgets.Budget) -> None:
    """Anneal starts in which own coflows had the choice in random orders.

    Coflows that wait together may have to exchange whole hosts, which differ
    in more nodes than a move has.
    """
    if not state.inst.are_apart:
        return
    count, (per_node, runs) = len(state.inst.arcs), IN_TURN
    for _ in range(runs):
        order = state.local.order_random.sample(range(count), count)
        candidates.spend(state.inst, budget)
        start = candidates.in_turn(state.inst, order)
        if start is not None and state.inst.fits(start):
            state.anneal(start, state.moves(per_node), REHEAT,
                         power(state, 0), budget)
        if state.is_done(budget):
            return


def regroup(state: states.State, budget: budgets.Budget) -> None:
    """Anneal with nodes of the slowest host in their cheapest set.

    The set that bounds a node differs from its host's content in more nodes
    than a move has. It takes no longer than the bound on the host where it is
    cheapest; the nodes that it leaves behind are for the local search.
    """
    inst, (per_node, patience) = state.inst, REGROUP
    if not state.local.is_single() or not state.bound.sets:
        return
    sets = np.unique(state.bound.sets, axis=0)
    sets = sets[~sets[:, inst.fixed >= 0].any(axis=1)]
    fruitless = 0
    while fruitless < patience and not state.is_done(budget):
        port, before_s = state.answer.value.port, state.answer.value.cct_s
        there = state.answer.assign == port % inst.n_hosts
        shared = (sets @ inst.exchanged[there].sum(axis=0)
                  * (sets & there).any(axis=1))
        if port >= 2 * inst.n_hosts or not shared.any():
            return
        chosen = int(shared.argmax())
        start = _gathered(state, sets[chosen], budget)
        sets = np.delete(sets, chosen, axis=0)
        if start is None:
            continue
        state.anneal(start, state.moves(per_node), REHEAT, power(state, 0),
                     budget)
        fruitless += 1
        if state.answer.value.cct_s < before_s:
            fruitless = 0


def _gathered(state: states.State, members: np.ndarray,
              budget: budgets.Budget) -> np.ndarray | None:
    """Put a set on the empty host where it is cheapest; None without one."""
    inst, assign = state.inst, state.answer.assign.copy()
    budget.spend_numpy(GATHER_CALLS, inst.n_nodes * inst.n_hosts)
    free = ((inst.demand[members].sum(axis=0) <= inst.room).all(axis=1)
            & inst.allowed[members].all(axis=0))
    free[assign[~members]] = False
    if not free.any():
        return None
    sent = inst.sent[members][:, ~members].sum()
    received = inst.sent[~members][:, members].sum()
    out, into = lowerbounds.hose_s_per_byte(inst)
    assign[members] = np.where(free, np.maximum(sent * out, received * into),
                               np.inf).argmin()
    return assign if inst.fits(assign) else None


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

    Again as long as that helps, or there is time to prove something. Where
    hosts are tied together, the local search alone finds good placements, so
    it goes on as long as there is time.
    """
    # A search that moves nothing takes no time, and would never end.
    if state.is_closed(CLOSE) or not state.local.can_move:
        return
    many, share = ROUNDS, PARTITION_SHARE
    is_endless = state.task.certify
    if state.local.is_single() and state.inst.is_tied:
        many, share, is_endless = TIED_ROUNDS, TIED_SHARE, True
    for _ in itertools.count():
        before_s = state.answer.value.objective_s
        for per_node, breadth in many:
            for i, start in enumerate(state.starts(breadth)):
                state.anneal(start.assign, state.moves(per_node),
                             _heat(state, i), power(state, i), budget)
                if state.is_done(budget):
                    return
            if state.partition is not None and not state.task.certify:
                proofs.prove(state, budget.slice(share))
            if state.is_done(budget) or state.is_closed(CLOSE):
                return
        if not (is_endless or state.answer.value.objective_s
                < before_s * (1 - CLOSE)):
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
