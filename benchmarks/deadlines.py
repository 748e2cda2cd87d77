# SPDX-License-Identifier: Apache-2.0

"""How many deadlines are promised and kept, and what the others pay.

``python -m benchmarks.deadlines [--trace FILE] [--seeds 8] [--json]``:
coflows whose deadlines are 1 + U[0, slack] times as long as they take alone
(Varys, SIGCOMM 2014, section 7.4) in the fluid simulator, under virtco's
promises, DCoflow and Varys. The synthetic ones are random shuffles of
log-normal sizes at 16 hosts; ``--trace`` adds the Facebook trace
(FB2010-1Hr-150-0.txt) on ports of 1 Gbit/s. The second table has deadlines for
half of the coflows; the others' mean CCT stands over that without any
deadline. ``--packets`` runs virtco's promises with real TCP instead (root; 40
s a seed).
"""

import argparse
from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import functools
import json
import pathlib
import statistics
import tempfile

import numpy as np
from rich import console

from benchmarks import deadline_packets
from virtco.scheduling import fabric
from virtco_lab.emulation import display
from virtco_lab.sim import deadlines
from virtco_lab.sim import traces
from virtco_lab.sim.figures import outcome

N_HOSTS, N_COFLOWS = 16, 200
TRACE_RATE_BPS = 1e9
PACKET_LOAD, PACKET_SLACKS, PACKET_SHARE = 0.7, (1.0, 3.0), 0.5
MIXES = [(load, slack) for load in (0.5, 0.7, 0.9) for slack in (1.0, 3.0)]
SCHEMES: dict[str, Callable[[deadlines.Load], deadlines.Outcome]] = {
    'virtco': deadlines.run,
    'virtco, whoever asks first': functools.partial(
        deadlines.run, withholds=False, asks_again=False),
    'DCoflow': deadlines.run_dcoflow,
    'Varys': deadlines.run_varys}
HEADINGS = {'on_time': 'on time', 'at_launch': 'yes at launch',
            'admitted': 'yes at all', 'kept': 'of these kept'}


def synthetic(seed: int, load: float, slack: float, share: float = 1.0
              ) -> deadlines.Load:
    """Shuffles between one to four senders and receivers each."""
    rng = np.random.default_rng([seed, 25])
    demands, port_s = [], 0.0
    for _ in range(N_COFLOWS):
        n_src, n_dst = rng.integers(1, 5, 2)
        src = np.repeat(rng.choice(N_HOSTS, n_src, False), n_dst)
        dst = np.tile(rng.choice(N_HOSTS, n_dst, False), n_src)
        bits = rng.lognormal() * rng.dirichlet(
            np.ones(len(src))) * len(src)
        demands.append(fabric.Demand(src, dst, bits, np.ones(len(bits))))
        port_s += bits.sum()
    gap_s = port_s / N_COFLOWS / N_HOSTS / load
    arrivals_s = np.cumsum(rng.exponential(gap_s, N_COFLOWS))
    return deadlines.with_deadlines(np.ones(2 * N_HOSTS), demands,
                                    arrivals_s, slack, rng, share)


def traced(trace: traces.Trace, seed: int) -> deadlines.Load:
    """The trace's coflows with deadlines of a slack of 1."""
    return deadlines.with_deadlines(
        np.full(2 * trace.n_ports, TRACE_RATE_BPS),
        [coflow.demand() for coflow in trace.coflows],
        np.array([coflow.arrival_s for coflow in trace.coflows]), 1.0,
        np.random.default_rng(seed))


def shares(name: str, loads: list[deadlines.Load]
           ) -> Iterator[dict[str, float | str]]:
    """One row a scheme: means over the loads."""
    for scheme, run in SCHEMES.items():
        found = [run(load).shares() for load in loads]
        yield {'workload': name, 'scheme': scheme, 'seeds': len(loads),
               **{key: statistics.fmean(one[key] for one in found)
                  for key in HEADINGS}}


def cost(load: float, slack: float, seeds: int) -> dict[str, float]:
    """Mean CCT of coflows without a deadline, over that without any."""
    means, worst = [], []
    for seed in range(seeds):
        mixed = synthetic(seed, load, slack, 0.5)
        others = np.isinf(mixed.deadlines_s)
        none = deadlines.Load(mixed.cap_bps, mixed.demands, mixed.arrivals_s,
                              np.full(len(others), np.inf))
        cct_s, before_s = (
            (deadlines.run(one).end_s - mixed.arrivals_s)[others]
            for one in (mixed, none))
        means.append(float(cct_s.mean() / before_s.mean()))
        worst.append(float(np.quantile(cct_s, 0.95)
                           / np.quantile(before_s, 0.95)))
    return {'load': load, 'slack': slack, 'seeds': seeds,
            'mean_over_none': statistics.fmean(means),
            'error': outcome.half_interval(means),
            'p95_over_none': statistics.fmean(worst)}


def packets(seeds: int, logs: pathlib.Path) -> None:
    """Print a line of JSON a run, and what they are together."""
    shown = display.Display(console.Console(stderr=True))
    for slack in PACKET_SLACKS:
        found = []
        for one in deadline_packets.run(PACKET_LOAD, slack, range(seeds),
                                        PACKET_SHARE, logs, shown):
            print(json.dumps(dataclasses.asdict(one)), flush=True)
            found.append(one)
        asked, promised, kept, on_time = (
            sum(getattr(one, name) for one in found)
            for name in ('asked', 'promised', 'kept', 'on_time'))
        print(f'slack {slack:g}: {asked} deadlines, {promised} promised, '
              f'{kept} of these kept, {on_time} on time', flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--trace', type=pathlib.Path)
    parser.add_argument('--seeds', type=int, default=8)
    parser.add_argument('--trace-seeds', type=int, default=2)
    parser.add_argument('--json', action='store_true')
    parser.add_argument('--packets', action='store_true')
    parser.add_argument('--logs', type=pathlib.Path, metavar='DIRECTORY',
                        default=pathlib.Path(tempfile.gettempdir())
                        / 'virtco-deadlines')
    args = parser.parse_args()
    if args.packets:
        packets(args.seeds, args.logs)
        return
    workloads = {
        f'load {load:g}, slack {slack:g}': functools.partial(
            synthetic, load=load, slack=slack) for load, slack in MIXES}
    seeds = dict.fromkeys(workloads, args.seeds)
    if args.trace is not None:
        trace = traces.read(args.trace)
        name = 'Facebook, slack 1'
        workloads[name] = functools.partial(traced, trace)
        seeds[name] = args.trace_seeds
    if not args.json:
        print(f'{"":<55}' + ''.join(f'{one:>15}'
                                    for one in HEADINGS.values()))
    for name, make in workloads.items():
        for row in shares(name, [make(seed) for seed in range(seeds[name])]):
            if args.json:
                print(json.dumps(row), flush=True)
            else:
                print(f'{name:<28}{row["scheme"]:<27}' + ''.join(
                    f'{row[key]:>15.3f}' for key in HEADINGS), flush=True)
    for load, slack in MIXES:
        found = cost(load, slack, args.seeds)
        print(json.dumps(found) if args.json else
              f'load {load:g}, slack {slack:g}: CCT of the others over that '
              f'without deadlines {found["mean_over_none"]:.3f} ± '
              f'{found["error"]:.3f}, p95 {found["p95_over_none"]:.3f}',
              flush=True)


if __name__ == '__main__':
    main()
