# SPDX-License-Identifier: Apache-2.0

"""Where VMs are, by the ports that hosts report."""

from virtco.state import addresses
from virtco.wire import reports


def port(vm, *ips):
    return reports.Port(vm, ips=ips)


def test_ports_of_one_vm_are_joined():
    found = addresses.Addresses()
    assert found.learn('h0', [port('a', '1'), port('b', '2'),
                              port('a', '3', '4')]) == {'a', 'b'}
    assert found.of_vm == {'a': ('h0', ('1', '3', '4')), 'b': ('h0', ('2',))}


def test_only_what_changed_is_told():
    found = addresses.Addresses()
    found.learn('h0', [port('a', '1'), port('b', '2')])
    assert found.learn('h0', [port('a', '1'), port('b', '2')]) == set()
    assert found.learn('h0', [port('a', '1'), port('b', '3')]) == {'b'}
    assert found.learn('h0', [port('b', '3')]) == {'a'}
    assert found.of_vm == {'b': ('h0', ('3',))}
    assert found.learn('h0', []) == {'b'}
    assert found.learn('h0', []) == set()


def test_a_vm_that_moved_is_where_it_was_told_last():
    found = addresses.Addresses()
    found.learn('h0', [port('a', '1'), port('b', '2')])
    assert found.learn('h1', [port('a', '1')]) == {'a'}
    # The host that it left tells later, or not at all.
    assert found.learn('h0', [port('b', '2')]) == set()
    assert found.of_vm == {'a': ('h1', ('1',)), 'b': ('h0', ('2',))}
    assert found.learn('h1', []) == {'a'}


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
