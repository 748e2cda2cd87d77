# SPDX-License-Identifier: Apache-2.0

"""The search: stages with a share of the time that is left.

Good answers come first, then proofs, then both in turn. Every stage can be
interrupted; :mod:`virtco.solver.budget` says by what clock.
"""

from collections.abc import Callable
import dataclasses
from typing import NamedTuple

from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver.stages import annealing
from virtco.solver.stages import finishing
from virtco.solver.stages import proofs
from virtco.solver.stages import search_state as states
from virtco.solver.starts import feasible


class Stage(NamedTuple):
    """A step of the search.

    :ivar share: share of the time left that it may take.
    """

    name: str
    run: Callable[[states.State, budgets.Budget], None]
    share: float


STAGES = (
    Stage('bound', proofs.bound, 0.25),
    Stage('tiny problems', proofs.try_all, 0.5),
    Stage('quick search', annealing.quick, 0.4),
    Stage('coflows in turn', annealing.in_turn, 0.3),
    Stage('all placements', proofs.exhaust, 0.8),
    Stage('regrouping', annealing.regroup, 0.3),
    Stage('local search', annealing.deepen, 0.5),
    Stage('set partition', proofs.solve, 0.85),
    Stage('rounds', annealing.rounds, 0.95),
    Stage('more proofs', proofs.prove, 1.0),
)
#: Last stages: they use the rest of the time to spare other groups.
FINISH = (
    Stage('polish', finishing.polish, 1.0),
    Stage('judge', finishing.judge, 1.0),
)


def begin(state: states.State, budget: budgets.Budget) -> None:
    """Find some placement.

    :raises virtco.exception.PlacementInfeasible: when nothing fits.
    """
    state.stage = 'any placement'
    state.add(states.Method.BEST_FIT, feasible.any_placement(
        state.inst, state.task.seed, budget))


def run(state: states.State, budget: budgets.Budget) -> None:
    """Search an instance, from the best placement that is known.

    :raises virtco.exception.PlacementInfeasible: when nothing fits.
    """
    if state.best is None:
        begin(state, budget)
    for stage in STAGES:
        if state.is_closed():
            break
        state.stage = stage.name
        stage.run(state, budget.slice(stage.share))
    for stage in FINISH:
        state.stage = stage.name
        stage.run(state, budget)


def outcome(state: states.State) -> states.Outcome:
    """Return the answer with its bounds, notes and number of moves."""
    notes = []
    if state.budget.is_stopped():
        notes.append('the caller stopped the search')
    elif not state.is_closed() and not state.budget.left_s():
        notes.append('the time budget cut the search short')
    if not state.local.is_single():
        notes.append(f'the objective of {snapshot.Scope.CONSTRAINTS} is '
                     f'at least {state.floor_s:.6g} s')
    value = state.answer.value
    lower_s = state.lower_s
    if value.cct_s <= lower_s * (1 + states.CLOSED):
        lower_s = value.cct_s
    return dataclasses.replace(
        state.answer, lower_s=min(lower_s, value.cct_s),
        moves=state.local.moves_done, notes=tuple(notes),
        floor_s=state.floor_s, relaxed=_relaxed(state))


def _relaxed(state: states.State) -> snapshot.Relaxed:
    """Return whether the relaxed program was solved, or why not."""
    if state.relaxed:
        return snapshot.Relaxed.SOLVED
    if state.is_closed():
        return snapshot.Relaxed.CERTIFIED_BEFORE
    return snapshot.Relaxed.NO_TIME
