# SPDX-License-Identifier: Apache-2.0

"""What measurements may send: at the limit, and one byte above it."""

import pytest

from virtco.measure import probe_budget as budget

LINK_BPS = 8e3
#: One per cent of what the link carries in an hour.
MOST = 36_000


def test_a_link_may_carry_its_share_and_not_a_byte_more():
    found = budget.Budget(0.01, None)
    assert found.allows('a', 'b', MOST, LINK_BPS, 0.0)
    assert not found.allows('a', 'b', MOST + 1, LINK_BPS, 0.0)
    found.spend('a', 'b', MOST - 10, 0.0)
    # The sender's way out and the receiver's way in; neither the others.
    for src, dst, most in (('a', 'c', 10), ('c', 'b', 10), ('b', 'a', MOST),
                           ('c', 'd', MOST)):
        assert found.allows(src, dst, most, LINK_BPS, 1.0)
        assert not found.allows(src, dst, most + 1, LINK_BPS, 1.0)


def test_all_links_together_have_a_limit_of_their_own():
    found = budget.Budget(1.0, 100)
    found.spend('a', 'b', 60, 0.0)
    assert found.allows('c', 'd', 40, LINK_BPS, 0.0)
    assert not found.allows('c', 'd', 41, LINK_BPS, 0.0)
    assert not found.is_spent(40, 0.0) and found.is_spent(41, 0.0)
    assert not budget.Budget(1.0, None).is_spent(10 ** 12, 0.0)


@pytest.mark.parametrize(('now_s', 'left'), [
    (60.0, 12), (3659.9, 12), (3660.0, 5), (3719.9, 5), (3720.0, 0)])
def test_an_hour_ends_by_whole_minutes(now_s, left):
    found = budget.Budget(1.0, None)
    found.spend('a', 'b', 7, 59.0)
    found.spend('a', 'b', 5, 60.0)
    assert found.spent_bytes(now_s) == left


def test_what_is_given_back_belongs_to_its_minute():
    found = budget.LastHour()
    found.add(10, 59.0)
    found.add(-4, 61.0)
    assert found.total_bytes(61.0) == 6
    # In the first minute, not in the second.
    assert found.total_bytes(3660.0) == 0


def test_a_clock_that_was_set_back_loses_nothing():
    found = budget.LastHour()
    found.add(10, 600.0)
    found.add(5, 0.0)
    found.add(1, 599.0)
    assert found.total_bytes(3600.0) == 16
    assert found.total_bytes(4260.0) == 0
