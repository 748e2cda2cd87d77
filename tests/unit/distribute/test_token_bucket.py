# SPDX-License-Identifier: Apache-2.0

"""What a bucket lets pass in any time."""

import itertools

import hypothesis
from hypothesis import strategies as st
import pytest

from virtco.distribute import token_bucket
from virtco.wire import frames

AMOUNTS = st.floats(0.1, 100)


@hypothesis.given(st.lists(st.tuples(st.floats(0, 50), AMOUNTS), min_size=1),
                  st.floats(0.1, 10), AMOUNTS)
def test_no_time_sees_more_than_its_tokens(asked, per_s, burst):
    """Of one who spends whenever it owes nothing."""
    bucket, now_s, spent = token_bucket.Bucket(per_s, burst), 0.0, []
    for pause_s, amount in asked:
        now_s += max(pause_s, bucket.wait_s(now_s))
        bucket.spend(amount, now_s)
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
    bucket, now_s, level = token_bucket.Bucket(per_s, burst), 0.0, burst
    for pause_s, amount in asked:
        now_s += pause_s
        level = min(burst, level + per_s * pause_s) - amount
        bucket.spend(amount, now_s)
        wait_s = bucket.wait_s(now_s)
        assert wait_s == pytest.approx(max(0.0, -level / per_s), abs=1e-6)
        assert bucket.wait_s(now_s + wait_s + 1e-6) == 0
        full_s = now_s + (burst - level) / per_s
        assert bucket.is_full(full_s + 1e-6)
        assert not bucket.is_full(full_s - 1e-3)


def test_a_bucket_that_nobody_used_is_full():
    bucket = token_bucket.Bucket(2, 10)
    assert bucket.is_full(0.0) and bucket.wait_s(0.0) == 0
    bucket.spend(10, 0.0)
    assert bucket.wait_s(0.0) == 0
    bucket.spend(1, 0.0)
    assert bucket.wait_s(0.0) == 0.5


@pytest.mark.parametrize('size_bytes, cpu_s, wait_s', [
    (token_bucket.BURST_BYTES, token_bucket.BURST_CPU_S, 0),
    (token_bucket.BURST_BYTES + 3 * token_bucket.BYTES_PER_S, 0, 3),
    (0, token_bucket.BURST_CPU_S + 3 * token_bucket.CPU_PER_S, 3)])
def test_a_budget_is_of_bytes_and_of_processor_time(size_bytes, cpu_s,
                                                    wait_s):
    budget = token_bucket.Budget()
    assert budget.is_full(5.0)
    budget.spend(size_bytes, cpu_s, 5.0)
    assert budget.wait_s(5.0) == pytest.approx(wait_s)
    assert not budget.is_full(5.0) and budget.is_full(100.0)


def test_a_whole_report_of_any_size_is_read_at_once():
    budget = token_bucket.Budget()
    budget.spend(frames.MOST_BYTES, 0.0, 5.0)
    assert budget.wait_s(5.0) == 0
