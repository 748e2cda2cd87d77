# SPDX-License-Identifier: Apache-2.0

"""Maps that are full, and devices that go between two changes."""

import contextlib
import os
import pathlib
import platform
import re
import runpy
import shutil
import socket
import subprocess

import pytest

from edge_module.classify import bpf
from edge_module.classify import bpf_maps
from edge_module.classify import classified as base
from edge_module.privileged import kernel_calls as kernel
from edge_module.privileged import pinned
from tests import run_name
from tests.netns.edge import bed as beds
from virtco import exception

pytestmark = pytest.mark.netns

ROOT = pathlib.Path(__file__).parents[3]
# In place of those of the program, so that it is soon reached.
_MOST = {'1048576': 64, '131072': 32, '8192': 4, '1024': 2}


@pytest.fixture(scope='module')
def program(tmp_path_factory):
    """The programs with small maps."""
    build = runpy.run_path(str(ROOT / 'tools' / 'build_kernels.py'))
    clang = next(filter(None, map(shutil.which, build['CLANGS'])), None)
    if clang is None:
        pytest.skip('clang is not installed')
    source = (ROOT / build['BPF']).read_text()
    for most, fewer in _MOST.items():
        source, count = re.subn(rf'^((?:MAP|CACHES)\(.*, ){most},',
                                rf'\g<1>{fewer},', source, flags=re.M)
        assert count
    path = tmp_path_factory.mktemp('bpf') / 'small.o'
    machine = platform.machine()
    subprocess.run(
        [clang, '-O2', '-g', '-target', 'bpf', '-mcpu=v3',
         f'-D__{machine}__', f'-I/usr/include/{machine}-linux-gnu', '-c',
         '-x', 'c', '-', '-o', path], input=source, text=True, check=True)
    return path


@pytest.fixture
def host(program, monkeypatch):
    """A host with ports tap1 to tap9, and a way to call there."""
    netns = run_name.another()
    directory = pathlib.Path('/sys/fs/bpf') / netns
    directory.mkdir()
    monkeypatch.setattr(pinned, 'PROGRAM', program)
    monkeypatch.setattr(pinned, 'DIRECTORY', os.fspath(directory))
    pinned._version.cache_clear()
    beds.run('ip', 'netns', 'add', netns)
    try:
        for number in range(1, 10):
            beds.run('ip', 'link', 'add', f'tap{number}', 'type', 'ifb',
                     netns=netns)
        yield _Host(netns)
    finally:
        shutil.rmtree(directory)
        beds.run('ip', 'netns', 'del', netns)
        pinned._version.cache_clear()


class _Host:
    """A classifier whose calls are made in a namespace."""

    def __init__(self, netns):
        self.netns = netns
        self.classifier = bpf.BpfClassifier(kernel)
        self.port = self.ifindex('tap1')

    def ifindex(self, dev):
        return beds.in_netns(self.netns, socket.if_nametoindex, dev)

    def replace(self, table):
        return beds.in_netns(self.netns, self.classifier.replace, table)

    def stands(self):
        """What the kernel has, by another agent's reading."""
        return beds.in_netns(
            self.netns, bpf.BpfClassifier(kernel).dump)

    def hooks(self):
        """Ports that are classified; others are to be detached."""
        return frozenset(hook for hook in self.stands().hooks if hook[0])

    def pinned(self):
        """Names of all that is pinned of devices."""
        path = beds.in_netns(self.netns, pinned.Tables).path
        return {one.name for one in path.iterdir() if '-' in one.name}

    def table(self, entries=0, macs=0, ports=('tap1',), exits=()):
        own = [self.ifindex(dev) for dev in ports]
        return base.Table(
            frozenset(zip(ports, own)), {
                base.Entry(self.port, '10.0.0.1', f'10.0.{number}.2'): 0x11
                for number in range(entries)}, {
                    'control': {base.MapKey(ifindex): 0x9001
                                for ifindex in own},
                    **({'to': {base.MapKey(
                        self.port, f'02:00:00:00:00:{number:02x}'): 0xc101
                        for number in range(macs)},
                        'others': {base.MapKey(self.port): 0xc001}}
                        if macs else {})},
            frozenset(base.Exit(dev, self.ifindex(dev), True)
                      for dev in exits))


@pytest.mark.parametrize('name, most', [('entries', 64), ('macs', 32)])
def test_a_map_that_is_full_is_told_and_the_next_table_converges(
        host, name, most):
    host.replace(host.table(**{name: most}))
    with pytest.raises(exception.KernelRefused, match='it is full'):
        host.replace(host.table(**{name: most + 1}))
    # What stands is of one table or the other.
    assert host.hooks() == host.table().hooks
    for count in most, 1, most:
        table = host.table(**{name: count})
        host.replace(table)
        found = host.stands()
        assert (found.entries, found.maps) == (table.entries, table.maps)


def test_a_full_map_of_other_elements_has_room_for_new_ones(host):
    """Old ones go first; else a map could never be more than half full."""
    host.replace(host.table(entries=64))
    table = host.table(entries=64)
    moved = base.Table(table.hooks, {
        entry._replace(dst_port=80): minor
        for entry, minor in [*table.entries.items()][:32]}, table.maps)
    host.replace(moved)
    assert host.stands().entries == moved.entries


def test_more_ports_than_there_is_room_for_leave_the_others(host):
    ports = [f'tap{number}' for number in range(1, 7)]
    without = dict(host.table(ports=ports).maps, control={})
    table = base.Table(host.table(ports=ports).hooks, maps=without)
    host.replace(table)
    assert len(host.classifier.refused) == 2
    assert all('it is full' in why
               for why in host.classifier.refused.values())
    assert len(host.hooks()) == 4
    # Those that leave make room for others.
    host.classifier.forget()
    fewer = base.Table(host.table(ports=ports[2:]).hooks, maps=without)
    host.replace(fewer)
    assert not host.classifier.refused and host.hooks() == fewer.hooks


@pytest.mark.parametrize('is_new', [True, False])
def test_a_device_that_goes_between_two_changes_leaves_the_others(
        host, is_new):
    before = host.table(ports=('tap1',) if is_new else ('tap1', 'tap2'))
    wanted = host.table(1, ports=('tap1', 'tap2'))
    host.replace(before)
    beds.run('ip', 'link', 'del', 'tap2', netns=host.netns)
    host.replace(wanted)
    # The agent does not know it yet, and need not.
    if is_new:
        (dev, _), why = *host.classifier.refused, *(
            host.classifier.refused.values())
        assert dev == 'tap2' and 'No such device' in why
    assert host.stands().entries == wanted.entries
    assert host.hooks() == host.table().hooks
    host.classifier.forget()
    host.replace(host.table(1))
    assert host.stands() == host.classifier.known
    assert all(name.endswith(f'-{host.port}') for name in host.pinned())


@pytest.mark.parametrize('does_know', [True, False])
def test_nothing_is_left_of_devices_that_are_gone(host, does_know):
    """Whether the agent saw them go or starts afterwards."""
    with contextlib.suppress(exception.KernelRefused):
        host.replace(host.table(1, ports=('tap1', 'tap2'), exits=['tap3']))
    assert len(host.pinned()) == 3 + 3 + 3
    for dev in 'tap2', 'tap3':
        beds.run('ip', 'link', 'del', dev, netns=host.netns)
    if not does_know:
        host.classifier.forget()
    host.replace(host.table(1))
    assert len(host.pinned()) == 3
    assert all(name.endswith(f'-{host.port}') for name in host.pinned())
    packed, = beds.in_netns(host.netns, kernel.bpf_read, [
        bpf.operations.MapListing('devices')])
    assert [*bpf_maps.devices(packed)] == [host.port]


def test_a_device_that_comes_back_under_its_number_is_new(host):
    table = host.table(1, ports=('tap1', 'tap2'))
    number = host.ifindex('tap2')
    host.replace(table)
    beds.run('ip', 'link', 'del', 'tap2', netns=host.netns)
    beds.run('ip', 'link', 'add', 'tap2', 'index', str(number), 'type',
             'ifb', netns=host.netns)
    assert host.hooks() == host.table().hooks
    host.classifier.forget()
    host.replace(table)
    assert host.hooks() == table.hooks
