# SPDX-License-Identifier: Apache-2.0

"""What the objective is worth: Table 2's six coflows under every planner.

``python -m benchmarks.objectives [--seeds N] [--budget S] [--cpu] [--json]``

Per seed and density the six applications (flows by
:func:`benchmarks.instances.table_2_flows`) arrive together and are placed
one after another on 18 hosts of 12 slots and 1 Gbit/s, in a random order
that all schemes share; every VM takes one slot. With *bg*, background VMs
fill 60 random slots and the bandwidth of every port is multiplied by a
uniform draw from 0.3 ... 0.9. Each scheme sees what was placed before; the
joint one places all six at once. All are judged alike: average over the
coflows of the prefix CCT in the order of rising isolated CCT, on the same
bandwidth.
"""

import argparse
import json
import random
import statistics
import sys
import time
from typing import Any

import numpy as np

from benchmarks import instances
from virtco.model import cluster
from virtco.model import coflow as coflow_model
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import planner as planners
from virtco.solver.bounds import lowerbounds
from virtco.solver.model import instance as solver_instances
from virtco.solver.model import objectives
from virtco_lab.placement import baselines

ONLINE = snapshot.Objective.ONLINE
ISOLATED = snapshot.Objective.ISOLATED
#: Column -> (planner, objective); joint is apart.
SCHEMES = {
    'random placement': ('random', ISOLATED),
    'spread': ('spread', ISOLATED),
    'min machines': ('min-machines', ISOLATED),
    'round robin': ('round-robin', ISOLATED),
    'Choreo greedy': ('choreo', ISOLATED),
    'strong min-cut TA': ('min-cut', ISOLATED),
    'VirtCO as printed': ('virtco-printed', ISOLATED),
    'VirtCO, full bandwidth': ('virtco', ISOLATED),
    'virtco online': ('virtco', ONLINE),
}
#: What budgets are counted by; ``--cpu`` changes it.
CLOCK = [time.monotonic]
SLOTS = 12
RATE_BPS = 1e9


def cloud(rng: random.Random, background: bool) -> list[cluster.Host]:
    hosts = []
    taken = [0] * 18
    for _ in range(60 if background else 0):
        taken[rng.choice([m for m in range(18) if taken[m] < SLOTS])] += 1
    for m in range(18):
        out, into = (rng.uniform(.3, .9) if background else 1.0
                     for _ in range(2))
        hosts.append(cluster.Host(f'h{m}', (float(SLOTS - taken[m]),),
                                  RATE_BPS * out, RATE_BPS * into))
    return hosts


def applications(rng: random.Random, density: str
                 ) -> list[coflow_model.Coflow]:
    apps = [coflow_model.Coflow.from_flows(
        name, instances.TABLE_2[name][0],
        instances.table_2_flows(rng, name, density))
        for name in instances.TABLE_2]
    rng.shuffle(apps)
    return apps


def group(hosts: list[cluster.Host], app: coflow_model.Coflow,
          active: list[snapshot.ActiveCoflow]) -> snapshot.PlacementProblem:
    vms = tuple(cluster.Vm(f'{app.name}-{j}', (1.0,))
                for j in range(app.n_vms))
    return snapshot.PlacementProblem(tuple(hosts), vms, (app,),
                                     active=tuple(active))


def loads(app: coflow_model.Coflow, hosts: tuple[str, ...]
          ) -> snapshot.ActiveCoflow:
    out: dict[str, float] = {}
    into: dict[str, float] = {}
    for flow in app.flows:
        a, b = hosts[flow.src], hosts[flow.dst]
        if a != b:
            out[a] = out.get(a, 0.0) + flow.size_bytes
            into[b] = into.get(b, 0.0) + flow.size_bytes
    return snapshot.ActiveCoflow(app.name, tuple(out.items()),
                                 tuple(into.items()))


def one_by_one(hosts: list[cluster.Host], apps: list[coflow_model.Coflow],
               planner: str, objective: snapshot.Objective, seed: int,
               budget_s: float) -> list[snapshot.ActiveCoflow]:
    active: list[snapshot.ActiveCoflow] = []
    free = {host.name: host.free[0] for host in hosts}
    for number, app in enumerate(apps):
        now = [cluster.Host(h.name, (free[h.name],), h.egress_bps,
                            h.ingress_bps) for h in hosts]
        plan = baselines.plan(group(now, app, active), planner=planner,
                              objective=objective, budget_s=budget_s,
                              seed=100 * seed + number, clock=CLOCK[0])
        for name in plan.hosts:
            free[name] -= 1
        active.append(loads(app, plan.hosts))
    return active


def merged(hosts: list[cluster.Host], apps: list[coflow_model.Coflow]
           ) -> snapshot.PlacementProblem:
    """All groups in one problem: rows over disjoint ranges of VMs."""
    n_vms = sum(app.n_vms for app in apps)
    vms = tuple(cluster.Vm(f'v{j}', (1.0,)) for j in range(n_vms))
    rows, first = [], 0
    for app in apps:
        rows.append(coflow_model.Coflow.from_flows(
            app.name, n_vms, [(first + f.src, first + f.dst, f.size_bytes)
                              for f in app.flows]))
        first += app.n_vms
    return snapshot.PlacementProblem(tuple(hosts), vms, tuple(rows))


def together(hosts: list[cluster.Host], apps: list[coflow_model.Coflow],
             seed: int, budget_s: float) -> list[snapshot.ActiveCoflow]:
    problem = merged(hosts, apps)
    plan = planners.plan(problem, objective=snapshot.Objective.JOINT,
                         budget_s=budget_s, seed=seed, clock=CLOCK[0])
    return [loads(row, plan.hosts) for row in problem.coflows]


def average_cct_s(hosts: list[cluster.Host],
                  active: list[snapshot.ActiveCoflow]) -> float:
    problem = snapshot.PlacementProblem(tuple(hosts), (), (),
                                        active=tuple(active))
    inst = solver_instances.build(problem)
    prefix_s = objectives.prefix_cct_s(inst, np.zeros(
        (0, len(inst.s_per_byte))))
    return float(prefix_s.mean())


def lower_bound_s(hosts: list[cluster.Host],
                  apps: list[coflow_model.Coflow]) -> float:
    """Mean over the coflows of the bound on each alone."""
    return statistics.fmean(
        lowerbounds.anchored_sets(
            solver_instances.build(group(hosts, app, []),
                budgets.unlimited()), np.inf,
            budgets.unlimited()).lower_s for app in apps)


def measure(seed: int, density: str, background: bool, budget_s: float,
            schemes: list[str]) -> dict[str, float]:
    rng = random.Random(f'{seed}/{density}/{background}')
    hosts, apps = cloud(rng, background), applications(rng, density)
    row = {}
    for name in schemes:
        if name == 'virtco joint':
            placed = together(hosts, apps, seed, 6 * budget_s)
        else:
            placed = one_by_one(hosts, apps, *SCHEMES[name], seed, budget_s)
        row[name] = average_cct_s(hosts, placed)
    row['mean isolated bound'] = lower_bound_s(hosts, apps)
    return row


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--seeds', type=int, default=8)
    parser.add_argument('--budget', type=float, default=1.0,
                        help='seconds per group (joint: six times that)')
    parser.add_argument('--cpu', action='store_true',
                        help='budgets in CPU seconds: on a busy machine')
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    if options.cpu:
        CLOCK[0] = time.process_time
    schemes = [*SCHEMES, 'virtco joint']
    table: dict[str, dict[str, Any]] = {}
    for density in ('sparse', 'medium', 'dense'):
        for background in (False, True):
            rows = [measure(seed, density, background, options.budget,
                            schemes) for seed in range(options.seeds)]
            column = density + (' bg' if background else '')
            table[column] = {name: statistics.fmean(r[name] for r in rows)
                             for name in rows[0]}
            print(f'{column} done', file=sys.stderr, flush=True)
    if options.json:
        print(json.dumps(table, indent=1))
        return 0
    print('average CCT, s'.ljust(26)
          + ''.join(column.rjust(11) for column in table))
    for name in next(iter(table.values())):
        print(name.ljust(26) + ''.join(
            f'{values[name]:11.3g}' for values in table.values()))
    return 0


if __name__ == '__main__':
    sys.exit(main())
