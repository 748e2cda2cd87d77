# SPDX-License-Identifier: Apache-2.0

"""The emulated network: which links are made where, by an ``ip`` that is
only noted.
"""

import json
import types

import pytest

from virtco import exception
from virtco.topology import tree
from virtco_lab.emulation import bed as beds
from virtco_lab.emulation import fabric

CORE, CONTROL = 'virtco-emu-abc123-core', 'virtco-emu-abc123-control'
H0, H1 = 'virtco-emu-abc123-h0', 'virtco-emu-abc123-h1'


@pytest.fixture(name='kernel')
def _kernel(monkeypatch, tmp_path):
    made = types.SimpleNamespace(story=[], retrans=tmp_path / 'early_retrans')
    monkeypatch.setattr(fabric.namespaces, 'create', lambda name: (
        made.story.append((name, 'created'))))
    monkeypatch.setattr(fabric.namespaces, 'remove', lambda name: (
        made.story.append((name, 'removed'))))
    monkeypatch.setattr(fabric.namespaces, 'call', lambda name, function: (
        made.story.append((name, function.__name__)), function())[1])
    monkeypatch.setattr(fabric, '_disable_ipv6', _disable_ipv6)
    monkeypatch.setattr(fabric, '_EARLY_RETRANS', made.retrans)
    monkeypatch.setattr(
        fabric.shaping, 'run_batch', lambda namespace, lines, program='tc': (
            made.story.append((namespace, program, lines))))
    return made


_REAL_DISABLE_IPV6 = fabric._disable_ipv6


def _disable_ipv6():
    pass


def _made(name, *lines):
    return [(name, 'created'), (name, '_disable_ipv6'),
            (name, 'ip', ['link set lo up', *lines])]


def test_hypervisors_hang_on_a_core_and_on_the_control_network(kernel):
    one = fabric.Fabric('abc123')
    one.build(beds.Bed({'h0': 8e6}))
    assert one.hypervisors == {'h0': fabric.Hypervisor(
        'h0', H0, '10.0.0.1', '172.30.1.1')}
    assert (one.core, one.control, one.control_address) == (
        CORE, CONTROL, '172.30.0.1')
    assert kernel.story == [
        *_made(CORE, 'link add fabric0 up type bridge'),
        *_made(CONTROL, 'link add mgmt0 up type bridge',
               'address add 172.30.0.1/16 dev mgmt0'),
        *_made(H0, 'link add br-int up type bridge',
               'address add 10.0.0.1/8 dev br-int'),
        (CORE, 'ip', [
            'link add h0 up master fabric0 type veth peer name uplink0 netns '
            f'{H0}', 'link add ifb-h0 up type ifb']),
        (CORE, 'tc', fabric.shaping.limit_commands('h0', 8e6)),
        (CONTROL, 'ip', [
            'link add h0 up master mgmt0 type veth peer name mgmt0 netns '
            f'{H0}']),
        (H0, 'ip', ['link set uplink0 up master br-int', 'link set mgmt0 up',
                    'address add 172.30.1.1/16 dev mgmt0'])]


def test_cables_have_the_buckets_and_super_packets_of_the_bed(kernel):
    fabric.Fabric('abc123').build(beds.Bed(
        {'h0': 8e6}, bucket_bytes=7000, segments=2))
    assert (CORE, 'tc', fabric.shaping.limit_commands(
        'h0', 8e6, burst_bytes=7000)) in kernel.story
    assert kernel.story[-1] == (H0, 'ip', [
        'link set br-int gso_max_segs 2', 'link set uplink0 gso_max_segs 2'])


def test_short_queues_are_at_both_ends_of_a_cable(kernel):
    fabric.Fabric('abc123').build(beds.Bed({'h0': 8e6}, queue_s=0.05))
    shaped = [(there, lines) for there, *_, lines in kernel.story
              if 'tbf' in str(lines)]
    assert shaped == [
        (there, [fabric.shaping.bucket_command(dev, 8e6, 0.05)])
        for there, dev in ((CORE, 'h0'), (H0, 'uplink0'))]
    assert 'htb' not in str(kernel.story)


def test_pairs_have_classes_of_their_own_whose_rates_change(kernel):
    one = fabric.Fabric('abc123')
    one.build(beds.Bed(dict.fromkeys(('h0', 'h1'), 8e6), pairs_bps={
        ('h0', 'h1'): 8e6, ('h1', 'h0'): 2e6}))
    assert kernel.story[-1] == (CORE, 'tc', [
        line for dev, minor, address, rate in (
            ('ifb-h0', '1:21', '10.0.0.2', 8_000_000),
            ('ifb-h1', '1:20', '10.0.0.1', 2_000_000))
        for line in (
            f'class add dev {dev} parent 1:9 classid {minor} htb rate '
            f'{rate}bit ceil {rate}bit burst 6000 cburst 6000 quantum 3000 '
            'prio 1',
            f'qdisc add dev {dev} parent {minor} bfifo limit 4194304',
            f'filter add dev {dev} parent 1: protocol ip prio 60000 u32 '
            f'match ip dst {address}/32 flowid {minor}')])
    # A class has a rate above nothing; what is under way goes on.
    one.set_pair_rates({('h0', 'h1'): 0.2, ('h1', 'h0'): 1.5e6})
    assert kernel.story[-1] == (CORE, 'tc', [
        f'class change dev {dev} parent 1:9 classid {minor} htb rate '
        f'{rate}bit ceil {rate}bit burst 6000 cburst 6000 quantum 3000 prio 1'
        for dev, minor, rate in (('ifb-h0', '1:21', 1),
                                 ('ifb-h1', '1:20', 1_500_000))])


def _shaped(verb, dev, rate):
    return (f'qdisc {verb} dev {dev} root tbf rate {rate}bit burst 16384 '
            'limit 1048576')


def test_each_switch_hangs_below_the_one_above(kernel):
    one = fabric.Fabric('abc123')
    one.build(beds.Bed({}, tree.Plane(roots=(tree.Node(
        'pod', ('h9',), (tree.Node('rack0', ('h0', 'h1'),
                                   uplink=tree.Uplink(1e6, 2e6)),),
        tree.Uplink(3e6, 4e6)),))))
    # What leaves by the lower end goes up, by the upper end down.
    assert kernel.story[-4:] == [
        batch for name, above, hosts, up, down in (
            ('pod', 'fabric0', ['h9'], 3_000_000, 4_000_000),
            ('rack0', 'pod', ['h0', 'h1'], 1_000_000, 2_000_000))
        for batch in ((CORE, 'ip', [
            f'link add {name} up type bridge',
            f'link add {name}-up up master {name} type veth peer name '
            f'{name}-down',
            f'link set {name}-down master {above} up',
            *(f'link set {host} master {name}' for host in hosts)]),
            (CORE, 'tc', [_shaped('add', f'{name}-up', up),
                          _shaped('add', f'{name}-down', down)]))]
    kernel.story.clear()
    one.set_switch_uplink('rack0', tree.Uplink(5e6, 6e6))
    assert kernel.story == [(CORE, 'tc', [
        _shaped('replace', 'rack0-up', 5_000_000),
        _shaped('replace', 'rack0-down', 6_000_000)])]


@pytest.mark.parametrize(('name', 'is_fine'), [('a' * 10, True),
                                               ('a' * 11, False)])
def test_devices_have_short_names(kernel, name, is_fine):
    bed = beds.Bed({}, tree.Plane(roots=(tree.Node(
        name, ('h0',), uplink=tree.Uplink(1e6, 1e6)),)))
    if is_fine:
        fabric.Fabric('abc123').build(bed)
    else:
        with pytest.raises(AssertionError):
            fabric.Fabric('abc123').build(bed)


def test_bytes_of_switches_are_counted_both_ways(kernel, monkeypatch):
    asked = []

    def output(argv):
        asked.append(argv)
        return json.dumps([
            {'ifname': name, 'stats64': {'tx': {'bytes': sent}}}
            for name, sent in (('rack0-up', 1), ('rack0-down', 20),
                               ('rack1-up', 300), ('r0v0', 4000),
                               ('rack0', 50_000), ('fabric0', 600_000))])

    monkeypatch.setattr(fabric.subprocess, 'check_output', output)
    assert fabric.Fabric('abc123').switches_bytes() == 321
    assert asked == [['ip', '-n', CORE, '-s', '-j', 'link']]


@pytest.fixture(name='built')
def _built(kernel):
    one = fabric.Fabric('abc123')
    one.build(beds.Bed(dict.fromkeys(('h0', 'h1'), 8e6)))
    assert one.hypervisors['h1'].address == '10.0.0.2'
    assert one.hypervisors['h1'].mgmt_address == '172.30.1.2'
    kernel.story.clear()
    return one


def test_a_vm_has_a_port_on_its_hosts_switch(kernel, built):
    built.add_vm('first', 'h0')
    kernel.story.clear()
    vm = '01234567-89ab-cdef'
    port = built.add_vm(vm, 'h1')
    there = 'virtco-emu-abc123-vm1'
    assert port == fabric.VmPort(vm, 'h1', there, 'tap01234567-89',
                                 '0a:76:74:00:00:01', '10.1.0.2')
    assert built.vms[vm] is port
    assert kernel.story == [
        *_made(there),
        (H1, 'ip', [
            'link add tap01234567-89 up master br-int type veth peer name '
            f'eth0 address 0a:76:74:00:00:01 netns {there}']),
        (there, 'ip', [
            'link set eth0 up', 'address add 10.1.0.2/8 dev eth0',
            'route replace 10.0.0.0/8 dev eth0 scope link src 10.1.0.2 '
            'rto_min 3000ms']),
        (there, '<lambda>')]
    assert kernel.retrans.read_text() == '0'


def test_a_vm_goes_with_its_port(kernel, built):
    port = built.add_vm('v', 'h0')
    kernel.story.clear()
    built.remove_vm('v')
    assert kernel.story == [(H0, 'ip', ['link delete tapv']),
                            (port.namespace, 'removed')]
    assert not built.vms
    # No number is given twice.
    assert built.add_vm('w', 'h0').namespace.endswith('vm1')


def test_vms_are_told_each_others_hardware_addresses(kernel, built):
    one, other, third = (built.add_vm(name, 'h0') for name in 'abc')
    kernel.story.clear()
    built.introduce([(one, other), (one, third)])
    assert {(there, line) for there, _, lines in kernel.story
            for line in lines} == {
        (port.namespace, f'neighbour replace {peer.address} lladdr '
                         f'{peer.mac} dev eth0 nud permanent')
        for port, peer in ((one, other), (other, one), (one, third),
                           (third, one))}
    assert {program for _, program, _ in kernel.story} == {'ip'}


def test_what_a_cable_carries_is_changed_and_nobody_is_told(kernel, built):
    built.set_uplink_rate('h1', 4e6)
    built.clear_uplink('h0')
    assert kernel.story == [
        (CORE, 'tc', fabric.shaping.limit_commands('h1', 4e6, verb='change')),
        (H0, 'tc', ['qdisc del dev uplink0 root'])]
    with pytest.raises(exception.NotFound, match='h9'):
        built.set_uplink_rate('h9', 4e6)


def test_hardware_addresses_count_beyond_a_byte():
    assert [fabric._mac(number) for number in (0, 255, 256, 513)] == [
        '0a:76:74:00:00:00', '0a:76:74:00:00:ff', '0a:76:74:00:01:00',
        '0a:76:74:00:02:01']


def test_ipv6_is_off_where_there_is_any(monkeypatch, tmp_path):
    monkeypatch.setattr(fabric.pathlib, 'Path', lambda path: (
        tmp_path / path.rpartition('/conf/')[2]))
    (tmp_path / 'all').mkdir()
    switch = tmp_path / 'all' / 'disable_ipv6'
    _REAL_DISABLE_IPV6()
    assert not switch.exists()
    switch.write_text('0')
    _REAL_DISABLE_IPV6()
    assert switch.read_text() == '1'
