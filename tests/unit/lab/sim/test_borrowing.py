# SPDX-License-Identifier: Apache-2.0

"""Guarantees first, then by rank."""

import dataclasses

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest

from virtco_lab.sim import borrowing

LINK_BPS = 1e6
# Of a link: the fixed point's tolerance.
CLOSE = 3e-3


def _flows(rows, ceil=1.0):
    """Rows of source, destination, rank and guarantee, in terms of a link."""
    src, dst, rank, guarantee = (np.array(column) for column in zip(*rows))
    return borrowing.Demands(
        src, dst, LINK_BPS * guarantee,
        np.maximum(guarantee, ceil) * LINK_BPS, rank,
        np.maximum(1e-3, guarantee))


def _links(n_hosts):
    return np.full(n_hosts, LINK_BPS)


def _tcp(flows, n_hosts):
    rates, _ = borrowing.over_tcp_bps(flows, _links(n_hosts), _links(n_hosts),
                                      _links(n_hosts))
    return rates / LINK_BPS


def _order(flows, n_hosts):
    return borrowing.in_order_bps(flows, _links(n_hosts),
                                  _links(n_hosts)) / LINK_BPS


def test_a_sender_lends_to_the_first_rank():
    flows = _flows([(0, 1, 1, 0.3), (0, 2, 0, 0.2)])
    for rates in (_order(flows, 3), _tcp(flows, 3)):
        assert rates == pytest.approx([0.3, 0.7], abs=CLOSE)


def test_what_the_first_rank_cannot_take_goes_to_the_next():
    flows = _flows([(0, 1, 0, 0.1), (0, 2, 1, 0.1), (0, 3, 2, 0.1)])
    flows = dataclasses.replace(flows, ceil_bps=LINK_BPS * np.array(
        [0.3, 0.4, 1.0]))
    for rates in (_order(flows, 4), _tcp(flows, 4)):
        assert rates == pytest.approx([0.3, 0.4, 0.3], abs=CLOSE)


def test_a_receiver_knows_ranks_or_does_not():
    rows = [(0, 2, 0, 0.2), (1, 2, 1, 0.1)]
    assert _order(_flows(rows), 3) == pytest.approx([0.9, 0.1], abs=CLOSE)
    assert _tcp(_flows(rows), 3) == pytest.approx([0.5, 0.5], abs=CLOSE)


def test_a_sender_gives_to_others_what_a_receiver_cuts():
    # Three to host 4, of which host 0 would rather send all of its link.
    rows = [(0, 4, 0, 0.1), (1, 4, 1, 0.1), (2, 4, 1, 0.1), (0, 3, 1, 0.1)]
    third = 1 / 3
    assert _tcp(_flows(rows), 5) == pytest.approx(
        [third, third, third, 2 * third], abs=CLOSE)
    # Who could have more is cut no less for those who cannot.
    flows = dataclasses.replace(_flows(rows), ceil_bps=LINK_BPS * np.array(
        [1.0, 0.2, 1.0, 1.0]))
    assert _tcp(flows, 5) == pytest.approx([0.4, 0.2, 0.4, 0.6], abs=CLOSE)


def test_those_of_a_rank_share_by_weight():
    flows = _flows([(0, 1, 0, 0.1), (0, 2, 0, 0.3)])
    for rates in (_order(flows, 3), _tcp(flows, 3)):
        assert rates == pytest.approx([0.25, 0.75], abs=CLOSE)


def test_guarantees_beyond_the_link_are_cut():
    flows = _flows([(0, 2, 0, 0.9), (1, 2, 1, 0.3)])
    assert _order(flows, 3) == pytest.approx([0.75, 0.25], abs=CLOSE)
    assert sum(_tcp(flows, 3)) <= 1 + CLOSE
    flows = _flows([(0, 1, 0, 0.9), (0, 2, 1, 0.3)])
    for rates in (_order(flows, 3), _tcp(flows, 3)):
        assert rates == pytest.approx([0.75, 0.25], abs=CLOSE)


@st.composite
def demands(draw):
    """Flows whose guarantees fit at both ends."""
    n_hosts = draw(st.integers(2, 6))
    rows = draw(st.lists(st.tuples(
        st.integers(0, n_hosts - 1), st.integers(0, n_hosts - 1),
        st.integers(0, 4), st.floats(0, 1), st.floats(0, 1)),
        min_size=1, max_size=20))
    src, dst, rank = (np.array([row[i] for row in rows]) for i in range(3))
    share, ceil = (np.array([row[i] for row in rows]) for i in (3, 4))
    most = max(1.0, *np.bincount(src, share), *np.bincount(dst, share))
    guarantee = share / most
    return n_hosts, borrowing.Demands(
        src, dst, LINK_BPS * guarantee,
        LINK_BPS * np.maximum(guarantee, ceil), rank,
        np.maximum(1e-3, guarantee))


@settings(deadline=None)
@given(demands())
def test_no_link_carries_more_than_it_can(made):
    n_hosts, flows = made
    for rates in (_order(flows, n_hosts), _tcp(flows, n_hosts)):
        assert (rates >= 0).all()
        assert (rates <= flows.ceil_bps / LINK_BPS + 1e-6).all()
        for ends in (flows.src, flows.dst):
            assert np.bincount(ends, rates).max() <= 1 + 1e-6


@settings(deadline=None)
@given(demands())
def test_guarantees_are_kept_in_order(made):
    n_hosts, flows = made
    assert (_order(flows, n_hosts)
            >= flows.guarantee_bps / LINK_BPS - 1e-6).all()


@settings(deadline=None)
@given(demands())
def test_nothing_idle_that_a_flow_could_use_in_order(made):
    n_hosts, flows = made
    rates = _order(flows, n_hosts)
    full = [np.bincount(ends, rates, n_hosts)[ends] >= 1 - 1e-6
            for ends in (flows.src, flows.dst)]
    assert (full[0] | full[1]
            | (rates >= flows.ceil_bps / LINK_BPS - 1e-6)).all()


@settings(deadline=None)
@given(demands())
def test_who_is_below_the_ceil_has_a_link_without_lower_borrowers(made):
    """Strict rank: at one of its ends all lower ranks have guarantees only."""
    n_hosts, flows = made
    rates = _order(flows, n_hosts)
    borrowed = rates - flows.guarantee_bps / LINK_BPS
    for i in np.flatnonzero(rates < flows.ceil_bps / LINK_BPS - 1e-6):
        lower = flows.rank > flows.rank[i]
        assert any(
            (borrowed[lower & (ends == ends[i])] <= 1e-5).all()
            and rates[ends == ends[i]].sum() >= 1 - 1e-6
            for ends in (flows.src, flows.dst))


@settings(deadline=None)
@given(demands())
def test_a_sender_keeps_ranks_where_receivers_do_not(made):
    """Who is neither cut by a receiver nor at its ceil is before all lower
    ones at its sender.
    """
    n_hosts, flows = made
    rates, level_bps = borrowing.over_tcp_bps(
        flows, _links(n_hosts), _links(n_hosts), _links(n_hosts))
    rates, most = rates / LINK_BPS, np.minimum(
        level_bps[flows.dst], flows.ceil_bps) / LINK_BPS
    borrowed = rates - flows.guarantee_bps / LINK_BPS
    load = np.bincount(flows.dst, rates, n_hosts)[flows.dst]
    # Where the search ended early a full receiver cuts all a little more.
    for i in np.flatnonzero((rates < most - 0.01) & (load < 1 - 0.01)):
        lower = (flows.rank > flows.rank[i]) & (flows.src == flows.src[i])
        assert (borrowed[lower] <= 1e-5).all()


@settings(deadline=None)
@given(demands())
def test_the_search_goes_on_where_it_ended(made):
    n_hosts, flows = made
    links = _links(n_hosts)
    first, level_bps = borrowing.over_tcp_bps(flows, links, links, links)
    again, _ = borrowing.over_tcp_bps(flows, links, links, level_bps)
    assert again == pytest.approx(first, abs=0.05 * LINK_BPS)
