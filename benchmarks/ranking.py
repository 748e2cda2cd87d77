# SPDX-License-Identifier: Apache-2.0

"""What ranking all hosts for one VM costs.

``python -m benchmarks.ranking [--hosts N ...] [--coflows N ...] [--vms N]
[--peers N] [--json]``

A group of ``--vms`` VMs is planned on unlike hosts while coflows of
``--peers`` sending and receiving hosts each run. *reading* turns the problem
into arrays, *ranking* gives all hosts their cost and words; a launch pays
both. *difference* is the largest relative one to the plain evaluation of
the first hosts' trials. CPU milliseconds, the best of ``--repeats``.
"""

import argparse
from collections.abc import Callable
import json
import random
import sys
import time
from typing import Any

import numpy as np

from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.solver import planner
from virtco.solver.model import instance as instances
from virtco.solver.model import objectives
from virtco.solver.moves import ranking

ONLINE = snapshot.Objective.ONLINE
#: Trials that are evaluated the plain way, for the difference.
CHECKED = 20


def problem_of(n_hosts: int, n_coflows: int, n_vms: int, n_peers: int,
               seed: int) -> snapshot.PlacementProblem:
    rng = random.Random(seed)
    hosts = tuple(cluster.Host(
        f'h{i}', (16.0, 64.0, 500.0), 1e10 * rng.uniform(0.3, 0.9),
        1e10 * rng.uniform(0.3, 0.9)) for i in range(n_hosts))
    active = []
    for number in range(n_coflows):
        chosen = rng.sample(range(n_hosts), min(n_hosts, n_peers))
        out, into = (tuple((f'h{m}', rng.lognormvariate(20, 1))
                           for m in chosen) for _ in range(2))
        active.append(snapshot.ActiveCoflow(f'c{number}', out, into))
    candidates = frozenset(host.name for host in hosts)
    vms = tuple(cluster.Vm(f'v{j}', (2.0, 4.0, 10.0), allowed=candidates)
                for j in range(n_vms))
    flows = [(a, b, rng.lognormvariate(20, 1)) for a in range(n_vms)
             for b in rng.sample(range(n_vms), 3) if a != b]
    return snapshot.PlacementProblem(
        hosts, vms, (coflow.Coflow.from_flows('own', n_vms, flows),),
        active=tuple(active), resources=('vcpus', 'memory_mb', 'disk_gb'))


def cpu_ms(function: Callable[[], Any], repeats: int) -> float:
    """Least CPU time of one call."""
    best_s = float('inf')
    for _ in range(repeats):
        started = time.process_time()
        function()
        best_s = min(best_s, time.process_time() - started)
    return best_s * 1e3


def measure(problem: snapshot.PlacementProblem, seed: int, repeats: int
            ) -> dict[str, float]:
    rng = random.Random(seed)
    used = rng.sample(range(len(problem.hosts)),
                      max(1, len(problem.vms) // 2))
    assign = np.array([used[j // 2] for j in range(len(problem.vms))])
    plan = snapshot.Plan(
        tuple(f'h{m}' for m in assign), 0.0, (), ONLINE, 0.0, 0.0, 0.0,
        'given')
    inst = instances.build(problem)
    return {
        'hosts': len(problem.hosts), 'coflows': len(problem.active),
        'entries': len(inst.running.port),
        'reading_ms': cpu_ms(
            lambda: instances.build(problem), repeats),
        'ranking_ms': cpu_ms(
            lambda: ranking.rank(inst, ONLINE, assign, 0), repeats),
        'both_ms': cpu_ms(
            lambda: planner.rank_hosts(problem, plan, 0), repeats),
        'difference': difference(inst, assign)}


def difference(inst: instances.Instance, assign: np.ndarray) -> float:
    """To evaluating each of the first trials anew, relative."""
    hosts = np.arange(min(CHECKED, inst.n_hosts))
    values = ranking.evaluate(inst, ONLINE, assign, 0, hosts, lambda: True)
    worst = 0.0
    for host, objective_s in zip(hosts, values.objective_s):
        trial = assign.copy()
        trial[0] = host
        plain_s = objectives.evaluate(inst, trial, ONLINE).objective_s
        worst = max(worst, abs(objective_s / plain_s - 1))
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--hosts', type=int, nargs='+', default=[200, 1000])
    parser.add_argument('--coflows', type=int, nargs='+',
                        default=[0, 50, 500])
    parser.add_argument('--vms', type=int, default=20)
    parser.add_argument('--peers', type=int, default=20)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--repeats', type=int, default=20)
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    rows = [measure(problem_of(n_hosts, n_coflows, options.vms,
                               options.peers, options.seed),
                    options.seed, options.repeats)
            for n_hosts in options.hosts for n_coflows in options.coflows]
    if options.json:
        print(json.dumps(rows, indent=1))
        return 0
    print(f'{"hosts":>6}{"coflows":>9}{"entries":>9}{"reading ms":>12}'
          f'{"ranking ms":>12}{"both ms":>9}{"difference":>12}')
    for row in rows:
        print(f'{row["hosts"]:6}{row["coflows"]:9}{row["entries"]:9}'
              f'{row["reading_ms"]:12.2f}{row["ranking_ms"]:12.2f}'
              f'{row["both_ms"]:9.2f}{row["difference"]:12.1e}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
