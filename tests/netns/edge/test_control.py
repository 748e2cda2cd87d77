# SPDX-License-Identifier: Apache-2.0

"""Packets without data never wait behind data, and gain nobody anything."""

import contextlib
import functools
import time

import pytest

from edge_module.tcplan import minors
from edge_module.tcplan import model
from edge_module.tcplan import shape
from tests.netns import gear
from tests.netns.edge import bed as beds
from tests.netns.edge import floods
from tests.netns.edge import frames
from tests.netns.edge import policies

LINK_BPS = 40e6
GOODPUT = 1448 / 1514
WAITING_BPS = 8000

pytestmark = pytest.mark.netns
real_time = pytest.mark.real_time(reason='measures the rate of TCP transfers')


def _two_edges(make_bed, edge_of, link_bps=LINK_BPS, **kwargs):
    bed = make_bed(2)
    return bed, *(edge_of(bed, host, link_bps=link_bps, **kwargs)
                  for host in ('h1', 'h2'))


def _policy(host, src, dst, rate_bps, **kwargs):
    return policies.PolicyBuilder(host, LINK_BPS).coflow(
        'C1', rate_bps, [(src, dst, 1)], ceil_bps=rate_bps, **kwargs).build()


@gear.full(
    'unit/edge/test_tcplan.py::test_what_is_no_data_has_places_of_its_own, '
    'netns/edge/test_control.py::test_only_packets_without_data_are_moved')
@real_time
@pytest.mark.parametrize('ipv6', [False, True])
def test_a_direction_is_full_while_the_other_waits(make_bed, edge_of,
                                                   ipv6):
    """The waiting one has a queue of seconds in front of acknowledgements."""
    bed, one, two = _two_edges(make_bed, edge_of)
    a, b = bed.add_vm('h1'), bed.add_vm('h2')
    for edge in (one, two):
        edge.set_ports()
    one.set_policy(_policy('h1', a, b, 30e6, ipv6=ipv6))
    two.set_policy(_policy('h2', b, a, 30e6, ipv6=ipv6))
    flow = functools.partial(beds.Flow, ipv6=ipv6)
    idle_s = max(_opened_s(flow, a, b) for _ in range(3))
    ahead, back = flow(a, b, 5001).start(), flow(b, a, 5002).start()
    beds.wait_for(lambda: two.stats()[0x11].backlog_bytes > 60_000, 10,
                  'a queue')
    two.set_policy(_policy('h2', b, a, WAITING_BPS, ipv6=ipv6))
    beds.wait_for(lambda: (
        two.call('collect', time.monotonic()),
        beds.in_netns(two.netns, two.enforcer.uplink.snapshot)
        .tree[0x11].ceil_bps == WAITING_BPS)[1], 10, 'the floor')
    assert two.stats()[0x11].backlog_bytes > 20_000
    rate_bps = _rate_bps(ahead, 0.2, 2)
    opened_s = sorted(_opened_s(flow, *way) for way in 5 * [(a, b), (b, a)])
    for each in (ahead, back):
        each.close()
    assert rate_bps > 0.97 * 30e6 * GOODPUT
    assert opened_s[5] <= 0.05 + idle_s and opened_s[-1] < 1, opened_s
    control = two.stats()[_control(bed, b)]
    assert control.sent_packets > 100 and control.drops == 0


@gear.full(
    'unit/edge/test_tcplan.py::test_control_packets_of_ports_have_places, '
    'netns/edge/test_control.py::test_only_packets_without_data_are_moved')
@real_time
def test_a_coflow_arrives_where_others_fill_the_way_back(make_bed, edge_of):
    """Its acknowledgements are nothing that the policy of their host names.

    Coflows have all guarantees there, and what is left for unmanaged traffic
    would take all but a few.
    """
    bed, one, two = _two_edges(
        make_bed, edge_of, settings=model.TreeSettings(link_packet_s=0.004))
    a, b, sink = bed.add_vm('h1'), bed.add_vm('h2'), bed.add_vm('h1')
    full, noise = bed.add_vm('h2'), bed.add_vm('h2')
    for edge in (one, two):
        edge.set_ports()
    one.set_policy(_policy('h1', a, b, 36e6))
    two.set_policy(policies.PolicyBuilder('h2', LINK_BPS).coflow(
        'C2', LINK_BPS, [(full, sink, 1)]).build())
    back = [beds.Flow(full, sink, 5002).start(),
            beds.Flow(noise, sink, 5003).start()]
    beds.wait_for(lambda: two.stats()[0x11].backlog_bytes > 30_000, 10,
                  'a full link')
    ahead = beds.Flow(a, b, 5001).start()
    rate_bps = _rate_bps(ahead, 0.5, 2)
    for flow in (ahead, *back):
        flow.close()
    assert rate_bps > 0.9 * 36e6 * GOODPUT


def _own(bed, vm):
    ifindex = int(beds.run('cat', f'/sys/class/net/{vm.dev}/ifindex',
                           netns=bed.ns(vm.host)))
    return minors.of_ports([ifindex])[ifindex]


def _control(bed, vm):
    return minors.of_control(_own(bed, vm))


def _opened_s(flow, src, dst):
    started_s = time.monotonic()
    flow(src, dst, 5003).close_now()
    return time.monotonic() - started_s


def _rate_bps(flow, warm_up_s, for_s):
    """Of a flow that runs, from now on."""
    from_s = flow.now_s() + warm_up_s
    beds.wait_for(lambda: flow.now_s() > from_s + for_s, 2 * for_s + 10,
                  'the end of the measurement')
    return flow.rate_bps(from_s, from_s + for_s)


@pytest.mark.parametrize('how', ['bpf', 'nft'], indirect=True)
def test_only_packets_without_data_are_moved(pair, how):
    bed, edge = pair
    a, b = bed.add_vm('h1'), bed.add_vm('h2')
    edge.set_ports()
    edge.set_policy(policies.PolicyBuilder('h1', LINK_BPS).coflow(
        'C1', 10e6, [(a, b, 1)]).coflow(
        'C2', 10e6, [(a, b, 1)], ipv6=True).build())
    # A bridge forwards nothing until its ports are up.
    for ipv6 in (False, True):
        beds.Flow(a, b, ipv6=ipv6).close_now()
    none = frames.segment
    long_lie = frames.ipv4(a.ip, b.ip, frames.TCP, none(options=12))
    control, data = {4: [
        frames.ipv4(a.ip, b.ip, frames.TCP, none()),
        frames.ipv4(a.ip, b.ip, frames.TCP, none(options=40)),
        frames.ipv4(a.ip, b.ip, frames.TCP, none(options=12),
                    options=b'\x01' * 8),
        frames.tagged(frames.ipv4(a.ip, b.ip, frames.TCP, none())),
    ], 6: [
        frames.ipv6(a.ip6, b.ip6, frames.TCP, none(options=12)),
    ]}, {4: [
        frames.ipv4(a.ip, b.ip, frames.TCP, none(data=1)),
        frames.ipv4(a.ip, b.ip, frames.TCP, none(options=12, data=6)),
        # A later fragment, whose data look like a header.
        frames.ipv4(a.ip, b.ip, frames.TCP, none(), fragment=5),
        # A length that leaves most of the frame out.
        (long_lie[0], long_lie[1] + bytes(1000)),
        frames.ipv4(a.ip, b.ip, frames.UDP, none()),
    ], 6: [
        frames.ipv6(a.ip6, b.ip6, frames.TCP, none(options=12, data=1)),
        frames.ipv6(a.ip6, b.ip6, frames.UDP, none()),
        # A later fragment, as above.
        frames.ipv6(a.ip6, b.ip6, frames.FRAGMENT,
                    frames.fragment6(none(), 8)),
    ]}
    # Behind options nftables does not look for TCP's header.
    (control if how == 'bpf' else data)[6].append(frames.ipv6(
        a.ip6, b.ip6, *frames.extended(
            [frames.HOP_BY_HOP], frames.TCP, none())))
    other = bed.add_vm('h1')
    edge.set_ports()
    own = _own(bed, other)
    for vm, version, minor, place in (
            (a, 4, 0x11, _control(bed, a)), (a, 6, 0x13, _control(bed, a)),
            # Of a VM that is in no coflow.
            (other, 4, own, _control(bed, other)),
            (other, 6, own, _control(bed, other))):
        for packets, expected in ((control, place), (data, minor)):
            for packet in packets[version]:
                before = edge.stats()
                frames.send(vm, packet, 20)
                beds.wait_for(
                    lambda: edge.stats()[expected].sent_packets
                    >= before[expected].sent_packets + 20, 5,
                    f'{packet} in class {expected:#x}')


@gear.full(
    'unit/edge/test_tcplan.py::test_what_is_no_data_has_places_of_its_own, '
    'which knows the share; '
    'netns/edge/test_control.py::test_only_packets_without_data_are_moved')
@real_time
def test_a_flood_through_it_gains_nothing(make_bed, edge_of):
    """Beside it the others' control packets pass, and their data."""
    bed, one, two = _two_edges(make_bed, edge_of)
    flooder, a, b = bed.add_vm('h1'), bed.add_vm('h1'), bed.add_vm('h2')
    for edge in (one, two):
        edge.set_ports()
    builder = policies.PolicyBuilder('h1', LINK_BPS)
    builder.coflow('flood', WAITING_BPS, [(flooder, b, 1)],
                   ceil_bps=WAITING_BPS)
    builder.coflow('C1', 30e6, [(a, b, 1)], ceil_bps=30e6, prio=1)
    one.set_policy(builder.build())
    two.set_policy(_policy('h2', b, a, 30e6))
    # Acknowledgements of a flow that comes, and data of one that goes.
    back, ahead = beds.Flow(b, a, 5001).start(), beds.Flow(a, b, 5002).start()
    with frames.flood(flooder, [
            frames.ipv4(flooder.ip, b.ip, frames.TCP, frames.segment()),
            frames.ipv4(flooder.ip, b.ip, frames.TCP,
                        frames.segment(data=6)),
            frames.ipv4(flooder.ip, b.ip, frames.UDP,
                        frames.segment(data=6))]):
        beds.wait_for(lambda: one.stats()[_control(bed, flooder)].drops, 5,
                      'a flood that is more than passes')
        start_s, before = time.monotonic(), one.stats()
        rates = [_rate_bps(flow, 0.3, 2) for flow in (back, ahead)]
        waited_s = []
        for port in range(6000, 6005):
            opened_s = time.monotonic()
            beds.Flow(a, b, port).close_now()
            waited_s.append(time.monotonic() - opened_s)
        after, took_s = one.stats(), time.monotonic() - start_s
    for flow in (back, ahead):
        flow.close()
    sent = {minor: 8 * (after[minor].sent_bytes - before[minor].sent_bytes)
            / took_s for minor in (0x10, minors.CONTROL)}
    assert sent[minors.CONTROL] < 1.1 * shape.CONTROL_CEIL_SHARE * LINK_BPS
    assert sent[0x10] < 10 * WAITING_BPS
    # The rest of the link is the flood's in no case.
    assert rates[1] > 0.95 * 30e6 * GOODPUT
    assert rates[0] > 0.95 * 30e6 * GOODPUT
    assert sorted(waited_s)[2] < 0.25, waited_s


@gear.full(
    'unit/edge/test_enforcer.py::'
    'test_who_receives_data_has_turns_to_acknowledge_them')
@real_time
def test_many_that_flood_let_a_coflow_be_acknowledged(make_bed, edge_of):
    """With equal turns it has a quarter of its rate."""
    bed, one, two = _two_edges(make_bed, edge_of)
    # Each second frame is acknowledged, not each super-packet.
    floods.count_like_ethernet(bed, 'h2', 2 * LINK_BPS)
    a, b = bed.add_vm('h1'), bed.add_vm('h2')
    flooders = [bed.add_vm('h2') for _ in range(16)]
    for edge in (one, two):
        edge.set_ports()
    rate_bps = 0.9 * LINK_BPS
    one.set_policy(_policy('h1', a, b, rate_bps))
    two.set_policy(policies.PolicyBuilder('h2', LINK_BPS).build())
    with contextlib.ExitStack() as stack:
        for vm in flooders:
            stack.enter_context(floods.raw(vm, [
                frames.ipv4(vm.ip, a.ip, frames.TCP, frames.segment())],
                [a.mac], LINK_BPS / 32))
        time.sleep(0.5)
        flow = beds.Flow(a, b).start()
        stack.callback(flow.close)
        for _ in range(8):
            time.sleep(0.5)
            beds.in_netns(two.netns, lambda: two.enforcer.observe(
                two.enforcer.stats(), time.monotonic()))
        assert _rate_bps(flow, 0, 2) > 0.95 * rate_bps * GOODPUT


def test_short_connections_are_not_sent_twice(pair):
    """A FIN may overtake the data of its own connection in a queue."""
    bed, edge = pair
    a, b = bed.add_vm('h1'), bed.add_vm('h2')
    edge.set_ports()
    edge.set_policy(_policy('h1', a, b, 20e6))
    busy = beds.Flow(a, b, 5001).start()
    beds.wait_for(lambda: edge.stats()[0x11].backlog_bytes > 30_000, 5,
                  'a queue')
    sizes = []
    for port in range(6000, 6010):
        flow = beds.Flow(a, b, port, size_bytes=20_000).start()
        beds.wait_for(lambda: flow.done_s, 10, 'its end')
        sizes.append(flow.samples[-1][1])
        flow.close()
    busy.close()
    assert sizes == [20_000] * 10
