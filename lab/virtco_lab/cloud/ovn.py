# SPDX-License-Identifier: Apache-2.0

"""OVN for the cloud: its databases, and a chassis on each hypervisor.

A chassis is an Open vSwitch with the userspace datapath, which needs no
module of the kernel, and an ovn-controller. The databases listen on sockets
below the cloud's directory.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import pathlib
import subprocess

from virtco_lab.cloud import daemons
from virtco_lab.cloud import layout as layouts
from virtco_lab.emulation import fabric as fabrics
from virtco_lab.emulation import namespaces

_DATAPATH = 'netdev'
_PROVIDER_BRIDGE = 'br-ex'
#: Time after which a question to a switch has failed.
_DONE_S = 120


def central(layout: layouts.Layout) -> list[daemons.Daemon]:
    """Build the servers of OVN's two databases, and ovn-northd."""
    return [*(_database(layout, name, f'ovn/ovn-{name}')
              for name in ('nb', 'sb')),
            _daemon(layout, 'nb', 'ovn-northd', *(
                f'--ovn{name}-db={layout.ovsdb(name)}'
                for name in ('nb', 'sb')))]


def switch(layout: layouts.Layout, host: str) -> list[daemons.Daemon]:
    """Build a hypervisor's Open vSwitch."""
    return [_database(layout, host, 'openvswitch/vswitch'),
            _inside(layout, host, 'ovs-vswitchd')]


def controller(layout: layouts.Layout, host: str) -> daemons.Daemon:
    """Build a hypervisor's ovn-controller, which :func:`connect` precedes."""
    # As its unit does: version 23.03 sometimes crashes while it starts.
    return _inside(layout, host, 'ovn-controller', '--monitor')


def connect(layout: layouts.Layout, hypervisor: fabrics.Hypervisor) -> None:
    """Put a hypervisor's chassis in the place of the fabric's bridge.

    The uplink and the host's address are of the provider bridge then.
    """
    netns = hypervisor.namespace
    _run('ip', '-n', netns, 'link', 'delete', fabrics.VM_BRIDGE)
    bridges = [word for name in (fabrics.VM_BRIDGE, _PROVIDER_BRIDGE)
               for word in ('--', 'add-br', name, '--', 'set', 'bridge', name,
                            f'datapath_type={_DATAPATH}')]
    settings = {
        'system-id': hypervisor.host, 'hostname': hypervisor.host,
        'ovn-remote': layout.ovsdb('sb'), 'ovn-encap-type': 'geneve',
        'ovn-encap-ip': hypervisor.address,
        'ovn-bridge-datapath-type': _DATAPATH,
        'ovn-bridge-mappings':
            f'{layouts.PHYSICAL_NETWORK}:{_PROVIDER_BRIDGE}'}
    _vsctl(layout, hypervisor.host, 'init', *bridges, '--', 'add-port',
           _PROVIDER_BRIDGE, fabrics.UPLINK_DEV, '--', 'set', 'interface',
           fabrics.UPLINK_DEV, 'external_ids:ovn-egress-iface=true', '--',
           'set', 'open', '.', *(f'external_ids:{name}={value}'
                                 for name, value in settings.items()))
    _run('ip', '-n', netns, 'address', 'add',
         f'{hypervisor.address}/{fabrics.DATA_NET.prefixlen}', 'dev',
         _PROVIDER_BRIDGE)
    _run('ip', '-n', netns, 'link', 'set', _PROVIDER_BRIDGE, 'up')


def plug(layout: layouts.Layout, host: str, tap: str,
         ids: Mapping[str, str]) -> None:
    """Plug a device as os-vif does; wait until OVN's flows are there."""
    _vsctl(layout, host, 'add-port', fabrics.VM_BRIDGE, tap, '--', 'set',
           'interface', tap, *(f'external_ids:{name}="{value}"'
                               for name, value in ids.items()))
    _vsctl(layout, host, 'wait-until', 'interface', tap,
           'external_ids:ovn-installed=true')


def unplug(layout: layouts.Layout, host: str, uuid: str) -> None:
    """Unplug the devices of a VM."""
    for tap in _vsctl(layout, host, '--bare', '--columns=name', 'find',
                      'interface', f'external_ids:vm-uuid={uuid}').split():
        _vsctl(layout, host, 'del-port', tap)


def _vsctl(layout: layouts.Layout, host: str, *words: str) -> str:
    """Run ``ovs-vsctl`` for a hypervisor, until it is done.

    :raises subprocess.CalledProcessError: when it is not done in time.
    """
    return _run('ovs-vsctl', '--retry', f'--timeout={_DONE_S}',
                f'--db={layout.ovsdb(host)}', *words)


def _run(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True,
                          text=True).stdout


def _database(layout: layouts.Layout, name: str,
              schema: str) -> daemons.Daemon:
    directory = _directory(layout, name)
    directory.mkdir()
    path = str(directory / 'conf.db')
    _run('ovsdb-tool', 'create', path, f'/usr/share/{schema}.ovsschema')
    return _daemon(layout, name, 'ovsdb-server', path,
                   f'--remote=p{layout.ovsdb(name)}')


def _directory(layout: layouts.Layout, name: str) -> pathlib.Path:
    return pathlib.Path(layout.ovsdb(name).removeprefix('unix:')).parent


def _inside(layout: layouts.Layout, host: str, program: str,
            *options: str) -> daemons.Daemon:
    """Build a program that runs on a hypervisor, with its Open vSwitch."""
    return _daemon(
        layout, host, program, layout.ovsdb(host), *options,
        before=namespaces.within(layout.namespace(host)))


def _daemon(layout: layouts.Layout, name: str, program: str, *arguments: str,
            before: Sequence[str] = ()) -> daemons.Daemon:
    directory = str(_directory(layout, name))
    return daemons.Daemon(
        layout, f'{program}-{name}', [*before, program, *arguments],
        {'OVS_RUNDIR': directory, 'OVN_RUNDIR': directory})
