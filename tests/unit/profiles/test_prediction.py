# SPDX-License-Identifier: Apache-2.0

"""What the next hour will bring (Choreo section 2.1)."""

import numpy as np
import pytest

from virtco.profiles import prediction

HOURS = prediction.HOURS_PER_DAY


def test_a_nightly_job_is_told_by_the_time_of_day():
    history = np.zeros(5 * HOURS + 3)
    history[3::HOURS] = 100.0
    found = prediction.predict(history)
    assert found.method == prediction.Method.TIME_OF_DAY
    assert found.size_bytes == pytest.approx(100)
    assert found.error_fraction == pytest.approx(0)
    assert prediction.predict(history[:-1]).size_bytes == pytest.approx(0)


def test_a_drift_is_told_by_the_last_hour():
    history = 1.1 ** np.arange(6 * HOURS)
    found = prediction.predict(history)
    assert found.method == prediction.Method.LAST_HOUR
    assert found.size_bytes == pytest.approx(history[-1])
    assert found.error_fraction == pytest.approx(0.1 / 1.1, rel=1e-6)


def test_the_choice_is_never_worse_than_either_on_its_history():
    rng = np.random.default_rng(3)
    history = rng.lognormal(0, 1, 4 * HOURS)
    found = prediction.predict(history)
    for one in (prediction.last_hour(history),
                prediction.time_of_day(history)):
        known = one[HOURS:-1], history[HOURS:]
        assert found.error_fraction <= prediction.error_fraction(
            known[1], known[0]) + 1e-9


def test_short_histories():
    assert prediction.predict([]).method == prediction.Method.NONE
    one = prediction.predict([7.0])
    assert (one.size_bytes, one.error_fraction) == (7.0, None)
    assert prediction.predict([0.0] * 50).size_bytes == 0


def test_a_day_and_a_week():
    assert (prediction.HOURS_PER_DAY, prediction.MOST_DAYS,
            prediction.LEAST_HOURS) == (24, 7, 3)
    assert prediction.WEIGHTS.tolist() == pytest.approx(
        [step / 10 for step in range(11)])


def test_hours_without_bytes_are_zero():
    assert prediction.series({3: 7.0, 5: 1.0, 9: 2.0}, 2, 6).tolist() == [
        0.0, 7.0, 0.0, 1.0]


def test_the_time_of_day_is_the_mean_of_a_week():
    history = np.arange(9.0 * HOURS)
    found = prediction.time_of_day(history)
    assert len(found) == len(history) + 1
    assert np.isnan(found[:HOURS]).all()
    assert found[HOURS] == 0 and found[HOURS + 5] == 5
    # Of the same hour of seven days, never of more; of fewer at first.
    assert found[2 * HOURS + 1] == (1 + (HOURS + 1)) / 2
    assert found[-1] == np.mean([9 * HOURS - day * HOURS
                                 for day in range(1, 8)])


def test_the_last_hour_is_the_one_before():
    found = prediction.last_hour(np.array([3.0, 5.0]))
    assert np.isnan(found[0]) and found[1:].tolist() == [3.0, 5.0]


def test_an_error_is_told_by_three_hours_that_sent():
    predicted = np.array([np.nan, 1.0, 5.0, 2.0])
    history = np.array([100.0, 2.0, 3.0, 5.0])
    assert prediction.error_fraction(history, predicted) == (
        1 + 2 + 3) / (2 + 3 + 5)
    # The hour to come has no error yet.
    assert prediction.error_fraction(history, np.append(predicted, 9.0)) == (
        0.6)
    assert prediction.error_fraction(history[:3], predicted[:3]) is None
    assert prediction.error_fraction(np.array([9.0, 0.0, 0.0, 0.0]),
                                     predicted) is None
    assert prediction.error_fraction(np.array([9.0, 0.0, 0.0, 0.5]),
                                     predicted) == 7.5 / 0.5


def test_a_mixture_is_chosen_where_it_errs_least():
    """Each hour is seven tenths of the one before, the rest of the day's."""
    rng = np.random.default_rng(5)
    history = rng.uniform(1, 9, HOURS).tolist()
    for hour in range(HOURS, 2 * HOURS):
        history.append(0.7 * history[-1] + 0.3 * history[hour - HOURS])
    found = prediction.predict(history)
    assert found.method == prediction.Method.MIXED
    assert found.last_hour_weight == pytest.approx(0.7)
    assert found.error_fraction == pytest.approx(0)
    assert found.size_bytes == pytest.approx(
        0.7 * history[-1] + 0.3 * (history[0] + history[HOURS]) / 2)


def test_a_day_is_too_short_for_the_time_of_day():
    """Of the hour before a day the error is known, of the day's it is not."""
    found = prediction.predict([4.0] * (HOURS - 1))
    assert (found.method, found.error_fraction, found.last_hour_weight) == (
        prediction.Method.LAST_HOUR, 0.0, 1.0)
    assert prediction.predict([7.0, 9.0, 3.0]).size_bytes == 3.0
    # Three hours have one of the day before.
    found = prediction.predict([*range(1, HOURS + 1), 1, 2])
    assert (found.method, found.size_bytes) == (
        prediction.Method.LAST_HOUR, 2.0)
    found = prediction.predict([*range(1, HOURS + 1), 1, 2, 3])
    assert found.method == prediction.Method.TIME_OF_DAY
    assert (found.size_bytes, found.error_fraction,
            found.last_hour_weight) == (4, 0.0, 0.0)
    assert prediction.predict([]).size_bytes == 0
    assert prediction.predict([]).last_hour_weight == 1.0
