# SPDX-License-Identifier: Apache-2.0

"""How the cost of a launch grows with the cloud: ``benchmarks.launch --plot``.

Each point is a run of its own process. ``slope`` is the exponent by which a
cost grew since the point before: 1 is linear, and more than
:data:`MOST_SLOPE` is told.
"""

from collections.abc import Iterator
import csv
import json
import math
import pathlib
import subprocess
import sys
from typing import Any

HOSTS, COFLOWS = (10, 100, 1000, 10_000), (0, 125, 500, 2000)
#: What the other one is, while one grows.
AT_HOSTS, AT_COFLOWS = 1000, 500
#: What measuring adds to a linear cost.
MOST_SLOPE = 1.1
COLUMNS = {'read': 'read', 'rank': 'rank', 'commit': 'commit',
           'cpu': 'beyond the solve', 'sibling': 'sibling'}

HEAD = ['hosts', 'coflows', 'neutral', *COLUMNS]

Point = dict[str, Any]


def points(n_flows: int, n_launches: int, deadline_s: float
           ) -> Iterator[Point]:
    for n_hosts, n_coflows in dict.fromkeys(
            [(n, AT_COFLOWS) for n in HOSTS]
            + [(AT_HOSTS, n) for n in COFLOWS]):
        done = subprocess.run(
            [sys.executable, '-m', 'benchmarks.launch', '--json',
             '--hosts', str(n_hosts), '--coflows', str(n_coflows),
             '--flows', str(n_flows), '--launches', str(n_launches),
             '--deadline-s', str(deadline_s)],
            stdout=subprocess.PIPE, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        steps_ms = {name: found['steps'][name]['p50_ms']
                    for name in ('read', 'rank', 'commit')}
        yield {'hosts': n_hosts, 'coflows': n_coflows,
               'neutral': found['neutral'], 'cpu': found['cpu_p50_ms'],
               'sibling': found['sibling_cpu_p50_ms'], **steps_ms}


def lines(found: list[Point], name: str, size: str, other: str, at: int
          ) -> list[tuple[int, float]]:
    """(Size, ms) while one size grows."""
    return sorted((point[size], point[name]) for point in found
                  if point[other] == at)


def slopes(line: list[tuple[int, float]]) -> list[float]:
    return [math.log(more_ms / ms) / math.log(more / size)
            for (size, ms), (more, more_ms) in zip(line, line[1:])
            if size and ms]


def series(found: list[Point], name: str
           ) -> list[tuple[str, list[tuple[int, float]]]]:
    return [('hosts', lines(found, name, 'hosts', 'coflows', AT_COFLOWS)),
            ('coflows', lines(found, name, 'coflows', 'hosts', AT_HOSTS))]


def write(found: list[Point], path: pathlib.Path) -> None:
    """As a table: sizes, then milliseconds."""
    with open(path, 'w', newline='') as file:
        table = csv.DictWriter(file, HEAD, extrasaction='ignore',
                               lineterminator='\n')
        table.writeheader()
        table.writerows(found)


def overall(line: list[tuple[int, float]]) -> float:
    """Slope from the smallest size to the largest one."""
    ends = [point for point in line if all(point)]
    return slopes([ends[0], ends[-1]])[0] if len(ends) > 1 else 0.0


def report(found: list[Point]) -> str:
    head = HEAD
    rows = [' '.join(f'{name:>8}' for name in head)]
    rows += [' '.join(f'{point[name]:8.4g}' for name in head)
             for point in found]
    rows += [f'slope of {COLUMNS[name]} over {size}: ' + ', '.join(
        f'{slope:.2f}' for slope in slopes(line))
        + f'; overall {overall(line):.2f}'
        + (' MORE THAN LINEAR' if overall(line) > MOST_SLOPE else '')
        for name in COLUMNS for size, line in series(found, name)]
    return '\n'.join(rows)


def plot(found: list[Point], path: pathlib.Path) -> None:
    import matplotlib
    matplotlib.use('Agg')
    from matplotlib import pyplot
    # The same bytes for the same figures.
    matplotlib.rcParams['svg.hashsalt'] = 'growth'
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), sharey=True)
    for name, title in COLUMNS.items():
        for axis, (size, line) in zip(axes, series(found, name)):
            axis.plot(*zip(*line), marker='o', label=title)
            axis.set_xlabel(size)
            axis.set_xscale('symlog' if size == 'coflows' else 'log')
            axis.set_yscale('log')
            axis.grid(alpha=.3)
    axes[0].set_ylabel('processor time of a launch, ms')
    axes[0].set_title(f'{AT_COFLOWS} running coflows')
    axes[1].set_title(f'{AT_HOSTS} hosts')
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(path, metadata={'Date': None}
                   if path.suffix == '.svg' else None)
