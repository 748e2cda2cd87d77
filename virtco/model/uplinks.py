# SPDX-License-Identifier: Apache-2.0

"""Uplinks of racks and of higher switches, as ports of the fabric. Pure.

A flow between two hosts passes, beside the hosts' own ports, the uplink of
every subtree that has one of them and not the other: upwards on the sender's
side, downwards on the receiver's.
"""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from virtco.model import cluster


class Uplinks(NamedTuple):
    """G subtrees above H hosts.

    :ivar above: the subtree of each host at each depth from the core
        downwards, -1 for none, shape (H, D).
    :ivar cap_bps: rate of each uplink towards the core, then of each from
        it, shape (2 G,).
    """

    above: np.ndarray
    cap_bps: np.ndarray

    def passed(self, src: np.ndarray, dst: np.ndarray
               ) -> tuple[np.ndarray, np.ndarray]:
        """Return the uplinks that each pair of hosts passes.

        :param src: host of each flow, shape (F,).
        :returns: (start of each flow's among the second array, shape (F+1,);
            indices in cap_bps).
        """
        n_flows = len(src)
        if not n_flows or not len(self.cap_bps):
            return np.zeros(n_flows + 1, np.int64), np.zeros(0, np.int64)
        up, down = self.above[src], self.above[dst]
        differs = up != down
        found = np.concatenate((
            np.where(differs, up, -1),
            np.where(differs & (down >= 0), down + len(self.cap_bps) // 2,
                     -1)), axis=1)
        passes = found >= 0
        start = np.zeros(n_flows + 1, np.int64)
        np.cumsum(passes.sum(axis=1), out=start[1:])
        return start, found[passes]


#: Of hosts on one switch that limits nothing.
NONE = Uplinks(np.zeros((0, 0), np.int64), np.zeros(0))


def of(tree: cluster.Tree, hosts: Sequence[str], egress_bps: np.ndarray,
       ingress_bps: np.ndarray) -> Uplinks:
    """Return the uplinks that may limit these hosts.

    One that carries all that its hosts can send and receive is left out.

    :param egress_bps: of each host, shape (H,).
    """
    chains = tree.chains()
    chain_of = [chains[leaf] if (leaf := tree.leaf_of.get(host)) is not None
                else () for host in hosts]
    below = {one.name: [0.0, 0.0] for one in tree.subtrees}
    for chain, out_bps, in_bps in zip(chain_of, egress_bps.tolist(),
                                      ingress_bps.tolist(), strict=True):
        for one in chain:
            below[one.name][0] += out_bps
            below[one.name][1] += in_bps
    limiting = [one for one in tree.subtrees
                if one.uplink_out_bps < below[one.name][0]
                or one.uplink_in_bps < below[one.name][1]]
    if not limiting:
        return NONE
    number = {one.name: i for i, one in enumerate(limiting)}
    return Uplinks(_above(chain_of, number), np.array(
        [min(one.uplink_out_bps, below[one.name][0]) for one in limiting]
        + [min(one.uplink_in_bps, below[one.name][1]) for one in limiting]))


def _above(chain_of: Sequence[Sequence[cluster.Subtree]],
           number: Mapping[str, int]) -> np.ndarray:
    """Return the limiting subtrees of each host, shape (H, D); a subtree has
    one column for all its hosts.
    """
    kept = [[number[one.name] for one in chain if one.name in number]
            for chain in chain_of]
    above = np.full((len(kept), max(map(len, kept))), -1, np.int64)
    for host, subtrees in enumerate(kept):
        above[host, :len(subtrees)] = subtrees
    return above
