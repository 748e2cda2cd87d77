# SPDX-License-Identifier: Apache-2.0

"""The linear program that covers the nodes with sets.

Over the columns of a :class:`virtco.solver.partition.columns.Pool` within
limits: every movable node is in one set of a host, every host with pinned
nodes holds one set, no class gives more hosts than it has, and the sets below
a switch take no more of a shared resource than it has.
"""

import dataclasses

import numpy as np
import scipy

from virtco.solver import budget as budgets
from virtco.solver.partition import columns

#: Units of work of a linear program: to call it, for a column, and for each
#: row in a step of the simplex method.
LP_UNITS = 2.5e6
COLUMN_UNITS = 4e3
STEP_UNITS = 300.0


@dataclasses.dataclass(frozen=True)
class Cover:
    """Solution of the linear program: fractions of sets, and duals.

    :ivar uncovered: how many nodes (and terminal hosts) they miss.
    :ivar value: dual of every node, shape (n,); 0 where it needs no cover.
    :ivar wanted: value of all nodes that must be covered.
    :ivar price: dual of every class.
    :ivar share_price: dual of every shared resource's row.
    :ivar worth: value of every node in a class, less what it takes of shared
        resources there, shape (C, n).
    :ivar chosen: the columns, and share: of each.
    """

    uncovered: float
    value: np.ndarray
    wanted: float
    price: np.ndarray
    share_price: np.ndarray
    worth: np.ndarray
    chosen: np.ndarray
    share: np.ndarray


class Master:
    """Rows: movable nodes, terminal classes, other classes, shares.

    What is fixed (:meth:`fix`) is covered and out of the way.

    :ivar count: hosts left of every class.
    :ivar placed: movable nodes that are fixed, bool of shape (n,).
    :ivar shares: room that is left of every shared resource.
    """

    def __init__(self, pool: columns.Pool):
        self.pool = pool
        self.movable = pool.inst.movable
        self.terminal = np.array([k.is_terminal for k in pool.classes],
                                 dtype=bool)
        self.n_cover = len(self.movable) + int(self.terminal.sum())
        self.n_rows = len(self.movable) + len(pool.classes)
        self.node_row = np.zeros(pool.inst.n_nodes, np.int64)
        self.node_row[self.movable] = np.arange(len(self.movable))
        self.class_row = np.where(
            self.terminal, len(self.movable) + np.cumsum(self.terminal) - 1,
            self.n_cover + np.cumsum(~self.terminal) - 1)
        inst, sharing = pool.inst, pool.inst.sharing
        first = [k.hosts[0] for k in pool.classes]
        self.demand = inst.demand[:, inst.demand.shape[1] - len(sharing):]
        slots, number = np.unique(
            inst.slot[first][:, inst.demand.shape[1] - len(sharing):],
            return_inverse=True)
        #: Row of every class's share of a resource, shape (C, K).
        self.share_row = number.reshape(len(first), len(sharing))
        self._room = inst.room.ravel()[slots]
        self.release()

    def release(self) -> None:
        """Free all columns that were fixed."""
        self.count = np.array([len(k.hosts) for k in self.pool.classes])
        self.placed = np.zeros(len(self.node_row), dtype=bool)
        self.needed = np.ones(self.n_cover)
        self.assign = self.pool.inst.fixed.copy()
        self.hosts = [list(k.hosts) for k in self.pool.classes]
        self.shares = self._room.copy()

    def cover(self, limits: np.ndarray, budget: budgets.Budget
              ) -> Cover | None:
        """Return the fractions of sets that leave least uncovered; None when
        the time is over.
        """
        chosen = self._chosen(limits)
        matrix = self._matrix(chosen)
        n, n_plain = self.n_cover, matrix.shape[0] - self.n_cover
        eye = scipy.sparse.eye_array(n, format='csc')
        none = scipy.sparse.csc_array((n_plain, 2 * n))
        result = scipy.optimize.linprog(
            np.concatenate([np.zeros(len(chosen)), np.ones(2 * n)]),
            A_eq=scipy.sparse.hstack([matrix[:n], eye, -eye], format='csc'),
            b_eq=self.needed,
            A_ub=scipy.sparse.hstack([matrix[n:], none], format='csc'),
            b_ub=np.concatenate([self.count[~self.terminal], self.shares]),
            method='highs',
            options={'time_limit': budget.machine_s(),
                     'maxiter': budget.steps(STEP_UNITS * self.n_rows)})
        budget.spend(LP_UNITS + COLUMN_UNITS * len(chosen)
                     + STEP_UNITS * self.n_rows * result.nit)
        if result.status != 0:
            return None
        dual = np.concatenate([result.eqlin.marginals,
                               result.ineqlin.marginals])
        value = np.zeros(len(self.node_row))
        value[self.movable] = dual[:len(self.movable)]
        value[self.placed] = 0.0
        share_price = -dual[self.n_rows:]
        tolls = np.einsum('ck,nk->cn', share_price[self.share_row],
                          self.demand)
        return Cover(float(result.fun), value, float(value.sum()),
                     -dual[self.class_row], share_price, value - tolls,
                     chosen, result.x[:len(chosen)])

    def is_done(self) -> bool:
        """Tell whether every node has a host, so that none is left to fix."""
        return bool((self.assign >= 0).all())

    def fix(self, column: int) -> None:
        """Use a set where it is still possible."""
        members = self.pool.members[column]
        c = self.pool.of_class[column]
        need = self.demand[members].sum(axis=0)
        if self.placed[members].any() or not self.count[c] or (
                need > self.shares[self.share_row[c]]).any():
            return
        self.shares[self.share_row[c]] -= need
        self.assign[members] = self.hosts[c].pop()
        self.placed |= members
        self.count[c] -= 1
        self.needed[self.node_row[np.flatnonzero(members)]] = 0.0
        if self.terminal[c]:
            self.needed[self.class_row[c]] = 0.0

    def _chosen(self, limits: np.ndarray) -> np.ndarray:
        """Find the columns that are within the limits and still possible."""
        pool = self.pool
        possible = (pool.shares(limits) <= 1 + columns.CHOSEN).all(axis=1)
        possible &= (self.count[pool.of_class] > 0) & ~pool.members[
            :, self.placed].any(axis=1)
        possible &= (pool.members @ self.demand <= self.shares[
            self.share_row[pool.of_class]]).all(axis=1)
        return np.flatnonzero(possible)

    def _matrix(self, chosen: np.ndarray) -> 'scipy.sparse.csc_array':
        """Build the constraint matrix of the chosen sets."""
        members = self.pool.members[chosen]
        of_class = self.pool.of_class[chosen]
        which, nodes = np.nonzero(members)
        every = np.arange(len(chosen))
        need = members @ self.demand
        rows = np.concatenate([
            self.node_row[nodes], self.class_row[of_class],
            self.n_rows + self.share_row[of_class].ravel()])
        return scipy.sparse.csc_array(
            (np.concatenate([np.ones(len(which) + len(every)),
                             need.ravel()]),
             (rows, np.concatenate([which, every, np.repeat(
                 every, need.shape[1])]))),
            (self.n_rows + len(self.shares), len(chosen)))
