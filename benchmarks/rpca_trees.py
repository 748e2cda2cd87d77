# SPDX-License-Identifier: Apache-2.0

"""How many seeds it takes to tell estimates apart by the trees they lead to.

``python -m benchmarks.rpca_trees`` repeats the emulated figures rpca-trees and
rpca-constant by their model, without packets, with many seeds: the time over
the binomial tree's, what the tree saves beside that of the mean, and how many
seeds it would take for a 95 % interval of the difference without 0. The third
kind is rpca-trees with rates that hold while a broadcast runs, as the paper's
do for half an hour.
"""

import argparse
import dataclasses
import math

import numpy as np

from virtco_lab.emulation import broadcast
from virtco_lab.emulation import extent
from virtco_lab.emulation import scenario
from virtco_lab.sim import clouds

RATE_BPS = 20e6
#: Longer than any broadcast.
STILL_S = 1e9
DEEP = dataclasses.replace(
    broadcast.CHANGING, name='deep cuts', dynamics=clouds.Dynamics(
        disturbed=0.3, cut=(0.1, 0.5)))
KINDS = {'rpca-trees': (broadcast.CHANGING, broadcast.CHANGE_S),
         'rpca-trees, rates that hold': (broadcast.CHANGING, STILL_S),
         'rpca-trees, 30 % cut to 10 to 50 %': (DEEP, broadcast.CHANGE_S),
         'rpca-constant': (broadcast.CONSTANT, STILL_S)}


def ratios(kind: broadcast.Kind, change_s: float, seed: int
           ) -> dict[str, float]:
    """Mean time of a seed's broadcasts over the baseline's."""
    options = extent.Options(RATE_BPS, (seed,))
    rng = np.random.default_rng([seed, 50, 7])
    cloud = clouds.Cloud(broadcast.N_HOSTS, kind.dynamics, rng)
    scale = scenario.goodput_bps(RATE_BPS) / clouds.LINK_BPS
    readings = cloud.snapshots(broadcast.n_snapshots(options)) * scale
    estimates = broadcast.estimates_by(readings, cloud.rates_bps * scale)
    took_s = dict.fromkeys(kind.series, 0.0)
    for _ in range(broadcast.n_runs(options)):
        root = int(rng.integers(broadcast.N_HOSTS))
        coming = ([snapshot * scale for snapshot in cloud.snapshots(20)]
                  if kind.changes else [cloud.rates_bps * scale])
        for name, (edges, n_segments) in broadcast.trees_of(
                kind, estimates, root, options).items():
            took_s[name] += broadcast.expected_s(
                edges, broadcast.size_bytes(options), coming, change_s,
                n_segments)
    return {name: one / took_s['baseline'] for name, one in took_s.items()}


def needed(differences: np.ndarray) -> str:
    """Seeds for an interval of the mean without 0."""
    mean, deviation = differences.mean(), differences.std(ddof=1)
    if abs(mean) < 1.96 * deviation / math.sqrt(len(differences)):
        return f'> {len(differences)}'
    return str(max(2, math.ceil((1.96 * deviation / mean) ** 2)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--seeds', type=int, default=200)
    options = parser.parse_args()
    for title, (kind, change_s) in KINDS.items():
        found = [ratios(kind, change_s, seed)
                 for seed in range(options.seeds)]
        mean = 'heuristics' if 'heuristics' in kind.series else 'mean time'
        base = np.array([one[mean] for one in found])
        print(f'{title}: {options.seeds} seeds, beside {mean}\n'
              f'{"tree by":24} over baseline   saves more %  seeds needed')
        for name in kind.series:
            its = np.array([one[name] for one in found])
            more = 100 * (base - its)
            print(f'{name:24} {its.mean():.3f} ± {its.std(ddof=1):.3f}   '
                  f'{more.mean():5.1f} ± {more.std(ddof=1):4.1f}  '
                  + ('' if name == mean else needed(more)))
        print()


if __name__ == '__main__':
    main()
