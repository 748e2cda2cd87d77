# SPDX-License-Identifier: Apache-2.0

"""Independent groups of one problem: they share no traffic, only hosts."""

import dataclasses

import numpy as np

from virtco.solver.model import instance as instances
from virtco.solver.model import loads as running_loads
from virtco.solver.model import objectives


@dataclasses.dataclass(frozen=True)
class Group:
    """Nodes that talk, and the coflows among them."""

    nodes: np.ndarray
    coflows: tuple[int, ...]


def split(inst: instances.Instance) -> list[Group]:
    """Split the nodes into weakly connected groups, without idle nodes."""
    root = np.arange(inst.n_nodes)
    for src, dst, _size in inst.arcs:
        if len(src):
            nodes = np.union1d(src, dst)
            merged = np.isin(root, root[nodes])
            root[merged] = root[nodes[0]]
    coflows: dict[int, list[int]] = {}
    for c, (src, _dst, _size) in enumerate(inst.arcs):
        if len(src):
            coflows.setdefault(int(root[src[0]]), []).append(c)
    return [Group(np.flatnonzero(root == r), tuple(cs))
            for r, cs in sorted(coflows.items())]


def restrict(inst: instances.Instance, part: Group, free: np.ndarray,
             placed: list[np.ndarray]) -> instances.Instance:
    """Make a group's instance, with the placed loads among the active."""
    row = np.zeros(inst.n_nodes, np.int64)
    row[part.nodes] = np.arange(len(part.nodes))
    arcs = tuple((row[inst.arcs[c][0]], row[inst.arcs[c][1]],
                  inst.arcs[c][2]) for c in part.coflows)
    loads = np.array(placed).reshape(-1, len(inst.s_per_byte))
    own_s = np.concatenate([inst.active_cct_s,
                            objectives.own_cct_s(inst, loads)])
    order = np.argsort(own_s, kind='stable')
    running = np.concatenate([[0], np.cumsum(order < len(inst.running))])
    return dataclasses.replace(
        inst, node_vms=tuple(inst.node_vms[j] for j in part.nodes),
        fixed=inst.fixed[part.nodes], demand=inst.demand[part.nodes],
        free=free, allowed=inst.allowed[part.nodes], together=(), arcs=arcs,
        running=inst.running.then(running_loads.of_dense(loads)).ordered(
            order),
        active_cct_s=own_s[order],
        floor_s=inst.floor_s[running])
