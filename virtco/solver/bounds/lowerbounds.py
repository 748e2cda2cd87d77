# SPDX-License-Identifier: Apache-2.0

"""Lower bounds on t of the own coflows together, VirtCO Eq. (3).

The anchored-set bound: every node is somewhere in some set, so the largest
over nodes of the least time of a set around it is a lower bound. Hosts of
the same kind are one class and a class that another one dominates is
left out. It looks at the hose rows only. A pipe matrix without hose limits
still bounds what a host may send, by the sum of its pairs' rates.

Where there is a tree, the same is asked of its tiers: every node is in some
subtree, which is a host with the room of all its hosts (:func:`tiers`).
"""

import collections
from collections.abc import Iterator
import dataclasses
import math
from typing import Any

import numpy as np

from virtco import compiled
from virtco.solver import budget as budgets
from virtco.solver.bounds import anchored
from virtco.solver.model import instance as instances
from virtco.solver.model import reduction
from virtco.solver.model import traffic
from virtco.solver.model import uplinks

#: Search tree nodes per VM and host class in the first pass.
FIRST_LIMIT = 2000
LIMIT_GROWTH = 20
#: What running sums of bytes may be off by, relative to all bytes.
SUM_ROUNDING = 1e-14
#: Cells that are looked at to compare two hosts, and with how many others
#: most are.
COMPARE_CELLS = 75
COMPARED = 300
#: Calls of numpy to prepare the kernel, and for each class, with its cells
#: per node.
PREPARE_CALLS = 40
CLASS_CALLS = 8
CLASS_CELLS = 20
#: Guards the bound against rounding in the kernel's running sums.
ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True)
class Bound:
    """A proven lower bound.

    :ivar complete: False when a limit or the clock cut it short.
    :ivar order: nodes, those that need the most time first.
    :ivar sets: a cheap set around each node, bool of shape (n,).
    """

    lower_s: float
    complete: bool
    order: tuple[int, ...] = ()
    sets: tuple[np.ndarray, ...] = ()


def anchored_sets(inst: instances.Instance, upper_s: float,
                  budget: budgets.Budget, growths: int = 2) -> Bound:
    """Largest over nodes of the least time of a set around the node.

    :param upper_s: time of a known placement; the search for cheaper sets
        stops there.
    :param growths: how often the limit on the search tree grows.
    """
    if upper_s <= 0 or not any(len(arcs[0]) for arcs in inst.arcs):
        return Bound(0.0, True)
    compare = COMPARE_CELLS * inst.n_hosts * min(inst.n_hosts, COMPARED)
    if not budget.holds(compare):
        return Bound(0.0, False)
    budget.spend_numpy(0, compare)
    finite_s = upper_s if math.isfinite(upper_s) else 1e300
    arrays, graph = prepare(
        inst, undominated(inst, hose_s_per_byte(inst)), budget)
    classes = anchored.Classes(**compiled.views(**arrays))
    around = np.asarray(graph.best)[1:]
    lower_s = 0.0
    todo = by_traffic(inst).tolist()
    least = np.zeros(inst.n_nodes)
    sets = []
    limit = FIRST_LIMIT
    complete = False
    for _ in range(growths + 1):
        unfinished = []
        for node in todo:
            if not budget.in_time():
                unfinished = todo
                break
            least_s = least_around(graph, classes, node, finite_s, lower_s,
                                   limit, budget)
            if least_s < 0:
                unfinished.append(node)
                least[node] = lower_s
                continue
            least[node] = least_s
            sets.append(around == anchored.Status.INSIDE)
            lower_s = max(lower_s, least_s)
        todo = unfinished
        limit *= LIMIT_GROWTH
        complete = not todo or lower_s >= finite_s
        if complete or not budget.in_time():
            break
    order = np.argsort(-least, kind='stable')
    return Bound(_guard(lower_s, upper_s), complete, tuple(order.tolist()),
                 tuple(sets))


def least_around(graph: anchored.Sets, classes: anchored.Classes, node: int,
                 cutoff_s: float, enough_s: float, limit: int,
                 budget: budgets.Budget) -> float:
    """:func:`anchored.least_around` within a budget."""
    graph.work[0], graph.work[1] = 0.0, budget.units()
    least_s: float = anchored.least_around(graph, classes, node, cutoff_s,
                                           enough_s, limit)
    budget.spend(graph.work[0])
    return least_s


def in_tree(inst: instances.Instance, upper_s: float,
            budget: budgets.Budget, growths: int = 2) -> Bound:
    """The bound of the hosts, raised to that of any tier above them."""
    bound = anchored_sets(inst, upper_s, budget, growths)
    for tier in tiers(inst):
        above = anchored_sets(tier, upper_s, budget, growths)
        bound = dataclasses.replace(
            bound, lower_s=max(bound.lower_s, above.lower_s))
    return bound


def tiers(inst: instances.Instance) -> Iterator[instances.Instance]:
    """Per tier the instance whose hosts are its subtrees.

    Hosts that are in none stay. What fits on hosts fits there, and cuts no
    more, so its bounds hold. It knows the ports only that cut between them.
    """
    for row in inst.port_out[1:]:
        ports = np.where(row >= 0, row, inst.port_out[0])
        kept, part = np.unique(ports, return_inverse=True)
        m = len(kept)
        free = np.zeros((m, inst.free.shape[1]))
        np.add.at(free, part, np.maximum(inst.free, 0.0))
        allowed = np.zeros((inst.n_nodes, m), dtype=bool)
        np.logical_or.at(allowed.T, part, inst.allowed.T)
        behind = np.where(kept < inst.n_hosts, inst.n_hosts,
                          len(inst.uplinks))
        yield dataclasses.replace(
            inst, host_index=kept, free=free, allowed=allowed,
            fixed=np.where(inst.fixed >= 0, part[inst.fixed], -1),
            s_per_byte=inst.s_per_byte[np.concatenate(
                [kept, kept + behind])],
            uplinks=uplinks.Uplinks(), port_out=np.arange(m)[None],
            pipe=False)


def objective(inst: instances.Instance, budget: budgets.Budget) -> float:
    """Lower bound on the sum of prefix CCTs (ONLINE and JOINT).

    Active coflows keep their order among themselves, so each ends no
    earlier than among the active ones alone; an own coflow ends no earlier
    than alone on its best placement, nor than the active coflows that are
    before it wherever it goes.
    """
    prefix_s = inst.running_prefix_s
    result = float(prefix_s.sum())
    for arcs in inst.arcs:
        alone = dataclasses.replace(inst, arcs=(arcs,))
        own_s = in_tree(alone, math.inf, budget).lower_s
        before = prefix_s[inst.active_cct_s <= own_s]
        result += max(own_s, float(before.max(initial=0.0)))
    return result


def _guard(lower_s: float, upper_s: float) -> float:
    if lower_s >= upper_s * (1 - ROUNDING) or lower_s >= 1e300:
        return upper_s
    return lower_s * (1 - ROUNDING)


def by_traffic(inst: instances.Instance) -> np.ndarray:
    """Nodes by falling bytes sent and received."""
    total = np.zeros(inst.n_nodes)
    for src, dst, size_bytes in inst.arcs:
        np.add.at(total, src, size_bytes)
        np.add.at(total, dst, size_bytes)
    return np.argsort(-total, kind='stable')


def hose_s_per_byte(inst: instances.Instance) -> np.ndarray:
    """Egress and ingress time per byte of every host, shape (2, M).

    A port of no bandwidth is made slow instead, which only lowers a bound.
    """
    m = inst.n_hosts
    hose: np.ndarray = inst.s_per_byte[:2 * m].reshape(2, m).copy()
    if inst.pipe:
        with np.errstate(divide='ignore'):
            rates = 1.0 / inst.s_per_byte[inst.n_fabric:]
            rates = rates.reshape(m, m).copy()
            np.fill_diagonal(rates, 0.0)
            hose = np.maximum(hose, 1.0 / np.array([rates.sum(axis=1),
                                                    rates.sum(axis=0)]))
    usual = hose[np.isfinite(hose)]
    worst = float(usual.max()) if usual.size and usual.max() > 0 else 1.0
    hose = np.minimum(hose, worst * instances.ZERO_RATE_PENALTY)
    return hose


def undominated(inst: instances.Instance, hose: np.ndarray) -> list[int]:
    """One host of each class that is not dominated, pinned ones always."""
    pinned = set(inst.fixed[inst.fixed >= 0].tolist())
    rows = np.hstack([inst.free, -hose.T, inst.allowed.T.astype(float)])
    plain = np.array([m for m in range(inst.n_hosts) if m not in pinned],
                     dtype=np.int64)
    if not len(plain):
        return sorted(pinned)
    kinds, first = np.unique(rows[plain], axis=0, return_index=True)
    # Kinds differ, so that only the kind itself is at least it and equal.
    best = np.flatnonzero(
        reduction.dominance(kinds, kinds).sum(axis=1) == 1)
    return sorted(pinned) + [int(plain[first[i]]) for i in best]


def prepare(inst: instances.Instance, hosts: list[int],
            budget: budgets.Budget
            ) -> tuple[dict[str, np.ndarray], anchored.Sets]:
    """Fields of Classes, one for each of the given hosts, and the traffic."""
    n, n_resources = inst.demand.shape
    budget.spend_numpy(PREPARE_CALLS + CLASS_CALLS * len(hosts),
                       n * (n + CLASS_CELLS * len(hosts)))
    hose = hose_s_per_byte(inst)
    start, node, out, into = adjacency(inst)
    dense = traffic.one_way(inst)
    free = inst.room
    stacks = collections.defaultdict[str, list[Any]](list)
    shared: dict[bytes, tuple[np.ndarray, dict[str, Any]]] = {}
    for host in hosts:
        status = np.where(inst.allowed[:, host], anchored.Status.UNDECIDED,
                          anchored.Status.OUTSIDE)
        status[inst.fixed == host] = anchored.Status.INSIDE
        # Most hosts have their status in common with others.
        key = status.tobytes()
        if key not in shared:
            shared[key] = (
                inst.demand[status == anchored.Status.UNDECIDED].sum(axis=0),
                _traffic_of(status, dense))
        wanted, rows = shared[key]
        # The resource whose knapsack says most.
        knapsack = int(np.argmax(wanted / np.maximum(free[host], 1e-300)))
        stacks['s_per_byte'].append(hose[:, host])
        stacks['weight'].append(inst.demand[:, knapsack])
        stacks['status'].append(status)
        stacks['room'].append(np.append(free[host], free[host, knapsack]))
        for name, row in rows.items():
            stacks[name].append(row)
    stacked = {name: np.concatenate([np.asarray(row) for row in values])
               for name, values in stacks.items()}
    stacked['use'] = np.arange(len(hosts))
    return stacked, _sets(n, n_resources, start, node, out, into,
                          inst.demand)


def _traffic_of(status: np.ndarray, dense: np.ndarray) -> dict[str, Any]:
    """Fields of Classes that follow from the nodes' status."""
    inside = status == anchored.Status.INSIDE
    outside = status == anchored.Status.OUTSIDE
    undecided = status == anchored.Status.UNDECIDED
    from_set = dense[inside].sum(axis=0)
    to_set = dense[:, inside].sum(axis=1)
    return {
        'from_set': from_set, 'to_set': to_set,
        'from_outside': dense[outside].sum(axis=0),
        'to_outside': dense[:, outside].sum(axis=1),
        'sums': [from_set[outside].sum(), to_set[outside].sum(),
                 from_set[undecided].sum(), to_set[undecided].sum(),
                 SUM_ROUNDING * dense.sum()]}


def adjacency(inst: instances.Instance) -> tuple[np.ndarray, ...]:
    """CSR rows of (neighbour, bytes out, bytes in), coflows together."""
    n = inst.n_nodes
    dense = traffic.one_way(inst)
    rows, columns = np.nonzero((dense + dense.T) > 0)
    start = np.searchsorted(rows, np.arange(n + 1)).astype(np.int64)
    return (start, columns.astype(np.int64), dense[rows, columns],
            dense[columns, rows])


def _sets(n: int, n_resources: int, start: np.ndarray, node: np.ndarray,
          out: np.ndarray, into: np.ndarray, demand: np.ndarray
          ) -> anchored.Sets:
    def ints() -> np.ndarray:
        return np.zeros(n + 1, dtype=np.int64)

    return anchored.Sets(**compiled.views(
        n=n, n_resources=n_resources, adj_start=start, adj_node=node,
        adj_out=out, adj_in=into, demand=demand.ravel().copy(),
        s_per_byte=np.zeros(2), weight=np.zeros(n), status=ints(),
        room=np.zeros(n_resources + 1), sums=np.zeros(5),
        from_set=np.zeros(n), to_set=np.zeros(n), from_outside=np.zeros(n),
        to_outside=np.zeros(n), stack_node=ints(), stack_phase=ints(),
        ratio=np.zeros(n), item=ints(), best=ints(),
        work=np.zeros(2)))
