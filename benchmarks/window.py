# SPDX-License-Identifier: Apache-2.0

"""Groups that ask shortly after each other: what planning them together does.

``python -m benchmarks.window [--seeds A..B] [--apart-ms MS]
[--windows-ms MS,...] [--budget S] [--table FILE] [--json]``

The applications of VirtCO's Table 2 (test case 2) ask one after another,
``--apart-ms`` apart. Without a window each is planned at once, with what
runs already in mind; with one, the first waits so long, and all that came
are planned together. *Response* is the mean time from the request to the end
of the coflow: the window counts. *Saved* is of the mean response without a
window, with its 95 % interval over paired seeds. *CPU* is of all planning of
a run.
"""

import argparse
from collections.abc import Sequence
import dataclasses
import sys
import time
from typing import Any

import numpy as np

from benchmarks import online
from virtco_lab.sim import cloud
from virtco_lab.sim import groups
from virtco_lab.sim import schemes
from virtco_lab.sim import workloads
from virtco_lab.sim.figures import document
from virtco_lab.sim.figures import outcome
from virtco_lab.sim.figures import virtco as figures


def run(shape: str, background: bool, seed: int, apart_s: float,
        window_s: float | None, budget_s: float) -> dict[str, Any]:
    """One simulation: mean response and CPU time."""
    its_groups = [dataclasses.replace(group, arrival_s=number * apart_s)
                  for number, group in enumerate(groups.of_coflows(
                      workloads.table2(seed=seed, shape=shape)))]
    began_s = time.process_time()
    result = cloud.simulate(
        figures.datacentre(seed, background), its_groups,
        dataclasses.replace(schemes.get('virtco'), window_s=window_s),
        seed=seed, budget_s=budget_s)
    return {'response_s': result.mean_response_s,
            'plans': len(result.planned_s),
            'cpu_s': time.process_time() - began_s}


def measure(name: str, options: argparse.Namespace
            ) -> list[dict[str, Any]]:
    """One row for each window, the first without one."""
    shape, background = figures.CASE2[name]
    rows = []
    alone_s: list[float] = []
    for window_ms in (None, *options.windows_ms):
        window_s = None if window_ms is None else window_ms / 1e3
        found = [run(shape, background, seed, options.apart_ms / 1e3,
                     window_s, options.budget) for seed in options.seeds]
        response_s = [one['response_s'] for one in found]
        alone_s = alone_s or response_s
        rows.append({
            'workload': name, 'window_ms': window_ms,
            **online.saved(response_s, alone_s),
            **{key: float(np.mean([one[key] for one in found]))
               for key in ('plans', 'cpu_s')}})
    return rows


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The table for the documentation, a row for each workload."""
    windows = list(dict.fromkeys(row['window_ms'] for row in rows))[1:]
    lines: dict[str, list[outcome.Cell]] = {}
    for row in rows:
        lines.setdefault(row['workload'], []).append(
            row['response_s'] if row['window_ms'] is None
            else online.shown(row))
    return document.table(
        ('workload', 'no window, s', *(f'{window:g} ms, saved %'
                                       for window in windows)),
        [(name, *cells) for name, cells in lines.items()])


def _options() -> argparse.Namespace:
    parser = online.options_of(__doc__, 0.25)
    parser.add_argument('--apart-ms', type=float, default=20.0)
    parser.add_argument('--windows-ms', default=[20.0, 50.0, 100.0],
                        type=online.numbers)
    return parser.parse_args()


def main() -> int:
    options = _options()
    if not options.json:
        print(f'{"workload":20s} {"window ms":>9s} {"plans":>6s} '
              f'{"response s":>11s} {"saved %":>15s} {"CPU s":>7s}')
    rows = []
    for name in figures.CASE2:
        for row in measure(name, options):
            rows.append(row)
            if not options.json:
                window = row['window_ms']
                print(f'{name:20s} '
                      f'{"-" if window is None else f"{window:g}":>9s} '
                      f'{row["plans"]:6.1f} {row["response_s"]:11.3f} '
                      f'{online.shown(row):>15s} {row["cpu_s"]:7.2f}',
                      flush=True)
    online.write(options, f'window --apart-ms {options.apart_ms:g}',
                 table(rows), {'seeds': list(options.seeds),
                               'apart_ms': options.apart_ms, 'rows': rows})
    return 0


if __name__ == '__main__':
    sys.exit(main())
