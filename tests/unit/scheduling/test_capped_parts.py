# SPDX-License-Identifier: Apache-2.0

"""Caps of VMs as ports of the fabric."""

import math

from hypothesis import example
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from virtco import scheduling
from virtco import units
from virtco.model import cluster
from virtco.model import live
from virtco.model import uplinks
from virtco.scheduling import capped_parts

HOSTS = ('a', 'b', 'c')
# VM -> host, and its caps out and in.
Vms = dict[str, tuple[str, float, float]]
LINK_BPS = 1e9


def coflow(name, vms: Vms, flows, **more):
    """Make a coflow of (source VM, target VM, bytes)."""
    pairs = live.Pairs(dict.fromkeys(
        (vms[src][0], vms[dst][0]) for src, dst, _ in flows))
    caps = {live.Cap(host, way, vm): rate_bps
            for vm, (host, *rates_bps) in vms.items()
            for way, rate_bps in zip(('egress', 'ingress'), rates_bps)
            if rate_bps < math.inf
            and any(vm in flow[:2] for flow in flows)}
    number = {cap: i for i, cap in enumerate(caps)}
    parts = {}
    for src, dst, size_bytes in flows:
        part = (pairs.index((vms[src][0], vms[dst][0])),
                number.get(live.Cap(vms[src][0], 'egress', src), -1),
                number.get(live.Cap(vms[dst][0], 'ingress', dst), -1))
        parts[part] = parts.get(part, 0) + size_bytes
    rows = np.array(sorted(parts)).reshape(-1, 3)
    part_bytes = np.array([parts[part] for part in sorted(parts)], float)
    pair_bytes = np.bincount(rows[:, 0], part_bytes, len(pairs))
    return live.LiveCoflow(
        name, live.Flows(pairs, pair_bytes), capped=live.Capped(
            rows[:, 0], part_bytes / pair_bytes[rows[:, 0]], rows[:, 1:],
            caps) if caps else None, **more)


def ports(**options):
    rate_bps = np.full(len(HOSTS), LINK_BPS)
    return live.Ports(HOSTS, rate_bps, rate_bps, **options)


def rates(one):
    return dict(zip(one.flow_rates.pairs, one.flow_rates.rate_bps.tolist()))


def schedule(coflows, policy='mrtf', some=None, **options):
    made = scheduling.schedule(coflows, some or ports(), policy=policy,
                               now_s=0.0, **options)
    return {one.coflow_id: one for one in made.coflows}, made.left


SIZE = 1e9 / units.BITS_PER_BYTE
TWO: Vms = {'v0': ('a', 0.2e9, math.inf), 'v1': ('a', math.inf, math.inf),
            'v2': ('b', math.inf, math.inf)}


def test_bytes_take_time_at_the_slowest_cap():
    flows = [('v0', 'v2', SIZE)]
    assert coflow('x', TWO, flows).caps_s() == pytest.approx(5.0)
    assert coflow('x', {vm: (host, math.inf, math.inf)
                        for vm, (host, *_) in TWO.items()},
                  flows).caps_s() == 0.0


def test_what_a_capped_flow_cannot_use_goes_to_others():
    # The capped coflow goes first, since it is small.
    found, left = schedule([coflow('x', TWO, [('v0', 'v2', 0.1 * SIZE)]),
                            coflow('y', TWO, [('v1', 'v2', SIZE)])])
    assert found['x'].rank == 0
    assert found['x'].remaining_cct_s == pytest.approx(0.5)
    assert rates(found['x'])['a', 'b'] == pytest.approx(0.2e9)
    assert rates(found['y'])['a', 'b'] == pytest.approx(0.8e9)
    assert left.caps_bps == {('a', 'egress', 'v0'): pytest.approx(0, abs=1)}


def test_other_vms_of_the_same_pair_take_the_rest():
    found, _ = schedule([coflow('x', TWO, [('v0', 'v2', SIZE),
                                           ('v1', 'v2', SIZE)])])
    assert found['x'].remaining_cct_s == pytest.approx(5)
    assert found['x'].predicted_end_s == pytest.approx(5)
    assert rates(found['x'])['a', 'b'] == pytest.approx(1e9)


def test_a_cap_orders():
    """Less than the other, but behind a cap it takes longer."""
    found, _ = schedule([coflow('x', TWO, [('v0', 'v2', 0.3 * SIZE)]),
                         coflow('y', TWO, [('v1', 'v2', SIZE)])])
    assert [one.rank for one in found.values()] == [0, 1]
    assert list(found) == ['y', 'x']


@pytest.mark.parametrize('policy', ['sebf', 'mrtf'])
def test_a_cap_orders_by_whole_sizes_too(policy):
    vms = TWO | {'v3': ('c', math.inf, math.inf)}
    one = coflow('x', vms, [('v0', 'v2', 0.3 * SIZE)])
    other = coflow('y', vms, [('v1', 'v2', SIZE)])
    found, _ = schedule([each._replace(whole=each.flows)
                         for each in (one, other)], policy)
    assert list(found) == ['y', 'x']
    found, _ = schedule([each._replace(served=each.flows) for each in (
        coflow('x', vms, [('v0', 'v2', 0.11 * SIZE)], arrival_s=0.0),
        coflow('y', vms, [('v1', 'v2', 0.4 * SIZE)], arrival_s=1.0))], policy)
    assert list(found) == ['y', 'x']


@pytest.mark.parametrize('began_s, end_s', [(None, 3.3), (-1.0, 2.3),
                                             (-3.0, 0.5)])
def test_bytes_inside_a_host_are_waited_for(began_s, end_s):
    """They are not left on any link: rates and order are the others'."""
    one = coflow('x', TWO, [('v0', 'v2', 0.1 * SIZE)])
    found, _ = schedule([one])
    assert found['x'].predicted_end_s == pytest.approx(0.5)
    inside, _ = schedule([one._replace(least_s=3.0, began_s=began_s)],
                         size_factor=1.1)
    assert inside['x'].predicted_end_s == pytest.approx(
        max(end_s, 0.55))
    assert rates(inside['x']) == pytest.approx(rates(found['x']))


def test_a_cap_is_shared_by_the_coflows_of_its_vm():
    """Also by those that are rated later."""
    one = coflow('x', TWO, [('v0', 'v2', 0.1 * SIZE)])
    other = coflow('y', TWO, [('v0', 'v2', SIZE)])
    found, _ = schedule([one, other])
    assert rates(found['x'])['a', 'b'] == pytest.approx(0.2e9)
    assert rates(found['y'])['a', 'b'] == pytest.approx(0, abs=1)
    assert found['y'].predicted_end_s == pytest.approx(5.5)
    _, left = schedule([one])
    _, left = schedule([coflow('z', TWO, [('v1', 'v2', 1.0)])], some=left)
    found, left = schedule([other], some=left)
    assert rates(found['y'])['a', 'b'] == pytest.approx(0, abs=1)


def test_each_cap_is_its_own_vms():
    """One coflow is free, between two that are not."""
    vms = TWO | {'v3': ('c', 0.1e9, math.inf)}
    one, free, other = (coflow('x', vms, [('v0', 'v2', 0.02 * SIZE)]),
                        coflow('y', vms, [('v1', 'v2', 0.2 * SIZE)]),
                        coflow('z', vms, [('v3', 'v2', 0.3 * SIZE)]))
    found, left = schedule([one, free, other])
    assert rates(found['x'])['a', 'b'] == pytest.approx(0.2e9)
    assert rates(found['y'])['a', 'b'] == pytest.approx(0.8e9)
    assert found['y'].remaining_cct_s == pytest.approx(0.2)
    assert found['z'].remaining_cct_s == pytest.approx(3)
    assert left.caps_bps == {
        ('a', 'egress', 'v0'): pytest.approx(0, abs=1),
        ('c', 'egress', 'v3'): pytest.approx(0.1e9)}


def test_silent_parts_get_nothing():
    one = coflow('x', TWO, [('v0', 'v2', SIZE), ('v1', 'v2', 3 * SIZE)])
    sending = live.Flows(one.flows.pairs, one.flows.remaining_bytes / 4)
    found, _ = schedule([one._replace(sending=sending)])
    # A quarter of each part.
    assert rates(found['x'])['a', 'b'] == pytest.approx(1e9)
    quiet = live.Flows(one.flows.pairs, np.zeros(1))
    found, _ = schedule([one._replace(sending=quiet)])
    assert rates(found['x'])['a', 'b'] == 0
    assert found['x'].remaining_cct_s == pytest.approx(5)


def test_parts_without_caps_are_the_flows():
    found = capped_parts.split([coflow('x', {
        'v1': TWO['v1'], 'v2': TWO['v2']}, [('v1', 'v2', 1.0)])], [0, 1], {})
    assert (found.place.tolist(), found.share.tolist()) == ([0], [1.0])
    assert found.names == () and found.left(np.ones(6)) == {}


CAPS = st.sampled_from([0.1e9, 0.3e9, 2e9, math.inf, math.inf])


@st.composite
def situations(draw):
    vms = {f'v{i}': (draw(st.sampled_from(HOSTS)), draw(CAPS), draw(CAPS))
           for i in range(draw(st.integers(2, 6)))}
    ends = st.sampled_from(sorted(vms))
    flows = st.lists(st.tuples(ends, ends, st.integers(1, 9).map(
        lambda size: size * 1e7)), min_size=1, max_size=6).map(
            lambda some: [flow for flow in some
                          if vms[flow[0]][0] != vms[flow[1]][0]])
    return vms, draw(st.lists(flows.filter(len), min_size=1, max_size=4))


@given(situations(), st.sampled_from(['mrtf', 'sebf', 'fifo', 'fair']))
@example(({'v0': ('a', 1e8, 1e8), 'v1': ('a', 2e9, 1e8),
           'v2': ('b', 3e8, 1e8), 'v3': ('b', 1e8, 1e8)},
          [[('v2', 'v1', 2e7)], [('v2', 'v0', 1e7)]]), 'fifo')
def test_a_capped_vm_is_a_host_of_its_own_below_its_host(situation, policy):
    """The oracle makes each VM a host with its caps as ports, and each host
    a switch: orders, times and ends agree, and no rate of the VMs is above
    a cap.
    """
    vms, coflows = situation
    found, left = schedule(
        [coflow(str(i), vms, flows) for i, flows in enumerate(coflows)],
        policy)
    names = tuple(vms)
    most_bps = [np.minimum(np.array([vms[vm][way] for vm in names]),
                           10 * LINK_BPS) for way in (1, 2)]
    tree = cluster.Tree(
        tuple(cluster.Subtree(host, LINK_BPS, LINK_BPS) for host in HOSTS),
        {vm: vms[vm][0] for vm in names})
    above = uplinks.of(tree, names, *most_bps)
    # A switch of few slow VMs is a slow one, which no host here knows.
    above = above._replace(cap_bps=np.full(len(above.cap_bps), LINK_BPS))
    apart, _ = schedule([live.LiveCoflow(str(i), live.Flows(
        live.Pairs(dict.fromkeys(flow[:2] for flow in flows)), np.array([
            sum(size for *ends, size in flows if tuple(ends) == pair)
            for pair in dict.fromkeys(flow[:2] for flow in flows)])))
        for i, flows in enumerate(coflows)], policy, live.Ports(
            names, *most_bps, above))
    for name, one in apart.items():
        assert found[name].remaining_cct_s == pytest.approx(
            one.remaining_cct_s)
    if policy != 'fair':
        assert list(found) == list(apart)
        for name, one in apart.items():
            assert found[name].predicted_end_s == pytest.approx(
                one.predicted_end_s)
    for host in HOSTS:
        here = [vm for vm in names if vms[vm][0] == host]
        sent_bps = sum(rate_bps for one in found.values()
                       for pair, rate_bps in rates(one).items()
                       if pair[0] == host)
        sends = {src for flows in coflows for src, *_ in flows}
        assert sent_bps <= 1.0001 * min(LINK_BPS, sum(
            vms[vm][1] for vm in here if vm in sends))
    assert all(bps >= -1 for bps in left.caps_bps.values())
