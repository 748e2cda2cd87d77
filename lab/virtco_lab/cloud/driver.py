# SPDX-License-Identifier: Apache-2.0

"""Nova's fake driver, whose VMs are network namespaces.

The rest of nova-compute is as it ships. A VM's namespace has one device per
Neutron port, with its Ethernet and IP address; the other end is a port of the
hypervisor's bridge. The edge module hears of it by its file, or with OVN from
Open vSwitch.
"""

import fcntl
import json
import os
import subprocess
from typing import Any

from nova.virt import fake

from virtco_lab.cloud import layout as layouts
from virtco_lab.cloud import ovn


class NamespaceDriver(fake.MediumFakeDriver):
    """Nova's fake driver, with a network namespace for each server."""

    def __init__(self, virtapi: Any):
        layout = layouts.load()
        assert layout is not None
        self._layout = layout
        self._name = os.environ[layouts.HOST]
        self.vcpus = layout.slots
        self.memory_mb = 1024 * layout.slots
        self.local_gb = 10 * layout.slots
        super().__init__(virtapi)

    def spawn(self, context: Any, instance: Any, image_meta: Any,
              injected_files: Any, admin_password: Any, allocations: Any,
              network_info: Any = None, *args: Any, **kwargs: Any) -> None:
        """Make the namespace of a server, with an address per port."""
        self._plug(instance.uuid, network_info or [])
        super().spawn(context, instance, image_meta, injected_files,
                      admin_password, allocations, network_info, *args,
                      **kwargs)

    def destroy(self, context: Any, instance: Any, *args: Any,
                **kwargs: Any) -> None:
        """Delete the namespace of a server."""
        self._unplug(instance.uuid)
        super().destroy(context, instance, *args, **kwargs)

    def finish_migration(self, context: Any, migration: Any, instance: Any,
                         disk_info: Any, network_info: Any, *args: Any,
                         **kwargs: Any) -> None:
        """Make the namespace of a server that comes from another host."""
        self._plug(instance.uuid, network_info or [])
        super().finish_migration(context, migration, instance, disk_info,
                                 network_info, *args, **kwargs)

    def migrate_disk_and_power_off(self, context: Any, instance: Any,
                                   *args: Any, **kwargs: Any) -> Any:
        """Delete the namespace of a server that goes to another host."""
        self._unplug(instance.uuid)
        return super().migrate_disk_and_power_off(context, instance, *args,
                                                  **kwargs)

    def _plug(self, uuid: str, network_info: Any) -> None:
        """Make the namespace of a VM, and plug its ports into the switch."""
        vm = self._layout.vm_namespace(uuid)
        switch = self._layout.namespace(self._name)
        if os.path.exists(f'/run/netns/{vm}'):
            return
        _ip('netns', 'add', vm)
        _ip('-n', vm, 'link', 'set', 'lo', 'up')
        rows = []
        for number, vif in enumerate(network_info):
            tap, dev = f'tap{vif["id"][:11]}', f'eth{number}'
            _ip('link', 'add', tap, 'netns', switch, 'type', 'veth', 'peer',
                'name', dev, 'address', vif['address'], 'netns', vm)
            addresses = [(ip['address'], subnet['cidr'].partition('/')[2])
                         for subnet in vif['network']['subnets']
                         for ip in subnet['ips']]
            for address, prefix in addresses:
                _ip('-n', vm, 'addr', 'add', f'{address}/{prefix}', 'dev',
                    dev)
            _ip('-n', vm, 'link', 'set', dev, 'up')
            if self._layout.backend == 'ovn':
                # The userspace datapath fills in no checksums.
                _ip('netns', 'exec', vm, 'ethtool', '-K', dev, 'tx', 'off')
                _ip('-n', switch, 'link', 'set', tap, 'up')
                ovn.plug(self._layout, self._name, tap, {
                    'iface-id': vif['id'], 'attached-mac': vif['address'],
                    'vm-uuid': uuid})
                continue
            _ip('-n', switch, 'link', 'set', tap, 'master', 'br-int', 'up')
            rows.append({'vm': uuid, 'dev': tap, 'mac': vif['address'],
                         'ips': [address for address, _ in addresses]})
        self._write(uuid, rows)

    def _unplug(self, uuid: str) -> None:
        self._write(uuid, [])
        if self._layout.backend == 'ovn':
            ovn.unplug(self._layout, self._name, uuid)
        vm = self._layout.vm_namespace(uuid)
        if os.path.exists(f'/run/netns/{vm}'):
            _ip('netns', 'delete', vm)

    def _write(self, uuid: str, rows: list[dict[str, Any]]) -> None:
        """Put a VM's ports into the edge module's file, in place of others."""
        path = self._layout.ports_file(self._name)
        with path.with_suffix('.lock').open('w') as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            before = json.loads(path.read_text())['ports'] if (
                path.exists()) else []
            fresh = path.with_suffix('.new')
            fresh.write_text(json.dumps({'ports': [
                *(row for row in before if row['vm'] != uuid), *rows]}))
            fresh.replace(path)


def _ip(*arguments: str) -> None:
    subprocess.run(['ip', *arguments], check=True, capture_output=True)
