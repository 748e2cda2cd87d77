# SPDX-License-Identifier: Apache-2.0

"""Flows with guarantees that borrow, or share as TCP does."""

import math

from hypothesis import example
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest

from virtco import compiled
from virtco.fluid import flow_kernels

LINK_BPS = 8e6
# Of a link: how close the search for a fixed point comes.
CLOSE = 3e-3
MB = 1e6


def _flows(rows, n_hosts, receiver, ceil=1.0, kernels=flow_kernels):
    """Rows of source, destination, rank and guarantee, in terms of a link."""
    src, dst, rank, guarantee = (np.array(column) for column in zip(*rows))
    n_flows = len(rows)
    flows = kernels.Flows(
        np.full(2 * n_hosts, LINK_BPS), src, n_hosts + dst,
        np.arange(n_flows), n_flows, np.full(n_flows, MB), np.zeros(n_flows),
        receiver)
    flows.guarantee, flows.rank = LINK_BPS * guarantee, rank
    flows.ceil = LINK_BPS * np.maximum(guarantee, ceil)
    flows.weight = np.maximum(1e-3, guarantee)
    return flows


def _rates(rows, n_hosts, receiver, ceil=1.0, kernels=flow_kernels):
    flows = _flows(rows, n_hosts, receiver, ceil, kernels)
    kernels.step(flows, 0.0)
    return np.asarray(flows.rate) / LINK_BPS


def _both(rows, n_hosts, ceil=1.0):
    return [_rates(rows, n_hosts, receiver, ceil)
            for receiver in ('tcp', 'order')]


def test_a_sender_lends_to_the_first_rank():
    for rates in _both([(0, 1, 1, 0.3), (0, 2, 0, 0.2)], 3):
        assert rates == pytest.approx([0.3, 0.7], abs=CLOSE)


def test_the_first_rank_leaves_to_the_next_what_it_cannot_take():
    for rates in _both([(0, 1, 0, 0.1), (0, 2, 1, 0.1), (0, 3, 2, 0.1)], 4,
                       np.array([0.3, 0.4, 1.0])):
        assert rates == pytest.approx([0.3, 0.4, 0.3], abs=CLOSE)


def test_a_receiver_knows_ranks_or_does_not():
    rows = [(0, 2, 0, 0.2), (1, 2, 1, 0.1)]
    assert _rates(rows, 3, 'order') == pytest.approx([0.9, 0.1])
    assert _rates(rows, 3, 'tcp') == pytest.approx([0.5, 0.5])


def test_a_sender_gives_to_others_what_a_receiver_cuts():
    # Three to host 4, of which host 0 would rather send all of its link.
    rows = [(0, 4, 0, 0.1), (1, 4, 1, 0.1), (2, 4, 1, 0.1), (0, 3, 1, 0.1)]
    third = 1 / 3
    assert _rates(rows, 5, 'tcp') == pytest.approx(
        [third, third, third, 2 * third], abs=CLOSE)
    # Who could have more is cut no less for those who cannot.
    assert _rates(rows, 5, 'tcp', np.array([1.0, 0.2, 1.0, 1.0])) == (
        pytest.approx([0.4, 0.2, 0.4, 0.6], abs=CLOSE))


def test_flows_of_a_rank_share_by_weight():
    for rates in _both([(0, 1, 0, 0.1), (0, 2, 0, 0.3)], 3):
        assert rates == pytest.approx([0.25, 0.75], abs=CLOSE)


def test_guarantees_beyond_the_link_are_cut():
    rows = [(0, 2, 0, 0.9), (1, 2, 1, 0.3)]
    assert _rates(rows, 3, 'order') == pytest.approx([0.75, 0.25])
    assert _rates(rows, 3, 'tcp') == pytest.approx([0.5, 0.5])
    for rates in _both([(0, 1, 0, 0.9), (0, 2, 1, 0.3)], 3):
        assert rates == pytest.approx([0.75, 0.25], abs=CLOSE)


@st.composite
def demands(draw):
    """Number of hosts, flows whose guarantees fit at both ends, ceils."""
    n_hosts = draw(st.integers(2, 6))
    rows = draw(st.lists(st.tuples(
        st.integers(0, n_hosts - 1), st.integers(0, n_hosts - 1),
        st.integers(0, 4), st.floats(0, 1), st.floats(0, 1)),
        min_size=1, max_size=20))
    src, dst, rank, share, ceil = (np.array(row) for row in zip(*rows))
    most = max(1.0, *np.bincount(src, share), *np.bincount(dst, share))
    return n_hosts, [*zip(src, dst, rank, share / most)], ceil


@settings(deadline=None, max_examples=40)
@given(demands())
def test_no_link_carries_more_than_it_can(made):
    n_hosts, rows, ceil = made
    src, dst, _, guarantee = (np.array(column) for column in zip(*rows))
    for rates in _both(rows, n_hosts, ceil):
        assert (rates >= 0).all()
        assert (rates <= np.maximum(guarantee, ceil) + 1e-6).all()
        for ends in (src, dst):
            assert np.bincount(ends, rates).max() <= 1 + 1e-6


@settings(deadline=None, max_examples=40)
@given(demands())
def test_order_keeps_guarantees_and_leaves_nothing_idle(made):
    """Strict rank: at one of its ends all lower ranks have guarantees only."""
    n_hosts, rows, ceil = made
    src, dst, rank, guarantee = (np.array(column) for column in zip(*rows))
    rates = _rates(rows, n_hosts, 'order', ceil)
    borrowed = rates - guarantee
    assert (borrowed >= -1e-6).all()
    for i in np.flatnonzero(rates < np.maximum(guarantee, ceil) - 1e-6):
        assert any(
            (borrowed[(rank > rank[i]) & (ends == ends[i])] <= 1e-5).all()
            and rates[ends == ends[i]].sum() >= 1 - 1e-6
            for ends in (src, dst))


@settings(deadline=None, max_examples=40)
@given(demands())
def test_a_sender_keeps_ranks_where_receivers_do_not(made):
    """Who is neither cut by a receiver nor at its ceil is before all lower
    ones at its sender.
    """
    n_hosts, rows, ceil = made
    src, dst, rank, guarantee = (np.array(column) for column in zip(*rows))
    flows = _flows(rows, n_hosts, 'tcp', ceil)
    flow_kernels.step(flows, 0.0)
    rates = np.asarray(flows.rate) / LINK_BPS
    most = np.minimum(np.asarray(flows.level)[n_hosts + dst] / LINK_BPS,
                      np.maximum(guarantee, ceil))
    load = np.bincount(dst, rates, n_hosts)[dst]
    # Where the search ended early a full receiver cuts all a little more.
    for i in np.flatnonzero((rates < most - 0.01) & (load < 1 - 0.01)):
        lower = (rank > rank[i]) & (src == src[i])
        assert ((rates - guarantee)[lower] <= 1e-5).all()


@settings(deadline=None, max_examples=40)
@given(demands())
# The bound on steps ends the first search 8 % of the link early.
@example((2, [(0, 0, 0, 0.0)] * 6 + [
    (0, 0, 0, 0.36764705882352944), (0, 1, 0, 0.0),
    (0, 1, 0, 0.6274509803921569), (1, 1, 0, 0.37254901960784315)],
    np.array([0.0] * 7 + [1.0, 0.0, 0.0])))
def test_the_search_goes_on_where_it_ended(made):
    n_hosts, rows, ceil = made
    flows = _flows(rows, n_hosts, 'tcp', ceil)
    flow_kernels.step(flows, 0.0)
    first = np.array(flows.rate)
    flows.is_rated = False
    flow_kernels.step(flows, 0.0)
    assert np.asarray(flows.rate) == pytest.approx(first, abs=0.1 * LINK_BPS)


def _level(wish, weight, room):
    """Rate per weight that cuts wishes to what there is room for."""
    order = np.argsort(wish / weight)
    for n, i in enumerate(order):
        level = room / weight[order[n:]].sum()
        if wish[i] > level * weight[i]:
            return level
        room -= wish[i]
    return math.inf


def _offers(src, rank, guarantee, most, weight):
    """What senders' links of rate 1 offer under limits of their flows."""
    rates = np.minimum(guarantee, most)
    for host in set(src.tolist()):
        its = src == host
        rates[its] /= max(1.0, rates[its].sum())
        for r in range(rank.max() + 1):
            some = its & (rank == r)
            wish = (most - rates)[some]
            room = max(0.0, 1.0 - rates[its].sum())
            rates[some] += np.minimum(wish, weight[some] * _level(
                wish, weight[some], room))
    return rates


@settings(deadline=None, max_examples=40)
@given(demands())
# 35 steps, and more than 60.
@example((2, [(1, 1, 1, 0.1), (0, 0, 1, 0.3), (1, 0, 1, 0.0), (0, 0, 0, 0.0)],
          np.array([1.0, 1.0, 0.5, 1.0])))
@example((2, [(0, 0, 2, 0.3), (1, 1, 2, 0.3), (0, 1, 2, 0.0), (1, 1, 2, 0.0)],
          np.array([1.0, 1.0, 0.9, 1.0])))
def test_search_for_the_fixed_point(made):
    """Step by step; half of the way after 15 steps, and 60 at most."""
    n_hosts, rows, ceil = made
    src, dst, rank, guarantee = (np.array(column) for column in zip(*rows))
    weight = np.maximum(1e-3, guarantee)
    least = 1 / np.maximum(1, np.bincount(dst, minlength=n_hosts))
    level = np.ones(n_hosts)
    for n in range(60):
        most = np.minimum(level[dst], np.maximum(guarantee, ceil))
        rates = _offers(src, rank, guarantee, most, weight)
        load = np.bincount(dst, rates, n_hosts)
        n_bound = np.bincount(dst, rates >= 0.999 * level[dst], n_hosts)
        wanted = level.copy()
        for host in range(n_hosts):
            if load[host] > 1.001:
                its = rates[dst == host]
                wanted[host] = _level(its, np.ones(len(its)), 1.0)
            elif load[host] < 0.999 and level[host] < 1:
                wanted[host] += (1 - load[host]) / max(1e-9, n_bound[host])
        if (wanted == level).all():
            break
        level = np.clip((wanted + level) / 2 if n >= 15 else wanted, least, 1)
    assert _rates(rows, n_hosts, 'tcp', ceil) == pytest.approx(
        rates * np.minimum(1, 1 / np.maximum(load, 1e-9))[dst], abs=1e-8)


PLAIN = compiled.plain('virtco.fluid.flow_kernels')


@settings(deadline=None, max_examples=40)
@given(demands(), st.sampled_from(['order', 'tcp', '']),
       st.lists(st.booleans(), min_size=20, max_size=20))
def test_compiled_or_not_the_same(made, receiver, is_free):
    n_hosts, rows, ceil = made
    ends = []
    for kernels in (flow_kernels, PLAIN):
        flows = _flows(rows, n_hosts, receiver, ceil, kernels)
        flows.is_free = np.array(is_free[:len(rows)], np.uint8)
        kernels.step(flows, 0.5)
        np.asarray(flows.stuck)[0] = MB / 10
        flows.is_rated = False
        for _ in rows:
            kernels.step(flows, 1e9)
        ends.append([*flows.end_s, *flows.left, *flows.in_class])
    assert ends[0] == ends[1]


def _tcp(ends, cap_bps):
    """Rates of free flows over two links each."""
    src, dst = (np.array(column) for column in zip(*ends))
    flows = flow_kernels.Flows(
        cap_bps, src, dst, np.zeros_like(src), 1, np.full(len(src), MB),
        np.zeros(len(src)))
    flows.is_free = np.ones(len(src), np.uint8)
    flow_kernels.step(flows, 0.0)
    return np.asarray(flows.rate)


def test_tcp_gives_a_flow_over_two_full_links_a_third():
    assert _tcp([(0, 2), (1, 3), (0, 3)], np.full(4, 3e7)) == pytest.approx(
        [2e7, 2e7, 1e7], rel=1e-3)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(4, 7)), min_size=1,
                max_size=30),
       st.lists(st.sampled_from([1e7, 2e7, 5e7]), min_size=8, max_size=8))
def test_no_feasible_rates_are_better_on_balance(pairs, rates_bps):
    """Kelly: the relative changes to any other feasible rates sum to <= 0."""
    src, dst = (np.array(column) for column in zip(*pairs))
    capacity = np.array(rates_bps)
    rates = _tcp(pairs, capacity)

    def load(some):
        return np.bincount(src, some, 8) + np.bincount(dst, some, 8)

    assert (load(rates) <= capacity * (1 + 1e-9)).all()
    counts = load(np.ones(len(rates)))
    max_min_like = np.minimum(capacity[src] / counts[src],
                              capacity[dst] / counts[dst])
    only = [np.where(np.arange(len(rates)) == i, np.minimum(
        capacity[src], capacity[dst]), 0.0) for i in range(len(rates))]
    for other in [max_min_like, *only]:
        assert ((other - rates) / rates).sum() <= 0.02 * len(rates)


def test_free_flows_share_what_guarantees_leave():
    rows = [(0, 1, 0, 0.6), (0, 2, 0, 0.0), (3, 2, 0, 0.0)]
    flows = _flows(rows, 4, '')
    flows.is_free = np.array([0, 1, 1], np.uint8)
    flow_kernels.step(flows, 0.0)
    assert np.asarray(flows.rate) / LINK_BPS == pytest.approx(
        [0.6, 0.4, 0.6], rel=1e-3)
    # All of a link in guarantees: a thousandth of it is left.
    flows.guarantee, flows.is_rated = LINK_BPS * np.array([1.0, 0, 0]), False
    flow_kernels.step(flows, 0.0)
    assert np.asarray(flows.rate) / LINK_BPS == pytest.approx(
        [1.0, 0.001, 0.999], rel=1e-2)


def test_a_step_ends_with_an_event():
    """One starts after 1 s, one ends after 2 s, one has waited in a queue."""
    flows = flow_kernels.Flows(
        np.full(8, LINK_BPS), np.array([0, 1, 2]), np.array([4, 5, 6]),
        np.array([1, 0, 1]), 2, np.array([2, 8, 4]) * MB,
        np.array([0.0, 1.0, 0.0]))
    flows.guarantee = np.array([LINK_BPS, LINK_BPS, LINK_BPS / 4])
    flows.is_free = np.array([0, 0, 1], np.uint8)
    np.asarray(flows.stuck)[2] = MB / 2

    def step(until_s=math.inf):
        flow_kernels.step(flows, until_s)
        return flows.now_s

    assert [flows.n_left, *flows.is_live, *flows.n_live] == [3, 1, 0, 1, 0, 2]
    # The free flow has a link but for its class's rate.
    assert step(0.25) == 0.25
    assert [*flows.left] == pytest.approx([1.75 * MB, 8 * MB, 3.8125 * MB],
                                          rel=1e-3)
    assert flows.is_rated and [*flows.in_class] == [0.0, 0.25 * MB]
    assert step() == pytest.approx(2 / 3, rel=1e-3)
    assert not flows.is_rated and flows.stuck[2] == 0
    flows.is_free = np.zeros(3, np.uint8)
    assert step() == 1.0
    assert not flows.is_rated and [*flows.n_live] == [1, 2]
    assert step() == pytest.approx(2)
    assert [*flows.is_live] == [0, 1, 1] and flows.n_left == 2
    assert flows.end_s[0] == pytest.approx(2)
    assert [*flows.sent] == pytest.approx([2 * MB, MB, 5 / 6 * MB], rel=1e-3)
    assert [*flows.in_class] == pytest.approx([MB, 7 / 3 * MB], rel=1e-3)
    step(), step()
    assert flows.n_left == 0
    assert [*flows.end_s] == pytest.approx([2, 9, 44 / 3], rel=1e-3)


def test_a_byte_is_sent_and_less_is_nothing():
    flows = _flows([(0, 1, 0, 1.0), (1, 0, 0, 1.0)], 2, 'order')
    np.asarray(flows.left)[:] = 1.0, 0.75
    flow_kernels.step(flows, 0.0)
    assert flows.n_left == 1
    # It would take a microsecond, which is the shortest time.
    np.asarray(flows.left)[0] = 0.5
    flow_kernels.step(flows, 1.0)
    assert flows.now_s == 1e-6 and flows.n_left == 0


def test_slow_flows_end_too():
    flows = _flows([(0, 1, 0, 0.5 / LINK_BPS)], 2, '')
    np.asarray(flows.left)[0] = 1.0
    flow_kernels.step(flows, math.inf)
    assert flows.now_s == 16 and flows.n_left == 0


def test_a_flow_leaves_its_old_queue_with_the_last_byte():
    flows = flow_kernels.Flows(
        np.full(2, 8.0), np.array([0]), np.array([1]), np.array([0]), 1,
        np.array([4.0]), np.zeros(1), 'order')
    flows.ceil, flows.weight = np.full((2, 1), 8.0)
    flows.is_free = np.ones(1, np.uint8)
    np.asarray(flows.stuck)[0] = 2.0
    flow_kernels.step(flows, 1.0)
    assert flows.stuck[0] == 1 and flows.is_rated
    flow_kernels.step(flows, 1.5)
    assert flows.stuck[0] == 0 and not flows.is_rated
    flow_kernels.step(flows, 2.0)
    assert flows.stuck[0] == 0 and flows.is_rated
