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
from virtco.solver import planner
from virtco_lab.emulation import traffic
from virtco_lab.emulation import transfers

RATE_BPS, CAP_BPS = 40e6, 16e6
PAYLOAD_SHARE = 1448 / 1514


@pytest.mark.real_time(reason='measures the rate of TCP transfers')
@gear.full('unit/scheduling/test_capped_parts for the prediction, and '
           'test_a_limit_of_others_holds_beside_a_coflow for the limit')
def test_a_capped_coflow_ends_as_predicted(make_fabric, tmp_path):
    """One VM is limited as libvirt limits what it receives. Two others send
    to it, and to a free one on its host.
    """
    fabric = make_fabric([RATE_BPS] * 3)
    vms = [fabric.add_vm(f'v{i}', f'h{min(i, 2)}') for i in range(4)]
    capped = vms[2]
    for words in (
            'qdisc add dev {} root handle 1: htb default 1',
            'class add dev {} parent 1: classid 1:1 htb rate '
            f'{units.bps_to_bytes_per_s(CAP_BPS) / 1e3:.0f}kbps'):
        subprocess.run(['ip', 'netns', 'exec', fabric.hypervisors[
            capped.host].namespace, 'tc', *words.format(capped.dev).split()],
            check=True)
    unit = units.bps_to_bytes_per_s(CAP_BPS)
    rows = [(0, 2, unit), (1, 2, unit), (1, 3, 0.5 * unit)]
    fabric.introduce((a, b) for a in vms for b in vms if a != b)
    job = traffic.Job((0.0,), tuple(
        traffic.FlowSpec(0, vms[src].namespace, vms[dst].namespace,
                         vms[dst].address, 5001, int(size_bytes))
        for src, dst, size_bytes in rows))
    with transfers.Transfer(job, tmp_path / 'traffic.log') as transfer:
        (measured_s,) = transfer.run().ccts_s

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
    assert measured_s == pytest.approx(planned.cct_s, rel=0.1)
