# SPDX-License-Identifier: Apache-2.0

"""What it costs to place a job beside jobs that compute and send in turn.

``python -m benchmarks.turns``: CPU seconds of a plan with and without regard
to the running jobs' turns, and the workers that compute with each.
"""

import argparse
import dataclasses
import time

import numpy as np

from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.solver.judging import sharing
from virtco.solver.model import instance as instances
from virtco.solver import planner

LINK_BPS = 25e9
UPLINK_BPS = 100e9
HOSTS_PER_RACK = 20
VMS = 16


def ring(hosts: list[str], size_bytes: float
         ) -> tuple[tuple[str, str, float], ...]:
    return tuple((src, dst, size_bytes) for src, dst in zip(
        hosts, hosts[1:] + hosts[:1]) if src != dst)


def problem(rng: np.random.Generator, n_hosts: int, n_jobs: int
            ) -> snapshot.PlacementProblem:
    """Jobs on hosts by chance, in racks; about one slot per host is free."""
    names = [f'h{i}' for i in range(n_hosts)]
    active = []
    for j in range(n_jobs):
        pairs = ring([names[i] for i in rng.choice(n_hosts, VMS, False)],
                     float(rng.uniform(1e9, 4e9)))
        ends = tuple((src, size) for src, _dst, size in pairs)
        active.append(snapshot.ActiveCoflow(
            f'j{j}', ends, tuple((dst, size) for _src, dst, size in pairs),
            pairs, snapshot.Iteration(float(rng.uniform(0.2, 3)), VMS,
                                      pairs)))
    own = dataclasses.replace(coflow.Coflow.from_flows('own', VMS, [
        (i, (i + 1) % VMS, 2e9) for i in range(VMS)]), iterations=0,
        compute_s=1.0)
    racks = [f'r{r}' for r in range(-(-n_hosts // HOSTS_PER_RACK))]
    return snapshot.PlacementProblem(
        hosts=tuple(cluster.Host(name, (float(rng.integers(0, 3)),),
                                 LINK_BPS, LINK_BPS) for name in names),
        vms=tuple(cluster.Vm(f'vm{i}', (1.0,)) for i in range(VMS)),
        coflows=(own,), active=tuple(active),
        tree=cluster.Tree(
            tuple(cluster.Subtree(rack, UPLINK_BPS, UPLINK_BPS)
                  for rack in racks),
            {name: racks[i // HOSTS_PER_RACK]
             for i, name in enumerate(names)}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--hosts', type=int, nargs='*', default=(100, 1000))
    parser.add_argument('--jobs', type=int, nargs='*', default=(5, 50))
    parser.add_argument('--seeds', type=int, default=5)
    parser.add_argument('--budget', type=float, default=1.0)
    args = parser.parse_args()
    print('hosts  jobs  plan s  worst  without s  workers computing  without')
    for n_hosts in args.hosts:
        for n_jobs in args.jobs:
            rows = []
            for seed in range(args.seeds):
                given = problem(np.random.default_rng(seed), n_hosts, n_jobs)
                bare = dataclasses.replace(given, active=tuple(
                    dataclasses.replace(one, iteration=None)
                    for one in given.active))
                jobs = sharing.Jobs(instances.build(given, reduce=False))
                index = {host.name: i for i, host in enumerate(given.hosts)}
                row = []
                for each in (given, bare):
                    since_s = time.process_time()
                    plan = planner.plan(each, budget_s=args.budget,
                                        clock=time.process_time)
                    row += [time.process_time() - since_s, jobs.computing(
                        np.array([index[host] for host in plan.hosts]))]
                rows.append(row)
            own_s, own, bare_s, bare = np.array(rows).T
            print(f'{n_hosts:5}  {n_jobs:4}  {own_s.mean():6.2f}  '
                  f'{own_s.max():5.2f}  {bare_s.mean():9.2f}  '
                  f'{own.mean():17.2f}  {bare.mean():7.2f}')


if __name__ == '__main__':
    main()
