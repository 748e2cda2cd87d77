# SPDX-License-Identifier: Apache-2.0

"""The exact placement of a small group, by exhaustive search."""

import dataclasses
import math
import types

import numpy as np

from virtco import compiled
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import enumeration_kernel
from virtco.solver.bounds import lowerbounds
from virtco.solver.model import instance as instances
from virtco.solver.model import objectives

#: Movable nodes, with pipes and without, and ports up to which branch and
#: bound is tried.
MAX_NODES = 16
MAX_PIPED = 40
MAX_PORTS = 1000
#: Part of a known time that a better placement takes at most.
CLOSER = 1 - 1e-12
#: Work at a target at first, and its growth.
FIRST_UNITS = 1e6
MORE_UNITS = 4
#: Ratio of bounds at which the upper one is the target, and part of it below
#: which there is none.
NEAR = 1.01
LEAST = 1e-3
#: Calls of numpy to begin.
BEGIN_CALLS = 150
#: Placements that are judged one by one, those of a block, and a block's loads
#: of ports by coflows, each at most: 8 bytes each, in a few arrays at once.
MAX_JUDGED = 50_000
BLOCK = 1000
BLOCK_LOADS = 4_000_000
#: Calls of numpy for a block, and cells of a placement: for each port and
#: coflow, and for each flow and row of ports.
JUDGE_CALLS = 100
JUDGE_CELLS = 35
PATH_CELLS = 150


def try_all(inst: instances.Instance, objective: snapshot.Objective,
            budget: budgets.Budget) -> np.ndarray | None:
    """Find the valid placement of least key; None when there are too many.

    For objectives that no dynamic programme splits: several coflows.
    """
    movable = inst.movable
    hosts = [np.flatnonzero(inst.allowed[node]) for node in movable]
    sizes = [len(row) for row in hosts]
    count = math.prod(sizes)
    n_loads = len(inst.s_per_byte) * (len(inst.running) + len(inst.arcs))
    cells = JUDGE_CELLS * n_loads + sum(
        PATH_CELLS * len(inst.port_out) * len(src)
        for src, _dst, _bytes in inst.arcs)
    if count > MAX_JUDGED or not budget.holds(count * cells):
        return None
    best: np.ndarray | None = None
    least = np.full(2, np.inf)
    block = max(1, min(BLOCK, BLOCK_LOADS // max(1, n_loads)))
    for first in range(0, count, block):
        numbers = np.arange(first, min(first + block, count))
        budget.spend_numpy(JUDGE_CALLS, len(numbers) * cells)
        assigns = np.tile(inst.fixed, (len(numbers), 1))
        for node, row, which in zip(movable, hosts, np.unravel_index(
                numbers, sizes) if sizes else (), strict=True):
            assigns[:, node] = row[which]
        assigns = assigns[inst.fit_all(assigns)]
        keys = objectives.keys_of_many(inst, assigns, objective)
        for i in np.lexsort(keys.T[::-1])[:1]:
            if best is None or tuple(keys[i]) < tuple(least):
                best, least = assigns[i], keys[i]
    return best


def enumerable(inst: instances.Instance) -> bool:
    """Return whether branch and bound is worth a try."""
    return (0 < len(inst.movable) <= (MAX_PIPED if inst.pipe else MAX_NODES)
            and len(inst.s_per_byte) <= MAX_PORTS)


def enumerate_all(inst: instances.Instance, upper_s: float,
                  budget: budgets.Budget, lower_s: float = 0.0
                  ) -> tuple[float, np.ndarray | None]:
    """Find a bound of t, and the best placement found below upper_s.

    Targets far from the least t are soon refuted or reached. So these come
    first, with little work each, then those between, with more and more. The
    nodes that had no host at one target are placed early at the next.

    :param lower_s: bound that is known.
    :returns: the bound is the least t, or upper_s if none is better, where
        all placements were tried.
    """
    best: np.ndarray | None = None
    units = FIRST_UNITS
    weight = inst.exchanged.sum(axis=1)
    while lower_s < upper_s and budget.in_time():
        low_s = lower_s
        while budget.in_time():
            aim_s = upper_s
            if low_s * NEAR < upper_s:
                aim_s = math.sqrt(max(low_s, LEAST * upper_s) * upper_s)
            least_s, is_done, found = _search(inst, aim_s, units, budget,
                                              weight)
            if found is not None:
                best, upper_s = found, least_s
            if is_done:
                low_s = lower_s = max(lower_s, least_s)
            elif found is None:
                # Neither: the rest of this round is for those above.
                low_s = aim_s
            if lower_s >= upper_s or low_s >= upper_s:
                break
        units *= MORE_UNITS
    return lower_s, best


def _search(inst: instances.Instance, aim_s: float, units: float,
            budget: budgets.Budget, weight: np.ndarray
            ) -> tuple[float, bool, np.ndarray | None]:
    """Search for placements below aim_s for a while.

    :param weight: weights of nodes, raised in place.
    :returns: the least t found or aim_s; whether all were tried; the best.
    """
    state = _begin(inst, aim_s, weight=weight)
    budget.spend_numpy(BEGIN_CALLS, state.open.nbytes + state.load.nbytes)
    is_done = bool((np.array(state.load[:state.n_ports])
                    > np.array(state.limit)).any())
    while not is_done and units > 0 and budget.in_time():
        is_done = enumeration_kernel.search(state, CLOSER, min(
            units, budget.chunk()))
        budget.spend(state.work[0])
        units -= state.work[0]
    best = np.array(state.best) if state.counts[3] else None
    return state.least_s[0], is_done, best


def _begin(inst: instances.Instance, upper_s: float,
           code: types.ModuleType = enumeration_kernel,
           weight: np.ndarray | None = None) -> enumeration_kernel.Search:
    """Prepare the kernel with the pinned nodes placed.

    :param code: the kernel, another one for comparison.
    :param weight: weights of nodes, raised in place; by default their bytes.
    """
    (n, r), m, ports = inst.demand.shape, inst.n_hosts, len(inst.s_per_byte)
    load, free = np.zeros((n + 1, ports)), np.zeros((n + 1, m * r))
    load[0], free[0] = _pinned_bytes(inst), inst.room.ravel()
    may_go = np.zeros((n + 1, n, m), dtype=np.uint8)
    may_go[0] = inst.allowed
    with np.errstate(divide='ignore', invalid='ignore'):
        limit = np.where(np.isinf(inst.s_per_byte), 0.0,
                         upper_s * CLOSER / inst.s_per_byte)
    alike = np.arange(m)
    if not inst.pipe:
        for hosts in inst.alike(inst.s_per_byte[:2 * m].reshape(2, m)):
            alike[hosts] = hosts[0]
    start, node, out, into = lowerbounds.adjacency(inst.sent)
    state: enumeration_kernel.Search = code.Search(**compiled.views(
        n=n, n_hosts=m, n_resources=r, n_uplinks=len(inst.uplinks),
        n_rows=len(inst.port_out), n_ports=ports, pipe=int(inst.pipe),
        demand=inst.demand.ravel(), slot=inst.slot.ravel(), alike=alike,
        port_out=inst.port_out.ravel(), adj_start=start, adj_node=node,
        adj_out=out, adj_in=into, traffic=inst.exchanged.sum(axis=1),
        weight=inst.exchanged.sum(axis=1) if weight is None else weight,
        s_per_byte=inst.s_per_byte, limit=limit, load=load.ravel(),
        free=free.ravel(), extra=np.zeros(ports),
        touched=np.zeros(ports, dtype=np.int64),
        drawn=np.zeros(n + 1, dtype=np.int64), sent=np.zeros(n),
        received=np.zeros(n), need=np.zeros(r),
        n_on=np.bincount(inst.fixed[inst.fixed >= 0], minlength=m),
        assign=inst.fixed.copy(), near=np.zeros(n, dtype=np.uint8),
        open=may_go.ravel(),
        node_at=np.zeros(n + 1, dtype=np.int64), best=inst.fixed.copy(),
        least_s=np.array([upper_s]), counts=np.array([0, 0, 1, 0]),
        work=np.zeros(1)))
    return state


def _pinned_bytes(inst: instances.Instance) -> np.ndarray:
    """Compute the bytes between pinned nodes per port, shape (P,)."""
    pinned = inst.fixed >= 0
    src, dst = np.nonzero(inst.sent * (pinned[:, None] & pinned))
    between = dataclasses.replace(
        inst, arcs=((src, dst, inst.sent[src, dst]),))
    result: np.ndarray = objectives.own_loads(between, inst.fixed)[0]
    return result
