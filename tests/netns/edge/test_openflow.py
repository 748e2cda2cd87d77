# SPDX-License-Identifier: Apache-2.0

"""Open vSwitch's own flows as the classifier.

In the userspace datapath ``set_queue`` moves no packet: what the flows say,
how they change and whom they leave alone is tested here; what they do, with
the kernel datapath.
"""

import re
import socket
import time

import pytest

from edge_module.classify import openflow
from edge_module.ports import ovsdb
from edge_module.privileged import kernel
from edge_module.qdisc import ovs_agreement
from edge_module.tcplan import minors
from tests.netns.edge import bed as beds
from tests.netns.edge import controller as controllers
from tests.netns.edge import faults
from tests.netns.edge import frames
from tests.netns.edge import policies
from tests.netns.edge import process
from tests.netns.edge import switch as switches

LINK_BPS = 40e6
OURS = f'cookie={openflow.COOKIE:#x}/-1'

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(switches.missing() is not None,
                       reason=str(switches.missing()))]


@pytest.fixture
def site(make_bed, tmp_path):
    """h1 switches by Open vSwitch and has a VM in a coflow with h2's."""
    bed = make_bed(2)
    switch = switches.Switch(bed, 'h1', tmp_path / 'ovs')
    controller = controllers.Controller(bed.ns('h1'))
    edge = process.EdgeProcess(
        bed, 'h1', tmp_path, ports_backend='ovs', classifier='openflow',
        ovsdb_connection=switch.address, ovs_run_dir=switch.directory)
    try:
        switch.take_over()
        a, b = bed.add_vm('h1'), bed.add_vm('h2')
        switch.plug(a)
        switches.plain_packets(b)
        yield bed, switch, controller, edge, a, b
    finally:
        edge.stop()
        controller.stop()
        switch.close()


def _policy(a, b, generation=1, port=None):
    builder = policies.PolicyBuilder('h1', LINK_BPS, generation)
    builder.coflow('C1', 20e6, [(a, b, 1)])
    if port is not None:
        builder.coflow('C2', 5e6, [(a, b, 1)], port=port)
    return builder.build().to_dict()


def _start(site, **kwargs):
    bed, switch, controller, edge, a, b = site
    controller.set_policy(_policy(a, b, **kwargs))
    edge.start()
    controller.wait_report(lambda r: r['applied_generation'] and r['ports'],
                           20)
    beds.wait_for(lambda: _ours(switch), 10, 'flows')


def _ours(switch):
    return switch.ofctl('dump-flows', OURS).count('set_queue')


def test_flows_name_the_queue_of_their_class(site):
    bed, switch, controller, edge, a, b = site
    _start(site, port=5002)
    listing = switch.ofctl('dump-flows', OURS)
    for text in (
            rf'priority=65533,ip,.*nw_src={a.ip},nw_dst={b.ip} '
            r'actions=set_queue:16,',
            rf'priority=65534,tcp,.*nw_dst={b.ip},tp_dst=5002 '
            r'actions=set_queue:18,',
            rf'priority=65534,udp,.*nw_dst={b.ip},tp_dst=5002 '
            r'actions=set_queue:18,',
            r'priority=65532,reg15=0,in_port=\S+ '
            rf'actions=set_queue:{_port_queue(bed, a)},',
            r'priority=65534,tcp,reg15=0x8010,in_port=\S+ '
            r'actions=set_queue:32783,',
            # What it sends without data and in no coflow.
            *(rf'priority=65534,{kind},reg15={_port_queue(bed, a) + 0x2001:#x}'
              r',in_port=\S+ '
              rf'actions=set_queue:{_port_queue(bed, a) + 0x2000},'
              for kind in ('tcp', 'tcp6'))):
        assert re.search(text, listing), (text, listing)
    assert _ours(switch) == 8
    assert not edge.once('--check').returncode


def _port_queue(bed, vm):
    ifindex = beds.in_netns(bed.ns('h1'), socket.if_nametoindex, vm.dev)
    return minors.of_port(ifindex) - 1


def test_only_short_segments_meet_the_flow_of_control_packets(site):
    bed, switch, controller, edge, a, b = site
    switch.ofctl('add-flow', 'cookie=0x77,priority=1,actions=NORMAL')
    _start(site)

    flow = beds.Flow(a, b, size_bytes=1_000_000).start()
    beds.wait_for(lambda: flow.done_s, 20, 'the end of a flow')
    flow.close()
    frames.send(a, frames.ipv4(a.ip, b.ip, frames.UDP, bytes(20)), 50)
    # Open vSwitch counts a flow in both branches, whichever a packet takes.
    listing = beds.run(
        'ovs-appctl', '-t', switch.directory / 'ovs-vswitchd.ctl',
        'dpctl/dump-flows', 'netdev@ovs-netdev', netns=switch.netns)
    shown = [line for line in listing.splitlines() if 'check_pkt_len' in line]
    pattern = (r'proto=6.*check_pkt_len\(size=94,gt\([^)]*\),'
               r'le\(set\(skb_priority\(0x800f\)\)')
    assert re.search(pattern, '\n'.join(shown)), listing
    assert not [line for line in shown if 'proto=17' in line
                and '0x800f' in line], listing


def test_packets_go_on_to_the_flows_of_others(site):
    """Ours stand in front of a pipeline that rewrites and drops."""
    bed, switch, controller, edge, a, b = site
    switch.ofctl('add-flow', 'cookie=0x77,priority=100,udp,tp_dst=66,'
                 'actions=drop')
    switch.ofctl('add-flow', 'cookie=0x77,table=9,actions=NORMAL')
    switch.ofctl('add-flow', 'cookie=0x77,priority=90,ip,'
                 'actions=resubmit(,9)')
    theirs = switch.ofctl('dump-flows', 'cookie=0x77/-1',
                          option='--no-stats')
    _start(site, port=66)
    trace = beds.run(
        'ovs-appctl', '-t', switch.directory / 'ovs-vswitchd.ctl',
        'ofproto/trace', 'ovsbr',
        f'udp,in_port={a.dev},nw_src={a.ip},nw_dst={b.ip},nw_ttl=64,'
        'udp_dst=66',
        netns=switch.netns)
    assert 'set_queue:18' in trace and 'udp,tp_dst=66, priority 100' in trace
    flow = beds.Flow(a, b, size_bytes=100_000).start()
    beds.wait_for(lambda: flow.done_s, 20, 'the end of a flow')
    flow.close()
    # They passed table 9 of the others, and were counted for their pair.
    assert re.search(r'table=9, n_packets=[1-9]',
                     switch.ofctl('dump-flows', 'cookie=0x77/-1'))
    controller.wait_report(lambda r: any(
        pair['dst_ip'] == b.ip and pair['sent_bytes'] > 100_000
        for pair in r['pairs']), 20)
    edge.stop()
    assert 'openflow classification' in edge.once('--cleanup').stdout
    assert _ours(switch) == 0
    assert switch.ofctl('dump-flows', 'cookie=0x77/-1',
                        option='--no-stats') == theirs


def test_flows_that_are_right_keep_their_counters(site):
    bed, switch, controller, edge, a, b = site
    _start(site)
    flow = beds.Flow(a, b, size_bytes=100_000).start()
    beds.wait_for(lambda: flow.done_s, 20, 'the end of a flow')
    flow.close()

    def counted():
        found = re.search(r'n_bytes=(\d+),[^\n]*priority=65533,ip,',
                          switch.ofctl('dump-flows', OURS))
        return int(found[1])

    beds.wait_for(lambda: counted() > 100_000, 10, 'statistics')
    edge.stop()
    edge.start()
    controller.set_policy(_policy(a, b, 2, port=5003))
    controller.wait_report(lambda r: r['applied_generation'] == 2, 20)
    assert _ours(switch) == 8 and counted() > 100_000
    controller.set_policy(_policy(a, b, 3))
    beds.wait_for(lambda: _ours(switch) == 5, 10, 'fewer flows')
    assert counted() > 100_000


def test_restart_of_vswitchd_and_a_new_port_bring_the_flows_back(site):
    bed, switch, controller, edge, a, b = site
    _start(site)
    switch.stop_vswitchd()
    switch.start_vswitchd()
    switch.vsctl('add-br', 'another')  # returns when vswitchd is ready
    beds.wait_for(lambda: _ours(switch) == 5, 10, 'flows after the restart')
    # The same device under another number.
    switch.vsctl('del-port', 'ovsbr', a.dev)
    beds.wait_for(lambda: _ours(switch) == 0, 10, 'no flows')
    switch.plug(a)
    switch.vsctl('set', 'interface', a.dev, 'ofport_request=77')
    beds.wait_for(lambda: switch.ofctl(
        'dump-flows', OURS, option='--no-names').count('in_port=77') == 5,
        10, 'flows of the new number')


def test_openflow_needs_the_database(make_bed, tmp_path):
    bed = make_bed(1)
    edge = process.EdgeProcess(bed, 'h1', tmp_path, classifier='openflow')
    edge.ports.write_text('{"ports": []}')
    done = edge.once(check=False)
    assert done.returncode == 2
    assert '[edge] classifier' in done.stderr


# -- updates that are broken off ---------------------------------------------

class _DyingKernel:
    """Makes the privileged calls, and dies in front of a bundle of flows."""

    def __init__(self):
        self.bundles_left = None

    def __getattr__(self, name):
        return getattr(kernel, name)

    def ofctl_run(self, arguments, text):
        if '--bundle' in arguments and self.bundles_left is not None:
            if not self.bundles_left:
                raise faults.Killed
            self.bundles_left -= 1
        return kernel.ofctl_run(arguments, text)


@pytest.fixture
def by_openflow(site, edge_of):
    """VMs on two bridges, and what makes enforcers that use their flows."""
    bed, switch, _, _, a, b = site
    switch.vsctl('add-br', 'other', '--', 'set', 'bridge', 'other',
                 f'datapath_type={switch.datapath}')
    c = bed.add_vm('h1')
    switch.plug(c, bridge='other')
    databases = []

    def make():
        edge = edge_of(bed, 'h1', grace_s=0.0)
        database = ovsdb.OvsDb(switch.address)
        databases.append(database)
        edge.enforcer.guard = ovs_agreement.OvsGuard(database, 'uplink0')
        edge.enforcer.classifier = openflow.OpenflowClassifier(
            _DyingKernel(), database, str(switch.directory))
        beds.wait_for(lambda: {a.dev, c.dev} <= set(database.places()), 10,
                      'ports in the replica')
        return edge

    yield make, (a, b, c)
    for database in databases:
        database.close()


def _after(a, b, c):
    """As in ``faults``, and a's bridge gets other flows too."""
    builder = policies.PolicyBuilder('h1', LINK_BPS, 2)
    builder.coflow('C1', 5e6, [(a, b, 1)])
    builder.minor = 0x20
    builder.coflow('C3', 25e6, [(c, b, 1)])
    return builder.coflow('C4', 1e6, [(a, b, 1)], port=5003).build()


def _update(edge, vms, kill):
    """Install one policy, then another one with something in the way."""
    if kill == 'root':
        faults.kill_at(edge, kill)
    edge.set_ports()
    edge.set_policy(faults.before(*vms))
    if kill.startswith('bundle'):
        edge.enforcer.classifier.kernel.bundles_left = int(kill[-1])
    else:
        faults.kill_at(edge, kill)
    edge.set_policy(_after(*vms))
    edge.call('collect', time.monotonic() + 1)


@pytest.mark.parametrize('kill', [*faults.STEPS, 'bundle 0', 'bundle 1'])
def test_restart_after_a_kill_at_any_step(by_openflow, kill):
    """The flows of the two bridges change in a bundle each."""
    make, vms = by_openflow
    with pytest.raises(faults.Killed):
        _update(make(), vms, kill)
    # No flow names a class that is not there.
    again = make()
    snapshot = beds.in_netns(again.netns, again.enforcer.uplink.snapshot)
    table, _ = beds.in_netns(again.netns, again.enforcer.classifier.dump)
    minors = set(table.entries.values())
    assert minors <= set(snapshot.tree)
    if kill.startswith('bundle'):  # c's bridge is the first
        assert minors == {0x11, (0x13, 0x21)[int(kill[-1])]}
    again.set_ports()
    again.set_policy(_after(*vms))
    again.call('collect', time.monotonic() + 1)
    assert not again.call('drift')
    snapshot = beds.in_netns(again.netns, again.enforcer.uplink.snapshot)
    assert snapshot.tree == again.call('desired_tree')
    table, _ = beds.in_netns(again.netns, again.enforcer.classifier.dump)
    assert set(table.entries.values()) == {0x11, 0x21, 0x23}
