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
coflows, who may use them, rack), then whatever is put on m can be put on
one of them that is empty, and no load, bound or objective grows. Hosts with
pinned VMs are neither dropped nor counted.
"""

import numpy as np


def needed_hosts(free: np.ndarray, s_per_byte: np.ndarray,
                 active_bytes: np.ndarray, allowed: np.ndarray,
                 fixed: np.ndarray, rack_of: np.ndarray) -> np.ndarray:
    """Indices of the hosts to keep, rising.

    :param free: capacity left, shape (M, R).
    :param s_per_byte: egress and ingress, shape (2, M), less is better.
    :param active_bytes: loads of active coflows, shape (A, 2M).
    :param allowed: shape (n, M).
    :param fixed: host of every pinned node, -1 for the others.
    :param rack_of: rack of every host, -1 for none.
    """
    n_hosts = len(free)
    n_movable = int((fixed < 0).sum())
    pinned_hosts = np.unique(fixed[fixed >= 0])
    if n_hosts <= n_movable + len(pinned_hosts):
        return np.arange(n_hosts)
    value, same = _values(free, s_per_byte, active_bytes, allowed, rack_of)
    candidates = np.setdiff1d(np.arange(n_hosts), pinned_hosts)
    rows = np.hstack([value[candidates], same[candidates]])
    classes, class_of, counts = np.unique(
        rows, axis=0, return_inverse=True, return_counts=True)
    class_of = class_of.reshape(-1)
    better = _dominance(classes[:, :value.shape[1]],
                        classes[:, value.shape[1]:])
    dominators = better @ counts
    room = np.maximum(0, n_movable - dominators)
    rank = np.zeros(len(candidates), dtype=np.int64)
    by_class = np.argsort(class_of, kind='stable')
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    rank[by_class] = np.arange(len(candidates)) - np.repeat(starts, counts)
    kept = candidates[rank < room[class_of]]
    return np.union1d(kept, pinned_hosts).astype(np.int64)


def _values(free: np.ndarray, s_per_byte: np.ndarray,
            active_bytes: np.ndarray, allowed: np.ndarray,
            rack_of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What may only be larger, and what must be equal, per host."""
    n_hosts = len(free)
    loads = active_bytes.reshape(len(active_bytes), 2, n_hosts)
    value = np.hstack([free, -s_per_byte.T,
                       -loads.reshape(-1, n_hosts).T])
    _, who = np.unique(allowed, axis=1, return_inverse=True)
    return value, np.column_stack([rack_of, who.reshape(-1)]).astype(float)


def _dominance(value: np.ndarray, same: np.ndarray) -> np.ndarray:
    """better[i, j]: class j is another class, at least as good as i."""
    n = len(value)
    better = np.ones((n, n), dtype=bool)
    for column in value.T:
        # The best ones are as good as any. Of an active coflow's load these
        # are nearly all, which leaves little to compare.
        lower = np.flatnonzero(column < column.max())
        better[:, lower] &= column[lower][None, :] >= column[:, None]
    for column in range(same.shape[1]):
        better &= same[:, column][None, :] == same[:, column][:, None]
    np.fill_diagonal(better, False)
    return better
