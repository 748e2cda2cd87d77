# SPDX-License-Identifier: Apache-2.0

"""Earliest departure times with the kernel's fq, and real TCP."""

import subprocess
import time

import pytest

from edge_module import enforcer as edge_enforcer
from edge_module.classify import nft
from edge_module.privileged import kernel
from edge_module.shaper import edt
from edge_module.tcplan import model
from tests.netns.edge import bed as beds
from tests.netns.edge import conftest as netns_conftest
from tests.netns.edge import policies

# What the guest carries beside much else that runs on the machine.
LINK_BPS = 1.5e6
GOODPUT = 1448 / 1538
WIRE = model.TreeSettings(overhead_bytes=24, frame_min_bytes=84)

pytestmark = pytest.mark.real_time(
    reason='measures the rate of TCP transfers')


@pytest.fixture
def site():
    """Two senders at h1, one receiver at h2, and the shaper on h1."""
    subprocess.run(['modprobe', '-a', 'sch_fq', 'cls_bpf', 'sch_ingress'],
                   check=True)
    bed = beds.Bed(2)
    try:
        edge = netns_conftest.Edge(bed, 'h1')
        edge.enforcer = edge_enforcer.Enforcer(
            edt.EdtShaper(kernel, 'uplink0'), nft.NftClassifier(kernel),
            LINK_BPS, LINK_BPS * 0.02, settings=WIRE)
        vms = [bed.add_vm('h1'), bed.add_vm('h1'), bed.add_vm('h2')]
        for vm in vms:
            # Such links are not what it is for: it cuts no super-packets.
            beds.run('ethtool', '-K', 'eth0', 'tso', 'off', 'gso', 'off',
                     netns=vm.netns)
        edge.set_ports()
        yield edge, *vms
        edge.call('cleanup')
    finally:
        bed.close()


def _rates(flows, for_s=4.0):
    from_s = [flow.now_s() for flow in flows]
    time.sleep(for_s)
    return [flow.rate_bps(start_s, start_s + for_s)
            for flow, start_s in zip(flows, from_s, strict=True)]


def test_a_coflow_has_its_rate_beside_noise(site):
    edge, member, noise, sink = site
    rate_bps = 0.6 * LINK_BPS
    edge.set_policy(policies.PolicyBuilder('h1', LINK_BPS).coflow(
        'C1', rate_bps, [(member, sink, 1)], ceil_bps=rate_bps).build())
    flows = [beds.Flow(member, sink, 5001).start(),
             beds.Flow(noise, sink, 5002).start()]
    time.sleep(3)
    managed, unmanaged = _rates(flows)
    for flow in flows:
        flow.close()
    print('managed', managed, 'unmanaged', unmanaged)
    assert managed == pytest.approx(rate_bps * GOODPUT, rel=0.08)
    assert managed + unmanaged > 0.88 * LINK_BPS * GOODPUT
    assert managed + unmanaged < 1.02 * LINK_BPS * GOODPUT


def test_unused_rate_goes_to_the_next_in_order(site):
    edge, one, other, sink = site
    edge.set_policy(policies.PolicyBuilder('h1', LINK_BPS)
                    .coflow('C1', 0.1 * LINK_BPS, [(one, sink, 1)], prio=0)
                    .coflow('C2', 0.1 * LINK_BPS, [(other, sink, 1)], prio=1)
                    .build())
    flows = [beds.Flow(one, sink, 5001).start(),
             beds.Flow(other, sink, 5002).start()]
    time.sleep(3)
    first, second = _rates(flows)
    print('first', first, 'second', second)
    assert first + second > 0.88 * LINK_BPS * GOODPUT
    assert first > 3 * second
    flows[0].close()
    time.sleep(1)
    alone, = _rates(flows[1:])
    flows[1].close()
    print('alone', alone)
    assert alone > 0.88 * LINK_BPS * GOODPUT
