# SPDX-License-Identifier: Apache-2.0

"""The long-term rate of each pair, by the estimator that predicts best.

RPCA (:mod:`virtco.measure.robustpca`) looks at all pairs together, the others
at each pair alone. Which of them is nearest to the truth depends on how the
network is disturbed, so the cloud's own history decides: each estimator sees
two thirds of the snapshots and predicts the others. Some of those are
disturbed themselves; an error therefore counts up to ``MOST_ERROR`` only.

The consensus solves the problem as the paper states it: minimise |N_E|_0 where
all rows of N_D are the same (section III). That separates into pairs, and a
pair's best value is the one that most of its readings are near. RPCA replaces
|N_E|_0 by a convex norm. It is given the times of a message, not the rates,
since a disturbed reading stands out more as a time.
"""

import dataclasses
import enum

import numpy as np
from numpy import typing as npt

from virtco.measure import robustpca

Matrix = npt.NDArray[np.float64]

#: The paper takes ten snapshots (RPCA section V-C).
SNAPSHOTS = 10
#: An error above this is a disturbed reading, however large it is.
MOST_ERROR = 2 * robustpca.TOLERANCE
#: A smaller advantage than this is chance: the simpler estimator stays.
LEAST_GAIN = 0.02
#: Below this Norm(N_E) a network is stable, above the next one not worth
#: optimising for (RPCA section V-D3).
STABLE = 0.2
UNSTABLE = 0.5
#: Successive readings that agree with each other, and not with the constant,
#: and therefore are a change and no disturbance.
CHANGED_READINGS = 3

_FOLDS = 3
_SAME = 1e-9
# Ratio of the largest to the smallest of readings within the tolerance of one
# value.
_WIDTH = (1 + robustpca.TOLERANCE) / (1 - robustpca.TOLERANCE)
# A rate below this share of the median one is taken for it in RPCA: a time
# without end would be all that the decomposition sees.
_LEAST_SHARE = 1e-3


class Estimator(enum.StrEnum):
    """Estimators, the preferred first where they predict equally well."""

    MEDIAN = 'median'
    UPPER_QUARTILE = 'upper-quartile'
    CONSENSUS = 'consensus'
    RPCA = 'rpca'


_QUANTILES = {Estimator.MEDIAN: 0.5, Estimator.UPPER_QUARTILE: 0.75}


class Trust(enum.StrEnum):
    """How far the constant component may be followed."""

    STABLE = 'stable'
    DYNAMIC = 'dynamic'
    UNUSABLE = 'unusable'


@dataclasses.dataclass(frozen=True, slots=True)
class Constant:
    """The constant component of a history.

    :ivar rates: float array of shape (n_pairs,), NaN where nothing is known.
    :ivar noise: Norm(N_E), the share of readings that differ from it by more
        than :data:`virtco.measure.robustpca.TOLERANCE`.
    :ivar pair_noise: the same share of each pair, shape (n_pairs,).
    :ivar errors: mean relative error of each estimator on snapshots that it
        did not see; empty for fewer than three snapshots.
    """

    estimator: Estimator
    rates: Matrix
    noise: float
    pair_noise: Matrix
    errors: dict[Estimator, float]

    @property
    def trust(self) -> Trust:
        """Class of trust that follows from ``noise``."""
        return trust(self.noise)


def trust(noise: float) -> Trust:
    """Classify a value of Norm(N_E)."""
    if noise <= STABLE:
        return Trust.STABLE
    return Trust.DYNAMIC if noise <= UNSTABLE else Trust.UNUSABLE


def fit(snapshots: npt.ArrayLike,
        estimator: Estimator | None = None) -> Constant:
    """Fit the constant component by the estimator that predicts best.

    :param snapshots: array-like of shape (n_snapshots, n_pairs), oldest
        first, not negative; NaN where a pair was not measured.
    :param estimator: this one, without a comparison.
    """
    matrix = np.asarray(snapshots, np.float64)
    errors = {} if estimator is not None else held_out_errors(matrix)
    chosen = estimator or choose(errors)
    rates = estimate(matrix, chosen)
    wrong, seen = _errors(matrix, rates), np.isfinite(matrix)
    per_pair = wrong.sum(axis=0) / np.maximum(seen.sum(axis=0), 1)
    return Constant(chosen, rates, float(wrong.sum() / max(seen.sum(), 1)),
                    per_pair, errors)


def choose(errors: dict[Estimator, float]) -> Estimator:
    """Choose the least error; a simpler estimator where they are close."""
    if not errors:
        return Estimator.MEDIAN
    least = min(errors.values())
    return next(one for one in Estimator
                if errors[one] <= least * (1 + LEAST_GAIN))


def held_out_errors(snapshots: npt.ArrayLike) -> dict[Estimator, float]:
    """Compute each estimator's mean relative error on held-out readings.

    Every third snapshot is held out, three times over. Each error counts up
    to :data:`MOST_ERROR`: else one reading cut to a tenth would weigh more
    than ten pairs that are estimated a little too low.
    """
    matrix = np.asarray(snapshots, np.float64)
    if len(matrix) < _FOLDS:
        return {}
    totals = dict.fromkeys(Estimator, 0.0)
    count = 0
    for fold in range(_FOLDS):
        held = np.arange(len(matrix)) % _FOLDS == fold
        known = np.isfinite(matrix[held])
        for one in Estimator:
            rates = estimate(matrix[~held], one)
            with np.errstate(divide='ignore', invalid='ignore',
                             over='ignore'):
                off = np.abs(matrix[held] / rates - 1)
            # A pair without an estimate is wrong by all that counts.
            off = np.where(np.isfinite(off), np.minimum(off, MOST_ERROR),
                           MOST_ERROR)
            totals[one] += float(off[known].sum())
        count += int(known.sum())
    return {one: total / max(count, 1) for one, total in totals.items()}


def estimate(snapshots: Matrix, estimator: Estimator) -> Matrix:
    """Estimate the rate of each pair, (n_pairs,); NaN without readings."""
    if estimator in _QUANTILES:
        return quantile(snapshots, _QUANTILES[estimator])
    return (consensus(snapshots) if estimator == Estimator.CONSENSUS
            else _by_rpca(snapshots))


def quantile(snapshots: Matrix, q: float) -> Matrix:
    """Compute each column's quantile without NaN, shape (n_pairs,).

    As numpy.nanquantile, which is slow.
    """
    ordered = np.sort(snapshots, axis=0)
    count = np.isfinite(ordered).sum(axis=0)
    place = q * np.maximum(count - 1, 0)
    low = np.floor(place).astype(np.int64)
    high = np.ceil(place).astype(np.int64)
    columns = np.arange(snapshots.shape[1])
    below, above = ordered[low, columns], ordered[high, columns]
    found: Matrix = below + (above - below) * (place - low)
    return found


def consensus(snapshots: Matrix) -> Matrix:
    """Average the largest set of agreeing readings of each column.

    Readings agree if one value is within
    :data:`virtco.measure.robustpca.TOLERANCE` of all of them; between sets of
    one size the fastest counts, as disturbances slow down.
    """
    ordered = np.sort(snapshots, axis=0)
    found = np.full(snapshots.shape[1], np.nan)
    most = np.ones(snapshots.shape[1], np.int64)
    for slowest in ordered:
        agree = (ordered >= slowest) & (ordered <= _WIDTH * slowest)
        count = agree.sum(axis=0)
        total = np.where(agree, ordered, 0.0).sum(axis=0)
        is_better = count >= most
        found[is_better] = total[is_better] / count[is_better]
        most = np.maximum(most, count)
    return found


def since_change(snapshots: npt.ArrayLike, threshold: float) -> Matrix:
    """Drop each pair's readings before its last change.

    Algorithm 1, lines 4 to 9, calibrates anew when |t - t'| / t' exceeds a
    threshold. A history that goes on needs no new calibration, it only has to
    forget: where the newest readings of a pair agree with each other and
    differ from the median of the earlier ones by more than the threshold, the
    earlier ones become NaN.

    :param threshold: a fraction, of the earlier rate.
    """
    matrix = np.asarray(snapshots, np.float64).copy()
    with np.errstate(invalid='ignore', over='ignore'):
        # Where all readings are alike nothing has changed.
        left = np.flatnonzero(~(np.fmax.reduce(matrix) <= (
            1 + threshold) * np.fmin.reduce(matrix)))
    since = np.zeros(matrix.shape[1], np.int64)
    for begin in range(len(matrix) - CHANGED_READINGS, 0, -1):
        # The earliest begin wins for each pair: later rows are kept.
        before = quantile(matrix[:begin, left], 0.5)
        after = matrix[begin:, left]
        level = quantile(after, 0.5)
        with np.errstate(invalid='ignore', divide='ignore', over='ignore'):
            is_moved = np.abs(level / before - 1) > threshold
            agree = (np.abs(after / level - 1) <= robustpca.TOLERANCE)
            agree |= np.isnan(after)
            is_moved &= agree.all(axis=0)
            is_moved &= np.isfinite(after).sum(axis=0) >= CHANGED_READINGS
            since[left[is_moved]] = begin
            # Readings that are further apart agree with no more of them.
            left = left[~(np.fmax.reduce(after) > (
                1 + _SAME) * _WIDTH * np.fmin.reduce(after))]
    matrix[np.arange(len(matrix))[:, None] < since] = np.nan
    return matrix


def _by_rpca(snapshots: Matrix) -> Matrix:
    """Return the rates of RPCA's constant component, per pair."""
    known = np.isfinite(snapshots)
    seen = known.any(axis=0)
    rates = np.full(snapshots.shape[1], np.nan)
    if seen.any():
        part = snapshots[:, seen]
        # A reading that is missing agrees with the others of its pair.
        median = quantile(part, 0.5)
        filled = np.where(known[:, seen], part, median)
        least = _LEAST_SHARE * float(np.median(filled)) or 1.0
        try:
            times = robustpca.constant_component(
                least / np.maximum(filled, least))
            # No pair is faster than its fastest reading.
            rates[seen] = np.minimum(
                least / np.maximum(times, np.finfo(float).tiny),
                filled.max(axis=0))
        except np.linalg.LinAlgError:  # its iteration has no end
            rates[seen] = median
    return rates


def _errors(matrix: Matrix, rates: Matrix) -> npt.NDArray[np.bool_]:
    with np.errstate(invalid='ignore'):
        return np.abs(matrix - rates) > robustpca.TOLERANCE * rates
