# SPDX-License-Identifier: Apache-2.0

"""What the receiver's side asks of the kernel, and in which order."""

import errno

from msgspec import structs
import pytest

from edge_module.classify import classified as classify
from edge_module.privileged import devices as host_devices
from edge_module.privileged import operations
from edge_module.qdisc import receiver
from edge_module.qdisc import redirect
from edge_module.tcplan import minors
from tests.unit.edge import dictionaries
from tests.unit.edge import test_tcplan
from virtco import exception
from virtco.wire import edge_policy

PAIRS = tuple(edge_policy.ReceivedPair(f'10.0.0.{k}', '10.0.1.1', port)
              for k, port in ((1, 5201), (2, None)))


class Kernel:
    """Notes changes; its filters are those that were made.

    :ivar refuses: errno by kind of operation.
    :ivar down: devices that are not set up.
    """

    def __init__(self, devices):
        self.devices = devices
        self.asked, self.refuses, self.filters = [], {}, {7: [], 8: []}
        self.down = set()

    def tc_change(self, changes):
        self.asked += changes
        for one in changes:
            if isinstance(one, operations.AddIfb):
                self.devices[receiver.IFB_DEV] = one.ifindex or 8
                self.down.clear()
            elif isinstance(one, operations.Redirect | operations.MatchPair):
                self.filters[one.ifindex].append(one.message()[2])
            elif isinstance(one, operations.EndRedirect):
                self.filters[one.ifindex].clear()
        return [self.refuses[type(one)] for one in changes
                if type(one) in self.refuses]

    def tc_dump(self, message):
        return self.filters[7 if message == redirect.dump_redirects(7) else 8]


@pytest.fixture
def side(monkeypatch):
    devices = {'up1': 7}

    def nametoindex(name):
        if name not in devices:
            raise OSError
        return devices[name]

    monkeypatch.setattr(receiver.socket, 'if_nametoindex', nametoindex)
    found = receiver.Receiver(Kernel(devices), 'up1', 1e9)
    monkeypatch.setattr(
        receiver.devices, 'look', lambda dev: host_devices.Device(
            ifindex=devices.get(dev, 0),
            is_up=dev in devices and dev not in found.kernel.down))
    found.queue = dictionaries.Uplink(receiver.IFB_DEV)
    return found


def policy(received=()):
    return structs.replace(test_tcplan.policy([]), received=received)


def steps(side):
    """Kinds of the changes since the last call, in their order."""
    found = [type(one).__name__ for one in side.kernel.asked]
    side.kernel.asked.clear()
    return found


def test_packets_come_after_all_else_stands(side):
    side.ensure(policy(PAIRS))
    assert steps(side) == ['AddIfb', 'MatchPair', 'MatchPair', 'AddIngress',
                           'Redirect']
    assert side.queue.present
    assert side.queue.tree == side.desired_tree(policy())
    side.ensure(policy(PAIRS))
    assert steps(side) == []
    assert side.queue.asked.count('ensure_root') == 1


def test_a_device_that_was_set_down_is_set_up(side):
    """It drops all that the host receives."""
    side.ensure(policy())
    assert not side.is_down
    steps(side)
    side.kernel.down.add(receiver.IFB_DEV)
    assert side.is_down
    side.ensure(policy())
    change, = side.kernel.asked
    assert change == operations.AddIfb(8) and not side.is_down


def test_pairs_follow_the_policy(side):
    side.ensure(policy(PAIRS[:1]))
    steps(side)
    handle, info = redirect.read_pair(side.kernel.filters[8][0])[1:]
    side.ensure(policy(PAIRS[1:]))
    match, delete = side.kernel.asked
    assert match.key == classify.Entry(0, '10.0.0.2', '10.0.1.1', 0)
    assert match.minor == receiver.MANAGED_MINOR
    assert (delete.ifindex, delete.handle, delete.info) == (8, handle, info)


def test_an_ingress_that_stands_is_taken(side):
    side.kernel.refuses[operations.AddIngress] = errno.EEXIST
    side.ensure(policy())
    assert steps(side)[-1] == 'Redirect'


def test_a_redirection_to_a_device_that_is_gone_ends_first(side):
    """It drops all that the host receives, also beside a right one."""
    side.ensure(policy())
    steps(side)
    del side.kernel.devices[receiver.IFB_DEV]
    side.kernel.filters[7][:] = [redirect.redirect_all(7, target)[2]
                                 for target in (0, 8)]
    side.ensure(policy())
    assert steps(side) == ['AddIfb', 'EndRedirect', 'AddIngress', 'Redirect']
    assert [*map(redirect.redirect_target, side.kernel.filters[7])] == [8]


@pytest.mark.parametrize('refused', [
    operations.AddIfb, operations.MatchPair, operations.AddIngress,
    operations.Redirect])
def test_a_change_that_is_refused_is_an_error(side, refused):
    side.kernel.refuses[refused] = errno.EPERM
    with pytest.raises(exception.KernelRefused):
        side.ensure(policy(PAIRS))


def test_a_thousand_pairs_are_protected(side):
    side.ensure(policy(tuple(
        edge_policy.ReceivedPair('10.0.0.1', '10.0.1.1', port)
        for port in range(1, 1003))))
    assert steps(side).count('MatchPair') == 1000


@pytest.mark.parametrize('own_bps, policy_bps, default_bps, expected', [
    (1e9, 2e9, 1e6, (950e6, 1e6)), (4e9, 2e9, 1e6, (1900e6, 1e6)),
    (1e9, 1e9, 9e8, (950e6, 475e6)), (1e9, 1e9, 4e8, (950e6, 4e8))])
def test_the_queue_is_slower_than_the_slower_link(
        side, own_bps, policy_bps, default_bps, expected):
    """And the default class has at most half of it."""
    side.ingress_bps = own_bps
    tree = side.desired_tree(structs.replace(
        policy(), ingress_bps=policy_bps, default_rate_bps=default_bps))
    assert (tree[minors.LINK].rate_bps, tree[minors.HOST].rate_bps) == (
        pytest.approx(expected, rel=1e-6))


@pytest.mark.parametrize('most, is_told', [(1, True), (2, False)])
def test_no_more_pairs_than_the_filters_bear(side, monkeypatch, caplog, most,
                                             is_told):
    monkeypatch.setattr(receiver, 'MOST_PAIRS', most)
    side.ensure(policy(PAIRS))
    assert steps(side).count('MatchPair') == most
    assert ('2 pairs are received' in caplog.text) == is_told


class Ingress:
    """What root finds at the ingress of the uplink, and takes away.

    :ivar sent: requests, in their order.
    :ivar refuses: requests that the kernel refuses.
    """

    def __init__(self, filters):
        self.filters, self.sent, self.refuses = filters, [], []

    def tc_dump(self, message):
        assert message == redirect.dump_redirects(7)
        return list(self.filters)

    def tc_send(self, messages):
        self.sent += messages
        if redirect.delete_redirect(7) in messages:
            self.filters[:] = {OTHER} & {*self.filters}
        return [errno.EPERM for one in messages if one in self.refuses]


OURS = redirect.redirect_all(7, 8)[2]
OTHER = redirect.redirect_all(7, 9)[2]
ALL_REMOVED = [redirect.delete_redirect(7), redirect.delete_ingress(7),
               redirect.delete_link(8)]


def ingress(monkeypatch, *filters):
    found = Ingress(list(filters))
    for name in ('tc_dump', 'tc_send'):
        monkeypatch.setattr(receiver.kernel, name, getattr(found, name))
    return found


@pytest.mark.parametrize(('filters', 'sent'), [
    ([OURS], ALL_REMOVED),
    # The ingress is left to another filter, and to who made it.
    ([OURS, OTHER], [ALL_REMOVED[0], ALL_REMOVED[2]]),
    ([OTHER], ALL_REMOVED[2:]), ([], ALL_REMOVED[2:])])
def test_the_redirection_ends_before_its_queue(side, monkeypatch, filters,
                                               sent):
    side.kernel.devices[receiver.IFB_DEV] = 8
    found = ingress(monkeypatch, *filters)
    assert receiver.remove('up1') is True
    assert found.sent == sent


@pytest.mark.parametrize('devices', [{'up1': 7}, {receiver.IFB_DEV: 8}, {}])
def test_without_a_queue_or_an_uplink_there_is_nothing_to_remove(
        side, monkeypatch, devices):
    side.kernel.devices.clear()
    side.kernel.devices.update(devices)
    found = ingress(monkeypatch, OURS)
    assert receiver.remove('up1') is False
    assert found.sent == []


def test_a_redirection_to_an_ifb_that_is_gone_is_removed(side, monkeypatch):
    found = ingress(monkeypatch, redirect.redirect_all(7, 0)[2])
    assert receiver.remove('up1') is True
    assert found.sent == ALL_REMOVED[:2]


@pytest.mark.parametrize('refused', ALL_REMOVED)
def test_a_removal_that_is_refused_is_an_error(side, monkeypatch, refused):
    side.kernel.devices[receiver.IFB_DEV] = 8
    found = ingress(monkeypatch, OURS)
    found.refuses.append(refused)
    with pytest.raises(exception.KernelRefused):
        receiver.remove('up1')
    assert found.sent[-1] == refused
