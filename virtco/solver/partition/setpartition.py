# SPDX-License-Identifier: Apache-2.0

"""Is there a placement within limits? Set partition by column generation.

At a time t every host holds a set of nodes that fits it and takes at most t
there, and every node is in one set. With a value pi_j per node and sigma_c
at least the most valuable such set of host class c,

    sum_j pi_j > sum_c count_c sigma_c

proves that no placement ends within t: a bound that sees hosts compete. Where
hosts share a resource, its price times what there is of it joins the right
side, and a node is worth less in a class by what it takes there. The
values are the duals of a linear program that covers the nodes with the sets
found so far (:mod:`virtco.solver.partition.master`);
:mod:`virtco.solver.bounds.sets_kernel` finds more sets. Once fractions of sets
cover all nodes, they are rounded (:mod:`virtco.solver.partition.rounding`).

Uplinks are not in it and pipes enter by their sums, so what it proves holds
for them too, and the placements must be judged anew.
"""

from collections.abc import Callable
import enum
import math

import numpy as np

from virtco.solver import budget as budgets
from virtco.solver.bounds import lowerbounds
from virtco.solver.model import instance as instances
from virtco.solver.partition import columns
from virtco.solver.partition import master
from virtco.solver.partition import rounding

#: Search tree nodes of a pricing: at first, and when nothing was found.
TREE_LIMITS = (300, 3000, 30000)
#: Tolerance of the linear program: smaller values are 0.
EPS = 1e-7
#: First target is the best divided by this: local search is mostly near it
#: already. On 25 hard instances of 18 x 40 at 1 s it certified 76 instead of
#: 72 %, and p90 of the ratio fell from 1.014 to 1.005; at 1.01 and 1.06 it did
#: not help.
FIRST = 1.03
#: Ratio from which on the next target is just below the best, not between.
NEAR = 1.01
JUST_BELOW = 5e-9
#: No t below this part of the best is tried.
LEAST = 1e-6


class Verdict(enum.Enum):
    """Result of a search for a placement within limits."""

    REFUTED = 'no placement within the limits'
    FOUND = 'a placement within the limits'
    UNKNOWN = 'neither'


class Partition:
    """Decides limits for one instance; sets found for one serve the next.

    :ivar budget: budget of the present user.
    """

    def __init__(self, inst: instances.Instance, budget: budgets.Budget):
        self.inst = inst
        self.budget = budget
        self.pool = columns.Pool(inst)
        self.s_per_byte = lowerbounds.hose_s_per_byte(inst).ravel()[
            self.pool.ports]
        self.master = master.Master(self.pool)
        #: Cover that refuted a time last; it often refutes the next one, too.
        self.refuting: master.Cover | None = None

    def narrow(self, lower_s: float, upper_s: float,
               judge: Callable[[np.ndarray], float]) -> float:
        """Raise a lower bound and find better placements until they meet.

        :param upper_s: time of the best placement known.
        :param judge: takes a placement, returns its true time.
        :returns: the new lower bound.
        """
        failed_s, t_s = lower_s, max(lower_s, upper_s / FIRST)
        if t_s > lower_s:
            verdict, assign = self.decide(self.within_s(t_s))
            if verdict is Verdict.REFUTED:
                failed_s = lower_s = t_s
            elif assign is not None:
                upper_s = min(upper_s, judge(assign))
        t_s = max(lower_s, LEAST * upper_s)
        if lower_s * FIRST * (1 + JUST_BELOW) >= upper_s:
            t_s = upper_s * (1 - JUST_BELOW)
        while (failed_s < upper_s * (1 - 2 * JUST_BELOW)
               and self.budget.in_time()):
            verdict, assign = self.decide(self.within_s(t_s))
            if verdict is Verdict.REFUTED:
                lower_s = max(lower_s, t_s)
            found_s = judge(assign) if assign is not None else math.inf
            if found_s > t_s * (1 + 2 * columns.CHOSEN):
                failed_s = t_s
            upper_s = min(upper_s, found_s)
            t_s = math.sqrt(max(failed_s, LEAST * upper_s) * upper_s)
            if upper_s < NEAR * failed_s:
                t_s = upper_s * (1 - JUST_BELOW)
        return lower_s

    def within_s(self, t_s: float) -> np.ndarray:
        """Compute the limits for a time, shape (C, 2)."""
        limits: np.ndarray = self.s_per_byte / t_s
        return limits

    def decide(self, limits: np.ndarray
               ) -> tuple[Verdict, np.ndarray | None]:
        """Decide whether limits can be met; return hosts per node where FOUND.

        :param limits: 1 / bytes out and in per class, shape (C, 2).
        """
        self.master.release()
        if self.refuting is not None and self._price_all(
                limits, self.refuting, TREE_LIMITS[0])[0]:
            return Verdict.REFUTED, None
        verdict, _cover = self._cover(limits)
        if verdict is not Verdict.FOUND:
            return verdict, None
        assign = rounding.dive(self.master, lambda: self._cover(limits)[1])
        if assign is None or not self.inst.fits(assign):
            return Verdict.UNKNOWN, None
        return Verdict.FOUND, assign

    def _cover(self, limits: np.ndarray
               ) -> tuple[Verdict, master.Cover | None]:
        """Return REFUTED, FOUND when fractions of sets cover all, or UNKNOWN.
        """
        growth = 0
        while self.budget.in_time() and growth < len(TREE_LIMITS):
            cover = self.master.cover(limits, self.budget)
            if cover is None:
                break
            if cover.uncovered < EPS:
                return Verdict.FOUND, cover
            proof, added = self._price_all(limits, cover,
                                           TREE_LIMITS[growth])
            if proof:
                self.refuting = cover
                return Verdict.REFUTED, None
            if not added:
                growth += 1
        return Verdict.UNKNOWN, None

    def _price_all(self, limits: np.ndarray, cover: master.Cover, limit: int
                   ) -> tuple[bool, int]:
        """Price all classes; return whether it refutes, and the columns added.
        """
        count = self.master.count
        surplus = cover.wanted - float(
            cover.share_price @ self.master.shares)
        allowance = cover.uncovered / (2 * count.sum())
        added = 0
        for c in np.flatnonzero(count):
            if not self.budget.in_time():
                return False, 0
            upper, found = self.pool.price(
                int(c), limits, cover.worth[c], cover.price[c] + allowance,
                limit, self.master.placed, self.budget)
            surplus -= count[c] * upper
            for members in found:
                added += self.pool.add(
                    members, limits,
                    cover.worth[:, members].sum(axis=1)
                    > cover.price + EPS)
        return surplus > EPS, added
