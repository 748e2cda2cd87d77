# SPDX-License-Identifier: Apache-2.0

"""Constructive placements: starts of the search.

Every function takes an :class:`~virtco.solver.model.instance.Instance` and
returns hosts per node, or None when its rule runs into a full cloud.
"""

from collections.abc import Callable
from collections.abc import Iterable
import random

import numpy as np

from virtco.solver import budget as budgets
from virtco.solver.model import instance as instances

#: Calls of numpy to merge two clusters, and to place a node by a rule, with
#: the cells that it looks at per host.
MERGE_CALLS = 15
PLACE_CALLS = 15
PLACE_CELLS = 10


def units(inst: instances.Instance) -> float:
    """Return the work of one placement by a rule, node by node."""
    return inst.n_nodes * (budgets.CALL_UNITS * PLACE_CALLS
                           + budgets.CELL_UNITS * PLACE_CELLS * inst.n_hosts)


def spend(inst: instances.Instance, budget: budgets.Budget) -> None:
    """Charge one placement by a rule."""
    budget.spend(units(inst))


class Filler:
    """A placement in the making; keeps the hard constraints."""

    def __init__(self, inst: instances.Instance):
        self.inst = inst
        self.assign = inst.fixed.copy()
        self.free = inst.room.copy()
        total = np.maximum(np.maximum(inst.free, 0.0).sum(axis=0), 1e-300)
        #: Scalar size: the sum of each resource's share of the cloud.
        self.size = (inst.demand / total).sum(axis=1)
        self.share = total

    def hosts_for(self, node: int) -> np.ndarray:
        """Find the hosts with room for the node, ascending."""
        ok = self.inst.allowed[node].copy()
        for r, need in enumerate(self.inst.demand[node]):
            if need > 0:
                ok &= self.free[:, r] >= need
        return np.flatnonzero(ok)

    def hosts_for_all(self, nodes: list[int]) -> np.ndarray:
        """Find the hosts with room for all nodes, ascending."""
        demand = self.inst.demand[nodes].sum(axis=0)
        return np.flatnonzero((demand <= self.free).all(axis=1)
                              & self.inst.allowed[nodes].all(axis=0))

    def put(self, node: int, host: int) -> None:
        """Place a node on a host, and take its room there."""
        self.assign[node] = host
        self.free = self.inst.left(self.free, np.array([host]),
                                   self.inst.demand[node])

    def left(self) -> np.ndarray:
        """Compute the scalar free capacity per host."""
        left: np.ndarray = (
            np.maximum(self.free, 0.0) / self.share).sum(axis=1)
        return left

    def done(self) -> np.ndarray | None:
        return self.assign if (self.assign >= 0).all() else None


def first_fit(inst: instances.Instance, order: Iterable[int],
              choose: Callable[[Filler, int, np.ndarray], int]
              ) -> np.ndarray | None:
    """Place nodes one by one; choose picks among the hosts with room."""
    filler = Filler(inst)
    for node in order:
        if filler.assign[node] >= 0:
            continue
        hosts = filler.hosts_for(node)
        if not len(hosts):
            return None
        filler.put(node, choose(filler, node, hosts))
    return filler.done()


def by_size(inst: instances.Instance) -> list[int]:
    """Sort the nodes by falling size, those with fewer hosts first."""
    size = Filler(inst).size
    width = inst.allowed.sum(axis=1)
    return sorted(range(inst.n_nodes), key=lambda j: (width[j], -size[j], j))


def best_fit(inst: instances.Instance) -> np.ndarray | None:
    """Place by best-fit decreasing: on the fullest host that has room."""
    return first_fit(inst, by_size(inst), fullest)


def fullest(filler: Filler, node: int, hosts: np.ndarray) -> int:
    """Choose the host with the least free capacity, the first on a tie."""
    return int(hosts[filler.left()[hosts].argmin()])


def spread(inst: instances.Instance, rng: random.Random
           ) -> np.ndarray | None:
    """Place without co-residence while hosts last, hosts in random order."""
    tie = np.array([rng.random() for _ in range(inst.n_hosts)])

    def choose(filler: Filler, node: int, hosts: np.ndarray) -> int:
        placed = filler.assign[filler.assign >= 0]
        crowd = np.bincount(placed, minlength=inst.n_hosts)[hosts]
        return int(hosts[np.lexsort((tie[hosts], crowd))[0]])
    order = sorted(range(inst.n_nodes),
                   key=lambda j: inst.allowed[j].sum())
    return first_fit(inst, order, choose)


def random_fit(inst: instances.Instance, rng: random.Random
               ) -> np.ndarray | None:
    """Place on any host that has room, all equally likely (Choreo section 6).
    """
    def choose(filler: Filler, node: int, hosts: np.ndarray) -> int:
        return int(hosts[rng.randrange(len(hosts))])
    order = list(range(inst.n_nodes))
    rng.shuffle(order)
    return first_fit(inst, order, choose)


def cluster(inst: instances.Instance, budget: budgets.Budget
            ) -> np.ndarray | None:
    """Merge along the heaviest traffic, then pack the clusters.

    The start of min-cut placement: pairs of clusters are merged by falling
    bytes between them while some host can still hold the union; clusters
    then go to hosts best-fit, largest first, and fall apart where they must.
    """
    bytes_between = inst.exchanged
    members = {j: [j] for j in inst.movable.tolist()}
    between = bytes_between.copy()
    terminals = np.flatnonzero(inst.fixed >= 0)
    between[terminals] = 0.0
    between[:, terminals] = 0.0
    demand, allowed = inst.demand.copy(), inst.allowed.copy()
    free = Filler(inst).free
    while len(members) > 1 and budget.in_time():
        budget.spend_numpy(MERGE_CALLS, inst.n_nodes ** 2 + inst.n_hosts)
        a, b = divmod(int(between.argmax()), inst.n_nodes)
        if between[a, b] <= 0:
            break
        joint, where = demand[a] + demand[b], allowed[a] & allowed[b]
        if not (where & (joint <= free).all(axis=1)).any():
            between[a, b] = between[b, a] = 0.0
            continue
        members[a] += members.pop(b)
        demand[a], allowed[a] = joint, where
        between[a] += between[b]
        between[:, a] = between[a]
        between[b] = between[:, b] = 0.0
        between[a, a] = 0.0
    return _place_clusters(inst, list(members.values()), bytes_between)


def _place_clusters(inst: instances.Instance, clusters: list[list[int]],
                    bytes_between: np.ndarray) -> np.ndarray | None:
    filler = Filler(inst)
    size = filler.size
    for nodes in sorted(clusters, key=lambda c: -size[c].sum()):
        hosts = filler.hosts_for_all(nodes)
        if len(hosts):
            host = _pulled(filler, nodes, hosts, bytes_between)
            for node in nodes:
                filler.put(node, host)
    return fill(filler, bytes_between)


def in_turn(inst: instances.Instance, order: Iterable[int]
            ) -> np.ndarray | None:
    """Place coflow after coflow, each on as few hosts as there is room.

    :param order: own coflows, the first of which has the choice.
    """
    filler, bytes_between = Filler(inst), inst.exchanged
    for coflow in order:
        src, dst, _ = inst.arcs[coflow]
        left = [node for node in np.union1d(src, dst).tolist()
                if filler.assign[node] < 0]
        while left:
            hosts, nodes = filler.hosts_for_all(left), left
            if len(hosts):
                host = _pulled(filler, nodes, hosts, bytes_between)
            else:
                host = int((filler.left() * inst.allowed[left].any(0)
                            ).argmax())
                nodes = _gathered(filler, left, host, bytes_between)
                if not nodes:
                    return None
            for node in nodes:
                filler.put(node, host)
            left = [node for node in left if node not in nodes]
    return fill(filler, bytes_between)


def _gathered(filler: Filler, nodes: list[int], host: int,
              bytes_between: np.ndarray) -> list[int]:
    """Choose nodes for a host, each time that with most bytes to the others.
    """
    found: list[int] = []
    free = filler.free[host].copy()
    left = [node for node in nodes if filler.inst.allowed[node, host]]
    while left:
        pull = bytes_between[left][:, found or nodes].sum(axis=1)
        node = left.pop(int(pull.argmax()))
        if (filler.inst.demand[node] <= free).all():
            free -= filler.inst.demand[node]
            found.append(node)
    return found


def fill(filler: Filler, bytes_between: np.ndarray) -> np.ndarray | None:
    """Place the remaining nodes, large first, where most traffic is."""
    left = np.flatnonzero(filler.assign < 0).tolist()
    for node in sorted(left, key=lambda j: (-filler.size[j], j)):
        hosts = filler.hosts_for(node)
        if not len(hosts):
            return None
        filler.put(node, _pulled(filler, [node], hosts, bytes_between))
    return filler.done()


def _pulled(filler: Filler, nodes: list[int], hosts: np.ndarray,
            bytes_between: np.ndarray) -> int:
    """Choose the host with most traffic to the nodes, the fullest on a tie."""
    pull = np.zeros(filler.inst.n_hosts)
    placed = np.flatnonzero(filler.assign >= 0)
    np.add.at(pull, filler.assign[placed],
              bytes_between[nodes][:, placed].sum(axis=0))
    return int(hosts[np.lexsort((filler.left()[hosts], -pull[hosts]))[0]])
