# SPDX-License-Identifier: Apache-2.0

"""The linear relaxation that VirtCO's problem (5) should have been, rounded.

As printed, (5) bounds V and W only from above, so alpha is unbounded, and
with V >= y_j - y_k added, x_j^m = slot_m / sum slot has no cut at all. Here
z_jk^m = x_j^m x_k^m says which pairs share a host, and the products of the
slot rows with x_k^m (reformulation-linearisation) forbid the uniform
solution. With O_j and I_j a VM's bytes out and in, w_jk = p_jk + p_kj:

    min t
    sum_m x_j^m = 1                                          for all j
    sum_j size_j x_j^m <= slot_m                             for all m
    sum_j O_j x_j^m - sum_{j<k} w_jk z_jk^m <= t B_e^m       for all m
    sum_j I_j x_j^m - sum_{j<k} w_jk z_jk^m <= t B_in^m      for all m
    z_jk^m <= x_j^m, z_jk^m <= x_k^m                for all j < k, m
    sum_{j != k} size_j z_jk^m <= (slot_m - size_k) x_k^m   for all k, m

Identical hosts are one class of c hosts (slot and B times c), which loses
nothing. z exists for pairs with traffic only. Racks are not in it and pipes
enter by their sums, so its optimum is a lower bound for them too.

VirtCO's Algorithm 2 puts each VM on the host with its largest x_j^m, which
breaks the slots of most instances. Here the largest share that still fits is
taken first, over all VMs and hosts; among equal shares the host with more of
the VM's traffic wins.
"""

import dataclasses

import numpy as np
import scipy

from virtco.solver import budget as budgets
from virtco.solver.bounds import lowerbounds
from virtco.solver.model import instance as instances
from virtco.solver.starts import candidates

#: Units of work of a step of the simplex method per variable, and of its
#: set-up in steps.
STEP_UNITS = 40.0
SETUP_STEPS = 100
#: Units of work to write down a z variable and its rows.
PRODUCT_UNITS = 3000.0
#: Most by which HiGHS may violate a row, with room to spare.
TOLERANCE = 1e-5


@dataclasses.dataclass(frozen=True)
class Solution:
    """Optimal solution of the relaxation.

    :ivar lower_s: its optimum, a lower bound on t.
    :ivar share: x_j^m spread evenly over each class, shape (n, M).
    """

    lower_s: float
    share: np.ndarray


class _Model:
    """Variables x (n * C), z (E * C), t; rows added one kind at a time."""

    def __init__(self, inst: instances.Instance):
        self.inst = inst
        hose = lowerbounds.hose_s_per_byte(inst)
        self.dense = inst.sent
        usual = hose[hose < hose.max()] if hose.size else hose
        #: Seconds per unit of t in the model: it works near 1.
        self.unit_s = max(float(np.median(usual) if usual.size
                                else hose.max(initial=0.0))
                          * float(self.dense.sum()), 1e-300)
        self.hose = hose / self.unit_s
        self.hosts = inst.alike(self.hose)
        self.n, self.c = inst.n_nodes, len(self.hosts)
        self.count = np.array([len(hosts) for hosts in self.hosts])
        self.first = np.array([hosts[0] for hosts in self.hosts])
        both = np.triu(self.dense + self.dense.T)
        self.j, self.k = np.nonzero(both)
        self.w = both[self.j, self.k]
        self.n_x, self.n_z = self.n * self.c, len(self.j) * self.c
        self.rows: list[scipy.sparse.csr_matrix] = []
        self.upper: list[np.ndarray] = []

    def x(self, node: np.ndarray | int, c: np.ndarray | int) -> np.ndarray:
        return np.asarray(node) * self.c + c

    def z(self, pair: np.ndarray, c: np.ndarray | int) -> np.ndarray:
        return self.n_x + pair * self.c + c

    def add(self, row: np.ndarray, column: np.ndarray, value: np.ndarray,
            upper: np.ndarray) -> None:
        shape = len(upper), self.n_x + self.n_z + 1
        self.rows.append(
            scipy.sparse.csr_matrix((value, (row, column)), shape))
        self.upper.append(upper)

    def add_slots(self) -> None:
        nodes, classes = np.divmod(np.arange(self.n_x), self.c)
        free = np.maximum(self.inst.free[self.first], 0.0)
        for r in range(self.inst.demand.shape[1]):
            self.add(classes, np.arange(self.n_x),
                     self.inst.demand[nodes, r], free[:, r] * self.count)

    def add_ports(self) -> None:
        """Add a row per port, load minus t B <= 0, in seconds to be alike."""
        for way, per_node in enumerate((self.dense.sum(axis=1),
                                        self.dense.sum(axis=0))):
            s_per_byte = self.hose[way, self.first] / self.count
            nodes, classes = np.divmod(np.arange(self.n_x), self.c)
            pairs, z_classes = np.divmod(np.arange(self.n_z), self.c)
            self.add(
                np.concatenate([classes, z_classes, np.arange(self.c)]),
                np.concatenate([np.arange(self.n_x + self.n_z),
                                np.full(self.c, self.n_x + self.n_z)]),
                np.concatenate([per_node[nodes] * s_per_byte[classes],
                                -self.w[pairs] * s_per_byte[z_classes],
                                -np.ones(self.c)]),
                np.zeros(self.c))

    def add_products(self) -> None:
        pairs, classes = np.divmod(np.arange(self.n_z), self.c)
        ones = np.ones(self.n_z)
        for node in (self.j, self.k):
            self.add(np.tile(np.arange(self.n_z), 2),
                     np.concatenate([self.z(pairs, classes),
                                     self.x(node[pairs], classes)]),
                     np.concatenate([ones, -ones]), np.zeros(self.n_z))

    def add_products_of_slots(self) -> None:
        pairs, classes = np.divmod(np.arange(self.n_z), self.c)
        columns = self.z(pairs, classes)
        nodes, x_classes = np.divmod(np.arange(self.n_x), self.c)
        free = np.maximum(self.inst.free[self.first], 0.0)
        for r in range(self.inst.demand.shape[1]):
            size = self.inst.demand[:, r]
            self.add(
                np.concatenate([self.x(self.j[pairs], classes),
                                self.x(self.k[pairs], classes),
                                np.arange(self.n_x)]),
                np.concatenate([columns, columns, np.arange(self.n_x)]),
                np.concatenate([size[self.k[pairs]], size[self.j[pairs]],
                                size[nodes] - free[x_classes, r]]),
                np.zeros(self.n_x))

    def solve(self, budget: budgets.Budget) -> Solution | None:
        cover = scipy.sparse.csr_matrix(
            (np.ones(self.n_x), (np.arange(self.n_x) // self.c,
                                 np.arange(self.n_x))),
            (self.n, self.n_x + self.n_z + 1))
        upper = np.ones(self.n_x + self.n_z + 1)
        upper[:self.n_x] = self.inst.allowed[:, self.first].ravel()
        upper[-1] = np.inf
        cost = np.zeros(len(upper))
        cost[-1] = 1.0
        result = scipy.optimize.linprog(
            cost, A_ub=scipy.sparse.vstack(self.rows),
            b_ub=np.concatenate(self.upper), A_eq=cover,
            b_eq=np.ones(self.n),
            bounds=np.column_stack([np.zeros(len(upper)), upper]),
            method='highs', options={
                'time_limit': budget.machine_s(),
                'maxiter': budget.steps(STEP_UNITS * len(cost))})
        budget.spend(STEP_UNITS * len(cost) * (SETUP_STEPS + result.nit))
        if result.status != 0:
            return None
        share = np.zeros((self.n, self.inst.n_hosts))
        x = result.x[:self.n_x].reshape(self.n, self.c)
        for c, hosts in enumerate(self.hosts):
            share[:, hosts] = x[:, [c]] / len(hosts)
        lower = max(0.0, float(result.fun) - TOLERANCE)
        return Solution(lower * self.unit_s, share)


def build_units(inst: instances.Instance) -> float:
    """Return the work to build the program, in units of a budget."""
    return PRODUCT_UNITS * products(inst)


def products(inst: instances.Instance) -> int:
    """Count the z variables that the relaxation would have."""
    hose = lowerbounds.hose_s_per_byte(inst)
    both = np.triu(inst.exchanged, 1)
    return int((both > 0).sum()) * len(inst.alike(hose))


def solve(inst: instances.Instance, budget: budgets.Budget
          ) -> Solution | None:
    """Solve the relaxation with HiGHS; None when the budget did not do."""
    budget.spend(build_units(inst))
    model = _Model(inst)
    model.add_slots()
    model.add_ports()
    if model.n_z:
        model.add_products()
        model.add_products_of_slots()
    return model.solve(budget)


def place(inst: instances.Instance, budget: budgets.Budget
          ) -> np.ndarray | None:
    """Solve and round; None without time and where the rest fits nowhere."""
    if not budget.holds(build_units(inst)):
        return None
    solution = solve(inst, budget)
    return None if solution is None else round_shares(inst, solution.share)


def round_shares(inst: instances.Instance, share: np.ndarray
                 ) -> np.ndarray | None:
    """Round shares to hosts per node; return None when nodes do not fit.

    :param share: x_j^m, shape (n, M).
    """
    filler = candidates.Filler(inst)
    bytes_between = inst.exchanged
    left = set(np.flatnonzero(filler.assign < 0).tolist())
    while left:
        best, where = -1.0, (-1, -1)
        for node in sorted(left):
            hosts = filler.hosts_for(node)
            if not len(hosts):
                return None
            pull = _pull(filler, node, bytes_between)
            value = np.round(share[node, hosts], 6) + 1e-7 * pull[hosts]
            if value.max() > best:
                best = float(value.max())
                where = node, int(hosts[value.argmax()])
        filler.put(*where)
        left.discard(where[0])
    return filler.done()


def _pull(filler: candidates.Filler, node: int,
          bytes_between: np.ndarray) -> np.ndarray:
    """Compute the part of a node's traffic that is with nodes on each host."""
    pull = np.zeros(filler.inst.n_hosts)
    placed = np.flatnonzero(filler.assign >= 0)
    np.add.at(pull, filler.assign[placed], bytes_between[node, placed])
    return pull / max(float(bytes_between[node].sum()), 1e-300)
