# SPDX-License-Identifier: Apache-2.0

"""Rates of coflows and limits of OVN over the kernel datapath."""

import types

import pytest

from tests.kernel import site as sites
from tests.netns.edge import bed as beds
from tests.netns.edge import controller as controllers
from tests.netns.edge import ovn as ovns
from tests.netns.edge import policies
from tests.netns.edge import process

COFLOW_BPS, LIMIT_BPS = 0.5 * sites.LINK_BPS, 0.2 * sites.LINK_BPS
# Of a full frame of TCP; classes of virtco count 24 bytes more.
FRAME_BYTES, PAYLOAD_BYTES, WIRE_BYTES = 1514, 1448, 24
WHY = ovns.missing()


@pytest.fixture
def chassis(tmp_path):
    """h1 switches by OVN and has three VMs, whose sinks are at h2."""
    bed = beds.Bed(2)
    made = types.SimpleNamespace(bed=bed)
    closing = [bed.close]
    try:
        switch = sites.Switch(bed, 'h1', tmp_path / 'ovs')
        closing.append(switch.close)
        switch.take_over()
        made.ovn = ovns.Ovn(tmp_path / 'ovn', [switch])
        closing.append(made.ovn.close)
        made.vms = [bed.add_vm('h1') for _ in range(3)]
        for vm in made.vms:
            made.ovn.plug(vm, switch)
        made.sinks = [bed.add_vm('h2') for _ in made.vms]
        controller = controllers.Controller(bed.ns('h1'))
        closing.append(controller.stop)
        controller.set_policy(policies.PolicyBuilder(
            'h1', sites.LINK_BPS).coflow(
                'C1', COFLOW_BPS, [(made.vms[0], made.sinks[0], 1)],
                ceil_bps=COFLOW_BPS).build().to_dict())
        edge = process.EdgeProcess(
            bed, 'h1', tmp_path, sites.LINK_BPS, ports_backend='ovs',
            ovsdb_connection=switch.address)
        closing.append(edge.stop)
        edge.start()
        controller.wait_report(
            lambda report: report['applied_generation'] == 1
            and report['health'] == 'ok'
            and len(report['ports']) == len(made.vms), sites.PATIENCE_S)
        yield made
        print(edge.log())
    finally:
        for close in reversed(closing):
            close()


@pytest.mark.skipif(WHY is not None, reason=str(WHY))
@pytest.mark.real_time(reason='measures the rate of TCP transfers')
def test_a_coflow_and_a_limit_hold_together(chassis):
    """A third VM takes what both leave."""
    netns = chassis.bed.ns('h1')

    def tc(*words):
        return beds.run('tc', *words, 'class', 'show', 'dev', 'uplink0',
                        netns=netns)

    chassis.ovn.limit(chassis.vms[1], LIMIT_BPS)
    beds.wait_for(lambda: f'ceil {LIMIT_BPS / 1e6:.0f}Mbit' in tc()
                  and 'class htb 7000:11 parent 7000:10' in tc(),
                  sites.PATIENCE_S, 'both trees')
    try:
        coflow_bps, limited_bps, noise_bps = beds.measure(
            [beds.Flow(*ends) for ends in zip(chassis.vms, chassis.sinks)],
            4.0, 8.0)
    finally:
        print(tc('-s'))
    print('coflow, limit, rest in bit/s:', coflow_bps, limited_bps, noise_bps)
    assert coflow_bps == pytest.approx(
        COFLOW_BPS * PAYLOAD_BYTES / (FRAME_BYTES + WIRE_BYTES), rel=0.05)
    assert limited_bps == pytest.approx(
        LIMIT_BPS * PAYLOAD_BYTES / FRAME_BYTES, rel=0.05)
    assert noise_bps > 0.8 * (sites.LINK_BPS - COFLOW_BPS) * (
        PAYLOAD_BYTES / (FRAME_BYTES + WIRE_BYTES))
