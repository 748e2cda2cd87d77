# SPDX-License-Identifier: Apache-2.0

"""Racks of hosts, inferred from rates measured while all hosts send.

A rack whose uplink is oversubscribed gives pairs inside it more than pairs
that leave it, once several pairs send at the same time; pairs that leave a
pod get less again. So hosts are clustered by the rates of rounds in which
every host takes part (:func:`virtco.measure.rounds.disjoint_rounds`), each
round as one reading per pair, and the racks by the means over their hosts. In
a network without oversubscription no racks are found.
"""

import numpy as np
from numpy import typing as npt
from scipy.cluster import hierarchy
from scipy.spatial import distance

from virtco import exception

#: Pairs inside racks get at least this part of the best rate more.
LEAST_STEP = 0.1
#: Mean silhouette of racks in pods. In simulations pods at 1.5:1 or more have
#: 0.12 at least, racks of unequal size without pods 0.08 at most.
LEAST_SILHOUETTE = 0.1

Matrix = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]


def infer(readings_bps: npt.ArrayLike, *, max_levels: int = 3
          ) -> tuple[Labels, ...]:
    """Cluster the hosts, then the clusters.

    :param readings_bps: shape (n_repeats, n_hosts, n_hosts): rate of each
        pair of hosts in each repetition, NaN where there is none; each
        repetition should pair the rounds differently.
    :returns: by level, from the racks upwards, the cluster of each host,
        shape (n_hosts,); the whole network is not among them.
    :raises virtco.exception.Invalid: without any reading.
    """
    readings = np.asarray(readings_bps, np.float64)
    _, n_hosts, _ = readings.shape
    if n_hosts < 3:
        return ()
    found = _racks(distances(readings))
    levels: list[Labels] = []
    while found is not None and len(levels) < max_levels:
        levels.append(found)
        found = _above(found, _means(readings, found))
    return tuple(levels)


def distances(readings: Matrix) -> Matrix:
    """Compute how far below the best rate each pair is, in 0 … 1.

    Both directions and all repetitions count by their lower quartile: a pair
    across an uplink that happens to be idle once gets the full rate.

    :param readings: shape (n_repeats, n_hosts, n_hosts).
    """
    _, n_hosts, _ = readings.shape
    both = np.concatenate([readings, readings.transpose(0, 2, 1)])
    found = np.full((n_hosts, n_hosts), np.nan)
    seen = ~np.isnan(both).all(axis=0)
    np.fill_diagonal(seen, False)
    if not seen.any():
        raise exception.Invalid(field='readings', value=None,
                                limit='a rate for some pair of hosts')
    found[seen] = np.nanquantile(both[:, seen], 0.25, axis=0)
    # A slow host is slow towards all: its pairs are compared with its best.
    best = np.fmax.reduce(found, axis=1)
    with np.errstate(invalid='ignore'):
        apart: Matrix = 1 - found / np.minimum(best[:, None], best)
    apart = np.where(np.isfinite(apart), apart, 1.0)
    np.fill_diagonal(apart, 0.0)
    return apart


def _linkage(apart: Matrix) -> Matrix:
    tree: Matrix = hierarchy.linkage(
        distance.squareform(apart, checks=False), 'average')
    return tree


def _racks(apart: Matrix) -> Labels | None:
    """Cut the tree at its largest jump; None if none is large enough."""
    tree = _linkage(apart)
    jumps = np.diff(tree[:, 2])
    top = int(np.argmax(jumps))
    if jumps[top] < LEAST_STEP:
        return None
    return _labels(tree, float(tree[top, 2]))


def _labels(tree: Matrix, cut: float) -> Labels:
    labels: Labels = hierarchy.fcluster(tree, cut, 'distance') - 1
    return labels.astype(np.int64)


def _means(readings: Matrix, labels: Labels) -> Matrix:
    """Compute how far below the best rate each two clusters are.

    An uplink's share depends on who else sends in a round; the mean over all
    pairs of hosts and repetitions does not.
    """
    both = np.concatenate([readings, readings.transpose(0, 2, 1)])
    is_seen = np.isfinite(both)
    member = np.eye(labels.max() + 1)[labels]
    total = member.T @ np.where(is_seen, both, 0.0).sum(axis=0) @ member
    count = member.T @ is_seen.sum(axis=0) @ member
    with np.errstate(invalid='ignore'):
        apart = 1 - total / count / np.nanmax(readings)
    apart = np.where(count > 0, apart, 1.0)
    np.fill_diagonal(apart, 0.0)
    # The mean of equal rates may round to more than their largest.
    positive: Matrix = np.maximum(apart, 0.0)
    return positive


def _above(labels: Labels, apart: Matrix) -> Labels | None:
    """Cluster the clusters, per host; None if they form no level."""
    if len(apart) < 3:
        return None
    tree = _linkage(apart)
    heights = tree[:, 2]
    best, silhouette = None, LEAST_SILHOUETTE
    for cut in heights[:-1].tolist():
        found = _labels(tree, cut)
        if (value := _silhouette(apart, found)) > silhouette:
            best, silhouette = found, value
    return None if best is None else best[labels]


def _silhouette(apart: Matrix, labels: Labels) -> float:
    """Compute the mean silhouette, (b - a) / max(a, b).

    a is the mean distance inside the cluster, b that to the nearest other
    one; a cluster of one counts 0.
    """
    member = np.eye(labels.max() + 1)[labels]
    sizes = member.sum(axis=0)
    if len(sizes) < 2:
        return 0.0
    total = apart @ member
    own = sizes[labels]
    at = np.arange(len(labels))
    inside = total[at, labels] / np.maximum(own - 1, 1)
    mean = total / sizes
    mean[at, labels] = np.inf
    outside = mean.min(axis=1)
    most = np.maximum(inside, outside)
    values = np.where(own > 1, (outside - inside)
                      / np.maximum(most, 1e-12), 0.0)
    return float(values.mean())
