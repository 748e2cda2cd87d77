# SPDX-License-Identifier: Apache-2.0

"""A start made of cheapest sets: carve the group up host by host.

The bound's branch and bound also finds the set it is about. The node that
needs the most time goes first: its cheapest set among the nodes and hosts
that are left is placed, and so on. A target time keeps that lean: the first
set within it is taken, and it goes on the host that is least of a loss, the
tightest and slowest one on which the set still meets the target.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import random

import numpy as np

from virtco import compiled
from virtco.solver import budget as budgets
from virtco.solver.bounds import anchored
from virtco.solver.bounds import lowerbounds
from virtco.solver.model import instance as instances
from virtco.solver.model import reduction
from virtco.solver.model import traffic
from virtco.solver.starts import candidates

TREE_LIMIT = 400
#: Calls of numpy to place a set, and cells for each node and class.
SET_CALLS = 100
SET_CELLS = 3
#: The same to begin, and cells for each two kinds of hosts that are compared.
BEGIN_CALLS = 60
BEGIN_CELLS = 100


def carve(inst: instances.Instance, target_s: float,
          order: Sequence[int], budget: budgets.Budget
          ) -> tuple[np.ndarray | None, list[int]]:
    """Hosts per node, and the nodes whose set missed the target.

    None instead of hosts when the nodes left over do not fit, or when there
    was no time.

    :param order: nodes, those that need the most time first.
    """
    begin = BEGIN_CELLS * inst.n_hosts * min(inst.n_hosts,
                                             lowerbounds.COMPARED)
    if inst.pipe or not len(inst.movable) or not budget.holds(begin):
        return None, []
    carver = _Carver(inst, budget)
    missed = []
    for node in order:
        if carver.filler.assign[node] < 0:
            if not budget.in_time():
                return None, []
            time_s = carver.place_set_of(node, target_s)
            if time_s > target_s * (1 + 1e-9):
                missed.append(node)
    return (candidates.fill(carver.filler, traffic.both_ways(inst)),
            missed)


def squeaky_wheel(inst: instances.Instance, target_s: float,
                  order: Sequence[int], rounds: int,
                  rng: random.Random, budget: budgets.Budget
                  ) -> Iterator[np.ndarray]:
    """Carve again and again; nodes that missed the target move forward.

    Squeaky-wheel optimisation: blame adds up over the rounds, a little
    noise keeps two orders from alternating for ever.
    """
    blame = np.zeros(inst.n_nodes)
    for _ in range(rounds):
        assign, missed = carve(inst, target_s, order, budget)
        if assign is not None:
            yield assign
        if not missed:
            break
        blame[missed] += 1.0 + 0.5 * rng.random()
        order = sorted(order, key=lambda node: -blame[node])


class _Carver:
    def __init__(self, inst: instances.Instance, budget: budgets.Budget):
        self.inst = inst
        self.budget = budget
        self.filler = candidates.Filler(inst)
        self.hose = lowerbounds.hose_s_per_byte(inst)
        self.kinds, self.hosts = _kinds(inst, self.hose)
        self.terminals = np.isin(np.arange(inst.n_hosts),
                                 inst.fixed[inst.fixed >= 0])
        budget.spend_numpy(BEGIN_CALLS, BEGIN_CELLS * len(self.hosts)
                           * min(len(self.hosts), lowerbounds.COMPARED))
        self.kind_of = np.zeros(inst.n_hosts, dtype=np.int64)
        for kind, hosts in enumerate(self.hosts):
            self.kind_of[hosts] = kind
        #: [i, j]: kind j dominates kind i.
        self.better = reduction.dominance(self.kinds, self.kinds)
        np.fill_diagonal(self.better, False)
        first = [hosts[0] for hosts in self.hosts]
        self.arrays, self.graph = lowerbounds.prepare(inst, first, budget)
        self.best = np.asarray(self.graph.best)
        self.dense = traffic.one_way(inst)
        self._use()

    def place_set_of(self, node: int, target_s: float) -> float:
        """Time of the set that was placed, 0 if none was."""
        time_s = lowerbounds.least_around(
            self.graph, self.classes, node, 1e300, target_s, TREE_LIMIT,
            self.budget)
        self.budget.spend_numpy(
            SET_CALLS, SET_CELLS * self.inst.n_nodes * len(self.hosts))
        c = int(self.best[0])
        if c < 0:
            return 0.0
        inside = self.best[1:] == anchored.Status.INSIDE
        nodes = np.flatnonzero(inside & (self.inst.fixed < 0))
        host = self.hosts[c][-1]
        if not self.terminals[host]:
            host = self._least_loss(nodes, max(time_s, target_s), host)
        for j in nodes:
            self.filler.put(int(j), host)
        self._rule_out(nodes)
        kind = self.kind_of[host]
        self.hosts[kind].remove(host)
        if not self.hosts[kind]:
            self._use()
        return float(time_s)

    def _least_loss(self, nodes: np.ndarray, time_s: float,
                    host: int) -> int:
        """Empty host on which the set meets time_s with least to spare."""
        inside = np.zeros(self.inst.n_nodes, dtype=bool)
        inside[nodes] = True
        out = self.dense[inside][:, ~inside].sum()
        into = self.dense[~inside][:, inside].sum()
        hosts = np.array([h for kind in self.hosts for h in kind[-1:]])
        demand = self.inst.demand[nodes].sum(axis=0)
        slack = time_s * (1 + 1e-9)
        ok = ((self.filler.free[hosts] >= demand) | (demand <= 0)).all(axis=1)
        ok &= self.inst.allowed[nodes][:, hosts].all(axis=0)
        ok &= ~self.terminals[hosts]
        ok &= (out * self.hose[0, hosts] <= slack) & (
            into * self.hose[1, hosts] <= slack)
        if not ok.any():
            return host
        hosts = hosts[ok]
        left = self.filler.left()[hosts]
        speed = -self.hose[:, hosts].sum(axis=0)
        return int(hosts[np.lexsort((hosts, speed, left))[0]])

    def _use(self) -> None:
        """Classes with hosts left that no other such class dominates."""
        left = np.array([bool(hosts) for hosts in self.hosts])
        dominated = (self.better & left[None, :]).any(axis=1)
        self.arrays['use'] = np.flatnonzero(left & ~dominated)
        self.classes = anchored.Classes(**compiled.views(**self.arrays))

    def _rule_out(self, nodes: np.ndarray) -> None:
        n_classes = len(self.hosts)
        rows = {name: array.reshape(n_classes, -1)
                for name, array in self.arrays.items() if name != 'use'}
        sums = rows['sums']
        for j in nodes:
            was = rows['status'][:, j] == anchored.Status.UNDECIDED
            out = np.where(was, rows['from_set'][:, j], 0.0)
            into = np.where(was, rows['to_set'][:, j], 0.0)
            sums[:, 0] += out
            sums[:, 1] += into
            sums[:, 2] -= out
            sums[:, 3] -= into
            rows['to_outside'][was] += self.dense[:, j]
            rows['from_outside'][was] += self.dense[j]
            rows['status'][was, j] = anchored.Status.OUTSIDE


def _kinds(inst: instances.Instance, hose: np.ndarray
           ) -> tuple[np.ndarray, list[list[int]]]:
    """Rows where more is better, and the hosts of each distinct row."""
    pinned = np.isin(np.arange(inst.n_hosts), inst.fixed[inst.fixed >= 0])
    # A host with terminals is comparable to none.
    apart = np.where(pinned, np.arange(inst.n_hosts) + 1.0, 0.0)
    rows = np.column_stack([inst.free, -hose.T, inst.allowed.T, apart,
                            -apart])
    kinds, which = np.unique(rows, axis=0, return_inverse=True)
    hosts: list[list[int]] = [[] for _ in kinds]
    for host in range(inst.n_hosts - 1, -1, -1):
        hosts[which.reshape(-1)[host]].append(host)
    return kinds, hosts
