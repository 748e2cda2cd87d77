# SPDX-License-Identifier: Apache-2.0

"""Bounds that simulated runs print."""

import dataclasses

import pytest

from virtco.model import coflow as coflow_model
from virtco_lab.sim import cloud
from virtco_lab.sim import groups
from virtco_lab.sim import optimum
from virtco_lab.sim import schemes
from virtco_lab.sim import workloads
from virtco_lab.sim.figures import virtco


def pair(name, size_bytes, arrival_s=0.0):
    return groups.of_slots(name, [coflow_model.Coflow.from_flows(
        name, 2, [(0, 1, size_bytes)])], arrival_s)


def test_two_coflows_that_share_a_port():
    """1 and 3 s at one port: 1 and 4 s is the best that there is."""
    hosts = groups.equal_hosts(2, 2.0, 8e9)
    its_groups = [pair('a', 1e9), pair('b', 3e9)]
    result = dataclasses.replace(
        cloud.simulate(hosts, its_groups, schemes.get('virtco')),
        hosts={'a': ('h0', 'h1'), 'b': ('h0', 'h1')})
    assert optimum.least_mean_cct_s(hosts, its_groups, result
                                    ) == pytest.approx(2.5)


def test_a_coflow_is_not_released_before_it_started():
    hosts = groups.equal_hosts(2, 1.0, 8e9)
    its_groups = [pair('a', 1e9), pair('b', 1e9, 0.5)]
    result = cloud.simulate(hosts, its_groups, schemes.get('virtco'))
    # The second waits until the first has left.
    assert result.coflows[1].start_s == pytest.approx(1.0)
    assert optimum.least_mean_cct_s(hosts, its_groups, result
                                    ) == pytest.approx(1.0)


@pytest.mark.parametrize('scheme', ['virtco', 'sebf-ta', 'baseline'])
def test_nothing_is_below_its_bound(scheme):
    hosts = virtco.datacentre(1, True)
    its_groups = groups.of_coflows(workloads.table2(
        seed=1, shape='sparse', scale_width=0.3))
    result = cloud.simulate(hosts, its_groups, schemes.get(scheme))
    here_s = optimum.least_mean_cct_s(hosts, its_groups, result)
    anywhere_s = optimum.least_anywhere_s(hosts, its_groups)
    assert anywhere_s * (1 - 1e-9) <= here_s
    assert here_s <= result.mean_cct_s * (1 + 1e-9)
