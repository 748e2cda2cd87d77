# SPDX-License-Identifier: Apache-2.0

"""What every stage of a launch is worth.

``python -m benchmarks.ablation [--family NAME ...] [--seeds A..B]
[--budget S ...] [--variant TEXT ...] [--long-s S] [--counted] [--table FILE]
[--json]``

Instances of hard families (:mod:`benchmarks.instances`) are planned as a
launch plans them, then once without each stage or part of a stage. Families
with running coflows are planned ``online`` and judged by the simulated sum of
all coflows' times, those of several coflows ``joint`` and by the objective,
the others ``isolated`` and by the time of the group.

``mean``, ``p90`` and ``p99`` are of the ratio to the best of all these
answers and, with ``--long-s``, of a run of so many seconds; ``certified`` is
the share of answers proven to be within 1 %. ``seconds`` are the CPU's, or
with ``--counted`` those of a counter, which makes the table the same on any
machine. ``--variant`` selects rows whose name contains the text. ``--table``
writes mean, p99 and certified for the documentation.
"""

import argparse
from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import json
import pathlib
import statistics
import sys
import time
from typing import Any
from unittest import mock

import numpy as np

from benchmarks import instances as generator
from benchmarks import placement
from benchmarks import reference
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import planner
from virtco.solver import search
from virtco.solver.judging import judge
from virtco.solver.model import instance as instances
from virtco.solver.partition import rounding
from virtco.solver.stages import proofs
from virtco.solver.stages import search_state as states
from virtco_lab.sim.figures import document
from virtco_lab.sim.figures import record

Objective = snapshot.Objective
Change = Callable[[], contextlib.AbstractContextManager[Any]]


def _nothing(*_args: Any) -> None:
    """Instead of a stage."""


def _no(*_args: Any) -> bool:
    return False


def without(name: str) -> Change:
    """A launch without the stages of that name."""
    @contextlib.contextmanager
    def change() -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for table in ('STAGES', 'FINISH'):
                stack.enter_context(mock.patch.object(search, table, tuple(
                    stage for stage in getattr(search, table)
                    if stage.name != name)))
            yield
    return change


def replaced(module: Any, name: str, by: Any) -> Change:
    """A launch with a function of a module replaced."""
    return lambda: mock.patch.object(module, name, by)


VARIANTS: dict[str, Change] = {
    'as it is': contextlib.nullcontext,
    **{f'without {stage.name}': without(stage.name)
       for stage in (*search.STAGES, *search.FINISH)},
    'without any local search': replaced(states.State, 'anneal', _nothing),
    'without any set partition': replaced(proofs, 'narrow', _nothing),
    'without rounding': replaced(rounding, 'dive', _nothing),
    'without the proposal': replaced(planner, 'is_judged', _no),
}


def _objective(item: reference.Instance) -> snapshot.Objective:
    if item.get('running'):
        return Objective.ONLINE
    return (Objective.JOINT if any(f.get('coflow') for f in item['flows'])
            else Objective.ISOLATED)


def _cost_s(problem: snapshot.PlacementProblem, plan: snapshot.Plan) -> float:
    if plan.objective is Objective.ISOLATED:
        return plan.cct_s
    if plan.objective is Objective.JOINT:
        return plan.objective_s
    inst = instances.build(problem)
    index = {host.name: i for i, host in enumerate(problem.hosts)}
    return judge.Judge(inst, budgets.unlimited()).cost_s(np.array(
        [index[plan.hosts[vms[0]]] for vms in inst.node_vms]))


def _is_certified(plan: snapshot.Plan) -> bool:
    if plan.objective is Objective.ISOLATED:
        return plan.gap <= 0.01
    return plan.objective_s - plan.objective_bound_s <= (
        0.01 * plan.objective_bound_s)


def measure(items: list[reference.Instance], budget_s: float, counted: bool,
            long_s: float, variants: dict[str, Change]
            ) -> dict[str, dict[str, Any]]:
    """A row for each variant."""
    problems = {item['name']: reference.to_problem(item) for item in items}

    def run(seconds: float, certify: bool = False
            ) -> dict[str, tuple[float, bool, float]]:
        found = {}
        for item in items:
            problem = problems[item['name']]
            clock = (budgets.Counter() if counted
                     else budgets.Timer(time.process_time))
            started_s = clock()
            plan = planner.plan(problem, budget_s=seconds, clock=clock,
                                objective=_objective(item), certify=certify)
            took_s = clock() - started_s
            found[item['name']] = (_cost_s(problem, plan),
                                   _is_certified(plan), took_s)
        return found

    answers = {}
    for name, change in variants.items():
        with change():
            answers[name] = run(budget_s)
    every = list(answers.values())
    if long_s:
        every.append(run(long_s, certify=True))
    best_s = {name: min(found[name][0] for found in every)
              for name in problems}
    rows = {}
    for variant, found in answers.items():
        ratios = [cost_s / best_s[name] if best_s[name] else 1.0
                  for name, (cost_s, _certified, _seconds) in found.items()]
        rows[variant] = {
            'mean': statistics.fmean(ratios),
            'p90': placement.percentile(ratios, 90),
            'p99': placement.percentile(ratios, 99),
            'certified': statistics.fmean(
                certified for _cost, certified, _seconds in found.values()),
            'seconds': statistics.fmean(
                seconds for _cost, _certified, seconds in found.values())}
    return rows


def document_of(result: dict[str, dict[str, dict[str, Any]]], command: str,
                commit: str | None) -> str:
    """The table for the documentation, a row for each variant."""
    variants = next(iter(result.values()))
    return document.table(
        ('launch', *result),
        [(name, *(f'{rows[name]["mean"]:.3f} / {rows[name]["p99"]:.3f} / '
                  f'{rows[name]["certified"]:.0%}'
                  for rows in result.values()))
         for name in variants]) + f'\n``{command}``: commit {commit}.\n'


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--family', choices=generator.HARD, action='append')
    parser.add_argument('--seeds', type=placement.seeds, default=range(1))
    parser.add_argument('--budget', type=float, action='append')
    parser.add_argument('--variant', action='append')
    parser.add_argument('--long-s', type=float, default=0.0)
    parser.add_argument('--counted', action='store_true')
    parser.add_argument('--table', type=pathlib.Path,
                        help='writes the table for the documentation')
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    planner.load_libraries()
    variants = {name: change for name, change in VARIANTS.items()
                if name == 'as it is' or not options.variant
                or any(text in name for text in options.variant)}
    result = {}
    for family in options.family or ['hose18x40', 'rack18x40', 'busy18x40']:
        items = [item for seed in options.seeds
                 for item in generator.hard(family, seed)]
        for budget_s in options.budget or [0.25]:
            heads = f'{family}, {len(items)} instances, {budget_s:g} s'
            rows = result[heads] = measure(
                items, budget_s, options.counted, options.long_s, variants)
            if options.json:
                continue
            print(f'{heads:38}{"mean":>7}{"p90":>7}{"p99":>7}'
                  f'{"certified":>11}{"seconds":>9}')
            for variant, row in rows.items():
                print(f'{variant:38}{row["mean"]:7.3f}{row["p90"]:7.3f}'
                      f'{row["p99"]:7.3f}{row["certified"]:11.2f}'
                      f'{row["seconds"]:9.3f}', flush=True)
    if options.table:
        options.table.write_text(document_of(
            result, ' '.join(['python -m benchmarks.ablation', *(
                text for text in sys.argv[1:] if text not in (
                    '--table', str(options.table)))]),
            record.commit()))
    if options.json:
        print(json.dumps(result, indent=1))


if __name__ == '__main__':
    main()
