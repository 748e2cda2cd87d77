# SPDX-License-Identifier: Apache-2.0

"""OVN's central databases, and a chassis in the namespace of each switch."""

import shutil
import signal
import socket
import struct
import subprocess

from tests import patience
from tests.netns.edge import bed as beds

SCHEMAS = '/usr/share/ovn'
NETWORK = 'net0'


def missing():
    """Why there is no OVN here; None when there is."""
    for tool in ('ovn-northd', 'ovn-controller', 'ovn-nbctl'):
        if shutil.which(tool) is None:
            return f'{tool} is not installed'
    return None


class Ovn:
    """A logical switch, whose provider network the bridges of switches are.

    :param switches: each has an uplink.
    """

    def __init__(self, directory, switches):
        self.switches, self._home = switches, directory
        directory.mkdir()
        self._processes = {}
        for name in ('nb', 'sb'):
            beds.run('ovsdb-tool', 'create', directory / f'{name}.db',
                     f'{SCHEMAS}/ovn-{name}.ovsschema')
            self._spawn(name, 'ovsdb-server', f'{directory}/{name}.db',
                        f'--remote=punix:{directory}/{name}.sock')
            beds.wait_for((directory / f'{name}.sock').exists, 10, name)
        self._spawn('northd', 'ovn-northd',
                    f'--ovnnb-db=unix:{directory}/nb.sock',
                    f'--ovnsb-db=unix:{directory}/sb.sock')
        self.nbctl('ls-add', NETWORK, '--', 'lsp-add', NETWORK, 'ln0', '--',
                   'lsp-set-type', 'ln0', 'localnet', '--',
                   'lsp-set-addresses', 'ln0', 'unknown', '--',
                   'lsp-set-options', 'ln0', 'network_name=physnet1')
        for number, switch in enumerate(switches):
            self._join(switch, f'192.168.9.{number + 1}')

    def _join(self, switch, address):
        switch.vsctl(
            'add-br', 'br-int', '--', 'set', 'bridge', 'br-int',
            f'datapath_type={switch.datapath}', 'fail-mode=secure', '--',
            'set', 'open', '.', *(f'external-ids:{name}={value}' for
                                  name, value in {
                'system-id': switch.host,
                'ovn-remote': f'unix:{self._home}/sb.sock',
                'ovn-encap-type': 'geneve', 'ovn-encap-ip': address,
                'ovn-bridge-mappings': 'physnet1:ovsbr',
                'ovn-bridge-datapath-type': switch.datapath}.items()), '--',
            'set', 'interface', 'uplink0',
            'external-ids:ovn-egress-iface=true')
        # The userspace datapath sends what it encapsulates by this route.
        beds.run('ip', 'addr', 'add', f'{address}/24', 'dev', 'ovsbr',
                 netns=switch.netns)
        beds.run('ip', 'link', 'set', 'dev', 'ovsbr', 'up',
                 netns=switch.netns)
        self.start_controller(switch)

    def _spawn(self, key, *command, switch=None):
        switch = switch or self.switches[0]
        with open(self._home / f'{key}.log', 'a') as log:
            self._processes[key] = subprocess.Popen(
                ['ip', 'netns', 'exec', switch.netns, 'env',
                 f'OVS_RUNDIR={switch.directory}', f'OVN_RUNDIR={self._home}',
                 *command], stdout=log, stderr=log)

    def start_controller(self, switch):
        self._spawn(f'controller-{switch.host}', 'ovn-controller',
                    switch.address, switch=switch)

    def stop_controller(self, switch, sig=signal.SIGTERM):
        self._stop(f'controller-{switch.host}', sig)

    def _stop(self, key, sig=signal.SIGTERM):
        process = self._processes.pop(key, None)
        if process is not None:
            process.send_signal(sig)
            patience.wait_end(process, f'the end of {key}')

    def nbctl(self, *arguments):
        return beds.run('ovn-nbctl', f'--db=unix:{self._home}/nb.sock',
                        *arguments).strip()

    def chassis_of(self, vm, column='chassis'):
        """Names of the chassis that a VM's port is bound to."""
        def read(column, *words):
            return beds.run('ovn-sbctl', f'--db=unix:{self._home}/sb.sock',
                            '--bare', f'--columns={column}', *words).split()
        return [name for uuid in read(column, 'find', 'port_binding',
                                      f'logical_port={vm.uuid}')
                for name in read('name', 'list', 'chassis', uuid)]

    def plug(self, vm, switch, network=NETWORK):
        """Plug a VM as Nova and Neutron do."""
        self.nbctl('lsp-add', network, vm.uuid, '--', 'lsp-set-addresses',
                   vm.uuid, f'{vm.mac} {vm.ip}', '--', 'lsp-set-options',
                   vm.uuid, f'requested-chassis={switch.host}')
        switch.plug(vm, bridge='br-int')
        beds.wait_for(lambda: self.nbctl(
            'get', 'logical_switch_port', vm.uuid, 'up') == 'true', 20,
            'a port that is up')

    def plug_sub_port(self, vm, mac, ip, tag):
        """Give a VM's port a sub-port, as Neutron's driver does."""
        name = f'{vm.uuid}-{tag}'
        self.nbctl('--wait=hv', 'lsp-add', NETWORK, name, vm.uuid, str(tag),
                   '--', 'lsp-set-addresses', name, f'{mac} {ip}', '--',
                   'lsp-set-port-security', name, f'{mac} {ip}')

    def secure(self, vm, *ips):
        """Let a VM's port send from its address and its address pairs."""
        self.nbctl('--wait=hv', 'lsp-set-port-security', vm.uuid,
                   ' '.join((vm.mac, vm.ip, *ips)))

    def unsecure(self, vm):
        """Let a VM's port send from any address."""
        self.nbctl('--wait=hv', 'lsp-set-port-security', vm.uuid)

    def prepare_migration(self, vm, switch):
        """Plug a VM's second device, which passes nothing yet."""
        tap = f'{vm.dev}m'
        beds.run('ip', 'link', 'add', 'dev', tap, 'netns', switch.netns,
                 'type', 'veth', 'peer', 'name', 'eth1', 'address', vm.mac,
                 'netns', vm.netns)
        beds.run('ip', 'link', 'set', 'dev', tap, 'up', netns=switch.netns)
        beds.run('ethtool', '-K', 'eth1', 'tx', 'off', netns=vm.netns)
        beds.run('ip', 'link', 'set', 'dev', 'eth1', 'up', netns=vm.netns)
        self.nbctl('lsp-set-options', vm.uuid, 'activation-strategy=rarp',
                   f'requested-chassis={vm.host},{switch.host}')
        switch.vsctl('add-port', 'br-int', tap, '--', 'set', 'interface', tap,
                     f'external_ids:vm-uuid={vm.uuid}',
                     f'external_ids:iface-id={vm.uuid}')

    def migrate(self, vm, switch):
        """Run a VM on its second device and take the first one away."""
        old = next(one for one in self.switches if one.host == vm.host)
        beds.run('ip', 'addr', 'flush', 'dev', 'eth0', netns=vm.netns)
        beds.run('ip', 'addr', 'add', f'{vm.ip}/16', 'dev', 'eth1',
                 netns=vm.netns)
        # As QEMU announces a VM that has arrived.
        beds.in_netns(vm.netns, _announce, 'eth1',
                      bytes.fromhex(vm.mac.replace(':', '')))
        self.nbctl('lsp-set-options', vm.uuid,
                   f'requested-chassis={switch.host}')
        old.vsctl('del-port', vm.dev)
        vm.host = switch.host

    def limit(self, vm, rate_bps):
        """Limit what a VM sends; None ends it."""
        if rate_bps is None:
            for name in ('qos_max_rate', 'qos_burst'):
                self.nbctl('--if-exists', 'remove', 'logical_switch_port',
                           vm.uuid, 'options', name)
        else:
            self.nbctl('set', 'logical_switch_port', vm.uuid,
                       f'options:qos_max_rate={rate_bps:.0f}',
                       f'options:qos_burst={rate_bps / 10:.0f}')

    def close(self):
        for key in reversed(list(self._processes)):
            self._stop(key)


def _announce(dev, mac):
    """Send a Reverse ARP request."""
    body = struct.pack('!HHBBH6s4s6s4s', 1, 0x0800, 6, 4, 3, mac, bytes(4),
                       mac, bytes(4))
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
        sock.bind((dev, 0))
        sock.send(b'\xff' * 6 + mac + b'\x80\x35' + body)
