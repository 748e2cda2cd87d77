# SPDX-License-Identifier: Apache-2.0

"""Greedy back-fill over sets of ports, as the simulator rates a fabric."""

import hypothesis
from hypothesis import strategies as st
import numpy as np

from virtco.lab.sim import demands as demand_model
from virtco.scheduling import fabric as fabric_model
from virtco.scheduling import policies
from virtco.scheduling import rate_kernel
from virtco.scheduling import rater_kernel

#: A set of ports has a word for each 64 of them.
N_HOSTS = 66
HOSTS = st.sampled_from([0, 1, 2, 63, 64, 65])
FLOWS = st.lists(st.tuples(HOSTS, HOSTS, st.integers(1, 9)), min_size=1,
                 max_size=9)


@hypothesis.settings(deadline=None)
@hypothesis.given(st.lists(FLOWS, min_size=1, max_size=4), st.integers(0, 99))
def test_no_flow_could_have_more(coflows, seed):
    cap = np.random.default_rng(seed).choice([1.0, 2.0, 5.0], 2 * N_HOSTS)
    demands = [fabric_model.Demand(
        *np.array(flows).T[:2], np.array(flows).T[2].astype(float),
        np.ones(len(flows))) for flows in coflows]
    fabric = demand_model.fabric_of(cap, demands)
    rates = fabric_model.no_rates(fabric)
    ones = np.ones(len(coflows))
    rate_kernel.allocate(
        rater_kernel.Rater(fabric, rates), np.arange(len(coflows)), 0,
        policies.SHARE_MADD, policies.BACKFILL_GREEDY, 0.0, 0.0, ones, ones)
    left = rates.residual / cap
    assert (left >= 0.0).all()
    for demand in demands:
        assert (np.minimum(left[demand.src_host],
                           left[N_HOSTS + demand.dst_host]) <= 1e-9).all()
