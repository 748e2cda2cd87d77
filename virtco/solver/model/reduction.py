# SPDX-License-Identifier: Apache-2.0

"""Exact host reduction: drop the hosts that no placement needs.

With n VMs to place, at most n hosts are used. If n other hosts are at least
as good as host m in everything (capacity, egress, ingress, load of active
coflows, who may use them, subtree), then whatever is put on m can be put on
one of them that is empty, and no load, bound or objective grows. Hosts with
pinned VMs are neither dropped nor counted. Hosts that no VM may use go first.
"""

import dataclasses
import itertools
import math

import numpy as np

from virtco.solver import budget as budgets
from virtco.solver.model import loads as loads_model

#: Work to compare two hosts that may not be needed, and part of the budget to
#: compare each two in. More hosts than fit are compared only with the best
#: ones.
COMPARE_UNITS = 4.0
COMPARE_SHARE = 0.1
#: How many classes are looked at first, and by which of their values they
#: are chosen: capacities and rates come first. Both only decide the time.
LEAD = 256
LEAD_COLUMNS = 4
#: Cells of a table that compares classes, at most.
CELLS = 1 << 22


def most_compared(budget: budgets.Budget) -> float:
    """Return how many unlike hosts a budget allows to compare in pairs."""
    return math.sqrt(COMPARE_SHARE * budget.units() / COMPARE_UNITS)


def needed_hosts(free: np.ndarray, s_per_byte: np.ndarray,
                 running: loads_model.Loads, allowed: np.ndarray,
                 fixed: np.ndarray, above: np.ndarray,
                 most_compared: float = np.inf) -> np.ndarray:
    """Find the hosts to keep; return their indices, ascending.

    :param free: capacity left, shape (M, R).
    :param s_per_byte: egress and ingress, shape (2, M), less is better.
    :param running: loads of running coflows; ports of hosts come first.
    :param allowed: shape (n, M).
    :param fixed: host of every pinned node, -1 for the others.
    :param above: subtree of every host per tier, shape (L, M).
    :param most_compared: number of unlike hosts up to which every two are
        compared; more are compared with the best ones only.
    """
    n_hosts = len(free)
    n_movable = int((fixed < 0).sum())
    pinned_hosts = np.unique(fixed[fixed >= 0])
    candidates = np.setdiff1d(np.flatnonzero(allowed.any(axis=0)),
                              pinned_hosts)
    if len(candidates) <= n_movable:
        return np.union1d(candidates, pinned_hosts)
    value = np.hstack([free, -s_per_byte.T])[candidates]
    same = np.column_stack([above.T, _who(allowed)])[candidates]
    entries = by_host(running, n_hosts).ordered(candidates)
    class_of, first, counts = classes(np.column_stack(
        [value, same, kinds(entries)]))
    dominators = _Dominators(
        value[first], same[first], entries.ordered(first), counts,
        n_movable).count(most_compared)
    room = np.maximum(0, n_movable - dominators)
    rank = np.zeros(len(candidates), dtype=np.int64)
    by_class = np.argsort(class_of, kind='stable')
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    rank[by_class] = np.arange(len(candidates)) - np.repeat(starts, counts)
    kept = candidates[rank < room[class_of]]
    return np.union1d(kept, pinned_hosts).astype(np.int64)


def _who(allowed: np.ndarray) -> np.ndarray:
    """Give hosts the same number where the same nodes may be."""
    # np.unique takes 30 ms for the columns of 5,000 hosts, this 2.
    seen: dict[bytes, int] = {}
    return np.array([seen.setdefault(column.tobytes(), len(seen))
                     for column in np.packbits(allowed, axis=0).T])


def classes(columns: np.ndarray
            ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Group equal rows into classes.

    Return the class of every row, the first row of each class, and the number
    of rows in each.
    """
    key = np.zeros(len(columns), np.int64)
    for column in columns.T:
        values, place = np.unique(column, return_inverse=True)
        _, key = np.unique(key * len(values) + place.reshape(-1),
                           return_inverse=True)
    _, first, counts = np.unique(key, return_index=True, return_counts=True)
    return key, first, counts


def by_host(running: loads_model.Loads, n_hosts: int) -> loads_model.Loads:
    """Turn the loads of running coflows round: a row for each host.

    Its columns, in place of ports, are coflow and direction, rising.
    """
    of_hosts = running.port < 2 * n_hosts
    way, host = np.divmod(running.port[of_hosts], n_hosts)
    column = 2 * running.coflow[of_hosts] + way
    order = np.lexsort((column, host))
    return loads_model.Loads(
        np.searchsorted(host[order], np.arange(n_hosts + 1)), column[order],
        running.size_bytes[of_hosts][order], 2 * len(running))


def kinds(hosts: loads_model.Loads) -> np.ndarray:
    """Give rows with the same loads the same number."""
    seen: dict[bytes, int] = {}
    return np.array([seen.setdefault(
        hosts.port[first:last].tobytes()
        + hosts.size_bytes[first:last].tobytes(), len(seen))
        for first, last in itertools.pairwise(hosts.start.tolist())])


def within(hosts: loads_model.Loads, others: loads_model.Loads) -> np.ndarray:
    """Compute within[i, j]: no load of others[j] is above that of host i.

    Only loads on the same column meet, so this takes about as long as there
    are such pairs.
    """
    n, m = len(hosts), len(others)
    order = np.argsort(others.port, kind='stable')
    columns = others.port[order]
    first = np.searchsorted(columns, hosts.port, 'left')
    counts = np.searchsorted(columns, hosts.port, 'right') - first
    mine = np.repeat(np.arange(len(hosts.port)), counts)
    theirs = order[np.arange(len(mine)) + np.repeat(
        first - (np.cumsum(counts) - counts), counts)]
    below = others.size_bytes[theirs] <= hosts.size_bytes[mine]
    pair = hosts.coflow[mine[below]] * m + others.coflow[theirs[below]]
    met = np.bincount(pair, minlength=n * m).reshape(n, m)
    result: np.ndarray = met == np.diff(others.start)
    return result


@dataclasses.dataclass(frozen=True)
class _Dominators:
    """Hosts of other classes at least as good; where ``enough``, or more.

    Most classes have enough among the few best. A class with enough is not
    missed as a dominator: those of its dominators that have not enough
    themselves are already enough for whatever it dominates.

    :ivar value: values that may only be larger, per class.
    :ivar same: values that must be equal.
    :ivar entries: loads, which may only be less.
    :ivar counts: hosts per class.
    """

    value: np.ndarray
    same: np.ndarray
    entries: loads_model.Loads
    counts: np.ndarray
    enough: int

    def count(self, most_compared: float) -> np.ndarray:
        every = np.arange(len(self.value))
        # Hosts as good as others have fewer loads first: without loads a host
        # dominates all of them.
        no_better = np.array([
            np.searchsorted(np.sort(column), column, 'right')
            for column in self.value[:, :LEAD_COLUMNS].T])
        best = np.lexsort((np.diff(self.entries.start),
                           -no_better.min(axis=0)))[:LEAD]
        result = self._among(every, best)
        rest = np.flatnonzero(result < self.enough)
        if len(rest) <= most_compared:
            result[rest] = self._among(rest, rest)
        return result

    def _among(self, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Count dominating hosts for many rows, part by part."""
        step = 1 + CELLS // (1 + len(others))
        parts = [self._count(rows[at:at + step], others)
                 for at in range(0, len(rows), step)]
        return np.concatenate([np.zeros(0, np.int64), *parts])

    def _count(self, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Count for each row the hosts among others that dominate it."""
        better = dominance(self.value[rows], self.value[others])
        for column in self.same.T:
            if column.min() < column.max():
                better &= column[rows][:, None] == column[others][None, :]
        better &= rows[:, None] != others[None, :]
        better &= within(self.entries.ordered(rows),
                         self.entries.ordered(others))
        result: np.ndarray = better @ self.counts[others]
        return result


def dominance(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Compute better[i, j]: others[j] is nowhere less than rows[i]."""
    better = np.ones((len(rows), len(others)), dtype=bool)
    if not better.size:
        return better
    seen = set()
    for mine, theirs in zip(rows.T, others.T):
        # The best ones are as good as any, which leaves little to compare.
        lower = np.flatnonzero(theirs < mine.max())
        if not len(lower):
            continue
        # Many nodes may be on the same hosts, and have equal columns.
        key = mine.tobytes(), theirs.tobytes()
        if key in seen:
            continue
        seen.add(key)
        if 2 * len(lower) > len(theirs):
            better &= theirs[None, :] >= mine[:, None]
        else:
            better[:, lower] &= theirs[lower][None, :] >= mine[:, None]
    return better
