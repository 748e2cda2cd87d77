# SPDX-License-Identifier: Apache-2.0

"""Groups that come one after another: our default planner against others.

``python -m benchmarks.online [--cases 2,4,6,mix,stationary] [--columns TEXT]
[--seeds A..B] [--budget S] [--short] [--jobs N] [--rows FILE] [--table FILE]
[--json]``

A case is VirtCO's test case of that number, the demo's mix, or a *stationary*
cloud in which groups come and go. Each planner sees the same groups on the
same hosts and serves coflows in the order of MRTF. For every column the table
has the figure of our default planner, a mean over the seeds, and for every
other planner the difference in percent of that planner's mean with its 95 %
interval (Student, over the pairs of a seed). Negative is ahead. *again* is our
planner once more with another seed of its search: what differs by chance.

The figure is the mean CCT, for a stationary cloud the mean *response* (from
the request, so that waiting for room counts), its 95th percentile, its mean
with each group weighted by its VMs, and the *hosts* that a group takes beyond
the fewest that would hold it (fragmentation).

FILE has a line for every run; those it has already with this budget are not
run again, so a run can be ended and taken up at any time.
"""

import argparse
from collections.abc import Iterable
from collections.abc import Sequence
import concurrent.futures
import dataclasses
import json
import math
import pathlib
import sys
import time
from typing import Any

import numpy as np

from virtco import units
from virtco.model import cluster
from virtco_lab.emulation import scenario
from virtco_lab.sim import cloud
from virtco_lab.sim import groups
from virtco_lab.sim import schemes
from virtco_lab.sim import workloads
from virtco_lab.sim.figures import document
from virtco_lab.sim.figures import outcome
from virtco_lab.sim.figures import record
from virtco_lab.sim.figures import virtco as figures

OURS = 'virtco'
#: Our planner with another seed of its search, the same groups as ever.
AGAIN = 'again'
AGAIN_SEED = 1000
SCHEMES = {scheme.name: scheme for scheme in (
    schemes.get(OURS),
    dataclasses.replace(schemes.get(OURS), name=AGAIN),
    schemes.get('virtco-printed'),
    dataclasses.replace(schemes.get('virtco-isolated'), name='isolated'),
    schemes.Scheme('min-cut', 'Fewest bytes between hosts', 'min-cut',
                   'mrtf'))}
RIVALS = [name for name in SCHEMES if name not in (OURS, AGAIN)]
CASES = ('2', '4', '6', 'mix', 'stationary')
MIX_HOSTS = (6, 18)
MIX_RATE_BPS = 50e6
#: Between two groups of the mix, in terms of the time that all bytes of one
#: take on all hosts; 0 is the demo, where all come at once.
MIX_LOADS = {'at once': 0.0, 'heavy': 1.0, 'light': 0.5}
SHAPE = 'medium'
#: Test cases' values and loads in which planners differ: a group of ten VMs
#: fits into a host.
DIFFERENT: dict[str, dict[str, tuple[float, ...]]] = {
    '4': {'light': (20, 40), 'heavy': (20, 40)},
    '6': {'light': (0.2, 0.5, 1), 'heavy': (0.2, 0.5, 1, 2)}}
#: Slots that all groups would take in the mean if none had to wait.
UTILISATIONS = (0.5, 0.7, 0.85, 0.95)
N_STATIONARY = 200
#: Groups' VMs: 2 and more, a Pareto tail; stay in s and bytes, both
#: log-normal, the bytes in terms of what a VM's link carries in its stay.
MOST_VMS = 48
TAIL_VMS = 1.1
STAY_S, SIGMA_STAY = 60.0, 1.0
SENDING, SIGMA_SENDING = 0.05, 1.5
SHORT = {'cases': ['stationary'], 'seeds': range(4), 'budget': 0.05}


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column of the table: what is run for every seed."""

    case: str
    setting: str
    number: float
    word: str = ''

    @property
    def measures(self) -> tuple[str, ...]:
        """Name the figures that are compared, keys of a run."""
        if self.case == 'stationary':
            return 'response_s', 'p95_s', 'weighted_s', 'hosts'
        return ('mean_cct_s',)

    @property
    def name(self) -> str:
        return ' '.join(filter(None, (
            self.case, self.setting, self.word)))

    def workload(self, seed: int) -> tuple[tuple[cluster.Host, ...],
                                           list[groups.Group]]:
        if self.case == 'mix':
            return self._mix(seed)
        if self.case == 'stationary':
            return self._stationary(seed)
        if self.case == '2':
            return (figures.datacentre(seed, bool(self.number)),
                    list(groups.of_coflows(workloads.table2(
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

    def _stationary(self, seed: int) -> tuple[tuple[cluster.Host, ...],
                                              list[groups.Group]]:
        hosts = figures.datacentre(seed)
        rng = np.random.default_rng([seed, 11])
        # By libm, see workloads: numpy's own exp differs among processors.
        n_vms = np.minimum(MOST_VMS, 2 + 2 * rng.pareto(
            TAIL_VMS, N_STATIONARY)).astype(int).tolist()
        stay_s = STAY_S * rng.lognormal(sigma=SIGMA_STAY, size=N_STATIONARY)
        size_bytes = stay_s * n_vms * SENDING * rng.lognormal(
            sigma=SIGMA_SENDING, size=N_STATIONARY) * (
            units.bps_to_bytes_per_s(figures.LINK_BPS))
        apart_s = (stay_s @ n_vms) / N_STATIONARY / (
            self.number * sum(host.free[0] for host in hosts))
        arrival_s = rng.exponential(apart_s, N_STATIONARY).cumsum()
        return hosts, [dataclasses.replace(groups.of_slots(
            f'g{i}', [workloads.draw(
                f'c{i}', rng, n_vms=n, shape=SHAPE, shuffle=i % 2 == 0,
                size_bytes=float(size_bytes[i]),
                length_bytes=float(size_bytes[i] / n))],
            float(arrival_s[i])), stay_s=float(stay_s[i]))
            for i, n in enumerate(n_vms)]


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
        elif case == 'stationary':
            found += [Column(case, f'{value:g}', value)
                      for value in UTILISATIONS]
        else:
            found += [Column(case, f'{value:g}', value, word)
                      for word, values in DIFFERENT[case].items()
                      for value in values]
    return found


def run(column: Column, scheme: str, seed: int,
        budget_s: float = cloud.BUDGET_S) -> dict[str, Any]:
    """One simulation: its figures and the CPU seconds that it took."""
    hosts, its_groups = column.workload(seed)
    began_s = time.process_time()
    result = cloud.simulate(
        hosts, its_groups, SCHEMES[scheme], budget_s=budget_s,
        seed=seed + AGAIN_SEED * (scheme == AGAIN))
    responses_s = [row.response_s for row in result.coflows]
    n_vms = [len(result.hosts[row.group]) for row in result.coflows]
    fewest = [math.ceil(n / hosts[0].free[0]) for n in n_vms]
    return {'column': column.name, 'scheme': scheme, 'seed': seed,
            'budget_s': budget_s, 'mean_cct_s': result.mean_cct_s,
            'response_s': result.mean_response_s,
            'p95_s': float(np.quantile(responses_s, 0.95)),
            'weighted_s': float(np.average(responses_s, weights=n_vms)),
            'hosts': float(np.mean([
                len(set(result.hosts[row.group])) - least
                for row, least in zip(result.coflows, fewest)])),
            'cpu_s': time.process_time() - began_s}


def compare(ours_s: Sequence[float], theirs_s: Sequence[float]
            ) -> tuple[float, float]:
    """Difference in percent of their mean, and half its 95 % interval."""
    ours, theirs = np.asarray(ours_s), np.asarray(theirs_s)
    if not theirs.any():
        return (float('inf') if ours.any() else 0.0), 0.0
    percent = 100 * (ours - theirs) / theirs.mean()
    return float(percent.mean()), outcome.half_interval(percent.tolist())


def table(rows: Iterable[dict[str, Any]], chosen: Sequence[Column],
          seeds: Sequence[int]) -> list[dict[str, Any]]:
    """One entry per column and figure, of the seeds that every scheme has run.
    """
    found = {(row['column'], row['scheme'], row['seed']): row for row in rows}
    result = []
    for column, measure in ((column, measure) for column in chosen
                            for measure in column.measures):
        whole = [seed for seed in seeds if all(
            (column.name, scheme, seed) in found for scheme in SCHEMES)]
        if not whole:
            continue
        values = {scheme: [found[column.name, scheme, seed][measure]
                           for seed in whole] for scheme in SCHEMES}
        worst = {scheme: max(ours / theirs - 1 if theirs else 0.0
                             for ours, theirs in zip(values[OURS], those))
                 for scheme, those in values.items() if scheme != OURS}
        result.append({
            'column': column.name, 'measure': measure, 'seeds': whole,
            'mean': {scheme: float(np.mean(those))
                     for scheme, those in values.items()},
            'against': {scheme: compare(values[OURS], values[scheme])
                        for scheme in worst},
            'worst_percent': {scheme: 100 * most
                              for scheme, most in worst.items()}})
    return result


def worst_of(entry: dict[str, Any]) -> float:
    """Return how far we are behind another planner in the worst seed, in %.
    """
    return max(entry['worst_percent'][rival] for rival in RIVALS)


def _print(entries: Sequence[dict[str, Any]]) -> None:
    others = [scheme for scheme in SCHEMES if scheme != OURS]
    print(f'{"column":26s} {"figure":10s} n  {OURS:>9s}'
          + ''.join(f'{"vs " + other + " %":>22s}' for other in others)
          + f'{"best other %":>14s}{"worst seed":>12s}'
          + f'{"worst of itself":>18s}')
    for entry in entries:
        cells = [entry['against'][other] for other in others]
        best = max(entry['against'][rival][0] for rival in RIVALS)
        print(f'{entry["column"]:26s} {entry["measure"]:10s} '
              f'{len(entry["seeds"]):<2d} {entry["mean"][OURS]:9.3f}'
              + ''.join(f'{percent:+13.1f} ± {half:<6.1f}'
                        for percent, half in cells)
              + f'{best:+14.1f}'
              + f'{worst_of(entry):+12.1f}'
              + f'{entry["worst_percent"][AGAIN]:+18.1f}')


def document_of(entries: Sequence[dict[str, Any]], command: str,
                commits: Iterable[str]) -> str:
    """The table for the documentation."""
    others = [scheme for scheme in SCHEMES if scheme != OURS]
    rows = []
    for entry in entries:
        cells = [entry['against'][other] for other in others]
        rows.append((entry['column'], entry['measure'],
                     record.shown_seeds(entry['seeds']), entry['mean'][OURS],
                     *(f'{percent:+.1f} ± {half:.1f}'
                       for percent, half in cells),
                     worst_of(entry), entry['worst_percent'][AGAIN]))
    return document.table(
        ('column', 'figure', 'seeds', OURS, *(
            f'vs {other}, %' for other in others), 'worst seed, %',
         'worst seed of itself, %'), rows) + (
        f'\n``{command}``: commit {", ".join(sorted(commits))}.\n')


def seeds_of(text: str) -> range:
    """A..B, both included."""
    first, _, last = text.rpartition('..')
    return range(int(first or last), int(last) + 1)


def options_of(text: str | None, budget_s: float) -> argparse.ArgumentParser:
    """Begin the options of a benchmark with the seeds of its pairs.

    :param text: docstring of the benchmark.
    :param budget_s: budget of each group unless another is given.
    """
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--seeds', type=seeds_of, default=range(16),
                        help='A..B, both included')
    parser.add_argument('--budget', type=float, default=budget_s,
                        help='of each group, seconds by a counter of work')
    parser.add_argument('--table', type=pathlib.Path,
                        help='writes the table for the documentation')
    parser.add_argument('--json', action='store_true')
    return parser


def numbers(text: str) -> list[float]:
    """Split numbers at commas."""
    return [float(part) for part in text.split(',')]


def saved(response_s: Sequence[float], before_s: Sequence[float]
          ) -> dict[str, Any]:
    """Return the mean response, and the part saved of another's, of paired
    seeds.
    """
    percent, half = compare(response_s, before_s)
    return {'response_s': float(np.mean(response_s)),
            'saved_percent': 0.0 - percent, 'half_percent': half}


def shown(row: dict[str, Any]) -> str:
    """Show the percentage saved, with its interval."""
    return f'{row["saved_percent"]:+.1f} ± {row["half_percent"]:.1f}'


def write(options: argparse.Namespace, module: str, table: str,
          result: Any) -> None:
    """Write the table for the documentation, and the result as JSON."""
    if options.table:
        options.table.write_text(
            f'{table}\n``python -m benchmarks.{module} --seeds '
            f'{options.seeds[0]}..{options.seeds[-1]} --budget '
            f'{options.budget:g}``: commit {record.commit()}.\n')
    if options.json:
        json.dump(result, sys.stdout, indent=1)
        print()


def _options() -> argparse.Namespace:
    parser = options_of(__doc__, cloud.BUDGET_S)
    parser.add_argument('--jobs', type=int, default=1, help='processes')
    parser.add_argument('--cases', default=','.join(CASES),
                        type=lambda text: text.split(','))
    parser.add_argument('--columns', default='',
                        help='only those whose name has this')
    parser.add_argument('--rows', type=pathlib.Path,
                        help='keeps the runs, one line of JSON each')
    parser.add_argument('--short', action='store_true',
                        help='stationary clouds, four seeds, 0.05 s')
    options = parser.parse_args()
    if options.short:
        vars(options).update(SHORT)
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
    commit = record.commit()
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
    entries = table(rows, chosen, options.seeds)
    if options.table:
        options.table.write_text(document_of(
            entries, 'python -m benchmarks.online --cases '
            f'{",".join(options.cases)} --seeds '
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
