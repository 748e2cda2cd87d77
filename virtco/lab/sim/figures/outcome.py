# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""What a reproduced figure consists of: a table, and panels to plot."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
from typing import Any
from typing import TypeVar

import numpy as np

Item = TypeVar('Item')
Cell = str | float | None


def _plain(items: Sequence[Item], description: str) -> Iterable[Item]:
    return items


@dataclasses.dataclass(frozen=True, slots=True)
class Context:
    """How much to run.

    :ivar seeds: number of seeds of what is random.
    :ivar shape: of the Table 2 workloads where a figure takes only one.
    :ivar track: iterates over its first argument and shows progress.
    """

    seeds: int = 8
    shape: str = 'medium'
    track: Callable[[Sequence[Any], str], Iterable[Any]] = _plain


@dataclasses.dataclass(frozen=True, slots=True)
class Series:
    """One curve or group of bars; ``error`` is a standard deviation."""

    label: str
    x: tuple[Cell, ...]
    y: tuple[float, ...]
    error: tuple[float, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Panel:
    """One set of axes. ``kind`` is bars, lines or cdf."""

    kind: str
    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    log_y: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """A reproduced figure.

    :ivar name: as given to ``virtco-sim reproduce``.
    :ivar rows: as many cells as columns each; None prints as a dash.
    :ivar notes: what to know when reading it.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    panels: tuple[Panel, ...]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {'name': self.name, 'title': self.title,
                'columns': list(self.columns),
                'rows': [list(row) for row in self.rows],
                'notes': list(self.notes)}


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation (0 for a single value)."""
    data = np.asarray(values, float)
    return (float(data.mean()),
            float(data.std(ddof=1)) if len(data) > 1 else 0.0)


def shown(values: Sequence[float], digits: int = 2) -> str:
    """``mean ± deviation`` as text."""
    mean, deviation = spread(values)
    return f'{mean:.{digits}f} ± {deviation:.{digits}f}'


def reduction(ours: float, theirs: float) -> float:
    """Relative speed-up (VirtCO section 5.1): share of the time saved, %."""
    return 100.0 * (theirs - ours) / theirs if theirs > 0 else 0.0
