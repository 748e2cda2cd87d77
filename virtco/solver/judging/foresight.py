# SPDX-License-Identifier: Apache-2.0

"""Room for groups to come: which hosts the parts of a placement go to.

Two placements may cost the same and leave room in one piece or in crumbs.
Groups to come are not known; the best guess is more of the present one.
*Copies* of it, as many as still fit, are put where a group without a traffic
matrix would be: every VM sends every other the same, and each copy takes the
largest rooms first, the least loaded of those. With s_m of its n VMs on host
m, or below an uplink, and b bytes per pair, s_m (n - s_m) b leave and enter.
The sum of the copies' prefix CCTs says what a placement leaves.
"""

from collections.abc import Callable
from collections.abc import Iterator

import numpy as np

from virtco.solver import budget as budgets
from virtco.solver.model import constraints
from virtco.solver.model import instance as instances
from virtco.solver.model import objectives
from virtco.solver.model import reduction

#: A second that copies wait, in seconds of the known coflows: they may not
#: come, or be smaller.
WEIGHT = 0.3
MAX_COPIES = 8
#: Rounds over the used hosts, and placements looked at in all.
ROUNDS = 4
MAX_TRIALS = 500
#: Calls of numpy to judge a trial, and the cells that it looks at per host.
TRIAL_CALLS = 150
TRIAL_CELLS = 2000
#: A saving below this part of the cost is none.
NOTHING = 1e-9


def copies_s(inst: instances.Instance, assign: np.ndarray) -> float:
    """Sum up the prefix CCTs of copies of the group; return 0 where none fits.

    :param assign: host per node.
    """
    movable, m = inst.movable, inst.n_hosts
    n = len(movable)
    size_bytes = sum(float(size.sum()) for _src, _dst, size in inst.arcs)
    if n < 2 or not size_bytes:
        return 0.0
    room = _room(inst, assign, inst.demand[movable].mean(axis=0))
    s_per_byte = inst.s_per_byte[:inst.n_fabric]
    hose = slice(2 * m)
    total = (inst.running.per_port() + objectives.own_loads(
        inst, assign).sum(axis=0))[:inst.n_fabric]
    waiting_s = 0.0
    for _ in range(MAX_COPIES):
        if room.sum() < n:
            break
        busy_s = instances.times_s(total[hose], s_per_byte[hose]).reshape(
            2, m).max(axis=0)
        order = np.lexsort((busy_s, -room))
        taken = np.zeros(m)
        taken[order] = np.diff(np.minimum(np.cumsum(room[order]), n),
                               prepend=0.0)
        on_port = _on_ports(inst, taken)
        total = total + on_port * (n - on_port) * size_bytes / (n * (n - 1))
        waiting_s += float(instances.times_s(
            total, s_per_byte)[on_port > 0].max())
        room = room - taken
    return waiting_s


def _on_ports(inst: instances.Instance, taken: np.ndarray) -> np.ndarray:
    """Count the VMs behind every port of the fabric, ``taken`` on each host.
    """
    result = np.zeros(inst.n_fabric)
    for port_out, behind in inst.ways():
        has = port_out >= 0
        np.add.at(result, port_out[has], taken[has])
        np.add.at(result, port_out[has] + behind, taken[has])
    return result


def _room(inst: instances.Instance, assign: np.ndarray, need: np.ndarray
          ) -> np.ndarray:
    """Count the VMs of the mean size that every host still takes."""
    free = inst.left(inst.free, assign, inst.demand)
    asked = need > 0
    # Copies are other groups, with shares of their own.
    asked[len(asked) - len(inst.sharing):] = False
    if not asked.any():
        return np.zeros(inst.n_hosts)
    fits = (free[:, asked] / need[asked]).min(axis=1)
    fits[~np.isfinite(inst.s_per_byte[:2 * inst.n_hosts]).reshape(
        2, -1).all(axis=0)] = 0.0
    room: np.ndarray = np.clip(np.floor(fits + constraints.CAPACITY_EPS), 0.0,
                               len(inst.movable))
    return room


def settle(inst: instances.Instance, assign: np.ndarray,
           cost_s: Callable[[np.ndarray], float],
           budget: budgets.Budget) -> np.ndarray:
    """Exchange whole hosts' contents while the sum of both costs falls.

    :param cost_s: cost of a placement to the known coflows.
    """
    def judge(trial: np.ndarray) -> float:
        return cost_s(trial) + WEIGHT * copies_s(inst, trial)

    least_s, trials = judge(assign), 0
    for _ in range(ROUNDS):
        before_s = least_s
        for host in np.unique(assign[inst.movable]):
            for trial in _exchanges(inst, assign, int(host)):
                trials += 1
                budget.spend_numpy(TRIAL_CALLS, inst.n_hosts * TRIAL_CELLS)
                if trials > MAX_TRIALS or not budget.in_time():
                    return assign
                cost = judge(trial)
                if cost < least_s * (1 - NOTHING):
                    least_s, assign = cost, trial
                    break
        if least_s == before_s:
            break
    return assign


def _exchanges(inst: instances.Instance, assign: np.ndarray, host: int
               ) -> Iterator[np.ndarray]:
    """Exchange a host's contents with those of one host of each kind."""
    m = inst.n_hosts
    movable = inst.fixed < 0
    used = np.zeros(m, dtype=bool)
    used[assign] = True
    kinds = np.column_stack([
        np.where(used, np.arange(m), -1), inst.port_out[1:].T,
        inst.sharing.T, inst.free,
        inst.s_per_byte[:2 * m].reshape(2, m).T,
        inst.load_kinds])
    _, first, _ = reduction.classes(kinds)
    for other in np.sort(first):
        trial = assign.copy()
        trial[movable & (assign == host)] = other
        trial[movable & (assign == other)] = host
        if other != host and inst.fits(trial):
            yield trial
