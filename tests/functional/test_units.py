# SPDX-License-Identifier: Apache-2.0

"""The systemd units, as systemd reads them."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

from edge_module.privileged import pinned

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


def test_the_edges_users_and_directories_are_made(tmp_path):
    """As the installation says; nobody else may read either directory."""
    if os.geteuid() or not all(map(shutil.which, (
            'systemd-sysusers', 'systemd-tmpfiles'))):
        pytest.skip('needs root, systemd-sysusers and systemd-tmpfiles')
    (tmp_path / 'etc').mkdir()
    for command, kind in ((['systemd-sysusers'], 'sysusers.d'),
                          (['systemd-tmpfiles', '--create'], 'tmpfiles.d')):
        done = subprocess.run(
            [*command, f'--root={tmp_path}',
             str(UNITS.parent / kind / 'virtco-edge.conf')], text=True,
            capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
    users = {line.split(':')[0]: int(line.split(':')[2]) for line in (
        tmp_path / 'etc' / 'passwd').read_text().splitlines()}
    for path, user, mode in (
            ('var/lib/virtco-edge', 'virtco-edge', 0o40750),
            (pinned.DIRECTORY[1:], 'virtco-edge-net', 0o40700)):
        made = (tmp_path / path).stat()
        assert (made.st_uid, made.st_mode) == (users[user], mode), path


def test_the_edges_unit_lets_it_classify():
    """By programs, which outlive it."""
    unit = (UNITS / 'virtco-edge.service').read_text()
    for name, wanted in (('CapabilityBoundingSet', 'CAP_BPF'),
                         ('SystemCallFilter', 'bpf'),
                         ('ReadWritePaths', f'-{pinned.DIRECTORY}')):
        assert wanted in re.search(f'^{name}=(.*)', unit, re.M)[1].split()
