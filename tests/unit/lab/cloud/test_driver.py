# SPDX-License-Identifier: Apache-2.0

"""The cloud's virt driver: which commands of ``ip`` it gives."""

import importlib
import json
import os
import sys
import threading
import types

import pytest

from tests.unit.lab.cloud import made

driver = pytest.importorskip('virtco_lab.cloud.driver')

UUID = '01234567-89ab-cdef-0123-456789abcdef'
VM = 'virtco-emu-abc123-vm0123456789ab'
SWITCH = 'virtco-emu-abc123-compute1'


def _vif(number):
    return {'id': f'{number}bcdefghijklmnop', 'address': f'02:0{number}',
            'network': {'subnets': [
                {'cidr': '10.64.0.0/16', 'ips': [
                    {'address': f'10.64.0.{number}'}]},
                {'cidr': 'fd00::/64', 'ips': []}]}}


@pytest.fixture(name='nova')
def _nova(tmp_path, monkeypatch):
    """A driver on a hypervisor that has no namespaces."""
    there, calls = set(), []
    exists = os.path.exists
    monkeypatch.setattr(driver.layouts, 'load', lambda: made.layout(tmp_path))
    monkeypatch.setenv(driver.layouts.HOST, 'compute1')
    monkeypatch.setattr(driver.os.path, 'exists', lambda path: (
        path.rpartition('/')[2] in there
        if str(path).startswith('/run/netns/') else exists(path)))

    def run(argv, **options):
        assert options['check'] and options['capture_output']
        calls.append(' '.join(argv))
        if argv[1] == 'netns' and argv[2] != 'exec':
            (there.add if argv[2] == 'add' else there.remove)(argv[3])

    monkeypatch.setattr(driver.subprocess, 'run', run)
    base = driver.fake.MediumFakeDriver
    for name in ('__init__', 'spawn', 'destroy', 'finish_migration',
                 'migrate_disk_and_power_off'):
        monkeypatch.setattr(base, name, lambda self, *args, name=name, **_: (
            calls.append(f'fake {name}')))
    made_driver = driver.NamespaceDriver(None)
    # As Nova's makes it, with what the layout says.
    assert calls == ['fake __init__']
    calls.clear()
    made_driver.calls = calls
    made_driver.ports = tmp_path / 'ports-compute1.json'
    made_driver.instance = types.SimpleNamespace(uuid=UUID)
    return made_driver


def test_a_hypervisor_has_what_its_slots_need(nova):
    assert (nova.vcpus, nova.memory_mb, nova.local_gb) == (3, 3072, 30)


def test_nova_compute_finds_the_driver_among_its_own(monkeypatch):
    found, name = [], 'nova.virt.virtco_lab'
    # The real one patches what others import.
    monkeypatch.setitem(sys.modules, 'nova.cmd', types.SimpleNamespace(
        compute=types.SimpleNamespace(
            main=lambda: found.append(sys.modules[name]))))
    monkeypatch.setitem(sys.modules, name, None)
    module = importlib.import_module('virtco_lab.cloud.compute')
    monkeypatch.delitem(sys.modules, module.__name__)
    module.main()
    assert found == [driver]


def test_a_vm_is_a_namespace_on_its_hypervisors_switch(nova):
    nova.spawn(None, nova.instance, None, None, None, None,
               [_vif(0), _vif(1)])
    ports = [[
        f'ip link add tap{number}bcdefghijk netns {SWITCH} type veth peer '
        f'name eth{number} address 02:0{number} netns {VM}',
        f'ip -n {VM} addr add 10.64.0.{number}/16 dev eth{number}',
        f'ip -n {VM} link set eth{number} up',
        f'ip -n {SWITCH} link set tap{number}bcdefghijk master br-int up']
        for number in range(2)]
    assert nova.calls == [
        f'ip netns add {VM}', f'ip -n {VM} link set lo up', *ports[0],
        *ports[1], 'fake spawn']
    assert json.loads(nova.ports.read_text()) == {'ports': [
        {'vm': UUID, 'dev': f'tap{number}bcdefghijk', 'mac': f'02:0{number}',
         'ips': [f'10.64.0.{number}']} for number in range(2)]}


def test_a_vm_is_a_port_of_a_chassis(nova, monkeypatch, tmp_path):
    nova._layout = made.layout(tmp_path, backend='ovn')
    for name in ('plug', 'unplug'):
        monkeypatch.setattr(driver.ovn, name, lambda layout, *words: (
            nova.calls.append(words)))
    nova.spawn(None, nova.instance, None, None, None, None, [_vif(0)])
    assert nova.calls[-5:] == [
        f'ip -n {VM} link set eth0 up',
        f'ip netns exec {VM} ethtool -K eth0 tx off',
        f'ip -n {SWITCH} link set tap0bcdefghijk up',
        ('compute1', 'tap0bcdefghijk', {
            'iface-id': '0bcdefghijklmnop', 'attached-mac': '02:00',
            'vm-uuid': UUID}), 'fake spawn']
    # The edge module reads Open vSwitch.
    assert json.loads(nova.ports.read_text()) == {'ports': []}
    nova.calls.clear()
    nova.destroy(None, nova.instance)
    assert nova.calls == [('compute1', UUID), f'ip netns delete {VM}',
                          'fake destroy']


def test_a_vm_that_is_there_is_not_plugged_again(nova):
    nova.spawn(None, nova.instance, None, None, None, None, [_vif(0)])
    before = nova.ports.read_text()
    nova.calls.clear()
    nova.finish_migration(None, None, nova.instance, None, [_vif(1)])
    assert nova.calls == ['fake finish_migration']
    assert nova.ports.read_text() == before


@pytest.mark.parametrize('end', ['destroy', 'migrate_disk_and_power_off'])
def test_what_leaves_is_unplugged_and_others_stay(nova, end):
    nova.spawn(None, types.SimpleNamespace(uuid=UUID.replace('0', '9')), None,
               None, None, None, [_vif(1)])
    others = nova.ports.read_text()
    nova.finish_migration(None, None, nova.instance, None, [_vif(0)])
    assert len(json.loads(nova.ports.read_text())['ports']) == 2
    nova.calls.clear()
    getattr(nova, end)(None, nova.instance)
    assert nova.calls == [f'ip netns delete {VM}', f'fake {end}']
    assert nova.ports.read_text() == others
    # Nova may ask again.
    nova.calls.clear()
    getattr(nova, end)(None, nova.instance)
    assert nova.calls == [f'fake {end}']


def test_a_file_of_ports_is_written_by_one_at_a_time(nova):
    write = threading.Thread(target=nova._write, args=(UUID, []))
    with nova.ports.with_suffix('.lock').open('w') as lock:
        driver.fcntl.flock(lock, driver.fcntl.LOCK_EX)
        write.start()
        write.join(0.1)
        assert not nova.ports.exists()
    write.join()
    assert nova.ports.exists()


def test_a_vm_without_a_network_has_a_namespace(nova):
    nova.spawn(None, nova.instance, None, None, None, None)
    assert nova.calls[:2] == [f'ip netns add {VM}',
                              f'ip -n {VM} link set lo up']
    assert json.loads(nova.ports.read_text()) == {'ports': []}
