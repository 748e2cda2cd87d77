# SPDX-License-Identifier: Apache-2.0

"""The agent beside OVN, which shapes the same uplink."""

import contextlib
import datetime
import itertools
import signal
import socket
import subprocess
import time
import types

import pytest

from edge_module.privileged import kernel_calls as kernel
from edge_module.qdisc import htb
from tests.netns.edge import bed as beds
from tests.netns.edge import controller as controllers
from tests.netns.edge import frames
from tests.netns.edge import ovn as ovns
from tests.netns.edge import policies
from tests.netns.edge import process
from tests.netns.edge import switch as switches

LINK_BPS = 40e6
WHY = switches.missing() or ovns.missing()

#: Our tree, inside theirs.
OURS = ('class htb 1:fffd parent 1:fffe leaf 7000:',
        'class htb 7000:11 parent 7000:10')

pytestmark = [pytest.mark.netns,
              pytest.mark.skipif(WHY is not None, reason=str(WHY))]


class Site:
    """h1 sends a coflow to the last host.

    :param n_chassis: number of the first hosts, which switch by OVN; the
        others have a bridge.
    """

    def __init__(self, bed, directory, n_chassis=1):
        self.bed = bed
        self.switches, self.controllers, self.edges = [], [], []
        for host in bed.hosts[:n_chassis]:
            home = directory / host
            home.mkdir()
            switch = switches.Switch(bed, host, home / 'ovs')
            switch.take_over()
            self.switches.append(switch)
            self.controllers.append(controllers.Controller(bed.ns(host)))
            self.edges.append(process.EdgeProcess(
                bed, host, home, ports_backend='ovs', audit_interval_s=3600,
                ovsdb_connection=switch.address))
        self.switch, self.edge = self.switches[0], self.edges[0]
        self.ovn = ovns.Ovn(directory / 'ovn', self.switches)
        self.a, self.b = self.add_vm('h1'), self.add_vm(bed.hosts[-1])
        for host, controller in zip(bed.hosts, self.controllers):
            controller.set_policy(policies.PolicyBuilder(
                host, LINK_BPS).coflow('C1', 20e6, [
                    (self.a, self.b, 1)]).build().to_dict())

    def add_vm(self, host, network=ovns.NETWORK):
        vm = self.bed.add_vm(host)
        switch = next((one for one in self.switches if one.host == host), None)
        if switch is None:
            switches.plain_packets(vm)
        else:
            self.ovn.plug(vm, switch, network)
        return vm

    def close(self):
        for one in (*self.edges, *self.controllers):
            one.stop()
        self.ovn.close()
        for one in self.switches:
            one.close()

    def start_edges(self):
        for edge, controller in zip(self.edges, self.controllers):
            edge.start()
            controller.wait_report(lambda r: r['applied_generation'] == 1
                                   and r['health'] == 'ok', 20)
        self.wait_ours('the start')

    def wait_both(self, limit_bps, why):
        """Until our class and theirs, if there is a limit, hold."""
        def hold():
            shown = self.edge.tc()
            return all(text in shown for text in OURS) and (
                'class htb 1:2 ' not in shown if limit_bps is None
                else f'ceil {limit_bps / 1e6:.0f}Mbit' in shown)
        beds.wait_for(hold, 10, f'both after {why}')

    def takes(self, limit_bps):
        """Change the limit, which OVN misses while it begins."""
        self.ovn.limit(self.a, None)
        self.ovn.limit(self.a, limit_bps)
        try:
            beds.wait_for(lambda: f'ceil {limit_bps / 1e6:.0f}Mbit'
                          in self.edge.tc(), 1, 'it')
        except AssertionError:
            return False
        return True

    def wait_ours(self, why):
        beds.wait_for(lambda: all(text in self.edge.tc() for text in OURS),
                      10, f'our class after {why}')

    def send(self):
        """Send as one of the coflow: bytes that its class counted."""
        before = self.sent_bytes()
        flow = beds.Flow(self.a, self.b, size_bytes=300_000).start()
        beds.wait_for(lambda: flow.done_s, 30, 'a transfer')
        flow.close()
        return self.sent_bytes() - before

    def sent_bytes(self, host='h1', minor=0x11):
        """Bytes that a coflow's class on a host counted, if it is there:
        OVN may clear the qdisc a moment after a port came or went.
        """
        stats = beds.in_netns(self.bed.ns(host), htb.Uplink(
            kernel, 'uplink0').snapshot).stats
        return stats[minor].sent_bytes if minor in stats else 0


@pytest.fixture
def make_site(make_bed, tmp_path):
    made = []

    def make(*args):
        made.append(Site(make_bed(args[0]), tmp_path, *args[1:]))
        made[-1].start_edges()
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def site(make_site):
    return make_site(2)


def test_limits_of_ovn_hold_beside_the_coflows(site):
    """They come, change and go, and each program begins again."""
    site.wait_both(None, 'the start')
    assert site.send() > 300_000
    for limit_bps in (5e6, 7e6, None, 5e6):
        site.ovn.limit(site.a, limit_bps)
        site.wait_both(limit_bps, f'a limit of {limit_bps}')
        assert site.send() > 300_000
    # Whoever takes the filter away takes no coflow's class.
    beds.run('tc', 'filter', 'del', 'dev', 'uplink0', 'parent', '1:',
             netns=site.bed.ns('h1'))
    beds.wait_for(lambda: 'flowid 1:fffd' in beds.run(
        'tc', 'filter', 'show', 'dev', 'uplink0', 'parent', '1:',
        netns=site.bed.ns('h1')), 10, 'the filter again')
    site.controllers[0].wait_report(
        lambda r: r['health'] == 'ok' and 'OVN limits classes of uplink0: '
        '1:2 to 5 Mbit/s' in (r['error'] or ''))
    site.edge.process.send_signal(signal.SIGKILL)
    site.edge.stop()
    assert site.send() > 300_000
    site.start_edges()
    site.wait_both(5e6, 'a restart of the agent')
    # ovn-controller takes its HTB away when it or vswitchd ends, ours in it,
    # and makes no other before the limit changes.
    for limit_bps, stop, start in (
            (8e6, site.switch.stop_vswitchd, site.switch.start_vswitchd),
            (6e6, lambda: site.ovn.stop_controller(site.switch),
             lambda: site.ovn.start_controller(site.switch))):
        stop()
        site.wait_ours(f'an end before the limit {limit_bps}')
        start()
        beds.wait_for(lambda: site.takes(limit_bps), 30,
                      f'their limit {limit_bps} after a start')
        site.wait_both(limit_bps, f'the limit {limit_bps}')
        # Its next round may make the tree once more, in the middle of one.
        beds.wait_for(lambda: site.send() > 300_000, 30,
                      f'a whole transfer in its class under {limit_bps}')
    # What is theirs stays.
    site.edge.stop()
    assert 'uplink0' in site.edge.once('--cleanup').stdout
    shown = site.edge.tc()
    assert 'ceil 6Mbit' in shown and '7000:' not in shown


def _send(vm, mac, src_ip, dst, tag=False):
    """Send 300 datagrams to a VM, from whatever addresses."""
    ethertype, body = frames.ipv4(src_ip, dst.ip, frames.UDP,
                                  frames.udp(5009))
    if tag:
        ethertype, body = frames.tagged((ethertype, body))
    frame = bytes.fromhex((dst.mac + mac).replace(':', '')) + (
        ethertype.to_bytes(2, 'big')) + body

    def send():
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
            sock.bind(('eth0', 0))
            for _ in range(300):
                sock.send(frame)
                time.sleep(0.001)

    beds.in_netns(vm.netns, send)


@pytest.mark.full(reason='fourteen bursts of frames',
                  still='test_limits_of_ovn_hold_beside_the_coflows')
def test_sub_ports_and_address_pairs_are_of_their_own_port(site):
    """OVN's port security keeps another VM from their addresses: at the
    uplink of the userspace datapath no packet tells its port.
    """
    other, sub_mac = site.add_vm('h1'), '02:00:00:00:01:01'
    ips = site.a.ip, '10.77.5.1', '10.77.5.2'
    policy = policies.PolicyBuilder('h1', LINK_BPS, generation=2)
    for ip in ips:
        policy.coflow(ip, 10e6, [(types.SimpleNamespace(
            uuid=site.a.uuid, ip=ip), site.b, 1)])
    site.controllers[0].set_policy(policy.build().to_dict())
    site.controllers[0].wait_report(lambda r: r['applied_generation'] == 2
                                    and r['health'] == 'ok', 20)

    minors = 0x11, 0x13, 0x15

    def classed(*sent):
        """Whether the class of each coflow counted the frames; None where it
        counted some.
        """
        before = [site.sent_bytes(minor=minor) for minor in minors]
        _send(*sent)
        return [True if new > 100_000 else None if new else False
                for new in (site.sent_bytes(minor=minor) - old
                            for minor, old in zip(minors, before))]

    def wait_classed(wanted, *sent):
        """OVN's word holds as soon as the datapath forgets its flows."""
        beds.wait_for(lambda: classed(*sent) == wanted, 20,
                      f'{wanted} of {sent}')

    nothing = [False] * 3
    each = [[minor == one for minor in minors] for one in minors]
    from_pair = site.a, site.a.mac, ips[1], site.b
    from_sub = site.a, sub_mac, ips[2], site.b, True
    site.ovn.secure(site.a)
    wait_classed(each[0], site.a, site.a.mac, ips[0], site.b)
    # Neither is its own before Neutron says so.
    wait_classed(nothing, *from_pair)
    wait_classed(nothing, *from_sub)
    site.ovn.secure(site.a, ips[1])
    site.ovn.plug_sub_port(site.a, sub_mac, ips[2], tag=5)
    wait_classed(each[1], *from_pair)
    wait_classed(each[2], *from_sub)
    for ip, without in zip(ips, each):
        site.ovn.unsecure(other)
        wait_classed(without, other, other.mac, ip, site.b)
        site.ovn.secure(other)
        wait_classed(nothing, other, other.mac, ip, site.b)


@contextlib.contextmanager
def _monitored(bed):
    """Yield what returns the gaps in which the coflow had no class, in s."""
    monitor = subprocess.Popen(
        ['ip', 'netns', 'exec', bed.ns('h1'), 'tc', '-ts', 'monitor'],
        stdout=subprocess.PIPE, text=True)

    def gaps_s():
        monitor.terminate()
        found, lost_at = [], None
        for line in monitor.communicate()[0].splitlines():
            stamp, _, event = line.partition('] ')
            is_loss = event.startswith('deleted qdisc htb 1: dev uplink0 root')
            if is_loss or event.startswith('class htb 7000:11 dev uplink0'):
                at = datetime.datetime.fromisoformat(stamp.lstrip('['))
                if not is_loss and lost_at:
                    found.append((at - lost_at).total_seconds())
                lost_at = (lost_at or at) if is_loss else None
        assert lost_at is None
        return found

    try:
        yield gaps_s
    finally:
        monitor.terminate()
        monitor.wait()


@pytest.mark.full(
    reason='six orders of three restarts, each with a transfer',
    still='test_limits_of_ovn_hold_beside_the_coflows')
@pytest.mark.real_time(reason='measures how long the coflow has no class')
@pytest.mark.parametrize('sig', [signal.SIGTERM, signal.SIGKILL],
                         ids=lambda sig: sig.name)
def test_restarts_in_any_order_leave_no_gap_of_a_second(site, sig):
    """Killed, no program takes back what it made."""
    def restart_controller():
        site.ovn.stop_controller(site.switch, sig)
        site.ovn.start_controller(site.switch)

    def restart_vswitchd():
        site.switch.stop_vswitchd(sig)
        site.switch.start_vswitchd()
        site.switch.vsctl('set', 'open', '.', 'other-config:test=again')

    def restart_edge():
        site.edge.stop(sig)
        site.start_edges()

    site.ovn.limit(site.a, 5e6)
    site.wait_both(5e6, 'a limit')
    # It sends all the while.
    flow = beds.Flow(site.a, site.b, port=5002, pacing_bps=1e6).start()
    with contextlib.closing(flow), _monitored(site.bed) as gaps_s:
        for order in itertools.permutations(
                (restart_controller, restart_vswitchd, restart_edge)):
            for restart in order:
                restart()
            # Meanwhile OVN's controller clears the qdisc that it may use.
            time.sleep(2)
            site.wait_ours(' '.join(one.__name__ for one in order))
            assert site.send() > 300_000
        gaps = gaps_s()
    assert gaps or sig == signal.SIGKILL
    assert max(gaps, default=0) < 1, gaps


@pytest.mark.full(reason='waits while nothing is restored',
                  still='test_limits_of_ovn_hold_beside_the_coflows')
def test_without_the_agent_the_coflow_stays_without_a_class(site):
    """With its last limit OVN takes its HTB away, ours in it."""
    site.ovn.limit(site.a, 5e6)
    site.wait_both(5e6, 'a limit')
    site.edge.process.send_signal(signal.SIGSTOP)
    try:
        site.ovn.limit(site.a, None)
        beds.wait_for(lambda: '7000:' not in site.edge.tc(), 20, 'a loss')
        time.sleep(3)
        assert '7000:' not in site.edge.tc()
    finally:
        site.edge.process.send_signal(signal.SIGCONT)
    site.wait_ours('the agent goes on')
    assert site.send() > 300_000


def test_networks_between_chassis(make_site):
    """A provider network's packets have a class, encapsulated ones none."""
    site = make_site(2, 2)
    assert [site.ovn.chassis_of(vm) for vm in (site.a, site.b)] == [
        ['h1'], ['h2']]
    beds.wait_for(lambda: site.send() > 300_000, 30, 'a classified transfer')
    site.ovn.nbctl('ls-add', 'net1')
    c, d = site.add_vm('h1', 'net1'), site.add_vm('h2', 'net1')
    before = site.sent_bytes()
    for vm in (c, d):
        # Room for the outer headers.
        beds.run('ip', 'link', 'set', 'dev', 'eth0', 'mtu', '1400',
                 netns=vm.netns)
    flow = beds.Flow(c, d, size_bytes=300_000).start()
    beds.wait_for(lambda: flow.done_s, 30, 'a transfer by Geneve')
    flow.close()
    assert site.sent_bytes() < before + 100_000
    # No path leads from one network into the other.
    with pytest.raises(OSError):
        beds.Flow(site.a, d)


def test_a_sender_migrates_between_chassis_in_a_transfer(make_site):
    """As Nova does it: both chassis have the port until it is announced."""
    site = make_site(3, 2)
    new = site.switches[1]
    flow = beds.Flow(site.a, site.b).start()
    beds.wait_for(lambda: site.sent_bytes() > 1_000_000, 30, 'a beginning')
    site.ovn.prepare_migration(site.a, new)
    beds.wait_for(lambda: site.ovn.chassis_of(
        site.a, 'additional_chassis') == ['h2'], 20, 'a second chassis')
    assert site.sent_bytes('h2') == 0
    site.ovn.migrate(site.a, new)
    # The same connection goes on there, in its class.
    beds.wait_for(lambda: site.sent_bytes('h2') > 2_000_000, 60,
                  'the transfer on the other chassis')
    flow.close()
    assert site.ovn.chassis_of(site.a) == ['h2']
    # With its last port of the network OVN clears the qdisc.
    site.wait_ours('the end of the migration')
