# SPDX-License-Identifier: Apache-2.0

"""Promised deadlines in the policies of hosts."""

import dataclasses
import math

import numpy as np
import pytest

from tests.unit.decide import test_policy_documents as given_by
from virtco.decide import policy_documents as policies
from virtco.model import live
from virtco.model import uplinks
from virtco.scheduling import deadlines

PAIR = given_by.PAIR
#: Bits per second of a port, for coflows.
RATE_BPS = 0.98 * given_by.LINK_BPS


def due(name, size_bytes, left_s, is_promised=True, **values):
    found = given_by.coflow(name, {PAIR: size_bytes}, **values)
    return dataclasses.replace(found, live=found.live._replace(
        deadline_s=100.0 + left_s, is_promised=is_promised))


def rates(*coflows, **options):
    found = policies.compute(given_by.at(*coflows, **options))
    return given_by.rates(found), found


def test_a_promise_has_its_rate_before_a_shorter_one():
    small = given_by.coflow('small', {PAIR: 1e6}, moved_s=100.0)
    large = due('large', 1e9, 20.5)
    told, found = rates(small, large)
    # Also before it was seen to send: 8 Gbit in 20 s.
    assert told['large'] >= 8e9 / 20 * (1 - 1e-6)
    assert told['large'] + told['small'] <= RATE_BPS * (1 + 1e-6)
    assert found.promises.is_whole
    assert found.next_check_s == pytest.approx(120.0)
    # Without a promise the one that sends has what it can use.
    told, found = rates(small, given_by.coflow('large', {PAIR: 1e9}))
    assert told['small'] > 0.9 * RATE_BPS
    assert found.promises.floors() == {}


@pytest.mark.parametrize(('left_s', 'is_queued', 'is_held'), [
    (8.2, False, True), (8.1, False, False), (8.1, True, True)])
def test_a_lost_promise_holds_no_rate_while_nothing_waits(left_s, is_queued,
                                                          is_held):
    """It takes 8.16 s; its VMs may never begin, or send a byte a second."""
    other = given_by.coflow('other', {PAIR: 1e6}, moved_s=100.0)
    told, found = rates(due('firm', 1e9, left_s, moved_s=100.0,
                            is_queued=is_queued), other)
    assert set(found.promises.floors()) == ({'firm'} if is_held else set())
    assert (told['other'] > 0.9 * RATE_BPS) != is_held


def test_what_was_not_promised_may_be_served_as_if():
    _, found = rates(due('idle', 1e9, 20.5, False))
    assert found.promises.floors() == {}
    wish = due('wish', 1e9, 20.5, False, moved_s=100.0)
    _, found = rates(wish)
    assert set(found.promises.floors()) == {'wish'}
    # A promise takes it back.
    _, found = rates(wish, due('firm', 2e9, 20.5))
    assert set(found.promises.floors()) == {'firm'}


def test_a_wish_is_judged_by_the_caps_of_its_vms():
    """Eight gigabits in 20 seconds, at caps of 500 and of 300 Mbit/s."""
    for rate_bps, wished in ((5e8, {'wish'}), (3e8, set())):
        wish = due('wish', 1e9, 20.5, False, moved_s=100.0)
        one = live.Cap('h0', 'egress', 'vm')
        wish = dataclasses.replace(wish, live=wish.live._replace(
            capped=live.Capped(np.array([0]), np.ones(1),
                               np.array([[0, -1]]), {one: rate_bps})))
        _, found = rates(wish)
        assert set(found.promises.floors()) == wished


def test_nobody_borrows_where_a_promised_coflow_passes():
    """Its receiver, and the uplink of its rack."""
    def child(found, host):
        (one,) = found.of_host[host].policy().classes
        return one.destinations[0]

    others = [given_by.coflow(name, {pair: 3e9}, moved_s=100.0)
              for name, pair in (('same receiver', ('h2', 'h1')),
                                 ('another', ('h3', 'h2')))]
    firm = due('firm', 1e9, 20.5)
    for promised, are_held in (((), (False, False)),
                               ((firm,), (True, False))):
        _, found = rates(*promised, *others, work_conserving=True)
        for host, is_held in zip(('h2', 'h3'), are_held):
            told = child(found, host)
            assert told.ceil_bps == pytest.approx(
                told.rate_bps if is_held else given_by.LINK_BPS)
            assert told.rate_bps < 0.99 * given_by.LINK_BPS
    _, found = rates(firm, *others, work_conserving=False)
    assert child(found, 'h3').ceil_bps == child(found, 'h3').rate_bps
    # h0 and h3 are in one rack, the others in another one.
    above = uplinks.Uplinks(np.array([[0], [1], [1], [0]]),
                            np.full(4, 1.5e9))
    found = policies.compute(dataclasses.replace(given_by.at(
        firm, *others, work_conserving=True), uplinks=above))
    assert child(found, 'h3').ceil_bps == child(found, 'h3').rate_bps


def test_promises_are_not_joined_one_by_one(monkeypatch):
    """Hundreds of them would be copied hundreds of times."""
    seen = given_by.at(due('a', 1e8, 20.0), due('b', 1e8, 30.0))
    joined = deadlines.claims_of(8)
    for one in seen.coflows:
        joined = joined.joined(
            one.live.coflow_id, seen.ports.busy_s(
                one.live.flows, seen.hosts.number_of),
            one.live.deadline_s - seen.now_s)
    expected = deadlines.renew(dataclasses.replace(
        joined, left_s=joined.left_s - policies.LEAD_S), seen.now_s)
    monkeypatch.delattr(deadlines.Claims, 'joined')
    plan = policies.renew_promises(seen, None)
    assert plan.is_whole and plan.ids == ('a', 'b')
    assert plan.times_s.tolist() == expected.times_s.tolist()
    assert plan.done.tolist() == expected.done.tolist()


def test_few_wishes_are_looked_at():
    """The earliest deadlines first."""
    plan = policies.renew_promises(given_by.at(*(
        due(f'{n}', 1e3, 30.0 + n, False, moved_s=100.0)
        for n in reversed(range(policies.MOST_WISHES + 3)))), None)
    assert set(plan.ids) == {f'{n}' for n in range(policies.MOST_WISHES)}


@pytest.mark.parametrize(('size_factor', 'is_whole'), [
    (1.0, True), (1.25, False)])
def test_headers_take_their_time_too(size_factor, is_whole):
    """Of 8.3 s the bytes alone take 8.2 on the link."""
    seen = dataclasses.replace(given_by.at(due('a', 1e9, 8.3, is_queued=True)),
                               size_factor=size_factor)
    assert policies.renew_promises(seen, None).is_whole == is_whole


def test_a_deadline_of_less_than_a_second_is_planned_for_half_the_time():
    plan = policies.renew_promises(given_by.at(due('a', 1e6, 0.6)), None)
    assert plan.next_s == pytest.approx(100.3)


def test_deadlines_that_are_over_or_none_hold_nothing():
    _, found = rates(due('late', 1e9, -1.0), due('never', 1e9, math.inf),
                     due('now', 1e9, 0.0),
                     due('resting', 1e9, 50.0, is_resting=True))
    assert found.promises.floors() == {}
    assert policies.none().promises.floors() == {}
    plan = policies.renew_promises(given_by.at(
        due('now', 1e9, 0.0), due('soon', 1e6, 1.0)), None)
    assert plan.ids == ('soon',) and plan.is_whole
    _, found = rates(due('a', 1e9, 50.0), order='fair')
    assert found.promises is None


def test_tight_ones_do_without_the_lead():
    """Of 8.2 s on the link, 8.3 are left: half a second earlier is no plan.
    """
    coflow = due('a', 1e9, 8.3)
    plan = policies.renew_promises(given_by.at(coflow), None)
    assert plan.is_whole
    assert plan.next_s == pytest.approx(108.3)
    # The plan before is taken up where there is no other.
    assert not policies.renew_promises(given_by.at(
        due('a', 2e9, 8.3, is_queued=True)), plan).is_whole
