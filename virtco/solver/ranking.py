# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Every candidate host of one VM, ranked, the others staying as planned."""

import math

import numpy as np

from virtco.model import snapshot
from virtco.solver import instance as instances
from virtco.solver import objectives


def rank(inst: instances.Instance, objective: snapshot.Objective,
         assign: np.ndarray, vm_index: int
         ) -> tuple[snapshot.RankedHost, ...]:
    """Best first, infeasible last; ties keep the planned host in front.

    The VMs of its affinity group go where the VM goes.

    :param inst: built with ``reduce=False``.
    :param assign: planned host per node.
    """
    node = int(inst.node_of_vm[vm_index])
    planned = int(assign[node])
    free = np.maximum(inst.free, 0.0)
    free += instances.CAPACITY_EPS * np.maximum(1.0, free)
    np.subtract.at(free, assign, inst.demand)
    free[planned] += inst.demand[node]
    siblings = np.zeros(inst.n_hosts, dtype=bool)
    siblings[np.delete(assign, node)] = True
    siblings[planned] = True
    cache: dict[tuple[float, ...], objectives.Evaluation] = {}
    ranked = []
    for host in range(inst.n_hosts):
        why_not = _why_not(inst, free, node, host)
        if why_not:
            ranked.append((1, math.inf, math.inf, host != planned, host,
                           why_not))
            continue
        key = ((float(host),) if siblings[host] or inst.pipe
               else _kind(inst, host))
        if key not in cache:
            trial = assign.copy()
            trial[node] = host
            cache[key] = objectives.evaluate(inst, trial, objective)
        value = cache[key]
        why = _why(inst, value, assign, planned, host)
        ranked.append((0, value.objective_s, value.cct_s, host != planned,
                       host, why))
    ranked.sort(key=lambda row: row[:5])
    return tuple(
        snapshot.RankedHost(inst.host_name(host), not bad, objective_s,
                            cct_s, why)
        for bad, objective_s, cct_s, _other, host, why in ranked)


def _kind(inst: instances.Instance, host: int) -> tuple[float, ...]:
    """Hosts of the same kind without siblings cost the same."""
    m = inst.n_hosts
    return (-1.0, float(inst.s_per_byte[host]),
            float(inst.s_per_byte[m + host]), float(inst.rack_of[host]),
            *inst.active_bytes[:, host].tolist(),
            *inst.active_bytes[:, m + host].tolist())


def _why_not(inst: instances.Instance, free: np.ndarray, node: int,
             host: int) -> str:
    problem = inst.problem
    name = inst.host_name(host)
    if inst.fixed[node] >= 0:
        pin = inst.host_name(int(inst.fixed[node]))
        return '' if host == inst.fixed[node] else f'it is pinned to {pin}'
    if name in problem.excluded_hosts:
        return 'the host is excluded'
    for vm in inst.node_vms[node]:
        hosts = problem.vms[vm].allowed
        if hosts is not None and name not in hosts:
            return f'not a candidate host of {problem.vms[vm].name}'
    n_own = len(problem.resources)
    for r, need in enumerate(inst.demand[node]):
        if need > 0 and need > free[host, r]:
            if r >= n_own:
                return 'its anti-affinity group already has VMs there'
            left = max(0.0, float(free[host, r]))
            return (f'needs {need:g} {problem.resources[r]}, {left:g} left '
                    f'beside the planned VMs')
    if not inst.allowed[node, host]:
        return 'its affinity group is elsewhere'
    return ''


def _why(inst: instances.Instance, value: objectives.Evaluation,
         assign: np.ndarray, planned: int, host: int) -> str:
    port = inst.port_name(value.port) if value.port >= 0 else 'no port'
    beside = sum(len(inst.node_vms[j])
                 for j in np.flatnonzero(assign == host))
    if host == planned:
        return f'planned; {port} decides with {value.cct_s:.4g} s'
    company = f'beside {beside} VMs of its group' if beside else (
        'alone there')
    return f'{company}; {port} decides with {value.cct_s:.4g} s'
