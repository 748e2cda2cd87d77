# SPDX-License-Identifier: Apache-2.0

"""How the planner scales: time and certified ratio against hosts x VMs.

``python -m benchmarks.placement_scale [--draws N] [--budget S] [--cpu]
[--out FILE.png]``

Draws of :func:`benchmarks.instances.datacentre` (sparse, zipf and groups,
het) up to 1,000 hosts x 200 VMs and 5,000 hosts x 40 VMs. The ratio is t over
the planner's own lower bound, so it needs no best known answer.
"""

import argparse
import pathlib
import random
import statistics
import sys
import time

from benchmarks import instances
from benchmarks import placement

SIZES = ((18, 10), (18, 40), (50, 40), (100, 40), (100, 100), (300, 100),
         (1000, 40), (1000, 100), (1000, 200), (5000, 40))
PATTERNS = ('sparse', 'zipf', 'groups')


def measure(n_hosts: int, n_vms: int, draws: int, budget_s: float,
            cpu: bool) -> tuple[list[float], list[float]]:
    """Seconds and ratios to the bound of all draws of one size."""
    seconds, ratios = [], []
    for pattern in PATTERNS:
        for draw in range(draws):
            rng = random.Random(f'{n_hosts}/{n_vms}/{pattern}/{draw}')
            item = instances.datacentre(rng, n_hosts, n_vms, pattern, 'het')
            row = placement.measure(
                item, 'virtco', draw, budget_s,
                time.process_time if cpu else time.perf_counter)
            if row['gap'] is not None:
                seconds.append(row['seconds'])
                ratios.append(1 + row['gap'])
    return seconds, ratios


def plot(table: list[tuple[int, int, list[float], list[float]]],
         path: pathlib.Path) -> None:
    import matplotlib
    matplotlib.use('Agg')
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.5))
    labels = [f'{hosts} x {vms}' for hosts, vms, _s, _r in table]
    for axis, column, title in (
            (axes[0], 2, 'seconds per plan'),
            (axes[1], 3, 't / certified lower bound')):
        axis.boxplot([row[column] for row in table], whis=(0, 100))
        axis.set_xticks(range(1, len(labels) + 1), labels, rotation=60,
                        ha='right')
        axis.set_title(title)
        axis.grid(axis='y', alpha=.3)
    axes[0].set_yscale('log')
    axes[0].set_xlabel('hosts x VMs')
    axes[1].set_xlabel('hosts x VMs')
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--draws', type=int, default=3)
    parser.add_argument('--budget', type=float, default=3.0)
    parser.add_argument('--cpu', action='store_true',
                        help='count CPU seconds: on a busy machine')
    parser.add_argument('--out', type=pathlib.Path)
    options = parser.parse_args()
    table = []
    print('hosts   VMs    s p50    s max   ratio p50   ratio max')
    for n_hosts, n_vms in SIZES:
        seconds, ratios = measure(n_hosts, n_vms, options.draws,
                                  options.budget, options.cpu)
        table.append((n_hosts, n_vms, seconds, ratios))
        print(f'{n_hosts:5} {n_vms:5} {statistics.median(seconds):8.3f} '
              f'{max(seconds):8.3f} {statistics.median(ratios):11.4f} '
              f'{max(ratios):11.4f}', flush=True)
    if options.out:
        plot(table, options.out)
    return 0


if __name__ == '__main__':
    sys.exit(main())
