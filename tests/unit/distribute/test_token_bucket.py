# SPDX-License-Identifier: Apache-2.0

"""What a bucket lets pass in any time."""

import itertools

import hypothesis
from hypothesis import strategies as st
import pytest

from virtco.distribute import token_bucket
from virtco.wire import reports

AMOUNTS = st.floats(0.1, 100)


@hypothesis.given(st.lists(st.tuples(st.floats(0, 50), AMOUNTS), min_size=1),
                  st.floats(0.1, 10), AMOUNTS)
def test_no_time_sees_more_than_its_tokens(asked, per_s, burst):
    """Of one who spends whenever it owes nothing."""
    buckets, now_s, spent = token_bucket.Buckets(per_s, burst), 0.0, []
    for pause_s, amount in asked:
        now_s += max(pause_s, buckets.wait_s('h', now_s))
        buckets.spend('h', amount, now_s)
        spent.append((now_s, amount))
    for first, last in itertools.combinations_with_replacement(
            range(len(spent)), 2):
        some = spent[first:last + 1]
        most = burst + per_s * (some[-1][0] - some[0][0])
        # The last one may have any size.
        assert sum(amount for _, amount in some[:-1]) <= most * (1 + 1e-9)


@hypothesis.given(st.lists(st.tuples(st.floats(0, 50), AMOUNTS), min_size=1),
                  st.floats(0.1, 10), AMOUNTS)
def test_its_level_is_that_of_tokens_that_are_counted(asked, per_s, burst):
    buckets, now_s, level = token_bucket.Buckets(per_s, burst), 0.0, burst
    for pause_s, amount in asked:
        now_s += pause_s
        level = min(burst, level + per_s * pause_s) - amount
        buckets.spend('h', amount, now_s)
        wait_s = buckets.wait_s('h', now_s)
        assert wait_s == pytest.approx(max(0.0, -level / per_s), abs=1e-6)
        assert buckets.wait_s('h', now_s + wait_s + 1e-6) == 0


def test_a_bucket_that_nobody_used_is_full():
    buckets = token_bucket.Buckets(2, 10)
    assert buckets.wait_s('h', 0.0) == 0
    buckets.spend('h', 10, 0.0)
    assert buckets.wait_s('h', 0.0) == 0
    buckets.spend('h', 1, 0.0)
    assert buckets.wait_s('h', 0.0) == 0.5
    assert buckets.wait_s('other', 0.0) == 0


def test_a_whole_report_of_any_size_is_read_at_once():
    assert token_bucket.BURST_BYTES == reports.MOST_BYTES


def test_what_is_remembered_of_names_is_bounded(monkeypatch):
    monkeypatch.setattr(token_bucket, 'MOST_NAMES', 10)
    buckets, now_s, most = token_bucket.Buckets(1, 1), 100.0, 0
    buckets.spend('debtor', 1000, now_s)
    for number in range(50):
        buckets.spend(f'p{number}', 1, now_s)
        most = max(most, len(buckets._full_s))
        now_s += 0.25
        # Full again after a second.
        assert {f'p{n}' for n in range(max(0, number - 2), number + 1)} < (
            buckets._full_s.keys())
    assert most == 10
    assert buckets.wait_s('debtor', now_s) == 1000 - 1 - 12.5


def test_many_names_that_owe_are_looked_through_seldom(monkeypatch):
    monkeypatch.setattr(token_bucket, 'MOST_NAMES', 10)
    buckets, n_looks = token_bucket.Buckets(1, 1), 0
    for number in range(1000):
        before = buckets._full_s
        buckets.spend(f'p{number}', 1000, 0.0)
        n_looks += buckets._full_s is not before
    assert len(buckets._full_s) == 1000 and n_looks < 10


def test_a_full_bucket_is_forgotten(monkeypatch):
    monkeypatch.setattr(token_bucket, 'MOST_NAMES', 2)
    buckets = token_bucket.Buckets(1, 5)
    buckets.spend('full', 3, 0.0)
    buckets.spend('not', 4, 0.0)
    buckets.spend('new', 1, 3.0)
    assert buckets._full_s == {'not': 4.0, 'new': 4.0}
