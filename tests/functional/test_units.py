# SPDX-License-Identifier: Apache-2.0

"""The systemd units, as systemd reads them."""

import pathlib
import shutil
import subprocess

import pytest

UNITS = pathlib.Path(__file__).parents[2] / 'etc' / 'virtco'


@pytest.fixture
def verify(tmp_path):
    """What systemd finds wrong with a unit's text."""
    if shutil.which('systemd-analyze') is None:
        pytest.skip('systemd-analyze is not installed')

    def call(text):
        unit = tmp_path / 'virtco.service'
        unit.write_text(text)
        done = subprocess.run(
            ['systemd-analyze', 'verify', str(unit)], text=True,
            capture_output=True, check=False)
        return done.stdout + done.stderr
    return call


@pytest.mark.parametrize('name', ['controller', 'edge'])
def test_a_unit_is_understood(verify, name):
    text = (UNITS / f'virtco-{name}.service').read_text()
    assert 'Type=notify\n' in text
    # Only its program is not where a package would put it.
    text = text.replace(f'/opt/virtco/bin/virtco-{name} ', '/bin/true ')
    assert verify(text) == ''
    assert 'Failed to parse' in verify(text.replace('notify', 'notifies'))


@pytest.mark.parametrize('name', ['controller', 'edge'])
def test_a_unit_leaves_little_exposed(tmp_path, name):
    """At most 2.5 of 10; without the filter of system calls it is more."""
    if shutil.which('systemd-analyze') is None:
        pytest.skip('systemd-analyze is not installed')
    text = (UNITS / f'virtco-{name}.service').read_text()
    for wanted, said in ((text, 0), (text.replace('SystemCall', '#'), 1)):
        unit = tmp_path / 'virtco.service'
        unit.write_text(wanted)
        done = subprocess.run(
            ['systemd-analyze', 'security', '--offline=true',
             '--threshold=25', str(unit)], text=True, capture_output=True,
            check=False)
        assert done.returncode == said, done.stdout + done.stderr


def test_the_edges_users_are_understood(tmp_path):
    if shutil.which('systemd-sysusers') is None:
        pytest.skip('systemd-sysusers is not installed')
    etc = UNITS.parent
    done = subprocess.run(
        ['systemd-sysusers', '--dry-run', f'--root={tmp_path}',
         str(etc / 'sysusers.d' / 'virtco-edge.conf')], text=True,
        capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    for user in ('virtco-edge', 'virtco-edge-net'):
        assert f'user {user} ' in said.replace("'", '').lower() + ' ', said
    owner = (etc / 'tmpfiles.d' / 'virtco-edge.conf').read_text()
    assert 'd /var/lib/virtco-edge 0750 virtco-edge virtco-edge' in owner
