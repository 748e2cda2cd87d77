# SPDX-License-Identifier: Apache-2.0

"""Hypervisors that switch by Open vSwitch's kernel datapath."""

import dataclasses
import os

from edge_module.privileged import kernel_calls as kernel
from edge_module.qdisc import htb
from tests.netns.edge import bed as beds
from tests.netns.edge import controller as controllers
from tests.netns.edge import policies
from tests.netns.edge import process
from tests.netns.edge import switch as switches

LINK_BPS = 5e6
# Emulation takes its time; what is waited for comes or does not.
PATIENCE_S = 150
_TUNNEL_MTU_BYTES = 1450


def _has_tcx():
    major, minor, *_ = os.environ['VIRTCO_KERNEL_VM'].split('.')
    return (int(major), int(minor)) >= (6, 6)


class Switch(switches.Switch):
    """As the userspace one, but that the kernel forwards."""

    datapath = 'system'


@dataclasses.dataclass
class Segment:
    """A tenant's network: two senders at h1, one receiver at h2."""

    member: beds.Vm
    noise: beds.Vm
    sink: beds.Vm


class Site:
    """h1 with an agent and h2, joined by their uplinks."""

    def __init__(self, directory):
        self.directory = directory
        self.bed = beds.Bed(2)
        self.switches = {}
        self.segments = {}
        self.generation = 0
        self.edge = None
        self.controller = None

    def __enter__(self):
        try:
            for host in self.bed.hosts:
                switch = Switch(self.bed, host, self.directory / host)
                self.switches[host] = switch
                switch.take_over()
            self.controller = controllers.Controller(self.bed.ns('h1'))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.edge is not None:
            print(self.edge.log())  # pytest shows it with a failure
            self.edge.stop()
        if self.controller is not None:
            self.controller.stop()
        for switch in self.switches.values():
            switch.close()
        self.bed.close()

    @property
    def switch(self):
        """The switch of the hypervisor that is tested."""
        return self.switches['h1']

    # -- networks ----------------------------------------------------------

    def segment(self, kind):
        """The tenant's network of a kind: flat, vlan, vxlan, geneve, or trunk
        for a VLAN to which the member has a sub-port.

        Tenants have equal addresses, but for those who share a broadcast
        domain with the hypervisors.
        """
        if kind not in self.segments:
            bridge, tag = 'ovsbr', ()
            if kind in ('vlan', 'trunk'):
                tag = ['tag=100' if kind == 'vlan' else 'tag=200']
            elif kind != 'flat':
                bridge = self._tunnel(kind)
            vms = [self.bed.add_vm(host, f'10.77.0.{number}')
                   for number, host in enumerate(('h1', 'h1', 'h2'), 1)]
            for vm in vms:
                if kind == 'trunk' and vm is vms[0]:
                    self._plug_trunk(vm, tag)
                else:
                    self.switches[vm.host].plug(vm, bridge=bridge, tag=tag)
                if bridge != 'ovsbr':
                    beds.run('ip', 'link', 'set', 'dev', 'eth0', 'mtu',
                             _TUNNEL_MTU_BYTES, netns=vm.netns)
            self.segments[kind] = Segment(*vms)
        return self.segments[kind]

    def _plug_trunk(self, vm, tag):
        """Plug a VM whose address is that of a sub-port."""
        self.switch.plug_trunk(vm, '02:00:00:00:01:01', tag)
        for command in ('addr flush dev eth0', 'link add link eth0 name '
                        'eth0.101 type vlan id 101',
                        f'addr add {vm.ip}/16 dev eth0.101',
                        'link set dev eth0.101 up'):
            beds.run('ip', *command.split(), netns=vm.netns)

    def _tunnel(self, kind):
        """A bridge per hypervisor, joined by a tunnel over the uplinks."""
        bridge = f'{kind}br'
        addresses = [f'192.168.9.{number}' for number in (1, 2)]
        for (host, switch), address in zip(self.switches.items(), addresses):
            remote, = set(addresses) - {address}
            netns = self.bed.ns(host)
            beds.run('ip', 'addr', 'replace', f'{address}/24', 'dev',
                     'ovsbr', netns=netns)
            beds.run('ip', 'link', 'set', 'dev', 'ovsbr', 'up', netns=netns)
            switch.vsctl(
                'add-br', bridge, '--', 'add-port', bridge, f'{kind}up',
                '--', 'set', 'interface', f'{kind}up', f'type={kind}',
                f'options:remote_ip={remote}', 'options:key=7')
        return bridge

    # -- the agent ---------------------------------------------------------

    def start_edge(self, **options):
        """Start the agent, or start it anew with other options."""
        if self.edge is not None:
            self.edge.stop()
        self.edge = process.EdgeProcess(
            self.bed, 'h1', self.directory, LINK_BPS, ports_backend='ovs',
            ovsdb_connection=self.switch.address,
            how='bpf' if _has_tcx() else 'nft',
            report_interval_s=0.5, **options)
        self.controller.reports.clear()
        self.edge.start()

    def enforce(self, coflows):
        """Have the agent enforce a policy.

        :param coflows: (source, destination, rate in bit/s, whether IPv6)
            per coflow; each is held to its rate.
        :returns: the minor of each coflow's only destination.
        """
        self.generation += 1
        builder = policies.PolicyBuilder('h1', LINK_BPS, self.generation)
        for number, (source, target, rate_bps, ipv6) in enumerate(coflows):
            builder.coflow(f'C{number}', rate_bps, [(source, target, 1)],
                           ceil_bps=rate_bps, ipv6=ipv6)
        policy = builder.build()
        self.controller.set_policy(policy.to_dict())
        self.controller.wait_report(
            lambda report: report['applied_generation'] == self.generation
            and report['health'] == 'ok'
            and {vm.dev for segment in self.segments.values()
                 for vm in (segment.member, segment.noise)}
            <= {port['dev'] for port in report['ports']}, PATIENCE_S)
        return [item.destinations[0].minor for item in policy.classes]

    def uplink(self):
        """What stands at the uplink: tree and counters by minor."""
        return beds.in_netns(self.bed.ns('h1'),
                             htb.Uplink(kernel, 'uplink0').snapshot)

    def show(self):
        """What pytest is to print with a failure."""
        netns = self.bed.ns('h1')
        for command in (('tc', '-s', 'qdisc', 'show', 'dev', 'uplink0'),
                        ('tc', '-s', 'class', 'show', 'dev', 'uplink0'),
                        ('nft', 'list', 'ruleset')):
            print(beds.run(*command, netns=netns))
        for vm in self.bed.vms:
            print(beds.run('ss', '-tinm', netns=vm.netns))

    def sent_bytes(self, minor):
        return self.uplink().stats[minor].sent_bytes

    def restart_vswitchd(self):
        """Return when the new one has taken over what is configured."""
        self.switch.stop_vswitchd()
        self.switch.start_vswitchd()
        self.switch.vsctl('set', 'open_vswitch', '.',
                          'other-config:test=restarted')
