# SPDX-License-Identifier: Apache-2.0

"""Wishes about switches as arrays: VMs below one, VMs spread over many."""

import dataclasses
import math

import numpy as np

from virtco.model import snapshot


@dataclasses.dataclass(frozen=True)
class Shares:
    """Shares that switches may have of the VMs that are spread; K spreads.

    :ivar demand: members in every node, shape (n, K).
    :ivar free: room that the switch above a host may still have, shape (M, K).
    :ivar switch: above every host, -1 for none, shape (K, M).
    """

    demand: np.ndarray
    free: np.ndarray
    switch: np.ndarray


@dataclasses.dataclass(frozen=True)
class Together:
    """Movable nodes that have to be below one switch.

    :ivar nodes: bool of shape (n,).
    :ivar switch: above every host, -1 for none, shape (M,).
    """

    nodes: np.ndarray
    switch: np.ndarray

    def holds(self, assigns: np.ndarray) -> np.ndarray:
        """Return which of N assignments, (N, n), keep the wish."""
        found = self.switch[assigns[:, self.nodes]]
        kept: np.ndarray = ((found >= 0) & (found == found[:, :1])).all(
            axis=1)
        return kept


def above(problem: snapshot.PlacementProblem, level: str) -> np.ndarray:
    """Find the number of each host's switch of a level, -1 for none."""
    index = {one.name: i for i, one in enumerate(problem.tree.subtrees)
             if one.level == level}
    number = {leaf: next((index[one.name] for one in chain
                          if one.name in index), -1)
              for leaf, chain in problem.tree.chains().items()}
    leaf_of = problem.tree.leaf_of
    return np.array([number.get(leaf_of.get(host.name, ''), -1)
                     for host in problem.hosts], dtype=np.int64)


def together(problem: snapshot.PlacementProblem, node_of_vm: np.ndarray,
             fixed: np.ndarray, allowed: np.ndarray) -> tuple[Together, ...]:
    """List the wishes that leave a choice of switches.

    Closes hosts that are out of the question in ``allowed``: those below no
    switch of the level and, where members are pinned, all but those below
    the switch that has most of these; of as many, the last in the tree.
    """
    result = []
    for wish in problem.within:
        switch = above(problem, wish.level)
        vms = np.array(wish.members, dtype=np.int64)
        pinned = np.array([problem.vms[vm].pinned is not None
                           for vm in wish.members], dtype=bool)
        # A VM may be tied to a pinned one by an affinity group.
        new = np.unique(node_of_vm[vms[~pinned]])
        pins = switch[fixed[node_of_vm[vms[pinned]]]]
        if not (pins >= 0).any():
            pins = switch[fixed[new[fixed[new] >= 0]]]
        pins = pins[pins >= 0]
        if len(pins):
            counts = np.bincount(pins)
            home = np.flatnonzero(counts == counts.max())[-1]
            allowed[new] &= switch == home
        else:
            allowed[new] &= switch >= 0
            nodes = np.zeros(len(fixed), dtype=bool)
            nodes[new] = True
            if len(new):
                result.append(Together(nodes, switch))
    return tuple(result)


def _used(problem: snapshot.PlacementProblem, wish: snapshot.Spread
          ) -> np.ndarray:
    """Find hosts that a member may go to or is pinned to, bool of shape (M,).
    """
    vms = [problem.vms[vm] for vm in wish.members]
    names = {vm.pinned for vm in vms}
    for hosts in {vm.allowed for vm in vms if vm.pinned is None}:
        names |= (hosts if hosts is not None else {
            host.name for host in problem.hosts}) - problem.excluded_hosts
    return np.array([host.name in names for host in problem.hosts],
                    dtype=bool)


def shares(problem: snapshot.PlacementProblem, node_of_vm: np.ndarray,
           fixed: np.ndarray, allowed: np.ndarray) -> Shares:
    """Compute how many VMs every switch may still have, per spread.

    Closes in ``allowed`` the host of a pinned node that has more than its
    share by a member that is tied to a pinned VM, not pinned itself.
    """
    demands, frees, switches = [], [], []
    for wish in problem.spread:
        switch = above(problem, wish.level)
        members = node_of_vm[list(wish.members)]
        demand = np.bincount(members, minlength=len(fixed)).astype(float)
        pinned = fixed >= 0
        usable = np.unique(switch[_used(problem, wish) & (switch >= 0)])
        share = math.ceil(len(members) / max(1, len(usable))) + wish.skew
        taken = np.zeros(len(problem.tree.subtrees) + 1)
        pins = switch[fixed[pinned]]
        np.add.at(taken, pins[pins >= 0], demand[pinned][pins >= 0])
        free = np.where(switch >= 0, share - taken[switch], 0.0)
        tied = np.unique(members[[problem.vms[vm].pinned is None
                                  for vm in wish.members]])
        tied = tied[pinned[tied]]
        allowed[tied[free[fixed[tied]] < 0]] = False
        allowed[tied[switch[fixed[tied]] < 0]] = False
        demands.append(np.where(pinned, 0.0, demand))
        frees.append(free)
        switches.append(switch)
    k, n, m = len(problem.spread), len(fixed), len(problem.hosts)
    return Shares(np.array(demands).reshape(k, n).T,
                  np.array(frees).reshape(k, m).T,
                  np.array(switches, dtype=np.int64).reshape(k, m))
