# SPDX-License-Identifier: Apache-2.0

"""A central and a chassis of OVN in the namespace of a switch."""

import shutil
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
    """The bridge of a switch is the provider network of one logical switch.

    :param switch: it has the uplink.
    """

    def __init__(self, switch, directory):
        self.switch, self._home = switch, directory
        directory.mkdir()
        self._processes = {}
        for name in ('nb', 'sb'):
            beds.run('ovsdb-tool', 'create', directory / f'{name}.db',
                     f'{SCHEMAS}/ovn-{name}.ovsschema')
            self._spawn('ovsdb-server', f'{directory}/{name}.db',
                        f'--remote=punix:{directory}/{name}.sock', key=name)
            beds.wait_for((directory / f'{name}.sock').exists, 10, name)
        self._spawn('ovn-northd', f'--ovnnb-db=unix:{directory}/nb.sock',
                    f'--ovnsb-db=unix:{directory}/sb.sock')
        switch.vsctl(
            'add-br', 'br-int', '--', 'set', 'bridge', 'br-int',
            f'datapath_type={switch.datapath}', 'fail-mode=secure', '--',
            'set', 'open', '.', *(f'external-ids:{name}={value}' for
                                  name, value in {
                'system-id': 'h1', 'ovn-remote': f'unix:{directory}/sb.sock',
                'ovn-encap-type': 'geneve', 'ovn-encap-ip': '127.0.0.1',
                'ovn-bridge-mappings': 'physnet1:ovsbr',
                'ovn-bridge-datapath-type': switch.datapath}.items()), '--',
            'set', 'interface', 'uplink0',
            'external-ids:ovn-egress-iface=true')
        self.nbctl('ls-add', NETWORK, '--', 'lsp-add', NETWORK, 'ln0', '--',
                   'lsp-set-type', 'ln0', 'localnet', '--',
                   'lsp-set-addresses', 'ln0', 'unknown', '--',
                   'lsp-set-options', 'ln0', 'network_name=physnet1')
        self.start_controller()

    def _spawn(self, name, *arguments, key=None):
        key = key or name
        with open(self._home / f'{key}.log', 'a') as log:
            self._processes[key] = subprocess.Popen(
                ['ip', 'netns', 'exec', self.switch.netns, 'env',
                 f'OVS_RUNDIR={self.switch.directory}',
                 f'OVN_RUNDIR={self._home}', name, *arguments,
                 *([] if name == 'ovn-controller' else
                   [f'--unixctl={self._home}/{key}.ctl'])],
                stdout=log, stderr=log)

    def start_controller(self):
        self._spawn('ovn-controller', self.switch.address)

    def stop_controller(self):
        self._stop('ovn-controller')

    def _stop(self, key):
        process = self._processes.pop(key, None)
        if process is not None:
            process.terminate()
            patience.wait_end(process, f'the end of {key}')

    def nbctl(self, *arguments):
        return beds.run('ovn-nbctl', f'--db=unix:{self._home}/nb.sock',
                        *arguments, netns=self.switch.netns).strip()

    def plug(self, vm):
        """Plug a VM as Nova and Neutron do."""
        self.nbctl('lsp-add', NETWORK, vm.uuid, '--', 'lsp-set-addresses',
                   vm.uuid, 'unknown')
        self.switch.plug(vm, bridge='br-int')
        beds.wait_for(lambda: self.nbctl(
            'get', 'logical_switch_port', vm.uuid, 'up') == 'true', 20,
            'a port that is up')

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
