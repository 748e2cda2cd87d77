# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Exact host reduction: drop the hosts that no placement needs.

With n VMs to place, at most n hosts are used. If n other hosts are at least
as good as host m in everything (capacity, egress, ingress, load of active
coflows, who may use them, subtree), then whatever is put on m can be put on
one of them that is empty, and no load, bound or objective grows. Hosts with
pinned VMs are neither dropped nor counted.
"""

import numpy as np

#: How many classes are looked at first, and by which of their values they
#: are chosen: capacities and rates come first. Both only decide the time.
LEAD = 256
LEAD_COLUMNS = 4


def needed_hosts(free: np.ndarray, s_per_byte: np.ndarray,
                 active_bytes: np.ndarray, allowed: np.ndarray,
                 fixed: np.ndarray, above: np.ndarray,
                 thorough: bool = True) -> np.ndarray:
    """Indices of the hosts to keep, rising.

    :param free: capacity left, shape (M, R).
    :param s_per_byte: egress and ingress, shape (2, M), less is better.
    :param active_bytes: loads of active coflows, shape (A, 2M).
    :param allowed: shape (n, M).
    :param fixed: host of every pinned node, -1 for the others.
    :param above: subtree of every host per tier, shape (L, M).
    :param thorough: compare every two hosts and not with the best ones only.
    """
    n_hosts = len(free)
    n_movable = int((fixed < 0).sum())
    pinned_hosts = np.unique(fixed[fixed >= 0])
    if n_hosts <= n_movable + len(pinned_hosts):
        return np.arange(n_hosts)
    value, same = _values(free, s_per_byte, active_bytes, allowed, above)
    candidates = np.setdiff1d(np.arange(n_hosts), pinned_hosts)
    rows = np.hstack([value[candidates], same[candidates]])
    classes, class_of, counts = np.unique(
        rows, axis=0, return_inverse=True, return_counts=True)
    class_of = class_of.reshape(-1)
    dominators = _dominators(classes[:, :value.shape[1]],
                             classes[:, value.shape[1]:], counts, n_movable,
                             thorough)
    room = np.maximum(0, n_movable - dominators)
    rank = np.zeros(len(candidates), dtype=np.int64)
    by_class = np.argsort(class_of, kind='stable')
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    rank[by_class] = np.arange(len(candidates)) - np.repeat(starts, counts)
    kept = candidates[rank < room[class_of]]
    return np.union1d(kept, pinned_hosts).astype(np.int64)


def _values(free: np.ndarray, s_per_byte: np.ndarray,
            active_bytes: np.ndarray, allowed: np.ndarray,
            above: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What may only be larger, and what must be equal, per host."""
    n_hosts = len(free)
    loads = active_bytes.reshape(len(active_bytes), 2, n_hosts)
    value = np.hstack([free, -s_per_byte.T,
                       -loads.reshape(-1, n_hosts).T])
    # np.unique takes 30 ms for the columns of 5,000 hosts, this 2.
    seen: dict[bytes, int] = {}
    who = [seen.setdefault(column.tobytes(), len(seen))
           for column in np.packbits(allowed, axis=0).T]
    return value, np.column_stack([above.T, who]).astype(float)


def _dominators(value: np.ndarray, same: np.ndarray, counts: np.ndarray,
                enough: int, thorough: bool) -> np.ndarray:
    """Hosts of other classes at least as good; where ``enough``, or more.

    Most classes have enough among the few best. A class with enough is not
    missed as a dominator: those of its dominators that have not enough
    themselves are already enough for whatever it dominates.
    """
    def count(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
        better = dominance(value[rows], value[others])
        for column in same.T:
            if column.min() < column.max():
                better &= column[rows][:, None] == column[others][None, :]
        better &= rows[:, None] != others[None, :]
        result: np.ndarray = np.einsum('ij,j->i', better.view(np.uint8),
                                       counts[others])
        return result

    every = np.arange(len(value))
    ranks = np.argsort(np.argsort(value[:, :LEAD_COLUMNS], axis=0), axis=0)
    best = np.argsort(-ranks.min(axis=1), kind='stable')[:LEAD]
    result = count(every, best)
    if thorough:
        rest = np.flatnonzero(result < enough)
        result[rest] = count(rest, rest)
    return result


def dominance(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """better[i, j]: others[j] is nowhere less than rows[i]."""
    better = np.ones((len(rows), len(others)), dtype=bool)
    if not better.size:
        return better
    seen = set()
    for mine, theirs in zip(rows.T, others.T, strict=True):
        # The best ones are as good as any. Of an active coflow's load these
        # are nearly all, which leaves little to compare.
        lower = np.flatnonzero(theirs < mine.max())
        if not len(lower):
            continue
        # Who may be on a host is the same for many nodes.
        key = mine.tobytes(), theirs.tobytes()
        if key in seen:
            continue
        seen.add(key)
        if 2 * len(lower) > len(theirs):
            better &= theirs[None, :] >= mine[:, None]
        else:
            better[:, lower] &= theirs[lower][None, :] >= mine[:, None]
    return better
