# SPDX-License-Identifier: Apache-2.0

"""The uplinks of a tree above the hosts, as arrays.

Host a's bytes for host b pass the uplinks of all subtrees that hold a and
not b, towards the core, and of all that hold b and not a, from it. Subtrees
are nested, so with a row per *tier* - subtrees at the same depth - these are
the tiers at which the two hosts differ.

An uplink that carries all that is below it can send never takes longer than
the slowest port below it. It is left out, exactly, and its children move up
a tier. So a fabric without oversubscription costs nothing.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import math

import numpy as np

from virtco.model import cluster
from virtco.model import snapshot
from virtco.model import uplinks
from virtco.solver.model import loads


@dataclasses.dataclass(frozen=True)
class Uplinks:
    """The uplinks that count: Q of them in L tiers.

    :ivar subtrees: theirs.
    :ivar leaf_of: host name -> its row in ``chains``.
    :ivar chains: the subtrees above a leaf, from the core down, -1 for none;
        shape (X, L). The last row is that of hosts below the core.
    """

    subtrees: tuple[cluster.Subtree, ...] = ()
    leaf_of: Mapping[str, int] = dataclasses.field(default_factory=dict)
    chains: np.ndarray = dataclasses.field(
        default_factory=lambda: np.full((1, 0), -1, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.subtrees)

    def above(self, names: Iterable[str]) -> np.ndarray:
        """Find the subtree of every host per tier, -1 for none; shape (L, M).
        """
        rows = [self.leaf_of.get(name, -1) for name in names]
        result: np.ndarray = self.chains[rows].T
        return result

    def running(self, active: Iterable[snapshot.ActiveCoflow]
                ) -> loads.Loads:
        """Compute the loads of running coflows: uplinks out, then in."""
        q = len(self)
        rows = []
        for coflow in active:
            between: dict[tuple[int, int], float] = {}
            for src, dst, size_bytes in loads.pairs_of(coflow):
                pair = self.leaf_of.get(src, -1), self.leaf_of.get(dst, -1)
                between[pair] = between.get(pair, 0.0) + size_bytes
            row = np.zeros(2 * q)
            for (a, b), size_bytes in between.items():
                up, down = self.chains[a], self.chains[b]
                apart = up != down
                row[up[apart & (up >= 0)]] += size_bytes
                row[q + down[apart & (down >= 0)]] += size_bytes
            rows.append(row)
        return loads.of_dense(np.array(rows).reshape(-1, 2 * q))


def of(problem: snapshot.PlacementProblem) -> Uplinks:
    """List the uplinks that can decide; none where only pairs have rates.

    Bytes that a running coflow moves at a host which is not among the
    problem's are seen on uplinks only, so uplinks above such a host count.
    """
    tree = problem.tree
    if not tree.subtrees or (problem.pair_rate_bps is not None
                             and not problem.hose_limits):
        return Uplinks()
    chains = tree.chains()
    limiting = uplinks.limiting(chains, tree.leaf_of, [
        *((host.name, host.egress_bps, host.ingress_bps)
          for host in problem.hosts),
        *((host, math.inf, math.inf) for host in _strangers(problem))])
    kept = tuple(one for one in tree.subtrees if one.name in limiting)
    row_of = {name: row for row, name in enumerate(chains)}
    return Uplinks(
        kept, {host: row_of[leaf] for host, leaf in tree.leaf_of.items()},
        uplinks.above([*chains.values(), ()], [one.name for one in kept]))


def _strangers(problem: snapshot.PlacementProblem) -> set[str]:
    """List hosts that run coflows but are only in the tree, not listed."""
    if not problem.active:
        return set()
    known = {host.name for host in problem.hosts}
    outside = problem.tree.leaf_of.keys() - known
    if not outside:
        return set()
    return outside & {name for active in problem.active
                      for name, _size in (*active.out_bytes,
                                          *active.in_bytes)}
