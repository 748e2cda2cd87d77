# SPDX-License-Identifier: Apache-2.0

"""The agent as its own process: policy in, kernel state and reports out."""

import dataclasses
import os
import pwd
import re
import resource
import signal
import socket
import time
import urllib.request

import pytest

from edge_module.privileged import kernel_calls as kernel
from edge_module.qdisc import htb
from tests import patience
from tests.netns import gear
from tests.netns.edge import bed as beds
from tests.netns.edge import controller as controllers
from tests.netns.edge import policies
from tests.netns.edge import proc
from tests.netns.edge import process

LINK_BPS = 40e6

pytestmark = pytest.mark.netns
real_time = pytest.mark.real_time(reason='measures the rate of TCP transfers')


@pytest.fixture
def site(make_bed, tmp_path):
    """Two hypervisors, a controller and the command, not yet started."""
    bed = make_bed(2)
    controller = controllers.Controller(bed.ns('h1'))
    edge = process.EdgeProcess(bed, 'h1', tmp_path)
    yield bed, controller, edge
    edge.stop()
    controller.stop()


def _policy(vms, rate_bps=20e6, **kwargs):
    a, b = vms
    return policies.PolicyBuilder('h1', LINK_BPS, **kwargs).coflow(
        'C1', rate_bps, [(a, b, 1)], ceil_bps=rate_bps).build()


@gear.full(
    'netns/edge/test_agent.py::test_agent_runs_without_privileges; its '
    'numbers: '
    'unit/edge/test_reporting.py::test_it_says_what_the_kernel_counted; '
    'netns/edge/test_shaping.py::test_coflow_gets_its_rate_beside_noise')
@real_time
def test_policy_is_enforced_and_reported(site):
    bed, controller, edge = site
    a, b = bed.add_vm('h1'), bed.add_vm('h2')
    controller.set_policy(_policy((a, b)).to_dict())
    edge.start()
    controller.wait_report(lambda r: r['applied_generation'] == 1
                           and r['ports'])
    rate, = beds.measure([beds.Flow(a, b)])
    assert rate == pytest.approx(20e6 * 1448 / 1514, rel=0.06)
    report = controller.wait_report(
        lambda r: r['coflows'] and r['coflows'][0]['sent_bytes'] > 4e6
        and r['pairs'] and r['pairs'][0]['sent_bytes'] > 4e6
        # A class is not read at the same moment as its children.
        and (r['coflows'][0]['destinations'][0]['sent_bytes']
             == r['coflows'][0]['sent_bytes']))
    coflow, = report['coflows']
    assert coflow['destinations'][0]['host'] == 'h2'
    # Segments at the uplink, super-packets at the VM's port.
    assert coflow['sent_bytes'] / 1514 <= coflow['sent_packets'] < 1e5
    assert 0 < report['pairs'][0]['sent_packets'] <= coflow['sent_packets']
    assert report['uplink_sent_bytes'] >= coflow['sent_bytes']
    assert report['link']['egress_bps'] == LINK_BPS
    assert report['health'] == 'ok' and report['error'] is None
    assert edge.once('--check').stdout.startswith('The kernel holds')


def _start(site, rate_bps=20e6, **kwargs):
    bed, controller, edge = site
    vms = bed.add_vm('h1'), bed.add_vm('h2')
    controller.set_policy(_policy(vms, rate_bps, **kwargs).to_dict())
    edge.start()
    controller.wait_report(lambda r: r['applied_generation'] == 1
                           and r['ports'])
    return vms


def test_an_end_is_reported_long_before_a_report_is_due(make_bed, tmp_path):
    bed = make_bed(2)
    controller = controllers.Controller(bed.ns('h1'))
    edge = process.EdgeProcess(
        bed, 'h1', tmp_path, report_interval_s=60, constants={
            **process.CONSTANTS, 'edge_module.reporting._LOOKS': 300})
    try:
        vms = _start((bed, controller, edge))
        flow = beds.Flow(*vms, size_bytes=1_000_000).start()
        beds.wait_for(lambda: flow.done_s, 20, 'its end')
        flow.close()
        report = controller.wait_report(
            lambda r: r['coflows']
            and r['coflows'][0]['sent_bytes'] > 1_000_000
            and not r['coflows'][0].get('backlog_bytes'), 25)
        assert report['coflows'][0]['coflow_id'] == 'C1'
    finally:
        edge.stop()
        controller.stop()


@gear.full(
    'netns/edge/test_restart.py::'
    'test_kills_of_agent_and_helper_lose_nothing; counters: '
    'unit/edge/test_counters.py::test_restart_of_the_module_counts_on')
@real_time
def test_transfer_outlives_the_agent(site):
    """Killed and started again under a transfer that fills no queue."""
    bed, controller, edge = site
    vms = _start(site)
    flow = beds.Flow(*vms, pacing_bps=18e6).start()
    time.sleep(3)
    before_bps = flow.rate_bps(0.5, 3)
    retransmits = flow.total_retransmits()
    table = edge.pins()
    begin_s = flow.now_s()
    edge.stop(signal.SIGKILL)
    time.sleep(1)
    seen = len(controller.reports)
    edge.start()
    beds.wait_for(lambda: len(controller.reports) > seen + 1, 15, 'a report')
    beds.wait_for(lambda: flow.now_s() - begin_s > 2.5)
    end_s = flow.now_s()
    caused = flow.total_retransmits() - retransmits
    flow.close()
    assert caused <= 1  # a probe that a busy machine lets go out late
    assert flow.rate_bps(begin_s, end_s) == pytest.approx(before_bps,
                                                          rel=0.02)
    # Nothing was made anew: everything has its old number.
    assert edge.pins() == table
    # Its counters went on where they stood.
    report = controller.reports[-1]
    assert report['epoch'] == controller.reports[seen - 1]['epoch']
    sent = [r['coflows'][0]['sent_bytes'] for r in controller.reports
            if r['coflows']]
    assert sent == sorted(sent) and sent[-1] > 3e6


@gear.full(
    'netns/edge/test_agent.py::'
    'test_classes_are_shares_until_the_controller_is_back')
@real_time
def test_class_holds_while_the_controller_is_away(site):
    """A saturating flow keeps its rate; after the TTL it may take it all."""
    bed, controller, edge = site
    vms = _start(site, ttl_s=4.0)
    flow = beds.Flow(*vms).start()
    time.sleep(1.5)
    controller.stop()
    begin_s = flow.now_s()
    time.sleep(2.0)
    held_bps = flow.rate_bps(begin_s, flow.now_s())
    assert held_bps == pytest.approx(20e6 * 1448 / 1514, rel=0.06)
    beds.wait_for(lambda: 'have shares of the link' in edge.log(), 10,
                  'the decay')
    time.sleep(1.0)
    begin_s = flow.now_s()
    time.sleep(1.5)
    assert flow.rate_bps(begin_s, flow.now_s()) > 30e6
    assert edge.log().count('have shares of the link') == 1
    # It comes back: order and rates again.
    seen = len(controller.reports)
    controller.start()
    beds.wait_for(lambda: any(r['health'] == 'ok' for r in
                              controller.reports[seen:]), 15, 'health')
    time.sleep(0.5)
    begin_s = flow.now_s()
    time.sleep(1.0)
    assert flow.rate_bps(begin_s, flow.now_s()) < 22e6
    flow.close()


def test_classes_are_shares_until_the_controller_is_back(site):
    """Once the policy is older than its time to live, and not before."""
    bed, controller, edge = site
    _start(site, ttl_s=2.0)
    controller.stop()
    assert 'ceil 20Mbit' in _class(edge, '7000:11')
    beds.wait_for(lambda: 'ceil 40Mbit' in _class(edge, '7000:11'), 15,
                  'the decay')
    assert 'have shares of the link' in edge.log()
    seen = len(controller.reports)
    controller.start()
    beds.wait_for(lambda: any(report['health'] == 'ok' for report
                              in controller.reports[seen:]), 15, 'health')
    assert 'ceil 20Mbit' in _class(edge, '7000:11')
    assert edge.log().count('have shares of the link') == 1


def test_start_without_controller_uses_the_last_policy(site):
    bed, controller, edge = site
    vms = _start(site)
    edge.stop()
    edge.once('--cleanup')
    assert 'htb' not in beds.run('tc', 'qdisc', 'show', 'dev', 'uplink0',
                                 netns=bed.ns('h1'))
    controller.stop()
    edge.start()
    beds.wait_for(lambda: '7000:11' in edge.tc()
                  and vms[1].ip in edge.classified(), 10, 'the last policy')


def test_malformed_policy_is_refused_whole(site):
    bed, controller, edge = site
    vms = _start(site)
    before = edge.tc(), edge.classified()
    document = _policy(vms, 5e6, generation=2).to_dict()
    document = {**document, 'flows': [
        {**document['flows'][0], 'dst_ip': '10.0.0.300'}]}
    controller.set_policy(document)
    report = controller.wait_report(lambda r: r['error'])
    assert 'flows[0].dst_ip' in report['error']
    assert '10.0.0.300' in report['error']
    assert report['applied_generation'] == 1
    assert report['health'] == 'degraded'
    assert (edge.tc(), edge.classified()) == before
    controller.set_policy(_policy(vms, 6e6, generation=3).to_dict())
    controller.wait_report(lambda r: r['applied_generation'] == 3
                           and r['error'] is None)
    assert 'rate 6Mbit' in edge.tc()


def test_ports_file_is_followed(site):
    bed, controller, edge = site
    a, b = _start(site)
    late = bed.add_vm('h1')
    edge.update_ports()
    controller.wait_report(lambda r: len(r['ports']) == 2)
    assert f'port {late.dev} ' in edge.classified()
    edge.ports.write_text('{"ports": [{"vm"')
    report = controller.wait_report(lambda r: r['health'] == 'degraded')
    assert len(report['ports']) == 2
    edge.ports.write_text('{"ports": []}')
    controller.wait_report(lambda r: r['ports'] == []
                           and r['health'] == 'ok')
    assert edge.classified() == ''


def test_generations_are_the_controllers_alone(site):
    """Also a lower one than before is taken, from the one that leads."""
    bed, controller, edge = site
    vms = _start(site)
    controller.set_policy(_policy(vms, 10e6, generation=2 ** 62).to_dict())
    controller.wait_report(lambda r: r['applied_generation'] == 2 ** 62)
    controller.set_policy(_policy(vms, 15e6, generation=6).to_dict())
    controller.wait_report(lambda r: r['applied_generation'] == 6
                           and r['health'] == 'ok')
    assert 'rate 15Mbit' in edge.tc() and 'rate 10Mbit' not in edge.tc()


def test_running_out_of_file_descriptors_is_said_and_survived(site):
    bed, controller, edge = site
    _start(site)
    controller.wait_report(lambda r: r['health'] == 'ok')
    pid = edge.process.pid
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        controller.wait_report(lambda r: r['health'] == 'error'
                               and 'file descriptors' in r['error'])
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    controller.wait_report(lambda r: r['health'] == 'ok', 20)
    assert edge.process.pid == pid and edge.process.poll() is None


def _class(edge, name):
    line, = [line for line in edge.tc().splitlines() if f' {name} ' in line]
    return line


def _has_its_rate(edge):
    return 'rate 20Mbit' in _class(edge, '7000:11')


def test_what_nobody_announces_is_repaired_by_the_audit(
        make_bed, tmp_path):
    """A class changed by hand, and the classification taken away."""
    bed = make_bed(2)
    controller = controllers.Controller(bed.ns('h1'))
    edge = process.EdgeProcess(bed, 'h1', tmp_path, audit_interval_s=1)
    try:
        _start((bed, controller, edge))
        netns = bed.ns('h1')
        # Changes from this module's own netlink ports wake nobody up.
        uplink = htb.Uplink(kernel, 'uplink0')
        slow = dataclasses.replace(
            beds.in_netns(netns, uplink.snapshot).tree[0x11], rate_bps=10 ** 6)
        beds.in_netns(netns, uplink.set_classes, [slow], {})
        assert not _has_its_rate(edge)
        beds.wait_for(lambda: _has_its_rate(edge), 10, 'repair of the class')
        edge.unclassify()
        # Entries come before ports are attached.
        beds.wait_for(lambda: 'port tap1' in edge.classified(), 10,
                      'repair of the classification')
        assert not edge.once('--check', check=False).returncode
    finally:
        edge.stop()
        controller.stop()


def test_damage_is_repaired_and_shown(make_bed, tmp_path):
    bed = make_bed(2)
    controller = controllers.Controller(bed.ns('h1'))
    edge = process.EdgeProcess(bed, 'h1', tmp_path, audit_interval_s=1)
    try:
        _start((bed, controller, edge))
        netns = bed.ns('h1')
        edge.stop()
        beds.run('tc', 'class', 'change', 'dev', 'uplink0', 'parent',
                 '7000:10', 'classid', '7000:11', 'htb', 'rate', '1mbit',
                 netns=netns)
        edge.unclassify()
        shown = edge.once('--check', check=False)
        assert shown.returncode == 1
        assert 'class 0x11' in shown.stdout
        assert 'tap1' in shown.stdout
        edge.start()
        beds.wait_for(lambda: _has_its_rate(edge)
                      and 'port tap1' in edge.classified(), 20,
                      'repair at start')
        assert not edge.once('--check', check=False).returncode
        beds.run('tc', 'qdisc', 'del', 'dev', 'uplink0', 'root', netns=netns)
        edge.unclassify()
        beds.wait_for(lambda: '7000:11' in edge.tc()
                      and 'port tap1' in edge.classified(), 10,
                      'repair by the audit')
    finally:
        edge.stop()
        controller.stop()


def test_cleanup_removes_ours_only(site):
    bed, controller, edge = site
    netns = bed.ns('h1')
    beds.run('tc', 'qdisc', 'add', 'dev', 'brv', 'root', 'tbf', 'rate',
             '1gbit', 'burst', '100k', 'latency', '10ms', netns=netns)
    tap = _start(site)[0].dev
    # Somebody else's filter at the VM's port.
    beds.run('tc', 'qdisc', 'add', 'dev', tap, 'clsact', netns=netns)
    beds.run('tc', 'filter', 'add', 'dev', tap, 'ingress', 'pref', '9',
             'protocol', 'ip', 'u32', 'match', 'u32', '0', '0xffffffff',
             'flowid', '1:1', netns=netns)
    edge.stop()
    assert edge.once('--cleanup').stdout.count('uplink0') == 1
    assert edge.tc() == ''
    assert edge.classified() == ''
    assert 'pref 9 u32' in beds.run('tc', 'filter', 'show', 'dev', tap,
                                    'ingress', netns=netns)
    assert 'tbf' in beds.run('tc', 'qdisc', 'show', 'dev', 'brv',
                             netns=netns)
    assert 'nothing' in edge.once('--cleanup').stdout


@pytest.mark.parametrize('arguments', [(), ('--cleanup',)])
@pytest.mark.parametrize('uplink_dev', ['uplink0', 'brv'])
def test_a_second_agent_leaves_the_host_to_the_first(
        site, tmp_path, uplink_dev, arguments):
    """Also one of another uplink: both would have the same maps."""
    bed, _, edge = site
    _start(site)
    before = edge.tc(), edge.classified()
    (tmp_path / 'other').mkdir()
    done = process.EdgeProcess(
        bed, 'h1', tmp_path / 'other', uplink_dev=uplink_dev,
    ).once(*arguments, check=False)
    assert (done.returncode, done.stdout) == (2, '')
    line, = done.stderr.splitlines()
    assert line.startswith(
        'virtco-edge: VC-090: this network namespace has another edge module')
    assert (edge.tc(), edge.classified()) == before
    assert '' not in before


def test_foreign_qdisc_is_left_alone_and_reported(site):
    bed, controller, edge = site
    netns = bed.ns('h1')
    beds.run('tc', 'qdisc', 'add', 'dev', 'uplink0', 'root', 'handle', '1:',
             'htb', 'default', '1', netns=netns)
    edge.start()
    report = controller.wait_report(lambda r: r['error'])
    assert 'htb 1:' in report['error'] and report['health'] == 'degraded'
    assert edge.tc() == ''
    edge.stop()
    assert 'nothing' in edge.once('--cleanup').stdout
    assert 'default 0x1' in beds.run('tc', 'qdisc', 'show', 'dev', 'uplink0',
                                     netns=netns)
    # Whoever put it there takes it away: enforcement begins by itself.
    edge.start()
    beds.run('tc', 'qdisc', 'del', 'dev', 'uplink0', 'root', netns=netns)
    beds.wait_for(lambda: '7000:2' in edge.tc(), 10, 'the default class')


def test_wrong_configuration_is_named(make_bed, tmp_path):
    bed = make_bed(1)
    edge = process.EdgeProcess(bed, 'h1', tmp_path, uplink_dev='')
    edge.ports.write_text('{"ports": []}')
    done = edge.once(check=False)
    assert done.returncode == 2
    assert '[edge] uplink_dev' in done.stderr
    edge = process.EdgeProcess(bed, 'h1', tmp_path, uplink_dev='eth99')
    done = edge.once('--check', check=False)
    assert done.returncode == 2 and 'eth99' in done.stderr


def test_debug_is_about_this_module(make_bed, tmp_path):
    """Libraries that log every message keep quiet."""
    edge = process.EdgeProcess(make_bed(1), 'h1', tmp_path, link_bps=0)
    edge.ports.write_text('{"ports": []}')
    done = edge.once('--debug', '--check', check=False)
    assert done.returncode == 1 and 'class' in done.stdout
    for library in ('asyncio', 'pyroute2'):
        assert library not in done.stderr


def test_operator_sees_rates_and_metrics(make_bed, tmp_path):
    bed = make_bed(2)
    controller = controllers.Controller(bed.ns('h1'))
    edge = process.EdgeProcess(bed, 'h1', tmp_path, metrics_port=9472)
    try:
        vms = _start((bed, controller, edge))
        flow = beds.Flow(*vms).start()
        beds.wait_for(lambda: flow.now_s() > 1)
        lines = {line.split()[0]: line
                 for line in edge.once('--show').stdout.splitlines()[1:]}
        assert 'C1' in lines['7000:10'] and 'to h2' in lines['7000:11']
        match = re.search(r'20 Mbit/s +20 Mbit/s +([0-9.]+) Mbit/s',
                          lines['7000:10'])
        assert match, lines
        # More than the class has is shown in no case.
        assert 1 < float(match.group(1)) < 21.2

        def metrics():
            return beds.in_netns(bed.ns('h1'), lambda: urllib.request.urlopen(
                'http://127.0.0.1:9472/metrics', timeout=5).read().decode())

        # The transfer fills its queue until something is dropped.
        beds.wait_for(lambda: re.search(
            r'virtco_edge_coflow_drops_total\{coflow="C1"\} [1-9]',
            metrics()), 20, 'a drop')
        flow.close()
        text = metrics()
        assert re.search(r'virtco_edge_coflow_sent_bytes_total\{coflow="C1",'
                         r'destination="h2"\} [0-9.e+]+', text)
        assert 'virtco_edge_controller_up 1.0' in text
        assert re.search(r'virtco_edge_coflow_sent_packets_total'
                         r'\{coflow="C1"\} [1-9]', text), text
        assert 'virtco_edge_coflow_backlog_bytes{coflow="C1"}' in text
        assert 'virtco_edge_coflow_rate_bps{coflow="C1",name="C1"} 2e+07' \
            in text
    finally:
        edge.stop()
        controller.stop()


def test_start_without_knowledge_leaves_the_kernel_alone(site):
    """No controller, no saved policy, no readable ports: it waits."""
    bed, controller, edge = site
    _start(site)
    edge.stop()
    controller.stop()
    before = edge.tc(), edge.classified(), edge.pins()
    (edge.directory / 'state' / 'policy.json').unlink()
    edge.start()
    edge.ports.write_text('half a fi')
    beds.wait_for(lambda: 'readable JSON' in edge.log()
                  and 'did not answer' in edge.log(), 10, 'complaints')
    time.sleep(0.5)
    assert (edge.tc(), edge.classified(), edge.pins()) == before


def test_agent_runs_without_privileges(make_bed, open_path):
    """Root starts it; it keeps one helper and becomes nobody."""
    bed = make_bed(2)
    controller = controllers.Controller(bed.ns('h1'))
    state = open_path / 'state'
    state.mkdir()
    os.chown(state, pwd.getpwnam('nobody').pw_uid, -1)
    edge = process.EdgeProcess(bed, 'h1', open_path, user='nobody',
                               helper_user='daemon')
    try:
        vms = _start((bed, controller, edge))
        flow = beds.Flow(*vms, size_bytes=500_000).start()
        beds.wait_for(lambda: flow.done_s, 20, 'a transfer')
        flow.close()
        controller.wait_report(lambda r: r['coflows'] and r['coflows'][0][
            'sent_bytes'] > 500_000)
        agent = proc.status(edge.process.pid)
        assert int(agent['Uid'].split()[1]) == pwd.getpwnam('nobody').pw_uid
        assert int(agent['CapEff'], 16) == 0
        helper, = proc.children(edge.process.pid)
        held = proc.status(helper)
        assert int(held['CapEff'], 16) == int(held['CapPrm'], 16) == (
            1 << 12 | 1 << 39)
        assert held['Uid'].split() == 4 * [str(pwd.getpwnam('daemon').pw_uid)]
        assert held['NoNewPrivs'] == agent['NoNewPrivs'] == '1'
        assert vms[1].ip in edge.classified()
        # What the helper takes is reported beside its own time.
        beds.wait_for(lambda: controller.reports[-1]['cpu_s']
                      > proc.cpu_s(edge.process.pid), 10, 'both times')
        # Without its helper it is of no use, and says so to systemd.
        os.kill(helper, signal.SIGKILL)
        assert patience.wait_end(edge.process) == 1
        assert '7000:11' in edge.tc()
    finally:
        edge.stop()
        controller.stop()


def test_systemd_is_told_when_it_enforces(site, tmp_path, monkeypatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(60)
        manager.bind(os.fspath(tmp_path / 'notify'))
        monkeypatch.setenv('NOTIFY_SOCKET', os.fspath(tmp_path / 'notify'))
        _start(site)
        assert manager.recv(4096) == b'STATUS=Waiting for the virtual switch'
        assert manager.recv(4096) == b'STATUS=Enforcing on uplink0\nREADY=1'
        site[2].stop()
        assert manager.recv(4096) == b'STOPPING=1'
