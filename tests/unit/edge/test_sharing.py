# SPDX-License-Identifier: Apache-2.0

"""Unused rate is handed on, in order, and never more than there is."""

from hypothesis import given
from hypothesis import strategies as st
import pytest

from edge_module.shaper import sharing
from edge_module.tcplan import minors
from edge_module.tcplan import model
from edge_module.tcplan import shape
from tests.unit.edge import test_tcplan

LINK_BPS = test_tcplan.LINK_BPS
PORT = minors.of_port(4)


def _tree(*coflows, ports=(4,)):
    return shape.build_tree(test_tcplan.policy(coflows), LINK_BPS,
                            ports=ports)


def _simulate(tree, demands_bps, rounds=8):
    """What leaves send that would send so much; (rates, sent)."""
    leaves = [tree[minor] for minor in sharing.share(tree, {})]
    rates = {leaf.minor: float(leaf.rate_bps) for leaf in leaves}
    for _ in range(rounds):
        sent = {minor: min(rate, demands_bps.get(minor, 0.0))
                for minor, rate in rates.items()}
        used = {minor: sharing.Use(bps, demands_bps.get(minor, 0) > bps)
                for minor, bps in sent.items()}
        rates = sharing.share(tree, sharing.wanted_bps(
            used, rates, leaves, LINK_BPS))
    return rates, {minor: min(rate, demands_bps.get(minor, 0.0))
                   for minor, rate in rates.items()}


def test_what_the_first_leaves_goes_to_the_next_in_rank():
    tree = _tree(*(test_tcplan.coflow(0x10 + 16 * rank, 5e6, prio=rank)
                   for rank in range(5)))
    _, sent = _simulate(tree, {0x11: 30e6, 0x21: 1e9, 0x41: 1e9, PORT: 1e9})
    assert sent[0x11] == pytest.approx(30e6, rel=0.01)
    # The idle ones' and all that is left.
    assert sent[0x21] > 2 * sent[0x41] > 2 * 5e6
    assert sent[PORT] <= 2e6 and sum(sent.values()) > 0.95 * LINK_BPS


def test_who_comes_back_has_its_rate_at_the_next_look():
    tree = _tree(test_tcplan.coflow(0x10, 60e6), test_tcplan.coflow(
        0x20, 10e6, prio=1))
    _, sent = _simulate(tree, {0x21: 1e9})
    assert sent[0x21] > 0.95 * LINK_BPS
    rates, _ = _simulate(tree, {0x11: 1e9, 0x21: 1e9}, rounds=1)
    assert rates[0x11] >= 60e6


def test_alone_a_class_may_begin_with_what_is_guaranteed():
    tree = _tree(test_tcplan.coflow(0x10, 60e6), test_tcplan.coflow(
        0x20, 10e6, prio=1))
    rates, _ = _simulate(tree, {})
    assert rates[0x11] == pytest.approx(60e6) and rates[0x21] == 10e6


def test_ports_take_turns_in_what_is_left():
    ports = (4, 5, 6)
    tree = _tree(test_tcplan.coflow(0x10, 60e6, ceil_bps=60e6), ports=ports)
    _, sent = _simulate(tree, {0x11: 1e9, **{
        minors.of_port(port): 1e9 for port in ports}})
    shares = [sent[minors.of_port(port)] for port in ports]
    assert sent[0x11] == 60e6
    assert shares == pytest.approx([shares[0]] * 3)
    assert sum(shares) > 0.95 * (LINK_BPS - 60e6)


leaf_demands = st.lists(st.one_of(st.just(0.0), st.just(1e9),
                                  st.floats(1e4, 1e8)), min_size=40,
                        max_size=40)


@given(test_tcplan.policies(), leaf_demands, st.lists(
    st.integers(1, 99), max_size=4))
def test_nothing_is_wasted_or_given_twice(wanted, demands, ports):
    tree = shape.build_tree(wanted, LINK_BPS, ports=ports)
    leaves = sorted(sharing.share(tree, {}))
    demand = dict(zip(leaves, demands, strict=False))
    rates, sent = _simulate(tree, demand)
    link_bps = tree[minors.LINK].rate_bps
    assert sum(rates.values()) <= 1.0001 * link_bps
    for minor, item in tree.items():
        below = sum(rate for leaf, rate in rates.items()
                    if minor in _above(tree, leaf))
        assert below <= item.ceil_bps + 2
    # Where somebody waits, the link is full, or a ceil forbids more.
    waiting = [leaf for leaf in leaves
               if demand.get(leaf, 0) > 1.05 * sent[leaf] + 100]
    for leaf in waiting:
        ceils = any(tree[minor].ceil_bps <= 2 + sum(
            rates[other] for other in leaves
            if minor in _above(tree, other)) for minor in _above(tree, leaf))
        assert ceils or sum(sent.values()) > 0.95 * link_bps, leaf


@given(test_tcplan.policies(), leaf_demands)
def test_order_is_kept(wanted, demands):
    """Nobody borrows while one of an earlier priority wants more."""
    tree = shape.build_tree(wanted, LINK_BPS)
    leaves = sorted(sharing.share(tree, {}))
    want = {leaf: min(bps, tree[leaf].ceil_bps) for leaf, bps
            in zip(leaves, demands, strict=False)}
    want = {leaf: want.get(leaf, 0.0) for leaf in leaves}
    rates = sharing.share(tree, want)
    at_top = [leaf for leaf in leaves if minors.LINK == tree[leaf].parent
              or minors.LINK == tree[tree[leaf].parent].parent
              and tree[leaf].parent != minors.SHARED]
    for late in at_top:
        for early in at_top:
            if tree[early].prio >= tree[late].prio:
                continue
            holder = tree[early].parent
            is_full = rates[early] >= want[early] - 2 or any(
                tree[minor].ceil_bps <= 2 + sum(
                    rates[leaf] for leaf in leaves
                    if minor in _above(tree, leaf))
                for minor in (early, holder) if minor != minors.LINK)
            late_top = max(tree[late].rate_bps,
                           tree[tree[late].parent].rate_bps
                           if tree[late].parent != minors.LINK else 0)
            assert is_full or rates[late] <= late_top + 2


def _above(tree, minor):
    found = []
    while minor in tree:
        found.append(minor)
        minor = tree[minor].parent
    return found


@pytest.mark.parametrize(('use', 'rate_bps', 'wanted_bps'), [
    # One that is idle begins with a share of one in a hundred, by leaves.
    (None, 10e6, 0.5e6), (sharing.Use(), 10e6, 0.5e6),
    (sharing.Use(9.4e6), 10e6, 0.5e6 + 1.03 * 9.4e6),
    (sharing.Use(9.5e6), 10e6, 60e6), (sharing.Use(0.0, True), 10e6, 60e6),
    # Who had nothing is not full of it.
    (sharing.Use(0.0), 0.0, 0.5e6), (sharing.Use(90e6), 100e6, 60e6)])
def test_what_a_class_can_be_expected_to_send(use, rate_bps, wanted_bps):
    leaves = [model.HtbClass(minor, 1, 8, 60_000_000, 0, 1, 1000)
              for minor in (0x11, 0x21)]
    used = {} if use is None else {0x11: use}
    found = sharing.wanted_bps(used, {0x11: rate_bps, 0x21: 1e6},
                               iter(leaves), 100e6)
    assert found == {0x11: pytest.approx(wanted_bps), 0x21: 0.5e6}
    assert sharing.wanted_bps({}, {}, [], 100e6) == {}
