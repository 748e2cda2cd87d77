# SPDX-License-Identifier: Apache-2.0

"""Last stages: fewer bytes for the sake of others, a look at schedules."""

import dataclasses

import numpy as np

from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver.judging import judge as judging
from virtco.solver.stages import annealing
from virtco.solver.stages import search_state as states

POLISH_MOVES = 300
#: Best placements whose schedules are compared. Of 58 batches of three to five
#: groups (benchmarks.batches) the mean CCT is 1.001 of the optimum with
#: 30, 1.005 with 10 and 1.011 without.
N_JUDGED = 30


def polish(state: states.State, budget: budgets.Budget) -> None:
    """Spare the network for others where that costs no time.

    When the search ended because the known coflows cannot be faster, what
    others will wait has not been looked at yet.

    ISOLATED is the paper's Algorithm 2, which looks at nobody else.
    """
    if (state.task.objective == snapshot.Objective.ISOLATED
            or not np.isfinite(state.answer.value.objective_s)
            or not budget.in_time()):
        return
    moves = state.moves(POLISH_MOVES)
    found = state.answer.assign
    if state.is_closed() and state.answer.value.ahead_s > 0:
        found, _value = state.local.anneal(
            found, moves, hot=annealing.REHEAT, budget=budget)
    found = state.local.polish(found, moves, budget)
    value = state.evaluate(found)
    if value.key <= state.answer.value.key:
        state.best = dataclasses.replace(state.answer, assign=found,
                                         value=value)


def judge(state: states.State, budget: budgets.Budget) -> None:
    """Choose among the best placements of groups that wait together.

    Schedules are compared, since a prefix CCT takes sharing of ports for free.
    """
    if (not state.inst.are_apart or state.inst.pipe
            or state.task.objective == snapshot.Objective.ISOLATED):
        return
    judged = judging.Judge(state.inst, budget)
    least_s = judged.total_s(state.answer.assign)
    for start in state.starts(N_JUDGED):
        if least_s is None or not budget.in_time():
            return
        total_s = judged.total_s(start.assign)
        if total_s is not None and total_s < least_s * (1 - states.CLOSED):
            least_s, state.best = total_s, start
