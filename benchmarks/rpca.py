# SPDX-License-Identifier: Apache-2.0

"""How long the constant component takes, and how far off each estimator is.

``python -m benchmarks.rpca [--hosts N] [--snapshots N] [--json]``

Generated clouds (:mod:`virtco_lab.sim.clouds`), by share of disturbed readings
and of snapshots that are slow as a whole. ``chosen`` is what held-out errors
choose; then the median pair's error against the truth, percent, and the CPU
and wall time of the whole fit: all estimators, thrice on two thirds of the
snapshots, and the chosen one on all. Asked: 196 hosts, 10 snapshots, 10 s.
"""

import argparse
import json
import time

import numpy as np

from virtco.measure import constant
from virtco_lab.sim import clouds

ROWS = ((0.0, 0.0), (0.1, 0.0), (0.2, 0.0), (0.3, 0.0), (0.1, 0.3))


def measure(n_hosts: int, n_snapshots: int, disturbed: float,
            slow: float, seed: int = 0) -> dict[str, object]:
    cloud = clouds.Cloud(n_hosts, clouds.Dynamics(
        disturbed=disturbed, slow=slow), np.random.default_rng([seed, 40]))
    pairs = ~np.eye(n_hosts, dtype=bool)
    readings = cloud.snapshots(n_snapshots)[:, pairs]
    truth = cloud.rates_bps[pairs]
    cpu_s, began_s = time.process_time(), time.perf_counter()
    found = constant.fit(readings)
    row: dict[str, object] = {
        'disturbed': disturbed, 'slow': slow, 'chosen': str(found.estimator),
        'noise': found.noise, 'wall_s': time.perf_counter() - began_s,
        'cpu_s': time.process_time() - cpu_s}
    for one in constant.Estimator:
        rates = constant.estimate(readings, one)
        row[str(one)] = float(np.median(np.abs(rates / truth - 1)))
    return row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--hosts', type=int, default=196)
    parser.add_argument('--snapshots', type=int, default=10)
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    rows = [measure(options.hosts, options.snapshots, *row) for row in ROWS]
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    names = [str(one) for one in constant.Estimator]
    print(f'{"disturbed":>9}{"slow":>6}{"Norm":>7}  {"chosen":15}'
          + ''.join(f'{name:>16}' for name in names)
          + f'{"CPU s":>8}{"wall s":>8}')
    for row in rows:
        print(f'{row["disturbed"]:9.0%}{row["slow"]:6.0%}{row["noise"]:7.2f}'
              f'  {row["chosen"]:15}'
              + ''.join(f'{row[name]:15.1%} ' for name in names)
              + f'{row["cpu_s"]:8.2f}{row["wall_s"]:8.2f}')


if __name__ == '__main__':
    main()
