# SPDX-License-Identifier: Apache-2.0

"""The install pages, followed literally on a machine of its own."""

import os
import pathlib
import re
import shutil
import tempfile

import pytest

from tests import book
from tests import patience
from tests.install import machine as machines

_PAGES = ('install/controller', 'install/edge')
_DEVICES = {'eth0': '192.0.2.5', 'eth1': '10.0.0.11'}
_MIRROR = os.environ.get('VIRTCO_TEST_MIRROR',
                         'http://deb.debian.org/debian')

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, (
        'debootstrap', 'systemd-nspawn'))),
    reason='needs root, debootstrap and systemd-nspawn')


def _installs(text):
    """The commands that fetch packages."""
    return re.findall(r'^(?:apt-get|python3 -m venv|/opt/virtco/bin/pip)'
                      r'(?:.*\\\n)*.*$', text, re.MULTILINE)


@pytest.fixture(scope='module')
def machine():
    # A socket's path below /tmp/pytest-of-root would be too long.
    directory = pathlib.Path(tempfile.mkdtemp(prefix='virtco-install-'))
    one = machines.Machine(directory)
    try:
        one.install(_MIRROR, _DEVICES)
        steps = [step for page in ('install/overview', *_PAGES)
                 for step in book.read(page)]
        one.prepare('\n'.join(
            ['export DEBIAN_FRONTEND=noninteractive',
             *(command for step in steps if step.path is None
               for command in _installs(step.text)
               if '--upgrade' not in command),
             # What a hypervisor has before virtco comes.
             'apt-get install -y --no-install-recommends openvswitch-switch',
             'rm /usr/sbin/policy-rc.d']))
        one.boot()
        one.run('systemctl start ovsdb-server')
        yield one
    finally:
        one.end()
        shutil.rmtree(directory)


def _follow(machine, page):
    """All of a page's steps; what the commands printed."""
    script, printed = [], []
    for step in book.read(page):
        if step.path is not None:
            printed.append(machine.run('\n'.join(script)))
            script = []
            machine.write(step.path, step.text)
            continue
        text = step.text
        for command in _installs(text):
            text = text.replace(command, '')
        script.append(text)
    return ''.join(printed) + machine.run('\n'.join(script))


def test_the_pages_lead_to_a_shaped_uplink(machine):
    said = _follow(machine, 'install/controller')
    assert '"status":"ok"' in said
    assert machine.run('systemctl is-active virtco-controller haproxy'
                       ).split() == ['active'] * 2
    assert 'class htb' in _follow(machine, 'install/edge')

    def hosts():
        return machine.run(
            'export VIRTCO_URL=https://192.0.2.5:8791 '
            'OS_CACERT=/etc/virtco/tls/ca.pem; '
            '/opt/virtco/bin/virtco host list -f csv')
    patience.wait_for(lambda: 'compute-11' in hosts(),
                      'the hypervisor in the list')
    assert 'User=virtco\n' in machine.run(
        'systemctl show virtco-controller -p User')
    owners = machine.run('ps -o user:20= -C virtco-edge').split()
    assert sorted(owners) == ['virtco-edge', 'virtco-edge-net']


def test_what_was_killed_comes_back(machine):
    machine.run('systemctl kill -s KILL virtco-controller virtco-edge')
    for unit in ('virtco-controller', 'virtco-edge'):
        patience.wait_for(lambda unit=unit: machine.run(
            f'systemctl is-active {unit} || true').strip() == 'active',
            f'{unit} active')
    assert 'class htb' in machine.run('tc class show dev eth1')
