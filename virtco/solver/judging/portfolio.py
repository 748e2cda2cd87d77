# SPDX-License-Identifier: Apache-2.0

"""Among the answers of several planners, the one whose schedule is best.

No objective that is cheap enough to search by knows the real schedule: sums
of prefix CCTs take sharing for free, residual bandwidth takes it for
impossible. So each makes its proposal, the schedule of all known coflows is
simulated with each (:mod:`virtco.solver.judging.judge`), and the least sum of
CCTs wins, with a part of what coflows to come will wait.
"""

from collections.abc import Iterable
import dataclasses

import numpy as np

from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver.judging import judge
from virtco.solver.model import instance as instances


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A placement, as hosts per node, and who proposed it."""

    method: str
    assign: np.ndarray


def applies(problem: snapshot.PlacementProblem,
            objective: snapshot.Objective) -> bool:
    """Return whether proposals can differ and be judged: no pairs' rates."""
    return (objective == snapshot.Objective.ONLINE and bool(problem.active)
            and bool(problem.coflows) and problem.pair_rate_bps is None)


def best(inst: instances.Instance, candidates: Iterable[Candidate],
         budget: budgets.Budget) -> Candidate:
    """Choose the best candidate by simulation.

    The first one wins a tie; where simulating takes too long, the best so far.
    """
    judged = judge.Judge(inst, budget)
    chosen, least_s = None, np.inf
    seen: set[bytes] = set()
    for candidate in candidates:
        key = candidate.assign.tobytes()
        if key in seen:
            continue
        seen.add(key)
        cost_s = judged.cost_s(candidate.assign)
        if chosen is None:
            chosen = candidate
        if cost_s is None:
            break
        if cost_s < least_s:
            chosen, least_s = candidate, cost_s
    assert chosen is not None
    return chosen
