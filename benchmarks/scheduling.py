# SPDX-License-Identifier: Apache-2.0

"""What one arrival or departure costs the scheduler.

``python -m benchmarks.scheduling`` keeps 500 live coflows on 150 hosts. Each
turn takes one away, adds one, orders all of them and rates them anew: on the
arrays that the simulator keeps (order and rates only), and through
``virtco.scheduling.schedule``, as the controller does.
"""

import argparse
import json
import sys
import time

import numpy as np

from virtco import scheduling
from virtco import units
from virtco.fluid import event_kernels
from virtco.model import live
from virtco.scheduling import fabric as fabric_model
from virtco_lab.sim import simulation

RATE_BPS = 1e9


def draw(rng: np.random.Generator, n_hosts: int, width: int
         ) -> fabric_model.Demand:
    """A shuffle between up to ``width`` senders and receivers."""
    sides = [rng.choice(n_hosts, int(rng.integers(1, width + 1)),
                        replace=False) for _ in range(2)]
    src, dst = (side.reshape(-1) for side in np.meshgrid(*sides))
    other = src != dst
    count = int(other.sum())
    return fabric_model.Demand(src[other], dst[other],
                               rng.lognormal(20, 2, count), np.ones(count))


def on_arrays(demands: list[fabric_model.Demand], n_hosts: int, policy: str,
              backfill: str, turns: int) -> dict[str, float]:
    """Times of one event with the demands in place, seconds."""
    sim = simulation.Simulation(
        np.full(2 * n_hosts, RATE_BPS),
        simulation.Config(policy, backfill=backfill), demands)
    n_live = len(demands) - turns
    for index in range(n_live):
        sim.start(index)
    times_s = []
    for turn in range(-3, turns - 1):
        if turn >= 0:
            sim.live[turn % n_live] = n_live + turn
        before_s = time.perf_counter()
        event_kernels.rerate(sim.rater, sim.run_of, sim.live[:n_live],
                             sim.now_s)
        if turn >= 0:
            times_s.append(time.perf_counter() - before_s)
    return _times(times_s)


def on_coflows(demands: list[fabric_model.Demand], n_hosts: int, policy: str,
               turns: int) -> dict[str, float]:
    """Times of ``schedule``."""
    ports = live.Ports(tuple(f'h{i}' for i in range(n_hosts)),
                       *np.full((2, n_hosts), RATE_BPS))
    coflows = [live.LiveCoflow(str(i), live.Flows(
        live.Pairs((f'h{src}', f'h{dst}') for src, dst in zip(*demand[:2])),
        demand.bits / units.BITS_PER_BYTE))
        for i, demand in enumerate(demands)]
    n_live = len(demands) - turns
    times_s = []
    for turn in range(-1, min(turns, 50)):
        chosen = coflows[max(0, turn):max(0, turn) + n_live]
        before_s = time.perf_counter()
        scheduling.schedule(chosen, ports, policy=policy, now_s=0.0)
        if turn >= 0:
            times_s.append(time.perf_counter() - before_s)
    return _times(times_s)


def _times(times_s: list[float]) -> dict[str, float]:
    return {'median_ms': float(np.median(times_s)) * 1e3,
            'p99_ms': float(np.quantile(times_s, 0.99)) * 1e3}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog='python -m benchmarks.scheduling',
        description=(__doc__ or '').splitlines()[0])
    parser.add_argument('--coflows', type=int, default=500)
    parser.add_argument('--hosts', type=int, default=150)
    parser.add_argument('--width', type=int, default=10,
                        help='most senders and receivers of a coflow')
    parser.add_argument('--policy', default='mrtf',
                        choices=simulation.POLICIES)
    parser.add_argument('--turns', type=int, default=200)
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args(argv)
    rng = np.random.default_rng(7)
    demands = [draw(rng, args.hosts, args.width)
               for _ in range(args.coflows + args.turns)]
    answer = {
        'flows': sum(len(demand.bits) for demand in demands[:args.coflows]),
        'arrays_greedy': on_arrays(demands, args.hosts, args.policy, 'greedy',
                                   args.turns),
        'arrays_max_min': on_arrays(demands, args.hosts, args.policy,
                                    'max-min', args.turns)}
    if args.policy != 'dark':
        answer['schedule'] = on_coflows(demands, args.hosts, args.policy,
                                        args.turns)
    if args.json:
        print(json.dumps(answer))
    else:
        for key, value in answer.items():
            print(key, value)
    return 0


if __name__ == '__main__':
    sys.exit(main())
