# SPDX-License-Identifier: Apache-2.0

"""Sets of nodes that one host can hold, found and kept by class.

A *column* is a host class, the movable nodes that share a host of it, and the
bytes that such a host then sends and receives (VirtCO Eqs. 1 and 2). How many
it may is the caller's choice: *limits* of shape (C, 2) are 1 / bytes, so that
a column is within them when bytes * limits is at most 1. See
:mod:`virtco.solver.partition.setpartition` for what they are for.
"""

import dataclasses
import types

import numpy as np

from virtco.solver import budget as budgets
from virtco.solver.bounds import lowerbounds
from virtco.solver.bounds import sets_kernel
from virtco.solver.model import instance as instances

#: Leniency of the kernel towards sets, relative to each row's right side.
LENIENCY = 1e-9
#: The same, when columns are chosen.
CHOSEN = 2 * LENIENCY
#: Units of work of a look at a tree node, per node of the graph, and most of
#: a pricing's: nobody can stop it.
LOOK_UNITS = 50.0
MOST_UNITS = 75e6
#: Calls of numpy of a pricing apart from its tree, and to add a set.
PRICE_CALLS = 25
ADD_CALLS = 30


@dataclasses.dataclass(frozen=True)
class HostClass:
    """Hosts that are alike; a host with pinned nodes is one of its own.

    :ivar pinned: nodes that are there whatever is added, shape (n,).
    :ivar allowed: movable nodes that may be there, shape (n,).
    :ivar free: capacity left, with the usual slack, shape (R,).
    """

    hosts: tuple[int, ...]
    pinned: np.ndarray
    allowed: np.ndarray
    free: np.ndarray

    @property
    def is_terminal(self) -> bool:
        """Whether nodes are pinned here; the class is one host then."""
        return bool(self.pinned.any())


class Pool:
    """The columns found so far, and the search for more.

    :ivar classes: classes of hosts, C of them.
    :ivar ports: out and in of every class, shape (C, 2).
    :ivar members: movable nodes of every column, shape (K, n).
    :ivar of_class: class of every column, shape (K,).
    """

    def __init__(self, inst: instances.Instance,
                 code: types.ModuleType = sets_kernel):
        """Find no columns yet.

        :param code: the kernel, another one for comparison.
        """
        self.inst = inst
        self.classes = _classes(inst)
        self.ports = np.array([[k.hosts[0], inst.n_hosts + k.hosts[0]]
                               for k in self.classes])
        self._movable = inst.fixed < 0
        self._dense = inst.sent
        self.members = np.zeros((0, inst.n_nodes), dtype=bool)
        self.of_class = np.zeros(0, dtype=np.int64)
        self._cut_bytes = np.zeros((0, 2))
        #: Set -> the classes it was added to.
        self._known: dict[bytes, np.ndarray] = {}
        self._terminals = np.flatnonzero([k.is_terminal
                                          for k in self.classes])
        self._free = np.array([k.free for k in self.classes])
        self._banned = ~np.array([k.allowed for k in self.classes])
        self._work = lowerbounds.prepare(
            inst, [k.hosts[0] for k in self.classes], budgets.unlimited(),
            code)
        self._price = code.most_valuable
        out, into = _least_cuts(inst, self.classes, self._dense)
        self._work.arrays['least_out'][:] = out
        self._work.arrays['least_in'][:] = into

    def shares(self, limits: np.ndarray) -> np.ndarray:
        """Divide the bytes of every column by its limits, shape (K, 2)."""
        result: np.ndarray = self._cut_bytes * limits[self.of_class]
        return result

    def add(self, members: np.ndarray, limits: np.ndarray,
            classes: np.ndarray | None = None) -> int:
        """Add a set to the classes that hold it; how many were new.

        :param members: movable nodes, bool of shape (n,).
        :param classes: the ones to look at, bool of shape (C,).
        """
        demand = self.inst.demand[members].sum(axis=0)
        holds = ((demand <= self._free) | (demand <= 0)).all(axis=1)
        holds &= ~self._banned[:, members].any(axis=1)
        if classes is not None:
            holds &= classes
        cut_bytes = np.tile(self._cut(members), (len(self.classes), 1))
        for c in self._terminals[holds[self._terminals]]:
            cut_bytes[c] = self._cut(members | self.classes[c].pinned)
        holds &= (cut_bytes * limits <= 1 + CHOSEN).all(axis=1)
        known = self._known.setdefault(members.tobytes(),
                                       np.zeros(len(holds), dtype=bool))
        new = np.flatnonzero(holds & ~known)
        if len(new):
            known[new] = True
            self.members = np.vstack([
                self.members, np.tile(members, (len(new), 1))])
            self.of_class = np.append(self.of_class, new)
            self._cut_bytes = np.vstack([self._cut_bytes, cut_bytes[new]])
        return len(new)

    def add_placement(self, assign: np.ndarray, limits: np.ndarray,
                      budget: budgets.Budget) -> None:
        """Add all sets of a placement, wherever they would do."""
        for host in np.unique(assign[self._movable]):
            if not budget.in_time():
                return
            budget.spend_numpy(ADD_CALLS)
            self.add((assign == host) & self._movable, limits)

    def _cut(self, inside: np.ndarray) -> np.ndarray:
        """Sum up the bytes that leave and enter a set."""
        sent = self._dense[inside].sum(axis=0)
        received = self._dense[:, inside].sum(axis=1)
        return np.array([sent[~inside].sum(), received[~inside].sum()])

    def price(self, c: int, limits: np.ndarray, value: np.ndarray,
              cutoff: float, limit: int, placed: np.ndarray,
              budget: budgets.Budget) -> tuple[float, list[np.ndarray]]:
        """Bound a set's value in a class from above; return sets worth more.

        :param value: value of each node.
        :param cutoff: only sets worth more are looked for.
        :param limit: nodes of the search tree.
        :param placed: nodes that no set may have, bool of shape (n,).
        """
        arrays = self._work.arrays
        arrays['unit'][:] = limits.ravel()
        arrays['value'][:] = value
        arrays['placed'][:] = placed
        look_units = LOOK_UNITS * self.inst.n_nodes
        upper = self._price(
            self._work.sets, self._work.classes, c, 1 + LENIENCY, cutoff,
            int(min(limit, MOST_UNITS / look_units,
                    budget.units() / look_units)))
        n_found, visited = arrays['counts'].tolist()
        budget.spend(look_units * visited)
        found = arrays['found'].reshape(-1, self.inst.n_nodes)[:n_found] > 0
        budget.spend_numpy(PRICE_CALLS + ADD_CALLS * len(found))
        return upper, [members & self._movable for members in found]


def _classes(inst: instances.Instance) -> list[HostClass]:
    """Group hosts that no set of VMs can tell apart."""
    result = []
    for hosts in inst.alike(lowerbounds.hose_s_per_byte(inst)):
        host = hosts[0]
        result.append(HostClass(
            hosts=tuple(hosts), pinned=inst.fixed == host,
            allowed=inst.allowed[:, host] & (inst.fixed < 0),
            free=inst.room[host]))
    return result


def _least_cuts(inst: instances.Instance, kinds: list[HostClass],
                dense: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bound the bytes that nodes send and receive out of any set, (C * n,)."""
    known: dict[tuple[bytes, ...], tuple[np.ndarray, np.ndarray]] = {}
    order = [_by_density(matrix, inst.demand)
             for matrix in (dense, dense.T)]
    found = []
    for kind in kinds:
        key = (kind.free.tobytes(), kind.allowed.tobytes(),
               kind.pinned.tobytes())
        if key not in known:
            known[key] = (_least_cut(inst, dense, order[0], kind),
                          _least_cut(inst, dense.T, order[1], kind))
        found.append(known[key])
    out, into = np.array(found).reshape(-1, 2, inst.n_nodes).transpose(
        1, 0, 2)
    return out.ravel(), into.ravel()


def _by_density(matrix: np.ndarray, demand: np.ndarray) -> list[np.ndarray]:
    """Sort, per resource and node, the others by falling bytes per demand."""
    with np.errstate(divide='ignore', invalid='ignore'):
        return [np.argsort(-np.where(matrix > 0, matrix / demand[:, r], 0.0),
                           axis=1, kind='stable')
                for r in range(demand.shape[1])]


def _least_cut(inst: instances.Instance, matrix: np.ndarray,
               order: list[np.ndarray], kind: HostClass) -> np.ndarray:
    """Bound from below the bytes that each node sends out of any set.

    The rest it can send to the pinned nodes and to what fits beside it, at
    best the fractional knapsack of the room left.

    :param matrix: bytes from node to node, shape (n, n).
    """
    absorbed = np.full(inst.n_nodes, np.inf)
    for r, ranked in enumerate(order):
        size = inst.demand[ranked, r] * kind.allowed[ranked]
        gain = (np.take_along_axis(matrix, ranked, axis=1)
                * kind.allowed[ranked])
        left = (kind.free[r] - inst.demand[:, r])[:, None]
        before = np.cumsum(size, axis=1) - size
        part = np.where(size > 0, np.clip(
            (left - before) / np.where(size > 0, size, 1.0), 0.0, 1.0), 1.0)
        absorbed = np.minimum(absorbed, (gain * part).sum(axis=1))
    out: np.ndarray = (matrix.sum(axis=1)
                       - matrix[:, kind.pinned].sum(axis=1) - absorbed)
    out = np.maximum(out - lowerbounds.SUM_ROUNDING * matrix.sum(), 0.0)
    return out
