# SPDX-License-Identifier: Apache-2.0

"""Messages of devlink, as a simulated card of Linux 6.1 answers them."""

import struct

from hypothesis import given
from hypothesis import strategies as st
import pytest

from edge_module.qdisc import devlink
from edge_module.tcplan import vf_rates

# Numbers are those of the kernel's headers: genetlink.h and devlink.h.
BUS, CARD, PORT, IFINDEX, FLAVOUR = 1, 2, 3, 6, 77
SHARE, MOST, NODE, PARENT = 166, 167, 168, 169
SET, NEW, DEL = 75, 76, 77
PHYSICAL, PCI_VF = 0, 4
VF = vf_rates.Name('pci', '0000:03:00.0', 128)
GROUP = vf_rates.Name('pci', '0000:03:00.0', None, 0x1f)


#: Recorded on Linux 6.1 with netdevsim, two functions of which the first is in
#: the group virtco-10 with 10 to 300 Mbit/s; iproute2 6.1 had set that.
_CARD = ('0e0001006e657464657673696d000000'
         '0f0002006e657464657673696d370000')
PORTS = [bytes.fromhex(text.replace('CARD', _CARD)) for text in (
    '03010000CARD08000300000000000600040002000000080006000200000009000700'
    '6574683000000000050094000000000006004d000000000008004e0001000000',
    '03010000CARD08000300800000000600040002000000080006000300000009000700'
    '6574683100000000050094000000000006004d000400000008009600000000000600'
    '7f000000000006008000000000000500950000000000')]
RATES = [bytes.fromhex(text.replace('CARD', _CARD)) for text in (
    '4c010000CARD0600a500010000000a00a8006f746865720000000c00a60000000000'
    '000000000c00a7000000000000000000',
    '4c010000CARD0600a500010000000e00a80076697274636f2d31300000000c00a600'
    'd0121300000000000c00a70080f0fa0200000000',
    '4c010000CARD0600a5000000000008000300800000000c00a600d012130000000000'
    '0c00a70060343c02000000000e00a90076697274636f2d3130000000',
    '4c010000CARD0600a5000000000008000300810000000c00a6000000000000000000'
    '0c00a7000000000000000000')]
#: What iproute2 sent for it, without the header.
REQUEST = bytes.fromhex((
    'CARD08000300800000000c00a600d0121300000000000c00a70060343c0200000000'
    '0e00a90076697274636f2d3130000000').replace('CARD', _CARD))
SIMULATED = vf_rates.Name('netdevsim', 'netdevsim7', 128)


def test_a_simulated_card_is_read_as_recorded():
    assert list(map(devlink.read_function, PORTS)) == [None, (3, SIMULATED)]
    group = SIMULATED._replace(port=None)
    assert list(map(devlink.read_rate, RATES)) == [
        (group._replace(group=vf_rates.OTHERS), vf_rates.Rate()),
        (group._replace(group=0x10), vf_rates.Rate(10, 400)),
        (SIMULATED, vf_rates.Rate(10, 300, 0x10)),
        (SIMULATED._replace(port=129), vf_rates.Rate())]


def test_a_simulated_card_is_told_what_iproute2_tells_it():
    sent = [devlink.change(step)[2][4:] for step in vf_rates.steps(
        dict(map(devlink.read_rate, RATES[1:2])) | {
            SIMULATED: vf_rates.Rate()},
        {SIMULATED: vf_rates.Rate(10, 300, 0x10),
         SIMULATED._replace(port=None, group=0x10): vf_rates.Rate(10, 400)})]
    head = len(REQUEST) - 40  # bus, card and port
    join, rates = sent
    assert join[:head] == rates[:head] == REQUEST[:head]
    assert rates[head:] + join[head:] == REQUEST[head:]


def body(command, *attributes):
    """A message of (number, payload); text ends with a zero."""
    return struct.pack('=BBxx', command, 1) + b''.join(
        struct.pack('=HH', 4 + len(payload), kind) + payload
        + b'\0' * (-len(payload) % 4)
        for kind, payload in ((kind, value.encode() + b'\0' if isinstance(
            value, str) else value) for kind, value in attributes))


def named(name):
    label = 'other' if name.group == vf_rates.OTHERS else (
        f'virtco-{name.group:x}')
    return (BUS, name.bus), (CARD, name.card), (
        (NODE, label) if name.port is None
        else (PORT, struct.pack('=I', name.port)))


def port(name, ifindex, flavour=PCI_VF):
    """The kernel's answer about a port; 0 has no device."""
    index = ((IFINDEX, struct.pack('=I', ifindex)),) if ifindex else ()
    return body(7, *named(name), *index,
                (FLAVOUR, struct.pack('=H', flavour)))


def rate(name, value):
    """The kernel's answer about a rate."""
    parent = {0: (), vf_rates.OTHERS: ((PARENT, 'other'),)}.get(
        value.group, ((PARENT, f'virtco-{value.group:x}'),))
    return body(76, *named(name), (165, struct.pack('=H', 0)), *(
        (kind, struct.pack('=Q', mbps * 125_000))
        for kind, mbps in ((SHARE, value.share_mbps),
                           (MOST, value.most_mbps))), *parent)


def test_the_family_is_asked_for():
    # Of the controller, CTRL_CMD_GETFAMILY by its name.
    assert devlink.FAMILY == (16, 0, body(3, (2, 'devlink')))
    assert devlink.family(body(1, (2, 'devlink'), (
        1, struct.pack('=H', 0x123)))) == 0x123


def test_ports_and_rates_are_asked_for():
    assert devlink.request(devlink.PORT_GET) == (devlink.KIND, 0, body(5))
    assert devlink.request(devlink.RATE_GET, VF) == (
        devlink.KIND, 0, body(74, *named(VF)))
    assert devlink.request(devlink.RATE_GET, GROUP)[2] == body(
        74, (BUS, 'pci'), (CARD, '0000:03:00.0'), (NODE, 'virtco-1f'))


@pytest.mark.parametrize('step, command, attributes', [
    (vf_rates.Step('make', GROUP, 10, 0), NEW, (
        (SHARE, struct.pack('=Q', 1_250_000)), (MOST, bytes(8)))),
    (vf_rates.Step('set', GROUP, 10, 20), SET, (
        (SHARE, struct.pack('=Q', 1_250_000)),
        (MOST, struct.pack('=Q', 2_500_000)))),
    (vf_rates.Step('delete', GROUP), DEL, ()),
    (vf_rates.Step('set', VF, group=0x1f), SET, ((PARENT, 'virtco-1f'),)),
    (vf_rates.Step('set', VF, group=0), SET, ((PARENT, ''),)),
    (vf_rates.Step('set', VF, 0, 100_000), SET, (
        (SHARE, bytes(8)), (MOST, struct.pack('=Q', 12_500_000_000))))],
    ids=str)
def test_a_step_is_one_message(step, command, attributes):
    assert devlink.change(step) == (devlink.KIND, 0, body(
        command, *named(step.name), *attributes))


@given(st.sampled_from([VF, GROUP, GROUP._replace(group=0xffff),
                        GROUP._replace(group=vf_rates.OTHERS)]),
       st.builds(vf_rates.Rate, st.integers(0, 10 ** 8),
                 st.integers(0, 10 ** 8),
                 st.integers(vf_rates.OTHERS, 0xffff)))
def test_rates_read_back(name, value):
    assert devlink.read_rate(rate(name, value)) == (name, value)


def test_a_part_of_a_step_counts_as_a_rate():
    shown = body(76, *named(VF), (SHARE, struct.pack('=Q', 1)),
                 (MOST, struct.pack('=Q', 125_001)))
    assert devlink.read_rate(shown) == (VF, vf_rates.Rate(1, 2))


@pytest.mark.parametrize('label', [
    'virtco', 'virtco-', 'virtco-0', 'virtco-01', 'virtco-10000', 'virtco-g',
    'xvirtco-1', 'virtco-1x'])
def test_groups_of_other_names_are_others(label):
    shown = body(76, (BUS, 'pci'), (CARD, 'x'), (NODE, label),
                 (SHARE, bytes(8)), (MOST, bytes(8)), (PARENT, label))
    name, value = devlink.read_rate(shown)
    assert name.group == value.group == vf_rates.OTHERS


def test_functions_are_ports_of_a_virtual_function_with_a_device():
    assert devlink.read_function(port(VF, 7)) == (7, VF)
    assert devlink.read_function(port(VF, 7, PHYSICAL)) is None
    assert devlink.read_function(port(VF, 0)) is None
    assert devlink.read_function(body(7, *named(VF), (
        IFINDEX, struct.pack('=I', 7)))) is None
