# SPDX-License-Identifier: Apache-2.0

"""Updates on the way: broken off, at speed, and under traffic."""

import os
import threading
import time

import pytest

from edge_module.privileged import kernel_calls as kernel
from edge_module.qdisc import htb
from edge_module.qdisc import receiver
from tests.netns import gear
from tests.netns.edge import bed as beds
from tests.netns.edge import faults
from tests.netns.edge import policies
from virtco import exception

LINK_BPS = 40e6

pytestmark = pytest.mark.netns
real_time = pytest.mark.real_time(reason='measures the rate of TCP transfers')


def _builder(generation=1):
    return policies.PolicyBuilder('h1', LINK_BPS, generation)


@pytest.mark.parametrize('name', [*faults.STEPS, 'receive'])
def test_restart_after_a_kill_at_any_step(pair, edge_of, name):
    bed, edge = pair
    a, b, c = bed.add_vm('h1'), bed.add_vm('h2'), bed.add_vm('h1')
    edge.enforcer.grace_s = 0.0
    if name == 'receive':
        edge.enforcer.receive_by(receiver.Receiver(kernel, 'uplink0',
                                                   LINK_BPS))
    try:
        if name == 'root':
            faults.kill_at(edge, name)
        edge.set_ports()
        edge.set_policy(faults.before(a, b, c))
        faults.kill_at(edge, name)
        edge.set_policy(faults.after(a, b, c))
        edge.call('collect', time.monotonic() + 1)
    except faults.Killed:
        pass
    else:
        pytest.fail(f'the step {name} was not reached')
    # What it left behind: managed flows have a class, or none classifies
    # them; the port is not over-committed.
    left = edge_of(bed, 'h1')
    snapshot = beds.in_netns(left.netns, left.enforcer.uplink.snapshot)
    table = beds.in_netns(left.netns, left.enforcer.classifier.dump)
    assert set(table.entries.values()) <= set(snapshot.tree)
    # Somebody starts it again.
    again = edge_of(bed, 'h1', grace_s=0.0)
    edge.enforcer.step = lambda name: None
    again.enforcer.receiver = edge.enforcer.receiver
    again.set_ports()
    again.set_policy(faults.after(a, b, c))
    again.call('collect', time.monotonic() + 1)
    if name == 'receive':
        assert 'virtco-in' in beds.run(
            'tc', 'filter', 'show', 'dev', 'uplink0', 'ingress',
            netns=bed.ns('h1'))
    assert not again.call('drift')
    snapshot = beds.in_netns(again.netns, again.enforcer.uplink.snapshot)
    assert snapshot.tree == again.call('desired_tree')


@pytest.mark.parametrize('how', ['bpf', 'nft'], indirect=True)
def test_restart_touches_nothing_that_is_right(pair, edge_of):
    bed, edge = pair
    a, b, c = bed.add_vm('h1'), bed.add_vm('h2'), bed.add_vm('h1')
    edge.set_ports()
    edge.set_policy(faults.before(a, b, c))
    sent = []

    class Recorder:
        """The kernel, with a look at what is changed."""

        tc_dump = staticmethod(kernel.tc_dump)

        @staticmethod
        def tc_change(changes):
            sent.extend(changes)
            return kernel.tc_change(changes)

        nft_read = staticmethod(kernel.nft_read)
        bpf_read = staticmethod(kernel.bpf_read)

        @staticmethod
        def nft_change(hook, changes):
            sent.extend(changes)
            return kernel.nft_change(hook, changes)

        @staticmethod
        def bpf_change(hook, changes):
            sent.extend(changes)
            return kernel.bpf_change(hook, changes)

    again = edge_of(bed, 'h1')
    again.enforcer.tree.uplink = htb.Uplink(Recorder, 'uplink0')
    again.enforcer.classifier.kernel = Recorder
    again.enforcer.policy = faults.before(a, b, c)
    again.set_ports()
    again.set_policy(faults.before(a, b, c))
    assert sent == []


@gear.full(
    'unit/edge/test_tcplan_steps.py::'
    'test_update_never_over_commits_and_ends_right, '
    'netns/edge/test_updates.py::test_restart_touches_nothing_that_is_right; '
    'netns/edge/test_restart.py::test_kills_of_agent_and_helper_lose_nothing')
@real_time
def test_updates_disturb_no_connection(pair):
    """Rates of other coflows change 20 times a second beside a transfer."""
    bed, edge = pair
    a, b, c = bed.add_vm('h1'), bed.add_vm('h2'), bed.add_vm('h1')
    edge.set_ports()

    def policy(rate_bps):
        builder = _builder().coflow('C1', 20e6, [(a, b, 1)], ceil_bps=20e6)
        builder.coflow('C2', rate_bps, [(c, b, 1)])
        for index in range(100):
            builder.coflow(f'X{index}', rate_bps / 1000, [(c, b, 1)])
        return builder.build()

    edge.set_policy(policy(1e6))
    flow = beds.Flow(a, b, pacing_bps=18e6).start()
    time.sleep(1)
    retransmits = flow.total_retransmits()
    quiet_bps = flow.rate_bps(0.4, 1.0)
    begin_s = flow.now_s()
    for index in range(40):
        edge.set_policy(policy(1e6 if index % 2 else 15e6))
        time.sleep(0.05)
    end_s = flow.now_s()
    caused = flow.total_retransmits() - retransmits
    flow.close()
    # Nothing was dropped or reordered; a busy machine lets a probe or two go
    # out late. Moving the flow between classes costs hundreds.
    assert caused <= 3
    assert sum(item.drops for item in edge.stats().values()) == 0
    assert flow.rate_bps(begin_s, end_s) == pytest.approx(
        quiet_bps, rel=0.04)


def test_thousand_changes_and_ten_thousand_entries(pair):
    """Order of magnitude of processor time; see benchmarks.edge_updates."""
    bed, edge = pair
    a, b = bed.add_vm('h1'), bed.add_vm('h2')
    edge.set_ports()

    def policy(rate_bps, entries):
        builder = _builder()
        for index in range(500):
            builder.coflow(f'X{index}', rate_bps, [(a, b, 1)],
                           port=1 + index)
        sink = builder.flows[-1]
        for index in range(entries):
            builder.flows.append(policies.edge_policy.FlowEntry(
                sink.coflow_id, a.uuid, a.ip,
                f'10.{100 + index // 65536}.{index // 256 % 256}'
                f'.{index % 256}', sink.minor))
        return builder.build()

    def timed(*args):
        wanted = policy(*args)
        start_s = sum(os.times()[:4])
        edge.set_policy(wanted)
        return sum(os.times()[:4]) - start_s

    timed(10e3, 0)
    rates_s = timed(20e3, 0)
    entries_s = timed(20e3, 10_000)
    assert len(edge.counted()) == 10_500
    assert rates_s < 1.0 and entries_s < 4.0


def test_ports_come_and_go_under_traffic(pair):
    """A device that is made anew under its name is classified again."""
    bed, edge = pair
    a, b = bed.add_vm('h1'), bed.add_vm('h2')
    edge.set_ports()
    edge.set_policy(_builder().coflow('C1', 10e6, [(a, b, 1)],
                                      ceil_bps=10e6).build())
    assert len(edge.counted()) == 1
    netns = bed.ns('h1')
    beds.run('ip', 'link', 'del', 'dev', a.dev, netns=netns)
    bed.vms.remove(a)
    edge.set_ports()
    assert len(edge.counted()) == 0
    beds.run('ip', 'netns', 'del', a.netns)
    bed.namespaces.remove(a.netns)
    again = beds.Vm(bed, 'h1', 1, a.ip, 'brv')
    bed.vms.append(again)
    edge.set_ports()
    flow = beds.Flow(again, b, size_bytes=500_000).start()
    beds.wait_for(lambda: flow.done_s, 20, 'its end')
    flow.close()
    assert edge.stats()[0x11].sent_bytes > 500_000
    counted, = edge.counted().values()
    assert counted.sent_bytes > 500_000


def test_a_class_that_falls_is_held_until_its_queue_is_sent(pair):
    """At its new rate the super-packets in it would wait for seconds."""
    bed, edge = pair
    a, b = bed.add_vm('h1'), bed.add_vm('h2')
    edge.set_ports()

    def allow(rate_bps):
        edge.set_policy(_builder().coflow('C1', rate_bps, [(a, b, 1)],
                                          ceil_bps=rate_bps).build())

    def ceil_bps():
        edge.call('collect', time.monotonic())
        return beds.in_netns(edge.netns, edge.enforcer.uplink.snapshot
                             ).tree[0x11].ceil_bps

    allow(38e6)
    flow = beds.Flow(a, b).start()
    beds.wait_for(lambda: edge.stats()[0x11].backlog_bytes > 64_000, 10,
                  'a queue')
    allow(0.2e6)
    held_bps = ceil_bps()
    beds.wait_for(lambda: ceil_bps() == 0.2e6, 10, 'its own ceil')
    flow.close()
    assert held_bps > 1e6


def test_root_that_somebody_set_first_is_not_replaced(pair):
    """Between the look at the uplink and the module's own qdisc."""
    bed, edge = pair

    def step(reached):
        if reached == 'root':
            beds.run('tc', 'qdisc', 'add', 'dev', 'uplink0', 'root', 'tbf',
                     'rate', '1gbit', 'burst', '100k', 'limit', '100k',
                     netns=bed.ns('h1'))

    edge.enforcer.step = step
    with pytest.raises(exception.KernelRefused, match='File exists'):
        edge.set_ports()
    assert 'tbf' in beds.run('tc', 'qdisc', 'show', 'dev', 'uplink0',
                             netns=bed.ns('h1'))
    edge.call('reconcile', time.monotonic())
    assert 'tbf' in edge.enforcer.conflict


def test_readers_and_writers_share_the_enforcer(pair):
    """Reports are made while policies change."""
    bed, edge = pair
    a, b, c = bed.add_vm('h1'), bed.add_vm('h2'), bed.add_vm('h1')
    edge.set_ports()
    stop = threading.Event()
    errors = []

    def read():
        while not stop.is_set():
            try:
                assert edge.stats()[2] is not None
            except Exception as error:
                errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for index in range(10):
        edge.set_policy((faults.before, faults.after)[index % 2](a, b, c))
    stop.set()
    reader.join()
    assert errors == []
