# SPDX-License-Identifier: Apache-2.0

"""The exact placement of a small group.

Subset dynamic programming where only hosts limit, exhaustive branch and
bound where trees or pipes tie the hosts together.
"""

from collections.abc import Callable
import itertools
import math
from typing import Any

import numpy as np

from virtco import compiled
from virtco.solver import budget as budgets
from virtco.solver.exact import enumeration
from virtco.solver.exact import subsets
from virtco.solver.model import instance as instances
from virtco.solver.model import traffic

MAX_NODES = 12
MAX_STEPS = 4e7
#: Placements tried by the exhaustive search, and when it is tried at all.
MAX_VISITS = 1_000_000
MAX_PLACEMENTS = 1e8
MAX_PORTS = 200
#: Work to try a node on a host, and for each port.
VISIT_UNITS = 50.0
PORT_UNITS = 1.0
#: Placements judged one by one.
MAX_JUDGED = 1000


def applies(inst: instances.Instance) -> bool:
    """Hose model only: trees and pipes tie the hosts together."""
    n = len(inst.movable)
    return (0 < n <= MAX_NODES and not inst.pipe and not inst.uplinks
            and steps(inst) <= MAX_STEPS)


def steps(inst: instances.Instance) -> float:
    """What the dynamic programme takes."""
    return inst.n_hosts * 3.0 ** len(inst.movable)


def solve(inst: instances.Instance) -> tuple[float, np.ndarray | None]:
    """Least t of Eq. (3) and a placement; (inf, None) if none fits."""
    movable = inst.movable
    n, m = len(movable), inst.n_hosts
    full = 1 << n
    time = _times(inst)
    value, before = np.zeros(full), np.zeros(full)
    choice = np.zeros(m * full, dtype=np.int64)
    best = subsets.solve(n, m, time.ravel(), value, choice, before)
    assign = inst.fixed.copy()
    left = full - 1
    for host in range(m - 1, -1, -1):
        mine = int(choice[host * full + left])
        for bit in range(n):
            if mine >> bit & 1:
                assign[movable[bit]] = host
        left ^= mine
    if left or not inst.fits(assign):
        return np.inf, None
    return float(best), assign


def _sums(values: np.ndarray) -> np.ndarray:
    """Sum over each subset, shape (2 ** n, ...) from (n, ...)."""
    result = np.zeros((1, *values.shape[1:]))
    for row in values:
        result = np.concatenate([result, result + row])
    return result


def _times(inst: instances.Instance) -> np.ndarray:
    """time_m(T), shape (M, 2 ** n)."""
    movable, m = inst.movable, inst.n_hosts
    dense = traffic.one_way(inst)
    own = dense[np.ix_(movable, movable)]
    inside = np.zeros(1)
    for j in range(len(movable)):
        with_j = _sums(own[j, :j] + own[:j, j])
        inside = np.concatenate([inside, inside + with_j])
    out = _sums(dense[movable].sum(axis=1)) - inside
    into = _sums(dense[:, movable].sum(axis=0)) - inside
    used = _sums(inst.demand[movable])
    banned = _sums((~inst.allowed[movable]).astype(float))
    time = np.zeros((m, len(out)))
    for host in range(m):
        pinned = np.flatnonzero(inst.fixed == host)
        both = dense[pinned].sum(axis=0) + dense[:, pinned].sum(axis=1)
        within = dense[np.ix_(pinned, pinned)].sum()
        met = _sums(both[movable])
        sent = np.maximum(out + dense[pinned].sum() - within - met, 0.0)
        received = np.maximum(
            into + dense[:, pinned].sum() - within - met, 0.0)
        time[host] = np.maximum(
            _clean(sent, inst.s_per_byte[host], dense),
            _clean(received, inst.s_per_byte[m + host], dense))
        misfit = (used > inst.room[host]).any(axis=1) | (banned[:, host] > 0)
        time[host][misfit] = np.inf
    return time


def _clean(sizes: np.ndarray, s_per_byte: float,
           dense: np.ndarray) -> np.ndarray:
    """Times of sums that rounding may have left just above 0."""
    sizes = np.where(sizes < 1e-12 * dense.sum(), 0.0, sizes)
    return instances.times_s(sizes, np.array(s_per_byte))


def try_all(inst: instances.Instance, key: Callable[[np.ndarray], Any]
            ) -> np.ndarray | None:
    """The valid placement of least key; None when there are too many.

    For objectives that no dynamic programme splits: several coflows.
    """
    movable = inst.movable
    hosts = [np.flatnonzero(inst.allowed[node]) for node in movable]
    if math.prod(len(row) for row in hosts) > MAX_JUDGED:
        return None
    best, best_key = None, None
    for choice in itertools.product(*hosts):
        assign = inst.fixed.copy()
        assign[movable] = choice
        if inst.fits(assign):
            value = key(assign)
            if best_key is None or value < best_key:
                best, best_key = assign, value
    return best


def enumerable(inst: instances.Instance) -> bool:
    """Whether exhaustive search is worth a try."""
    n = len(inst.movable)
    return (0 < n <= MAX_NODES and float(inst.n_hosts) ** n <= MAX_PLACEMENTS
            and len(inst.s_per_byte) <= MAX_PORTS)


def enumerate_all(inst: instances.Instance, upper_s: float,
                  budget: budgets.Budget
                  ) -> tuple[float, np.ndarray | None] | None:
    """Least t below upper_s and its placement, None at the limit.

    (upper_s, None) proves that nothing is better.
    """
    order = np.argsort(np.where(inst.fixed >= 0, 0, 1) * 1e300
                       - traffic.both_ways(inst).sum(axis=1),
                       kind='stable')
    dense = traffic.one_way(inst)[np.ix_(order, order)]
    n, m, ports = inst.n_nodes, inst.n_hosts, len(inst.s_per_byte)
    hosts, best = np.full(n, -1, dtype=np.int64), np.zeros(n, dtype=np.int64)
    counts = np.zeros(1, dtype=np.int64)
    cutoff = upper_s * (1 - 1e-12) if np.isfinite(upper_s) else upper_s
    paths = _paths(inst)
    tree = enumeration.Tree(**compiled.views(
        n=n, n_hosts=m, n_ports=ports, n_resources=inst.demand.shape[1],
        sent=dense.ravel(), paths=paths.ravel(), s_per_byte=inst.s_per_byte,
        demand=inst.demand[order].ravel(),
        allowed=inst.allowed[order].astype(np.uint8).ravel(),
        n_path=paths.shape[2], free=inst.room.ravel().copy(),
        load=np.zeros((n + 1) * ports), hosts=hosts, best=best,
        counts=counts))
    visit_units = VISIT_UNITS + PORT_UNITS * ports
    least_s = enumeration.search(tree, cutoff, int(min(
        MAX_VISITS, budget.units() / visit_units)))
    budget.spend(visit_units * counts[0])
    if least_s < 0:
        return None
    if least_s >= cutoff:
        return upper_s, None
    assign = np.zeros(n, dtype=np.int64)
    assign[order] = best
    return float(least_s), assign


def _paths(inst: instances.Instance) -> np.ndarray:
    """Ports of every path, -1 for none; shape (M, M, X)."""
    m = inst.n_hosts
    ports = []
    for port_out, behind in inst.ways():
        up, down = np.meshgrid(port_out, port_out, indexing='ij')
        ports += [np.where((up != down) & (up >= 0), up, -1),
                  np.where((up != down) & (down >= 0), down + behind, -1)]
    if inst.pipe:
        ports.append(inst.n_fabric + np.arange(m * m).reshape(m, m))
    return np.stack(ports, axis=-1)
