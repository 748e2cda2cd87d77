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

from virtco.solver import budget as budgets
from virtco.solver.bounds import lowerbounds
from virtco.solver.model import instance as instances
from virtco.solver.model import reduction
from virtco.solver.starts import candidates

TREE_LIMIT = 400
#: Calls of numpy to place a set, and cells for each node and class.
SET_CALLS = 100
SET_CELLS = 3
#: Cells for each two kinds of hosts that are compared at the beginning.
BEGIN_CELLS = 100
#: Of a time that meets its target.
SLACK = 1 + 1e-9


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
    budget.spend_numpy(0, begin)
    carver = _Carver(inst, budget)
    missed = []
    for node in order:
        if carver.filler.assign[node] < 0:
            if not budget.in_time():
                return None, []
            if carver.place_set_of(node, target_s) > target_s * SLACK:
                missed.append(node)
    return (candidates.fill(carver.filler, inst.exchanged),
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
        self.hosts = inst.alike(self.hose)
        first = [hosts[0] for hosts in self.hosts]
        self.kind_of = np.zeros(inst.n_hosts, dtype=np.int64)
        for kind, hosts in enumerate(self.hosts):
            self.kind_of[hosts] = kind
        pinned = np.isin(np.arange(inst.n_hosts), inst.fixed)
        #: A host with terminals is comparable to none.
        self.apart = np.where(pinned, np.arange(inst.n_hosts) + 1.0, 0.0)
        rows = np.column_stack([inst.free, -self.hose.T, inst.allowed.T,
                                self.apart, -self.apart])[first]
        better = reduction.dominance(rows, rows)
        #: [i, j]: kind j dominates kind i.
        self.better = better & ~better.T
        self.work = lowerbounds.prepare(inst, first, budget)
        self.rows = {name: self.work.arrays[name].reshape(len(first), -1)
                     for name in ('status', 'to_outside', 'from_outside')}
        self.dense = inst.sent
        self._use()

    def place_set_of(self, node: int, target_s: float) -> float:
        """Time of the set that was placed, 0 if none was found."""
        time_s = lowerbounds.least_around(self.work, node, 1e300, target_s,
                                          TREE_LIMIT, self.budget)
        n, arrays = self.inst.n_nodes, self.work.arrays
        self.budget.spend_numpy(SET_CALLS, SET_CELLS * n * len(self.hosts))
        if not arrays['found'][node]:
            return 0.0
        nodes = np.flatnonzero((arrays['found'][:n] > 0)
                               & (self.inst.fixed < 0))
        host = self.hosts[int(arrays['counts'][1])][-1]
        if not self.apart[host]:
            host = self._least_loss(nodes, max(time_s, target_s), host)
        demand = self.inst.demand[nodes].sum(axis=0)
        if ((demand > self.filler.free[host]) & (demand > 0)).any():
            return np.inf  # the switch has no share left
        for j in nodes:
            self.filler.put(int(j), host)
            was = self.rows['status'][:, j] == lowerbounds.Status.UNDECIDED
            self.rows['to_outside'][was] += self.dense[:, j]
            self.rows['from_outside'][was] += self.dense[j]
            self.rows['status'][was, j] = lowerbounds.Status.OUTSIDE
        kind = self.kind_of[host]
        self.hosts[kind].remove(host)
        if not self.hosts[kind]:
            self._use()
        return time_s

    def _least_loss(self, nodes: np.ndarray, time_s: float,
                    host: int) -> int:
        """Empty host on which the set meets time_s with least to spare."""
        inside = np.zeros(self.inst.n_nodes, dtype=bool)
        inside[nodes] = True
        cut = np.array([self.dense[inside][:, ~inside].sum(),
                        self.dense[~inside][:, inside].sum()])
        hosts = np.array([h for kind in self.hosts for h in kind[-1:]])
        demand = self.inst.demand[nodes].sum(axis=0)
        ok = ((self.filler.free[hosts] >= demand) | (demand <= 0)).all(axis=1)
        ok &= self.inst.allowed[nodes][:, hosts].all(axis=0)
        ok &= self.apart[hosts] == 0
        ok &= (cut[:, None] * self.hose[:, hosts] <= time_s * SLACK).all(
            axis=0)
        if not ok.any():
            return host
        hosts = hosts[ok]
        left = self.filler.left()[hosts]
        speed = -self.hose[:, hosts].sum(axis=0)
        return int(hosts[np.lexsort((hosts, speed, left))[0]])

    def _use(self) -> None:
        """Look at classes with hosts left that no other one dominates."""
        left = np.array([bool(hosts) for hosts in self.hosts])
        dominated = (self.better & left[None, :]).any(axis=1)
        self.work.arrays['skipped'][:] = ~left | dominated
