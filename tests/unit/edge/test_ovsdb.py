# SPDX-License-Identifier: Apache-2.0

"""Ports and QoS rows of Open vSwitch, in a replica of dictionaries."""

import contextlib
import threading
import types

import pytest

from edge_module.ports import kinds
from edge_module.ports import ovsdb
from edge_module.ports import port_source
from virtco import exception


def row(**values):
    return types.SimpleNamespace(**values)


def interface(name, type_='', **ids):
    return row(name=name, type=type_, external_ids={
        key.replace('_', '-'): value for key, value in ids.items()})


class Api:
    """Tables by name; it notes what transactions ask for."""

    def __init__(self, **tables):
        self.idl = types.SimpleNamespace(tables={
            name: types.SimpleNamespace(rows=dict(enumerate(rows)))
            for name, rows in tables.items()})
        self.asked, self.stopped = [], []
        self.ovsdb_connection = types.SimpleNamespace(
            lock=threading.RLock(), stop=self.stopped.append)

    @contextlib.contextmanager
    def transaction(self, check_error):
        assert check_error
        yield types.SimpleNamespace(add=self._add)

    def _add(self, command):
        self.asked.append(command)
        return 'made'

    def __getattr__(self, name):
        return lambda *args, **values: (name, *args, *values.items())


#: Type of a row for Open vSwitch alone.
OURS = 'ours'


def qos(kind):
    """A row of this type, or the edge module's own."""
    return row(type=ovsdb.NOOP if kind == OURS else kind, uuid='u',
               external_ids={'owner': 'virtco-edge'} if kind == OURS else {})


def database(**tables):
    found = ovsdb.OvsDb('unix:x')
    found._api = Api(**tables)
    return found


def bridge(*interfaces, **values):
    """With a port for each interface."""
    return row(**{'datapath_type': '', 'ports': [
        row(tag=[], other_config={}, external_ids={}, interfaces=[one])
        for one in interfaces], **values})


def with_uplink(*qos, datapath_type='', **mappings):
    """Of eth0 in br-ex.

    :param mappings: of OVN, by what they have in place of a hyphen.
    """
    # Of a bond.
    port = row(name='br-port', qos=list(qos),
               interfaces=[interface('eth8'), interface('eth0')])
    return database(
        Bridge=[row(name='br-int', datapath_type='netdev', ports=[row(
            name='p', interfaces=[interface('eth1')], qos=[])]),
                row(name='br-ex', ports=[port], datapath_type=datapath_type)],
        Open_vSwitch=[interface('', **{'system-id': 'h1', **mappings})])


@pytest.mark.parametrize('config, router, notes', [
    ({}, 'tap', ()), ({'hw-offload': 'true'}, 'tap', (kinds.OFFLOAD,)),
    ({'hw-offload': 'false'}, 'qr-1', (kinds.DVR,))])
def test_ports_are_those_that_nova_marked(config, router, notes):
    found = database(Open_vSwitch=[row(other_config=config)], Bridge=[
        bridge(interface('tap2', vm_uuid='b'), interface(router)),
        bridge(interface('tap1', vm_uuid='a',
                         attached_mac='fa:16:3e:00:00:01'))])
    assert [(port.vm, port.dev, port.mac, port.notes)
            for port in found.read()] == [
        ('a', 'tap1', 'fa:16:3e:00:00:01', notes), ('b', 'tap2', '', notes)]


def test_sub_ports_of_a_trunk_are_ports():
    """Each enters by the device of its VM, and has an address of its own."""
    first, second, other = (interface(f'tap{number}', vm_uuid=f'v{number}',
                                      attached_mac=f'm{number}0')
                            for number in (1, 2, 3))
    ends = [interface(name, 'patch', attached_mac=mac) for name, mac in (
        ('tpt-1', 'm10'), ('spt-2', 'm12'), ('spt-1', 'm11'))]
    whole = interface('spi-1', 'patch', attached_mac='m11')

    found = database(Open_vSwitch=[], Bridge=[
        bridge(first, *ends), bridge(second), bridge(other, whole)])
    assert [(port.vm, port.dev, port.mac) for port in found.read()] == [
        ('v1', 'tap1', 'm10'), ('v1', 'tap1', 'm11'), ('v1', 'tap1', 'm12'),
        ('v2', 'tap2', 'm20'), ('v3', 'tap3', 'm30')]


def _tagged(network_type='', tag=(), peer='', datapath_type='netdev',
            localnet=()):
    """Notes of tap1, in a bridge with another interface."""
    tap1 = interface('tap1', vm_uuid='a')
    ports = [row(tag=list(tag), interfaces=[tap1], external_ids={},
                 other_config={'network_type': network_type}
                 if network_type else {}),
        row(tag=[], interfaces=[interface('x', peer)], other_config={},
            external_ids={}),
        row(tag=[], interfaces=[], other_config={},
            external_ids=dict.fromkeys(localnet, 'provnet-1'))]
    (found,) = database(Open_vSwitch=[], Bridge=[bridge(
        ports=ports, datapath_type=datapath_type)]).read()
    return found.notes


@pytest.mark.parametrize('found, notes', [
    ({}, ()), ({'tag': [7]}, (kinds.TAGGED,)),
    ({'network_type': 'flat', 'tag': [7]}, ()),
    ({'network_type': 'vlan'}, (kinds.TAGGED,)),
    ({'peer': 'geneve'}, (kinds.TAGGED,)), ({'peer': 'patch'}, ()),
    ({'peer': 'geneve', 'localnet': ['ovn-localnet-port']}, ()),
    ({'tag': [7], 'localnet': ['ovn-localnet-port']}, (kinds.TAGGED,)),
    ({'tag': [7], 'datapath_type': ''}, ())])
def test_tags_and_tunnels_are_told_in_userspace(found, notes):
    assert _tagged(**found) == notes


def test_each_row_of_a_large_bridge_is_read_a_few_times():
    """The library decodes a column each time that it is asked for, and fills
    the replica anew under its lock.
    """
    reads = []

    class Port(types.SimpleNamespace):
        def __getattribute__(self, name):
            assert found._api.ovsdb_connection.lock._is_owned()
            reads.append(name)
            return super().__getattribute__(name)

    ports = [Port(tag=[], other_config={}, external_ids={},
                  interfaces=[interface(f'tap{number}', vm_uuid='a')])
             for number in range(100)]
    found = database(Open_vSwitch=[], Bridge=[bridge(ports=ports)])
    assert len(found.read()) == 100
    assert len(reads) <= 10 * len(ports)


def test_where_a_device_is():
    assert with_uplink().datapath_of('eth0') == 'system'
    assert with_uplink(datapath_type='netdev').datapath_of('eth0') == 'netdev'
    assert with_uplink().datapath_of('eth9') is None


def test_a_qdisc_is_left_alone_once_it_is_said():
    found = with_uplink()
    ovsdb.OvsGuard(found, 'eth0').ensure()
    assert found._api.asked == [
        ('db_create', 'QoS', ('type', ovsdb.NOOP),
         ('external_ids', {'owner': 'virtco-edge'})),
        ('db_set', 'Port', 'br-port', ('qos', 'made'))]
    for quiet, dev in ((with_uplink(qos(OURS)), 'eth0'),
                       (with_uplink(), 'eth9')):
        guard = ovsdb.OvsGuard(quiet, dev)
        guard.ensure()
        assert quiet._api.asked == [] and guard.sharer is None
    with pytest.raises(exception.QdiscConflict, match='linux-codel'):
        ovsdb.OvsGuard(with_uplink(qos('linux-codel')), 'eth0').ensure()


@pytest.mark.parametrize('of_ovn', [True, False])
@pytest.mark.parametrize('kind, is_shared', [
    (None, False), (OURS, False), (ovsdb.NOOP, True), (ovsdb.HTB, True)])
def test_who_may_shape_the_uplink_as_well(kind, is_shared, of_ovn):
    found = with_uplink(*([] if kind is None else [qos(kind)]))
    _, port = found.place_of('eth0')
    other, uplink = port.interfaces
    other.external_ids = {'ovn-egress-iface': str(not of_ovn).lower()}
    uplink.external_ids = {'ovn-egress-iface': str(of_ovn).lower()}
    guard = ovsdb.OvsGuard(found, 'eth0')
    guard.ensure()
    assert guard.sharer == ('OVN' if of_ovn else f'Open vSwitch (QoS {kind})'
                            if is_shared else None)
    assert bool(found._api.asked) == (kind is None)
    # Whoever begins or ends it is noticed.
    if kind is None:
        port.qos = [qos(OURS)]
    found.changes += 1
    assert not guard.was_lost()
    uplink.external_ids, port.qos = {}, [qos(
        OURS if is_shared or of_ovn else ovsdb.NOOP)]
    found.changes += 1
    assert guard.was_lost()


@pytest.mark.parametrize('kind', [None, OURS, ovsdb.NOOP, ovsdb.HTB])
def test_open_vswitch_is_reminded_of_its_own_row(kind):
    found = with_uplink(*([] if kind is None else [qos(kind)]))
    vars(found.rows('Open_vSwitch')[0]).update(uuid='o', next_cfg=7)
    for dev in 'eth0', 'eth9':
        guard = ovsdb.OvsGuard(found, dev)
        guard.remind()  # it knows of none yet
        guard.ensure()
        found._api.asked.clear()
        guard.remind()
        assert found._api.asked == [
            ('db_set', 'Open_vSwitch', 'o', ('next_cfg', 8))] * (
                kind == ovsdb.HTB and dev == 'eth0')


@pytest.mark.parametrize('mappings, is_ovns', [
    ({'ovn_bridge_mappings': 'p1:br-x,p2:br-ex'}, True),
    ({'ovn_bridge_mappings_h1': 'p2:br-ex'}, True),
    ({'ovn_bridge_mappings': 'br-ex:br-x'}, False)])
def test_ovn_writes_the_row_of_its_bridges(mappings, is_ovns):
    """With another's row, OVN since 23.06 makes no limit."""
    for rows, asked in (
            ([], []), ([qos(ovsdb.HTB)], []), ([qos(ovsdb.NOOP)], []),
            ([qos(OURS)], ['db_clear', 'db_destroy'])):
        found = with_uplink(*rows, **mappings)
        guard = ovsdb.OvsGuard(found, 'eth0')
        guard.ensure()
        if not is_ovns:
            asked = [] if rows else ['db_create', 'db_set']
        assert [command for command, *_ in found._api.asked] == asked
        if is_ovns:
            assert guard.sharer in (None, 'OVN')
        # It is not taken for a change by others.
        _, port = found.place_of('eth0')
        if asked:
            port.qos = [] if is_ovns else [qos(OURS)]
        found.changes += 1
        assert not guard.was_lost()
        found._api.idl.tables['Open_vSwitch'].rows[0].external_ids = {
            'ovn-bridge-mappings': '' if is_ovns else 'p:br-ex'}
        found.changes += 1
        assert guard.was_lost()


def test_only_the_own_row_is_taken_away():
    ours = row(type=ovsdb.NOOP, uuid='u', external_ids={
        'owner': 'virtco-edge'})
    found = with_uplink(ours)
    assert ovsdb.OvsGuard(found, 'eth0').remove()
    assert found._api.asked == [('db_clear', 'Port', 'br-port', 'qos'),
                                ('db_destroy', 'QoS', 'u')]
    other = row(type=ovsdb.NOOP, uuid='u', external_ids={})
    for found, dev in ((with_uplink(other), 'eth0'), (with_uplink(), 'eth0'),
                       (with_uplink(ours), 'eth9')):
        assert not ovsdb.OvsGuard(found, dev).remove()
        assert found._api.asked == []


def test_changes_are_counted_and_told(monkeypatch):
    found = database()
    replica = types.SimpleNamespace()
    helper = types.SimpleNamespace(register_columns=lambda *_: None)
    monkeypatch.setattr(ovsdb.idlutils, 'get_schema_helper',
                        lambda *_: helper)
    notify = ovsdb._Replica.notify
    monkeypatch.setattr(ovsdb, '_Replica', lambda *_: replica)
    monkeypatch.setattr(ovsdb.connection, 'Connection', lambda *_: None)
    monkeypatch.setattr(ovsdb, '_Api', lambda connection, start: (
        'api', connection, start))
    # Started by who takes it, and keeps what comes.
    assert found._new_api() == ('api', None, False)
    told = []
    found.notify(lambda: told.append(found.token()))
    notify(replica, 'update', None)
    assert told == [1] and found.token() == 1


def test_a_connection_that_fails_is_tried_again(monkeypatch):
    starts = []

    class Starting(Api):
        def start_connection(self, _connection):
            starts.append(self)
            if len(starts) == 1:
                raise TimeoutError('slow')

    found = ovsdb.OvsDb('unix:x')
    monkeypatch.setattr(found, '_new_api', lambda: Starting(Bridge=[]))
    with pytest.raises(exception.OvsUnavailable, match='slow'):
        found.datapath_of('eth0')
    assert found.datapath_of('eth0') is None
    # What came in time is kept.
    assert starts[0] is starts[1]
    found.datapath_of('eth0')
    assert len(starts) == 2
    found.close()
    found.close()
    assert starts[0].stopped == [5]


def test_the_guard_sees_what_another_wrote():
    found = with_uplink()
    guard = ovsdb.OvsGuard(found, 'eth0')
    found.changes = 1
    assert not guard.was_lost()
    guard.ensure()
    _, port = found.place_of('eth0')
    # What the guard wrote itself comes back later.
    assert not guard.was_lost()
    port.qos = [qos(OURS)]
    assert not guard.was_lost()
    found.changes = 2
    assert not guard.was_lost()
    found.changes, port.qos = 3, []
    assert guard.was_lost() and guard.was_lost()
    port.qos = [qos(OURS)]
    guard.ensure()
    found.changes = 4
    assert not guard.was_lost()


def test_ports_of_open_vswitch_are_those_of_a_switch():
    """Though their devices may have no master."""
    found = database(Open_vSwitch=[],
                     Bridge=[bridge(interface('lo', vm_uuid='a'))])
    ports = port_source.Ports(found, lambda: None)
    ports.read()
    assert [(port.dev, port.notes) for port in ports.ports] == [('lo', ())]
    found.is_switched = False
    ports.read()
    assert [port.notes for port in ports.ports] == [(kinds.ROUTED,)]
