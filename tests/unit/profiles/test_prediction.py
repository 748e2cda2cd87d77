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
