# SPDX-License-Identifier: Apache-2.0

"""Choreo's greedy network-aware placement (Choreo, Algorithm 1).

Transfers are taken by falling size; the two VMs of one go on the path on
which it would get the highest rate, given what is already placed: in the
hose model the egress of m and the ingress of n are shared by all
connections out of m and into n, in the pipe model R_mn by those on m -> n.
Paths inside a machine have infinite rate.
"""

import numpy as np

from virtco.solver import budget as budgets
from virtco.solver.model import instance as instances
from virtco.solver.starts import candidates

#: Calls of numpy to place a transfer; it looks at all pairs of hosts.
PAIR_CALLS = 40


class _Paths:
    """Rates that one more connection would see, per path."""

    def __init__(self, inst: instances.Instance):
        m = inst.n_hosts
        self.inst = inst
        with np.errstate(divide='ignore'):
            rate = 1.0 / inst.s_per_byte
        self.out, self.into = rate[:m], rate[m:2 * m]
        self.n_out = np.ones(m)
        self.n_into = np.ones(m)
        self.pair = None
        if inst.pipe:
            self.pair = rate[inst.n_fabric:].reshape(m, m)
            self.n_pair = np.ones((m, m))

    def rates(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Compute the rate of path m -> n for m in rows, n in columns."""
        rate: np.ndarray = np.minimum(
            (self.out / self.n_out)[rows][:, None],
            (self.into / self.n_into)[columns][None, :])
        if self.pair is not None:
            grid = np.ix_(rows, columns)
            rate = np.minimum(rate, (self.pair / self.n_pair)[grid])
        rate[rows[:, None] == columns[None, :]] = np.inf
        return rate

    def use(self, a: int, b: int) -> None:
        if a != b:
            self.n_out[a] += 1
            self.n_into[b] += 1
            if self.pair is not None:
                self.n_pair[a, b] += 1


def place(inst: instances.Instance, budget: budgets.Budget
          ) -> np.ndarray | None:
    """Place nodes greedily; return None when the order runs into a wall.

    None, too, when the time is over before it is done.
    """
    filler = candidates.Filler(inst)
    paths = _Paths(inst)
    for _size, src, dst in sorted(
            (-size, src, dst) for arcs in inst.arcs
            for src, dst, size in zip(*(a.tolist() for a in arcs))):
        budget.spend_numpy(PAIR_CALLS, inst.n_hosts ** 2)
        if not budget.in_time() or not _place_pair(filler, paths, src, dst):
            return None
        paths.use(filler.assign[src], filler.assign[dst])
    for node in candidates.by_size(inst):
        if filler.assign[node] < 0:
            hosts = filler.hosts_for(node)
            if not len(hosts):
                return None
            filler.put(node, int(hosts[0]))
    return filler.done()


def _place_pair(filler: candidates.Filler, paths: _Paths, src: int,
                dst: int) -> bool:
    rows = (filler.assign[[src]] if filler.assign[src] >= 0
            else filler.hosts_for(src))
    columns = (filler.assign[[dst]] if filler.assign[dst] >= 0
               else filler.hosts_for(dst))
    if not len(rows) or not len(columns):
        return False
    rate = paths.rates(rows, columns)
    demand = filler.inst.demand
    for i, j in zip(*np.nonzero(rows[:, None] == columns[None, :])):
        need = ((filler.assign[src] < 0) * demand[src]
                + (filler.assign[dst] < 0) * demand[dst])
        if not (need <= filler.free[rows[i]]).all():
            rate[i, j] = -1.0
    best = int(rate.argmax())
    i, j = divmod(best, len(columns))
    if rate[i, j] < 0:
        return False
    for node, host in ((src, rows[i]), (dst, columns[j])):
        if filler.assign[node] < 0:
            filler.put(node, int(host))
    return True
