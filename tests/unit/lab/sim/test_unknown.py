# SPDX-License-Identifier: Apache-2.0

"""A trace whose sizes nobody says."""

import numpy as np
import pytest

from virtco import exception
from virtco.scheduling import pilots
from virtco_lab.sim import deployed
from virtco_lab.sim import replay
from virtco_lab.sim import traces
from virtco_lab.sim import unknown
from virtco_lab.sim import workloads

SOON = deployed.Deployment(0.05, 0.001, 0.0)


def shuffle(name, arrival_s, size_bytes, n=10):
    """All bytes at n receivers, from n senders."""
    return traces.TraceCoflow(name, arrival_s, tuple(range(n)), tuple(
        (port, size_bytes / n) for port in range(n)))


def test_a_lone_coflow_is_as_fast_as_with_its_size():
    """Its pilots go first, and nothing stands still for them."""
    trace = traces.Trace(10, (shuffle('c', 0.0, 1e10),))
    known, guessed = (run(trace, 1e9, 'mrtf', SOON).cct_s
                      for run in (deployed.run, unknown.run))
    assert known.tolist() == pytest.approx([8.0], rel=0.02)
    assert guessed.tolist() == pytest.approx([8.0], rel=0.05)


def test_the_large_one_makes_way():
    """As soon as pilots tell: the small one is not behind the large one."""
    trace = traces.Trace(10, (shuffle('large', 0.0, 2e10),
                              shuffle('small', 0.1, 1e9)))
    large_s, small_s = unknown.run(trace, 1e9, 'mrtf', SOON).cct_s
    assert 0.8 <= small_s < 0.8 * 2
    assert large_s == pytest.approx(16.8, rel=0.03)


def test_sizes_are_worth_little_more_than_pilots_tell():
    trace = workloads.facebook_like(seed=2, n_ports=30, n_coflows=40,
                                    duration_s=240.0)
    mrtf_s, aalo_s = (replay.replay(
        trace, 1e9, replay.config_of(policy)).cct_s.mean()
        for policy in ('mrtf', 'dark'))
    guessed_s = unknown.run(trace, 1e9, 'mrtf', SOON).cct_s
    assert mrtf_s * 0.98 < guessed_s.mean() < mrtf_s * 1.1 < aalo_s
    assert np.all(guessed_s > 0)


def test_the_truth_is_not_looked_at(monkeypatch):
    """Wrong beliefs cost: it goes by them."""
    trace = traces.Trace(10, (shuffle('large', 0.0, 2e10),
                              shuffle('small', 0.1, 1e9)))

    def reverse(receiver, sent_bytes, has_ended, is_pilot):
        # Who has sent most is believed to have least left.
        return np.where(has_ended, 0.0, 1e9 / (1 + sent_bytes.sum()))

    monkeypatch.setattr(pilots, 'remaining_bytes', reverse)
    _large_s, small_s = unknown.run(trace, 1e9, 'mrtf', SOON).cct_s
    assert small_s > 10


@pytest.mark.parametrize('policy', ['sebf', 'fair', 'dark', 'fifo'])
def test_only_orders_by_what_is_left(policy):
    with pytest.raises(exception.Invalid, match='a policy by remaining bytes'):
        unknown.run(traces.Trace(2, ()), 1e9, policy)
