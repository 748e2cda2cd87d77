# SPDX-License-Identifier: Apache-2.0

"""Coflows get their share over every kind of network."""

import pytest

from tests.kernel import site as sites
from tests.netns.edge import bed as beds

# Rates that no fair sharing would give.
MEMBER_BPS = 0.75 * sites.LINK_BPS
real_time = pytest.mark.real_time(reason='measures the rate of TCP transfers')


@pytest.fixture(scope='module')
def classified(site):
    """The site, with an agent."""
    site.start_edge()
    return site


@real_time
@pytest.mark.parametrize('kind, ipv6', [
    ('flat', False), ('flat', True), ('vlan', False), ('trunk', False),
    ('vxlan', False), ('geneve', True)])
def test_coflow_beside_noise(classified, kind, ipv6):
    segment = classified.segment(kind)
    minor, = classified.enforce(
        [(segment.member, segment.sink, MEMBER_BPS, ipv6)])
    before = classified.sent_bytes(minor), classified.sent_bytes(3)
    flows = [beds.Flow(segment.member, segment.sink, ipv6=ipv6),
             beds.Flow(segment.noise, segment.sink, ipv6=ipv6)]
    member_bps, noise_bps = beds.measure(flows, 1.5, 2.5)
    total_bps = member_bps + noise_bps
    # Headers take 4 to 8 percent.
    assert 0.8 * sites.LINK_BPS < total_bps < sites.LINK_BPS
    assert member_bps / total_bps == pytest.approx(0.75, abs=0.05)
    # Each was carried by its own class, not by the other's.
    member_bytes = classified.sent_bytes(minor) - before[0]
    noise_bytes = classified.sent_bytes(3) - before[1]
    assert member_bytes >= flows[0].samples[-1][1]
    assert noise_bytes >= flows[1].samples[-1][1]
    assert noise_bytes < member_bytes


def test_kernel_agrees_with_the_policy(classified):
    """The agent finds nothing to put right in what Open vSwitch shows."""
    done = classified.edge.once('--check')
    assert not done.returncode, done.stdout
    # By programs where the kernel has tcx for them.
    assert 'port ' in classified.edge.classified()
