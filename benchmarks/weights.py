# SPDX-License-Identifier: Apache-2.0

"""What an operator's weights are worth: mean weighted CCT by order.

``python -m benchmarks.weights [--load 0.7] [--seeds 20]``: coflows of random
senders, receivers, log-normal sizes and weights of 1, 2, 4 or 8 arrive at
hosts with links of one bit per second, in the fluid simulator.
"""

import argparse
import statistics

import numpy as np

from virtco.scheduling import fabric
from virtco_lab.sim import simulation
from virtco_lab.sim.figures import outcome

N_HOSTS, N_COFLOWS = 16, 200
_SIGMA = 1.0


def coflows(seed: int, load: float
            ) -> tuple[list[fabric.Demand], np.ndarray, np.ndarray]:
    """Draw demands, arrivals in seconds and weights."""
    rng = np.random.default_rng([seed, 25])
    demands, port_s = [], 0.0
    for _ in range(N_COFLOWS):
        n_src, n_dst = rng.integers(1, 5, 2)
        src = np.repeat(rng.choice(N_HOSTS, n_src, False), n_dst)
        dst = np.tile(rng.choice(N_HOSTS, n_dst, False), n_src)
        bits = rng.lognormal(0.0, _SIGMA) * rng.dirichlet(
            np.ones(len(src))) * len(src)
        demands.append(fabric.Demand(src, dst, bits, np.ones(len(bits))))
        port_s += bits.sum()
    gap_s = port_s / N_COFLOWS / N_HOSTS / load
    return (demands, np.cumsum(rng.exponential(gap_s, N_COFLOWS)),
            2.0 ** rng.integers(0, 4, N_COFLOWS))


def weighted_s(seed: int, load: float, policy: str, is_weighted: bool
               ) -> float:
    """Mean CCT, each times its weight."""
    demands, arrivals_s, weights = coflows(seed, load)
    sim = simulation.Simulation(np.ones(2 * N_HOSTS),
                                simulation.Config(policy), demands)
    for index, at_s in enumerate(arrivals_s.tolist()):
        sim.run(at_s)
        sim.start(index, weight=float(weights[index]) if is_weighted else 1.0)
    sim.run()
    return float(np.average(sim.completion_s(), weights=weights))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--load', type=float, default=0.7)
    parser.add_argument('--seeds', type=int, default=20)
    args = parser.parse_args()
    for policy in ('mrtf', 'mrtf+swap', 'weighted-fair'):
        ratios = [weighted_s(seed, args.load, policy, True)
                  / weighted_s(seed, args.load, 'mrtf', False)
                  for seed in range(args.seeds)]
        print(f'{policy:<14} weighted CCT over that of mrtf without weights: '
              f'{statistics.fmean(ratios):.3f} ± '
              f'{outcome.half_interval(ratios):.3f}')


if __name__ == '__main__':
    main()
