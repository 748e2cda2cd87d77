# SPDX-License-Identifier: Apache-2.0

"""Limits of VMs' ports by the kernel's answers."""

import struct

import pytest

from edge_module.classify import classified as classify
from edge_module.ports import port_limits
from edge_module.ports import port_source
from edge_module.qdisc import wire


def message(kind, options, ifindex=5, handle=0, parent=wire.TC_H_ROOT):
    return wire.TCMSG.pack(0, ifindex, handle, parent, 0) + wire.attr(
        wire.KIND, kind + b'\0') + wire.attr(wire.OPTIONS, options)


def spec(rate_bps):
    return struct.pack('=BBHhHI', 0, 1, 0, -1, 0, int(rate_bps // 8))


def htb(handle, parent, rate_bps, ceil_bps, wide=()):
    """:param wide: rate and ceiling, in bytes/s, beyond 32 bits."""
    return message(b'htb', wire.attr(1, spec(rate_bps) + spec(
        ceil_bps) + bytes(20)) + b''.join(
            wire.attr(kind, struct.pack('=Q', each))
            for kind, each in zip((6, 7), wide)), handle=handle,
        parent=parent)


def police(rate_bps, wide=b''):
    return wire.attr(1, struct.pack('=IiIII', 1, 2, 3, 4, 5) + spec(
        rate_bps) + bytes(20)) + (wire.attr(8, wide) if wide else b'')


def action(name, options):
    return wire.attr(1, wire.attr(1, name + b'\0') + wire.attr(2, options))


@pytest.mark.parametrize('classes, expected_bps', [
    ([], None), ([message(b'qfq', b'')], None),
    # As libvirt: one class at the top, whose peak nobody lends.
    ([htb(0x10001, wire.TC_H_ROOT, 2e9, 4e9)], 2e9),
    # As Open vSwitch: a queue below the port's class.
    ([htb(0x1fffe, wire.TC_H_ROOT, 3e9, 3e9),
      htb(0x10001, 0x1fffe, 1e6, 2e9)], 2e9),
    ([htb(0x10001, 0x1fffe, 1e6, 4e9),
      htb(0x1fffe, wire.TC_H_ROOT, 3e9, 5e9)], 3e9),
    ([htb(0x10002, 0x1fffe, 1e6, 1e9), htb(0x10001, 0x1fffe, 1e6, 2e9),
      htb(0x1fffe, wire.TC_H_ROOT, 3e9, 3e9)], 2e9),
    ([htb(0x10001, wire.TC_H_ROOT, 2e9, 4e9, (10 ** 10, 10 ** 11))], 8e10),
    ([htb(0x1fffe, wire.TC_H_ROOT, 9e9, 9e9, (10 ** 11, 10 ** 11)),
      htb(0x10001, 0x1fffe, 1e6, 9e9, (10 ** 9, 10 ** 10))], 8e10)])
def test_what_an_htb_lets_through(classes, expected_bps):
    assert port_limits.htb_bps(classes) == expected_bps


@pytest.mark.parametrize('filters, expected_bps', [
    ([], None), ([message(b'flower', b'')], None),
    ([message(b'u32', wire.attr(6, police(2e9)))], 2e9),
    ([message(b'basic', wire.attr(4, police(2e9)))], 2e9),
    ([message(b'u32', wire.attr(7, action(b'police', police(2e9))))], 2e9),
    ([message(b'basic', wire.attr(3, action(b'police', police(1e9)))),
      message(b'matchall', wire.attr(2, action(b'police', police(2e9))))],
     1e9),
    ([message(b'u32', wire.attr(7, action(b'mirred', police(2e9))))], None),
    ([message(b'matchall', wire.attr(2, action(b'police', b'')))], None),
    ([message(b'matchall', wire.attr(2, action(b'police', police(
        2e9, struct.pack('=Q', 10 ** 10)))))], 8e10)])
def test_what_a_policer_lets_through(filters, expected_bps):
    assert port_limits.police_bps(filters) == expected_bps


def test_both_limits_of_each_device(monkeypatch):
    def dump(request):
        kind, _, body = request
        _, ifindex, _, parent, _ = wire.TCMSG.unpack_from(body)
        if kind == wire.RTM_GETQDISC:
            return [
                message(b'htb', b'', 5, 0x10000),
                message(b'ingress', b'', 5, wire.INGRESS_HANDLE, 0xfffffff1),
                message(b'tbf', wire.attr(1, spec(3e9) + bytes(24)), 6),
                message(b'tbf', wire.attr(1, spec(3e9) + bytes(24))
                        + wire.attr(4, struct.pack('=Q', 10 ** 10)), 9),
                message(b'fq_codel', b'', 7),
                message(b'fq_codel', b'', 5, 0x20000, 0x10001),
                message(b'htb', b'', 8, 0x10000)]
        assert ifindex == 5
        if kind == wire.RTM_GETTCLASS:
            return [htb(0x10001, wire.TC_H_ROOT, 2e9, 2e9)]
        assert (kind, parent) == (wire.RTM_GETTFILTER, wire.INGRESS_HANDLE)
        return [message(b'u32', wire.attr(6, police(1e9)))]

    monkeypatch.setattr(port_limits.kernel, 'tc_dump', dump)
    assert port_limits.read({5, 6, 7, 9}) == {
        5: (1e9, 2e9), 6: (None, 3e9), 9: (None, 8e10)}


def test_a_refusal_leaves_the_ports_without_limits(monkeypatch, caplog):
    def refuse(request):
        raise OSError(1, 'no')

    port = classify.VmPort('a', 'lo')
    assert port_source.with_devices([port])[0].caps_bps == (None, None)
    monkeypatch.setattr(port_limits, 'read', refuse)
    assert port_source.with_devices([port])[0].ifindex == 1
    assert 'Limits of ports cannot be read' in caplog.text
