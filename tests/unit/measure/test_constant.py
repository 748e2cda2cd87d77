# SPDX-License-Identifier: Apache-2.0

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest

from tests import examples
from virtco.measure import constant
from virtco.measure import robustpca

E = constant.Estimator


def _history(seed, *, share=0.0, slow=(), n_snapshots=12, n_pairs=90,
             jitter=0.02):
    """Rates, and snapshots with disturbed readings and slow snapshots."""
    rng = np.random.default_rng(seed)
    rates = rng.uniform(2e8, 1e9, n_pairs)
    readings = rates * (1 + jitter * rng.standard_normal(
        (n_snapshots, n_pairs)))
    hit = rng.random(readings.shape) < share
    readings[hit] *= rng.uniform(0.1, 0.6, int(hit.sum()))
    readings[list(slow)] *= 0.6
    return rates, readings


def _off(found, rates):
    return float(np.median(np.abs(found / rates - 1)))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10 ** 6), st.floats(0, 0.3), st.integers(0, 4))
def test_the_choice_is_never_far_from_the_best(seed, share, n_slow):
    rates, readings = _history(seed, share=share, slow=range(0, 3 * n_slow, 3))
    found = constant.fit(readings)
    best = min(_off(constant.estimate(readings, one), rates) for one in E)
    assert _off(found.rates, rates) <= best + 0.03


def test_a_wide_band_takes_the_median_and_slow_snapshots_do_not():
    _rates, wide = _history(1, jitter=0.15)
    assert constant.fit(wide).estimator == E.MEDIAN
    _rates, slow = _history(1, slow=(1, 3, 5, 7, 9))
    found = constant.fit(slow)
    assert found.estimator != E.MEDIAN
    assert found.errors[found.estimator] < found.errors[E.MEDIAN]


def test_the_noise_is_the_share_of_disturbed_readings():
    for share, trust in ((0.05, 'stable'), (0.35, 'dynamic')):
        found = constant.fit(_history(2, share=share)[1])
        assert found.noise == pytest.approx(share, abs=0.05)
        assert found.trust == trust
    rng = np.random.default_rng(0)
    assert constant.fit(rng.exponential(1e8, (12, 90))).trust == 'unusable'


@pytest.mark.parametrize('one', list(E))
def test_pairs_with_fewer_readings(one):
    rates, readings = _history(3)
    readings[:9, ::2] = np.nan
    readings[:, 5] = np.nan
    found = constant.fit(readings, one)
    assert np.isnan(found.rates[5])
    known = np.arange(len(rates)) != 5
    assert _off(found.rates[known], rates[known]) < 0.03
    assert found.errors == {}


def test_the_quantile_is_numpys():
    _rates, readings = _history(4, share=0.2)
    readings[2:, 7] = np.nan
    for q in (0.0, 0.25, 0.5, 0.75, 1.0):
        assert constant.quantile(readings, q) == pytest.approx(
            np.nanquantile(readings, q, axis=0))


@settings(max_examples=examples.count(50), deadline=None)
@given(st.integers(0, 10 ** 6), st.integers(1, 12), st.floats(0, 1))
def test_the_consensus_has_most_readings_near(seed, n_snapshots, unseen):
    """No value has more readings near than the one that is found."""
    rng = np.random.default_rng(seed)
    readings = rng.uniform(1.0, 3.0, (n_snapshots, 8))
    readings[rng.random(readings.shape) < unseen] = np.nan
    found = constant.consensus(readings)
    for column, rate in zip(readings.T, found):
        known = column[np.isfinite(column)]
        if not known.size:
            assert np.isnan(rate)
            continue
        width = 1.1 / 0.9 * (1 + 1e-12)
        most, of = max((((known >= low) & (known <= width * low)).sum(), low)
                       for low in known)
        agree = known[(known >= of) & (known <= width * of)]
        assert rate == pytest.approx(agree.mean())
        assert len(agree) == most


def test_the_consensus_outlives_a_majority_of_disturbed_readings():
    column = [0.2, 0.98, 0.5, 1.0, 0.7, 0.35, 1.02, 0.12, 0.6]
    found = constant.consensus(np.array(column)[:, None])
    assert found == pytest.approx(1.0)
    assert constant.quantile(np.array(column)[:, None], 0.5) == 0.6


def test_readings_agree_that_are_all_within_a_tenth_of_one_value():
    found = constant.consensus(np.array([[9.0, 8.9], [11.0, 11.0]]))
    assert found.tolist() == [10.0, 11.0]


@pytest.mark.parametrize('scale', [1e-6, 1.0])
def test_a_reading_of_nothing_spoils_no_decomposition(scale):
    rates, readings = _history(7)
    readings[2, 10] = 0.0
    found = constant.estimate(readings * scale, E.RPCA)
    assert found / scale == pytest.approx(rates, rel=0.05)


@pytest.mark.parametrize('seed', range(3))
def test_rpca_is_nearer_by_times_than_by_rates(seed):
    rates, readings = _history(seed, share=0.3, n_pairs=400)
    found = constant.estimate(readings, E.RPCA)
    assert (found <= readings.max(axis=0)).all()
    assert (found < readings.max(axis=0)).mean() > 0.9
    off = np.abs(found / rates - 1).mean()
    by_rates = robustpca.constant_component(readings)
    assert off < 0.5 * np.abs(by_rates / rates - 1).mean()
    # And than the median, where a tenth of the pairs has lost its majority.
    assert off < np.abs(constant.quantile(readings, 0.5) / rates - 1).mean()


def test_few_snapshots_are_not_compared():
    assert constant.held_out_errors([[1.0, 2.0], [1.0, 2.0]]) == {}
    assert constant.fit([[1.0, 2.0]]).estimator == E.MEDIAN


def test_what_was_before_a_change_is_forgotten():
    rates, readings = _history(5)
    readings[8:, 3] = rates[3] * 0.4
    found = constant.since_change(readings, 0.3)
    assert np.isnan(found[:8, 3]).all()
    assert found[8:, 3] == pytest.approx(rates[3] * 0.4)
    others = np.arange(len(rates)) != 3
    assert (found[:, others] == readings[:, others]).all()
    assert constant.fit(found).rates[3] == pytest.approx(rates[3] * 0.4)


@pytest.mark.parametrize('rate, is_changed', [
    (3.0, False), (3.01, True), (1.0, False), (0.99, True)])
def test_a_change_is_more_than_the_threshold(rate, is_changed):
    found = constant.since_change([[2.0], [2.0], *[[rate]] * 3], 0.5)
    assert np.isnan(found).any() == is_changed


def test_disturbed_readings_are_no_change():
    _rates, readings = _history(6)
    readings[10:, 3] *= 0.4
    readings[9:, 4] *= [0.4, 0.7, 0.2]
    assert (constant.since_change(readings, 0.3) == readings).all()


def test_tiny_rates_have_a_constant_like_all_others():
    _rates, readings = _history(7)
    readings[:, :3] = [1e-310, 0.0, 5e-324]
    found = constant.fit(constant.since_change(readings, 0.3))
    assert found.rates[3:] == pytest.approx(
        constant.fit(readings[:, 3:]).rates, rel=0.05)
    assert constant.fit(readings * 1e-310).errors.keys() == set(E)


def test_what_has_no_decomposition_is_the_median(monkeypatch):
    def fails(_snapshots):
        raise np.linalg.LinAlgError

    monkeypatch.setattr(robustpca, 'constant_component', fails)
    _rates, readings = _history(8)
    assert (constant.fit(readings, E.RPCA).rates
            == constant.fit(readings, E.MEDIAN).rates).all()


def test_a_change_may_come_after_a_single_reading():
    n = constant.CHANGED_READINGS
    readings = np.full((n + 1, 2), 100.0)
    readings[0] = 300.0, 101.0
    found = constant.since_change(readings, 0.3)
    assert np.isnan(found[0, 0]) and found[0, 1] == 101.0
    np.testing.assert_array_equal(found[1:], readings[1:])
    # So few readings show no change.
    np.testing.assert_array_equal(
        constant.since_change(readings[:n], 0.3), readings[:n])


@pytest.mark.parametrize('scale', [1e-12, 1e-9, 1.0, 1e6])
def test_a_change_is_one_in_any_unit(scale):
    rates, readings = _history(5)
    readings[8:, 3] = rates[3] * 0.4
    found = constant.since_change(readings * scale, 0.3)
    np.testing.assert_array_equal(
        np.isnan(found), np.isnan(constant.since_change(readings, 0.3)))
    assert np.isnan(found[:8, 3]).all()
    assert np.isnan(found).sum() == 8


@pytest.mark.parametrize('noise, told', [
    (0.2, constant.Trust.STABLE), (0.201, constant.Trust.DYNAMIC),
    (0.5, constant.Trust.DYNAMIC), (0.501, constant.Trust.UNUSABLE)])
def test_trust_ends_where_the_paper_says(noise, told):
    assert constant.trust(noise) is told


def test_each_third_snapshot_is_predicted_by_the_others():
    nan = np.nan
    found = constant.held_out_errors([[100.0, 1.0, nan], [110.0, nan, nan],
                                      [130.0, nan, nan]])
    # Of the second pair the only reading is predicted by nothing.
    assert found[E.MEDIAN] == pytest.approx(
        (20 / 120 + 5 / 115 + 0.2 + 0.2) / 4)
    assert found[E.UPPER_QUARTILE] == pytest.approx(
        (25 / 125 + 12.5 / 122.5 + 0.2 + 0.2) / 4)
    assert found.keys() == set(E)
    assert constant.held_out_errors([[nan]] * 3) == dict.fromkeys(E, 0.0)
    assert constant.held_out_errors([[5.0], [nan], [nan]]) == (
        dict.fromkeys(E, 0.2))


@pytest.mark.parametrize(('errors', 'chosen'), [
    ({}, E.MEDIAN), ((1.02, 1.0, 1.0, 1.0), E.MEDIAN),
    ((1.03, 1.02, 1.0, 1.1), E.UPPER_QUARTILE),
    ((1.03, 1.03, 1.1, 1.0), E.RPCA), ((0.0, 0.0, 0.0, 0.0), E.MEDIAN),
    ((1.0, 0.5, 0.4, 0.3), E.RPCA)])
def test_the_simpler_of_those_that_are_close_is_chosen(errors, chosen):
    """Within two per cent of the best."""
    assert constant.choose(dict(zip(E, errors))) is chosen


def test_noise_counts_readings_that_are_a_tenth_off():
    nan = np.nan
    found = constant.fit([[100.0, 8.0, nan], [110.0, 9.0, nan],
                          [100.0, 9.0, nan], [89.9, nan, nan]], E.MEDIAN)
    assert found.rates[:2].tolist() == [100.0, 9.0]
    assert found.pair_noise.tolist() == [0.25, 1 / 3, 0.0]
    assert found.noise == 2 / 7
    assert constant.fit([[nan]], E.MEDIAN).noise == 0.0


def test_what_counts_as_a_change_or_a_disturbance():
    assert (constant.SNAPSHOTS, constant.MOST_ERROR, constant.LEAST_GAIN,
            constant.CHANGED_READINGS) == (10, 0.2, 0.02, 3)


@pytest.mark.parametrize(('after', 'is_changed'), [
    ((131.0, 131.0, 131.0), True), ((130.0, 130.0, 130.0), False),
    ((69.0, 69.0, 69.0), True), ((71.0, 71.0, 71.0), False),
    # They agree with their own median within a tenth.
    ((200.0, 219.0, 181.0), True), ((200.0, 221.0, 199.0), False),
    ((200.0, 200.0, np.nan), False)])
def test_a_change_is_three_readings_that_agree(after, is_changed):
    readings = np.array([100.0, 100.0, 100.0, *after])[:, None]
    found = constant.since_change(readings, 0.3)
    assert np.isnan(found[:3, 0]).all() == is_changed
    np.testing.assert_array_equal(found[3:], readings[3:])


def test_a_reading_that_is_missing_hides_no_change():
    readings = np.array([100.0, 100.0, 200.0, np.nan, 200.0, 200.0])[:, None]
    assert np.isnan(constant.since_change(readings, 0.3)[:2, 0]).all()
