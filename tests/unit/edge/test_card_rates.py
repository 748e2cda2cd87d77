# SPDX-License-Identifier: Apache-2.0

"""Rates of virtual functions at a card without representors."""

import errno
import struct

from msgspec import structs
import pytest

from edge_module import virtual_functions
from edge_module.classify import classified as classify
from edge_module.privileged import operations
from edge_module.qdisc import vf_link
from edge_module.qdisc import wire
from edge_module.tcplan import shape
from edge_module.tcplan import vf_rates
from tests.unit.edge import test_tcplan
from virtco.wire import edge_policy

LINK_BPS = 1e9
FLOW = edge_policy.FlowEntry('c16', 'v1', '10.0.0.1', '10.0.0.2', 0x11)
POLICY = structs.replace(test_tcplan.policy(
    [test_tcplan.coflow(0x10, 200e6, ceil_bps=300e6)], 20e6, LINK_BPS),
    flows=(FLOW,))
MACS = 'fa:16:3e:00:00:01', 'fa:16:3e:00:00:02', '00:00:00:00:00:00'
PORT = classify.VmPort('v1', 'vf0', mac=MACS[0].upper())
OTHER = classify.VmPort('v2', 'vf1', mac=MACS[1])
UP = 7


class Card:
    """A card with three functions.

    :ivar refuses: what it does not take, ``share`` or ``all``.
    """

    def __init__(self):
        self.rates = [vf_rates.Rate() for _ in MACS]
        self.refuses, self.changes = '', 0

    def read(self, dev):
        return [(mac, name(number), vf_link.rate_of(*rate[:2]))
                for number, (mac, rate) in enumerate(zip(MACS, self.rates))
                ] if dev == 'up1' else []

    def tc_dump(self, message):
        return []  # no card of devlink

    def tc_change(self, changes):
        (change,) = changes
        self.changes += 1
        step = change.step
        assert step.what == 'set' and step.name == name(step.name.port)
        if self.refuses == 'all' or self.refuses and step.share_mbps:
            return [errno.EOPNOTSUPP]
        self.rates[step.name.port] = vf_rates.Rate(step.share_mbps,
                                                   step.most_mbps)
        return []


def name(number):
    return vf_rates.Name('vf', str(UP), number)


@pytest.fixture
def card(monkeypatch):
    found = Card()
    monkeypatch.setattr(virtual_functions, 'read', found.read)
    return found


def test_a_function_without_a_rate_is_in_no_group():
    """With one, it is virtco's, whoever set it."""
    assert [vf_link.rate_of(*rate).is_others for rate in (
        (0, 0), (0, 5), (5, 0))] == [False] * 3
    assert vf_link.rate_of(0, 0) == vf_rates.Rate()


@pytest.fixture
def rates(card):
    return virtual_functions.VirtualFunctions(card, ['up0', 'up1'])


def tree(policy=POLICY, n_past=0):
    return lambda: shape.build_tree(policy, LINK_BPS, n_past=n_past)


def test_functions_have_the_rates_of_the_policy(card, rates):
    rates.ensure(tree(), POLICY, {}, [OTHER, PORT])
    assert card.rates == [(200, 345, 0), (0, 0, 0), (0, 0, 0)]
    assert rates.notes == {MACS[0]: virtual_functions.SET}
    # Nothing is set again without a cause.
    rates.ensure(tree(), POLICY, {}, [OTHER, PORT])
    assert card.changes == 1
    card.rates[1] = vf_rates.Rate(0, 7)
    rates.ensure(tree(), POLICY, {}, [OTHER, PORT])
    assert not any(card.rates[1])
    # After the time to live it may send at the rate of the link.
    rates.ensure(tree(n_past=1), POLICY, {}, [OTHER, PORT])
    assert card.rates[0].most_mbps == 0 and card.rates[0].share_mbps > 200
    rates.ensure(tree(), POLICY, {}, [OTHER])
    assert not any(map(any, card.rates)) and rates.notes == {}


@pytest.mark.parametrize('refuses, rate, note', [
    ('share', (0, 345, 0), virtual_functions.SET),
    ('all', (0, 0, 0), virtual_functions.REFUSED)])
def test_a_card_may_refuse_guarantees_or_all(card, rates, refuses, rate,
                                             note):
    card.refuses = refuses
    for _ in range(2):
        rates.ensure(tree(), POLICY, {}, [PORT])
        assert card.rates[0] == rate
        assert rates.notes[MACS[0]].startswith(note)
    assert card.changes == (2 if refuses == 'share' else 3)


def test_all_is_taken_back(card, rates):
    assert not rates.remove()
    rates.ensure(tree(), POLICY, {}, [PORT])
    assert rates.remove() and not any(map(any, card.rates))


def test_nothing_is_asked_of_devices_without_functions(card):
    found = virtual_functions.VirtualFunctions(card, ['up0'])
    found.ensure(None, POLICY, {}, [PORT])
    assert not card.changes


def nested(*parts):
    return b''.join(wire.attr(kind, value) for kind, value in parts)


def test_a_card_is_read():
    """As the kernel nests its answer; see ``struct ifla_vf_rate``."""
    kind, _, body = vf_link.request(UP)
    assert (kind, body) == (18, struct.pack(
        '=BxHiII', 0, 0, UP, 0, 0) + nested((29, struct.pack('=I', 9))))
    answer = wire.IFINFOMSG.pack(0, 1, UP, 0, 0) + nested(
        (3, b'up1\0'), (22, nested(*((1, nested(
            (1, struct.pack('=I', number) + bytes.fromhex(
                mac.replace(':', '')) + bytes(26)),
            (3, struct.pack('=II', number, 99)),
            (6, struct.pack('=III', number, 10 * number, 20))))
            for number, mac in enumerate(MACS)), (1, b''))))
    assert list(vf_link.read(answer)) == [
        (mac, name(number), vf_rates.Rate(10 * number, 20, 1))
        for number, mac in enumerate(MACS)]
    assert list(vf_link.read(wire.IFINFOMSG.pack(0, 1, UP, 0, 0))) == []


def test_a_rate_is_set():
    assert operations.SetRate(vf_rates.Step(
        'set', name(3), 40, 50)).message() == (
        19, 0, struct.pack('=BxHiII', 0, 0, UP, 0, 0) + nested((22, nested(
            (1, nested((6, struct.pack('=III', 3, 40, 50))))))))


def test_without_the_device_there_are_no_functions():
    assert virtual_functions.read('no-such-dev') == []
    assert virtual_functions.read('lo') == []
