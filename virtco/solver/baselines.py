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

"""The first-class planners other than virtco's own.

``virtco-printed`` is Algorithm 2 as the paper has it: the newcomer alone,
on the bandwidth that the running coflows leave, solved nearly to optimality
by the local search. The others know no coflow at all.
"""

import dataclasses
import random

import numpy as np

from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver.model import instance as instances
from virtco.solver.moves import mincut
from virtco.solver.starts import candidates
from virtco.solver.starts import choreo

NAMES = ('virtco-printed', 'lp-rounding', 'spread', 'min-cut', 'random',
         'round-robin', 'min-machines', 'choreo')
#: Moves per node of the minimum cut.
CUT_MOVES = 500
#: A host without residual bandwidth keeps this share, so that the printed
#: method can tell a full host from a dead one.
LEAST_RESIDUAL = 1e-3


def place(name: str, inst: instances.Instance, seed: int,
          budget: budgets.Budget) -> np.ndarray | None:
    """Hosts per node by the rule of that name; None when it gets stuck."""
    candidates.spend(inst, budget)
    rng = random.Random(seed)
    if name == 'spread':
        return candidates.spread(inst, rng)
    if name == 'random':
        return candidates.random_fit(inst, rng)
    if name == 'round-robin':
        return candidates.round_robin(inst)
    if name == 'min-machines':
        return candidates.min_machines(inst)
    if name == 'choreo':
        return choreo.place(inst, budget)
    return mincut.place(inst, seed, budget, CUT_MOVES * inst.n_nodes)


def residual(problem: snapshot.PlacementProblem
             ) -> snapshot.PlacementProblem:
    """The problem on the bandwidth that the active coflows leave.

    Active coflows get MADD rates (bytes / CCT on what is left) in MRTF
    order, as VirtCO's Algorithm 1 line 5 hands them out.
    """
    hosts = {host.name: [host.egress_bps, host.ingress_bps]
             for host in problem.hosts}
    loads = []
    for active in problem.active:
        rows = [(name, way, size) for way, entries in
                enumerate((active.out_bytes, active.in_bytes))
                for name, size in entries if name in hosts and size > 0]
        loads.append((_alone_s(rows, hosts), rows))
    left = {name: list(rates) for name, rates in hosts.items()}
    for _alone, rows in sorted(loads, key=lambda item: item[0]):
        seconds = _alone_s(rows, left)
        if 0 < seconds < float('inf'):
            for name, way, size in rows:
                left[name][way] = max(0.0, left[name][way]
                                      - 8 * size / seconds)
    return dataclasses.replace(
        problem, active=(), hosts=tuple(
            dataclasses.replace(
                host,
                egress_bps=max(left[host.name][0],
                               LEAST_RESIDUAL * host.egress_bps),
                ingress_bps=max(left[host.name][1],
                                LEAST_RESIDUAL * host.ingress_bps))
            for host in problem.hosts))


def _alone_s(rows: list[tuple[str, int, float]],
             rates: dict[str, list[float]]) -> float:
    return max((8 * size / rates[name][way] if rates[name][way] > 0
                else float('inf') for name, way, size in rows), default=0.0)
