# SPDX-License-Identifier: Apache-2.0

"""Only the time counts in which all connections of a round send."""

from hypothesis import given
from hypothesis import strategies as st
import pytest

from virtco.measure import rounds

UPLINK_BYTES = 6000


def shared(spans):
    """Windows of connections that share an uplink evenly while they send.

    :param spans: first window of each, and the one after its last.
    """
    found = {}
    for i, (begin, end) in enumerate(spans):
        found[f'h{i}', f'p{i}'] = [
            UPLINK_BYTES // sum(b <= now < e for b, e in spans)
            if begin <= now < end else 0 for now in range(end)]
    return found


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(100, 200)),
                min_size=1, max_size=6))
def test_the_sum_is_the_uplinks_rate_whoever_is_late(spans):
    windows = shared(spans)
    found = rounds.rates_bps(windows)
    assert found.keys() == windows.keys()
    assert sum(found.values()) == pytest.approx(
        UPLINK_BYTES * 8 / rounds.WINDOW_S, rel=0.01)


def test_what_comes_first_does_not_count():
    burst = [9000] * 20 + [1000] * 81
    (rate_bps,) = rounds.rates_bps({('a', 'b'): burst}).values()
    assert rate_bps == pytest.approx(1000 * 8 / rounds.WINDOW_S)


@pytest.mark.parametrize('spans', [
    [], [(0, 0)], [(0, 5)], [(0, 50), (50, 100)], [(0, 50), (45, 100)],
    [(0, 30), (10, 400)]])
def test_too_short_a_common_time_says_nothing(spans):
    assert rounds.rates_bps(shared(spans)) == {}


def test_a_transfer_is_bounded_in_bytes_and_time():
    transfer = rounds.Transfer(1_000_000, 0.02, 0.5)
    assert transfer.size_bytes(8e6) == 500_000  # by the time
    assert transfer.size_bytes(8e7) == 1_000_000
    assert transfer.size_bytes(8e10) == 200_000_000  # to fill the link
    assert transfer.size_bytes(8e11) == 2 ** 28  # the most of an order
    assert transfer.size_bytes(0.0) == 1
    assert (rounds.CHECK, rounds.DISCOVER) == (
        rounds.Transfer(3 * 1024 * 1024, 0.025, 0.3),
        rounds.Transfer(16 * 1024 * 1024, 0.05, 0.5))


@pytest.mark.parametrize(('n_windows', 'longest', 'n_counted'), [
    (7, 8, 0), (8, 9, 6), (10, 11, 7), (10, 70, 7), (10, 71, 0)])
def test_six_windows_and_a_tenth_of_the_time_say_something(
        n_windows, longest, n_counted, monkeypatch):
    """The last window ends early, a quarter of the others is left out."""
    counted = [0] + [1] * n_windows
    counted[-1 - n_counted:-1] = [1000] * n_counted
    monkeypatch.setattr(rounds, 'WINDOW_S', 0.5)
    found = rounds.rates_bps({'a': counted, 'b': [1] * longest})
    assert found == ({'a': 16000.0, 'b': 16.0} if n_counted else {})
