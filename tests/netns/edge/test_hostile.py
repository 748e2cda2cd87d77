# SPDX-License-Identifier: Apache-2.0

"""Unmanaged VMs that flood, beside coflows and the host's own traffic."""

import contextlib
import json
import shutil
import time

import pytest

from edge_module.tcplan import minors
from edge_module.tcplan import model
from tests.netns import gear
from tests.netns.edge import bed as beds
from tests.netns.edge import floods
from tests.netns.edge import policies

LINK_BPS = 100e6
COFLOW_BPS = 60e6
MARGIN = 0.02
GOODPUT = 1448 / 1514
WIRE = model.TreeSettings(overhead_bytes=24, frame_min_bytes=84,
                          link_packet_s=0.004)

pytestmark = [
    pytest.mark.netns,
    pytest.mark.real_time(reason='measures rates and delays under a flood'),
    pytest.mark.skipif(shutil.which('ethtool') is None,
                       reason='ethtool is not installed')]


def _site(make_bed, edge_of, link_bps, coflow_bps):
    """A bottleneck that counts like Ethernet, and three senders."""
    bed = make_bed(2)
    floods.count_like_ethernet(bed, 'h2', link_bps)
    edge = edge_of(bed, 'h1', link_bps=(1 - MARGIN) * link_bps,
                   settings=WIRE)
    member, polite, hostile, sink = (*(bed.add_vm('h1') for _ in range(3)),
                                     bed.add_vm('h2'))
    edge.set_ports()
    edge.set_policy(policies.PolicyBuilder(
        'h1', (1 - MARGIN) * link_bps).coflow(
            'C1', coflow_bps, [(member, sink, 1)],
            ceil_bps=coflow_bps).build())
    return bed, edge, member, polite, hostile, sink


def _rates(flows, warm_up_s=1.0, for_s=2.5):
    from_s = [flow.now_s() + warm_up_s for flow in flows]
    time.sleep(warm_up_s + for_s)
    return [flow.rate_bps(start_s, start_s + for_s)
            for flow, start_s in zip(flows, from_s, strict=True)]


@gear.full(
    'unit/edge/test_turns.py::'
    'test_who_floods_has_shorter_turns_until_it_stops and '
    'test_the_tree_has_them; '
    'netns/edge/test_hostile.py::test_bytes_are_those_of_the_wire[1442]')
@pytest.mark.parametrize('frame_bytes, whole', [
    (1442, False), (60, False), (1442, True)])
def test_nobody_starves_beside_a_flood(make_bed, edge_of, frame_bytes, whole):
    bed, edge, member, polite, hostile, sink = _site(
        make_bed, edge_of, LINK_BPS, COFLOW_BPS)
    addresses = floods.address_hosts(bed)
    with contextlib.ExitStack() as stack:
        stack.enter_context(floods.udp(
            # More than is left, and the machine has time for the others.
            hostile, sink.ip, frame_bytes,
            (0.5 if frame_bytes == 60 else 1) * LINK_BPS, whole))
        idle_ms = floods.ping_ms(bed, 'h1', addresses['h2'], 100)
        flows = [beds.Flow(member, sink, 5001).start(),
                 beds.Flow(polite, sink, 5002).start()]
        requests = stack.enter_context(floods.Requests(
            bed, 'h1', 'h2', addresses['h1']))
        time.sleep(0.5)
        before, start_s = edge.stats(), time.monotonic()
        # As the agent's reporter does once per second.
        edge.call('observe', edge.stats(), time.monotonic())
        managed, unmanaged = _rates(flows)
        after, took_s = edge.stats(), time.monotonic() - start_s
        busy_ms = floods.ping_ms(bed, 'h1', addresses['h2'], 100)
    for flow in flows:
        flow.close()
    assert floods.percentile(busy_ms, 0.95) <= floods.percentile(
        idle_ms, 0.95) + 5, (idle_ms[-10:], busy_ms[-10:])
    # A machine that is busy with other things is late itself.
    assert requests.ok_share() >= 0.9, requests.took_s
    assert requests.ok_share(2) == 1, requests.took_s
    assert managed > 0.95 * COFLOW_BPS * GOODPUT
    sent = {minor: 8 * (after[minor].sent_bytes - before[minor].sent_bytes)
            / took_s for minor in (minors.UNMANAGED, minors.HOST)}
    # The flood is busy for longer than its shorter turns are in force.
    assert unmanaged > 0.48 * sent[minors.UNMANAGED] * GOODPUT
    assert sent[minors.UNMANAGED] > (LINK_BPS - COFLOW_BPS) / 4
    flooded = [item for minor, item in after.items() if minors.is_port(minor)]
    # A sender of small frames may be no faster than what is left.
    assert frame_bytes == 60 or max(item.drops for item in flooded) > 100


@pytest.mark.parametrize('frame_bytes', [
    1442, pytest.param(60, marks=gear.full(
        'unit/edge/test_tcplan.py::'
        'test_bytes_are_counted_as_the_wire_does'))])
def test_bytes_are_those_of_the_wire(make_bed, edge_of, frame_bytes):
    """The queue forms where coflows are known, not at the bottleneck."""
    link_bps, coflow_bps = 40e6, 30e6
    bed, edge, member, _, hostile, sink = _site(
        make_bed, edge_of, link_bps, coflow_bps)
    with floods.udp(hostile, sink.ip, frame_bytes, 2 * link_bps):
        flow = beds.Flow(member, sink).start()
        rate_bps, = _rates([flow])
        flow.close()
    assert rate_bps > 0.95 * coflow_bps * GOODPUT


@pytest.mark.parametrize('looks', [True, False])
def test_small_segments_have_no_more_of_the_wire(make_bed, edge_of, looks):
    """Whole super-packets would be counted as if each were a frame."""
    rate_bps = 10e6
    bed, edge, member, _, _, sink = _site(make_bed, edge_of, 1e9, rate_bps)
    beds.run('ip', 'route', 'replace', '10.77.0.0/16', 'dev', 'eth0',
             'advmss', '88', netns=sink.netns)

    flow = beds.Flow(member, sink).start()
    sent_bps = _arriving_bps(bed, edge, looks)
    flow.close()
    assert (sent_bps < 1.05 * rate_bps) == looks, sent_bps


def _arriving_bps(bed, edge, looks):
    """The rate on the wire of the bottleneck after a while."""
    def arrived_bytes():
        shown, = json.loads(beds.run('ip', '-s', '-j', 'link', 'show', 'dev',
                                     'ch2', netns=bed.core))
        sent = shown['stats64']['tx']
        return sent['bytes'] + 24 * sent['packets']

    for _ in range(4):
        time.sleep(0.4)
        if looks:
            edge.call('observe', edge.stats(), time.monotonic())
    before, from_s = arrived_bytes(), time.monotonic()
    time.sleep(2)
    return 8 * (arrived_bytes() - before) / (time.monotonic() - from_s)


@pytest.mark.parametrize('segment_bytes, looks', [
    (88, True), (88, False), (1448, True)])
def test_super_packets_of_a_tap_have_no_more_of_the_wire(
        make_bed, edge_of, segment_bytes, looks):
    """The kernel counts none of their frames. Whole frames stay uncut."""
    rate_bps = 10e6
    bed, edge, member, _, _, sink = _site(make_bed, edge_of, 1e9, rate_bps)
    tap = floods.plug_tap(bed, 'h1', member)
    edge.set_ports()
    with floods.super_packets(bed, tap, sink, segment_bytes, 3 * rate_bps):
        sent_bps = _arriving_bps(bed, edge, looks)
    cuts = beds.in_netns(edge.netns, edge.enforcer.desired_tree)[
        0x11].packet_bytes
    assert (sent_bps < 1.05 * rate_bps) == (
        looks or segment_bytes == 1448), sent_bps
    assert (cuts < 2000) == (looks and segment_bytes == 88)
