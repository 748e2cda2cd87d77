# SPDX-License-Identifier: Apache-2.0

"""Some valid placement, or the proof that there is none."""

import random

import numpy as np
import scipy

from virtco import exception
from virtco.solver import budget as budgets
from virtco.solver.model import instance as instances
from virtco.solver.starts import candidates

_INFEASIBLE = 2
#: Time of the integer program even if the budget is spent: without it there is
#: no answer at all.
LEAST_S = 0.05
MILP_NODES = 100_000
#: Work for each pair of node and host, at each node of the tree.
MILP_UNITS = 1000.0


def any_placement(inst: instances.Instance, seed: int,
                  budget: budgets.Budget) -> np.ndarray:
    """Find a placement by best or random fit, else by integer programming.

    :raises virtco.exception.PlacementInfeasible: when there is none, or
        none was found within the budget.
    """
    found = candidates.best_fit(inst)
    candidates.spend(inst, budget)
    rng = random.Random(seed)
    for _ in range(8):
        if found is not None:
            return found
        found = candidates.random_fit(inst, rng)
        candidates.spend(inst, budget)
    return found if found is not None else _by_milp(inst, budget)


def _by_milp(inst: instances.Instance, budget: budgets.Budget) -> np.ndarray:
    """Solve multi-dimensional bin packing as a feasibility MILP (HiGHS)."""
    rows, columns = np.nonzero(inst.allowed)
    count = len(rows)
    cover = scipy.sparse.csr_matrix(
        (np.ones(count), (rows, np.arange(count))),
        shape=(inst.n_nodes, count))
    constraints = [scipy.optimize.LinearConstraint(cover, 1, 1)]
    for r in range(inst.demand.shape[1]):
        slots, which = np.unique(inst.slot[:, r], return_inverse=True)
        room = scipy.sparse.csr_matrix(
            (inst.demand[rows, r], (which[columns], np.arange(count))),
            shape=(len(slots), count))
        constraints.append(scipy.optimize.LinearConstraint(
            room, 0, inst.room.ravel()[slots]))
    result = scipy.optimize.milp(
        np.zeros(count), integrality=np.ones(count),
        bounds=scipy.optimize.Bounds(0, 1), constraints=constraints,
        options={'time_limit': max(LEAST_S, budget.machine_s()),
                 'node_limit': MILP_NODES})
    budget.spend(MILP_UNITS * count * (1 + (result.mip_node_count or 0)))
    if result.x is None:
        proved = result.status == _INFEASIBLE
        raise exception.PlacementInfeasible(
            what=f'{len(inst.node_of_vm)} VMs on {inst.n_hosts} hosts',
            why=('capacities and constraints exclude every assignment'
                 if proved else 'none was found within the time budget'))
    assign = np.zeros(inst.n_nodes, np.int64)
    chosen = np.flatnonzero(np.rint(result.x))
    assign[rows[chosen]] = columns[chosen]
    return assign
