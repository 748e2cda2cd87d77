# SPDX-License-Identifier: Apache-2.0

"""The emulated network carries what it says, and goes without a trace."""

import os
import pathlib
import re
import signal
import subprocess
import sys

import psutil
import pytest

from tests import patience
from tests import run_name
from tests.netns import gear
from virtco import exception
from virtco import units
from virtco.model import coflow as coflow_model
from virtco_lab.emulation import calibration
from virtco_lab.emulation import capability
from virtco_lab.emulation import namespaces
from virtco_lab.emulation import prediction
from virtco_lab.emulation import process
from virtco_lab.emulation import shaping
from virtco_lab.emulation import traffic
from virtco_lab.emulation import transfers

RATE_BPS = 40e6
PAYLOAD_SHARE = 1448 / 1514
OWNER = '''
import sys, time
from virtco_lab.emulation import bed, fabric, janitor, namespaces, process
import pathlib
run = namespaces.new_run()
janitor.Janitor(run)
made = fabric.Fabric(run)
made.build(bed.Bed({'h0': 1e8}))
child = process.Child('a sleeper', ['sleep', '600'], pathlib.Path('/dev/null'),
                      namespace=made.hypervisors['h0'].namespace)
print(run, child.popen.pid, flush=True)
time.sleep(600)
'''
real_time = pytest.mark.real_time(reason='measures the rate of TCP transfers')


def _flow(coflow, src, dst, size_bytes, port=5001):
    return traffic.FlowSpec(coflow, src.namespace, dst.namespace,
                            dst.address, port, int(size_bytes),
                            src.host if src.host == dst.host else None)


def _send(flows, tmp_path, n_coflows=None, **options):
    n_coflows = n_coflows or 1 + max(flow.coflow for flow in flows)
    job = traffic.Job((0.0,) * n_coflows, tuple(flows), **options)
    with transfers.Transfer(job, tmp_path / 'traffic.log') as transfer:
        return transfer.run()


def _goodput_bps(outcome, sizes_bytes):
    return [units.bytes_per_s_to_bps(size / cct)
            for size, cct in zip(sizes_bytes, outcome.ccts_s)]


def test_machine_is_capable():
    capability.check()


@gear.full(
    'netns/lab/test_fabric.py::test_many_flows_end_when_fair_shares_say, '
    'unit/lab/emulation/test_shaping.py::test_both_ways_have_the_rate')
@real_time
def test_egress_and_ingress_are_limited(make_fabric, tmp_path):
    """A fast sender into a slow receiver, and the other way round."""
    fabric = make_fabric([RATE_BPS, RATE_BPS / 2])
    a, b = fabric.add_vm('a', 'h0'), fabric.add_vm('b', 'h1')
    size = units.bps_to_bytes_per_s(RATE_BPS) * 0.75
    for src, dst in ((a, b), (b, a)):
        outcome = _send([_flow(0, src, dst, size)], tmp_path)
        assert _goodput_bps(outcome, [size])[0] == pytest.approx(
            RATE_BPS / 2 * PAYLOAD_SHARE, rel=0.1)


@gear.full(
    'netns/lab/test_fabric.py::test_many_flows_end_when_fair_shares_say')
@real_time
def test_core_does_not_block(make_fabric, tmp_path):
    """Every host sends and receives at full rate at the same time."""
    fabric = make_fabric([RATE_BPS] * 4)
    vms = [fabric.add_vm(f'v{i}', f'h{i}') for i in range(4)]
    size = units.bps_to_bytes_per_s(RATE_BPS) * 1.5
    outcome = _send([_flow(i, vms[i], vms[(i + 1) % 4], size)
                     for i in range(4)], tmp_path)
    goodputs = _goodput_bps(outcome, [size] * 4)
    assert min(goodputs) > 0.75 * RATE_BPS * PAYLOAD_SHARE
    assert max(goodputs) < 1.05 * RATE_BPS * PAYLOAD_SHARE


@gear.full(
    'netns/lab/test_fabric.py::'
    'test_a_change_of_a_rate_is_of_one_uplink_both_ways')
@real_time
def test_rate_changes_behind_everyones_back(make_fabric, tmp_path):
    fabric = make_fabric([RATE_BPS] * 2)
    a, b = fabric.add_vm('a', 'h0'), fabric.add_vm('b', 'h1')
    size = units.bps_to_bytes_per_s(RATE_BPS) * 0.75
    before = _send([_flow(0, a, b, size)], tmp_path)
    fabric.set_uplink_rate('h1', RATE_BPS / 2)
    after = _send([_flow(0, a, b, size)], tmp_path)
    assert after.ccts_s[0] / before.ccts_s[0] == pytest.approx(2, rel=0.15)


def test_a_change_of_a_rate_is_of_one_uplink_both_ways(make_fabric):
    fabric = make_fabric([RATE_BPS] * 2)
    fabric.set_uplink_rate('h1', RATE_BPS / 2)

    def rates(dev):
        shown = subprocess.check_output(
            ['nsenter', f'--net={namespaces.path(fabric.core)}', 'tc',
             'class', 'show', 'dev', dev], text=True)
        return re.findall(r'class htb 1:9 root rate (\w+) ceil (\w+)', shown)

    for dev in ('h0', shaping.ifb_name('h0')):
        assert rates(dev) == [('40Mbit', '40Mbit')]
    for dev in ('h1', shaping.ifb_name('h1')):
        assert rates(dev) == [('20Mbit', '20Mbit')]
    with pytest.raises(exception.NotFound):
        fabric.set_uplink_rate('h7', RATE_BPS)


@gear.full(
    'netns/lab/test_fabric.py::test_flows_inside_a_host_share_its_pace')
@real_time
def test_traffic_inside_a_host_is_free_and_exact(make_fabric, tmp_path):
    fabric = make_fabric([RATE_BPS] * 2)
    a, b = fabric.add_vm('a', 'h0'), fabric.add_vm('b', 'h0')
    c = fabric.add_vm('c', 'h1')
    size = units.bps_to_bytes_per_s(RATE_BPS)
    outcome = _send([_flow(0, a, b, size), _flow(1, a, c, size)], tmp_path)
    assert outcome.ccts_s[0] < 0.1 * outcome.ccts_s[1]
    received = [sum(row[i] for row in outcome.timeline) for i in (0, 1)]
    assert received == [0, int(size)]  # local bytes are left out


@real_time
def test_flows_inside_a_host_share_its_pace(make_fabric, tmp_path):
    """When the small one has ended, the large one has the pace alone."""
    fabric = make_fabric([RATE_BPS])
    a, b, c = [fabric.add_vm(name, 'h0') for name in 'abc']
    sizes = (units.bps_to_bytes_per_s(RATE_BPS),
             units.bps_to_bytes_per_s(RATE_BPS) * 3)
    outcome = _send([_flow(0, a, b, sizes[0]), _flow(1, c, b, sizes[1])],
                    tmp_path, local_bps=2 * RATE_BPS)
    assert outcome.ccts_s == pytest.approx((1.0, 2.0), rel=0.1)


@real_time
def test_many_flows_end_when_fair_shares_say(make_fabric, tmp_path):
    """Between three hosts, both ways at once, of very different sizes."""
    fabric = make_fabric([RATE_BPS] * 3)
    vms = [fabric.add_vm(f'v{i}', f'h{i % 3}') for i in range(9)]
    unit = units.bps_to_bytes_per_s(RATE_BPS) / 20
    coflows = [coflow_model.Coflow.from_flows(f'c{k}', 9, [
        (src, dst, unit * (1 + (src + dst + k) % 4))
        for src in range(9) for dst in range(9)
        if src % 3 != dst % 3 and (src + dst) % 2 == k]) for k in range(2)]
    hosts = tuple(vm.host for vm in vms)
    flows = [_flow(k, vms[flow.src], vms[flow.dst], flow.size_bytes)
             for k, coflow in enumerate(coflows) for flow in coflow.flows]
    fabric.introduce((a, b) for a in vms for b in vms if a != b)
    outcome = _send(flows, tmp_path, window_bytes=traffic.window_bytes(
        [(hosts[flow.src], hosts[flow.dst]) for coflow in coflows
         for flow in coflow.flows], RATE_BPS))
    expected = prediction.simulate_tcp(
        [prediction.Placed(coflow, hosts) for coflow in coflows],
        dict.fromkeys(set(hosts), RATE_BPS * PAYLOAD_SHARE))
    assert outcome.ccts_s == pytest.approx(expected, rel=0.15)


def test_removed_vm_is_gone_and_its_place_is_free(make_fabric):
    fabric = make_fabric([RATE_BPS])
    first = fabric.add_vm('a', 'h0')
    fabric.remove_vm('a')
    second = fabric.add_vm('a', 'h0')
    assert second.address != first.address
    assert first.namespace not in namespaces.list_names(fabric.run)


def test_unreachable_destination_is_an_error(make_fabric, tmp_path):
    fabric = make_fabric([RATE_BPS])
    a, b = fabric.add_vm('a', 'h0'), fabric.add_vm('b', 'h0')
    nowhere = traffic.FlowSpec(0, a.namespace, 'virtco-emu-000000-none',
                               b.address, 5001, 10)
    with pytest.raises(process.ProcessFailed, match='the traffic process'):
        _send([nowhere], tmp_path)


@pytest.mark.parametrize('sig', [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_a_killed_owner(sig):
    owner = subprocess.Popen([sys.executable, '-c', OWNER],
                             stdout=subprocess.PIPE, text=True)
    run, sleeper = owner.stdout.readline().split()
    assert len(namespaces.list_names(run)) == 3
    owner.send_signal(sig)
    owner.wait()
    owner.stdout.close()
    patience.wait_for(lambda: run not in namespaces.list_runs()
                      and not psutil.pid_exists(int(sleeper)),
                      'the end of what it owned', 15)


@pytest.fixture
def own_names(monkeypatch, tmp_path):
    """What another run sweeps is not ours, and the other way round."""
    monkeypatch.setattr(namespaces, 'PREFIX', run_name.PREFIX)
    monkeypatch.setattr(namespaces, 'RUNS_DIR', tmp_path)
    yield
    for run in namespaces.list_runs():
        namespaces.release(run)


def test_sweep_takes_the_stale_and_leaves_the_living(own_names):
    run = namespaces.new_run()
    namespaces.create(namespaces.name(run, 'core'))
    stale = namespaces.new_run()
    namespaces.create(namespaces.name(stale, 'core'))
    owner = namespaces.run_dir(stale) / 'owner'
    owner.write_text(f'{os.getpid()} 1\n')  # the id was used before
    assert namespaces.sweep() == [stale]
    assert namespaces.list_names(stale) == []
    assert not namespaces.run_dir(stale).exists()
    assert len(namespaces.list_names(run)) == 1


def test_child_that_ends_early_is_named_with_its_words(tmp_path):
    log = pathlib.Path(tmp_path / 'log')
    child = process.Child('the thing', ['sh', '-c', 'echo why >&2; exit 3'],
                          log)
    with pytest.raises(process.ProcessFailed, match=(
            rf'the thing ended with status 3. {log} ends with:\n  why')):
        process.wait_until(lambda: False, 'anything', [child])


def test_machine_carries_something():
    assert calibration.measure_bps() > 1e8
