# SPDX-License-Identifier: Apache-2.0

"""What the plug-in for DevStack writes starts in a real cloud."""

import configparser
import shlex
import subprocess

import pytest

from tests import patience
from tests.cloud import clients
from tests.functional.devstack import node
from virtco_lab.cloud import configs
from virtco_lab.emulation import namespaces
from virtco_lab.emulation import process

#: What the plug-in has to write by itself.
_OURS = ('virtco', 'filter_scheduler', 'notifications',
         'oslo_messaging_notifications')
_PORT = 12791


@pytest.fixture
def devstack(cloud, tmp_path):
    """A node of this cloud, but with files that only the plug-in touched."""
    nova = configparser.ConfigParser(strict=False, interpolation=None)
    nova.read(cloud.config('nova'))
    for section in _OURS:
        nova.remove_section(section)
    nova['DEFAULT']['host'] = 'devstack'
    nova['DEFAULT']['log_file'] = str(tmp_path / 'nova-scheduler.log')
    with (tmp_path / 'nova-without.conf').open('w') as file:
        nova.write(file)
    return node.DevStack(tmp_path, (tmp_path / 'nova-without.conf')
                         .read_text())


def _localrc(cloud, directory):
    """DevStack's functions that know where the cloud is."""
    lines = ['function configure_keystoneauth {']
    for name, value in configs.account(cloud, 'virtco').items():
        lines.append(f'  iniset "$1" "$3" {name} {shlex.quote(str(value))}')
    lines += ['}', 'function run_process {',
              'if is_service_enabled "$1"; then',
              'echo "$2" >> "$CALLS.started"', 'fi', '}']
    path = directory / 'localrc'
    path.write_text('\n'.join(lines))
    return path


def test_the_written_files_start(cloud, devstack, tmp_path):
    devstack.run(
        *node.PHASES, localrc=_localrc(cloud, tmp_path),
        SERVICE_HOST=cloud.address, HOST_IP=cloud.address,
        SERVICE_LISTEN_ADDRESS=cloud.address, VIRTCO_PORT=_PORT,
        ENABLED_SERVICES='key,n-api,n-sch', DISABLED_SERVICES='virtco-edge')
    controller, = (tmp_path / 'calls.started').read_text().splitlines()
    inside = ['nsenter', f'--net={namespaces.path(cloud.control)}', 'env',
              'OS_NOVA_DISABLE_EVENTLET_PATCHING=1']
    started = []
    try:
        for command in (controller.split(), [
                process.script('nova-scheduler'), '--config-file',
                str(devstack.nova_conf)]):
            started.append(subprocess.Popen(
                [*inside, *command], stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL))
        patience.wait_for(lambda: subprocess.run(
            [*inside, 'curl', '-sf', '--noproxy', '*',
             f'http://{cloud.address}:{_PORT}/health'],
            capture_output=True).returncode == 0, 'a healthy controller')
        # It would have ended if a filter or a weigher could not be loaded.
        patience.wait_for(lambda: [
            row for row in clients.openstack('compute', 'service', 'list')
            if (row['Host'], row['State']) == ('devstack', 'up')],
            'the scheduler among the services')
        assert all(child.poll() is None for child in started)
    finally:
        for child in started:
            child.terminate()
        for child in started:
            child.wait(60)
