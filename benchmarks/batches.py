# SPDX-License-Identifier: Apache-2.0

"""Groups that are placed together, against the optimum.

``python -m benchmarks.batches [--seeds A..B] [--budget S] [--json]`` draws the
workloads of ``virtco-emulate reproduce virtco-gap`` on 6 hosts, places all
groups of each in one go, and prints the mean CCT of the best schedule there
over the proven optimum of placement and schedule. Seeds in which all groups
fit into hosts are left out. The budget is work per group, the same on any
machine.
"""

import argparse
import json

import numpy as np

from benchmarks import online
from virtco.model import cluster
from virtco_lab.emulation import gap
from virtco_lab.sim import cloud
from virtco_lab.sim import groups
from virtco_lab.sim import schemes

N_HOSTS, RATE_BPS = 6, 20e6


def ratio(seed: int, budget_s: float) -> float | None:
    """Mean CCT over the optimum; None where that is 0."""
    of = gap.solve(gap.Scale(N_HOSTS, RATE_BPS), seed)
    if of.optimum.mean_s == 0:
        return None
    hosts = [cluster.Host(name, (float(slots),), rate_bps, rate_bps)
             for (name, rate_bps), slots in zip(
                 of.goodput_bps.items(), of.problem.slots)]
    result = cloud.simulate(
        hosts, [groups.of_slots(one.name, one.coflows) for one in of.groups],
        schemes.get('virtco-joint'), seed=seed, budget_s=budget_s)
    return of.best_mean_s(list(result.hosts.values())) / of.optimum.mean_s


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--seeds', type=online.seeds_of, default=range(60),
                        help='A..B, both included (default 0..59)')
    parser.add_argument('--budget', type=float, default=0.25)
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    found = {seed: one for seed in options.seeds
             if (one := ratio(seed, options.budget)) is not None}
    if not found:
        parser.error('--seeds: all groups of these fit into hosts')
    values = np.array(list(found.values()))
    told = {'batches': len(found),
            'ratio': float(np.exp(np.log(values).mean())),
            'largest': float(values.max()),
            'above_1_percent': int((values > 1.01).sum())}
    if options.json:
        print(json.dumps({**told, 'ratios': found}))
        return
    for name, value in told.items():
        print(f'{name:16} {value:.4g}')


if __name__ == '__main__':
    main()
