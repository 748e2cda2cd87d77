# SPDX-License-Identifier: Apache-2.0

"""A private Open vSwitch with the userspace datapath in a namespace."""

import pathlib
import shutil
import signal
import subprocess

from tests import patience
from tests.netns.edge import bed as beds

SCHEMA = '/usr/share/openvswitch/vswitch.ovsschema'


def missing():
    """Why there is no Open vSwitch here; None when there is."""
    for tool in ('ovsdb-server', 'ovs-vswitchd', 'ovs-vsctl', 'ethtool'):
        if shutil.which(tool) is None:
            return f'{tool} is not installed'
    return None


def plain_packets(vm):
    """Turn off the offloads that the userspace datapath cannot do."""
    beds.run('ethtool', '-K', 'eth0', 'tx', 'off', 'tso', 'off', 'gso',
             'off', 'gro', 'off', netns=vm.netns)


class Switch:
    """ovsdb-server and ovs-vswitchd of their own, with one bridge.

    :ivar datapath: ``netdev`` is the userspace datapath, ``system`` the
        kernel's.
    """

    datapath = 'netdev'

    def __init__(self, bed, host, directory):
        self.bed, self.host = bed, host
        self.netns = bed.ns(host)
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(exist_ok=True)
        self.socket = self.directory / 'db.sock'
        self.address = f'unix:{self.socket}'
        self.processes = {}
        beds.run('ovsdb-tool', 'create', self.directory / 'conf.db', SCHEMA)
        self.start()
        self.vsctl('--no-wait', 'init')

    def start(self):
        self._spawn('ovsdb-server', str(self.directory / 'conf.db'),
                    f'--remote=punix:{self.socket}')
        beds.wait_for(self.socket.exists, 10, 'ovsdb-server')
        self.start_vswitchd()

    def _spawn(self, name, *arguments):
        with open(self.directory / f'{name}.log', 'a') as log:
            self.processes[name] = subprocess.Popen(
                ['ip', 'netns', 'exec', self.netns, 'env',
                 f'OVS_RUNDIR={self.directory}', name, *arguments,
                 f'--unixctl={self.directory}/{name}.ctl'],
                stdout=log, stderr=log)

    def start_vswitchd(self):
        self._spawn('ovs-vswitchd', self.address)

    def stop_vswitchd(self, sig=signal.SIGTERM):
        self._stop('ovs-vswitchd', sig)

    def _stop(self, name, sig=signal.SIGTERM):
        process = self.processes.pop(name, None)
        if process is not None:
            process.send_signal(sig)
            patience.wait_end(process, f'the end of {name}')

    def vsctl(self, *arguments):
        return beds.run('ovs-vsctl', f'--db={self.address}', *arguments,
                        netns=self.netns).strip()

    def ofctl(self, command, *arguments, option='--names'):
        """Run ovs-ofctl on the bridge."""
        return beds.run('ovs-ofctl', '-O', 'OpenFlow14', option, command,
                        f'unix:{self.directory}/ovsbr.mgmt', *arguments,
                        netns=self.netns).strip()

    def take_over(self):
        """Put the bed's uplink into a bridge of this switch."""
        beds.run('ip', 'link', 'set', 'dev', 'uplink0', 'nomaster',
                 netns=self.netns)
        self.vsctl('add-br', 'ovsbr', '--', 'set', 'bridge', 'ovsbr',
                   f'datapath_type={self.datapath}', '--', 'add-port', 'ovsbr',
                   'uplink0')

    def plug(self, vm, marked=True, bridge='ovsbr', tag=()):
        """Plug a VM as Nova does.

        :param tag: ``['tag=100']`` for a port of VLAN 100.
        """
        beds.run('ip', 'link', 'set', 'dev', vm.dev, 'nomaster',
                 netns=self.netns)
        if self.datapath == 'netdev':
            plain_packets(vm)
        self.vsctl('add-port', bridge, vm.dev, *tag)
        if marked:
            self.vsctl('set', 'interface', vm.dev,
                       f'external_ids:vm-uuid={vm.uuid}',
                       f'external_ids:iface-id={vm.uuid}',
                       'external_ids:attached-mac=02:00:00:00:00:01')

    def plug_trunk(self, vm, mac, tag=()):
        """Plug a VM with a trunk as Neutron does; VLAN 101 of its device is a
        sub-port.

        :param mac: of the sub-port in Neutron.
        :param tag: of the sub-port's network, as in :meth:`plug`.
        """
        self.vsctl('add-br', 'tbr-1', '--', 'set', 'bridge', 'tbr-1',
                   f'datapath_type={self.datapath}')
        self.plug(vm, bridge='tbr-1')
        for end, peer, bridge, vlan in (
                ('spt-1', 'spi-1', 'tbr-1', ['tag=101']),
                ('spi-1', 'spt-1', 'ovsbr', tag)):
            self.vsctl('add-port', bridge, end, *vlan, '--', 'set',
                       'interface', end, 'type=patch', f'options:peer={peer}',
                       f'external_ids:attached-mac="{mac}"')

    def close(self):
        self._stop('ovs-vswitchd')
        self._stop('ovsdb-server')
