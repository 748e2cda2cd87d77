# SPDX-License-Identifier: Apache-2.0

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from virtco import exception
from virtco_lab.sim import replay
from virtco_lab.sim import simulation
from virtco_lab.sim import workloads

TRACE = workloads.facebook_like(seed=1, n_ports=12, n_coflows=40,
                                duration_s=60.0)


@pytest.mark.parametrize('policy', simulation.POLICIES)
def test_every_policy_ends_every_coflow(policy):
    found = replay.replay(TRACE, 1e9, replay.config_of(policy))
    assert (found.cct_s >= found.alone_s * (1 - 1e-9)).all()


def test_orders_compare_as_they_should():
    means = {policy: replay.replay(
        TRACE, 1e9, replay.config_of(policy)).cct_s.mean()
        for policy in simulation.POLICIES}
    assert min(means, key=means.get) in (
        'mrtf', 'mrtf+swap', 'sebf')
    assert means['mrtf'] < means['dark'] < means['fifo']


def test_progress_does_not_change_the_result(monkeypatch):
    expected = replay.replay(TRACE, 1e9, replay.config_of('mrtf'))
    seen = []
    monkeypatch.setattr(simulation, 'CHUNK_EVENTS', 7)
    found = replay.replay(TRACE, 1e9, replay.config_of('mrtf'),
                          lambda now_s, events: seen.append(events))
    assert found.cct_s == pytest.approx(expected.cct_s)
    assert len(seen) > len(TRACE.coflows)


def test_summary_takes_order_statistics():
    values = np.array([4.0, 1.0, 3.0, 2.0])
    assert replay.summary(values) == {
        'mean_s': 2.5, 'median_s': 3.0, 'p95_s': 4.0}


def test_quantiles_of_a_few_values():
    values = np.array([4.0, 1.0, 3.0, 2.0])
    assert [replay.quantile(values, part) for part in (0.0, 0.3, 1.0)] == [
        1.0, 2.0, 4.0]
    assert set(replay.summary(np.zeros(0)).values()) == {0.0}


def test_rate_must_make_sense():
    with pytest.raises(exception.Invalid, match='rate_bps'):
        replay.replay(TRACE, 0.0, simulation.Config())


SCRIPT = """
import json
from virtco_lab.sim import replay, workloads
trace = workloads.facebook_like(seed=1, n_ports=6, n_coflows=12,
                                duration_s=10.0)
print(json.dumps({policy: replay.replay(
    trace, 1e9, replay.config_of(policy)).cct_s.tolist()
    for policy in ('mrtf', 'mrtf+swap', 'fifo+', 'weighted-fair', 'fair',
                   'dark')}))
"""


def test_plain_python_agrees_with_the_compiled_core():
    found = [json.loads(subprocess.run(
        [sys.executable, '-c', SCRIPT], check=True, capture_output=True,
        text=True, timeout=200,
        env={**os.environ, 'NUMBA_DISABLE_JIT': disable}).stdout)
        for disable in ('0', '1')]
    assert found[0].keys() == found[1].keys()
    for policy in found[0]:
        assert found[0][policy] == pytest.approx(found[1][policy])
