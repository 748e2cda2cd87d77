# SPDX-License-Identifier: Apache-2.0

"""How fast the kernels are, in processor time.

``python -m benchmarks.kernels [--rounds N] [--only NAME ...] [--trace FILE]``

Each line is the best of N rounds. Loading is not counted. The work is the
same everywhere: instances and starts come from fixed seeds.

anneal-*
    Moves per second of the local search: hosts x VMs; *levels* is the online
    objective with 8 coflows that run already.
price, anchored
    Looks at a node while columns are priced; cheapest sets around a node.
schedule-*
    Orders and rates of 500 coflows on 150 hosts, found anew, with what MADD
    leaves handed out in order (greedy) or shared (max-min).
replay-*
    Events of the simulator, on the coflows of ``--trace``.
"""

import argparse
from collections.abc import Callable
import dataclasses
import functools
import json
import pathlib
import random
import sys
import time

import numpy as np

from benchmarks import instances as generator
from benchmarks import reference
from benchmarks import scheduling
from virtco.fluid import event_kernels
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver.bounds import lowerbounds
from virtco.solver.model import instance as instances
from virtco.solver.moves import localsearch
from virtco.solver.partition import columns
from virtco.solver.starts import candidates
from virtco_lab.sim import replay
from virtco_lab.sim import simulation
from virtco_lab.sim import traces

#: Runs once, returns how much was done and the seconds that count.
Run = Callable[[], tuple[float, float]]


def _timed(work: Callable[[], float]) -> Run:
    def run() -> tuple[float, float]:
        started_s = time.process_time()
        done = work()
        return done, time.process_time() - started_s
    return run


def _instance(name: str, n_active: int = 0) -> instances.Instance:
    rng = random.Random(1)
    if name == '18x40':
        item = generator.paper18(rng, 'pager-4m', 'medium', 'partial')
    elif name == '100x100':
        item = generator.datacentre(rng, 100, 100, 'sparse', 'het')
    elif name == '1000x200':
        item = generator.datacentre(rng, 1000, 200, 'zipf', 'het')
    else:
        item = generator.paper18(rng, 'pager-0.5m', 'dense', 'tight')
    problem = reference.to_problem(item)
    active = []
    for i in range(n_active):
        loads = [tuple((host.name, 1e8 * rng.lognormvariate(0, 1))
                       for host in problem.hosts) for _ in range(2)]
        active.append(snapshot.ActiveCoflow(f'a{i}', *loads))
    return instances.build(dataclasses.replace(problem,
                                               active=tuple(active)),
        budgets.unlimited())


def _anneal(name: str, moves: int, levels: bool = False) -> Run:
    inst = _instance(name, 8 if levels else 0)
    objective = (snapshot.Objective.ONLINE if levels
                 else snapshot.Objective.ISOLATED)
    start = candidates.best_fit(inst)
    assert start is not None

    def run() -> float:
        search = localsearch.Searcher(inst, objective, 1)
        search.anneal(start, moves)
        return search.moves_done
    return _timed(run)


def _price() -> Run:
    inst = _instance('18x40')
    value = np.random.default_rng(1).random(inst.n_nodes)
    nothing = np.zeros(inst.n_nodes, dtype=bool)
    pool = columns.Pool(inst)
    limits = np.full((len(pool.classes), 2), 1e-9)

    def run() -> float:
        budget = budgets.unlimited()
        for c in range(len(pool.classes)):
            pool.price(c, limits, value, 0.0, 1000, nothing, budget)
        return budget.clock.units / columns.LOOK_UNITS
    return _timed(run)


def _anchored() -> Run:
    inst = _instance('18x40')
    work = lowerbounds.prepare(
        inst, lowerbounds.undominated(inst, lowerbounds.hose_s_per_byte(inst)),
        budgets.unlimited())

    def run() -> float:
        for node in range(inst.n_nodes):
            lowerbounds.least_around(work, node, 1e300, 0.0, 20_000,
                                     budgets.unlimited())
        return inst.n_nodes
    return _timed(run)


def _schedule(backfill: str) -> Run:
    rng = np.random.default_rng(7)
    sim = simulation.Simulation(
        np.full(300, scheduling.RATE_BPS),
        simulation.Config('mrtf', backfill),
        [scheduling.draw(rng, 150, 10) for _ in range(500)])
    for index in range(500):
        sim.start(index)
    order = sim.live[:500]

    def run() -> float:
        for _ in range(100):
            event_kernels.rerate(sim.rater, sim.run_of, order, 0.0)
        return 100
    return _timed(run)


def _replay(policy: str, trace: traces.Trace) -> Run:
    return _timed(lambda: replay.replay(
        trace, scheduling.RATE_BPS, replay.config_of(policy)).events)


#: Name -> unit, and what makes its run.
KERNELS: dict[str, tuple[str, Callable[[], Run]]] = {
    'anneal-18x40': ('moves/s', functools.partial(
        _anneal, '18x40', 200_000)),
    'anneal-18x40-levels': ('moves/s', functools.partial(
        _anneal, '18x40', 200_000, levels=True)),
    'anneal-100x100': ('moves/s', functools.partial(
        _anneal, '100x100', 200_000)),
    'anneal-1000x200': ('moves/s', functools.partial(
        _anneal, '1000x200', 200_000)),
    'price': ('looks/s', _price),
    'anchored': ('sets/s', _anchored),
    'schedule-greedy': ('passes/s', functools.partial(_schedule, 'greedy')),
    'schedule-max-min': ('passes/s', functools.partial(
        _schedule, 'max-min')),
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog='python -m benchmarks.kernels',
        description=(__doc__ or '').splitlines()[0])
    parser.add_argument('--rounds', type=int, default=5,
                        help='how often each is measured (default 5)')
    parser.add_argument('--only', nargs='+', choices=sorted(KERNELS),
                        default=list(KERNELS), metavar='NAME',
                        help='some of: %(choices)s')
    parser.add_argument('--trace', type=pathlib.Path,
                        help='coflow-benchmark file for replay-*')
    parser.add_argument('--json', action='store_true',
                        help='one JSON object instead of lines')
    args = parser.parse_args(argv)
    table = {}
    kernels = {name: KERNELS[name] for name in args.only}
    if args.trace is not None:
        trace = traces.read(args.trace)
        kernels |= {f'replay-{policy}': ('events/s', functools.partial(
            _replay, policy, trace)) for policy in ('mrtf', 'sebf')}
    for name, (unit, prepare) in kernels.items():
        run = prepare()
        run()
        rates = []
        for _ in range(args.rounds):
            done, seconds = run()
            rates.append(done / seconds)
        table[name] = max(rates)
        if not args.json:
            print(f'{name:<20} {max(rates):>14,.2f} {unit}', flush=True)
    if args.json:
        print(json.dumps(table, indent=1))
    return 0


if __name__ == '__main__':
    sys.exit(main())
