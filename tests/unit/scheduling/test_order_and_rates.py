# SPDX-License-Identifier: Apache-2.0

import collections
import dataclasses
import math

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from tests import examples
from tests.unit import rows
from virtco import scheduling
from virtco.model import live
from virtco.scheduling import fabric
from virtco.scheduling import order_and_rates as scheduler
from virtco.scheduling import policies
from virtco.scheduling import starvation
from virtco_lab.sim import demands as demand_model

#: Sums of the same numbers in another order.
SLACK = 1 + 1e-8
HOSTS = ('a', 'b', 'c', 'd', 'e')
ORDERED = [name for name, policy in policies.POLICIES.items()
           if policy.sharing in (policies.SHARE_MADD, policies.SHARE_GREEDY)]


def coflow(name, *flows, **kwargs):
    return live.LiveCoflow(name, rows.columns(
        (src, dst, bits / 8) for src, dst, bits in flows), **kwargs)


def unit_ports(hosts=HOSTS, rate_bps=1.0):
    return rows.port_columns((host, rate_bps, rate_bps) for host in hosts)


def by_id(schedule):
    return {item.coflow_id: item for item in schedule.coflows}


def rates_of(item):
    return {(rate.src_host, rate.dst_host): rate.rate_bps
            for rate in rows.rates(item.flow_rates)}


def rates_left(answer, coflows):
    """Rates of the flows that have bytes left between hosts; others have 0.
    """
    left = {item.coflow_id: rows.flows(item.flows) for item in coflows}
    found = []
    for item in answer.coflows:
        for rate, flow in zip(rows.rates(item.flow_rates),
                              left[item.coflow_id], strict=True):
            assert rate[:2] == flow[:2]
            if rate.src_host != rate.dst_host and (
                    flow.remaining_bytes >= scheduler.NOTHING_BYTES):
                found.append(rate)
            else:
                assert rate.rate_bps == 0
    return found


FIG1 = (coflow('C1', ('a', 'b', 5), ('b', 'c', 1), ('c', 'a', 2)),
        coflow('C2', ('b', 'c', 1), ('c', 'b', 2)))


def test_a_flow_that_is_almost_done_leaves_its_port_to_the_next():
    """What is left of a flow is known to half a per cent; what it cannot send
    before the next policy belongs to the coflow behind.
    """
    first = coflow('A', ('b', 'a', 10.0), ('a', 'b', 0.05))
    second = coflow('B', ('a', 'c', 100.0), ('b', 'c', 1.0))
    answer = by_id(scheduling.schedule([first, second], unit_ports(),
                                       now_s=0.0))
    tail_bps = rates_of(answer['A'])['a', 'b']
    assert tail_bps == pytest.approx(0.05 / 10 + 0.05 / scheduler.HORIZON_S)
    assert rates_of(answer['B'])['a', 'c'] == pytest.approx(1 - tail_bps)
    alone = by_id(scheduling.schedule([first], unit_ports(), now_s=0.0))
    assert rates_of(alone['A'])['a', 'b'] == pytest.approx(1.0)


@st.composite
def situations(draw):
    ports = rows.port_columns(
        (host, draw(st.sampled_from([0.5, 1.0, 3.0])),
         draw(st.sampled_from([0.0, 0.7, 1.0, 2.0]))) for host in HOSTS)
    pairs = [(src, dst) for src in HOSTS for dst in HOSTS]
    coflows = []
    for i in range(draw(st.integers(0, 5))):
        chosen = draw(st.lists(st.sampled_from(pairs), min_size=0, max_size=8,
                               unique=True))
        flows = rows.columns((src, dst, draw(st.floats(0, 1e6)))
                             for src, dst in chosen)
        coflows.append(live.LiveCoflow(
            f'c{i}', flows, arrival_s=draw(st.floats(0, 10)),
            served_s=draw(st.floats(0, 10)),
            sent_bytes=draw(st.sampled_from([0.0, 10.0, 1e5])),
            priority_class=draw(st.integers(-1, 2)),
            weight=draw(st.sampled_from([0.5, 1.0, 4.0])),
            n_flows=draw(st.integers(1, 20))))
    return coflows, ports


@hypothesis.settings(deadline=None, max_examples=examples.count(120))
@hypothesis.given(situations(), st.sampled_from(sorted(policies.POLICIES)),
                  st.sampled_from([math.inf, 5.0]))
def test_rates_fit_and_conserve_work(situation, policy, theta_s):
    coflows, ports = situation
    answer = scheduling.schedule(coflows, ports, policy=policy, now_s=10.0,
                                 theta_s=theta_s)
    assert [item.rank for item in answer.coflows] == list(range(len(coflows)))
    left = {('out', port.host): port.egress_bps for port in rows.ports(ports)}
    left |= {('in', port.host): port.ingress_bps
             for port in rows.ports(ports)}
    size = {key: value for key, value in left.items()}
    wanting = []
    for rate in rates_left(answer, coflows):
        assert rate.rate_bps >= 0
        left['out', rate.src_host] -= rate.rate_bps
        left['in', rate.dst_host] -= rate.rate_bps
        wanting.append((('out', rate.src_host), ('in', rate.dst_host)))
    assert all(left[key] >= -1e-6 * size[key] for key in left)
    for src, dst in wanting:
        assert left[src] <= 1e-6 * size[src] or left[dst] <= 1e-6 * size[dst]


@hypothesis.settings(deadline=None, max_examples=examples.count(60))
@hypothesis.given(situations())
def test_what_is_left_of_a_port_is_said(situation):
    coflows, ports = situation
    answer = scheduling.schedule(coflows, ports, now_s=10.0)
    rates = rates_left(answer, coflows)
    assert answer.left.hosts == HOSTS
    for port, left in zip(rows.ports(ports), rows.ports(answer.left)):
        assert port.egress_bps - left.egress_bps == pytest.approx(sum(
            r.rate_bps for r in rates if r.src_host == port.host), abs=1e-6)
        assert port.ingress_bps - left.ingress_bps == pytest.approx(sum(
            r.rate_bps for r in rates if r.dst_host == port.host), abs=1e-6)


@hypothesis.settings(deadline=None, max_examples=examples.count(60))
@hypothesis.given(situations(), st.sampled_from(
    [name for name in ORDERED if policies.POLICIES[name].trickle == 0
     and policies.POLICIES[name].sharing == policies.SHARE_MADD]))
def test_first_coflow_ends_at_its_bottleneck(situation, policy):
    """MADD: nothing of the head ends after its t, nothing need end before.

    The head is the first that can end at all; a coflow before it that needs
    a dead port gets only what is left over.
    """
    coflows, ports = situation
    answer = scheduling.schedule(coflows, ports, policy=policy, now_s=0.0)
    head = next((item for item in answer.coflows
                 if 0 < item.remaining_cct_s < math.inf),
                None)
    if head is None:
        return
    remaining = {flow[:2]: flow.remaining_bytes * 8
                 for item in coflows if item.coflow_id == head.coflow_id
                 for flow in rows.flows(item.flows)
                 if flow.src_host != flow.dst_host
                 and flow.remaining_bytes >= scheduler.NOTHING_BYTES}
    rates = rates_of(head)
    slowest_s = max(size / rates[pair] for pair, size in remaining.items())
    assert slowest_s == pytest.approx(head.remaining_cct_s, rel=1e-6)
    if head.rank == 0:
        assert head.predicted_end_s == pytest.approx(head.remaining_cct_s)


def sum_of_prefixes_s(coflows, ports):
    ahead, total_s = collections.Counter(), 0.0
    rate_bps = {('out', port.host): port.egress_bps
                for port in rows.ports(ports)}
    rate_bps |= {('in', port.host): port.ingress_bps
                 for port in rows.ports(ports)}
    for item in coflows:
        own = set()
        for flow in rows.flows(item.flows):
            if flow.src_host == flow.dst_host or (
                    flow.remaining_bytes < scheduler.NOTHING_BYTES):
                continue
            for end in (('out', flow.src_host), ('in', flow.dst_host)):
                ahead[end] += flow.remaining_bytes * 8
                own.add(end)
        total_s += item.weight * max(
            [ahead[end] / rate_bps[end] for end in own], default=0.0)
    return total_s


@hypothesis.settings(deadline=None, max_examples=examples.count(100))
@hypothesis.given(situations(), st.sampled_from([math.inf, 5.0]))
def test_no_two_neighbours_gain_by_a_swap(situation, theta_s):
    """Except across classes, and among the starving."""
    coflows, ports = situation
    ports = dataclasses.replace(
        ports, ingress_bps=np.maximum(0.5, ports.ingress_bps))
    known = {item.coflow_id: item for item in coflows}
    plain, swapped = (scheduling.schedule(
        coflows, ports, policy=policy, now_s=10.0, theta_s=theta_s)
        for policy in ('mrtf', 'mrtf+swap'))

    def starves(item):
        found = known[item.coflow_id]
        return starvation.is_starving(found, 10.0, theta_s) and any(
            src != dst and left_bytes >= scheduler.NOTHING_BYTES
            for (src, dst), left_bytes in zip(
                found.flows.pairs, found.flows.remaining_bytes))

    def level(item):
        return not starves(item), known[item.coflow_id].priority_class

    assert [*map(level, plain.coflows)] == [*map(level, swapped.coflows)]
    order = [known[item.coflow_id] for item in swapped.coflows]
    sum_s = sum_of_prefixes_s(order, ports)
    assert sum_s <= SLACK * sum_of_prefixes_s(
        [known[item.coflow_id] for item in plain.coflows], ports)
    for i in range(len(order) - 1):
        first, second = swapped.coflows[i:i + 2]
        if level(first) == level(second) and not starves(first):
            other = [*order[:i], order[i + 1], order[i], *order[i + 2:]]
            assert sum_s <= SLACK * sum_of_prefixes_s(other, ports)


def test_flows_of_a_madd_coflow_end_together():
    """On full ports there is nothing to back-fill: exact MADD is left."""
    item = coflow('x', ('a', 'b', 6), ('a', 'c', 3), ('d', 'b', 0.0))
    wide = rows.port_columns([('a', 1, 1), ('b', 9, 2 / 3), ('c', 9, 1 / 3),
                              ('d', 9, 9)])
    rates = rates_of(scheduling.schedule([item], wide, now_s=0).coflows[0])
    assert rates == pytest.approx({('a', 'b'): 2 / 3, ('a', 'c'): 1 / 3,
                                   ('d', 'b'): 0.0})


@hypothesis.settings(deadline=None, max_examples=40)
@hypothesis.given(st.lists(st.floats(1.0, 1e9), min_size=2, max_size=4))
def test_destinations_have_weights_of_their_bytes(sizes):
    """VirtCO Cor. 1, w = p / s, where a sender is the bottleneck."""
    head = coflow('head', *(('a', dst, bits)
                            for dst, bits in zip(HOSTS[1:], sizes)))
    behind = coflow('behind', *(('a', dst, 1e12) for dst in HOSTS[1:]))
    rates = rates_of(scheduling.schedule(
        [behind, head], unit_ports(), now_s=0).coflows[0])
    for dst, bits in zip(HOSTS[1:], sizes):
        assert rates['a', dst] == pytest.approx(bits / sum(sizes))


def test_figure_1_order_and_prediction():
    answer = scheduling.schedule(FIG1, unit_ports(), now_s=100.0)
    assert [item.coflow_id for item in answer.coflows] == ['C2', 'C1']
    assert [item.remaining_cct_s for item in answer.coflows] == [2.0, 5.0]
    # Both load a -> b's ingress: 2 for C2, then 5 for C1 (average 4.5).
    assert [item.predicted_end_s for item in answer.coflows] == [102.0, 107.0]


def test_mrtf_preempts_by_what_remains():
    nearly_done = coflow('old', ('a', 'b', 1), sent_bytes=100)
    small = coflow('new', ('a', 'b', 2), arrival_s=5)
    first = scheduling.schedule([small, nearly_done], unit_ports(), now_s=5)
    assert first.coflows[0].coflow_id == 'old'
    first = scheduling.schedule([small, nearly_done], unit_ports(), now_s=5,
                                policy='sebf')
    assert first.coflows[0].coflow_id == 'new'


def test_sebf_orders_by_bytes_between_hosts():
    # What stays inside of a host is sent, and no port has seen it.
    local = coflow('local', ('a', 'b', 3), sent_bytes=1000, whole=live.Flows(
        live.Pairs([('a', 'b')]), np.array([3.0])))
    side = coflow('side', ('a', 'b', 1), ('b', 'a', 1), sent_bytes=6,
                  whole=live.Flows(live.Pairs([('a', 'b'), ('b', 'a')]),
                                   np.array([4.0, 4.0])))
    answer = scheduling.schedule([side, local], unit_ports(), now_s=0,
                                 policy='sebf')
    assert [item.coflow_id for item in answer.coflows] == ['local', 'side']


def test_fifo_and_priority():
    early = coflow('early', ('a', 'b', 9), arrival_s=1, priority_class=1)
    late = coflow('late', ('a', 'b', 1), arrival_s=2)

    def head(policy):
        return scheduling.schedule([late, early], unit_ports(), now_s=3,
                                   policy=policy).coflows[0].coflow_id
    assert head('fifo') == head('fifo+') == 'early'
    assert head('priority') == head('mrtf') == 'late'


def test_fifo_plus_leaves_a_trickle():
    items = [coflow(f'c{i}', ('a', 'b', 10), arrival_s=i) for i in range(4)]
    answer = scheduling.schedule(items, unit_ports(), now_s=9, policy='fifo+')
    rates = [item.flow_rates.rate_bps[0] for item in answer.coflows]
    assert rates == pytest.approx([0.91, 0.03, 0.03, 0.03])
    many = [coflow(f'c{i}', ('a', 'b', 10), arrival_s=i) for i in range(101)]
    answer = scheduling.schedule(many, unit_ports(), now_s=9, policy='fifo+')
    assert answer.coflows[0].flow_rates.rate_bps[0] == pytest.approx(0.5)
    assert answer.coflows[9].flow_rates.rate_bps[0] == pytest.approx(0.005)


def test_remaining_times_count_by_weight():
    items = [coflow('light', ('a', 'b', 10)),
             coflow('heavy', ('a', 'b', 30), weight=4.0),
             coflow('longest', ('a', 'b', 50), weight=4.0)]
    for policy in ('mrtf', 'mrtf+swap'):
        answer = scheduling.schedule(items, unit_ports(), now_s=0,
                                     policy=policy)
        assert [one.coflow_id for one in answer.coflows] == [
            'heavy', 'light', 'longest'], policy


def test_swaps_let_a_coflow_pass_that_has_to_wait_anyway():
    """B waits for A at a; C, though larger, goes before it at b."""
    items = [coflow('A', ('a', 'a2', 5), ('e', 'e2', 10)),
             coflow('B', ('a', 'b2', 12), ('b', 'c', 9)),
             coflow('C', ('b', 'd', 13))]
    ports = unit_ports((*HOSTS, 'a2', 'b2', 'e2'))

    def order(policy, weight=1.0):
        some = [*items[:2], items[2]._replace(weight=weight)]
        return ''.join(one.coflow_id for one in scheduling.schedule(
            some, ports, now_s=0, policy=policy).coflows)

    assert (order('mrtf'), order('mrtf+swap')) == ('ABC', 'ACB')
    # B ends at 22 instead of 17, C at 13 instead of 22: gained above 5/9.
    assert (order('mrtf+swap', 0.6), order('mrtf+swap', 0.5)) == (
        'ACB', 'ABC')


def test_times_of_training_jobs_count_by_weight():
    """The first job by intensity has 6 s to go, as 3 at its weight."""
    def order(weight):
        return ''.join(one.coflow_id for one in scheduling.schedule([
            coflow('J', ('a', 'b', 6), compute_s=60.0, weight=weight),
            coflow('K', ('a', 'b', 2), compute_s=1.0),
            coflow('L', ('a', 'b', 4))], unit_ports(), now_s=0).coflows)

    assert (order(2.0), order(1.0)) == ('JKL', 'LJK')


def test_weighted_fair_shares_by_weight():
    items = [coflow('one', ('a', 'b', 10), weight=1.0),
             coflow('three', ('a', 'c', 30), weight=3.0)]
    answer = by_id(scheduling.schedule(items, unit_ports(), now_s=0,
                                       policy='weighted-fair'))
    assert rates_of(answer['one'])['a', 'b'] == pytest.approx(0.25)
    assert rates_of(answer['three'])['a', 'c'] == pytest.approx(0.75)


def test_fair_counts_vm_flows():
    items = [coflow('thin', ('a', 'b', 10)),
             coflow('wide', ('a', 'c', 30), n_flows=4)]
    answer = by_id(scheduling.schedule(items, unit_ports(), now_s=0,
                                       policy='fair'))
    assert rates_of(answer['thin'])['a', 'b'] == pytest.approx(0.2)
    assert rates_of(answer['wide'])['a', 'c'] == pytest.approx(0.8)


def test_starving_coflows_share_the_front():
    big = [coflow(f'big{i}', ('a', 'b', 100 + i)) for i in range(2)]
    small = coflow('small', ('a', 'b', 1), arrival_s=60.0)
    answer = scheduling.schedule([small, *big], unit_ports(), now_s=60.0,
                                 theta_s=60.0)
    assert answer.coflows[2].coflow_id == 'small'
    assert [item.flow_rates.rate_bps[0] for item in answer.coflows] == (
        pytest.approx([0.5, 0.5, 0.0]))
    again = scheduling.schedule([small, *big], unit_ports(), now_s=59.9,
                                theta_s=60.0)
    assert again.coflows[0].coflow_id == 'small'


def served(*flows):
    return rows.columns(flows)


@pytest.mark.parametrize('served_bits, first', [
    (0.0, 'unsized'), (0.9, 'unsized'), (1.9, 'unsized'), (17.0, 'sized'),
    (40.0, 'sized')])
def test_who_has_no_size_goes_by_what_it_was_served(served_bits, first):
    """Ports of 1 bit/s: queues end at 0.5, 1, 2, 4, 8, 16 and 32 s."""
    sized = coflow('sized', ('a', 'b', 20 / 8))
    # What it seems to have left says nothing.
    unsized = coflow('unsized', ('a', 'b', 1e9), served=served(
        ('a', 'b', served_bits / 8), ('c', 'd', served_bits / 8)))
    for policy in ('mrtf', 'sebf'):
        answer = scheduling.schedule([sized, unsized], unit_ports(), now_s=0,
                                     policy=policy)
        assert answer.coflows[0].coflow_id == first
    # Nor does anything but the arrival where the order goes by it.
    answer = scheduling.schedule([sized, unsized], unit_ports(), now_s=0,
                                 policy='fifo')
    assert answer.coflows[0].coflow_id == 'sized'


def test_within_a_queue_the_first_to_arrive_goes_first():
    coflows = [coflow(name, ('a', 'b', 1), arrival_s=arrival_s,
                      weight=weight, served=served(('a', 'b', bits / 8)))
               for name, arrival_s, weight, bits in (
                   ('late', 2.0, 1.0, 2.1), ('early', 1.0, 1.0, 3.9),
                   ('next queue', 0.0, 1.0, 4.0), ('heavy', 3.0, 3.0, 4.5))]
    answer = scheduling.schedule(coflows, unit_ports(), now_s=5)
    assert [one.coflow_id for one in answer.coflows] == [
        'heavy', 'early', 'late', 'next queue']


def test_traffic_inside_a_host_is_free():
    item = coflow('x', ('a', 'a', 5), ('a', 'b', 0))
    answer = scheduling.schedule([item], unit_ports(), now_s=7.0).coflows[0]
    assert (answer.remaining_cct_s, answer.predicted_end_s) == (0.0, 7.0)
    assert rates_of(answer) == {('a', 'a'): 0.0, ('a', 'b'): 0.0}


@pytest.mark.parametrize('left_bps, is_full', [(0.5, True), (2.0, False)])
def test_a_port_with_a_billionth_left_is_full(left_bps, is_full):
    """What rounding leaves of a rate is nobody's."""
    ports = rows.port_columns([('a', 1e9 - left_bps, 1e9), ('b', 1e9, 1e9),
                               ('c', 1e9, 1e9)])
    answer = by_id(scheduling.schedule(
        [coflow('first', ('a', 'b', 1e9)),
         coflow('second', ('c', 'b', 1e9), arrival_s=1.0)],
        ports, policy='fifo', now_s=2.0))
    assert rates_of(answer['first'])['a', 'b'] == 1e9 - left_bps
    assert rates_of(answer['second']).get(('c', 'b'), 0.0) == (
        0.0 if is_full else left_bps)


def test_dead_port_is_never_served():
    ports = rows.port_columns([('a', 1, 1), ('b', 1, 0), ('c', 1, 1)])
    item = coflow('x', ('a', 'b', 5), ('a', 'c', 1))
    answer = scheduling.schedule([item], ports, now_s=0.0).coflows[0]
    assert answer.remaining_cct_s == answer.predicted_end_s == math.inf
    assert rates_of(answer) == {('a', 'b'): 0.0, ('a', 'c'): 1.0}


def test_nothing_to_schedule():
    answer = scheduling.schedule([], live.NO_PORTS, now_s=1.0)
    assert (answer.now_s, answer.coflows, answer.left.hosts) == (1.0, (), ())


def test_kernels_are_compiled_once_for_all_sizes():
    """Also for coflows of which no VM pair runs yet."""
    pair = fabric.Demand(*np.divmod(np.array([1]), 2), np.ones(1), np.ones(1))
    none = fabric.Demand(*np.divmod(np.zeros(0, np.int64), 2), np.zeros(0),
                         np.zeros(0))
    kinds = [[column.dtype for column in demand_model.fabric_of(
                np.ones(4), demands) if isinstance(column, np.ndarray)]
             for demands in ([pair], [none], [])]
    assert kinds[0] == kinds[1] == kinds[2]


def test_leftovers_go_in_order_and_by_what_is_left():
    """Both others need a full port: the second gets all, the third none."""
    def coflow(name, *flows):
        return live.LiveCoflow(name, rows.columns(flows))
    ports = rows.port_columns((f'h{i}', 8e6, 8e6) for i in range(5))
    made = scheduling.schedule([
        coflow('first', ('h0', 'h1', 1e6)),
        coflow('second', ('h0', 'h2', 3e6), ('h3', 'h2', 1e6),
               ('h3', 'h4', 3e6)),
        coflow('third', ('h0', 'h1', 9e6), ('h3', 'h4', 9e6))],
        ports, now_s=0.0)
    rates = {entry.coflow_id: entry.flow_rates.rate_bps.tolist()
             for entry in made.coflows}
    assert rates == {'first': [8e6], 'second': [0.0, 2e6, 6e6],
                     'third': [0.0, 0.0]}


def test_side_flows_get_what_madd_needs_while_others_can_use_the_rest():
    ports = rows.port_columns((f'h{i}', 19.1e6, 19.1e6) for i in range(4))
    made = scheduling.schedule([
        live.LiveCoflow('a', rows.columns([('h0', 'h1', 1.4e6),
                                           ('h1', 'h0', 0.15e6)])),
        live.LiveCoflow('b', rows.columns([('h3', 'h0', 10e6)]))],
        ports, now_s=0.0)
    side_bps = 19.1e6 * 0.15 / 1.4
    assert [entry.flow_rates.rate_bps.tolist() for entry in made.coflows] == [
        pytest.approx([19.1e6, side_bps]), pytest.approx([19.1e6 - side_bps])]


def test_those_who_compute_in_turn_go_by_how_much_waits():
    """Crux's rule between them; the others by MRTF, the shorter leader
    first.
    """
    coflows = [
        coflow('short', ('a', 'b', 1.0), compute_s=1.0),
        coflow('intense', ('a', 'c', 3.0), compute_s=4.0, workers=8),
        coflow('small', ('a', 'd', 2.0)), coflow('large', ('a', 'b', 4.0))]
    hosts = ('a', 'b', 'c', 'd')
    for policy, order in (
            ('mrtf', ['small', 'intense', 'short', 'large']),
            ('fifo', ['short', 'intense', 'small', 'large'])):
        made = scheduling.schedule(coflows, unit_ports(hosts), policy=policy,
                                   now_s=0.0)
        assert [item.coflow_id for item in made.coflows] == order


def test_a_whole_coflow_tells_how_much_waits_for_it():
    """Not what is left of it: the order would change as it is sent."""
    whole = live.Flows(live.Pairs([('a', 'b')]), np.array([10.0]))
    coflows = [
        coflow('one', ('a', 'b', 1.0), compute_s=4.0, whole=whole),
        coflow('two', ('a', 'c', 4.0), compute_s=2.0)]
    made = scheduling.schedule(coflows, unit_ports(('a', 'b', 'c')),
                               now_s=0.0)
    assert [item.coflow_id for item in made.coflows] == ['two', 'one']


def _silenced(one, silent):
    """Without the bytes of the flows at these places."""
    sends = one.flows.remaining_bytes.copy()
    sends[list(silent)] = 0.0
    return one._replace(sending=live.Flows(one.flows.pairs, sends))


def test_a_silent_flow_leaves_its_port_to_the_rest_of_its_coflow():
    one = coflow('C', ('a', 'b', 3), ('a', 'c', 1))
    item, = scheduling.schedule([_silenced(one, [0])], unit_ports(),
                                now_s=0.0).coflows
    assert rates_of(item) == {('a', 'b'): 0, ('a', 'c'): pytest.approx(1.0)}
    assert item.remaining_cct_s == pytest.approx(4.0)
    assert item.predicted_end_s == pytest.approx(1.0)


def test_who_falls_silent_comes_no_earlier():
    """C would be the shorter one by what still sends."""
    one, other = (coflow('C', ('a', 'b', 3), ('a', 'c', 1)),
                  coflow('D', ('a', 'd', 2)))
    made = scheduling.schedule([_silenced(one, [0]), other], unit_ports(),
                               now_s=0.0)
    assert [item.coflow_id for item in made.coflows] == ['D', 'C']


@hypothesis.given(st.data())
def test_the_order_is_by_all_that_is_left_and_the_silent_get_nothing(data):
    pair = st.tuples(st.sampled_from(HOSTS), st.sampled_from(HOSTS)).filter(
        lambda ends: ends[0] != ends[1])
    all_flows = data.draw(st.lists(st.dictionaries(
        pair, st.integers(1, 50), min_size=2, max_size=5),
        min_size=1, max_size=4))
    coflows = [coflow(f'C{i}', *((*ends, bits) for ends, bits
                                 in flows.items()))
               for i, flows in enumerate(all_flows)]
    silent = [data.draw(st.sets(st.integers(0, len(flows) - 1),
                                max_size=len(flows) - 1))
              for flows in all_flows]
    policy = data.draw(st.sampled_from(ORDERED))
    before, after = (scheduling.schedule(
        some, unit_ports(), policy=policy, now_s=0.0) for some in (
            coflows, [_silenced(*both) for both in zip(coflows, silent)]))
    assert ([item.coflow_id for item in before.coflows]
            == [item.coflow_id for item in after.coflows])
    used = dict.fromkeys(HOSTS, 0.0)
    for item in after.coflows:
        number = int(item.coflow_id[1:])
        rates = rates_of(item)
        assert not any(rates[pair] for place, pair
                       in enumerate(all_flows[number])
                       if place in silent[number])
        if len(coflows) == 1:  # as if there were no others
            alone, = scheduling.schedule([coflow('C0', *(
                (*pair, bits) for place, (pair, bits)
                in enumerate(all_flows[0].items())
                if place not in silent[0]))],
                unit_ports(), policy=policy, now_s=0.0).coflows
            assert {pair: rate_bps for pair, rate_bps in rates.items()
                    if rate_bps} == pytest.approx(
                {pair: rate_bps for pair, rate_bps
                 in rates_of(alone).items() if rate_bps})
        for (src, _), rate_bps in rates.items():
            used[src] += rate_bps
    assert all(rate_bps <= SLACK for rate_bps in used.values())
