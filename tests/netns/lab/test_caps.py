# SPDX-License-Identifier: Apache-2.0

"""Coflows of capped VMs end when plans and the scheduler say."""

import subprocess

import numpy as np
import pytest

from tests.netns import gear
from virtco import scheduling
from virtco import units
from virtco.model import cluster
from virtco.model import coflow as coflow_model
from virtco.model import live
from virtco.model import snapshot
from virtco.scheduling import endings
from virtco.solver import planner
from virtco.state import byte_counters
from virtco.state import inflight
from virtco.state import remaining_flows
from virtco.state import route
from virtco_lab.emulation import traffic
from virtco_lab.emulation import transfers

RATE_BPS, CAP_BPS = 40e6, 16e6
PAYLOAD_SHARE = 1448 / 1514


UNIT = units.bps_to_bytes_per_s(CAP_BPS)


@pytest.fixture
def vms(make_fabric):
    """Four VMs on three hosts. The third is limited as libvirt limits what it
    receives, and the fourth is on its host.
    """
    fabric = make_fabric([RATE_BPS] * 3)
    found = [fabric.add_vm(f'v{i}', f'h{min(i, 2)}') for i in range(4)]
    capped = found[2]
    for words in (
            'qdisc add dev {} root handle 1: htb default 1',
            'class add dev {} parent 1: classid 1:1 htb rate '
            f'{units.bps_to_bytes_per_s(CAP_BPS) / 1e3:.0f}kbps'):
        subprocess.run(['ip', 'netns', 'exec', fabric.hypervisors[
            capped.host].namespace, 'tc', *words.format(capped.dev).split()],
            check=True)
    fabric.introduce((a, b) for a in found for b in found if a != b)
    return found


def measured_s(vms, rows, log):
    job = traffic.Job((0.0,), tuple(
        traffic.FlowSpec(0, vms[src].namespace, vms[dst].namespace,
                         vms[dst].address, 5001, int(size_bytes))
        for src, dst, size_bytes in rows))
    with transfers.Transfer(job, log) as transfer:
        (cct_s,) = transfer.run().ccts_s
    return cct_s


@pytest.mark.real_time(reason='measures the rate of TCP transfers')
@gear.full('unit/scheduling/test_capped_parts for the prediction, and '
           'test_a_limit_of_others_holds_beside_a_coflow for the limit')
def test_a_capped_coflow_ends_as_predicted(vms, tmp_path):
    """Two VMs send to the capped one, and to a free one on its host."""
    capped, unit = vms[2], UNIT
    rows = [(0, 2, unit), (1, 2, unit), (1, 3, 0.5 * unit)]
    cct_s = measured_s(vms, rows, tmp_path / 'traffic.log')

    payload_bps = RATE_BPS * PAYLOAD_SHARE
    hosts = tuple(cluster.Host(f'h{i}', (2.0,), payload_bps, payload_bps)
                  for i in range(3))
    problem = snapshot.PlacementProblem(
        hosts=hosts, vms=tuple(cluster.Vm(
            f'v{i}', (1.0,), vm.host, True, ingress_cap_bps=(
                CAP_BPS * PAYLOAD_SHARE if vm is capped else np.inf))
            for i, vm in enumerate(vms)),
        coflows=(coflow_model.Coflow.from_flows('c', 4, rows),))
    planned = planner.plan(problem)
    assert planned.bottleneck.startswith('cap of v2, ')
    cap = live.Cap('h2', 'ingress', 'v2')
    bps = np.full(3, payload_bps)
    (scheduled,) = scheduling.schedule([live.LiveCoflow('c', live.Flows(
        live.Pairs([('h0', 'h2'), ('h1', 'h2')]),
        np.array([unit, 1.5 * unit])), capped=live.Capped(
            np.array([0, 1, 1]), np.array([1, 2 / 3, 1 / 3]),
            np.array([[-1, 0], [-1, 0], [-1, -1]]),
            {cap: CAP_BPS * PAYLOAD_SHARE}))],
        live.Ports(('h0', 'h1', 'h2'), bps, bps), now_s=0.0).coflows
    assert planned.cct_s == pytest.approx(scheduled.predicted_end_s)
    assert cct_s == pytest.approx(planned.cct_s, rel=0.1)


@pytest.mark.real_time(reason='measures the rate of TCP transfers')
@gear.full('unit/state/test_inflight and unit/scheduling/test_capped_parts '
           'for the prediction')
def test_a_cap_holds_bytes_inside_its_host_too(vms, tmp_path):
    """Bytes between hosts alone would take a tenth of the time."""
    rows = [(0, 3, 0.5 * UNIT), (3, 2, 2 * UNIT)]
    cct_s = measured_s(vms, rows, tmp_path / 'traffic.log')
    tracked = inflight.Tracked('c', 'g', 'p', 'c', 'active', (
        coflow_model.Coflow.from_flows('c', 4, rows)),
        byte_counters.CoflowProgress([size for *_, size in rows]))
    tracked.place({i: route.Member(vm.vm, vm.host, True, (
        np.inf, CAP_BPS if vm is vms[2] else np.inf))
        for i, vm in enumerate(vms)})
    bps = np.full(2, RATE_BPS)
    (scheduled,) = scheduling.schedule(
        [remaining_flows.shown(tracked, (), endings.Rules(), {}).live],
        live.Ports(('h0', 'h2'), bps, bps), now_s=0.0,
        size_factor=1 / PAYLOAD_SHARE).coflows
    assert cct_s == pytest.approx(scheduled.predicted_end_s, rel=0.1)
