# SPDX-License-Identifier: Apache-2.0

"""The linear and the integer program that cover the nodes with sets.

Over the columns of a :class:`virtco.solver.partition.columns.Pool` within
limits: every movable node is in one set of a host, every host with pinned
nodes holds one set, and no class gives more hosts than it has. What a subtree
holds is what its hosts hold: a *link* for each subtree and movable node says
that a set of the subtree has the node when a set of one of its hosts has.
"""

import dataclasses

import numpy as np
import scipy

from virtco.solver import budget as budgets
from virtco.solver.partition import columns

#: Shares from which a set is taken for granted.
WHOLE = 0.999
MILP_NODES = 200
MILP_GAP = 0.1
#: Units of work of a linear program: to call it, for a column, and for each
#: row in a step of the simplex method; and of an integer program per column.
LP_UNITS = 2.5e6
COLUMN_UNITS = 4e3
STEP_UNITS = 300.0
CHOOSE_UNITS = 50e3


@dataclasses.dataclass(frozen=True)
class Cover:
    """What fractions of sets cover.

    :ivar uncovered: how many nodes (and terminal hosts) they miss, and
        links.
    :ivar value: what a node is worth in a set of every class, shape (C, n):
        the sum of its duals, 0 where it needs no cover.
    :ivar wanted: what all is worth together that must be covered.
    :ivar price: dual of every class.
    :ivar chosen: the columns, and share: of each.
    """

    uncovered: float
    value: np.ndarray
    wanted: float
    price: np.ndarray
    chosen: np.ndarray
    share: np.ndarray


class Master:
    """Rows are movable nodes, terminal classes, links, then other classes.

    What is fixed by :meth:`fix_largest` is covered and out of the way.

    :param linked: whether uplinks limit, too; without, there are no sets of
        subtrees and no links.

    :ivar count: hosts left of every class.
    :ivar placed: nodes that are fixed, bool of shape (n,).
    """

    def __init__(self, pool: columns.Pool, linked: bool):
        self.pool = pool
        self.movable = pool.inst.movable
        self.of_hosts = np.array([bool(k.hosts) for k in pool.classes],
                                 dtype=bool)
        self.used = self.of_hosts | linked
        self.terminal = self.used & [k.is_terminal for k in pool.classes]
        self.first_link = len(self.movable) + int(self.terminal.sum())
        #: Which classes are of a subtree, bool of shape (Q, C).
        self.within = _within(pool)[:None if linked else 0]
        self.n_cover = self.first_link + len(self.within) * len(self.movable)
        self.n_rows = self.n_cover + int((~self.terminal).sum())
        self.node_row = np.full(pool.inst.n_nodes, -1)
        self.node_row[self.movable] = np.arange(len(self.movable))
        self.class_row = np.where(
            self.terminal, len(self.movable) + np.cumsum(self.terminal) - 1,
            self.n_cover + np.cumsum(~self.terminal) - 1)
        self.release()

    def release(self) -> None:
        """Forget what was fixed."""
        self.count = self.used * [k.count for k in self.pool.classes]
        self.placed = self.pool.inst.fixed >= 0
        self.placed[self.movable] = False
        self.needed = np.ones(self.n_cover)
        self.needed[self.first_link:] = 0.0
        self.assign = self.pool.inst.fixed.copy()
        self.hosts = [list(k.hosts) for k in self.pool.classes]

    @property
    def has_fixed_links(self) -> bool:
        """Whether links count fixed nodes.

        A cover then says nothing about a master that has released them.
        """
        return bool(self.needed[self.first_link:].any())

    def cover(self, limits: np.ndarray, budget: budgets.Budget
              ) -> Cover | None:
        """Cover as much as fractions of sets can; None without time."""
        chosen = self._chosen(limits)
        matrix = self._matrix(chosen)
        n, n_plain = self.n_cover, self.n_rows - self.n_cover
        eye = scipy.sparse.eye_array(n, format='csc')
        none = scipy.sparse.csc_array((n_plain, 2 * n))
        result = scipy.optimize.linprog(
            np.concatenate([np.zeros(len(chosen)), np.ones(2 * n)]),
            A_eq=scipy.sparse.hstack([matrix[:n], eye, -eye], format='csc'),
            b_eq=self.needed,
            A_ub=scipy.sparse.hstack([matrix[n:], none], format='csc'),
            b_ub=self.count[~self.terminal], method='highs',
            options={'time_limit': budget.machine_s(),
                     'maxiter': budget.steps(STEP_UNITS * self.n_rows)})
        budget.spend(LP_UNITS + COLUMN_UNITS * len(chosen)
                     + STEP_UNITS * self.n_rows * result.nit)
        if result.status != 0:
            return None
        dual = np.concatenate([result.eqlin.marginals,
                               result.ineqlin.marginals])
        return Cover(
            float(result.fun), self._values(dual),
            float(dual[:len(self.movable)] @ self.needed[:len(self.movable)]
                  + dual[self.first_link:n] @ self.needed[self.first_link:]),
            -dual[self.class_row], chosen, result.x[:len(chosen)])

    def _values(self, dual: np.ndarray) -> np.ndarray:
        """What a node is worth in a set of every class, shape (C, n)."""
        n = len(self.movable)
        value = np.zeros((len(self.count), len(self.node_row)))
        value[:, self.movable] = np.where(self.of_hosts[:, None],
                                          dual[:n], 0.0)
        links = dual[self.first_link:self.n_cover].reshape(
            len(self.within), n)
        value[:, self.movable] -= self.within.T.astype(float) @ links
        value[:, self.placed] = 0.0
        value[np.ix_(~self.of_hosts & self.used, self.movable)] = links
        return value

    def banned(self, c: int) -> np.ndarray:
        """Nodes that no set of a class may have any more; shape (n,)."""
        if self.of_hosts[c]:
            return self.placed
        up = self.pool.classes[c].ports[0]
        here = (self.pool.inst.port_out == up).any(axis=0)
        result: np.ndarray = self.placed & ~here[self.assign]
        return result

    def choose(self, limits: np.ndarray, budget: budgets.Budget
               ) -> np.ndarray | None:
        """Whole sets that cover all and take little: hosts, or None."""
        chosen = self._chosen(limits)
        units = CHOOSE_UNITS * len(chosen)
        if not budget.holds(units):
            return None
        budget.spend(units)
        n_plain = self.n_rows - self.n_cover
        result = scipy.optimize.milp(
            self.pool.shares(limits)[chosen].sum(axis=1),
            integrality=np.ones(len(chosen)),
            bounds=scipy.optimize.Bounds(0, np.inf),
            constraints=scipy.optimize.LinearConstraint(
                self._matrix(chosen),
                np.concatenate([self.needed, np.zeros(n_plain)]),
                np.concatenate([self.needed, self.count[~self.terminal]])),
            options={'time_limit': budget.machine_s(),
                     'node_limit': MILP_NODES, 'mip_rel_gap': MILP_GAP})
        if result.x is None:
            return None
        for column in np.repeat(chosen, np.rint(result.x).astype(int)):
            if self.of_hosts[self.pool.of_class[column]]:
                self._fix(column)
        return self.assign

    def fix_largest(self, cover: Cover) -> None:
        """Fix the set with the largest share, and all whole ones."""
        share = np.where(self.of_hosts[self.pool.of_class[cover.chosen]],
                         cover.share, -1.0)
        for rank, i in enumerate(np.argsort(-share, kind='stable')):
            if share[i] < (WHOLE if rank else 0.0):
                break
            self._fix(cover.chosen[i])

    def is_done(self) -> bool:
        return bool((self.assign >= 0).all())

    def _fix(self, column: int) -> None:
        members = self.pool.members[column]
        c = self.pool.of_class[column]
        if self.placed[members].any() or not self.count[c]:
            return
        self.assign[members] = self.hosts[c].pop()
        self.placed |= members
        self.count[c] -= 1
        rows = self.node_row[np.flatnonzero(members)]
        self.needed[rows] = 0.0
        for q in np.flatnonzero(self.within[:, c]):
            self.needed[self.first_link + q * len(self.movable) + rows] = 1.0
        if self.terminal[c]:
            self.needed[self.class_row[c]] = 0.0

    def _chosen(self, limits: np.ndarray) -> np.ndarray:
        """Columns that are within the limits and still possible."""
        pool = self.pool
        possible = (pool.shares(limits) <= 1 + columns.CHOSEN).all(axis=1)
        possible &= self.used[pool.of_class]
        if self.placed.any():
            possible &= (self.count[pool.of_class] > 0) & ~(
                pool.members[:, self.placed].any(axis=1)
                & self.of_hosts[pool.of_class])
        return np.flatnonzero(possible)

    def _matrix(self, chosen: np.ndarray) -> 'scipy.sparse.csc_array':
        which, nodes = np.nonzero(self.pool.members[chosen])
        every = np.arange(len(chosen))
        of_class = self.pool.of_class[chosen]
        of_host = self.of_hosts[of_class[which]]
        rows = [self.node_row[nodes[of_host]], self.class_row[of_class]]
        columns = [which[of_host], every]
        entries = [np.ones(len(rows[0]) + len(every))]
        own = np.cumsum(~self.of_hosts) - 1
        for q, within in enumerate(self.within):
            sign = np.where(own[of_class] == q, 1.0, 0.0)
            sign = np.where(self.of_hosts[of_class],
                            -within[of_class].astype(float), sign)[which]
            has = sign != 0
            rows.append(self.first_link + q * len(self.movable)
                        + self.node_row[nodes[has]])
            columns.append(which[has])
            entries.append(sign[has])
        return scipy.sparse.csc_array(
            (np.concatenate(entries),
             (np.concatenate(rows), np.concatenate(columns))),
            (self.n_rows, len(chosen)))


def _within(pool: columns.Pool) -> np.ndarray:
    """Which classes' hosts are in which subtree, bool of shape (Q, C)."""
    port_out = pool.inst.port_out
    subtrees = [k.ports[0] for k in pool.classes if not k.hosts]
    result = np.zeros((len(subtrees), len(pool.classes)), dtype=bool)
    for q, up in enumerate(subtrees):
        result[q] = [bool(k.hosts) and up in port_out[:, k.hosts[0]]
                     for k in pool.classes]
    return result
