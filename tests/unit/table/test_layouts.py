# SPDX-License-Identifier: Apache-2.0

"""Layouts: where the classes of all hosts stand, and what stays of them."""

import copy
import dataclasses

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest

from tests.unit.table import objects
from tests.unit.table import ports
from tests.unit.table import test_coflow_table as table
from virtco.model import live
from virtco.table import coflow_table
from virtco.table import host_policies
from virtco.table import host_policy
from virtco.table import layout
from virtco.table import layouts
from virtco.table import unmanaged
from virtco.wire import edge_policy

EGRESS_BPS = (1e8, 3e8, 7e8)
LINKS = tuple(coflow_table.Link(host, egress_bps, 2 * egress_bps,
                                0.05 * egress_bps)
              for host, egress_bps in zip(table.HOSTS, EGRESS_BPS))


def lay_out(*cases, minors=None, before=None, links=LINKS, **options):
    ids = [case.coflow_id for case in cases]
    return layouts.lay_out(
        links, [case.table for case in cases], minors or {},
        {name: rank for rank, name in enumerate(ids)}, 0, 10, before=before,
        **options)


def taken(laid):
    return {one.host: one.minors for one in laid.of_link}


def a(*pairs, name='a'):
    return table.table_coflow(name, *(table.vm_flow(*pair)
                                      for pair in pairs))


def test_where_everything_stands():
    laid = lay_out(a(('h2', 'h1'), ('h0', 'h2'), ('h0', 'h1'), name='b'),
                   a(('h0', 'h2'), ('h2', 'h0')))
    assert [c.coflow_id for c in laid.coflows] == ['a', 'b']
    assert laid.n_classes.tolist() == [2, 0, 2]
    assert laid.class_ends == [0, 2, 2, 4]
    assert laid.child_ends == [0, 3, 3, 5]
    assert laid.n_children.tolist() == [1, 2, 1, 1]
    assert laid.class_of.tolist() == [0, 1, 1, 2, 3]
    assert laid.host_of.tolist() == [0, 0, 2, 2]
    assert laid.coflow_of.tolist() == [0, 1, 0, 1]
    # Pairs of a: h0-h2, h2-h0; of b, after them: h2-h1, h0-h2, h0-h1.
    assert laid.pair_of.tolist() == [0, 4, 3, 1, 2]
    assert laid.peers == ('h2', 'h1', 'h0')
    assert laid.peer_of.tolist() == [0, 1, 0, 2, 1]
    assert laid.egress_bps.tolist() == list(EGRESS_BPS)
    assert laid.limit_bps == pytest.approx(0.95 * np.array(EGRESS_BPS))
    assert {host: some.others_bps for host, some
            in laid.unlimited.items()} == {
        one.host: one.default_rate_bps for one in LINKS}


RATES = st.lists(st.one_of(st.just(0.0), st.floats(1e3, 1e9)), min_size=12,
                 max_size=12)


@settings(deadline=None, max_examples=50)
@given(table.coflow_lists, RATES, st.floats(0.001, 0.2))
def test_rates_fit_the_link_and_nobody_gets_nothing(cases, rates, least):
    laid = lay_out(*cases)
    n_children = len(laid.class_of)
    asked_bps = np.resize(rates, n_children)
    found_bps = laid.fitted_bps(asked_bps, least)
    ingress_bps = {link.host: link.ingress_bps for link in LINKS}
    every = [peer for one in laid.of_link for peer in one.peers]
    for number, one in enumerate(laid.of_link):
        children = slice(laid.child_ends[number], laid.child_ends[number + 1])
        wanted_bps = np.maximum(asked_bps[children], [
            min(least * EGRESS_BPS[number] / len(one.classes)
                / one.n_children[class_of],
                least * ingress_bps[peer] / objects.power_of_two(
                    every.count(peer)))
            for class_of, peer in zip(one.class_of, one.peers)])
        most_bps = 0.95 * EGRESS_BPS[number]
        factor = min(1.0, most_bps / max(1e-9, wanted_bps.sum()))
        assert found_bps[children] == pytest.approx(wanted_bps * factor)


def test_least_rates_fill_no_receiver_either():
    """A class of each of many senders, and a receiver that nobody knows."""
    links = tuple(coflow_table.Link(host, 1e9, ingress_bps, 2e7)
                  for host, ingress_bps in (('h0', 1e8), ('h1', 10.0)))
    laid = lay_out(a(('h1', 'h0'), ('h0', 'h1'), ('h1', 'h2')),
                   a(('h1', 'h0'), name='b'), links=links)
    found = dict.fromkeys(laid.peers, 0.0)
    for peer, rate_bps in zip(
            np.array(laid.peers)[laid.peer_of].tolist(),
            laid.fitted_bps(np.zeros(len(laid.peer_of)), 0.01).tolist()):
        found[peer] += rate_bps
    assert found == pytest.approx({'h0': 1e6, 'h1': 8.0, 'h2': 2.5e6})


def test_a_link_without_bandwidth_has_no_rates():
    none = dataclasses.replace(LINKS[0], egress_bps=0.0,
                               default_rate_bps=0.0)
    laid = lay_out(a(('h0', 'h1')), links=(none, *LINKS[1:]))
    assert laid.fitted_bps(np.zeros(1), 0.01).tolist() == [0.0]
    assert laid.fitted_bps(np.ones(1), 0.01).tolist() == [0.0]


def test_rates_that_are_just_the_link_stay():
    laid = lay_out(a(('h0', 'h1')))
    rate_bps = laid.limit_bps[:1]
    assert laid.fitted_bps(rate_bps, 0.01).tolist() == rate_bps.tolist()


def test_the_same_layouts_stay():
    one, other = a(('h0', 'h1')), a(('h1', 'h2'), name='b')
    first = lay_out(one, other)
    minors = taken(first)
    second = lay_out(one, other, minors=minors, before=first)
    assert lay_out(one, other, minors=minors, before=second) is second
    # Other links, whose layouts stay.
    moved = lay_out(one, other, minors=minors, before=second,
                    links=list(LINKS))
    assert all(mine is other for mine, other in zip(
        moved.of_link, second.of_link))
    told = lay_out(one, other, minors=minors, before=second, protect=True)
    assert told is not second
    minors = taken(told)
    assert lay_out(one, other, minors=minors, before=told,
                   protect=True) is told
    assert lay_out(one, other, minors=minors, before=told) is not told
    counted = lay_out(one, other, before=told, is_counted=True)
    assert counted is not told
    assert lay_out(one, other, minors=minors, before=counted,
                   is_counted=True) is counted
    assert lay_out(one, other, minors=minors, before=counted) is not counted


def test_layouts_of_hosts_where_nothing_changed_stay():
    one, other = a(('h0', 'h1')), a(('h1', 'h2'), name='b')
    first = lay_out(one, other)
    minors = taken(first)
    # The second coflow ends: h1 sent it, h2 received it.
    second = lay_out(one, minors=minors, before=first)
    assert [mine is before for mine, before in zip(
        second.of_link, first.of_link)] == [True, False, False]
    assert second.new_minors.keys() == {'h1'}
    # It goes on elsewhere.
    third = lay_out(one, a(('h2', 'h0'), name='b'), minors=minors,
                    before=first)
    assert third.n_classes.tolist() == [1, 0, 1]
    # Another order of the coflows is none.
    assert lay_out(other, one, minors=minors, before=first) is first


def test_minors_that_others_changed_are_looked_at_again():
    one = a(('h0', 'h1'))
    first = lay_out(one)
    minors = taken(first)
    other = {**minors, 'h0': coflow_table.Minors(minors['h0'].taken, {})}
    second = lay_out(one, minors=other, before=first)
    assert second is not first
    assert [mine is before for mine, before in zip(
        second.of_link, first.of_link)] == [False, True, True]


def test_what_lacks_a_minor_is_laid_out_again():
    one = a(('h0', 'h1'))
    full = coflow_table.Minors({
        str(minor): minor for minor in range(coflow_table.FIRST_MINOR,
                                             coflow_table.LAST_MINOR)})
    first = lay_out(one, minors={'h0': full})
    assert [some.is_whole for some in first.of_link] == [False, True, True]
    assert first.of_link[0].classes == ()
    assert not first.holds(taken(first), False, False)
    second = lay_out(one, minors=taken(first), before=first)
    assert second.of_link[0] is not first.of_link[0]


def test_who_is_served_first_has_the_last_minors():
    one, other = a(('h0', 'h1')), a(('h0', 'h2'), name='b')
    left = {str(minor): minor for minor in range(
        coflow_table.FIRST_MINOR, coflow_table.LAST_MINOR - 1)}
    for first, second in ((one, other), (other, one)):
        laid = lay_out(first, second,
                       minors={'h0': coflow_table.Minors(left)})
        assert [c.coflow_id for c in laid.of_link[0].classes] == [
            first.coflow_id]


def test_a_host_without_classes_has_the_common_minors():
    laid = lay_out(a(('h0', 'h1')))
    assert laid.of_link[1].minors is coflow_table.NO_MINORS
    assert laid.new_minors.keys() == {'h0'}
    assert lay_out(is_counted=True).of_link[0].minors is None


def changed(value, **attributes):
    found = copy.copy(value)
    vars(found).update(attributes)
    return found


def test_layouts_that_say_the_same():
    one, other = a(('h0', 'h1')), a(('h0', 'h2'))
    laid = lay_out(one).of_link[0]
    assert laid.says_same(laid)
    assert laid.says_same(lay_out(a(('h0', 'h1'))).of_link[0])
    assert not laid.says_same(lay_out(other).of_link[0])
    for changes in ({'classes': (other.table, other.table)},
                    {'class_minors': (5,)}, {'peers': ('h2',)},
                    {'child_minors': (5,)}, {'entries': {}},
                    {'receivers': (a(('h1', 'h0')).table,)}):
        assert not laid.says_same(changed(laid, **changes))
    named = changed(one.table, name='another')
    assert not laid.says_same(changed(laid, classes=(named,)))


def test_rivals_are_those_that_share_a_pair_of_vms():
    laid = lay_out(a(('h0', 'h1'), ('h0', 'h2')),
                   a(('h0', 'h1'), name='b'), a(('h2', 'h1'), name='c'))
    assert [some.rivals for some in laid.of_link] == [(('a', 'b'),), (), ()]


def made(laid, rates, remaining, before=None, ranks=None, kept=None, **values):
    """Make the policies of one schedule.

    :param kept: coflows whose rates others leave free; None: nobody borrows.
    """
    ids = [c.coflow_id for c in laid.coflows]
    ranks = ranks or {name: rank for rank, name in enumerate(ids)}
    schedule = live.Schedule(0.0, tuple(live.CoflowSchedule(
        name, rank, 1.0, 1.0, live.FlowRates(
            coflow.pairs, np.array(rates[name])))
        for rank, (name, coflow) in enumerate(zip(ids, laid.coflows))))
    return host_policies.update(
        laid, schedule, {name: np.array(some) for name, some
                         in remaining.items()},
        ranks, before=before, lend=None if kept is None
        else ports.lending(laid, ranks, kept), **values)


def test_each_child_has_its_own_rate_and_bytes():
    laid = lay_out(a(('h2', 'h1'), ('h0', 'h2'), ('h0', 'h1')))
    found = made(laid, {'a': [1e8, 2e7, 3e7]}, {'a': [0.7, 0.1, 0.4]})
    (one,) = found.of_host['h0'].policy(4).classes
    assert [(to.host, to.rate_bps, to.weight) for to in one.destinations] == [
        ('h1', 3e7, 0.8), ('h2', 2e7, 0.2)]
    assert (one.rate_bps, one.ceil_bps) == (5e7, 5e7)
    assert found.of_host['h0'].policy(4).generation == 4
    (other,) = found.of_host['h2'].policy().classes
    assert (other.rate_bps, other.destinations[0].weight) == (1e8, 1.0)
    assert found.of_host['h2'].policy().generation == 0
    assert found.changed == ('h0', 'h1', 'h2')


def test_what_is_left_at_last_is_shared_evenly():
    laid = lay_out(a(('h0', 'h2'), ('h0', 'h1')))
    found = made(laid, {'a': [2e7, 3e7]}, {'a': [0.0, 0.0]})
    (one,) = found.of_host['h0'].policy().classes
    assert [to.weight for to in one.destinations] == [0.5, 0.5]


def test_a_host_keeps_its_policy_while_it_is_close():
    laid = lay_out(a(('h0', 'h2'), ('h0', 'h1'), ('h2', 'h1')))
    left = {'a': [5.0, 5.0, 5.0]}
    first = made(laid, {'a': [2e7, 2e7, 5e7]}, left)
    again = made(laid, {'a': [2.2e7, 2e7, 6e7]}, left, first,
                 tolerance=0.05)
    # A child's tenth is half as much of its class.
    assert again.changed == ('h2',)
    assert again.of_host['h0'] is first.of_host['h0']
    # What was told counts, not what would have been told.
    third = made(laid, {'a': [2.25e7, 2e7, 6e7]}, left, again,
                 tolerance=0.05)
    assert third.changed == ('h0',)
    assert made(laid, {'a': [2.25e7, 2e7, 6e7]}, left, third).changed == ()
    for changes in ({'options': host_policies.Options(ttl_s=61.0)},
                    {'kept': ()}):
        told = made(laid, {'a': [2.25e7, 2e7, 6e7]}, left, third, **changes)
        assert set(told.changed) >= {'h0', 'h2'}


def test_limits_are_news_for_their_hosts():
    laid = lay_out(a(('h0', 'h2'), ('h1', 'h2')))
    rates, left = {'a': [2e7, 5e7]}, {'a': [5.0, 5.0]}
    first = made(laid, rates, left)

    def limits(**others_bps):
        return lambda _laid, child_bps: {
            host: edge_policy.Unmanaged(one_bps)
            for host, one_bps in others_bps.items()}

    told = made(laid, rates, left, first, limit=limits(h0=1e6, h2=5e6))
    assert told.changed == ('h0', 'h2')
    assert told.of_host['h0'].policy().unmanaged.others_bps == 1e6
    near = made(laid, rates, left, told, limit=limits(h0=1.05e6, h2=7e6))
    assert near.changed == ('h2',)
    gone = made(laid, rates, left, near)
    assert gone.changed == ('h0', 'h2')
    assert gone.of_host['h0'].unmanaged is None


def test_hosts_and_coflows_that_come_and_go():
    one, other = a(('h0', 'h2')), a(('h0', 'h1'), name='b')
    first_laid = lay_out(one)
    first = made(first_laid, {'a': [2e7]}, {'a': [5.0]})
    both = lay_out(one, other, minors=taken(first_laid), before=first_laid)
    second = made(both, {'a': [2e7], 'b': [3e7]}, {'a': [5.0], 'b': [5.0]},
                  first)
    assert second.changed == ('h0',)
    less = lay_out(one, other, minors=taken(both), before=both,
                   links=LINKS[:2])
    third = made(less, {'a': [2e7], 'b': [3e7]}, {'a': [5.0], 'b': [5.0]},
                 second)
    assert third.of_host.keys() == {'h0', 'h1'} and third.changed == ()
    slow = dataclasses.replace(LINKS[1], ingress_bps=1e8)
    slower = lay_out(one, other, minors=taken(less), before=less,
                     links=(LINKS[0], slow))
    fourth = made(slower, {'a': [2e7], 'b': [3e7]},
                  {'a': [5.0], 'b': [5.0]}, third, tolerance=0.05)
    assert fourth.changed == ('h1',)
    assert fourth.of_host['h1'].policy().ingress_bps == 1e8


def test_another_order_is_news():
    laid = lay_out(a(('h0', 'h2')), a(('h0', 'h1'), ('h1', 'h2'), name='b'))
    rates = {'a': [2e7], 'b': [3e7, 1e7]}
    left = {'a': [5.0], 'b': [5.0, 5.0]}
    first = made(laid, rates, left)
    assert [c.prio for c in first.of_host['h0'].policy().classes] == [0, 1]
    again = made(laid, rates, left, first, {'a': 1, 'b': 0}, tolerance=1.0)
    # At h1 there is one alone, the first whatever its rank.
    assert again.changed == ('h0',)
    assert [c.prio for c in again.of_host['h1'].policy().classes] == [0]
    assert [(c.coflow_id, c.prio)
            for c in again.of_host['h0'].policy().classes] == [
                ('b', 0), ('a', 1)]
    assert made(laid, rates, left, again, {'a': 8, 'b': 0}).changed == ()


@pytest.mark.parametrize('order', [(1.0, 0.99), (0.99, 1.0)])
def test_who_has_the_whole_link_cannot_borrow(order):
    links = [dataclasses.replace(LINKS[0], default_rate_bps=0.0)]
    laid = lay_out(a(('h0', 'h1')), links=links)
    first = made(laid, {'a': [order[0] * 1e8]}, {'a': [5.0]}, kept=())
    told = made(laid, {'a': [order[1] * 1e8]}, {'a': [5.0]}, first, kept=(),
                tolerance=0.05)
    assert told.changed == ('h0',)
    same = made(laid, {'a': [order[1] * 1e8]}, {'a': [5.0]}, told, kept=(),
                tolerance=0.05)
    assert same.changed == ()


def test_the_tolerance_is_of_the_larger_rate():
    laid = lay_out(a(('h0', 'h1')), links=LINKS[:1])
    rates = 1e7, 1.04e7
    first = made(laid, {'a': [rates[0]]}, {'a': [5.0]})
    for tolerance, is_close in ((0.039, True), (0.038, False)):
        told = made(laid, {'a': [rates[1]]}, {'a': [5.0]}, first,
                    tolerance=tolerance)
        assert told.changed == (() if is_close else ('h0',))
    # Without a tolerance every change is news.
    assert made(laid, {'a': [rates[1]]}, {'a': [5.0]}, first
                ).changed == ('h0',)


def test_a_ceiling_is_news_by_its_part_of_the_link():
    # Both arrive at h2: what a is promised there b may not borrow.
    laid = lay_out(a(('h0', 'h2')), a(('h1', 'h2'), name='b'), links=(
        *LINKS[:2], dataclasses.replace(LINKS[2], ingress_bps=1e8)))
    left = {'a': [5.0], 'b': [5.0]}

    def update(a_bps, before=None, kept=('a',), tolerance=0.05):
        return made(laid, {'a': [a_bps], 'b': [1e7]}, left, before,
                    tolerance=tolerance, kept=kept)

    def ceil_bps(found, host):
        (one,) = found.of_host[host].policy().classes
        return one.ceil_bps, one.destinations[0].ceil_bps

    first = update(4e7)
    assert ceil_bps(first, 'h0') == (1e8, 1e8)
    assert ceil_bps(first, 'h1') == (3e8, 6e7)
    # Without a tolerance the same is no news either.
    assert update(4e7, first, tolerance=0.0).changed == ()
    # The twentieth part of the link of h1 is 15 Mbit/s.
    assert update(5.4e7, first).changed == ('h0',)
    second = update(5.6e7, first)
    assert second.changed == ('h0', 'h1')
    assert ceil_bps(second, 'h1') == pytest.approx((3e8, 4.4e7))
    third = update(5.6e7, second, kept=())
    assert third.changed == ('h1',) and ceil_bps(third, 'h1')[1] == 1e8
    sure = made(laid, {'a': [4e7], 'b': [1e7]}, left)
    assert ceil_bps(sure, 'h1') == (1e7, 1e7)


def test_a_shared_pair_is_the_first_ones():
    laid = lay_out(a(('h0', 'h1')), a(('h0', 'h1'), name='b'))
    rates, left = {'a': [1e7], 'b': [1e7]}, {'a': [1.0], 'b': [1.0]}
    for ranks, first in (({'a': 0, 'b': 1}, 'a'), ({'a': 1, 'b': 0}, 'b')):
        found = made(laid, rates, left, None, ranks).of_host['h0']
        assert found.winners() == [first]
        assert [flow.coflow_id for flow in found.policy().flows] == [first]


def test_what_limits_are_made_by():
    laid = lay_out(a(('h0', 'h2'), ('h1', 'h2')))
    seen = []

    def limit(told, child_bps):
        seen.append((told, child_bps.tolist()))
        return {}

    made(laid, {'a': [2e7, 5e7]}, {'a': [1.0, 1.0]}, limit=limit)
    assert seen == [(laid, [2e7, 5e7])]


def test_defaults():
    assert host_policies.Options() == host_policies.Options(
        min_rate_fraction=0.01, ttl_s=60.0)
    assert host_policy.UNMANAGED_TOLERANCE == 0.1
    assert host_policy.LAST_PRIO == 7
    empty = layout.Layout('h0', ())
    none = np.zeros(0)
    assert not host_policy.HostPolicy(
        empty, LINKS[0], 60.0, {}, host_policy.Numbers(*[none] * 5)).borrows
    assert empty.minors is None and not empty.protects
    assert unmanaged.nothing_limited(5.0) == edge_policy.Unmanaged(5.0)
