# SPDX-License-Identifier: Apache-2.0

"""Constraints of a placement as arrays: capacities, pins, groups.

VMs that an affinity group ties together become one node; an anti-affinity
group becomes one more resource of which a host has ``max_per_host``.
"""

import numpy as np

from virtco import exception
from virtco.model import snapshot

#: Slack when capacities are compared, relative to the capacity.
CAPACITY_EPS = 1e-9


def merge_affinity(problem: snapshot.PlacementProblem
                   ) -> tuple[tuple[tuple[int, ...], ...], np.ndarray]:
    """Merge VMs that must share a host into nodes.

    :returns: VMs of each node, and the node of each VM, shape (n_vms,).
    """
    root = list(range(len(problem.vms)))

    def find(vm: int) -> int:
        while root[vm] != vm:
            vm = root[vm]
        return vm

    for group in problem.server_groups:
        if group.policy == snapshot.GroupPolicy.AFFINITY:
            for vm in group.members[1:]:
                root[find(vm)] = find(group.members[0])
    sets: dict[int, list[int]] = {}
    for vm in range(len(problem.vms)):
        sets.setdefault(find(vm), []).append(vm)
    node_vms = tuple(tuple(vms) for vms in sets.values())
    node_of_vm = np.zeros(len(problem.vms), dtype=np.int64)
    for node, vms in enumerate(node_vms):
        node_of_vm[list(vms)] = node
    return node_vms, node_of_vm


def pins(problem: snapshot.PlacementProblem, index: dict[str, int],
         node_vms: tuple[tuple[int, ...], ...]) -> np.ndarray:
    """Return the host that each node must have, -1: any; shape (n_nodes,).

    :raises virtco.exception.PlacementInfeasible: for two hosts.
    """
    fixed = np.full(len(node_vms), -1, dtype=np.int64)
    for node, vms in enumerate(node_vms):
        pins = {problem.vms[vm].pinned for vm in vms} - {None}
        if len(pins) > 1:
            raise exception.PlacementInfeasible(
                what=problem.vms[vms[0]].name,
                why='its affinity group is pinned to several hosts')
        for pin in pins:
            fixed[node] = index[str(pin)]
    return fixed


def allowed(problem: snapshot.PlacementProblem, index: dict[str, int],
            node_vms: tuple[tuple[int, ...], ...],
            fixed: np.ndarray) -> np.ndarray:
    """Tell which hosts each node may have, shape (n_nodes, n_hosts)."""
    allowed = np.ones((len(node_vms), len(index)), dtype=bool)
    masks: dict[frozenset[str], np.ndarray] = {}

    def mask(hosts: frozenset[str]) -> np.ndarray:
        if hosts not in masks:
            masks[hosts] = np.array([name in hosts for name in index],
                                    dtype=bool)
        return masks[hosts]

    included = ~mask(problem.excluded_hosts)

    affine: dict[int, frozenset[str]] = {}
    for group in problem.server_groups:
        if (group.policy == snapshot.GroupPolicy.AFFINITY
                and group.taken_hosts):
            affine.update({
                vm: affine.get(vm, group.taken_hosts) & group.taken_hosts
                for vm in group.members})
    for node, vms in enumerate(node_vms):
        for vm in vms:
            if problem.vms[vm].pinned is not None:
                continue
            allowed[node] &= included
            hosts = problem.vms[vm].allowed
            if hosts is not None:
                allowed[node] &= mask(hosts)
            if vm in affine:
                allowed[node] &= mask(affine[vm])
        if fixed[node] >= 0:
            pin_allowed = allowed[node, fixed[node]]
            allowed[node] = False
            allowed[node, fixed[node]] = pin_allowed
    return allowed


def capacities(problem: snapshot.PlacementProblem, index: dict[str, int],
               node_vms: tuple[tuple[int, ...], ...],
               node_of_vm: np.ndarray,
               fixed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Demand (n, R') and free (M, R'); pinned demand already taken off."""
    groups = [group for group in problem.server_groups
              if group.policy == snapshot.GroupPolicy.ANTI_AFFINITY]
    n_own = len(problem.resources)
    free = np.zeros((len(index), n_own + len(groups)))
    if problem.hosts:
        free[:, :n_own] = [host.free for host in problem.hosts]
    demand = np.zeros((len(node_vms), free.shape[1]))
    taken = np.zeros_like(free)
    for i, vm in enumerate(problem.vms):
        node = node_of_vm[i]
        if fixed[node] < 0:
            demand[node, :n_own] += vm.demand
        elif not (vm.pinned is not None and vm.counted):
            taken[fixed[node], :n_own] += vm.demand
    over = (taken > free * (1 + CAPACITY_EPS)) & (taken > 0)
    if over.any():
        host = problem.hosts[int(np.argwhere(over)[0][0])].name
        raise exception.PlacementInfeasible(
            what=f'the VMs pinned to {host}', why='they exceed its capacity')
    free -= taken
    for column, group in enumerate(groups, start=n_own):
        free[:, column] = group.max_per_host
        for taken_host in group.taken_hosts & index.keys():
            free[index[taken_host], column] -= 1
        for node in node_of_vm[list(group.members)]:
            if fixed[node] < 0:
                demand[node, column] += 1
            else:
                free[fixed[node], column] -= 1
        for member in group.members:
            place = fixed[node_of_vm[member]]
            if problem.vms[member].pinned is None and place >= 0 and (
                    free[place, column] < 0):
                raise exception.PlacementInfeasible(
                    what=problem.vms[member].name,
                    why='its anti-affinity group is full where its affinity '
                        'group runs')
    return demand, free


def fits_alone(demand: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Tell which nodes fit into which empty hosts.

    :param demand: demand of each node, shape (n_nodes, n_resources).
    :param free: free resources of each host, shape (n_hosts, n_resources).
    :returns: shape (n_nodes, n_hosts).
    """
    slack = CAPACITY_EPS * np.maximum(1.0, np.abs(free))
    fits = np.ones((len(demand), len(free)), dtype=bool)
    for r in range(demand.shape[1]):
        need = demand[:, r][:, None]
        fits &= (need <= (free + slack)[:, r]) | (need <= 0)
    return fits


def check_hostless(problem: snapshot.PlacementProblem,
                   node_vms: tuple[tuple[int, ...], ...],
                   allowed: np.ndarray) -> None:
    """Refuse a problem with a VM that may have no host.

    :raises virtco.exception.PlacementInfeasible:
    """
    hostless = np.flatnonzero(~allowed.any(axis=1))
    if len(hostless):
        raise exception.PlacementInfeasible(
            what=f'VM {problem.vms[node_vms[hostless[0]][0]].name}',
            why='no host that it may use has room for it')
