# SPDX-License-Identifier: Apache-2.0

"""Proportionally fair shares: known answers, and the laws of the optimum."""

import hypothesis
from hypothesis import strategies
import numpy as np
import pytest

from virtco_lab.emulation import tcp_sharing


def test_one_link_is_shared_equally_anew_at_each_end():
    flows = [(0, 2, 1.0, 0), (0, 3, 3.0, 1), (0, 2, 2.0, 0)]
    # Thirds until 3, halves until 5, then all: 8 bit/s are a byte.
    assert tcp_sharing.completion_s(flows, 3, [8.0, 80.0, 80.0, 80.0]) == (
        pytest.approx([5, 6, 0], rel=1e-3))


def test_flow_over_two_full_links_has_a_third():
    src, dst = np.array([0, 1, 0]), np.array([2, 3, 3])
    rates, _ = tcp_sharing.shares_bps(src, dst, np.full(4, 3e7), np.ones(4))
    assert rates == pytest.approx([2e7, 2e7, 1e7], rel=1e-3)


def test_nothing_to_send_takes_no_time():
    assert tcp_sharing.completion_s([], 2, [8.0]) == [0, 0]


@hypothesis.settings(deadline=None, max_examples=50)
@hypothesis.given(
    strategies.lists(strategies.tuples(strategies.integers(0, 3),
                                       strategies.integers(4, 7)),
                     min_size=1, max_size=30),
    strategies.lists(strategies.sampled_from([1e7, 2e7, 5e7]), min_size=8,
                     max_size=8))
def test_no_feasible_rates_are_better_on_balance(pairs, rates_bps):
    """Kelly: the relative changes to any other feasible rates sum to <= 0."""
    src, dst = (np.array(column) for column in zip(*pairs))
    capacity = np.array(rates_bps)
    rates, _ = tcp_sharing.shares_bps(src, dst, capacity, np.ones(8))

    def load(some):
        return np.bincount(src, some, 8) + np.bincount(dst, some, 8)

    assert (load(rates) <= capacity * (1 + 1e-9)).all()
    counts = load(np.ones(len(rates)))
    max_min_like = np.minimum(capacity[src] / counts[src],
                              capacity[dst] / counts[dst])
    only = [np.where(np.arange(len(rates)) == i, np.minimum(
        capacity[src], capacity[dst]), 0.0) for i in range(len(rates))]
    for other in [max_min_like, *only]:
        assert ((other - rates) / rates).sum() <= 0.02 * len(rates)
