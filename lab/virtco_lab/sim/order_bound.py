# SPDX-License-Identifier: Apache-2.0

"""A lower bound on the mean CCT of any schedule, by the order of the ends.

Let coflows end in some order, and S be the set of the first k of it. All of
them have ended when the k-th does. Those of S that were released at r or later
crossed each port after r. With p the time that coflow j keeps port m busy:

    C_k >= e(S) = max over r, m of  r + sum of p_jm over j in S, r_j >= r

So the sum of the C is at least that of e along the least chain of sets, which
begins with none and ends with all. That is a shortest path, found by A*. What
is left of it has two parts: a table of the chains of the largest coflows, as
if they were alone, and for each other one e(S with it). The coflows that are
largest alone are searched; the others count with their time alone. At any
moment the least estimate of what is open bounds the path, so that a search
that is cut short is weaker, never wrong.

Unlike the cuts of :mod:`virtco_lab.sim.bound` this knows that a large coflow
waits while others pass, and that it ends with the last of its ports.
"""

import heapq

import numpy as np

from virtco.scheduling import fabric as fabric_model

#: Coflows that are searched, and those of them that have a table.
MOST_COFLOWS = 60
MOST_TABLED = 18
#: Sets that are looked at, about a millisecond each.
MOST_SETS = 20_000


def least_mean_cct_s(fabric: fabric_model.Fabric, release_s: np.ndarray,
                     most_sets: int = MOST_SETS) -> float:
    """Bound the mean CCT of any schedule of these coflows from below, in s.

    :param fabric: fabric with all flows whole, as it was laid out.
    :param release_s: time at which each coflow's flows may start, shape (C,).
    :param most_sets: sets of ended coflows to look at; fewer give a weaker
        bound.
    """
    n_coflows = len(release_s)
    if n_coflows == 0:
        return 0.0
    busy_s = np.array([fabric.busy_s(c) for c in range(n_coflows)])
    alone_s = busy_s.max(axis=1)
    chosen = np.argsort(-alone_s, kind='stable')[:MOST_COFLOWS]
    chosen = chosen[np.argsort(release_s[chosen], kind='stable')]
    sum_s = _Search(busy_s[chosen], release_s[chosen]).run(most_sets)
    others = np.delete(alone_s, chosen).sum()
    return float(sum_s - release_s[chosen].sum() + others) / n_coflows


class _Search:
    """A* over sets of coflows that have ended, as bits of a number.

    :param busy_s: time of each port, shape (C, P).
    :param release_s: rising, shape (C,).
    """

    def __init__(self, busy_s: np.ndarray, release_s: np.ndarray):
        self.busy_s, self.release_s = busy_s, release_s
        self.bits = [1 << coflow for coflow in range(len(busy_s))]
        tabled = np.sort(np.argsort(-busy_s.max(axis=1), kind='stable')[
            :MOST_TABLED])
        self.is_tabled = np.zeros(len(busy_s), bool)
        self.is_tabled[tabled] = True
        self.table = _chains(busy_s[tabled], release_s[tabled])
        self.place = dict(zip(tabled.tolist(), range(len(tabled))))

    def run(self, most_sets: int) -> float:
        """Return the least sum of ends, or a bound of it."""
        everything = sum(self.bits)
        known_s = {0: 0.0}
        # Estimate of the whole chain; its sum so far; set; its end.
        queue = [(0.0, 0.0, 0, 0.0)]
        while queue:
            bound_s, sum_s, ended, end_s = heapq.heappop(queue)
            if ended == everything or most_sets <= 0:
                return bound_s
            if sum_s > known_s[ended]:
                continue
            most_sets -= 1
            for estimate_s, coflow, next_s in self._next(ended, end_s):
                more = ended | self.bits[coflow]
                if sum_s + next_s < known_s.get(more, np.inf):
                    known_s[more] = sum_s + next_s
                    heapq.heappush(queue, (
                        max(bound_s, sum_s + estimate_s), sum_s + next_s,
                        more, next_s))
        return 0.0

    def _next(self, ended: int, end_s: float
              ) -> list[tuple[float, int, float]]:
        """List the coflows that may end next.

        :returns: bound of the sum of all ends to come, coflow, its end.
        """
        has_ended = np.array([bool(ended & bit) for bit in self.bits])
        left = np.flatnonzero(~has_ended)
        busy_s = np.where(has_ended[:, None], self.busy_s, 0.0)
        since_s = busy_s[::-1].cumsum(axis=0)[::-1]
        ends_s = np.array([max(end_s, float((
            self.release_s[:coflow + 1] + (
                since_s[:coflow + 1] + self.busy_s[coflow]).max(axis=1)
        ).max())) for coflow in left.tolist()])
        tabled = sum(1 << place for coflow, place in self.place.items()
                     if has_ended[coflow])
        free_s = ends_s[~self.is_tabled[left]]
        found = []
        for coflow, next_s in zip(left.tolist(), ends_s.tolist()):
            rest_s = float(np.maximum(free_s, next_s).sum())
            if coflow in self.place:
                rest_s += next_s + self.table[
                    tabled | 1 << self.place[coflow]]
            else:
                rest_s += self.table[tabled]
            found.append((rest_s, coflow, next_s))
        return found


def _chains(busy_s: np.ndarray, release_s: np.ndarray) -> np.ndarray:
    """Compute the least sum of ends from each set to all, shape (2 ** C,).

    :param busy_s: time of each port, shape (C, P).
    :param release_s: rising, shape (C,).
    """
    count = len(busy_s)
    sets = np.arange(1 << count)
    # The loads of all sets at once would take a gigabyte.
    low_s, high_s = _loads(busy_s[:count // 2]), _loads(busy_s[count // 2:])
    fullest_s = np.concatenate([(low_s + row).max(axis=1) for row in high_s])
    end_s = np.zeros(len(sets))
    for coflow in range(count):
        since = sets >> coflow << coflow
        end_s = np.maximum(end_s, np.where(
            since > 0, release_s[coflow] + fullest_s[since], 0.0))
    found = np.full(len(sets), np.inf)
    found[-1] = 0.0
    n_ended = sum(sets >> coflow & 1 for coflow in range(count))
    for size in range(count - 1, -1, -1):
        some = sets[n_ended == size]
        for coflow in range(count):
            some_left = some[some >> coflow & 1 == 0]
            more = some_left | 1 << coflow
            found[some_left] = np.minimum(found[some_left],
                                          end_s[more] + found[more])
    return found


def _loads(busy_s: np.ndarray) -> np.ndarray:
    """Compute the time of each port for each set, shape (2 ** C, P)."""
    found = np.zeros((1, busy_s.shape[1]))
    for row in busy_s:
        found = np.concatenate((found, found + row))
    return found
