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

"""Clusters of members from the rates of former casts (Orchestra §5.3). Pure.

The paper completes the matrix of block times by a factorization, projects it
by multidimensional scaling and fits Gaussians. Here the clustering is the one
that finds racks from measured pair rates (``virtco.measure.racks``); pairs
that never exchanged blocks take the best path over others that did.
"""

from collections.abc import Mapping

import numpy as np
from scipy.sparse import csgraph

from virtco.measure import racks


def infer(rates_bps: Mapping[tuple[str, str], float]) -> dict[str, str]:
    """A cluster for each member; empty where all are alike.

    :param rates_bps: from whom to whom, medians.
    """
    names = sorted({name for pair in rates_bps for name in pair})
    if len(names) < 3:
        return {}
    place = {name: number for number, name in enumerate(names)}
    rates = np.zeros((len(names), len(names)))
    for (src, dst), rate_bps in rates_bps.items():
        both = max(rate_bps, rates[place[src], place[dst]])
        rates[place[src], place[dst]] = rates[place[dst], place[src]] = both
    completed = _completed(rates)
    if not np.isfinite(completed).any():
        return {}
    found = racks.infer(completed[np.newaxis], max_levels=1)
    if not found.levels:
        return {}
    labels = found.levels[0]
    return {name: f'inferred {labels[place[name]]}' for name in names}


def _completed(rates: np.ndarray) -> np.ndarray:
    """The widest path's rate where a pair has none of its own.

    A maximum spanning tree has the widest path between each two.
    """
    cost = np.where(rates > 0, 1 / np.maximum(rates, 1e-30), 0)
    tree = csgraph.minimum_spanning_tree(cost).toarray()
    tree = np.maximum(tree, tree.T)
    widest = np.full(rates.shape, np.nan)
    for start in range(len(rates)):
        order, before = csgraph.breadth_first_order(tree, start)
        least = np.full(len(rates), np.nan)
        least[start] = np.inf
        for node in order[1:]:
            least[node] = min(least[before[node]],
                              1 / tree[before[node], node])
        widest[start] = least
    found = np.where(rates > 0, rates, widest)
    np.fill_diagonal(found, np.nan)
    return found
