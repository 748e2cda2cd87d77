# SPDX-License-Identifier: Apache-2.0

"""The bound by the order of the ends, against enumeration and the simulator.
"""

import itertools
from unittest import mock

import hypothesis
import numpy as np
import pytest

from tests.unit.lab.sim import test_bound
from virtco_lab.sim import bound
from virtco_lab.sim import demands
from virtco_lab.sim import order_bound
from virtco_lab.sim import simulation

COFLOWS, CAPACITIES = test_bound.COFLOWS, test_bound.CAPACITIES


def laid_out(coflows, cap_bps):
    fabric = demands.fabric_of(cap_bps, [test_bound.demand(flows)
                                         for _, flows in coflows])
    return fabric, np.array([release for release, _ in coflows], float)


def bound_s(coflows, cap_bps, **limits):
    with mock.patch.dict(vars(order_bound), limits):
        return order_bound.least_mean_cct_s(*laid_out(coflows, cap_bps))


def end_s(coflows, cap_bps):
    """The least end of coflows, port by port, release by release."""
    found = 0.0
    for first, _ in coflows:
        busy_s = np.zeros(len(cap_bps))
        for release, flows in coflows:
            for src, dst, bits in flows if release >= first else ():
                for port in (src, test_bound.N_HOSTS + dst):
                    busy_s[port] += bits / cap_bps[port]
        found = max(found, first + busy_s.max())
    return found


def by_enumeration(coflows, cap_bps):
    sums_s = [sum(end_s(order[:count], cap_bps)
                  for count in range(1, len(order) + 1))
              for order in itertools.permutations(coflows)]
    return (min(sums_s) - sum(release for release, _ in coflows)) / len(
        coflows)


@hypothesis.given(COFLOWS, CAPACITIES)
@hypothesis.settings(max_examples=60, deadline=None)
def test_it_is_the_least_of_all_orders(coflows, cap_bps):
    expected_s = by_enumeration(coflows, cap_bps)
    assert bound_s(coflows, cap_bps) == pytest.approx(expected_s)
    # The table is an estimate, and no part of the answer.
    assert bound_s(coflows, cap_bps, MOST_TABLED=1) == pytest.approx(
        expected_s)


@hypothesis.given(COFLOWS, CAPACITIES)
@hypothesis.settings(max_examples=40, deadline=None)
def test_no_policy_is_below_it(coflows, cap_bps):
    least_s = bound_s(coflows, cap_bps)
    for policy in simulation.POLICIES:
        assert least_s <= test_bound.SLACK * test_bound.mean_cct_s(
            coflows, cap_bps, simulation.Config(policy))


@hypothesis.given(COFLOWS, CAPACITIES)
@hypothesis.settings(max_examples=40, deadline=None)
def test_less_work_makes_it_weaker_and_never_wrong(coflows, cap_bps):
    fabric, release_s = laid_out(coflows, cap_bps)
    found = [order_bound.least_mean_cct_s(fabric, release_s, most_sets)
             for most_sets in (0, 1, 2, 4, 1000)]
    assert found == sorted(found)
    alone_s = simulation.alone_s(fabric).mean()
    for count in (1, 2):
        assert alone_s - 1e-9 <= bound_s(
            coflows, cap_bps, MOST_COFLOWS=count) <= found[-1] + 1e-9


def test_a_large_coflow_waits_while_small_ones_pass():
    """A coflow of 10 s sends between others that take half of the time."""
    coflows = [(0, [(0, 1, 10)]), *((2 * i, [(0, 2, 1)]) for i in range(10))]
    cap_bps = np.ones(2 * test_bound.N_HOSTS)
    mean_s = test_bound.mean_cct_s(coflows, cap_bps, simulation.Config('mrtf'))
    assert mean_s == pytest.approx((10 * 1 + 20) / 11)
    assert bound_s(coflows, cap_bps) == pytest.approx(mean_s)
    assert bound.least_mean_cct_s(*laid_out(coflows, cap_bps)) < 0.9 * mean_s


def test_nothing_takes_no_time():
    assert bound_s([], np.ones(2 * test_bound.N_HOSTS)) == 0.0
