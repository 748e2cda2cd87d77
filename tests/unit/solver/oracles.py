# SPDX-License-Identifier: Apache-2.0

"""Exact models to test the planner against, solved by PuLP with CBC.

Both minimise t for one small group. Numbers are scaled so that a typical time
is near 1.
"""

from collections.abc import Mapping
from typing import Any

import pulp

from virtco import exception
from virtco.model import snapshot
from virtco.solver.model import instance as instances

_TIMEOUT_S = 120


def virtco_milp(problem: snapshot.PlacementProblem
                ) -> tuple[float, tuple[str, ...]]:
    """VirtCO's problem (3), corrected: least t in seconds, host per VM.

    The equations of :mod:`virtco.solver.exact.relaxation` with binary x,
    hosts not aggregated, subtrees added: with z_jk^q for "both in subtree q",
    what leaves and enters one has the same two rows.

    :raises virtco.exception.PlacementInfeasible: when there is none.
    """
    inst = instances.build(problem)
    sent = _bytes(inst)
    nodes, hosts = range(inst.n_nodes), range(inst.n_hosts)
    unit_s = _unit_s(inst, sent)
    model = pulp.LpProblem('virtco', pulp.LpMinimize)
    t = pulp.LpVariable('t', lowBound=0)
    x = _assignment(model, inst)
    model += t
    pairs = sorted({(min(pair), max(pair)) for pair in sent})
    z = pulp.LpVariable.dicts('z', (pairs, hosts), 0, 1)
    for j, k in pairs:
        for m in hosts:
            model += z[j, k][m] <= x[j][m]
            model += z[j, k][m] <= x[k][m]
    together = {m: {pair: z[pair][m] for pair in pairs} for m in hosts}
    inside = {m: {j: x[j][m] for j in nodes} for m in hosts}
    for m in hosts:
        _add_port_rows(model, t, sent, inside[m], together[m],
                       inst.s_per_byte[m] / unit_s,
                       inst.s_per_byte[inst.n_hosts + m] / unit_s)
    for q in range(len(inst.uplinks)):
        up = 2 * inst.n_hosts + q
        mine = [m for m in hosts if up in inst.port_out[:, m]]
        within = {j: pulp.lpSum(x[j][m] for m in mine) for j in nodes}
        both = pulp.LpVariable.dicts(f'r{q}', pairs, 0, 1)
        for j, k in pairs:
            model += both[j, k] <= within[j]
            model += both[j, k] <= within[k]
        _add_port_rows(model, t, sent, within, both,
                       inst.s_per_byte[up] / unit_s,
                       inst.s_per_byte[up + len(inst.uplinks)] / unit_s)
    return _solve(model, inst, x, t, unit_s)


def choreo_ilp(problem: snapshot.PlacementProblem
               ) -> tuple[float, tuple[str, ...]]:
    """Choreo's appendix: least max D_mn / R_mn, for a pipe matrix.

    z_imjn, linearised from X_im X_jn, says that i is on m and j is on n; S
    is zero (no shared bottlenecks), as the paper has it without a topology.
    The paper's last row sums z over all m, n to J - 1 for each task; here
    sum_n z_imjn = X_im for each pair that talks, which is the same for
    binaries and tighter.

    :raises virtco.exception.PlacementInfeasible: when there is none.
    """
    if problem.pair_rate_bps is None:
        raise exception.Invalid(field='pair_rate_bps', value=None,
                                limit='a rate per pair of hosts')
    inst = instances.build(problem)
    sent = _bytes(inst)
    hosts = range(inst.n_hosts)
    unit_s = _unit_s(inst, sent)
    model = pulp.LpProblem('choreo', pulp.LpMinimize)
    slowest = pulp.LpVariable('z', lowBound=0)
    x = _assignment(model, inst)
    model += slowest
    pairs = sorted(sent)
    z = pulp.LpVariable.dicts('z', (pairs, hosts, hosts), 0, 1)
    for i, j in pairs:
        for m in hosts:
            model += pulp.lpSum(z[i, j][m][n] for n in hosts) == x[i][m]
            model += pulp.lpSum(z[i, j][n][m] for n in hosts) == x[j][m]
    first = len(inst.s_per_byte) - inst.n_hosts ** 2
    for m in hosts:
        for n in hosts:
            if m != n:
                s_per_byte = inst.s_per_byte[first + m * inst.n_hosts + n]
                model += pulp.lpSum(
                    sent[pair] * _finite(s_per_byte / unit_s) * z[pair][m][n]
                    for pair in pairs) <= slowest
    return _solve(model, inst, x, slowest, unit_s)


def _bytes(inst: instances.Instance) -> dict[tuple[int, int], float]:
    sent: dict[tuple[int, int], float] = {}
    for src, dst, size_bytes in inst.arcs:
        for j, k, size in zip(src.tolist(), dst.tolist(),
                              size_bytes.tolist(), strict=True):
            sent[j, k] = sent.get((j, k), 0.0) + size
    return sent


def _unit_s(inst: instances.Instance,
            sent: dict[tuple[int, int], float]) -> float:
    """Time of the mean flow on the mean port."""
    usual = [s for s in inst.s_per_byte.tolist()
             if 1e-30 < s < float('inf')]
    if not sent or not usual:
        return 1.0
    mean_s: float = sum(usual) / len(usual)
    return sum(sent.values()) / len(sent) * mean_s


def _finite(value: float) -> float:
    return min(value, 1e9)


def _assignment(model: pulp.LpProblem, inst: instances.Instance
                ) -> dict[int, dict[int, pulp.LpVariable]]:
    """Each node on one allowed host, each resource of a host kept."""
    nodes, hosts = range(inst.n_nodes), range(inst.n_hosts)
    x: dict[int, dict[int, pulp.LpVariable]] = pulp.LpVariable.dicts(
        'x', (nodes, hosts), cat=pulp.LpBinary)
    for j in nodes:
        model += pulp.lpSum(x[j].values()) == 1
        for m in hosts:
            if not inst.allowed[j, m]:
                model += x[j][m] == 0
    for m in hosts:
        for r in range(inst.demand.shape[1]):
            model += pulp.lpSum(
                float(inst.demand[j, r]) * x[j][m]
                for j in nodes) <= max(0.0, float(inst.free[m, r]))
    return x


def _add_port_rows(model: pulp.LpProblem, t: pulp.LpVariable,
                   sent: dict[tuple[int, int], float],
                   inside: Mapping[int, Any],
                   together: Mapping[tuple[int, int], Any],
                   s_out: float, s_in: float) -> None:
    """What leaves and enters a set of hosts takes at most t."""
    kept = pulp.lpSum(size * together[min(j, k), max(j, k)]
                      for (j, k), size in sent.items())
    out = pulp.lpSum(size * inside[j] for (j, _k), size in sent.items())
    into = pulp.lpSum(size * inside[k] for (_j, k), size in sent.items())
    for load, s_per_byte in ((out - kept, s_out), (into - kept, s_in)):
        if s_per_byte > 0:
            model += _finite(s_per_byte) * load <= t


def _solve(model: pulp.LpProblem, inst: instances.Instance,
           x: dict[int, dict[int, pulp.LpVariable]], t: pulp.LpVariable,
           unit_s: float) -> tuple[float, tuple[str, ...]]:
    status = model.solve(pulp.PULP_CBC_CMD(
        msg=False, timeLimit=_TIMEOUT_S, gapRel=0.0))
    if status != pulp.LpStatusOptimal:
        raise exception.PlacementInfeasible(
            what=f'{inst.n_nodes} VMs', why=pulp.LpStatus[status])
    hosts = {j: max(x[j], key=lambda m: pulp.value(x[j][m])) for j in x}
    names = tuple(inst.host_name(hosts[int(node)])
                  for node in inst.node_of_vm)
    return float(pulp.value(t)) * unit_s, names
