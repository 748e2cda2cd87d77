# SPDX-License-Identifier: Apache-2.0

"""Uplinks of racks and of higher switches, as ports of the fabric. Pure.

A flow between two hosts passes, beside the hosts' own ports, the uplink of
every subtree that has one of them and not the other: upwards on the sender's
side, downwards on the receiver's.
"""

from collections.abc import Iterable
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


#: Uplinks of hosts on one switch that limits nothing.
NONE = Uplinks(np.zeros((0, 0), np.int64), np.zeros(0))


def of(tree: cluster.Tree, hosts: Sequence[str], egress_bps: np.ndarray,
       ingress_bps: np.ndarray) -> Uplinks:
    """Return the uplinks that may limit these hosts.

    One that carries all that its hosts can send and receive is left out.

    :param egress_bps: rate out of each host, shape (H,).
    """
    chains = tree.chains()
    found = limiting(chains, tree.leaf_of, zip(
        hosts, egress_bps.tolist(), ingress_bps.tolist(), strict=True))
    if not found:
        return NONE
    names = [one.name for one in tree.subtrees if one.name in found]
    return Uplinks(above([chains.get(tree.leaf_of.get(host, ''), ())
                          for host in hosts], names),
                   np.array([found[name] for name in names]).T.ravel())


def limiting(chains: Mapping[str, tuple[cluster.Subtree, ...]],
             leaf_of: Mapping[str, str],
             rates_bps: Iterable[tuple[str, float, float]]
             ) -> dict[str, tuple[float, float]]:
    """Return the rates of uplinks that can be slower than all ports below.

    :param chains: chains of the tree.
    :param leaf_of: subtree right above each host.
    :param rates_bps: hosts with their rates out and in.
    :returns: subtree -> rates out and in.
    """
    found = {}
    below = {name: [0.0, 0.0] for name in chains}
    for host, out_bps, in_bps in rates_bps:
        if host in leaf_of:
            below[leaf_of[host]][0] += out_bps
            below[leaf_of[host]][1] += in_bps
    # Children before their parents.
    for name, chain in sorted(chains.items(), key=lambda item: -len(item[1])):
        one, (out_bps, in_bps) = chain[-1], below[name]
        rates = (min(out_bps, one.uplink_out_bps),
                 min(in_bps, one.uplink_in_bps))
        if rates != (out_bps, in_bps):
            found[name] = rates
        if one.parent is not None:
            below[one.parent][0] += rates[0]
            below[one.parent][1] += rates[1]
    return found


def above(chain_of: Sequence[Sequence[cluster.Subtree]],
          names: Sequence[str]) -> np.ndarray:
    """Return the numbers of the named subtrees in each chain, shape (H, D).

    A subtree has one column in all chains.
    """
    number = {name: i for i, name in enumerate(names)}
    kept = [[number[one.name] for one in chain if one.name in number]
            for chain in chain_of]
    result = np.full((len(kept), max(map(len, kept))), -1, np.int64)
    for row, subtrees in zip(result, kept):
        row[:len(subtrees)] = subtrees
    return result
