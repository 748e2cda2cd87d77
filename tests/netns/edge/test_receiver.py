# SPDX-License-Identifier: Apache-2.0

"""Coflows against other traffic where they arrive."""

import pytest

from edge_module.privileged import kernel_calls as kernel
from edge_module.qdisc import receiver
from tests.netns.edge import bed as beds
from tests.netns.edge import policies

LINK_BPS = 40e6

pytestmark = pytest.mark.netns
real_time = pytest.mark.real_time(reason='measures the rate of TCP transfers')


@pytest.fixture
def crossing(make_bed, edge_of):
    """A coflow and noise meet on h1's link, which carries 40 Mbit/s."""
    bed = make_bed(3)
    beds.run('tc', 'qdisc', 'add', 'dev', 'ch1', 'root', 'tbf', 'rate',
             '40mbit', 'burst', '64k', 'limit', '256k', netns=bed.core)
    sink, a, noise = bed.add_vm('h1'), bed.add_vm('h2'), bed.add_vm('h3')
    edge = edge_of(bed, 'h1')
    edge.set_ports()
    builder = policies.PolicyBuilder('h1', LINK_BPS)
    builder.received.append((a, sink))
    return bed, edge, builder.build(), sink, a, noise


def _rates(a, noise, sink):
    flows = [beds.Flow(a, sink, pacing_bps=30e6)]
    flows += [beds.Flow(noise, sink, 6000 + index) for index in range(6)]
    rates = beds.measure(flows, 1.0, 2.0)
    return rates[0], sum(rates[1:])


@real_time
def test_noise_does_not_starve_a_coflow(crossing):
    bed, edge, policy, sink, a, noise = crossing
    edge.set_policy(policy)
    before, _ = _rates(a, noise, sink)
    edge.enforcer.receiver = receiver.Receiver(kernel, 'uplink0', LINK_BPS)
    edge.set_policy(policy)
    after, rest = _rates(a, noise, sink)
    assert before < 20e6
    assert after > 25e6
    assert rest > 2e6  # the others are not shut out either


def test_receiver_side_is_kept_and_removed(crossing):
    bed, edge, policy, *_ = crossing
    netns = bed.ns('h1')
    edge.enforcer.receiver = receiver.Receiver(kernel, 'uplink0', LINK_BPS)

    def shown():
        return (beds.run('tc', 'class', 'show', 'dev', 'virtco-in',
                         netns=netns)
                + beds.run('tc', 'filter', 'show', 'dev', 'uplink0',
                           'parent', 'ffff:', netns=netns))

    edge.set_policy(policy)
    first = shown()
    assert 'Redirect to device virtco-in' in first
    edge.set_policy(policy)
    assert shown() == first
    assert any('receives' in what for what in edge.call('cleanup'))
    assert 'virtco-in' not in beds.run('ip', 'link', netns=netns)
    assert 'ingress' not in beds.run('tc', 'qdisc', 'show', 'dev', 'uplink0',
                                     netns=netns)
    assert beds.run('nft', 'list', 'ruleset', netns=netns) == ''
