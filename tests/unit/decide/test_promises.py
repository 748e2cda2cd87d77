# SPDX-License-Identifier: Apache-2.0

"""Promised deadlines in the policies of hosts."""

import dataclasses
import math

import pytest

from tests.unit.decide import test_policies
from virtco.decide import policies
from virtco.decide import promises

PAIR = test_policies.PAIR
#: Bits per second of a port, for coflows.
RATE_BPS = 0.98 * test_policies.LINK_BPS


def due(name, size_bytes, left_s, is_promised=True, **values):
    found = test_policies.coflow(name, {PAIR: size_bytes}, **values)
    return dataclasses.replace(found, live=dataclasses.replace(
        found.live, deadline_s=100.0 + left_s, is_promised=is_promised))


def rates(*coflows, **options):
    found = policies.compute(test_policies.at(*coflows, **options))
    return test_policies.rates(found), found


def test_a_promise_has_its_rate_before_a_shorter_one():
    small = test_policies.coflow('small', {PAIR: 1e6}, moved_s=100.0)
    large = due('large', 1e9, 20.5)
    told, found = rates(small, large)
    # Also before it was seen to send: 8 Gbit in 20 s.
    assert told['large'] >= 8e9 / 20 * (1 - 1e-6)
    assert told['large'] + told['small'] <= RATE_BPS * (1 + 1e-6)
    assert found.promises.is_whole
    assert found.next_check_s == pytest.approx(120.0)
    # Without a promise the one that sends has what it can use.
    told, found = rates(small, test_policies.coflow('large', {PAIR: 1e9}))
    assert told['small'] > 0.9 * RATE_BPS
    assert found.promises.floors() == {}


def test_what_was_not_promised_may_be_served_as_if():
    _, found = rates(due('idle', 1e9, 20.5, False))
    assert found.promises.floors() == {}
    wish = due('wish', 1e9, 20.5, False, moved_s=100.0)
    _, found = rates(wish)
    assert set(found.promises.floors()) == {'wish'}
    # A promise takes it back.
    _, found = rates(wish, due('firm', 2e9, 20.5))
    assert set(found.promises.floors()) == {'firm'}


def test_few_wishes_are_looked_at():
    """The earliest deadlines first."""
    plan = promises.renew(test_policies.at(*(
        due(f'{n}', 1e3, 30.0 + n, False, moved_s=100.0)
        for n in reversed(range(promises.MOST_WISHES + 3)))), None)
    assert set(plan.ids) == {f'{n}' for n in range(promises.MOST_WISHES)}


def test_deadlines_that_are_over_or_none_hold_nothing():
    _, found = rates(due('late', 1e9, -1.0), due('never', 1e9, math.inf),
                     due('resting', 1e9, 50.0, is_resting=True))
    assert found.promises.floors() == {}
    assert policies.none().promises.floors() == {}
    _, found = rates(due('a', 1e9, 50.0), order='fair')
    assert found.promises is None


def test_tight_ones_do_without_the_lead():
    """Of 8.2 s on the link, 8.3 are left: half a second earlier is no plan.
    """
    coflow = due('a', 1e9, 8.3)
    plan = promises.renew(test_policies.at(coflow), None)
    assert plan.is_whole
    assert plan.next_s == pytest.approx(108.3)
    # The plan before is taken up where there is no other.
    assert not promises.renew(test_policies.at(due('a', 2e9, 8.3)),
                              plan).is_whole
