# SPDX-License-Identifier: Apache-2.0

"""A reproduced figure: a table, and panels to plot."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
from typing import Any

import numpy as np

Cell = str | float | None
Numbers = Sequence[float] | np.ndarray


@dataclasses.dataclass(frozen=True, slots=True)
class Series:
    """A curve or a group of bars.

    :ivar y: None where there is no value.
    :ivar error: a standard deviation, or half an interval.
    :ivar paper: whether these are the papers' numbers, which are drawn
        differently.
    :ivar over: label of the series over whose bars the papers' numbers are
        drawn; None: in the middle.
    :ivar of: subject of the series, which sets its colour; None: the label.
    :ivar marks: whether each point of a line is marked.
    """

    label: str
    x: tuple[Cell, ...]
    y: tuple[float | None, ...]
    error: tuple[float, ...] | None = None
    paper: bool = False
    over: str | None = None
    of: str | None = None
    marks: bool = True

    @property
    def colour(self) -> str:
        """Key of the colour, which series with the same subject share."""
        return self.of or self.label


@dataclasses.dataclass(frozen=True, slots=True)
class Band:
    """A range that a paper names, drawn across a panel; across x in a cdf."""

    label: str
    low: float
    high: float


@dataclasses.dataclass(frozen=True, slots=True)
class Panel:
    """A set of axes with its series.

    :ivar kind: bars, lines, points, cdf, or log cdf.
    """

    kind: str
    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    log_y: bool = False
    bands: tuple[Band, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """A reproduced figure.

    :ivar name: name for ``virtco-sim reproduce``.
    :ivar rows: rows with as many cells as columns; None prints as a dash.
    :ivar notes: remarks for its readers.
    :ivar unmet: claims that these numbers do not bear out.
    :ivar runs: runs that it is made of, for a record.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    panels: tuple[Panel, ...]
    notes: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()
    runs: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {'name': self.name, 'title': self.title,
                'columns': list(self.columns),
                'rows': [list(row) for row in self.rows],
                'notes': list(self.notes)}


@dataclasses.dataclass(frozen=True, slots=True)
class Saving:
    """Share of another scheme's time that a scheme saves, in percent.

    :ivar half: half of the 95 % interval, infinite for a single pair.
    """

    percent: float
    half: float

    def __str__(self) -> str:
        # Plus 0: not -0.0.
        mean, low, high = (round(value, 1) + 0.0 for value in (
            self.percent, self.percent - self.half, self.percent + self.half))
        if not math.isfinite(self.half):
            return f'{mean:.1f}'
        return f'{mean:.1f} [{low:.1f}, {high:.1f}]'


def cell(value: Cell) -> str:
    """Format a cell of a table, a number to four digits."""
    if value is None:
        return '–'
    if isinstance(value, str):
        return value
    return f'{value:.0f}' if abs(value) >= 1000 else f'{value:.4g}'


def spread(values: Numbers) -> tuple[float, float]:
    """Return mean and sample standard deviation (0 for a single value)."""
    data = np.asarray(values, float)
    return (float(data.mean()),
            float(data.std(ddof=1)) if len(data) > 1 else 0.0)


def averaged(label: str, x: Sequence[Cell],
             values: Iterable[Numbers]) -> Series:
    """Return the series of means and deviations of each point's values."""
    mean, deviation = zip(*map(spread, values))
    return Series(label, tuple(x), mean, deviation)


def shown(values: Numbers) -> str:
    """Format ``mean ± deviation``, the mean to three digits.

    A single value has no deviation.
    """
    mean, deviation = spread(values)
    digits = 2 if mean == 0 else max(
        0, 2 - math.floor(math.log10(abs(mean)) + 1e-9))
    digits = min(digits, 3)
    if len(values) == 1:
        return f'{mean:.{digits}f}'
    return f'{mean:.{digits}f} ± {deviation:.{digits}f}'


def half_interval(values: Numbers) -> float:
    """Return half of the mean's 95 % interval (Student), inf for one value."""
    return half_of(spread(values)[1], len(values))


def half_of(deviation: float, n_values: int) -> float:
    """Return the same for values with this sample standard deviation."""
    # Loading takes 0.2 s and 20 MB, and a run of a trace has no interval.
    from scipy import special
    if n_values < 2:
        return math.inf
    return float(special.stdtrit(n_values - 1, 0.975)
                 * deviation / math.sqrt(n_values))


def reduction(ours: float, theirs: float) -> float:
    """Return the share of the time saved, in % (VirtCO section 5.1)."""
    return 100.0 * (theirs - ours) / theirs if theirs > 0 else 0.0


def saving(ours: Sequence[float], theirs: Sequence[float]) -> Saving | None:
    """Return the saving of the mean time, with values paired by seed.

    The interval is Student's over the pairs, for a ratio of means (delta
    method): each pair's distance from the ratio, relative to their mean.

    :returns: None where the other scheme takes no time.
    """
    mine, others = np.asarray(ours, float), np.asarray(theirs, float)
    if others.mean() <= 0:
        return None
    ratio = mine.mean() / others.mean()
    half = half_interval((mine - ratio * others) / others.mean())
    return Saving(100 * (1 - float(ratio)), 100 * half)
