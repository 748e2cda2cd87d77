# SPDX-License-Identifier: Apache-2.0

"""Measured shares of real TCP under the trees that policies ask for."""

import contextlib
import time

import numpy as np
import pytest

from edge_module.tcplan import minors
from edge_module.tcplan import steps
from tests.netns import gear
from tests.netns.edge import bed as beds
from tests.netns.edge import floods
from tests.netns.edge import policies

LINK_BPS = 40e6
# Payload per byte on the wire: 1448 of 1514.
GOODPUT = 1448 / 1514

pytestmark = pytest.mark.netns
real_time = pytest.mark.real_time(reason='measures the rate of TCP transfers')


@real_time
def test_coflow_gets_its_rate_beside_noise(pair):
    bed, edge = pair
    a, noise, b = (bed.add_vm('h1'), bed.add_vm('h1'), bed.add_vm('h2'))
    edge.set_ports()
    edge.set_policy(policies.PolicyBuilder('h1', LINK_BPS).coflow(
        'C1', 30e6, [(a, b, 1)], ceil_bps=30e6).build())
    managed, unmanaged = beds.measure([
        beds.Flow(a, b), beds.Flow(noise, b)])
    assert managed == pytest.approx(30e6 * GOODPUT, rel=0.07)
    assert unmanaged == pytest.approx(10e6 * GOODPUT, rel=0.1)


@real_time
@gear.full('unit/edge/test_early_packets, whose queues these are, and '
           'test_coflow_gets_its_rate_beside_noise')
@pytest.mark.parametrize('is_limited', [False, True])
def test_a_flow_has_its_rate_as_soon_as_a_late_hint_comes(pair, is_limited):
    """Its sender's timer expired several times beside a busy coflow."""
    bed, edge = pair
    busy, late = bed.add_vm('h1'), bed.add_vm('h1')
    sinks = bed.add_vm('h2'), bed.add_vm('h2')
    edge.set_ports()
    first = policies.PolicyBuilder('h1', LINK_BPS).coflow(
        'C1', 39e6, [(busy, sinks[0], 1)])
    then = policies.PolicyBuilder('h1', LINK_BPS, 2).coflow(
        'C1', 19e6, [(busy, sinks[0], 1)]).coflow(
        'C2', 19e6, [(late, sinks[1], 1)])
    if is_limited:
        for one in (first, then):
            one.limit(2e5, sinks)
    edge.set_policy(first.build())
    flows = [beds.Flow(busy, sinks[0]).start()]
    beds.wait_for(lambda: flows[0].received_at(99) > 4e6, 20, 'a busy link')
    flows.append(beds.Flow(late, sinks[1]).start())
    time.sleep(2)
    at_s = flows[1].now_s()
    edge.set_policy(then.build())
    for _ in range(2):
        time.sleep(0.25)
        edge.call('collect', time.monotonic())
    rate_bps = flows[1].rate_bps(at_s, at_s + 0.5)
    for flow in flows:
        flow.close()
    assert rate_bps > 0.7 * 19e6 * GOODPUT


@gear.full(
    'unit/edge/test_tcplan.py::test_flows_of_a_coflow_get_rates_by_weight; '
    'that they are kept: '
    'netns/edge/test_shaping.py::test_coflow_gets_its_rate_beside_noise')
@real_time
def test_flows_of_a_coflow_end_together(make_bed, edge_of):
    """25 MB and 5 MB from one VM."""
    bed = make_bed(3)
    edge = edge_of(bed, 'h1', link_bps=100e6)
    src, near, far = (bed.add_vm('h1'), bed.add_vm('h2'), bed.add_vm('h3'))
    edge.set_ports()
    edge.set_policy(policies.PolicyBuilder('h1', 100e6).coflow(
        'C1', 95e6, [(src, near, 5), (src, far, 1)], ceil_bps=95e6,
        child_ceil=1.2).build())
    flows = [beds.Flow(src, near, size_bytes=25_000_000).start(),
             beds.Flow(src, far, size_bytes=5_000_000).start()]
    for flow in flows:
        beds.wait_for(lambda: flow.done_s, 20, 'the end of a flow')
        flow.close()
    long_s, short_s = flows[0].done_s, flows[1].done_s
    assert short_s == pytest.approx(long_s, rel=0.1)
    # Together they took what their coflow was given.
    ideal_s = 30e6 * 8 / (95e6 * GOODPUT)
    assert long_s == pytest.approx(ideal_s, rel=0.12)


@gear.full(
    'unit/edge/test_tcplan.py::test_coflows_have_turns_in_their_order; that '
    'they are kept: netns/edge/test_shaping.py::'
    'test_idle_bandwidth_goes_to_the_first_in_rank')
@real_time
def test_twelve_coflows_keep_their_order(make_bed, edge_of):
    """Cubic needs seconds to fill its queue once it knows the round trip."""
    bed = make_bed(2)
    edge = edge_of(bed, 'h1')
    senders = [bed.add_vm('h1') for _ in range(12)]
    sink = bed.add_vm('h2')
    edge.set_ports()
    builder = policies.PolicyBuilder('h1', LINK_BPS)
    for rank, sender in enumerate(senders):
        builder.coflow(f'C{rank}', 38e6 * (12 - rank) / 78,
                       [(sender, sink, 1)], prio=min(rank, 7))
    edge.set_policy(builder.build())
    rates = beds.measure([beds.Flow(sender, sink) for sender in senders],
                         warm_up_s=5.0, for_s=3.0)
    assert sum(rates) == pytest.approx(LINK_BPS * GOODPUT, rel=0.06)
    assert rates == sorted(rates, reverse=True), rates


@real_time
def test_idle_bandwidth_goes_to_the_first_in_rank(pair):
    bed, edge = pair
    first, second, sink = (bed.add_vm('h1'), bed.add_vm('h1'),
                           bed.add_vm('h2'))
    edge.set_ports()
    edge.set_policy(policies.PolicyBuilder('h1', LINK_BPS)
                    .coflow('C1', 5e6, [(first, sink, 1)], prio=0)
                    .coflow('C2', 5e6, [(second, sink, 1)], prio=1).build())
    rates = beds.measure([beds.Flow(first, sink), beds.Flow(second, sink)])
    # Nearly 7 : 1; a sender that a busy machine keeps off lends its share.
    assert sum(rates) == pytest.approx(LINK_BPS * GOODPUT, rel=0.06)
    assert rates[0] > 3 * rates[1]
    assert rates[1] > 4e6 * GOODPUT


@gear.full(
    'unit/edge/test_tcplan.py::test_tree_fits_the_link; that guarantees are '
    'kept: netns/edge/test_hostile.py::test_bytes_are_those_of_the_wire')
@real_time
def test_the_unmanaged_keep_their_share(pair):
    """Coflows that want everything are given what is left of the link.

    A quarter of what is kept for all else is the host's alone.
    """
    bed, edge = pair
    a, noise, b = bed.add_vm('h1'), bed.add_vm('h1'), bed.add_vm('h2')
    edge.set_ports()
    edge.set_policy(policies.PolicyBuilder(
        'h1', LINK_BPS, default_bps=8e6).coflow(
            'C1', LINK_BPS, [(a, b, 1)]).build())
    rates = beds.measure([beds.Flow(a, b), beds.Flow(noise, b)])
    assert sum(rates) == pytest.approx(LINK_BPS * GOODPUT, rel=0.06)
    assert rates[1] == pytest.approx(6e6 * GOODPUT, rel=0.15)


def test_traffic_inside_the_host_is_free(pair):
    bed, edge = pair
    a, b, away = bed.add_vm('h1'), bed.add_vm('h1'), bed.add_vm('h2')
    edge.set_ports()
    edge.set_policy(policies.PolicyBuilder('h1', LINK_BPS).coflow(
        'C1', 1e6, [(a, away, 1)], ceil_bps=1e6).build())
    before = edge.stats()[1].sent_bytes
    # It would take a minute at the rate of its coflow, two at the others'.
    flow = beds.Flow(a, b, size_bytes=10_000_000).start()
    beds.wait_for(lambda: flow.done_s, 20, 'its end')
    flow.close()
    assert edge.stats()[1].sent_bytes - before < 100_000


@gear.full(
    'unit/edge/test_tcplan_steps.py::'
    'test_new_classes_are_never_idle, '
    'netns/edge/test_counting.py::test_pairs_are_counted_in_the_default_class')
@real_time
def test_without_policy_the_link_is_shared(pair):
    bed, edge = pair
    a, b = bed.add_vm('h1'), bed.add_vm('h2')
    edge.set_ports()
    rate, = beds.measure([beds.Flow(a, b)], 0.7, 1.5)
    assert rate == pytest.approx(LINK_BPS * GOODPUT, rel=0.06)


@gear.full(
    'unit/edge/test_tcplan_steps.py::'
    'test_new_classes_are_never_idle, '
    'unit/edge/test_tcplan_steps.py::'
    'test_a_lost_tree_comes_back_at_full_rates')
@real_time
def test_enforcement_that_begins_under_load_lets_it_through(pair):
    """What a class sends in front of its rate, it owes for a minute."""
    bed, edge = pair
    src, dst = bed.add_vm('h1'), bed.add_vm('h2')
    flow = beds.Flow(src, dst).start()
    edge.enforcer.ports = ()
    uplink, desired = edge.enforcer.uplink, edge.call('desired_tree')
    beds.in_netns(edge.netns, uplink.ensure_root)
    update = steps.plan_update({}, desired)
    beds.in_netns(edge.netns, uplink.set_classes, update.rise, {})
    beds.wait_for(lambda: edge.stats()[minors.HOST].sent_bytes, 5,
                  'traffic between two steps')
    edge.call('reconcile', time.monotonic())
    assert beds.in_netns(edge.netns, uplink.snapshot).tree == desired
    # The flow began without any limit and first finds its new rate.
    beds.wait_for(lambda: _rate_bps(flow, 0.2, 1) > 0.94 * LINK_BPS * GOODPUT,
                  15, 'the rate of the link')
    flow.close()


def _rate_bps(flow, warm_up_s, for_s):
    """Of a flow that runs, from now on."""
    from_s = flow.now_s() + warm_up_s
    beds.wait_for(lambda: flow.now_s() > from_s + for_s, 2 * for_s + 10,
                  'the end of the measurement')
    return flow.rate_bps(from_s, from_s + for_s)


@gear.full(
    'unit/edge/test_tcplan_steps.py::test_leaving_class_is_idle_and_last, '
    'unit/edge/test_tcplan_steps.py::'
    'test_update_never_over_commits_and_ends_right')
@real_time
@pytest.mark.parametrize('pacing_bps', [15e6, None])
def test_a_coflow_that_comes_back_at_once_has_its_rate(pair, pacing_bps):
    """With and without a queue at the moment at which it leaves."""
    bed, edge = pair
    a, b, sink = bed.add_vm('h1'), bed.add_vm('h1'), bed.add_vm('h2')
    edge.set_ports()

    def policy(*, with_first):
        builder = policies.PolicyBuilder('h1', LINK_BPS).coflow(
            'C2', 10e6, [(b, sink, 1)],
            ceil_bps=LINK_BPS if with_first else 20e6)
        if with_first:
            builder.coflow('C1', 20e6, [(a, sink, 1)], prio=5)
        return builder.build()

    def step(name):
        if name == 'classify':
            sent_bytes = edge.stats()[0x13].sent_bytes
            beds.wait_for(lambda: edge.stats()[0x13].sent_bytes > sent_bytes,
                          5, 'a packet in between')

    edge.set_policy(policy(with_first=True))
    first = beds.Flow(a, sink, 5001, pacing_bps=pacing_bps).start()
    second = beds.Flow(b, sink, 5002).start()
    beds.wait_for(lambda: edge.stats()[0x13].sent_bytes, 5, 'traffic')
    edge.enforcer.step = step
    edge.set_policy(policy(with_first=False))
    edge.enforcer.step = lambda name: None
    edge.set_policy(policy(with_first=True))
    assert _rate_bps(first, 1.5, 2) > 0.9 * 15e6
    first.close()
    second.close()


@gear.full(
    'unit/edge/test_tcplan_steps.py::'
    'test_held_leaves_keep_what_a_super_packet_asks_for, '
    'netns/edge/test_updates.py::'
    'test_a_class_that_falls_is_held_until_its_queue_is_sent')
@real_time
def test_a_coflow_that_waited_has_its_rate_at_once(pair):
    """It may have queued super-packets before it had to wait."""
    bed, edge = pair
    vms = [bed.add_vm('h1') for _ in range(3)]
    sink = bed.add_vm('h2')
    edge.set_ports()

    def policy(first_bps, prio=7):
        builder = policies.PolicyBuilder('h1', LINK_BPS).coflow(
            'C0', first_bps, [(vms[0], sink, 1)], prio=prio)
        for vm in vms[1:]:
            builder.coflow(vm.uuid, 0.07e6, [(vm, sink, 1)])
        return builder.build()

    flows = [beds.Flow(vm, sink, 5001 + index).start()
             for index, vm in enumerate(vms)]
    edge.set_policy(policy(20e6))
    beds.wait_for(lambda: edge.stats()[0x11].backlog_bytes > 64 * 1024, 5,
                  'a queue')
    edge.set_policy(policy(0.07e6))
    sent_bytes = edge.stats()[0x11].sent_bytes
    beds.wait_for(lambda: edge.stats()[0x11].sent_bytes > sent_bytes, 5,
                  'a packet while it waits')
    edge.set_policy(policy(20e6, prio=6))
    assert _rate_bps(flows[0], 1, 2) > 0.9 * 20e6 * GOODPUT
    beds.wait_for(lambda: (edge.call('collect', time.monotonic()),
                           not edge.call('drift'))[1], 10, 'no drift')
    for flow in flows:
        flow.close()


@gear.full(
    'unit/edge/test_tcplan.py::test_super_packets_are_cut_on_a_slow_link')
@real_time
def test_a_class_that_rises_sends_at_once(pair):
    """HTB keeps the time that a class owes for what it sent at a trickle."""
    bed, edge = pair
    src, dst = bed.add_vm('h1'), bed.add_vm('h2')
    edge.set_ports()

    def allow(rate_bps):
        edge.set_policy(policies.PolicyBuilder('h1', LINK_BPS).coflow(
            'C1', rate_bps, [(src, dst, 1)], ceil_bps=rate_bps).build())

    allow(0.2e6)
    flow = beds.Flow(src, dst).start()
    beds.wait_for(lambda: edge.stats()[0x11].backlog_bytes > 64 * 1024, 10,
                  'a queue at the trickle')
    beds.wait_for(lambda: edge.stats()[0x11].sent_bytes > 100_000, 10,
                  'what a super-packet holds')
    allow(38e6)
    before = flow.samples[-1][1] if flow.samples else 0
    risen_s = time.monotonic()
    beds.wait_for(lambda: flow.samples[-1][1] - before > 1_000_000, 10,
                  'a megabyte after the rise')
    took_s = time.monotonic() - risen_s
    flow.close()
    # A super-packet of 64 KB would have held it for 2.6 s.
    assert took_s < 4 * 8e6 / 38e6, took_s


@gear.full(
    'unit/edge/test_tcplan_steps.py::'
    'test_held_leaves_may_borrow_more_and_are_given_no_more, '
    'netns/edge/test_updates.py::'
    'test_a_class_that_falls_is_held_until_its_queue_is_sent')
@real_time
def test_a_class_that_falls_and_rises_sends_at_once(pair):
    """Super-packets that it has queued before it falls are not cut."""
    bed, edge = pair
    src, dst = bed.add_vm('h1'), bed.add_vm('h2')
    edge.set_ports()

    def allow(rate_bps):
        edge.set_policy(policies.PolicyBuilder('h1', LINK_BPS).coflow(
            'C1', rate_bps, [(src, dst, 1)], ceil_bps=rate_bps).build())

    def ceil_bps():
        return beds.in_netns(edge.netns, edge.enforcer.uplink.snapshot
                             ).tree[0x11].ceil_bps

    allow(38e6)
    flow = beds.Flow(src, dst).start()
    beds.wait_for(lambda: edge.stats()[0x11].backlog_bytes > 20_000, 10,
                  'a queue')
    allow(0.2e6)
    fallen_s = time.monotonic()

    def is_slow():
        edge.call('collect', time.monotonic())
        return ceil_bps() == 0.2e6

    beds.wait_for(is_slow, 10, 'its own ceil')
    # The queue and what it got meanwhile, at 5.2 Mbit/s.
    assert time.monotonic() - fallen_s < 2
    sent_bytes = edge.stats()[0x11].sent_bytes
    beds.wait_for(lambda: edge.stats()[0x11].sent_bytes > sent_bytes, 10,
                  'a frame at the trickle')
    before = flow.samples[-1][1]
    allow(38e6)
    risen_s = time.monotonic()
    beds.wait_for(lambda: flow.samples[-1][1] - before > 1_000_000, 10,
                  'a megabyte after the rise')
    took_s = time.monotonic() - risen_s
    flow.close()
    assert took_s < 4 * 8e6 / 38e6, took_s


def _shape_as_ovn(bed, link, queue):
    """Set a queue at the root of the uplink, as Open vSwitch and OVN do."""
    for command in ('qdisc add dev uplink0 root handle 1: htb default 1',
                    'class add dev uplink0 parent 1: classid 1:fffe htb '
                    f'rate {link} quantum 65536',
                    'class add dev uplink0 parent 1:fffe classid 1:2 htb '
                    f'{queue} quantum 1514'):
        beds.run('tc', *command.split(), netns=bed.ns('h1'))


def _put_in_queue(bed, vm):
    """Give a VM's packets the queue's class, as set_queue does."""
    beds.run('nft', '-f', '-', netns=bed.ns('h1'), text=(
        'add table netdev theirs\n'
        'add chain netdev theirs c { type filter hook ingress device '
        f'"{vm.dev}" priority 9; }}\n'
        'add rule netdev theirs c meta priority set 1:2\n'))


@real_time
@gear.full('the sums of rates in unit/edge/test_enforcer')
def test_a_guarantee_of_others_leaves_each_coflow_its_part(make_bed, edge_of):
    """The sum of all guarantees fits the link, so that none is void."""
    bed = make_bed(2)
    _shape_as_ovn(bed, '40mbit', 'rate 20mbit ceil 20mbit')
    edge = edge_of(bed, 'h1', link_bps=LINK_BPS)
    pairs = [(bed.add_vm('h1'), bed.add_vm('h2')) for _ in range(3)]
    edge.set_ports()
    policy = policies.PolicyBuilder('h1', LINK_BPS)
    for prio, (pair, rate_bps) in enumerate(zip(pairs, (6e6, 30e6))):
        policy.coflow(f'C{prio}', rate_bps, [(*pair, 1)], prio=prio)
    edge.set_policy(policy.build())
    _put_in_queue(bed, pairs[2][0])

    def sent_bits():
        stats = beds.in_netns(edge.netns, edge.enforcer.stats)
        return np.array([8 * stats[minor].sent_bytes
                         for minor in (0x11, 0x13, -2)])

    with contextlib.ExitStack() as sending:
        for src, dst in pairs:
            sending.enter_context(floods.udp(src, dst.ip, 1442, 40e6))
        time.sleep(1.5)
        before, since_s = sent_bits(), time.monotonic()
        time.sleep(3)
        rates_bps = (sent_bits() - before) / (time.monotonic() - since_s)
    assert rates_bps[2] == pytest.approx(20e6, rel=0.05)
    # Half of their guarantees, which fits beside the queue's.
    assert rates_bps[0] > 2.7e6 and rates_bps[1] > 13.5e6, rates_bps


@real_time
def test_a_limit_of_others_holds_beside_a_coflow(make_bed, edge_of):
    bed = make_bed(2)
    _shape_as_ovn(bed, '34gbit', 'rate 12kbit ceil 5mbit')
    edge = edge_of(bed, 'h1', link_bps=LINK_BPS)
    a, limited = bed.add_vm('h1'), bed.add_vm('h1')
    sinks = bed.add_vm('h2'), bed.add_vm('h2')
    edge.set_ports()
    edge.set_policy(policies.PolicyBuilder('h1', LINK_BPS).coflow(
        'C1', 30e6, [(a, sinks[0], 1)], ceil_bps=30e6).build())
    _put_in_queue(bed, limited)
    managed_bps, limited_bps = beds.measure([
        beds.Flow(a, sinks[0]), beds.Flow(limited, sinks[1])])
    assert managed_bps == pytest.approx(30e6 * GOODPUT, rel=0.05)
    assert limited_bps == pytest.approx(5e6 * GOODPUT, rel=0.05)
    # What is in their queue counts as the uplink's.
    queued = beds.in_netns(edge.netns, edge.enforcer.stats)[-2]
    assert queued.sent_bytes > 5e6 / 8
