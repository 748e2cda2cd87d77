# SPDX-License-Identifier: Apache-2.0

"""What advice for a group costs, and how good it is.

``python -m benchmarks.advice`` prints, for groups of several sizes with two
VMs per hypervisor and eight random partners of each rank, predicted times: of
trees over the binomial tree's, of mappings over the one that gives each rank
its own row, of NCCL's all-reduce (the slower one of ring and double tree) over
the order of the rows. The CPU seconds are those of a whole answer of the
controller: estimates of ten readings of each pair of hypervisors, side by
side, and the advice by each.
"""

import argparse
import functools
import time

import numpy as np

from virtco.advise import estimates
from virtco.advise import mappings
from virtco.advise import nccl
from virtco.measure import constant
from virtco.measure import history
from virtco.objects import group_advice

SIZES = (8, 16, 64, 128, 256, 500)
PER_HOST = 2
PARTNERS = 8
READINGS = 10
SMALL_BYTES, LARGE_BYTES = 8e3, 8e6
REDUCED_BYTES = 1e8


def problem(n: int, seed: int) -> tuple[np.ndarray, history.Table]:
    """Bytes between ranks, and a history of all pairs of hosts."""
    rng = np.random.default_rng([seed, n])
    volumes = np.where(rng.random((n, n)) < PARTNERS / n,
                       rng.uniform(5e6, 1e7, (n, n)), 0.0)
    np.fill_diagonal(volumes, 0.0)
    hosts = np.arange(-(-n // PER_HOST))
    ends = np.array([(src, dst) for src in hosts for dst in hosts
                     if src != dst], np.int64)
    rates_bps = rng.uniform(1e8, 1e9, len(ends)) * (
        1 + 0.03 * rng.standard_normal((READINGS, len(ends))))
    hit = rng.random(rates_bps.shape) < 0.1
    rates_bps[hit] *= rng.uniform(0.1, 0.7, int(hit.sum()))
    return volumes, history.Table(
        tuple(map(str, hosts)), ends, np.ones_like(rates_bps), rates_bps,
        np.full_like(rates_bps, 2e-4))


def row(n: int, seed: int) -> list[float]:
    volumes, table = problem(n, seed)
    members = [str(row // PER_HOST) for row in range(n)]
    began_s = time.process_time()
    all_of = group_advice.estimates_by(estimates.Readings.of(
        table, members, dict.fromkeys(table.hosts, 1e9), 1e9),
        estimates.Basis.CONSTANT, constant.Estimator.CONSENSUS)
    estimates_cpu_s = time.process_time() - began_s
    began_s = time.process_time()
    small, large = (group_advice.trees_by(
        all_of, 0, size_bytes, False)['constant']
                    for size_bytes in (SMALL_BYTES, LARGE_BYTES))
    tree_cpu_s = (time.process_time() - began_s) / 2
    began_s = time.process_time()
    found = group_advice.mappings_by(
        all_of, 'constant', functools.partial(
            mappings.advise, volumes))['constant']
    mapping_cpu_s = time.process_time() - began_s
    by_name = {one.name: one.predicted_s for one in found}
    began_s = time.process_time()
    reduced = group_advice.mappings_by(all_of, 'constant', functools.partial(
        nccl.advise, REDUCED_BYTES))['constant']
    reduce_cpu_s = time.process_time() - began_s
    rows_s = next(one.predicted_s for one in reduced if one.name == 'rank')
    times = []
    for made in (small, large):
        binomial_s = made.tree('binomial').predicted_s
        times += [one_s / binomial_s for one_s in (
            made.tree('fnf').predicted_s, made.best.predicted_s,
            made.orders[0].predicted_s, made.bound_s)]
    return [*times, by_name['greedy'] / by_name['rank'],
            found[0].predicted_s / by_name['rank'],
            found[0].bound_s / by_name['rank'],
            reduced[0].predicted_s / rows_s, reduced[0].bound_s / rows_s,
            *(estimates_cpu_s + cpu_s for cpu_s in (
                tree_cpu_s, mapping_cpu_s, reduce_cpu_s))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--seeds', type=int, default=5)
    options = parser.parse_args()
    trees_of = ['fnf', 'best', 'ranked', 'bound']
    heads = [*(f'{name} {size}' for size in ('8 kB', '8 MB')
               for name in trees_of), 'greedy', 'search', 'bound',
             'all-reduce', 'bound', 'tree CPU s', 'mapping CPU s',
             'all-reduce CPU s']
    print('   n  ' + '  '.join(heads))
    for n in SIZES:
        means = np.mean([row(n, seed) for seed in range(options.seeds)],
                        axis=0)
        print(f'{n:4}  ' + '  '.join(
            f'{mean:{len(head)}.2f}' for head, mean in zip(heads, means)))


if __name__ == '__main__':
    main()
