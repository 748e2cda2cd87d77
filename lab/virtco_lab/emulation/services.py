# SPDX-License-Identifier: Apache-2.0

"""Starts the product's own processes inside the emulated datacentre.

Controller and Nova run in the control namespace, one edge module in each
hypervisor's. They are the commands that an operator runs, with
configuration files written here.
"""

import json
import pathlib
import socket
import sys
import types
import typing

from virtco_lab.emulation import fabric as fabric_module
from virtco_lab.emulation import namespaces
from virtco_lab.emulation import process

CONTROLLER_PORT = 8791
#: Port of the API on the control namespace's loopback, which serves the page.
_PAGE_PORT = 8790
_PROBE_PORT = 7472
# While VMs send, Nova has nothing to do that cannot wait.
_NOVA_NICENESS = 10


def controller_url(fabric: fabric_module.Fabric) -> str:
    """Return the address of the controller's API in the management network."""
    return f'http://{fabric.control_address}:{CONTROLLER_PORT}'


def page_url() -> str:
    """Return the address of the API beside the live page, in the control
    namespace.
    """
    return f'http://127.0.0.1:{_PAGE_PORT}'


def page_options(fabric: fabric_module.Fabric) -> process.Options:
    """Make the controller's options for its live page.

    Without keystone it serves the page on loopback only, so the API is there,
    and what Nova and the edge modules ask for stays where it was.
    """
    return {'api': {
        'ui': True, 'host': '127.0.0.1', 'port': _PAGE_PORT,
        'service_host': fabric.control_address,
        'service_port': CONTROLLER_PORT},
        'distributor': {'host': fabric.control_address}}


def start_page(fabric: fabric_module.Fabric, logs: pathlib.Path
               ) -> tuple[process.Child, str]:
    """Lead a free port of this machine's loopback to the live page.

    :returns: the process that does, and the page's address.
    """
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    inside = ' '.join(namespaces.within(fabric.control))
    return process.Child('the way to the live page', [
        'socat', f'TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr,fork',
        f'EXEC:{inside} socat STDIO TCP\\:127.0.0.1\\:{_PAGE_PORT}'],
        logs / 'page.log'), f'http://127.0.0.1:{port}/ui/'


def start_controller(fabric: fabric_module.Fabric, state: pathlib.Path,
                     logs: pathlib.Path,
                     options: process.Options = types.MappingProxyType({})
                     ) -> process.Child:
    """Start ``virtco-controller`` with its embedded defaults on SQLite.

    :param options: instead of the testbed's own, by group.
    """
    groups: dict[str, dict[str, typing.Any]] = {
        'api': {'host': fabric.control_address, 'port': CONTROLLER_PORT},
        'database': {'connection': f'sqlite:///{state}/controller.sqlite'},
        # The simulator's planner has the same budget. The deadline is below
        # the patience of the Nova stack, far above the time of a plan.
        'placement': {'budget_s': 1, 'deadline_s': 8},
        'scheduler': {'default_share': 0.02, 'beta': 0,
                      'interval_s': _report_interval_s(fabric),
                      'quiet_s': max(1.0, 3 * _report_interval_s(fabric))},
        # Its links are slow and its hour is short: an hour's part of them
        # would not be enough for one round.
        'probe': {'interval_s': 0.2, 'freshness_s': 3600,
                  'max_link_share': 1},
    }
    return _start('virtco-controller', 'controller', groups | {
        group: {**groups.get(group, {}), **some}
        for group, some in options.items()}, state, logs, fabric.control)


def start_edge(fabric: fabric_module.Fabric, host: str, rate_bps: float,
               state: pathlib.Path, logs: pathlib.Path) -> process.Child:
    """Start ``virtco-edge`` on a hypervisor, with a static list of ports."""
    hypervisor = fabric.hypervisors[host]
    write_ports(fabric, host, state)
    return _start(f'virtco-edge on {host}', f'edge-{host}', {
        'edge': {'host': host, 'controller_url': controller_url(fabric),
                 'uplink_dev': fabric_module.UPLINK_DEV,
                 'link_egress_bps': round(rate_bps),
                 'link_ingress_bps': round(rate_bps),
                 # The fabric's limits count a frame's own bytes.
                 'wire_overhead_bytes': 0,
                 'link_margin': 0,
                 'ports_backend': 'static',
                 'ports_file': _ports_file(state, host),
                 'state_dir': state / f'edge-{host}',
                 'report_interval_s': _report_interval_s(fabric),
                 # A queue holds the windows of all its flows, at any rate.
                 'leaf_min_bytes': 8 * 2 ** 20},
        'probe': {'enabled': True, 'address': hypervisor.address,
                  'port': _PROBE_PORT},
    }, state, logs, hypervisor.namespace)


def _start(what: str, name: str, options: process.Options, state: pathlib.Path,
           logs: pathlib.Path, namespace: str) -> process.Child:
    """Write a configuration file, and start a program of the product by it.

    :param what: name of the process, which begins with the program's.
    """
    config = state / f'{name}.conf'
    config.write_text(process.ini(options))
    return process.Child(
        what, [process.script(what.split()[0]), '--config-file', str(config)],
        logs / f'{name}.log', namespace=namespace)


def start_nova(fabric: fabric_module.Fabric, slots: int,
               flavors: dict[str, int], state: pathlib.Path,
               logs: pathlib.Path) -> process.Child:
    """Start Nova with a compute service per hypervisor and virtco enabled."""
    child = process.Child(
        'Nova', [sys.executable, '-m', 'virtco_lab.emulation.nova_stack'],
        logs / 'nova.err', namespace=fabric.control, piped=True,
        own_log=logs / 'nova.log', environment={'TMPDIR': str(state)},
        niceness=_NOVA_NICENESS)
    child.write_line(json.dumps({
        'hosts': dict.fromkeys(fabric.hypervisors, slots),
        'controller_url': controller_url(fabric),
        'listen': fabric.control_address, 'flavors': flavors,
        'log_file': str(logs / 'nova.log')}))
    return child


def write_ports(fabric: fabric_module.Fabric, host: str,
                state: pathlib.Path) -> None:
    """Tell the edge module which VM is behind which port of its host."""
    path = _ports_file(state, host)
    fresh = path.with_suffix('.new')
    fresh.write_text(json.dumps({'ports': [
        {'vm': port.vm, 'dev': port.dev, 'mac': port.mac,
         'ips': [port.address]}
        for port in fabric.vms.values() if port.host == host]}))
    fresh.replace(path)


def _ports_file(state: pathlib.Path, host: str) -> pathlib.Path:
    return state / f'ports-{host}.json'


def _report_interval_s(fabric: fabric_module.Fabric) -> float:
    """Choose the interval of reports, short as coflows here last seconds.

    Every edge module costs a few per cent of a processor per report and
    second; where there are many, the mix lasts longer, too.
    """
    n_hosts = len(fabric.hypervisors)
    return 0.1 if n_hosts <= 8 else n_hosts / 20
