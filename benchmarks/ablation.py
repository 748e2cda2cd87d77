# SPDX-License-Identifier: Apache-2.0

"""What every stage of the search is worth.

``python -m benchmarks.ablation [--family NAME ...] [--seeds A..B]
[--budget S] [--long-s S] [--counted] [--json]``

Instances of hard families (:mod:`benchmarks.instances`) are planned as a
launch does, then once without each stage or start, and once with each method
that is kept out of the launch. ``mean``, ``p90`` and ``p99`` are of the ratio
to the best of all these answers and, with ``--long-s``, of a run of so many
seconds; ``certified`` is the share of answers proven to be within 1 %.
``seconds`` are the CPU's, or with ``--counted`` those of a counter, which
makes the table the same on any machine.
"""

import argparse
from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import json
import statistics
import time
from typing import Any
from unittest import mock

from benchmarks import instances as generator
from benchmarks import placement
from benchmarks import reference
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import planner
from virtco.solver import search
from virtco.solver.exact import lp_rounding
from virtco.solver.exact import smallgroup
from virtco.solver.stages import annealing
from virtco.solver.stages import carvings
from virtco.solver.stages import proofs
from virtco.solver.stages import state as states
from virtco.solver.starts import choreo

Change = Callable[[], contextlib.AbstractContextManager[Any]]


def _choreo(state: states.State, budget: budgets.Budget) -> None:
    assign = choreo.place(state.inst, budget)
    if assign is not None:
        state.add(states.Method.CHOREO, assign)


def _relaxation(state: states.State, budget: budgets.Budget) -> None:
    assign, lower_s = lp_rounding.place(state.inst, budget)
    state.raise_bound(lower_s)
    if assign is not None:
        state.add(states.Method.LP_ROUNDING, assign)


def _subsets(state: states.State, budget: budgets.Budget) -> None:
    if smallgroup.applies(state.inst):
        optimum_s, assign = smallgroup.solve(state.inst)
        state.offer(states.Method.EXHAUSTIVE, assign)
        state.raise_bound(optimum_s)


def _nothing(*_args: Any) -> None:
    """Instead of a stage."""


def without(name: str) -> Change:
    """A launch without the stages of that name."""
    return lambda: mock.patch.object(search, 'STAGES', tuple(
        stage for stage in search.STAGES if stage.name != name))


def replaced(module: Any, name: str, by: Any) -> Change:
    """A launch with a function of a module replaced."""
    return lambda: mock.patch.object(module, name, by)


def before_rounds(name: str, run: Callable[..., None], share: float
                  ) -> Change:
    """A launch with one more stage after the first local search."""
    def change() -> contextlib.AbstractContextManager[Any]:
        stages = list(search.STAGES)
        names = [stage.name for stage in stages]
        stages.insert(names.index('set partition'),
                      search.Stage(name, run, share))
        return mock.patch.object(search, 'STAGES', tuple(stages))
    return change


def _no_start(method: snapshot.Method) -> Change:
    """Without one of the quick search's starts."""
    usual = annealing._first_starts

    def starts(*args: Any) -> Iterator[annealing.Found]:
        return ((by, start) for by, start in usual(*args) if by != method)
    return replaced(annealing, '_first_starts', starts)


VARIANTS: dict[str, Change] = {
    'as it is': contextlib.nullcontext,
    'without first bound': without('first bound'),
    'without bound': without('bound'),
    'without carving': replaced(carvings, '_carve', _nothing),
    'without quick search': without('quick search'),
    'without spread start': _no_start(snapshot.Method.SPREAD),
    'without min-cut start': _no_start(snapshot.Method.MIN_CUT),
    'without local search': without('local search'),
    'without any local search': replaced(states.State, 'anneal', _nothing),
    'without set partition': replaced(proofs, '_narrow', _nothing),
    'without rounds': without('rounds'),
    "with Choreo's start": before_rounds('choreo', _choreo, 0.3),
    'with compact relaxation': before_rounds('relaxation', _relaxation, 0.3),
    'with subset programme': before_rounds('subsets', _subsets, 0.3),
}


def measure(items: list[reference.Instance], budget_s: float, counted: bool,
            long_s: float) -> dict[str, Any]:
    """A row for each variant."""
    problems = {item['name']: reference.to_problem(item) for item in items}

    def run(seconds: float, certify: bool = False
            ) -> dict[str, tuple[snapshot.Plan, float]]:
        plans = {}
        for name, problem in problems.items():
            clock = (budgets.Counter() if counted
                     else budgets.Timer(time.process_time))
            started_s = clock()
            plan = planner.plan(problem, budget_s=seconds, clock=clock,
                                objective=snapshot.Objective.ISOLATED,
                                certify=certify)
            plans[name] = plan, clock() - started_s
        return plans

    answers = {}
    for name, change in VARIANTS.items():
        with change():
            answers[name] = run(budget_s)
    every = list(answers.values())
    if long_s:
        every.append(run(long_s, certify=True))
    best_s = {name: min(plans[name][0].cct_s for plans in every)
              for name in problems}
    rows = {}
    for variant, plans in answers.items():
        ratios = [plan.cct_s / best_s[name] if best_s[name] else 1.0
                  for name, (plan, _seconds) in plans.items()]
        rows[variant] = {
            'mean': statistics.fmean(ratios),
            'p90': placement.percentile(ratios, 90),
            'p99': placement.percentile(ratios, 99),
            'certified': statistics.fmean(
                plan.gap <= 0.01 for plan, _seconds in plans.values()),
            'seconds': statistics.fmean(
                seconds for _plan, seconds in plans.values())}
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--family', choices=generator.HARD, action='append')
    parser.add_argument('--seeds', type=placement.seeds, default=range(1))
    parser.add_argument('--budget', type=float, default=0.25)
    parser.add_argument('--long-s', type=float, default=0.0)
    parser.add_argument('--counted', action='store_true')
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    planner.load_libraries()
    result = {}
    for family in options.family or ['hose18x40', 'hose1000x200']:
        items = [item for seed in options.seeds
                 for item in generator.hard(family, seed)]
        result[family] = measure(items, options.budget, options.counted,
                                 options.long_s)
        if options.json:
            continue
        heads = f'{family}, {len(items)} instances, {options.budget:g} s'
        print(f'{heads:38}{"mean":>7}{"p90":>7}{"p99":>7}{"certified":>11}'
              f'{"seconds":>9}')
        for variant, row in result[family].items():
            print(f'{variant:38}{row["mean"]:7.3f}{row["p90"]:7.3f}'
                  f'{row["p99"]:7.3f}{row["certified"]:11.2f}'
                  f'{row["seconds"]:9.3f}', flush=True)
    if options.json:
        print(json.dumps(result, indent=1))


if __name__ == '__main__':
    main()
