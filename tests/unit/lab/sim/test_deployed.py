# SPDX-License-Identifier: Apache-2.0

"""A trace with reports and policies that take their time."""

import numpy as np
import pytest

from virtco import compiled
from virtco import exception
from virtco_lab.sim import deployed
from virtco_lab.sim import replay
from virtco_lab.sim import simulation
from virtco_lab.sim import traces
from virtco_lab.sim import workloads

TRACE = workloads.facebook_like(seed=1, n_ports=12, n_coflows=40,
                                duration_s=60.0)


def one(size_bytes=1e9):
    return traces.Trace(2, (traces.TraceCoflow(
        'c', 0.25, (0,), ((1, size_bytes),)),))


def test_a_lone_coflow_waits_for_its_policy():
    found = deployed.run(one(), 1e9, 'mrtf',
                         deployed.Deployment(1.0, 0.1, 0.0))
    assert found.cct_s.tolist() == pytest.approx([8.1])


def test_a_receiver_gets_no_more_than_its_link():
    trace = traces.Trace(3, tuple(traces.TraceCoflow(
        str(i), 0.0, (i,), ((2, 1e9),)) for i in range(2)))
    found = deployed.run(trace, 1e9, 'mrtf',
                         deployed.Deployment(1.0, 0.1, 0.2))
    # A fifth of the second sender's link is in the first one's way.
    assert 8 * 1.1 < found.cct_s.min() < 8 * 1.4
    assert found.cct_s.max() > 16


def test_late_is_dearer_than_soon_and_little_dearer_than_at_once():
    at_once = replay.replay(TRACE, 1e9, replay.config_of('mrtf'))
    means = [deployed.run(TRACE, 1e9, 'mrtf', deployed.Deployment(
        report_s, delay_s)).cct_s.mean()
        for report_s, delay_s in ((0.1, 0.01), (1.0, 0.1), (4.0, 2.0))]
    assert at_once.cct_s.mean() * 0.98 < means[0] < means[1] < means[2]
    assert means[0] < at_once.cct_s.mean() * 1.05


@pytest.mark.parametrize('policy', ['mrtf', 'fifo+', 'weighted-fair'])
def test_compiled_and_plain_agree(policy, monkeypatch):
    deployment = deployed.Deployment(0.5, 0.1)
    answer = deployed.run(TRACE, 1e9, policy, deployment)
    for module, name in ((deployed, 'fluid.deployed_kernels'),
                         (deployed, 'fluid.event_kernels'),
                         (simulation, 'fluid.run_kernels'),
                         (simulation, 'fluid.event_kernels'),
                         (simulation, 'scheduling.rater_kernel'),
                         (simulation, 'scheduling.order_kernel')):
        monkeypatch.setattr(module, name.rpartition('.')[2],
                            compiled.plain(f'virtco.{name}'))
    plain = deployed.run(TRACE, 1e9, policy, deployment)
    assert np.array_equal(plain.cct_s, answer.cct_s)


@pytest.mark.parametrize('report_s, delay_s, field', [
    (0.0, 0.1, 'report_s'), (1.0, -1.0, 'delay_s')])
def test_times_are_above_0(report_s, delay_s, field):
    with pytest.raises(exception.Invalid, match=field):
        deployed.Deployment(report_s, delay_s)


def test_fair_sharing_has_no_rates():
    with pytest.raises(exception.Invalid, match='policy'):
        deployed.run(TRACE, 1e9, 'fair', deployed.Deployment())
