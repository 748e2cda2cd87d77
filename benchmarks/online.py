# SPDX-License-Identifier: Apache-2.0

"""Groups that come one after another: our default planner against others.

``python -m benchmarks.online [--cases 2,4,5,6,mix] [--columns TEXT]
[--seeds A..B] [--budget S] [--jobs N] [--rows FILE] [--table FILE] [--json]``

A case is VirtCO's test case of that number, or the demo's mix. Each planner
sees the same groups on the same hosts and serves coflows in the order of
MRTF. For every column the table has the mean CCT of our default planner over
the seeds and, for every other planner, the difference in percent of that
planner's mean with its 95 % interval (Student, over the pairs of a seed).
Negative is ahead.

One seed of all cases takes about ten minutes of CPU time with a budget of
0.25 s per group. FILE has a line for every run; those it has already with this
budget are not run again, so a run can be ended and taken up at any time.
"""

import argparse
from collections.abc import Iterable
from collections.abc import Sequence
import concurrent.futures
import dataclasses
import json
import pathlib
import sys
import time
from typing import Any

import numpy as np
import scipy.stats

from virtco.model import cluster
from virtco_lab.emulation import scenario
from virtco_lab.sim import cloud
from virtco_lab.sim import groups
from virtco_lab.sim import schemes
from virtco_lab.sim import workloads
from virtco_lab.sim.figures import document
from virtco_lab.sim.figures import record
from virtco_lab.sim.figures import virtco as figures

OURS = 'virtco'
SCHEMES = {scheme.name: scheme for scheme in (
    schemes.get(OURS),
    schemes.get('virtco-printed'),
    dataclasses.replace(schemes.get('virtco-isolated'), name='isolated'),
    schemes.Scheme('min-cut', 'Fewest bytes between hosts', 'min-cut',
                   'mrtf'))}
CASES = ('2', '4', '5', '6', 'mix')
MIX_HOSTS = (6, 18)
MIX_RATE_BPS = 50e6
#: Between two groups of the mix, in terms of the time that all bytes of one
#: take on all hosts; 0 is the demo, where all come at once.
MIX_LOADS = {'at once': 0.0, 'heavy': 1.0, 'light': 0.5}
SHAPE = 'medium'


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column of the table: what is run for every seed."""

    case: str
    setting: str
    number: float
    word: str = ''

    @property
    def name(self) -> str:
        return ' '.join(filter(None, (
            self.case, self.setting, self.word)))

    def workload(self, seed: int) -> tuple[tuple[cluster.Host, ...],
                                           list[groups.Group]]:
        if self.case == 'mix':
            return self._mix(seed)
        if self.case == '2':
            return (figures.datacentre(seed, bool(self.number)),
                    list(groups.of_apps(workloads.table2(
                        seed=seed, shape=self.setting))))
        return figures.datacentre(seed, True), figures.swept_groups(
            f'virtco-case{self.case}', self.number,
            figures.LOADS[self.word], seed, SHAPE)

    def _mix(self, seed: int) -> tuple[tuple[cluster.Host, ...],
                                       list[groups.Group]]:
        n_hosts = int(self.number)
        rate_bps = scenario.goodput_bps(MIX_RATE_BPS)
        made = scenario.mix(n_hosts, MIX_RATE_BPS, seed)
        load = MIX_LOADS[self.word]
        its_groups, now_s = [], 0.0
        for group in made.groups:
            its_groups.append(groups.of_slots(group.name, group.coflows,
                                              now_s, group.vm_slots))
            if load:
                size_bytes = sum(c.size_bytes for c in group.coflows)
                now_s += size_bytes * 8 / (n_hosts * rate_bps * load)
        return groups.equal_hosts(
            n_hosts, scenario.slots_per_host(n_hosts), rate_bps), its_groups


def columns(cases: Iterable[str]) -> list[Column]:
    found = []
    for case in cases:
        if case == '2':
            found += [Column(case, shape, number, word)
                      for shape in workloads.SHAPES
                      for number, word in ((0, ''), (1, 'background'))]
        elif case == 'mix':
            found += [Column(case, f'{n} hosts', n, word)
                      for n in MIX_HOSTS for word in MIX_LOADS]
        else:
            found += [Column(case, f'{value:g}', value, word)
                      for word in figures.LOADS
                      for value in figures.SWEPT[f'virtco-case{case}']]
    return found


def run(column: Column, scheme: str, seed: int,
        budget_s: float = cloud.BUDGET_S) -> dict[str, Any]:
    """One simulation: mean CCT and the CPU seconds that it took."""
    hosts, its_groups = column.workload(seed)
    began_s = time.process_time()
    mean_s = cloud.simulate(hosts, its_groups, SCHEMES[scheme],
                            seed=seed, budget_s=budget_s).mean_cct_s
    return {'column': column.name, 'scheme': scheme, 'seed': seed,
            'budget_s': budget_s, 'mean_cct_s': mean_s,
            'cpu_s': time.process_time() - began_s}


def compare(ours_s: Sequence[float], theirs_s: Sequence[float]
            ) -> tuple[float, float]:
    """Difference in percent of their mean, and half its 95 % interval."""
    ours, theirs = np.asarray(ours_s), np.asarray(theirs_s)
    if not theirs.any():
        return (float('inf') if ours.any() else 0.0), 0.0
    percent = 100 * (ours - theirs) / theirs.mean()
    if len(percent) < 2:
        return float(percent.mean()), float('inf')
    half = scipy.stats.t.ppf(0.975, len(percent) - 1) * scipy.stats.sem(
        percent)
    return float(percent.mean()), float(half)


def table(rows: Iterable[dict[str, Any]], names: Sequence[str],
          seeds: Sequence[int]) -> list[dict[str, Any]]:
    """One entry per column, of the seeds that every scheme has run."""
    found = {(row['column'], row['scheme'], row['seed']): row['mean_cct_s']
             for row in rows}
    result = []
    for name in names:
        whole = [seed for seed in seeds
                 if all((name, scheme, seed) in found for scheme in SCHEMES)]
        if not whole:
            continue
        means = {scheme: [found[name, scheme, seed] for seed in whole]
                 for scheme in SCHEMES}
        result.append({
            'column': name, 'seeds': whole, 'mean_cct_s': {
                scheme: float(np.mean(values))
                for scheme, values in means.items()},
            'against': {scheme: compare(means[OURS], means[scheme])
                        for scheme in SCHEMES if scheme != OURS}})
    return result


def _print(entries: Sequence[dict[str, Any]]) -> None:
    others = [scheme for scheme in SCHEMES if scheme != OURS]
    print(f'{"column":26s} n  {OURS + " s":>9s}'
          + ''.join(f'{"vs " + other + " %":>22s}' for other in others)
          + f'{"best other %":>14s}')
    for entry in entries:
        cells = [entry['against'][other] for other in others]
        print(f'{entry["column"]:26s} {len(entry["seeds"]):<2d} '
              f'{entry["mean_cct_s"][OURS]:9.3f}' + ''.join(
                  f'{percent:+13.1f} ± {half:<6.1f}'
                  for percent, half in cells)
              + f'{max(percent for percent, _ in cells):+14.1f}')


def document_of(entries: Sequence[dict[str, Any]], command: str,
                commits: Iterable[str]) -> str:
    """The table for the documentation."""
    others = [scheme for scheme in SCHEMES if scheme != OURS]
    rows = []
    for entry in entries:
        cells = [entry['against'][other] for other in others]
        rows.append((entry['column'], record.shown_seeds(entry['seeds']),
                     entry['mean_cct_s'][OURS],
                     *(f'{percent:+.1f} ± {half:.1f}'
                       for percent, half in cells)))
    return document.table(
        ('column', 'seeds', f'{OURS}, s', *(
            f'vs {other}, %' for other in others)), rows) + (
        f'\n``{command}``: commit {", ".join(sorted(commits))}.\n')


def seeds_of(text: str) -> range:
    """A..B, both included."""
    first, _, last = text.rpartition('..')
    return range(int(first or last), int(last) + 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--cases', default=','.join(CASES),
                        type=lambda text: text.split(','))
    parser.add_argument('--columns', default='',
                        help='only those whose name has this')
    parser.add_argument('--seeds', type=seeds_of, default=range(16),
                        help='A..B, both included')
    parser.add_argument('--budget', type=float, default=cloud.BUDGET_S,
                        help='of each group, seconds by a counter of work')
    parser.add_argument('--jobs', type=int, default=1, help='processes')
    parser.add_argument('--rows', type=pathlib.Path,
                        help='keeps the runs, one line of JSON each')
    parser.add_argument('--table', type=pathlib.Path,
                        help='writes the table for the documentation')
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    if not set(options.cases) <= set(CASES):
        parser.error(f'--cases: some of {",".join(CASES)}')
    return options


def main() -> int:
    options = _options()
    chosen = [column for column in columns(options.cases)
              if options.columns in column.name]
    rows: list[dict[str, Any]] = []
    if options.rows and options.rows.exists():
        rows = [row for row in map(
            json.loads, options.rows.read_text().splitlines())
            if row.get('budget_s') == options.budget]
    commit = record.made_on(0.0)['commit']
    known = {(row['column'], row['scheme'], row['seed']) for row in rows}
    todo = [(column, scheme, seed) for seed in options.seeds
            for column in chosen for scheme in SCHEMES
            if (column.name, scheme, seed) not in known]
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        jobs = [pool.submit(run, *job, options.budget) for job in todo]
        for number, job in enumerate(
                concurrent.futures.as_completed(jobs), 1):
            rows.append(job.result() | {'commit': commit})
            if options.rows:
                with options.rows.open('a') as file:
                    file.write(json.dumps(rows[-1]) + '\n')
            print(f'\r{number}/{len(jobs)}', end='', file=sys.stderr)
    print(file=sys.stderr)
    entries = table(rows, [column.name for column in chosen], options.seeds)
    if options.table:
        options.table.write_text(document_of(
            entries, 'python -m benchmarks.online --seeds '
            f'{options.seeds[0]}..{options.seeds[-1]} --budget '
            f'{options.budget:g}', {row['commit'] for row in rows}))
    if options.json:
        json.dump({'columns': entries, 'runs': rows}, sys.stdout, indent=1)
        print()
    else:
        _print(entries)
    return 0


if __name__ == '__main__':
    sys.exit(main())
