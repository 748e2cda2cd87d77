# SPDX-License-Identifier: Apache-2.0

"""Binding of flows to ports."""


from msgspec import structs

from edge_module.classify import classified as base
from tests.unit.edge import test_tcplan
from virtco.wire import edge_policy


def flow(vm='v1', src='10.0.0.1', dst='10.0.0.2', minor=17, port=None):
    return edge_policy.FlowEntry('c1', vm, src, dst, minor, port)


def build(flows, ports, **policy):
    return base.build_table(structs.replace(
        test_tcplan.policy([]), flows=tuple(flows), **policy), ports)


def port(vm='v1', dev='tap1', ifindex=5, ips=('10.0.0.1',)):
    return base.VmPort(vm, dev, ifindex, '', ips)


def test_flow_belongs_to_the_port_with_its_address():
    table = build(
        [flow()], [port(), port(dev='tap2', ifindex=6, ips=('10.9.0.1',))])
    assert table.entries == {base.Entry(5, '10.0.0.1', '10.0.0.2'): 17}
    assert table.hooks == {('tap1', 5), ('tap2', 6)}


def test_ports_without_addresses_may_all_send():
    table = build([flow()], [
        port(ips=()), port(dev='tap2', ifindex=6, ips=())])
    assert {entry.ifindex for entry in table.entries} == {5, 6}


def test_flows_and_ports_that_are_not_here_wait():
    table = build([flow(vm='v9')], [port(), port(
        dev='tap7', ifindex=0)])
    assert not table.entries and table.hooks == {('tap1', 5)}


def test_a_port_of_which_only_the_name_is_known_is_not_here():
    assert not base.VmPort('v1', 'tap1').is_here
    assert base.VmPort('v1', 'tap1', 1).is_here


def test_equal_addresses_of_two_tenants_do_not_meet():
    table = build(
        [flow(), flow(vm='v2', minor=18)],
        [port(), port(vm='v2', dev='tap2', ifindex=6)])
    assert table.entries[base.Entry(5, '10.0.0.1', '10.0.0.2')] == 17
    assert table.entries[base.Entry(6, '10.0.0.1', '10.0.0.2')] == 18


def test_an_address_pair_counts_for_the_flows_vm_alone():
    """Two VMs may send from an address by turns, and have a port each."""
    shared = ('10.0.0.1', '10.0.0.100', 'fd00::1')
    table = build([flow(src='10.0.0.100'), flow(src='fd00::1', dst='fd00::2')],
                  [port(ips=shared), port(dev='tap3', ifindex=7),
                   port('v2', 'tap2', 6, ('10.0.0.3', '10.0.0.100'))])
    assert table.entries == {
        base.Entry(5, '10.0.0.100', '10.0.0.2'): 17,
        base.Entry(5, 'fd00::1', 'fd00::2'): 17}


def test_sub_ports_of_a_device_are_one_hook():
    table = build([flow(), flow(src='10.0.5.1')], [
        base.VmPort('v1', 'tap1', 5, mac) for mac in ('m1', 'm2')])
    assert table.hooks == {('tap1', 5)} and len(table.entries) == 2


def test_first_of_equal_flows_wins():
    table = build([flow(), flow(minor=18)], [port()])
    assert list(table.entries.values()) == [17]


def test_device_names_that_are_commands_are_left_out():
    table = build([flow()], [port(dev='a"; flush')])
    assert not table.hooks and not table.entries


def test_an_entry_of_a_port_says_which_and_others_say_none():
    """What is only counted stays in its port's class."""
    table = build([flow(port=80), flow(minor=edge_policy.DEFAULT_MINOR)],
                  [port()], classes=(test_tcplan.coflow(16, 1e6, (3.0, 1.0)),))
    assert table.entries == {
        base.Entry(5, '10.0.0.1', '10.0.0.2', 80): 17,
        base.Entry(5, '10.0.0.1', '10.0.0.2', 0): 0x7005}
    assert table.maps == {'control': {base.MapKey(5): 0x9005}, 'home': {}}


def test_the_host_is_told_by_its_addresses_at_each_uplink():
    """Tunnels have none; unknown ports are limited at each."""
    home = {base.Exit('eth1', 3, True): ['m1', 'm2'],
            base.Exit('eth2', 4, True): ['m1'],
            base.Exit('vxlan0', 5, True): []}
    table = base.build_table(structs.replace(
        test_tcplan.policy([]), unmanaged=edge_policy.Unmanaged(1e6, ('m0',))),
        [], home)
    assert table.uplinks == home.keys() and not table.hooks
    assert table.maps['home'] == dict.fromkeys(
        [base.MapKey(3, 'm1'), base.MapKey(3, 'm2'), base.MapKey(4, 'm1')], 2)
    assert table.maps['to'] == {base.MapKey(0, 'm0'): 0xc000}
    assert table.maps['others'] == {
        base.MapKey(ifindex): 0xc0fe for ifindex in (3, 4, 5)}


def test_limits_are_by_destination_and_others_by_port():
    """Addresses at no limited host share the slot 0 with all others."""
    table = build([], [port(), port(vm='v2', dev='tap2', ifindex=6)],
                  unmanaged=edge_policy.Unmanaged(1e6, ('m0',), (
                      edge_policy.DestinationLimit('h3', 2, 1e6, ('m2',)),)))
    assert table.maps['to'] == {
        base.MapKey(0, 'm0'): 0xc000, base.MapKey(0, 'm2'): 0xc200}
    assert table.maps['others'] == {
        base.MapKey(5): 0xc005, base.MapKey(6): 0xc006}


def test_receivers_are_of_classes_where_there_are_limits(monkeypatch):
    first, second, third = (edge_policy.Destination(
        f'h{minor}', minor, 0.5, 1e6, 1e6, macs)
        for minor, macs in ((18, ('m1', 'm2')), (17, ('m1',)), (19, ())))
    coflow = structs.replace(test_tcplan.coflow(16, 1e6),
                             destinations=(first, second, third))
    limits = {'unmanaged': edge_policy.Unmanaged(1e6)}
    known = {base.MapKey(17, 'm1'): 17, base.MapKey(17, base.ANY): 17}
    assert build([], [port()], classes=(coflow,), **limits).maps['peer'] == {
        **known, **dict.fromkeys((base.MapKey(18, 'm1'), base.MapKey(18, 'm2'),
                                  base.MapKey(18, base.ANY)), 18)}
    assert 'peer' not in build([], [port()], classes=(coflow,)).maps
    # All of a class or none, and always the same ones.
    monkeypatch.setattr(base, 'MOST_PEERS', 4)
    assert build([], [port()], classes=(coflow,), **limits
                 ).maps['peer'] == known


def test_addresses_are_compared_in_one_form():
    assert base.address('FD00:0::1') == 'fd00::1'
    assert base.address('10.0.0.1') == '10.0.0.1'
