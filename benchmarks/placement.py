# SPDX-License-Identifier: Apache-2.0

"""How good, how certain and how fast the planner is on given instances.

``python -m benchmarks.placement (--instances DIR | --family NAME [--seeds
A..B]) [--budget S ...] [--reference FILE] [--certify-s S]
[--cpu | --counted] [--certify] [-v] [--json]``

DIR holds instances in the reference schema (:mod:`benchmarks.reference`), a
family is one of :data:`benchmarks.instances.HARD`. Every placement is judged
by code of its own. ``seconds`` is the time of one ``plan()``, with ``--cpu``
of the process, with ``--counted`` those of its work, which are the same on any
machine; ``used`` is it by the budget. An infeasible instance is valid
when the planner says so.

``ratio`` is t / the best known: the least of the instance's, of FILE's
({name: seconds}), of a run with ``--certify-s`` seconds and ``certify``, and
of the answers at all budgets. ``LP`` is the share of launches that solved
the set-partition relaxation and rounded it, ``before`` of those whose
incumbent was certified before. A ratio is missing where there is but one
answer, and with a best of 0 it is 1 or infinite (null in JSON). FILE is
written back with what was found.
"""

import argparse
from collections.abc import Callable
import json
import math
import pathlib
import sys
import time
from typing import Any

import numpy as np

from benchmarks import instances as generator
from benchmarks import reference
from virtco import exception
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import planner as planners

#: Two times closer than this are the same.
CLOSE = 1e-6


def measure(instance: reference.Instance, planner: str, seed: int,
            budget_s: float,
            clock: Callable[[], float] = time.perf_counter,
            certify: bool = False,
            on_incumbent: Callable[[snapshot.Progress], object] | None = None
            ) -> dict[str, Any]:
    """One row of the report."""
    best_s = instance.get('best_known')
    row: dict[str, Any] = {
        'name': instance['name'], 'family': instance['family'],
        'hosts': len(instance['hosts']), 'vms': len(instance['vms']),
        'budget_s': budget_s, 'placement': None, 'relaxed': None,
        't_s': None, 'best_known_s': best_s, 'ratio': None,
        'lower_bound_s': None, 'gap': None, 'seconds': None, 'valid': False,
        'method': None}
    problem = reference.to_problem(instance)
    started = clock()
    try:
        plan = planners.plan(problem, planner=planner, seed=seed,
                             objective=snapshot.Objective.ISOLATED,
                             budget_s=budget_s, clock=clock,
                             certify=certify, on_incumbent=on_incumbent)
    except exception.PlacementInfeasible:
        row['seconds'] = clock() - started
        row['method'] = 'infeasible'
        row['valid'] = instance.get('status') == 'infeasible'
        return row
    row['seconds'] = clock() - started
    names = [vm['id'] for vm in instance['vms']]
    ids = {str(host['id']): host['id'] for host in instance['hosts']}
    placement = {vm: ids[host] for vm, host in
                 zip(names, plan.hosts, strict=True)}
    t_s = reference.completion_time_s(instance, placement)
    row.update(t_s=t_s, lower_bound_s=plan.lower_bound_s, gap=plan.gap,
               method=plan.method, placement=placement,
               relaxed=plan.relaxed)
    if t_s is not None:
        row['valid'] = math.isclose(t_s, plan.cct_s, rel_tol=1e-9,
                                    abs_tol=1e-12)
        row['ratio'] = _ratio(t_s, best_s)
    return row


def compare(rows: list[dict[str, Any]], known_s: dict[str, float]
            ) -> dict[str, float]:
    """Set the ratios of the rows; the best by name, known or found.

    :param known_s: by name; what the rows know beforehand counts, too.
    """
    answers: dict[str, list[float]] = {}
    for row in rows:
        before_s = min(
            (s for s in (row['best_known_s'], known_s.get(row['name']))
             if s is not None), default=None)
        row['best_known_s'] = before_s
        answers.setdefault(row['name'], []).extend(
            s for s in (row['t_s'], before_s) if s is not None)
    best_s = {name: min(times) for name, times in answers.items() if times}
    for row in rows:
        name = row['name']
        if row['t_s'] is not None and len(answers[name]) > 1:
            row['ratio'] = _ratio(row['t_s'], best_s[name])
    return {**known_s, **best_s}


def _ratio(t_s: float, best_s: float | None) -> float | None:
    if best_s is None:
        return None
    if best_s == 0:
        return 1.0 if t_s == 0 else math.inf
    return t_s / best_s


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Per family and over all."""
    families: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        families.setdefault(row['family'], []).append(row)
    result = {family: _summary(members)
              for family, members in sorted(families.items())}
    for name, chosen in (
            ('<= 8 VMs', [r for r in rows if r['vms'] <= 8]),
            ('18 hosts x 40 VMs', [r for r in rows if r['vms'] == 40
                                   and r['hosts'] == 18]),
            ('all', rows)):
        if chosen:
            result[name] = _summary(chosen)
    return result


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    compared = [r for r in rows if r['ratio'] is not None]
    ratios = [r['ratio'] for r in compared]
    known = [r for r in compared if r['best_known_s'] is not None]
    gaps = [r['gap'] for r in rows if r['gap'] is not None]
    certified = [r for r in rows if r['gap'] is not None
                 and r['gap'] <= 0.01]
    seconds = [r['seconds'] for r in rows]
    return {
        'instances': len(rows), 'valid': sum(r['valid'] for r in rows),
        'at_best_known': sum(x <= 1 + CLOSE for x in ratios),
        'better_than_best_known': sum(
            r['t_s'] < r['best_known_s'] * (1 - CLOSE) for r in known),
        'with_best_known': len(ratios),
        **{f'ratio_p{p}': percentile(ratios, p) for p in (50, 90, 99)},
        'ratio_max': max(ratios, default=None),
        'certified_1_percent': len(certified),
        'certified_share': len(certified) / len(rows),
        'relaxed_share': sum(
            r['relaxed'] == snapshot.Relaxed.SOLVED for r in rows
        ) / len(rows),
        'certified_before_share': sum(
            r['relaxed'] == snapshot.Relaxed.CERTIFIED_BEFORE for r in rows
        ) / len(rows),
        'gap_p50': percentile(gaps, 50), 'gap_p99': percentile(gaps, 99),
        **{f'seconds_p{p}': percentile(seconds, p) for p in (50, 99)},
        'seconds_max': max(seconds),
        'used_max': max((r['seconds'] / r['budget_s'] for r in rows
                         if r['budget_s']), default=None)}


def percentile(values: list[float], percent: int) -> float | None:
    """Nearest rank, so that one infinite value stays one."""
    if not values:
        return None
    return float(np.percentile(np.array(values), percent,
                               method='inverted_cdf'))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _text(value: Any, width: int, digits: int = 4) -> str:
    if value is None:
        return '-'.rjust(width)
    if isinstance(value, float):
        return f'{value:.{digits}g}'.rjust(width)
    return str(value).rjust(width)


def print_progress(progress: snapshot.Progress) -> None:
    """A line of the log, on standard error."""
    print(progress, file=sys.stderr)


def _print_rows(rows: list[dict[str, Any]]) -> None:
    print(f'{"instance":34}{"budget s":>9}{"t s":>12}{"best s":>12}'
          f'{"ratio":>9}{"bound s":>12}{"gap":>9}{"seconds":>9}'
          f'  valid  method')
    for row in rows:
        print(f'{row["name"]:34}{_text(row["budget_s"], 9)}'
              f'{_text(row["t_s"], 12, 6)}'
              f'{_text(row["best_known_s"], 12, 6)}'
              f'{_text(row["ratio"], 9, 5)}'
              f'{_text(row["lower_bound_s"], 12, 6)}'
              f'{_text(row["gap"], 9)}{_text(row["seconds"], 9, 3)}'
              f'  {"yes" if row["valid"] else "NO":5}  {row["method"]}')


def _print_summary(summary: dict[str, Any]) -> None:
    columns = ('instances', 'valid', 'at_best_known',
               'better_than_best_known', 'ratio_p50', 'ratio_p90',
               'ratio_p99', 'ratio_max', 'certified_share',
               'relaxed_share', 'certified_before_share', 'gap_p99',
               'seconds_p50', 'seconds_p99', 'used_max')
    heads = ('n', 'valid', 'at best', 'better', 'ratio50', 'ratio90',
             'ratio99', 'max', 'cert 1%', 'LP', 'before', 'gap99', 's p50',
             's p99', 'used')
    print(f'\n{"family":26}' + ''.join(f'{head:>9}' for head in heads))
    for family, values in summary.items():
        print(f'{family:26}' + ''.join(_text(values[c], 9) for c in columns))


def seeds(text: str) -> range:
    first, _dots, last = text.partition('..')
    return range(int(first), int(last or first) + 1)


def _chosen(options: argparse.Namespace) -> list[reference.Instance]:
    if options.instances:
        return reference.read_all(options.instances)
    return [item for seed in options.seeds
            for item in generator.hard(options.family, seed)]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument('--instances', type=pathlib.Path)
    source.add_argument('--family', choices=generator.HARD)
    parser.add_argument('--seeds', type=seeds, default=range(1),
                        help='of the family, A..B (default 0)')
    parser.add_argument('--budget', type=float, action='append',
                        help='seconds per instance (default 3); repeatable')
    parser.add_argument('--reference', type=pathlib.Path,
                        help='JSON file of best known seconds by name')
    parser.add_argument('--certify-s', type=float,
                        help='seconds of a run to compare with')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--planner', default='virtco',
                        choices=planners.PLANNERS)
    clocks = parser.add_mutually_exclusive_group()
    clocks.add_argument('--cpu', action='store_true',
                        help='count CPU seconds: on a busy machine')
    clocks.add_argument('--counted', action='store_true',
                        help='count work: the same on any machine')
    parser.add_argument('--certify', action='store_true',
                        help='spend what is left of the budget on proofs')
    parser.add_argument('--json', action='store_true')
    parser.add_argument('-v', '--verbose', action='store_true',
                        help='log better placements and bounds (to stderr)')
    return parser.parse_args()


def main() -> int:
    options = _options()
    instances = _chosen(options)
    if not instances:
        print(f'no instances in {options.instances or options.seeds}',
              file=sys.stderr)
        return 2
    clock: Callable[[], float] = budgets.Counter()
    if not options.counted:
        clock = time.process_time if options.cpu else time.perf_counter
    planners.load_libraries()
    log = print_progress if options.verbose else None
    known_s = {}
    if options.reference and options.reference.exists():
        known_s = json.loads(options.reference.read_text())
    budgets_s = options.budget or [3.0]

    def run(budget_s: float, certify: bool) -> list[dict[str, Any]]:
        return [measure(instance, options.planner, options.seed, budget_s,
                        clock, certify, log) for instance in instances]

    rows = {budget_s: run(budget_s, options.certify)
            for budget_s in budgets_s}
    every = sum(rows.values(), [])
    if options.certify_s:
        every += run(options.certify_s, True)
    known_s = compare(every, known_s)
    if options.reference:
        options.reference.write_text(json.dumps(known_s, indent=1))
    summary = {
        f'{name} {budget_s:g} s' if len(rows) > 1 else name: values
        for budget_s, chosen in rows.items()
        for name, values in summarise(chosen).items()}
    if options.json:
        print(json.dumps(_finite({'instances': every, 'summary': summary}),
                         indent=1))
    else:
        _print_rows(every)
        _print_summary(summary)
    return 0 if all(row['valid'] for row in every) else 1


if __name__ == '__main__':
    sys.exit(main())
