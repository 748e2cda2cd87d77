# SPDX-License-Identifier: Apache-2.0

"""What others take away from an agent, and how long it is missing.

A coflow sends all the time; the agent compares by itself once in an hour only,
so that whatever comes back came back for an announcement.
"""

import socket
import time

from edge_module.classify import classified as classify
from edge_module.privileged import kernel_calls as kernel
from edge_module.qdisc import htb
from edge_module.tcplan import minors
from tests.netns.edge import bed as beds
from tests.netns.edge import controller as controllers
from tests.netns.edge import policies
from tests.netns.edge import process

LINK_BPS = 40e6
RATE_BPS = 20e6
# Devices are not looked for, either.
_CONSTANTS = process.CONSTANTS | {
    'edge_module.ports.port_source._LOOK_S': 3600.0}
# A device whose speed can be set; nothing is sent by it.
_FAST_DEV = 'fast0'
_LEAF = 0x11


class Site:
    """Two hypervisors with an agent each, the second one for speeds.

    :param how: what classifies.
    """

    def __init__(self, directory, how):
        self.bed = beds.Bed(2)
        self.how = how
        self._stack = []
        self.number = 0
        try:
            self.src = self.bed.add_vm('h1')
            self.dst = self.bed.add_vm('h2')
            self.edge = self._agent(directory / 'one', 'h1')
            beds.run('ip', 'tuntap', 'add', 'mode', 'tap', _FAST_DEV,
                     netns=self.bed.ns('h2'))
            # One that is down has no speed.
            beds.run('ip', 'link', 'set', _FAST_DEV, 'up',
                     netns=self.bed.ns('h2'))
            self._set_speed(1000)
            self._agent(directory / 'two', 'h2', link_bps=0, link_margin=0,
                        uplink_dev=_FAST_DEV)
        except BaseException:
            self.close()
            raise

    def _agent(self, directory, host, **options):
        directory.mkdir()
        controller = controllers.Controller(self.bed.ns(host))
        self._stack.append(controller)
        builder = policies.PolicyBuilder(host, 1e12 if options else LINK_BPS,
                                         default_bps=LINK_BPS / 50)
        if not options:
            builder.coflow('C1', RATE_BPS, [(self.src, self.dst, 1)],
                           ceil_bps=RATE_BPS)
        controller.set_policy(builder.build().to_dict())
        edge = process.EdgeProcess(self.bed, host, directory,
                                   how=self.how, audit_interval_s=3600,
                                   constants=_CONSTANTS,
                                   **{'link_bps': LINK_BPS, **options})
        self._stack.append(edge)
        edge.start()
        controller.wait_report(lambda r: r['applied_generation'] == 1
                               and r['health'] == 'ok', 60)
        return edge

    def close(self):
        for part in reversed(self._stack):
            part.stop()
        self.bed.close()

    def here(self, *command, host='h1'):
        beds.run(*command, netns=self.bed.ns(host))

    # -- losses; each returns when the device is there again ------------------

    def flush_nftables(self):
        self.here('nft', 'flush', 'ruleset')

    def flush_a_map(self):
        self.here('nft', 'flush', 'map', 'netdev', 'virtco', 'ingress_pair4')

    def change_a_class(self):
        self.here('tc', 'class', 'change', 'dev', 'uplink0', 'parent',
                  '7000:10', 'classid', '7000:11', 'htb', 'rate', '1mbit',
                  'ceil', '1mbit')

    def delete_a_class(self):
        self.here('tc', 'class', 'del', 'dev', 'uplink0', 'classid', '7000:11')

    def delete_the_qdisc(self):
        self.here('tc', 'qdisc', 'del', 'dev', 'uplink0', 'root')

    def make_the_uplink_anew(self):
        self.here('ip', 'link', 'del', 'dev', 'uplink0')
        self.bed.add_uplink('h1')

    def rename_the_uplink(self):
        self.here('ip', 'link', 'set', 'dev', 'uplink0', 'name', 'away0')
        self.here('tc', 'qdisc', 'del', 'dev', 'away0', 'root')
        self.here('ip', 'link', 'set', 'dev', 'away0', 'name', 'uplink0')

    def change_the_mtu(self):
        self.here('ip', 'link', 'set', 'dev', 'uplink0', 'mtu',
                  str(9000 - 100 * (self.number % 2)))

    def make_a_tap_anew(self):
        vm = self.src
        self.here('ip', 'link', 'del', 'dev', vm.dev)
        self.here('ip', 'link', 'add', 'dev', vm.dev, 'type', 'veth', 'peer',
                  'name', 'eth0', 'netns', vm.netns)
        self.here('ip', 'link', 'set', 'dev', vm.dev, 'master', 'brv', 'up')
        beds.run('ip', 'link', 'set', 'dev', 'eth0', 'address', vm.mac, 'up',
                 netns=vm.netns)
        beds.run('ip', 'addr', 'add', f'{vm.ip}/16', 'dev', 'eth0',
                 netns=vm.netns)

    def change_the_speed(self):
        """As when a port or a bond's member negotiates another one."""
        self.here('ip', 'link', 'set', 'dev', _FAST_DEV, 'down', host='h2')
        self._set_speed(1000 if self.number % 2 else 100)
        self.here('ip', 'link', 'set', 'dev', _FAST_DEV, 'up', host='h2')

    def _set_speed(self, mbps):
        self.here('ethtool', '-s', _FAST_DEV, 'speed', str(mbps), 'duplex',
                  'full', 'autoneg', 'off', host='h2')
        self.speed_bps = mbps * 1e6

    # -- how it is ------------------------------------------------------------

    def is_enforced(self):
        """Whether classes and classification fit the devices as they are."""
        try:
            return beds.in_netns(self.bed.ns('h1'), self._has_all) and (
                beds.in_netns(self.bed.ns('h2'), self._has_speed))
        except Exception:  # whatever it is, it does not stand
            return False

    def _has_all(self):
        uplink = htb.Uplink(kernel, 'uplink0')
        tree = uplink.snapshot().tree
        table = self.edge.classifier().dump()
        ifindex = socket.if_nametoindex(self.src.dev)
        leaf, link = tree[_LEAF], tree[minors.LINK]
        return (leaf.rate_bps == leaf.ceil_bps == RATE_BPS
                and link.rate_bps == LINK_BPS
                and leaf.packet_bytes >= uplink.frame_bytes()
                and minors.FIRST_PORT + ifindex in tree
                and table.hooks == {(self.src.dev, ifindex)}
                and table.entries == {classify.Entry(
                    ifindex, self.src.ip, self.dst.ip): _LEAF})

    def _has_speed(self):
        tree = htb.Uplink(kernel, _FAST_DEV).snapshot().tree
        return tree[minors.LINK].rate_bps == self.speed_bps

    def lose(self, what):
        """Seconds from the loss, or the device's return, to enforcement."""
        self.number += 1
        start_s = time.monotonic()
        getattr(self, what)()
        start_s = max(start_s, time.monotonic() - 0.1)
        beds.wait_for(self.is_enforced, 60, f'enforcement after {what}')
        return time.monotonic() - start_s


#: What may be lost, by what classifies: programs are in no table.
LOSSES = {how: tuple(name for name in vars(Site)
                     if name.split('_')[0] in verbs)
          for verbs in [('change', 'delete', 'make', 'rename')]
          for how, verbs in (('bpf', verbs), ('nft', ('flush', *verbs)))}
