# SPDX-License-Identifier: Apache-2.0

"""Unmanaged traffic is limited where it is sent, for coflows elsewhere."""

import contextlib
import json
import shutil
import time

import pytest

from edge_module.classify import classified
from edge_module.classify import nft_text
from edge_module.tcplan import minors
from tests.netns import gear
from tests.netns.edge import bed as beds
from tests.netns.edge import floods
from tests.netns.edge import frames
from tests.netns.edge import policies

LINK_BPS, COFLOW_BPS = 40e6, 30e6
UNMANAGED_BPS = 0.95 * LINK_BPS - COFLOW_BPS
GOODPUT = 1448 / 1538

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(shutil.which('ethtool') is None,
                       reason='ethtool is not installed')]
real_time = pytest.mark.real_time(reason='measures rates under a flood')


@pytest.fixture
def site(make_bed, edge_of):
    """A receiver behind a port without back-pressure, and two senders."""
    bed = make_bed(3)
    floods.count_like_ethernet(bed, 'h2', LINK_BPS)
    member, sink, elsewhere = (bed.add_vm(f'h{n}') for n in (1, 2, 1))
    hostile = [bed.add_vm('h3') for _ in range(3)]
    edges = [edge_of(bed, host, link_bps=100e6) for host in ('h1', 'h3')]
    for edge in edges:
        edge.set_ports()
    edges[0].set_policy(policies.PolicyBuilder('h1', 100e6).coflow(
        'C1', COFLOW_BPS, [(member, sink, 1)], ceil_bps=COFLOW_BPS).build())
    return bed, edges[1], member, sink, elsewhere, hostile


def _limited(edge, sink, generation=2, rate_bps=UNMANAGED_BPS):
    edge.set_policy(policies.PolicyBuilder('h3', 100e6, generation).limit(
        rate_bps, [sink] if sink is not None else []).build())


def _destinations(edge):
    return {mac for _, mac in beds.in_netns(
        edge.netns, edge.enforcer.classifier.destinations)}


def _spoofed(vm, sink):
    """From other addresses, to others than the one that delivers it."""
    return floods.raw(vm, [
        frames.ipv4(f'10.77.9.{number}', f'10.88.9.{number}', frames.UDP,
                    frames.udp(9) + bytes(900)) for number in range(8)],
        [sink.mac], LINK_BPS)


@real_time
@pytest.mark.parametrize('senders, spoofs', [
    *(pytest.param(n, False, marks=gear.full(
        'netns/edge/test_senders.py::'
        'test_a_coflow_has_its_rate_where_others_flood[3-True], where they '
        'lie about their addresses')) for n in (1, 3)), (3, True)])
def test_a_coflow_has_its_rate_where_others_flood(site, senders, spoofs):
    bed, edge, member, sink, elsewhere, hostile = site
    _limited(edge, sink)
    with contextlib.ExitStack() as stack:
        for vm in hostile[:senders]:
            stack.enter_context(
                _spoofed(vm, sink) if spoofs else floods.udp(
                    vm, sink.ip, 1442, 2 * LINK_BPS))
        flow = beds.Flow(member, sink).start()
        stack.callback(flow.close)
        time.sleep(1)
        before, from_s = edge.stats(), flow.now_s()
        time.sleep(2.5)
        rate_bps = flow.rate_bps(from_s, flow.now_s())
        took_s, after = flow.now_s() - from_s, edge.stats()
    assert rate_bps > 0.95 * COFLOW_BPS * GOODPUT
    sent_bps = 8 / took_s * (
        after[minors.of_limit(1)].sent_bytes
        - before[minors.of_limit(1)].sent_bytes)
    assert sent_bps == pytest.approx(UNMANAGED_BPS, rel=0.1)


@gear.full(
    'unit/edge/test_tcplan.py::'
    'test_limited_destinations_share_what_unmanaged_traffic_has, '
    'netns/edge/test_senders.py::test_destinations_are_named_and_forgotten; '
    'netns/edge/test_senders.py::'
    'test_a_coflow_has_its_rate_where_others_flood[3-True]')
@real_time
def test_other_destinations_are_not_limited(site):
    bed, edge, member, sink, elsewhere, hostile = site
    _limited(edge, sink, rate_bps=2e6)
    limited, free = beds.measure([
        beds.Flow(hostile[0], sink, 5001), beds.Flow(hostile[1], elsewhere)])
    assert limited < 2e6 and free > 20e6


def _unknown(edge, vm):
    """Have the edge module know all ports but one."""
    edge.bed.vms.remove(vm)
    edge.set_ports()
    edge.bed.vms.append(vm)


def _sent_bps(edge, minor, for_s=1.5):
    before, from_s = edge.stats(), time.monotonic()
    time.sleep(for_s)
    return 8 * (edge.stats()[minor].sent_bytes - before[minor].sent_bytes) / (
        time.monotonic() - from_s)


@real_time
@pytest.mark.parametrize('kind', [None, 'vxlan', 'geneve'])
def test_an_unknown_port_is_limited_too(make_bed, edge_of, kind):
    """What it sends to others than the limited host is not."""
    bed = make_bed(2)
    floods.address_hosts(bed)
    bridge = 'brv' if kind is None else bed.add_segment('net', kind)
    if bridge is None:
        pytest.skip(f'the kernel has no {kind}')
    hostile, sink, free = (bed.add_vm(host, bridge=bridge)
                           for host in ('h1', 'h2', 'h2'))
    edge = edge_of(bed, 'h1', link_bps=100e6)
    _unknown(edge, hostile)
    edge.set_policy(policies.PolicyBuilder('h1', 100e6).limit(
        5e6, [sink]).build())
    limit, whole = (minors.of_limited(1, minors.UNKNOWN_SEAT), minors.UNKNOWN)
    for vm, least_bps, most_bps, minor in (
            (sink, 4e6, 5.5e6, limit), (free, 15e6, 100e6, whole)):
        beds.Flow(hostile, vm, size_bytes=1000).close_now()
        with floods.udp(hostile, vm.ip, 1300, 30e6):
            time.sleep(0.3)
            assert least_bps < _sent_bps(edge, minor) < most_bps
    assert {sink.mac, free.mac} & _destinations(edge) == {free.mac}


def test_unknown_ports_and_strangers(site):
    """Broadcasts and packets to nobody share a class; distributed routers,
    whose peers answer by other addresses, have their destinations followed.
    """
    bed, edge, member, sink, elsewhere, hostile = site
    _unknown(edge, hostile[0])
    _limited(edge, None)
    others = minors.of_limited(0, minors.UNKNOWN_SEAT)
    before = edge.stats()[others].sent_packets
    frames.send(hostile[0], (0x88B5, bytes(400)), 20)
    frames.sweep(hostile[0], 100)
    beds.wait_for(lambda: edge.stats()[others].sent_packets >= before + 120,
                  10, 'strangers')
    assert not _destinations(edge)

    def are_followed():
        # They are forgotten after four seconds.
        frames.sweep(hostile[0], 100, source=b'\xfa\x16\x3f\0\0\1')
        return len(_destinations(edge)) == 100

    beds.wait_for(are_followed, what='the router')


def test_an_unknown_port_is_not_the_host_by_its_address(site):
    bed, edge, member, sink, elsewhere, hostile = site
    _unknown(edge, hostile[0])
    _limited(edge, None)
    shown, = json.loads(beds.run('ip', '-j', 'link', 'show', 'dev', 'brv',
                                 netns=edge.netns))
    others = minors.of_limited(0, minors.UNKNOWN_SEAT)
    before = edge.stats()[others].sent_packets
    frames.sweep(hostile[0], 100, source=bytes.fromhex(
        shown['address'].replace(':', '')))
    beds.wait_for(lambda: edge.stats()[others].sent_packets >= before + 100,
                  10, 'its frames')


def test_destinations_are_named_and_forgotten(site):
    bed, edge, member, sink, elsewhere, hostile = site
    _limited(edge, None)
    assert _destinations(edge) == set()
    beds.Flow(hostile[0], sink, size_bytes=1000).close_now()
    beds.wait_for(lambda: sink.mac in _destinations(edge), 5, 'the address')
    beds.wait_for(lambda: sink.mac not in _destinations(edge), 10, 'its end')


def test_addresses_that_sent_nothing_share_one_class(site):
    """Broadcasts too; nobody's place in the set of addresses is taken."""
    bed, edge, member, sink, elsewhere, hostile = site
    _limited(edge, None)
    table = beds.in_netns(edge.netns, edge.enforcer.desired_table)
    others = table.maps['others'][classified.MapKey(
        dict(table.hooks)[hostile[0].dev])]
    before = edge.stats()[others].sent_packets
    frames.send(hostile[0], (0x88B5, bytes(400)), 20)
    beds.wait_for(lambda: edge.stats()[others].sent_packets >= before + 20, 5,
                  'broadcasts')
    frames.sweep(hostile[0], 1500)
    beds.wait_for(lambda: edge.stats()[others].sent_packets >= before + 1000,
                  10, 'the rest')
    assert not _destinations(edge)


@pytest.mark.parametrize('how', ['nft'], indirect=True)
@pytest.mark.parametrize('limit', [
    None, 'limit rate 9999/second burst 9999 packets'])
def test_who_reaches_many_displaces_nobody(site, monkeypatch, limit):
    """Where no port has a limit, the sweeper's addresses take all places."""
    monkeypatch.setattr(nft_text, '_MOST_REACHED', 600)
    if limit is not None:
        monkeypatch.setattr(nft_text, '_REACHING_LIMIT', limit)
    bed, edge, member, sink, elsewhere, hostile = site
    _limited(edge, None)
    frames.sweep(sink, 900, back_to=hostile[0])
    frames.sweep(hostile[0], 900)
    assert len(_destinations(edge)) >= 60
    beds.Flow(hostile[1], sink, size_bytes=1000).close_now()
    assert (sink.mac in _destinations(edge)) == (limit is None)


def test_restart_finds_the_limits_as_they_are(site, edge_of):
    bed, edge, member, sink, elsewhere, hostile = site
    _limited(edge, sink)

    def standing():
        return beds.in_netns(edge.netns, edge.enforcer.classifier.dump)

    before = standing()
    again = edge_of(bed, 'h3', link_bps=100e6)
    again.set_ports()
    _limited(again, sink)
    assert not again.call('drift') and before == standing()
    # Without a controller they stay for a while.
    again.set_policy(again.enforcer.policy, n_past=1)
    assert not again.call('drift') and before == standing()
