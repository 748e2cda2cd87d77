# SPDX-License-Identifier: Apache-2.0

"""Exact cost of a placement: its only definition.

With load L_i(m) of coflow i on port m and B(m) its bandwidth, a coflow alone
takes max_m L_i(m) / B(m) (VirtCO Eq. 3). Coflows are served in the order of
that time (MRTF, VirtCO Algorithm 1). The *prefix CCT* of the i-th is
max_m sum_{j <= i} L_j(m) / B(m). It estimates when the i-th ends and bounds
it from neither side: back-fill may serve a coflow before its turn, and one
that shares ports waits at one of them while MADD holds its others back
(:mod:`virtco.solver.judging.judge` simulates that). ONLINE and JOINT sum the
prefix CCTs of the coflows that run and of the problem's own; ISOLATED is the
time of the own coflows together. 0/0 = 0, x/0 = inf.

ONLINE also looks ahead to coflows that are not known yet. If the present is
typical, they come at the rate at which the A running ones end, A / T with T
their mean remaining CCT. One that comes waits at one of the fabric's
ports, any of them as far as anybody knows, until the backlog there is gone.
A backlog of b seconds is worked off in b seconds, so it costs b^2 / 2 for
each port and coflow per second. The own time x at a port raises that by
((b + x)^2 - b^2) / 2 (:class:`Ahead`).
"""

import dataclasses

import numpy as np

from virtco.model import snapshot
from virtco.solver.model import instance as instances
from virtco.solver.model import loads as running_loads


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Costs of one assignment.

    :ivar cct_s: own coflows together, Eq. (3).
    :ivar coflow_cct_s: prefix CCT per own coflow.
    :ivar objective_s: value that is minimised.
    :ivar ahead_s: the part of it that coflows to come will wait.
    :ivar port: port that decides cct_s, -1 for none.
    """

    cct_s: float
    coflow_cct_s: tuple[float, ...]
    objective_s: float
    ahead_s: float
    port: int

    @property
    def key(self) -> tuple[float, float]:
        """A key to compare evaluations by; less is better."""
        return self.objective_s, self.cct_s


def own_loads(inst: instances.Instance, assign: np.ndarray) -> np.ndarray:
    """Compute the bytes per own coflow and port, shape (C, P)."""
    loads = np.zeros((len(inst.arcs), len(inst.s_per_byte)))
    for row, (src, dst, size_bytes) in zip(loads, inst.arcs):
        paths = inst.paths(assign[src], assign[dst])
        arc, column = np.nonzero(paths >= 0)
        np.add.at(row, paths[arc, column], size_bytes[arc])
    return loads


@dataclasses.dataclass(frozen=True)
class Ahead:
    """Wait of coflows to come for the own bytes.

    :ivar rate: coflows that come, per second and port, halved.
    :ivar backlog_s: backlog of the running coflows per port of the fabric.
    """

    rate: float
    backlog_s: np.ndarray

    @classmethod
    def of(cls, inst: instances.Instance, objective: snapshot.Objective
           ) -> 'Ahead':
        ends_s = inst.running_prefix_s[inst.active_cct_s > 0]
        mean_s = ends_s.mean() if len(ends_s) else 0.0
        rate = 0.0
        if objective == snapshot.Objective.ONLINE and (
                0 < mean_s < np.inf):
            rate = len(ends_s) / mean_s / (
                4 * (len(inst.problem.hosts) + len(inst.uplinks)))
        return cls(rate, inst.backlog_s[:inst.n_fabric])

    def per_port_s(self, own_s: np.ndarray,
                   port: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Compute ((b + x)^2 - b^2) * rate for own times x on fabric ports."""
        with np.errstate(invalid='ignore'):
            return np.where(own_s > 0, self.rate * own_s * (
                2 * self.backlog_s[port] + own_s), 0.0)


def mrtf_order(inst: instances.Instance, own_s: np.ndarray) -> np.ndarray:
    """Sort coflows by isolated CCT, rising: active ones 0..A-1, own ones A...

    Active coflows go first on a tie.
    """
    return np.argsort(np.concatenate([inst.active_cct_s, own_s]),
                      kind='stable')


def own_cct_s(inst: instances.Instance, loads: np.ndarray) -> np.ndarray:
    """Compute the isolated CCT of every own coflow, in s, shape (C,)."""
    cct_s: np.ndarray = instances.times_s(loads, inst.s_per_byte).max(
        axis=1, initial=0.0)
    return cct_s


def evaluate(inst: instances.Instance, assign: np.ndarray,
             objective: snapshot.Objective) -> Evaluation:
    """Evaluate an assignment: CCTs in seconds, objective and slowest port."""
    loads = own_loads(inst, assign)
    times = instances.times_s(loads.sum(axis=0), inst.s_per_byte)
    port = int(times.argmax()) if len(times) else -1
    cct_s = float(times[port]) if port >= 0 else 0.0
    prefix_s = prefix_cct_s(inst, loads)
    n_active = len(inst.running)
    ahead_s = 0.0
    if (ahead := Ahead.of(inst, objective)).rate:
        ahead_s = float(ahead.per_port_s(times[:inst.n_fabric]).sum())
    if objective == snapshot.Objective.ISOLATED:
        objective_s = cct_s
    else:
        objective_s = float(prefix_s.sum()) + ahead_s
    return Evaluation(cct_s, tuple(map(float, prefix_s[n_active:])),
                      objective_s, ahead_s, port if cct_s > 0 else -1)


def keys_of_many(inst: instances.Instance, assigns: np.ndarray,
                 objective: snapshot.Objective) -> np.ndarray:
    """Compute the keys of many assignments at once, shape (N, 2).

    :param assigns: host per node of each, shape (N, n).
    """
    count, n_ports = len(assigns), len(inst.s_per_byte)
    n_active = len(inst.running)
    loads = np.zeros((count, n_active + len(inst.arcs), n_ports))
    loads[:, :n_active] = inst.running.dense()
    for coflow, (src, dst, size_bytes) in enumerate(inst.arcs, n_active):
        paths = inst.paths(assigns[:, src], assigns[:, dst])
        row, arc, column = np.nonzero(paths >= 0)
        loads[:, coflow] = np.bincount(
            row * n_ports + paths[row, arc, column], size_bytes[arc],
            count * n_ports).reshape(count, n_ports)
    own_s = instances.times_s(loads[:, n_active:].sum(axis=1),
                              inst.s_per_byte)
    cct_s = own_s.max(axis=1, initial=0.0)
    if objective == snapshot.Objective.ISOLATED:
        return np.column_stack([cct_s, cct_s])
    alone_s = instances.times_s(loads, inst.s_per_byte).max(axis=2)
    alone_s[:, :n_active] = inst.active_cct_s
    order = np.argsort(alone_s, axis=1, kind='stable')
    seen = np.cumsum(order < n_active, axis=1)
    prefixes = np.take_along_axis(loads, order[:, :, None], 1).cumsum(axis=1)
    prefix_s = np.maximum(instances.times_s(prefixes, inst.s_per_byte).max(
        axis=2), inst.floor_s[seen])
    total_s = prefix_s.sum(axis=1)
    if (ahead := Ahead.of(inst, objective)).rate:
        total_s += ahead.per_port_s(own_s[:, :inst.n_fabric]).sum(axis=1)
    return np.column_stack([total_s, cct_s])


def prefix_cct_s(inst: instances.Instance,
                 loads: np.ndarray) -> np.ndarray:
    """Compute the prefix CCT of every active, then every own coflow, in s."""
    n_active = len(inst.running)
    order = mrtf_order(inst, own_cct_s(inst, loads))
    _ports, slowest_s = inst.running.then(running_loads.of_dense(
        loads)).ordered(order).prefix_tops(inst.s_per_byte, 1)
    result = np.empty(len(order))
    result[order] = np.maximum(
        slowest_s[1:, 0], inst.floor_s[np.cumsum(order < n_active)])
    return result
