# SPDX-License-Identifier: Apache-2.0

"""Compiled kernels of scheduler and simulator against their plain selves."""

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from virtco import compiled
from virtco.fluid import event_kernels
from virtco.scheduling import fabric
from virtco_lab.sim import simulation

PLAIN = {name: compiled.plain(f'virtco.{name}') for name in (
    'scheduling.rater_kernel', 'scheduling.order_kernel',
    'fluid.run_kernels', 'fluid.event_kernels')}


def draw(rng, n_hosts, n_coflows):
    """Coflows of any shape, also several flows of one pair."""
    demands = []
    for _ in range(n_coflows):
        n_flows = int(rng.integers(1, 3 * n_hosts))
        src = rng.integers(n_hosts, size=n_flows)
        dst = (src + rng.integers(1, n_hosts, size=n_flows)) % n_hosts
        demands.append(fabric.Demand(
            src, dst, rng.choice([1e6, 8e7, 3e8], n_flows),
            rng.choice([1.0, 2.0, 0.1], n_flows)))
    return demands


def run(config, demands, cap_bps, gap_s):
    sim = simulation.Simulation(cap_bps, config, demands[:-1])
    for index in range(len(demands) - 1):
        sim.run(index * gap_s)
        sim.start(index, weight=1.0 + index)
    last, = sim.add(demands[-1:])
    sim.start(last)
    sim.run()
    return [*sim.completion_s().tolist(), sim.events]


@pytest.mark.parametrize('config', [
    simulation.Config('mrtf'), simulation.Config('mrtf', 'max-min'),
    simulation.Config('mrtf', 'in-order'),
    simulation.Config('mrtf', each_flow=False),
    simulation.Config('sebf', 'none', each_flow=False),
    simulation.Config('fifo+', theta_s=0.5), simulation.Config('fair'),
    simulation.Config('mrtf+swap'),
    simulation.Config('mrtf+swap', theta_s=0.5),
    simulation.Config('weighted-fair'), simulation.Config('dark')], ids=str)
@hypothesis.given(seed=st.integers(0, 2**32 - 1), n_hosts=st.integers(2, 6))
@hypothesis.settings(max_examples=8, deadline=None)
def test_the_same_times(config, seed, n_hosts):
    rng = np.random.default_rng(seed)
    demands = draw(rng, n_hosts, 5)
    cap_bps = rng.choice([1e8, 1e9], 2 * n_hosts)
    answer = run(config, demands, cap_bps, 0.1)
    with pytest.MonkeyPatch.context() as patch:
        for name in ('scheduling.rater_kernel', 'scheduling.order_kernel',
                     'fluid.run_kernels', 'fluid.event_kernels'):
            patch.setattr(simulation, name.rpartition('.')[2], PLAIN[name])
        assert run(config, demands, cap_bps, 0.1) == answer


def test_both_kinds_are_at_work():
    if compiled.state('virtco.fluid.event_kernels') == 'plain':
        pytest.skip('not compiled')
    assert not event_kernels.__file__.endswith('.py')
    for module in PLAIN.values():
        assert module.__file__.endswith('.py')
