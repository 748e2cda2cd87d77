# SPDX-License-Identifier: Apache-2.0

"""Which ports are not managed, as devices and switches tell it."""

import struct

import pytest

from edge_module.classify import classified
from edge_module.ports import kinds
from edge_module.ports import port_source
from edge_module.ports import static
from edge_module.privileged import devices
from edge_module.qdisc import wire


def _answer(*attributes):
    return bytes(16) + b''.join(wire.attr(*item) for item in attributes)


@pytest.mark.parametrize('attributes, is_switched, notes', [
    (((10, b'\2\0\0\0'),), False, ()),
    ((), True, ()),
    ((), False, (kinds.ROUTED,)),
    (((10, b'\2\0\0\0'), (38, b'pf0vf3\0')), False, (kinds.REPRESENTOR,)),
    (((38, b'c1pf0vf3\0'),), True, (kinds.REPRESENTOR,)),
    (((38, b'p0\0'),), True, ()),
    (((18, wire.attr(1, b'macvtap\0')),), False, (kinds.MACVTAP,)),
    (((18, wire.attr(1, b'tun\0')), (10, b'\2\0\0\0')), False, ())])
def test_what_a_device_tells(attributes, is_switched, notes):
    assert kinds.of_device('tap1', devices.read(_answer(*attributes))[1],
                           is_switched) == notes


@pytest.mark.parametrize('flags, is_up', [(0x1002, False), (0x1003, True)])
def test_a_device_may_be_down(flags, is_up):
    _, found = devices.read(wire.IFINFOMSG.pack(0, 1, 7, flags, 0))
    assert (found.ifindex, found.is_up) == (7, is_up)


def test_a_name_that_no_rule_may_have_is_told():
    _, found = devices.read(_answer((10, b'\2\0\0\0')))
    for dev in 'a";drop', 'täp1', '-tap', 'tap1\n':
        assert kinds.of_device(dev, found, True) == (kinds.ODD_NAME,)


def test_a_device_that_is_not_there_tells_nothing():
    there, away = port_source.with_devices(
        classified.VmPort('a', dev) for dev in ('lo', 'none such'))
    assert (there.ifindex, there.notes) == (1, (kinds.ROUTED,))
    assert (away.ifindex, away.notes) == (0, ())


@pytest.mark.parametrize('kind, data, is_tap', [
    (b'tun', b'\2', True), (b'tun', b'\1', False), (b'tap', b'\2', False)])
def test_a_tap_is_no_tunnel(kind, data, is_tap):
    _, found = devices.read(_answer((10, b'\2\0\0\0'), (18, wire.attr(
        1, kind + b'\0') + wire.attr(2, wire.attr(3, data)) + wire.attr(
            4, b'bridge\0'))))
    assert found == devices.Device(kind.decode(), '', True, 'bridge', is_tap)


def test_addresses_of_the_host_are_those_of_ethernet_devices(monkeypatch):
    """Not the loopback's, which is of zeros, a tunnel's of four bytes, nor
    that of a VM's tap. Tunnels of the host itself are no switch's.
    """
    tap = 18, wire.attr(1, b'tun\0') + wire.attr(2, wire.attr(3, b'\2'))
    monkeypatch.setattr(devices.kernel, 'tc_dump', lambda asked: [
        _answer((3, b'lo\0'), (1, bytes(6))),
        _answer((3, b'eth0\0'), (1, b'\x02\0\0\0\xab\1')),
        _answer((3, b'tun0\0'), (1, b'\x0a\0\0\1')), _answer(),
        _answer((3, b'tap0\0'), (1, b'\x02\0\0\0\xab\2'), tap),
        _answer((3, b'vx0\0'), (10, b'\2\0\0\0'), (18, wire.attr(
            1, b'vxlan\0') + wire.attr(4, b'bridge\0'))),
        _answer((3, b'vx1\0'), (18, wire.attr(1, b'vxlan\0')))])
    assert devices.of_host() == devices.OfHost(
        frozenset({'02:00:00:00:ab:01'}), frozenset({('vx0', 0, 'vxlan')}))


def test_a_device_is_asked_for_by_its_number(monkeypatch):
    asked = []

    def ask(message):
        asked.append(message)
        if len(asked) == 3:
            raise OSError
        return _answer((38, b'pf0vf3\0'), *((10, b'\2\0\0\0'),) * (
            len(asked) % 2), (18, wire.attr(4, b'bridge\0')))

    monkeypatch.setattr(devices.kernel, 'ask', ask)
    assert [devices.look('lo').is_port for _ in range(3)] == [
        True, False, False]
    assert devices.look('none such').port_name == 'pf0vf3'
    # RTM_GETLINK of rtnetlink.h.
    assert asked == [(18, 0, struct.pack('=BxHiII', 0, 0, index, 0, 0))
                     for index in (1, 1, 1, 0)]


def test_what_the_switch_tells():
    assert kinds.of_switch('', False, False, False) == ()
    assert kinds.of_switch('dpdkvhostuserclient', True, True, True) == (
        kinds.VHOST_USER, kinds.OFFLOAD, kinds.DVR, kinds.TAGGED)


@pytest.mark.parametrize('datapath, network_type, has_tag, has_tunnels, is_', [
    ('netdev', '', False, False, False), ('netdev', '', True, False, True),
    ('netdev', '', False, True, True), ('netdev', 'flat', True, True, False),
    ('netdev', 'local', True, False, False),
    ('netdev', 'vlan', False, False, True),
    ('netdev', 'vxlan', True, False, True), ('system', '', True, True, False),
    ('', 'vlan', True, True, False)])
def test_tags_hide_packets_in_the_userspace_datapath(
        datapath, network_type, has_tag, has_tunnels, is_):
    assert kinds.is_tagged(datapath, network_type, has_tag,
                           has_tunnels) is is_


def test_a_ports_file_names_types(tmp_path):
    path = tmp_path / 'ports.json'
    path.write_text('{"ports": [{"vm": "a", "dev": "t1", "vnic_type": '
                    '"direct"}, {"vm": "b", "dev": "t2", "vnic_type": '
                    '"normal"}, {"vm": "c", "dev": "t3"}]}')
    assert [port.notes for port in static.StaticPorts(str(path)).read()] == [
        (kinds.PASSED_THROUGH,), (), ()]


def test_a_port_that_makes_no_sense_is_left_out(tmp_path):
    path = tmp_path / 'ports.json'
    path.write_text('{"ports": [{"vm": "a"}, {"vm": "b", "dev": "t2"}, 7, '
                    '{"vm": "c", "dev": "t3", "ips": ["x"]}]}')
    source = static.StaticPorts(str(path))
    assert [port.dev for port in source.read()] == ['t2']
    for part in ('ports[0]: dev', 'ports[2]', 'ports[3]: ips'):
        assert part in source.complaint
    path.write_text('{"ports": [{"vm": "b", "dev": "t2"}]}')
    assert source.read() and source.complaint is None
