# SPDX-License-Identifier: Apache-2.0

"""Stages that carve the group up into cheapest sets."""

import numpy as np

from virtco.solver import budget as budgets
from virtco.solver.model import objectives
from virtco.solver.stages import state as states
from virtco.solver.starts import carving

#: Carvings at the lower bound where hosts are many, one where they are few; a
#: third as many between it and the best t.
CARVINGS = 12
CARVE_BETWEEN = (0.25, 0.6)


def first(state: states.State, budget: budgets.Budget) -> None:
    """In a roomy cloud that is often all it takes."""
    roomy = state.inst.n_hosts >= len(state.inst.movable)
    _carve(state, state.lower_s, CARVINGS if roomy else 1, budget)


def between(state: states.State, budget: budgets.Budget) -> None:
    """At targets between the bound and the best t."""
    for share in CARVE_BETWEEN:
        if state.is_done(budget):
            return
        lower_s, upper_s = state.lower_s, state.answer.value.cct_s
        if np.isfinite(upper_s):
            lower_s += share * (upper_s - lower_s)
        _carve(state, lower_s, CARVINGS // 3, budget)


def _carve(state: states.State, target_s: float, rounds: int,
           budget: budgets.Budget) -> None:
    """Squeaky wheel; the best of it joins the pool."""
    best: tuple[objectives.Evaluation, np.ndarray] | None = None
    for assign in carving.squeaky_wheel(
            state.inst, target_s, state.critical, rounds, state.rng, budget):
        value = state.evaluate(assign)
        if best is None or states.key(value) < states.key(best[0]):
            best = value, assign
        state.offer(states.Method.CHEAPEST_SETS, assign, value)
        if state.is_done(budget):
            break
    if best is not None:
        state.add(states.Method.CHEAPEST_SETS, best[1], best[0])
