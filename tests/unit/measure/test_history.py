# SPDX-License-Identifier: Apache-2.0

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from virtco.measure import history


def _reading(at_s, rate_bps=1e8, src='a', dst='b', **more):
    return history.Reading(src, dst, rate_bps, at_s, **more)


@given(st.integers(1, 6), st.integers(0, 20))
def test_the_newest_readings_are_kept(depth, n):
    kept = history.History(depth)
    for i in range(n):
        kept.add(_reading(i + 0.5, 1e6 * (i + 1)))
    table = kept.table()
    assert table.times_s[np.isfinite(table.times_s)].tolist() == [
        i + 0.5 for i in range(max(0, n - depth), n)]
    if n:
        assert table.rates_bps[-1, 0] == 1e6 * n
        assert kept.newest_s() == n - 0.5


@given(st.integers(1, 12))
def test_a_restart_goes_on_in_the_same_places(n):
    before, stored = history.History(4), {}
    for i in range(n):
        one = _reading(float(i + 1))
        stored[before.add(one)] = one
    again = history.History(4)
    for slot, one in stored.items():
        again.add(one, slot)
    for name in ('ends', 'times_s', 'rates_bps', 'rtts_s'):
        np.testing.assert_array_equal(getattr(again.table(), name),
                                      getattr(before.table(), name))
    late = _reading(100.0)
    assert again.add(late) == before.add(late)


def test_what_is_loaded_replaces_nothing_newer():
    kept = history.History(4)
    kept.add(_reading(5.0))
    assert kept.add(_reading(3.0), 0) is None
    assert kept.add(_reading(9.0), 4) is None
    assert kept.add(_reading(7.0), 0) == 0


def test_many_pairs_and_what_is_missing():
    kept = history.History(3)
    for i in range(150):
        kept.add(_reading(1.0, 1e6 * i, f'h{i}', 'x', rtt_s=1e-3))
    kept.add(_reading(2.0, 5e9, 'h7', 'x', lower_bound=True))
    table = kept.table()
    assert table.ends.shape == (150, 2)
    pairs = [(table.hosts[src], table.hosts[dst]) for src, dst in table.ends]
    row = pairs.index(('h7', 'x'))
    assert np.isnan(table.rates_bps[-1, row])
    assert table.rates_bps[-2, row] == 7e6
    assert ('x', 'h7') not in pairs
    matrix = table.matrix(table.rtts_s[-1])
    assert matrix.shape == (151, 151)
    places = {name: i for i, name in enumerate(table.hosts)}
    assert matrix[places['h3'], places['x']] == pytest.approx(1e-3)
    assert np.isnan(matrix[places['x'], places['h3']])
    # Older ones are out of the table, and the newest stay in its last row.
    assert np.isnan(kept.table(1.5).times_s[-1]).sum() == 149


def test_a_pair_has_its_own_place_of_the_next_reading():
    kept = history.History(3)
    assert [kept.add(_reading(at_s)) for at_s in (1.0, 2.0, 3.0, 4.0)] == [
        0, 1, 2, 0]
    assert kept.add(_reading(1.0, src='c')) == 0
    # What is as old as the known one replaces nothing.
    assert kept.add(_reading(4.0), 0) is None
    assert kept.add(_reading(4.5), 2) == 2 and kept.add(_reading(5.0)) == 0
    assert history.History().depth == 10
    assert history.History().newest_s() == 0.0
    assert history.History().table().matrix(np.zeros(0)).shape == (0, 0)


def test_what_was_known_at_a_time():
    kept = history.History(3)
    for src, times_s in (('a', (1.0, 5.0, 7.0)), ('c', (2.0, 9.0))):
        for at_s in times_s:
            kept.add(_reading(at_s, 1e6 * at_s, src=src, rtt_s=at_s / 10))
    table = kept.table(until_s=5.0)
    expected = np.array([[np.nan, np.nan], [1.0, np.nan], [5.0, 2.0]])
    np.testing.assert_array_equal(table.times_s, expected)
    np.testing.assert_array_equal(table.rates_bps, 1e6 * expected)
    np.testing.assert_array_equal(table.rtts_s, expected / 10)
    assert np.nanmin(kept.table(5.0, 7.0).times_s) == 5.0


def test_rows_of_a_table_are_aligned_by_the_newest():
    kept = history.History(3)
    for at_s in (1.0, 2.0):
        kept.add(_reading(at_s, at_s * 1e6, rtt_s=at_s / 10))
    kept.add(_reading(9.0, 9e6, src='c'))
    table = kept.table(2.0)
    nan = np.nan
    np.testing.assert_array_equal(table.times_s, [[nan, nan], [nan, nan],
                                                  [2.0, 9.0]])
    np.testing.assert_array_equal(table.rates_bps[-1], [2e6, 9e6])
    np.testing.assert_array_equal(table.rtts_s[-1], [0.2, nan])
    assert np.isnan(table.rates_bps[:-1]).all()
    assert table.hosts == ('a', 'b', 'c')
    np.testing.assert_array_equal(table.ends, [[0, 1], [2, 1]])
    # A copy: what comes later changes nothing.
    kept.add(_reading(10.0, 1.0))
    np.testing.assert_array_equal(table.rates_bps[-1], [2e6, 9e6])


@pytest.mark.parametrize(('gone', 'left'), [
    ('x', 'abcd'), ('a', 'bcd'), ('ab', 'cd'), ('abc', ''), ('abcd', '')])
def test_pairs_of_forgotten_hosts_leave_the_others(gone, left):
    kept, others = history.History(3), history.History(3)
    for at_s, pair in enumerate(('ab', 'bc', 'cd', 'db', 'dc', 'cd'), 1):
        one = _reading(float(at_s), 1e6 * at_s, *pair)
        kept.add(one)
        if set(pair) <= set(left):
            others.add(one)
    kept.forget(set(gone))
    assert kept.hosts == others.hosts
    for _ in range(2):
        for name in ('ends', 'times_s', 'rates_bps', 'rtts_s'):
            np.testing.assert_array_equal(getattr(kept.table(), name),
                                          getattr(others.table(), name))
        new = _reading(9.0, src='d', dst='a')
        assert kept.add(new) == others.add(new)
