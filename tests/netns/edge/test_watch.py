# SPDX-License-Identifier: Apache-2.0

"""Qdiscs that go are heard of, and nothing else is."""

import dataclasses
import signal
import socket
import time

import pytest

from edge_module import kernel_events
from edge_module.privileged import kernel_calls as kernel
from edge_module.qdisc import htb
from tests.netns.edge import bed as beds
from tests.netns.edge import controller as controllers
from tests.netns.edge import losses
from tests.netns.edge import policies
from tests.netns.edge import process

pytestmark = pytest.mark.netns

NOTHING = kernel_events.Changes()


def _tc(bed, *arguments):
    beds.run('tc', *arguments, netns=bed.ns('h1'))


@pytest.fixture
def heard(make_bed):
    """A watch in h1, and the names of devices that others changed."""
    bed = make_bed(1)
    heard = beds.in_netns(bed.ns('h1'), kernel_events.KernelWatch)

    def names():
        indexes = dict(beds.in_netns(bed.ns('h1'), socket.if_nameindex))
        return {indexes[index] for index in heard.changes().devices}

    yield bed, heard, names
    heard.close()


def test_qdiscs_and_classes_of_others_are_heard_of(heard):
    bed, watched, names = heard
    vm = bed.add_vm('h1')
    watched.changes()
    _tc(bed, 'qdisc', 'add', 'dev', 'uplink0', 'root', 'handle', '1:', 'htb')
    assert names() == {'uplink0'}
    _tc(bed, 'qdisc', 'add', 'dev', vm.dev, 'clsact')
    assert names() == {vm.dev}
    _tc(bed, 'class', 'add', 'dev', 'uplink0', 'parent', '1:', 'classid',
        '1:9', 'htb', 'rate', '1mbit')
    assert names() == {'uplink0'} and names() == set()
    _tc(bed, 'class', 'del', 'dev', 'uplink0', 'classid', '1:9')
    assert names() == {'uplink0'}
    _tc(bed, 'qdisc', 'del', 'dev', vm.dev, 'clsact')
    assert names() == {vm.dev}
    assert watched.changes() == NOTHING


def _changes(heard):
    """Without devices, which the bed has just made."""
    return dataclasses.replace(heard.changes(), links=False)


@pytest.mark.parametrize('how', ['nft'], indirect=True)
def test_own_changes_are_not_heard_of(pair):
    bed, edge = pair
    a, b = bed.add_vm('h1'), bed.add_vm('h2')
    heard = beds.in_netns(bed.ns('h1'), kernel_events.KernelWatch)
    try:
        edge.set_ports()
        _changes(heard)
        policy = policies.PolicyBuilder('h1', 40e6).coflow(
            'C1', 5e6, [(a, b, 1)]).build()

        def heard_of_policy():
            # nftables names the thread, which must still be there.
            edge.enforcer.set_policy(policy, time.monotonic(), False)
            return _changes(heard)

        assert beds.in_netns(bed.ns('h1'), heard_of_policy) == NOTHING
        beds.run('nft', 'add', 'table', 'ip', 'others',
                 netns=bed.ns('h1'))
        assert _changes(heard) == NOTHING
        beds.run('nft', 'flush', 'ruleset', netns=bed.ns('h1'))
        assert _changes(heard) == kernel_events.Changes(tables=True)
        assert _changes(heard) == NOTHING
    finally:
        heard.close()


def test_devices_that_change_are_heard_of(heard):
    bed, watched, _ = heard
    watched.changes()
    beds.run('ip', 'link', 'set', 'dev', 'uplink0', 'mtu', '1400',
             netns=bed.ns('h1'))
    assert watched.changes().links and not watched.changes().links


def test_more_than_the_kernel_keeps_is_not_forgotten(heard):
    bed, watched, names = heard
    _tc(bed, 'qdisc', 'add', 'dev', 'uplink0', 'clsact')
    batch = ('qdisc del dev uplink0 clsact\n'
             'qdisc add dev uplink0 clsact\n') * 3000
    beds.run('tc', '-batch', '-', netns=bed.ns('h1'), text=batch)
    assert watched.changes().devices is None
    # Read empty, it goes on.
    while watched.changes().devices is None:
        pass
    _tc(bed, 'qdisc', 'del', 'dev', 'uplink0', 'clsact')
    assert 'uplink0' in names()


@pytest.fixture
def agent(make_bed, tmp_path):
    """A running agent whose audits come too late for these tests."""
    bed = make_bed(2)
    controller = controllers.Controller(bed.ns('h1'))
    edge = process.EdgeProcess(bed, 'h1', tmp_path, audit_interval_s=3600)
    a, b = bed.add_vm('h1'), bed.add_vm('h2')
    try:
        controller.set_policy(policies.PolicyBuilder('h1', 40e6).coflow(
            'C1', 20e6, [(a, b, 1)], ceil_bps=20e6).build().to_dict())
        edge.start()
        controller.wait_report(lambda r: r['applied_generation']
                               and r['ports'] and r['health'] == 'ok', 20)
        beds.wait_for(lambda: not edge.once('--check', check=False
                                            ).returncode, 20, 'no drift')
        yield bed, controller, edge, a
    finally:
        edge.stop()
        controller.stop()


@pytest.mark.parametrize('how', ['bpf', 'nft'])
def test_what_is_lost_is_put_back_at_once(tmp_path, how):
    """Each loss twice; benchmarks.lost prints how long fifty of each take."""
    site = losses.Site(tmp_path, how)
    try:
        beds.wait_for(site.is_enforced, 60, 'enforcement')
        taken_s = {name: [site.lose(name) for _ in range(2)]
                   for name in losses.LOSSES[how]}
    finally:
        site.close()
    # A machine that stands still is late once; the next comparison comes in
    # an hour.
    assert max(map(min, taken_s.values())) < 3, taken_s


def test_an_uplink_that_is_gone_is_no_good_health(agent):
    bed, controller, edge, _ = agent
    beds.run('ip', 'link', 'set', 'dev', 'uplink0', 'name', 'away0',
             netns=bed.ns('h1'))
    controller.wait_report(lambda r: r['health'] == 'error'
                           and 'uplink0' in r['error'], 5)
    beds.run('ip', 'link', 'set', 'dev', 'away0', 'name', 'uplink0',
             netns=bed.ns('h1'))
    controller.wait_report(lambda r: r['health'] == 'ok', 5)


def test_an_uplink_that_leaves_and_returns_at_once_has_its_tree(agent):
    """It comes back as it was, but for its queues."""
    bed, controller, edge, _ = agent
    elsewhere = f'{bed.prefix}away'
    # Its index is free there, and here as it returns.
    beds.run('ip', 'netns', 'add', elsewhere)
    bed.namespaces.append(elsewhere)

    def drifts():
        return edge.once('--check', check=False).returncode

    # Both announcements are read together.
    edge.process.send_signal(signal.SIGSTOP)
    try:
        beds.run('ip', 'link', 'set', 'dev', 'uplink0', 'netns', elsewhere,
                 netns=bed.ns('h1'))
        beds.run('ip', 'link', 'set', 'dev', 'uplink0', 'netns', bed.ns('h1'),
                 netns=elsewhere)
        beds.run('ip', 'link', 'set', 'dev', 'uplink0', 'master', 'brv', 'up',
                 netns=bed.ns('h1'))
        assert drifts()
    finally:
        edge.process.send_signal(signal.SIGCONT)
    beds.wait_for(lambda: not drifts(), 20, 'the tree')


def test_a_larger_mtu_is_followed(agent):
    bed, controller, edge, vm = agent

    def cut_bytes():
        return beds.in_netns(bed.ns('h1'), lambda: htb.Uplink(
            kernel, 'uplink0').snapshot().tree[2].packet_bytes)

    before = cut_bytes()
    # The port first: nothing that it lets in may be too long.
    for dev in (vm.dev, 'uplink0'):
        beds.run('ip', 'link', 'set', 'dev', dev, 'mtu', '9000',
                 netns=bed.ns('h1'))
        beds.wait_for(lambda: cut_bytes() > 9000, 5, 'a larger limit')
    assert before < 2000
