# SPDX-License-Identifier: Apache-2.0

"""Load-aware online by set partition: a target for every prefix CCT.

With the running coflows fixed, the new one adds to the prefixes from its own
place in the order on. Prefix k ends within tau_k when every host m cuts at
most

    min_k (tau_k B_m - base_k(m))

bytes each way, base_k(m) being what the running coflows of the prefix have
there. So whether targets can be met is a question for
:mod:`virtco.solver.partition.setpartition`, with limits that differ from host
to host.
Targets are lowered together or one at a time, from a placement that the
local search found, as long as the sum of the prefix CCTs falls.

Several groups are taken in turn, the others counting as running.
"""

from collections.abc import Iterator
import dataclasses
import itertools

import numpy as np

from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import independent_groups as groups
from virtco.solver.model import instance as instances
from virtco.solver.model import objectives
from virtco.solver.moves import localsearch
from virtco.solver.partition import setpartition

#: Seconds that one group's targets may take.
MOST_S = 0.5
#: Shares of the excess over the least that lowered targets keep: all targets
#: together, each alone, and all together at last.
TOGETHER = (0.7, 0.9)
ONE = (0.5, 0.85)
LAST = 0.97
#: Excess below this part of a target is none.
NOTHING = 1e-6
#: Bytes allowed where there is no room at all, relative to all bytes.
CLOSED_BYTES = 1e-9


@dataclasses.dataclass(frozen=True)
class _Levels:
    """Prefixes of one order; K levels, P ports.

    :ivar base: bytes without the own coflow, shape (K, P).
    :ivar least_s: least end of each without it, excess_s: and beyond that.
    """

    base: np.ndarray
    least_s: np.ndarray
    excess_s: np.ndarray

    def aims(self) -> Iterator[np.ndarray]:
        """Yield targets to try, shape (K,)."""
        for share in TOGETHER:
            yield self.least_s + share * self.excess_s
        high = self.least_s + self.excess_s
        for share in ONE:
            for k in np.flatnonzero(self.excess_s > NOTHING * high):
                aim = high.copy()
                aim[k] = self.least_s[k] + share * self.excess_s[k]
                yield aim
        yield self.least_s + LAST * self.excess_s


def improve(inst: instances.Instance, assign: np.ndarray,
            budget: budgets.Budget,
            objective: snapshot.Objective = snapshot.Objective.ONLINE
            ) -> np.ndarray:
    """Lower the sum of a placement's prefix CCTs; return hosts per node.

    :param budget: each group has a part of it.
    """
    parts = [part for part in groups.split(inst)
             if len(part.coflows) == 1]
    lasting = 0
    for part in itertools.cycle(parts):
        if lasting == len(parts) or not budget.in_time():
            break
        better = _improve_part(inst, assign, part,
                               budget.slice(1.0, MOST_S), objective)
        lasting = 1 if (better != assign).any() else lasting + 1
        assign = better
    return assign


def _improve_part(inst: instances.Instance, assign: np.ndarray,
                  part: groups.Group, budget: budgets.Budget,
                  objective: snapshot.Objective) -> np.ndarray:
    """Improve a placement by moving the nodes of one group only."""
    others = np.setdiff1d(np.arange(inst.n_nodes), part.nodes)
    free = inst.left(inst.free, assign[others], inst.demand[others])
    loads = np.delete(objectives.own_loads(inst, assign), part.coflows,
                      axis=0)
    sub = groups.restrict(inst, part, free, list(loads))
    if not len(sub.movable):
        return assign
    result = assign.copy()
    result[part.nodes] = _Group(sub, budget, objective).improve(
        assign[part.nodes])
    return result


class _Group:
    """Search of one group with one coflow."""

    def __init__(self, inst: instances.Instance,
                 budget: budgets.Budget, objective: snapshot.Objective):
        self.inst = inst
        self.local = localsearch.Searcher(inst, objective, seed=0)
        m = inst.n_hosts
        self.s_per_byte = self.local.s_per_byte[:2 * m]
        self.partition = setpartition.Partition(inst, budget, np.vstack([
            self.s_per_byte.reshape(2, m),
            inst.running.dense()[:, :2 * m].reshape(-1, m)]).T)
        self.bytes = sum(float(size.sum()) for _a, _b, size in inst.arcs)

    def improve(self, assign: np.ndarray) -> np.ndarray:
        """Lower targets from a placement while that helps."""
        best_s = self.local.evaluate(assign).objective_s
        found: np.ndarray | None = assign
        while found is not None:
            assign = found
            found = self._better(self._levels(assign), best_s)
            if found is not None:
                best_s = self.local.evaluate(found).objective_s
        return assign

    def _better(self, levels: _Levels, best_s: float) -> np.ndarray | None:
        """Find the first placement below best_s that some targets give."""
        refuted: list[np.ndarray] = []
        for aim in levels.aims():
            if not self.partition.budget.in_time():
                break
            if any((aim <= other).all() for other in refuted):
                continue
            verdict, found = self.partition.decide(
                self._limits(levels.base, aim))
            if verdict is setpartition.Verdict.REFUTED:
                refuted.append(aim)
            if found is not None and (self.local.evaluate(found).objective_s
                                      < best_s * (1 - NOTHING)):
                return found
        return None

    def _levels(self, assign: np.ndarray) -> _Levels:
        """Return each level's base loads, least time, and excess over it."""
        _level, base, floor, _weight = self.local.levels(assign)
        loads = objectives.own_loads(self.inst, assign).sum(axis=0)
        s_per_byte = self.local.s_per_byte
        least_s = np.maximum((base * s_per_byte).max(axis=1), floor)
        top_s = np.maximum(((base + loads) * s_per_byte).max(axis=1), floor)
        return _Levels(base, least_s, top_s - least_s)

    def _limits(self, base: np.ndarray, aim: np.ndarray) -> np.ndarray:
        """Compute 1 / bytes that every class may cut, shape (C, 2)."""
        room = (aim[:, None] / self.s_per_byte
                - base[:, :len(self.s_per_byte)]).min(axis=0)
        room = np.maximum(room, CLOSED_BYTES * self.bytes)
        limits: np.ndarray = 1.0 / room[self.partition.pool.ports]
        return limits
