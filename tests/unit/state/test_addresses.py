# SPDX-License-Identifier: Apache-2.0

"""Where VMs are, by the ports that hosts report."""

import math

from virtco.state import addresses
from virtco.wire import reports

#: Of a VM without caps.
FREE = (math.inf, math.inf)


def port(vm, *ips, **caps):
    return reports.Port(vm, ips=ips, **caps)


def test_ports_of_one_vm_are_joined():
    found = addresses.Addresses()
    assert found.learn('h0', [port('a', '1'), port('b', '2'),
                              port('a', '3', '4')]) == {'a', 'b'}
    assert found.of_vm == {'a': ('h0', ('1', '3', '4'), FREE, ()),
                           'b': ('h0', ('2',), FREE, ())}


def test_caps_of_a_vms_ports_add_up():
    found = addresses.Addresses()
    assert found.learn('h0', [
        port('a', egress_cap_bps=2e9, ingress_cap_bps=3e9),
        port('a', egress_cap_bps=1e9), port('b', '2')]) == {'a', 'b'}
    assert found.of_vm['a'] == ('h0', (), (3e9, math.inf), ())
    assert found.learn('h0', [port('a', egress_cap_bps=3e9),
                              port('b', '2', ingress_cap_bps=1e9)]) == {'b'}
    assert found.of_vm['b'] == ('h0', ('2',), (math.inf, 1e9), ())


def test_ethernet_addresses_are_told_where_all_are_known():
    def known(*macs):
        found = addresses.Addresses()
        found.learn('h0', [port('a', mac=mac) for mac in macs])
        return found.of_vm['a'][3]

    one, two = 'fa:16:3e:00:00:01', 'fa:16:3e:00:00:02'
    assert known(two, one.upper()) == (two, one)
    for macs in ('', one), (one, ''), (one, '', two), ('x',), (one, one[:-1]):
        assert known(*macs) == ()
    found = addresses.Addresses()
    for mac, changed in (one, {'a'}), (one, set()), (two, {'a'}):
        assert found.learn('h0', [port('a', mac=mac)]) == changed


def test_only_what_changed_is_told():
    found = addresses.Addresses()
    found.learn('h0', [port('a', '1'), port('b', '2')])
    assert found.learn('h0', [port('a', '1'), port('b', '2')]) == set()
    assert found.learn('h0', [port('a', '1'), port('b', '3')]) == {'b'}
    assert found.learn('h0', [port('b', '3')]) == {'a'}
    assert found.of_vm == {'b': ('h0', ('3',), FREE, ())}
    assert found.learn('h0', []) == {'b'}
    assert found.learn('h0', []) == set()


def test_a_vm_that_moved_is_where_it_was_told_last():
    found = addresses.Addresses()
    found.learn('h0', [port('a', '1'), port('b', '2')])
    assert found.learn('h1', [port('a', '1')]) == {'a'}
    # The host that it left tells later, or not at all.
    assert found.learn('h0', [port('b', '2')]) == set()
    assert found.of_vm == {'a': ('h1', ('1',), FREE, ()),
                           'b': ('h0', ('2',), FREE, ())}
    assert found.learn('h1', []) == {'a'}
    assert found.of_vm == {'b': ('h0', ('2',), FREE, ())}


def test_a_vm_that_moves_is_not_lost_by_the_host_that_it_leaves():
    found = addresses.Addresses()
    found.learn('h0', [port('a', '1')])
    found.learn('h1', [port('a', '1')])
    # Another one came there meanwhile.
    found.learn('h0', [port('a', '1'), port('b', '2')])
    assert found.of_vm['a'] == ('h1', ('1',), FREE, ())
    found.learn('h0', [port('a', '1', '7'), port('b', '2')])
    assert found.of_vm['a'] == ('h0', ('1', '7'), FREE, ())
    assert found.learn('h0', [port('b', '2')]) == {'a'}
    assert found.of_vm['a'] == ('h1', ('1',), FREE, ())
    assert found.learn('h1', []) == {'a'} and 'a' not in found.of_vm


def test_where_nova_has_a_vm_its_host_tells_of_it():
    """Not any other one, whose edge module may say what it likes."""
    found = addresses.Addresses()
    found.tell({'a': ()}, {'a': 'h0'})
    found.learn('h0', [port('a', '1')])
    assert found.learn('h9', [port('a', '6', egress_cap_bps=8)]) == set()
    assert found.of_vm == {'a': ('h0', ('1',), FREE, ())}
    assert found.vm_at('6') is None
    # It moved there after all.
    assert found.tell({'a': ()}, {'a': 'h9'}) == {'a'}
    assert found.of_vm['a'][:2] == ('h9', ('6',))
    # Of a host that says nothing, any other one tells.
    assert found.tell({'a': ()}, {'a': 'h5'}) == set()


def test_what_nova_tells_of_some_vms_leaves_the_others():
    found = addresses.Addresses()
    found.tell({'a': ('1',), 'b': ('2',), 'c': ('3',)}, {'a': 'h0'})
    found.learn('h0', [port('a'), port('b'), port('c')])
    assert found.tell({'a': ('1',), 'b': ('5',)}, {'a': 'h0', 'b': 'h0'},
                      {'a', 'b'}) == {'b'}
    assert found.tell({}, {}, {'a'}) == {'a'}
    assert {vm: known[1] for vm, known in found.of_vm.items()} == {
        'a': (), 'b': ('5',), 'c': ('3',)}
    # Nova does not have it there any more.
    assert found.learn('h9', [port('a', '6'), port('b', '7')]) == {'a'}
    assert found.of_vm['a'][0] == 'h9' and found.of_vm['b'][0] == 'h0'


def test_an_address_of_one_vm_alone_tells_which():
    found = addresses.Addresses()
    found.learn('h0', [port('a', '1', '5'), port('b', '2')])
    assert [found.vm_at(ip) for ip in '125'] == ['a', 'b', 'a']
    assert found.vm_at('9') is None
    # Another tenant uses the same.
    found.learn('h1', [port('c', '1')])
    assert found.vm_at('1') is None
    found.learn('h1', [])
    assert found.vm_at('1') == 'a'
    found.learn('h0', [port('a', '7')])
    assert [found.vm_at(ip) for ip in '1257'] == [None, None, None, 'a']


def test_what_nova_tells_counts_where_a_host_reports_no_address():
    found = addresses.Addresses()
    assert found.tell({'a': ('7', '8'), 'b': ('9',)}) == set()
    # Where a VM is, its host says.
    assert found.of_vm == {}
    assert found.learn('h0', [port('a'), port('b', '2')]) == {'a', 'b'}
    assert found.of_vm == {'a': ('h0', ('7', '8'), FREE, ()),
                           'b': ('h0', ('2',), FREE, ())}
    assert found.vm_at('8') == 'a' and found.vm_at('9') is None
    assert found.tell({'a': ('7',), 'b': ('6',)}) == {'a'}
    assert found.vm_at('8') is None
    assert found.learn('h0', [port('a'), port('b', '2')]) == set()
    assert found.tell({}) == {'a'}
    assert found.of_vm['a'] == ('h0', (), FREE, ())
    assert found.vm_at('7') is None
