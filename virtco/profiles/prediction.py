# SPDX-License-Identifier: Apache-2.0

"""Prediction of a pair's bytes in the next hour. Pure.

Choreo section 2.1: "data from the previous hour and the time-of-day are good
predictors of the number of bytes transferred in the next hour". Both are
offered, and a mixture whose weight is chosen by the error that it would have
had on the same history; the error that a prediction shows is that one.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import enum

import numpy as np

from virtco.wire import profile as wire

HOURS_PER_DAY = 24
MOST_DAYS = 7
WEIGHTS = np.linspace(0.0, 1.0, 11)
#: Fewer hours of history say nothing about the error.
LEAST_HOURS = 3


class Method(enum.StrEnum):
    """Way to predict the bytes of the next hour."""

    LAST_HOUR = 'last-hour'
    TIME_OF_DAY = 'time-of-day'
    MIXED = 'mixed'
    NONE = 'none'


def series(hours: Mapping[int, float], first: int, until: int
           ) -> np.ndarray:
    """Return the bytes of each hour from ``first`` to ``until - 1``, 0 if
    missing.
    """
    return np.array([hours.get(hour, 0.0) for hour in range(first, until)])


def time_of_day(history: np.ndarray) -> np.ndarray:
    """Predict each hour by the mean of the same hour of the last days.

    :param history: array of shape (n_hours,).
    :returns: array of shape (n_hours + 1,), the last one of the hour to come;
        NaN where no earlier day is known.
    """
    found = np.full(len(history) + 1, np.nan)
    for hour in range(HOURS_PER_DAY, len(found)):
        days = np.arange(hour - HOURS_PER_DAY, -1, -HOURS_PER_DAY)
        found[hour] = history[days[:MOST_DAYS]].mean()
    return found


def last_hour(history: np.ndarray) -> np.ndarray:
    """Predict each hour by the one before it, as :func:`time_of_day`."""
    return np.concatenate([[np.nan], history])


def error_fraction(history: np.ndarray, predicted: np.ndarray
                   ) -> float | None:
    """Divide the sum of absolute errors by the sum of bytes.

    Hours in which either is unknown are left out; None for too few hours.
    """
    known = ~np.isnan(predicted[:len(history)])
    if known.sum() < LEAST_HOURS or history[known].sum() <= 0:
        return None
    return float(np.abs(predicted[:len(history)][known] - history[known]
                        ).sum() / history[known].sum())


def predict(history: Sequence[float] | np.ndarray) -> wire.Predicted:
    """Predict the bytes of the next hour.

    :param history: bytes of each hour, the oldest first.
    """
    found = np.asarray(history, np.float64)
    if not len(found):
        return wire.Predicted(size_bytes=0.0, error_fraction=None,
                              method=Method.NONE, last_hour_weight=1.0)
    last, daily = last_hour(found), time_of_day(found)
    errors = [None if np.isnan(daily[-1]) else error_fraction(
        found, weight * last + (1 - weight) * daily) for weight in WEIGHTS]
    if None in errors:
        return wire.Predicted(
            size_bytes=float(last[-1]),
            error_fraction=error_fraction(found, last),
            method=Method.LAST_HOUR, last_hour_weight=1.0)
    best = int(np.argmin(np.array(errors, np.float64)))
    weight = float(WEIGHTS[best])
    return wire.Predicted(
        size_bytes=float(weight * last[-1] + (1 - weight) * daily[-1]),
        error_fraction=errors[best], last_hour_weight=weight,
        method={0.0: Method.TIME_OF_DAY, 1.0: Method.LAST_HOUR}.get(
            weight, Method.MIXED))
