# SPDX-License-Identifier: Apache-2.0

"""The cloud's OVN: what is started and which commands are given."""

import types

import pytest

from tests.unit.lab.cloud import made
from virtco_lab.cloud import ovn
from virtco_lab.emulation import fabric as fabrics


@pytest.fixture(name='cloud')
def _cloud(tmp_path, monkeypatch):
    """A layout, and the commands that were given."""
    found = types.SimpleNamespace(
        layout=made.layout(tmp_path, backend='ovn'), said=[], out='')

    def run(argv, check, capture_output, text):
        assert check and capture_output and text
        found.said.append(' '.join(argv))
        return types.SimpleNamespace(stdout=found.out)

    monkeypatch.setattr(ovn.subprocess, 'run', run)
    return found


def _started(services):
    return {one.name: ' '.join((one.command, *one.arguments()))
            for one in services}


def test_two_databases_and_what_translates_between_them(cloud, tmp_path):
    services = ovn.central(cloud.layout)
    assert _started(services) == {
        **{f'ovsdb-server-{name}':
           f'ovsdb-server {tmp_path}/ovsdb-{name}/conf.db '
           f'--remote=punix:{tmp_path}/ovsdb-{name}/db.sock'
           for name in ('nb', 'sb')},
        'ovn-northd-nb':
            f'ovn-northd --ovnnb-db=unix:{tmp_path}/ovsdb-nb/db.sock '
            f'--ovnsb-db=unix:{tmp_path}/ovsdb-sb/db.sock'}
    assert cloud.said == [
        f'ovsdb-tool create {tmp_path}/ovsdb-{name}/conf.db '
        f'/usr/share/ovn/ovn-{name}.ovsschema' for name in ('nb', 'sb')]
    # Each listens for commands in a directory of its own.
    assert (tmp_path / 'ovsdb-sb').is_dir()
    assert {services[1].environment()[name] for name in (
        'OVS_RUNDIR', 'OVN_RUNDIR')} == {f'{tmp_path}/ovsdb-sb'}


def test_a_chassis_runs_in_the_namespace_of_its_hypervisor(cloud, tmp_path):
    inside = ('nsenter --net=/run/netns/virtco-emu-abc123-compute1 '
              '{} unix:' + f'{tmp_path}/ovsdb-compute1/db.sock')
    database, *switch = ovn.switch(cloud.layout, 'compute1')
    assert cloud.said[0].endswith('/usr/share/openvswitch/vswitch.ovsschema')
    assert _started([*switch, ovn.controller(cloud.layout, 'compute1')]) == {
        'ovs-vswitchd-compute1': inside.format('ovs-vswitchd'),
        # What crashes is started again.
        'ovn-controller-compute1':
            inside.format('ovn-controller') + ' --monitor'}


def test_a_chassis_takes_the_place_of_the_bridge(cloud, tmp_path):
    ovn.connect(cloud.layout, fabrics.Hypervisor(
        'compute2', 'netns2', '10.0.0.2', '172.30.1.2'))
    gone, vsctl, *address = cloud.said
    assert gone == 'ip -n netns2 link delete br-int'
    first, *rest = vsctl.split(' -- ')
    assert first == ('ovs-vsctl --retry --timeout=120 '
                     f'--db=unix:{tmp_path}/ovsdb-compute2/db.sock init')
    assert rest[:6] == [
        'add-br br-int', 'set bridge br-int datapath_type=netdev',
        'add-br br-ex', 'set bridge br-ex datapath_type=netdev',
        'add-port br-ex uplink0',
        'set interface uplink0 external_ids:ovn-egress-iface=true']
    assert rest[6].split()[:3] == ['set', 'open', '.']
    assert set(rest[6].split()[3:]) == {f'external_ids:{text}' for text in (
        'system-id=compute2', 'hostname=compute2', 'ovn-encap-type=geneve',
        f'ovn-remote=unix:{tmp_path}/ovsdb-sb/db.sock',
        'ovn-encap-ip=10.0.0.2', 'ovn-bridge-datapath-type=netdev',
        'ovn-bridge-mappings=physnet1:br-ex')}
    assert address == ['ip -n netns2 address add 10.0.0.2/8 dev br-ex',
                       'ip -n netns2 link set br-ex up']


def test_a_device_is_plugged_until_its_flows_are_there(cloud):
    ovn.plug(cloud.layout, 'compute1', 'tap7', {'iface-id': 'p', 'mac': '0:1'})
    assert [line.split('db.sock ')[1] for line in cloud.said] == [
        'add-port br-int tap7 -- set interface tap7 '
        'external_ids:iface-id="p" external_ids:mac="0:1"',
        'wait-until interface tap7 external_ids:ovn-installed=true']


def test_all_devices_of_a_vm_are_unplugged(cloud):
    cloud.out = 'tap1\n\ntap2\n'
    ovn.unplug(cloud.layout, 'compute1', 'u')
    assert [line.split('db.sock ')[1] for line in cloud.said] == [
        '--bare --columns=name find interface external_ids:vm-uuid=u',
        'del-port tap1', 'del-port tap2']
