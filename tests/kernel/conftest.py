# SPDX-License-Identifier: Apache-2.0

"""The kernel tier runs in the virtual machine of tools/kernel_vm alone."""

import os
import pathlib
import subprocess

import pytest

from tests.kernel import site as sites

_MODULES = ('openvswitch', 'vport_vxlan', 'vport_geneve', 'sch_htb',
            'nfnetlink_log')
_HERE = pathlib.Path(__file__).parent


def pytest_collection_modifyitems(items):
    """What needs the virtual machine is skipped elsewhere."""
    for item in items:
        if _HERE not in item.path.parents:
            continue
        if not os.environ.get('VIRTCO_KERNEL_VM'):
            item.add_marker(pytest.mark.skip(
                reason='runs in a virtual machine: tox -e kernel'))


@pytest.fixture(scope='session', autouse=True)
def modules():
    """What the kernel must have; without it the tier fails."""
    subprocess.run(['modprobe', '-a', *_MODULES], check=True)


@pytest.fixture(scope='module')
def site(tmp_path_factory):
    """Two hypervisors of one module's tests, both with Open vSwitch."""
    with sites.Site(tmp_path_factory.mktemp('site')) as made:
        yield made
