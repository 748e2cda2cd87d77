# SPDX-License-Identifier: Apache-2.0

"""The exact placement of a small group, by exhaustive search."""

from collections.abc import Callable
from collections.abc import Iterator
import itertools
import math
from typing import Any

import numpy as np

from virtco.solver import budget as budgets
from virtco.solver.model import instance as instances

#: Movable nodes and ports up to which branch and bound is tried.
MAX_NODES = 12
MAX_PORTS = 200
#: Calls of numpy to try a node on a host.
VISIT_CALLS = 25
#: Placements judged one by one.
MAX_JUDGED = 1000


def try_all(inst: instances.Instance, key: Callable[[np.ndarray], Any]
            ) -> np.ndarray | None:
    """Find the valid placement of least key; None when there are too many.

    For objectives that no dynamic programme splits: several coflows.
    """
    movable = inst.movable
    hosts = [np.flatnonzero(inst.allowed[node]) for node in movable]
    if math.prod(len(row) for row in hosts) > MAX_JUDGED:
        return None

    def valid() -> Iterator[np.ndarray]:
        for choice in itertools.product(*hosts):
            assign = inst.fixed.copy()
            assign[movable] = choice
            if inst.fits(assign):
                yield assign

    return min(valid(), key=key, default=None)


def enumerable(inst: instances.Instance) -> bool:
    """Return whether branch and bound is worth a try."""
    return (0 < len(inst.movable) <= MAX_NODES
            and len(inst.s_per_byte) <= MAX_PORTS)


def enumerate_all(inst: instances.Instance, upper_s: float,
                  budget: budgets.Budget
                  ) -> tuple[float, np.ndarray | None] | None:
    """Find the least t below upper_s and its placement; None without time.

    (upper_s, None) proves that nothing is better. Nodes are placed one after
    another on every host. Loads only grow on the way, so a partial placement
    that takes as long as the best full one is left.
    """
    search = _Enumeration(inst, upper_s, budget)
    search.place(0, np.zeros(len(inst.s_per_byte)), inst.room.copy())
    if not search.is_complete:
        return None
    return (upper_s if search.best is None else search.least_s), search.best


class _Enumeration:
    def __init__(self, inst: instances.Instance, upper_s: float,
                 budget: budgets.Budget):
        self.inst = inst
        self.budget = budget
        self.order = np.lexsort((-inst.exchanged.sum(axis=1),
                                 inst.fixed < 0))
        self.sent = inst.sent
        every = np.arange(inst.n_hosts)
        self.paths = inst.paths(*np.meshgrid(every, every, indexing='ij'))
        self.assign = inst.fixed.copy()
        self.least_s = upper_s * (1 - 1e-12)
        self.best: np.ndarray | None = None
        self.is_complete = True

    def place(self, rank: int, load: np.ndarray, free: np.ndarray) -> None:
        """Place the nodes from a rank on, beside those before it."""
        if rank == len(self.order):
            self.best = self.assign.copy()
            self.least_s = float(instances.times_s(
                load, self.inst.s_per_byte).max(initial=0.0))
            return
        node, before = self.order[rank], self.order[:rank]
        need = self.inst.demand[node]
        for host in np.flatnonzero(self.inst.allowed[node]).tolist():
            if not self.budget.in_time():
                self.is_complete = False
                return
            self.budget.spend_numpy(VISIT_CALLS, len(load))
            if (need > free[host]).any():
                continue
            trial = self._with(load, node, host, before)
            if instances.times_s(trial, self.inst.s_per_byte).max(
                    initial=0.0) < self.least_s:
                self.assign[node] = host
                self.place(rank + 1, trial, self.inst.left(
                    free, np.array([host]), need))

    def _with(self, load: np.ndarray, node: int, host: int,
              before: np.ndarray) -> np.ndarray:
        """Return the loads with a node on a host."""
        result = load.copy()
        where = self.assign[before]
        for path, size_bytes in (
                (self.paths[host, where], self.sent[node, before]),
                (self.paths[where, host], self.sent[before, node])):
            cut = path >= 0
            np.add.at(result, path[cut], np.broadcast_to(
                size_bytes[:, None], path.shape)[cut])
        return result
