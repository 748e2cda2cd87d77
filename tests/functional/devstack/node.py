# SPDX-License-Identifier: Apache-2.0

"""A node on which phases of the plug-in for DevStack are run.

The functions of DevStack come from tests/fixtures/devstack. To run the same
tests with DevStack's own, as far as they do no harm, point
VIRTCO_TEST_DEVSTACK to a tree of it.
"""

import os
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[3]
FIXTURES = ROOT / 'tests' / 'fixtures' / 'devstack'
FUNCTIONS = (pathlib.Path(os.environ.get('VIRTCO_TEST_DEVSTACK', FIXTURES))
             / 'functions')
BIN_DIR = pathlib.Path(sys.executable).parent

NOVA_CONF = """
[DEFAULT]
debug = True
my_ip = 192.0.2.1

[filter_scheduler]
track_instance_changes = True
enabled_filters = ComputeFilter,SameHostFilter

[oslo_messaging_notifications]
transport_url = rabbit://stack:secret@192.0.2.1:5672/
driver = messagingv2

[notifications]
notification_format = unversioned

[workarounds]
"""
PHASES = ['stack pre-install', 'stack install', 'stack post-config',
          'stack extra', 'stack test-config']


class DevStack:
    """:param nova: text of its nova.conf."""

    def __init__(self, directory, nova=NOVA_CONF):
        self.directory = directory
        self.nova_conf = directory / 'nova' / 'nova.conf'
        self.cell_conf = directory / 'nova' / 'nova_cell1.conf'
        self.tempest_conf = directory / 'tempest.conf'
        self.virtco_dir = directory / 'etc-virtco'
        self.calls = directory / 'calls'
        self.nova_conf.parent.mkdir()
        self.nova_conf.write_text(nova)
        self.cell_conf.write_text('[DEFAULT]\ndebug = True\n')
        self.tempest_conf.write_text('[compute-feature-enabled]\nresize = 1\n')
        self.calls.touch()
        self.variables = {
            'DEST': directory, 'DATA_DIR': directory / 'data',
            'CALLS': self.calls, 'BIN_DIR': BIN_DIR, 'HOST_IP': '127.0.0.1',
            'SERVICE_HOST': '127.0.0.1', 'STACK_USER': 'root',
            'SERVICE_LISTEN_ADDRESS': '0.0.0.0',
            'REGION_NAME': 'RegionOne', 'ENABLE_DEBUG_LOG_LEVEL': 'True',
            'NOVA_CONF': self.nova_conf, 'TEMPEST_CONFIG': self.tempest_conf,
            'NOVA_FILTERS': 'ComputeFilter,SameHostFilter',
            'ENABLED_SERVICES': 'key,rabbit,n-api,n-sch,n-cpu,tempest',
            'DISABLED_SERVICES': '', 'VIRTCO_DIR': ROOT,
            'VIRTCO_CONF_DIR': self.virtco_dir, 'VIRTCO_UPLINK_DEV': 'lo',
            'TOP_DIR': FUNCTIONS.parent}

    def run(self, *phases, localrc=None, **variables):
        """Run phases one after the other in one shell, as DevStack does."""
        done = self.attempt(*phases, localrc=localrc, **variables)
        assert done.returncode == 0, done.stdout + done.stderr
        assert 'warning:' not in done.stdout
        return self.calls.read_text().splitlines()

    def attempt(self, *phases, localrc=None, **variables):
        lines = ['set -o errexit']
        for name, value in {**self.variables, **variables}.items():
            lines.append(f'{name}={shlex.quote(str(value))}')
        lines += [f'source {file}' for file in (
            FUNCTIONS, FIXTURES / 'recorded', localrc,
            ROOT / 'devstack' / 'settings') if file]
        lines += [f'source {ROOT}/devstack/plugin.sh {phase}'
                  for phase in phases]
        return subprocess.run(['bash', '-c', '\n'.join(lines)], text=True,
                              capture_output=True)
