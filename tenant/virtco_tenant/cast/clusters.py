# SPDX-License-Identifier: Apache-2.0

"""Clusters of members from the rates of former casts (Orchestra §5.3). Pure.

As in the paper, members are placed by multidimensional scaling of a matrix of
rates and clustered. The paper completes the matrix first and fits Gaussians.
Here the model is that of a two-way layout: the logarithm of a rate is what its
sender and its receiver always add, and a step where both are in one cluster.
Pairs that exchanged nothing count for nothing. The number of clusters is the
one with the shortest description (BIC), 1 among them.
"""

from collections.abc import Mapping

import numpy as np
from numpy import typing as npt
from scipy.cluster import hierarchy

_Matrix = npt.NDArray[np.float64]
_Labels = npt.NDArray[np.int64]

MAX_CLUSTERS = 64
#: Differences of rates below are none (0.1 is a tenth).
LEAST_STEP = 0.1
#: Rates are never read more exactly than this.
_NOISE = 0.03
_ROUNDS = 20
#: Share of rates that were seen in both directions, below which what senders
#: add cannot be told from what receivers add.
_MUTUAL = 0.3


def infer(rates_bps: Mapping[tuple[str, str], float]) -> dict[str, str]:
    """A cluster for each member; empty where all are alike.

    :param rates_bps: from whom to whom, medians.
    """
    told = {pair: rate_bps for pair, rate_bps in rates_bps.items()
            if rate_bps > 0 and pair[0] != pair[1]}
    names = sorted({name for pair in told for name in pair})
    if len(names) < 3:
        return {}
    place = {name: number for number, name in enumerate(names)}
    logs = np.zeros((len(names), len(names)))
    seen = np.zeros(logs.shape, bool)
    for (src, dst), rate_bps in told.items():
        logs[place[src], place[dst]] = np.log(rate_bps)
        seen[place[src], place[dst]] = True
    if (seen & seen.T).sum() < _MUTUAL * len(told):
        # One direction stands for both.
        logs = np.where(seen, logs, logs.T)
        seen = seen | seen.T
    labels = _clustered(_centred(logs, seen), seen, len(told))
    if labels is None:
        return {}
    return {name: f'inferred {labels[place[name]]}' for name in names}


def _centred(values: _Matrix, seen: npt.NDArray[np.bool_]) -> _Matrix:
    """Without what each sender and each receiver always adds."""
    left = np.where(seen, values, 0.0)
    for _ in range(_ROUNDS):
        for axis in (0, 1):
            count = np.maximum(seen.sum(axis=axis, keepdims=True), 1)
            left -= np.where(
                seen, left.sum(axis=axis, keepdims=True) / count, 0.0)
    return left


def _clustered(left: _Matrix, seen: npt.NDArray[np.bool_], n_told: int
               ) -> _Labels | None:
    """The labels whose description is shortest; None for one cluster."""
    n_members = len(left)
    both = left + left.T
    count = np.maximum(seen.astype(float) + seen.T, 1.0)
    values, vectors = np.linalg.eigh(both / count)
    best, least = None, _cost(
        left, seen, np.zeros(n_members, np.int64), n_told)
    for n_clusters in range(2, min(n_members // 2, MAX_CLUSTERS) + 1):
        # So many clusters are that many points in one dimension less.
        placed = (vectors[:, 1 - n_clusters:]
                  * np.sqrt(np.maximum(values[1 - n_clusters:], 0)))
        labels = hierarchy.fcluster(hierarchy.ward(placed), n_clusters,
                                    'maxclust').astype(np.int64) - 1
        labels = _settled(both, seen, labels)
        cost = _cost(left, seen, labels, n_told)
        if cost < least:
            best, least = labels, cost
    return best


def _settled(both: _Matrix, seen: npt.NDArray[np.bool_], labels: _Labels
             ) -> _Labels:
    """Each goes where its rates are best, until none does."""
    count = seen.astype(float) + seen.T
    for _ in range(_ROUNDS):
        member = np.eye(labels.max() + 1)[labels]
        mean = both @ member / np.maximum(count @ member, 1.0)
        # Who was never seen with a cluster's members is not drawn to it.
        mean[count @ member == 0] = -np.inf
        new = mean.argmax(axis=1).astype(np.int64)
        if (new == labels).all():
            break
        labels = np.unique(new, return_inverse=True)[1].astype(np.int64)
    return labels


def _cost(left: _Matrix, seen: npt.NDArray[np.bool_], labels: _Labels,
          n_told: int) -> float:
    """BIC, with a label for each member; infinite where there is no step."""
    # What is left when each sender and each receiver has its mean.
    fitted = 2 * len(labels) - 1
    n_seen, n_free = (max(1, number - fitted)
                      for number in (int(seen.sum()), n_told))
    n_clusters = int(labels.max()) + 1
    rest = float((left ** 2).sum())
    bits = 0.0
    if n_clusters > 1:
        same = _centred((labels[:, None] == labels).astype(float), seen)
        weight = float((same ** 2).sum())
        step = float((same * left).sum()) / max(weight, 1e-12)
        if step < np.log1p(LEAST_STEP):
            return float('inf')
        rest -= step ** 2 * weight
        bits = len(labels) * np.log(n_clusters)
    return float(n_free * np.log(rest / n_seen + _NOISE ** 2)
                 + 2 * bits + (n_clusters > 1) * np.log(n_free))
