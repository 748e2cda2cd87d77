# SPDX-License-Identifier: Apache-2.0

"""The emulated network: which links are made where, by a netlink that only
notes it.
"""

import contextlib
import types

import pytest

from virtco import exception
from virtco_lab.emulation import fabric

CORE, CONTROL = 'virtco-emu-abc123-core', 'virtco-emu-abc123-control'
H0, H1 = 'virtco-emu-abc123-h0', 'virtco-emu-abc123-h1'


class Netlink:
    """Of one namespace."""

    def __init__(self, kernel, namespace):
        self._kernel, self._namespace = kernel, namespace
        self.is_closed = False

    def _say(self, *words):
        self._kernel.story.append((self._namespace, *words))

    def _names(self):
        return self._kernel.links.setdefault(self._namespace, {'lo': 1})

    def link(self, verb, **given):
        if verb == 'add':
            self._add(self._names(), given['ifname'])
            peer = dict(given.get('peer', {}))
            if peer:
                self._add(self._kernel.links.setdefault(
                    peer['net_ns_fd'], {'lo': 1}), peer['ifname'])
            self._say('add', given['kind'], given['ifname'], *(
                f'{name}={value}' for name, value in sorted(peer.items())))
            return
        names = {number: name for name, number in self._names().items()}
        words = [f'{name}={names[value] if name == "master" else value}'
                 for name, value in sorted(given.items()) if name != 'index']
        self._say(verb, names[given['index']], *words)
        if verb == 'del':
            del self._names()[names[given['index']]]

    @staticmethod
    def _add(names, name):
        names[name] = len(names) + 1

    def link_lookup(self, ifname):
        found = self._names().get(ifname)
        return [found] if found else []

    def addr(self, verb, index, address, prefixlen):
        names = {number: name for name, number in self._names().items()}
        self._say('address', verb, names[index], f'{address}/{prefixlen}')

    def route(self, verb, **given):
        self._say('route', verb, given)

    def neigh(self, verb, **given):
        self._say('neighbour', verb, given)

    def close(self):
        assert not self.is_closed
        self.is_closed = True


@pytest.fixture(name='kernel')
def _kernel(monkeypatch, tmp_path):
    made = types.SimpleNamespace(story=[], links={}, opened=[], limits=[],
                                 retrans=tmp_path / 'early_retrans')

    def netlink(namespace):
        made.opened.append(Netlink(made, namespace))
        return contextlib.nullcontext(made.opened[-1]) if (
            made.links.get(namespace, {}).get('eth0')
            and made.is_up) else made.opened[-1]

    made.is_up = False
    monkeypatch.setattr(fabric.namespaces, 'create', lambda name: (
        made.story.append((name, 'created'))))
    monkeypatch.setattr(fabric.namespaces, 'remove', lambda name: (
        made.story.append((name, 'removed'))))
    monkeypatch.setattr(fabric.namespaces, 'netlink', netlink)
    monkeypatch.setattr(fabric.namespaces, 'call', lambda name, function: (
        made.story.append((name, function.__name__)), function())[1])
    monkeypatch.setattr(fabric, '_disable_ipv6', _disable_ipv6)
    monkeypatch.setattr(fabric, '_EARLY_RETRANS', made.retrans)
    monkeypatch.setattr(fabric.shaping, 'run_batch', lambda *words: (
        made.limits.append(words)))
    return made


_REAL_DISABLE_IPV6 = fabric._disable_ipv6


def _disable_ipv6():
    pass


def _made(name):
    return [(name, 'created'), (name, '_disable_ipv6'),
            (name, 'set', 'lo', 'state=up')]


def test_hypervisors_hang_on_a_core_and_on_the_control_network(kernel):
    with fabric.Fabric('abc123') as one:
        one.build({'h0': 8e6})
        assert one.hypervisors == {'h0': fabric.Hypervisor(
            'h0', H0, '10.0.0.1', '172.30.1.1')}
        assert (one.core, one.control, one.control_address) == (
            CORE, CONTROL, '172.30.0.1')
    assert kernel.story == [
        *_made(CORE), (CORE, 'add', 'bridge', 'fabric0'),
        (CORE, 'set', 'fabric0', 'state=up'),
        *_made(CONTROL), (CONTROL, 'add', 'bridge', 'mgmt0'),
        (CONTROL, 'address', 'add', 'mgmt0', '172.30.0.1/16'),
        (CONTROL, 'set', 'mgmt0', 'state=up'),
        *_made(H0),
        (CORE, 'add', 'veth', 'h0', 'ifname=uplink0', f'net_ns_fd={H0}'),
        (CORE, 'set', 'h0', 'master=fabric0', 'state=up'),
        (CORE, 'add', 'ifb', 'ifb-h0'), (CORE, 'set', 'ifb-h0', 'state=up'),
        (H0, 'add', 'bridge', 'br-int'),
        (H0, 'address', 'add', 'br-int', '10.0.0.1/8'),
        (H0, 'set', 'br-int', 'state=up'),
        (H0, 'set', 'uplink0', 'master=br-int', 'state=up'),
        (CONTROL, 'add', 'veth', 'h0', 'ifname=mgmt0', f'net_ns_fd={H0}'),
        (CONTROL, 'set', 'h0', 'master=mgmt0', 'state=up'),
        (H0, 'address', 'add', 'mgmt0', '172.30.1.1/16'),
        (H0, 'set', 'mgmt0', 'state=up')]
    assert kernel.limits == [
        (CORE, fabric.shaping.limit_commands('h0', 8e6))]
    assert all(netlink.is_closed for netlink in kernel.opened)
    one.close()


@pytest.fixture(name='built')
def _built(kernel):
    one = fabric.Fabric('abc123')
    one.build(dict.fromkeys(('h0', 'h1'), 8e6))
    assert one.hypervisors['h1'].address == '10.0.0.2'
    assert one.hypervisors['h1'].mgmt_address == '172.30.1.2'
    kernel.story.clear()
    kernel.limits.clear()
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
        (H1, 'add', 'veth', 'tap01234567-89', 'address=0a:76:74:00:00:01',
         'ifname=eth0', f'net_ns_fd={there}'),
        (there, 'address', 'add', 'eth0', '10.1.0.2/8'),
        (there, 'set', 'eth0', 'state=up'),
        (there, 'route', 'replace', {
            'dst': '10.0.0.0/8', 'oif': 2, 'scope': 253,
            'prefsrc': '10.1.0.2', 'metrics': {'lock': 1 << 13,
                                               'rto_min': 3000}}),
        (there, '<lambda>'),
        (H1, 'set', 'tap01234567-89', 'master=br-int', 'state=up')]
    assert kernel.retrans.read_text() == '0'
    assert kernel.opened[-1].is_closed


def test_a_vm_goes_with_its_port(kernel, built):
    port = built.add_vm('v', 'h0')
    kernel.story.clear()
    built.remove_vm('v')
    assert kernel.story == [(H0, 'del', 'tapv'), (port.namespace, 'removed')]
    assert not built.vms
    # No number is given twice.
    assert built.add_vm('w', 'h0').namespace.endswith('vm1')


def test_vms_are_told_each_others_hardware_addresses(kernel, built):
    one, other, third = (built.add_vm(name, 'h0') for name in 'abc')
    kernel.story.clear()
    kernel.is_up = True
    built.introduce([(one, other), (one, third)])
    told = {(there, given['dst'], given['lladdr'])
            for there, _, _, given in kernel.story}
    assert told == {(port.namespace, peer.address, peer.mac)
                    for port, peer in ((one, other), (other, one),
                                       (one, third), (third, one))}
    assert {(verb, given['ifindex'], given['state'])
            for _, _, verb, given in kernel.story} == {
                ('replace', 2, fabric.ndmsg.states['permanent'])}


def test_what_a_cable_carries_is_changed_and_nobody_is_told(kernel, built):
    built.set_uplink_rate('h1', 4e6)
    built.clear_uplink('h0')
    assert kernel.limits == [
        (CORE, fabric.shaping.limit_commands('h1', 4e6, verb='change')),
        (H0, ['qdisc del dev uplink0 root'])]
    with pytest.raises(exception.NotFound, match='h9'):
        built.set_uplink_rate('h9', 4e6)


def test_an_interface_that_is_not_there_is_named(kernel, built):
    with pytest.raises(exception.NotFound, match='eth7'):
        built._up(H0, 'eth7')


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
