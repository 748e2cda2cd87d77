# SPDX-License-Identifier: Apache-2.0

"""Lower bounds on t of the own coflows together, VirtCO Eq. (3).

The anchored-set bound: every node is somewhere in some set, so the largest
over nodes of the least time of a set around it is a lower bound. Hosts of
the same kind are one class and a class that another one dominates is
left out. It looks at the hose rows only. A pipe matrix without hose limits
still bounds what a host may send, by the sum of its pairs' rates.
"""

import dataclasses
import math
import types

import numpy as np

from virtco import compiled
from virtco.solver import budget as budgets
from virtco.solver.bounds import sets_kernel
from virtco.solver.model import instance as instances
from virtco.solver.model import reduction

Status = sets_kernel.Status
#: Sets that one pricing can find; the last ones count.
KEPT = 8
#: Search tree nodes per VM and host class.
TREE_LIMIT = 2000
LIMIT_GROWTH = 20
#: Rounding error of running sums of bytes, relative to all bytes.
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
class Workspace:
    """The kernel's arrays by name, and its two structures over them."""

    arrays: dict[str, np.ndarray]
    sets: sets_kernel.Sets
    classes: sets_kernel.Classes


@dataclasses.dataclass(frozen=True)
class Bound:
    """A proven lower bound.

    :ivar sets: a cheap set around each node, bool of shape (n,).
    """

    lower_s: float
    sets: tuple[np.ndarray, ...] = ()


def anchored_sets(inst: instances.Instance, upper_s: float,
                  budget: budgets.Budget, growths: int = 2) -> Bound:
    """Bound t by the largest, over nodes, least time of a set around the node.

    :param upper_s: time of a known placement; the search for cheaper sets
        stops there.
    :param growths: how often the limit on the search tree grows.
    """
    compare = COMPARE_CELLS * inst.n_hosts * min(inst.n_hosts, COMPARED)
    if upper_s <= 0 or not inst.sent.any() or (
            not budget.holds(compare)):
        return Bound(0.0)
    budget.spend_numpy(0, compare)
    finite_s = upper_s if math.isfinite(upper_s) else 1e300
    work = prepare(inst, undominated(inst, hose_s_per_byte(inst)), budget)
    around = work.arrays['found'][:inst.n_nodes]
    lower_s, sets = 0.0, []
    todo, limit = by_traffic(inst).tolist(), TREE_LIMIT
    for _ in range(growths + 1):
        unfinished = []
        for node in todo:
            if not budget.in_time():
                unfinished = todo
                break
            least_s = least_around(work, node, finite_s, lower_s, limit,
                                   budget)
            if least_s < 0:
                unfinished.append(node)
                continue
            sets.append(around > 0)
            lower_s = max(lower_s, least_s)
        todo = unfinished
        limit *= LIMIT_GROWTH
    return Bound(_guard(lower_s, upper_s), tuple(sets))


def least_around(work: Workspace, node: int, cutoff_s: float,
                 enough_s: float, limit: int, budget: budgets.Budget
                 ) -> float:
    """Call :func:`sets_kernel.least_around` within a budget."""
    work.sets.work[0], work.sets.work[1] = 0.0, budget.units()
    least_s: float = sets_kernel.least_around(
        work.sets, work.classes, node, cutoff_s, enough_s, limit)
    budget.spend(work.sets.work[0])
    return least_s


def objective(inst: instances.Instance, budget: budgets.Budget) -> float:
    """Bound the sum of prefix CCTs (ONLINE and JOINT) from below, in s.

    Active coflows keep their order among themselves, so each ends no
    earlier than among the active ones alone; an own coflow ends no earlier
    than alone on its best placement, nor than the active coflows that are
    before it wherever it goes.
    """
    prefix_s = inst.running_prefix_s
    result = float(prefix_s.sum())
    for arcs in inst.arcs:
        alone = dataclasses.replace(inst, arcs=(arcs,))
        own_s = anchored_sets(alone, math.inf, budget).lower_s
        before = prefix_s[inst.active_cct_s <= own_s]
        result += max(own_s, float(before.max(initial=0.0)))
    return result


def _guard(lower_s: float, upper_s: float) -> float:
    if lower_s >= upper_s * (1 - ROUNDING) or lower_s >= 1e300:
        return upper_s
    return lower_s * (1 - ROUNDING)


def by_traffic(inst: instances.Instance) -> np.ndarray:
    """Sort the nodes by falling bytes sent and received."""
    return np.argsort(-inst.exchanged.sum(axis=1), kind='stable')


def hose_s_per_byte(inst: instances.Instance) -> np.ndarray:
    """Compute egress and ingress time per byte of every host, shape (2, M).
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
    return instances.finite(hose)


def undominated(inst: instances.Instance, hose: np.ndarray) -> list[int]:
    """List a host of each undominated class, and all hosts with pins."""
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
            budget: budgets.Budget, code: types.ModuleType = sets_kernel
            ) -> Workspace:
    """Set the kernel up for a class of each of the given hosts.

    Bytes are in units of time.

    :param code: the kernel, another one for comparison.
    """
    n, r = inst.demand.shape
    budget.spend_numpy(PREPARE_CALLS + CLASS_CALLS * len(hosts),
                       n * (n + CLASS_CELLS * len(hosts)))
    dense = inst.sent
    pinned = inst.fixed == np.array(hosts)[:, None]
    allowed = inst.allowed[:, hosts].T & (inst.fixed < 0)
    status = np.where(pinned, Status.INSIDE, np.where(
        allowed, Status.UNDECIDED, Status.OUTSIDE))
    # Most hosts have their status in common with others.
    shared: dict[bytes, dict[str, np.ndarray]] = {}
    rows = [shared.get(key := row.tobytes()) or shared.setdefault(
        key, _traffic_of(row, dense)) for row in status]
    demand = np.where(allowed[:, :, None], inst.demand / np.maximum(
        inst.room[hosts], 1e-300)[:, None, :], 0.0)
    classes = dict(
        demand=demand,
        knapsack=demand.sum(axis=1).argmax(axis=1),
        unit=hose_s_per_byte(inst)[:, hosts].T, status=status,
        least_out=np.zeros(pinned.shape), least_in=np.zeros(pinned.shape),
        **{name: np.array([row[name] for row in rows]) for name in rows[0]})
    stacked = {name: np.ascontiguousarray(rows).ravel()
               for name, rows in classes.items()}
    start, node, out, into = adjacency(dense)
    arrays = dict(
        adj_start=start, adj_node=node, adj_out=out, adj_in=into,
        total_out=dense.sum(axis=1), total_in=dense.sum(axis=0),
        placed=np.zeros(n, dtype=np.uint8), demand=np.zeros(n * r),
        **{name: np.zeros(n) for name in (
            'value', 'least_out', 'least_in', 'from_set', 'to_set',
            'from_outside', 'to_outside', 'ratio')},
        **{name: np.zeros(n, dtype=np.int64) for name in (
            'status', 'item', 'trail_node', 'trail_by')},
        unit=np.zeros(2), room=np.zeros(r + 2), slack=np.zeros(r + 2),
        multiplier=np.zeros((n + 2) * (r + 2)), bound=np.zeros(n + 1),
        sums=np.zeros(1), found=np.zeros(KEPT * n, dtype=np.int64),
        counts=np.zeros(2, dtype=np.int64), work=np.zeros(2))
    return Workspace(
        stacked | {name: arrays[name] for name in (
            'value', 'placed', 'found', 'counts')},
        code.Sets(**compiled.views(
            n=n, n_resources=r, rounding=float(SUM_ROUNDING * dense.sum()),
            **arrays)),
        code.Classes(**compiled.views(**stacked)))


def _traffic_of(status: np.ndarray, dense: np.ndarray
                ) -> dict[str, np.ndarray]:
    """Compute the fields of Classes that follow from the nodes' status."""
    inside, outside = status == Status.INSIDE, status == Status.OUTSIDE
    from_set, to_set = dense[inside].sum(axis=0), dense[:, inside].sum(axis=1)
    return {'from_set': from_set, 'to_set': to_set,
            'from_outside': dense[outside].sum(axis=0),
            'to_outside': dense[:, outside].sum(axis=1),
            'cut': np.array([from_set[~inside].sum(),
                             to_set[~inside].sum()])}


def adjacency(dense: np.ndarray) -> tuple[np.ndarray, ...]:
    """Build CSR rows of (neighbour, bytes out, bytes in) from bytes, (n, n).
    """
    rows, columns = np.nonzero((dense + dense.T) > 0)
    start = np.searchsorted(rows, np.arange(len(dense) + 1)).astype(np.int64)
    return (start, columns.astype(np.int64), dense[rows, columns],
            dense[columns, rows])
