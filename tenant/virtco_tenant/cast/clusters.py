# SPDX-License-Identifier: Apache-2.0

"""Clusters of members from the rates of former casts (Orchestra §5.3). Pure.

As in the paper, members are placed by multidimensional scaling of a matrix of
rates and clustered. The paper completes the matrix first and fits Gaussians.
Here the model is a two-way layout: the logarithm of a rate is the sum of a
term of its sender, a term of its receiver, and a step where both are in one
cluster. Pairs that exchanged nothing are ignored. The number of clusters, 1
or more, is the one with the least Bayesian information criterion (BIC).
"""

from collections.abc import Mapping

import numpy as np
from numpy import typing as npt
from scipy.cluster import hierarchy

_Matrix = npt.NDArray[np.float64]
_Labels = npt.NDArray[np.int64]

MAX_CLUSTERS = 64
#: Relative difference of rates from which it counts (0.1 is a tenth).
LEAST_STEP = 0.1
#: Least relative error of a rate.
_NOISE = 0.03
_ROUNDS = 20
#: Share of rates measured in both directions, below which the terms of senders
#: cannot be separated from those of receivers.
_MUTUAL = 0.3


def infer(rates_bps: Mapping[tuple[str, str], float]) -> dict[str, str]:
    """Infer the cluster of each member; empty for a single cluster.

    :param rates_bps: median rate by (sender, receiver).
    """
    told = {pair: rate_bps for pair, rate_bps in rates_bps.items()
            if rate_bps > 0 and pair[0] != pair[1]}
    names = sorted({name for pair in told for name in pair})
    if not names:
        return {}
    place = {name: number for number, name in enumerate(names)}
    logs = np.zeros((len(names), len(names)))
    seen = np.zeros(logs.shape, bool)
    for (src, dst), rate_bps in told.items():
        logs[place[src], place[dst]] = np.log(rate_bps)
        seen[place[src], place[dst]] = True
    if (seen & seen.T).sum() < _MUTUAL * len(told):
        # Few pairs were measured both ways: each direction stands for both.
        logs = np.where(seen, logs, logs.T)
        seen = seen | seen.T
    labels = _clustered(_centred(logs, seen), seen, len(told))
    if labels is None:
        return {}
    return {name: f'inferred {labels[place[name]]}' for name in names}


def _centred(values: _Matrix, seen: npt.NDArray[np.bool_]) -> _Matrix:
    """Subtract the means of senders and receivers from the seen values.

    :param values: shape (n_members, n_members), senders in rows.
    :param seen: whether a value was measured, same shape.
    :returns: residuals, 0 where nothing was measured.
    """
    left = np.where(seen, values, 0.0)
    for _ in range(_ROUNDS):
        for axis in (0, 1):
            count = np.maximum(seen.sum(axis=axis, keepdims=True), 1)
            left -= np.where(
                seen, left.sum(axis=axis, keepdims=True) / count, 0.0)
    return left


def _clustered(left: _Matrix, seen: npt.NDArray[np.bool_], n_told: int
               ) -> _Labels | None:
    """Return the labels with the least BIC; None for a single cluster.

    :param left: residuals of :func:`_centred`.
    :returns: cluster of each member, shape (n_members,).
    """
    n_members = len(left)
    both = left + left.T
    count = np.maximum(seen.astype(float) + seen.T, 1.0)
    values, vectors = np.linalg.eigh(both / count)
    best, least = None, _cost(
        left, seen, np.zeros(n_members, np.int64), n_told)
    for n_clusters in range(2, min(n_members // 2, MAX_CLUSTERS) + 1):
        # n clusters span n - 1 dimensions, so n - 1 eigenvectors are kept.
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
    """Move each member to the cluster of its best mean rate, repeatedly.

    It ends when no member moves, or after _ROUNDS rounds.

    :param both: sum of the residuals of both directions.
    """
    count = seen.astype(float) + seen.T
    for _ in range(_ROUNDS):
        member = np.eye(labels.max() + 1)[labels]
        mean = both @ member / np.maximum(count @ member, 1.0)
        # A member does not move to a cluster it has no measurement with.
        mean[count @ member == 0] = -np.inf
        new = mean.argmax(axis=1).astype(np.int64)
        if (new == labels).all():
            break
        labels = np.unique(new, return_inverse=True)[1].astype(np.int64)
    return labels


def _cost(left: _Matrix, seen: npt.NDArray[np.bool_], labels: _Labels,
          n_told: int) -> float:
    """Return the BIC of labels; infinite below LEAST_STEP between clusters.
    """
    # Parameters of the means of senders and receivers.
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
