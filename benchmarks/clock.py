# SPDX-License-Identifier: Apache-2.0

"""How far a counter's second of planning is from the machine's.

``python -m benchmarks.clock [--budget S] [--per-family N] [--json]``

Plans are made with the clock of the process; what the code charges for its
work (:mod:`virtco.solver.budget`) is added up meanwhile. ``ratio`` is that
work, in the seconds of a counter, by CPU seconds, of N instances of each hard
family (:mod:`benchmarks.instances`), first each alone, then (*busy*) with
six coflows running.
"""

import argparse
import dataclasses
import json
import random
import time

from benchmarks import instances as generator
from benchmarks import reference
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import planner

N_ACTIVE = 6


def busy(problem: snapshot.PlacementProblem, rng: random.Random
         ) -> snapshot.PlacementProblem:
    """The problem with coflows running everywhere."""
    def loads() -> tuple[tuple[str, float], ...]:
        return tuple((host.name, 1e8 * rng.lognormvariate(0, 1))
                     for host in problem.hosts)
    return dataclasses.replace(problem, active=tuple(
        snapshot.ActiveCoflow(f'a{i}', loads(), loads())
        for i in range(N_ACTIVE)))


def measure(problem: snapshot.PlacementProblem,
            objective: snapshot.Objective, budget_s: float
            ) -> tuple[float, float]:
    """Seconds of a counter, and CPU seconds, of one plan."""
    clock = budgets.Timer(time.process_time)
    started_s = clock()
    planner.plan(problem, objective=objective, budget_s=budget_s,
                 clock=clock)
    return clock.units / budgets.UNITS_PER_S, clock() - started_s


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--budget', type=float, default=0.5)
    parser.add_argument('--per-family', type=int, default=4)
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    planner.load_libraries()
    rows = []
    for family in generator.HARD:
        items = generator.hard(family, 0)
        step = max(1, len(items) // options.per_family)
        for kind, objective in (('alone', snapshot.Objective.ISOLATED),
                                ('busy', snapshot.Objective.ONLINE)):
            counted_s, cpu_s = 0.0, 0.0
            for i, item in enumerate(items[::step][:options.per_family]):
                problem = reference.to_problem(item)
                if kind == 'busy':
                    problem = busy(problem, random.Random(i))
                both = measure(problem, objective, options.budget)
                counted_s, cpu_s = counted_s + both[0], cpu_s + both[1]
            rows.append({'family': family, 'kind': kind,
                         'counted_s': counted_s, 'cpu_s': cpu_s,
                         'ratio': counted_s / cpu_s})
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    print(f'{"family":16}{"kind":8}{"counted s":>10}{"CPU s":>10}'
          f'{"ratio":>8}')
    for row in rows:
        print(f'{row["family"]:16}{row["kind"]:8}{row["counted_s"]:10.3f}'
              f'{row["cpu_s"]:10.3f}{row["ratio"]:8.2f}')


if __name__ == '__main__':
    main()
