# SPDX-License-Identifier: Apache-2.0

"""The agent beside a real Open vSwitch (userspace datapath)."""

import signal

import pytest

from edge_module.ports import kinds
from edge_module.ports import ovsdb
from edge_module.privileged import kernel_calls as kernel
from edge_module.qdisc import htb
from edge_module.tcplan import minors
from tests.netns.edge import bed as beds
from tests.netns.edge import controller as controllers
from tests.netns.edge import policies
from tests.netns.edge import process
from tests.netns.edge import switch as switches

LINK_BPS = 40e6

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(switches.missing() is not None,
                       reason=str(switches.missing()))]


@pytest.fixture
def options(request):
    """Of the agent; a test names the fixture that it wants."""
    name = getattr(request, 'param', None)
    return request.getfixturevalue(name) if name else {}


@pytest.fixture
def site(make_bed, tmp_path, options):
    """h1 switches by Open vSwitch, h2 by a bridge."""
    bed = make_bed(2)
    switch = switches.Switch(bed, 'h1', tmp_path / 'ovs')
    controller = controllers.Controller(bed.ns('h1'))
    # What is put right is so by events, not by an audit.
    edge = process.EdgeProcess(
        bed, 'h1', tmp_path, ports_backend='ovs', audit_interval_s=3600,
        ovsdb_connection=switch.address, **options)
    try:
        switch.take_over()
        yield bed, switch, controller, edge
    finally:
        edge.stop()
        controller.stop()
        switch.close()


def _qdisc(bed):
    return beds.run('tc', 'qdisc', 'show', 'dev', 'uplink0',
                    netns=bed.ns('h1'))


def _transfer(src, dst, size_bytes):
    flow = beds.Flow(src, dst, size_bytes=size_bytes).start()
    beds.wait_for(lambda: flow.done_s, 30, 'a transfer')
    flow.close()


def _sent_bytes(bed, minor):
    return beds.in_netns(bed.ns('h1'), htb.Uplink(
        kernel, 'uplink0').snapshot).stats[minor].sent_bytes


def test_coflow_over_the_userspace_datapath(site):
    bed, switch, controller, edge = site
    a, noise, b = bed.add_vm('h1'), bed.add_vm('h1'), bed.add_vm('h2')
    switch.plug(a)
    switch.plug(noise)
    switches.plain_packets(b)
    controller.set_policy(policies.PolicyBuilder('h1', LINK_BPS).coflow(
        'C1', 30e6, [(a, b, 1)], ceil_bps=30e6).build().to_dict())
    edge.start()
    report = controller.wait_report(lambda r: len(r['ports']) == 2
                                    and r['applied_generation'] == 1, 20)
    assert {(port['vm'], port['dev'], port['mac'])
            for port in report['ports']} == {
                (vm.uuid, vm.dev, '02:00:00:00:00:01') for vm in (a, noise)}
    assert 'with bpf-egress' in edge.log()
    before = _sent_bytes(bed, 0x11)
    _transfer(noise, b, 300_000)
    assert _sent_bytes(bed, 0x11) == before
    # At the uplink's egress nobody knows its port.
    assert _sent_bytes(bed, minors.HOST) > 300_000
    _transfer(a, b, 500_000)
    assert _sent_bytes(bed, 0x11) > before + 500_000
    assert not edge.once('--check').returncode


def test_a_sub_port_of_a_trunk_is_a_port(site):
    bed, switch, controller, edge = site
    a = bed.add_vm('h1')
    switch.plug_trunk(a, '02:00:00:00:01:01')
    edge.start()
    report = controller.wait_report(lambda r: r['ports'], 20)
    assert [(port['vm'], port['dev'], port['mac'], port['notes'])
            for port in report['ports']] == [
        (a.uuid, a.dev, f'02:00:00:00:0{number}:01', [])
        for number in (0, 1)]


def test_counters_of_interfaces_are_no_news(site):
    bed, switch, _, _ = site
    a = bed.add_vm('h1')
    switch.plug(a)
    switch.stop_vswitchd()
    database = ovsdb.OvsDb(switch.address)
    try:
        assert [port.vm for port in database.read()] == [a.uuid]
        before = database.token()
        for column in ('statistics:rx_bytes=7', 'external_ids:vm-uuid=b'):
            switch.vsctl('--no-wait', 'set', 'interface', a.dev, column)
        beds.wait_for(lambda: database.token() != before, 10, 'the change')
        assert database.token() == before + 1
        assert [port.vm for port in database.read()] == ['b']
    finally:
        database.close()


def test_ports_come_and_go_by_events(site):
    bed, switch, controller, edge = site
    edge.start()
    controller.wait_report(lambda r: r['health'] == 'ok', 20)
    a, other = bed.add_vm('h1'), bed.add_vm('h1')
    switch.plug(a)
    switch.plug(other, marked=False)
    controller.wait_report(
        lambda r: [port['vm'] for port in r['ports']] == [a.uuid])
    # What makes packets go past the classes is told per port.
    port = controller.wait_report(lambda r: r['ports'])['ports'][0]
    assert port['notes'] == []
    switch.vsctl('set', 'Open_vSwitch', '.', 'other_config:hw-offload=true')
    controller.wait_report(
        lambda r: r['ports'] and kinds.OFFLOAD in r['ports'][0]['notes'])
    assert f'{a.dev} of {a.uuid}: {kinds.OFFLOAD}' in edge.once(
        '--show').stdout
    switch.vsctl('del-port', 'ovsbr', a.dev)
    controller.wait_report(lambda r: r['ports'] == [])


def test_qdisc_outlives_a_restart_of_vswitchd(site):
    bed, switch, controller, edge = site
    a, b = bed.add_vm('h1'), bed.add_vm('h2')
    switch.plug(a)
    switches.plain_packets(b)
    controller.set_policy(policies.PolicyBuilder('h1', LINK_BPS).coflow(
        'C1', 20e6, [(a, b, 1)], ceil_bps=20e6).build().to_dict())
    edge.start()
    controller.wait_report(lambda r: r['applied_generation'] == 1
                           and r['ports'], 20)
    edge.stop()  # what holds must hold without its help
    switch.stop_vswitchd()
    switch.start_vswitchd()
    switch.vsctl('add-br', 'another', '--', 'set', 'bridge', 'another',
                 'datapath_type=netdev')  # returns when vswitchd is ready
    assert 'htb 7000: root' in _qdisc(bed)
    before = _sent_bytes(bed, 0x11)
    _transfer(a, b, 500_000)
    assert _sent_bytes(bed, 0x11) > before + 500_000
    assert 'rate 20Mbit' in edge.tc()
    assert 'agreement' in edge.once('--cleanup').stdout
    assert switch.vsctl('get', 'port', 'uplink0', 'qos') == '[]'
    assert switch.vsctl('--bare', 'list', 'qos') == ''


def _shape(switch):
    """As Neutron has Open vSwitch do it."""
    switch.vsctl('set', 'port', 'uplink0', 'qos=@q', '--', '--id=@q',
                 'create', 'qos', 'type=linux-htb',
                 'other-config:max-rate=20000000')


def test_our_tree_is_inside_the_htb_of_open_vswitch(site):
    bed, switch, controller, edge = site
    _shape(switch)
    beds.wait_for(lambda: 'htb 1: root' in _qdisc(bed), 10, "OVS's qdisc")
    a = _enforced(site)
    report = controller.wait_report(lambda r: r['error'], 60)
    assert report['error'].startswith(
        'Open vSwitch (QoS linux-htb) limits classes of uplink0: ')
    assert '1:fffe to 20 Mbit/s' in report['error']
    classes = beds.run('tc', 'class', 'show', 'dev', 'uplink0',
                       netns=bed.ns('h1'))
    # Theirs, ours in it, and what is in ours.
    assert 'class htb 1:fffe root' in classes and 'ceil 20Mbit' in classes
    assert 'class htb 1:fffd parent 1:fffe leaf 7000:' in classes
    assert 'class htb 7000:11 parent 7000:10' in classes
    before, b = _sent_bytes(bed, 0x11), bed.vms[-1]
    switches.plain_packets(b)
    _transfer(a, b, 500_000)
    assert _sent_bytes(bed, 0x11) > before + 500_000
    edge.stop()
    # Whoever takes the filter away leaves the rest to clean up.
    beds.run('tc', 'filter', 'del', 'dev', 'uplink0', 'parent', '1:',
             netns=bed.ns('h1'))
    assert 'uplink0' in edge.once('--cleanup').stdout
    classes = beds.run('tc', 'class', 'show', 'dev', 'uplink0',
                       netns=bed.ns('h1'))
    assert '1:fffe' in classes and '1:fffd' not in classes


def _enforced(site, **columns):
    """Start with a policy and without a conflict; the VM at h1.

    :param columns: of the interface of its port.
    """
    bed, switch, controller, edge = site
    a, b = bed.add_vm('h1'), bed.add_vm('h2')
    switch.plug(a)
    for column, value in columns.items():
        switch.vsctl('set', 'interface', a.dev, f'{column}={value}')
    controller.set_policy(policies.PolicyBuilder('h1', LINK_BPS).coflow(
        'C1', 20e6, [(a, b, 1)]).build().to_dict())
    edge.start()
    controller.wait_report(lambda r: r['applied_generation'] == 1
                           and r['ports'] and r['health'] == 'ok', 20)
    return a


def test_a_port_with_a_vlan_is_not_ok(site):
    """Its packets reach the uplink in a form that is not classified."""
    bed, switch, controller, edge = site
    a = _enforced(site)
    switch.vsctl('set', 'port', a.dev, 'tag=100')
    report = controller.wait_report(lambda r: r['health'] != 'ok', 20)
    assert report['health'] == 'degraded'
    assert report['ports'][0]['notes'] == [kinds.TAGGED]
    switch.vsctl('clear', 'port', a.dev, 'tag')
    controller.wait_report(lambda r: r['health'] == 'ok', 20)


def _qos_type(switch):
    row = switch.vsctl('get', 'port', 'uplink0', 'qos')
    # It may be gone by now.
    return None if row == '[]' else switch.vsctl(
        '--if-exists', 'get', 'qos', row, 'type')


def _restart_vswitchd(switch):
    switch.stop_vswitchd()
    switch.start_vswitchd()
    # Returns when it has configured everything.
    switch.vsctl('set', 'open_vswitch', '.', 'other-config:test=restarted')


def test_cleared_qos_is_made_again_at_once(site):
    """Without it the next vswitchd would take the tree."""
    bed, switch, controller, edge = site
    _enforced(site)
    switch.vsctl('clear', 'port', 'uplink0', 'qos')
    beds.wait_for(lambda: _qos_type(switch) == 'linux-noop', 10, 'the row')
    _restart_vswitchd(switch)
    assert '7000:11' in edge.tc()
    assert edge.log().count('is shaped by htb') == 1
    assert 'ERROR' not in edge.log()


def test_tree_that_vswitchd_took_is_made_again_at_once(site):
    bed, switch, controller, edge = site
    _enforced(site)
    edge.process.send_signal(signal.SIGSTOP)
    try:
        switch.vsctl('clear', 'port', 'uplink0', 'qos')
        _restart_vswitchd(switch)
        beds.wait_for(lambda: edge.tc() == '', 10, 'the loss of the tree')
    finally:
        edge.process.send_signal(signal.SIGCONT)
    beds.wait_for(lambda: _qos_type(switch) == 'linux-noop'
                  and '7000:11' in edge.tc(), 10, 'row and tree')
    beds.run('tc', 'qdisc', 'del', 'dev', 'uplink0', 'root',
             netns=bed.ns('h1'))
    beds.wait_for(lambda: '7000:11' in edge.tc(), 10, 'the tree again')


@pytest.mark.parametrize('of_ovn', [False, True])
def test_an_htb_that_open_vswitch_sets_and_clears_holds_beside_ours(site,
                                                                    of_ovn):
    """OVN since 23.06 writes such a row, if there is none of another's."""
    bed, switch, controller, edge = site
    _enforced(site)
    rest = 'linux-noop'
    if of_ovn:
        rest = None
        switch.vsctl('set', 'open', '.',
                     'external-ids:ovn-bridge-mappings=physnet1:ovsbr')
    beds.wait_for(lambda: _qos_type(switch) == rest
                  and '7000:11' in edge.tc(), 10, 'row and tree')
    _shape(switch)

    def are_both_there():
        return ('htb 1: root' in _qdisc(bed)
                and 'htb 7000: parent 1:fffd' in _qdisc(bed)
                and '7000:11' in edge.tc()
                and 'ceil 20Mbit' in beds.run(
                    'tc', 'class', 'show', 'dev', 'uplink0', 'classid',
                    '1:fffe', netns=bed.ns('h1')))

    beds.wait_for(are_both_there, 10, 'both')
    controller.wait_report(lambda r: r['health'] == 'ok' and r['error'])
    assert _qos_type(switch) == 'linux-htb'
    # Open vSwitch does not notice that.
    beds.run('tc', 'qdisc', 'del', 'dev', 'uplink0', 'root',
             netns=bed.ns('h1'))
    beds.wait_for(are_both_there, 10, 'both again')
    switch.vsctl('clear', 'port', 'uplink0', 'qos')
    beds.wait_for(lambda: _qos_type(switch) == rest
                  and '7000:11' in edge.tc(), 10, 'row and tree again')
    controller.wait_report(lambda r: r['health'] == 'ok')


def _ingress(bed, dev):
    return beds.run('tc', 'filter', 'show', 'dev', dev, 'ingress',
                    netns=bed.ns('h1'))


@pytest.fixture
def receiver_options():
    return {'protect_receiver': True}


@pytest.mark.parametrize('options', ['receiver_options'], indirect=True)
def test_filters_that_vswitchd_takes_come_back_at_once(site):
    """It takes the ingress qdisc, which it made itself for its policing."""
    bed, switch, controller, edge = site
    _enforced(site, ingress_policing_rate=1_000_000)
    ours, dev = 'virtco-in', 'uplink0'
    beds.wait_for(lambda: ours in _ingress(bed, dev), 10, 'our filter')
    edge.process.send_signal(signal.SIGSTOP)
    try:
        _restart_vswitchd(switch)
        beds.wait_for(lambda: ours not in _ingress(bed, dev), 10, 'its loss')
    finally:
        edge.process.send_signal(signal.SIGCONT)
    beds.wait_for(lambda: ours in _ingress(bed, dev), 10, 'our filter again')
    # Also while it runs; nothing else is made anew.
    _restart_vswitchd(switch)
    beds.wait_for(lambda: not edge.once('--check', check=False).returncode
                  and ours in _ingress(bed, dev), 10, 'agreement')
    assert edge.log().count('is shaped by htb') == 1


@pytest.mark.parametrize('how', ['bpf', 'nft'], indirect=True)
def test_policing_and_classification_share_a_port(site, edge_of):
    """Policing takes the ingress qdisc, and a start of vswitchd any other;
    programs by clsact would keep it from the one and go with the other.
    """
    bed, switch, _, _ = site
    vm = bed.add_vm('h1')
    switch.plug(vm)
    edge = edge_of(bed, 'h1')
    edge.set_ports()
    edge.set_policy(policies.PolicyBuilder('h1', LINK_BPS).build())
    switch.vsctl('set', 'interface', vm.dev, 'ingress_policing_rate=10000')
    beds.wait_for(lambda: 'ingress ffff:' in beds.run(
        'tc', 'qdisc', 'show', 'dev', vm.dev, netns=edge.netns), 10,
        'policing')
    _restart_vswitchd(switch)
    table = beds.in_netns(edge.netns, edge.enforcer.classifier.dump)
    assert table.hooks == edge.call('desired_table').hooks != frozenset()


def test_database_that_is_away_is_waited_for(site):
    bed, switch, controller, edge = site
    switch.close()
    edge.start()
    beds.wait_for(lambda: 'did not answer' in edge.log(), 15, 'a complaint')
    assert not controller.reports
    switch.start()
    controller.wait_report(lambda r: r['health'] == 'ok', 20)
    # It goes away and comes back later: nothing is lost, events go on.
    switch.close()
    switch.start()
    vm = bed.add_vm('h1')
    switch.plug(vm)
    controller.wait_report(lambda r: [port['vm'] for port in r['ports']]
                           == [vm.uuid], 20)
