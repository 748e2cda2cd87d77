# SPDX-License-Identifier: Apache-2.0

"""Figures as jobs: one per setting and seed, and a table of their numbers."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import concurrent.futures
import contextlib
import dataclasses
import functools
import itertools
import pathlib
import time
from typing import Any

import numpy as np

from virtco_lab.sim import training_jobs
from virtco_lab.sim.figures import outcome

#: Result of a job: a number, or several, for each series.
Found = Mapping[str, float | Sequence[float]]


Track = Callable[[Sequence[Any], str], Iterable[Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class Context:
    """Extent and inputs of a run of figures.

    :ivar seeds: seeds of random draws.
    :ivar shape: shape of the Table 2 workloads where a figure takes only one.
    :ivar short: only the settings that a figure names for a quick check.
    :ivar trace: the published Facebook trace.
    :ivar topology: file of the cluster that training jobs run on.
    :ivar kinds: kinds of these jobs; the models of the tree where empty.
    :ivar processes: processes that run jobs side by side; the numbers are the
        same.
    """

    seeds: tuple[int, ...] = tuple(range(8))
    shape: str = 'medium'
    short: bool = False
    trace: pathlib.Path | None = None
    topology: pathlib.Path | None = None
    kinds: tuple[training_jobs.Kind, ...] = ()
    processes: int = 1


@dataclasses.dataclass(slots=True)
class Samples:
    """Numbers by setting, series and seed.

    :ivar values: one row per seed for each setting and series.
    :ivar cpu_s: CPU time of each setting, all seeds together.
    """

    seeds: tuple[int, ...]
    values: dict[str, dict[str, list[list[float]]]] = dataclasses.field(
        default_factory=dict)
    cpu_s: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def settings(self) -> tuple[str, ...]:
        return tuple(self.values)

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as a record has them."""
        return {'seeds': list(self.seeds), 'samples': self.values}

    def of(self, setting: str, series: str) -> list[float]:
        """List all numbers of a series, in the order of the seeds."""
        return [value for row in self.values[setting][series]
                for value in row]

    def numbers(self, setting: str, values: 'Values') -> outcome.Numbers:
        """List the numbers of a series, or those that a function returns."""
        return (self.of(setting, values) if isinstance(values, str)
                else values(self, setting))

    def mean(self, setting: str, series: str) -> float:
        """Return the mean of all numbers of a series."""
        return float(np.mean(self.of(setting, series)))

    def ratios(self, setting: str, series: str, other_setting: str,
               other: str) -> np.ndarray:
        """Return the numbers of a series over those of another one."""
        found: np.ndarray = np.array(self.of(setting, series)) / np.array(
            self.of(other_setting, other))
        return found

    def value(self, setting: str, cell: 'Cell') -> Any:
        """Return a cell of a setting's row."""
        if isinstance(cell, str):
            return self.mean(setting, cell)
        return (cell.get(setting) if isinstance(cell, Mapping)
                else cell(self, setting))

    def add(self, setting: str, found: Found, cpu_s: float) -> None:
        """Take the next seed's numbers."""
        rows = self.values.setdefault(setting, {})
        for series, given in found.items():
            rows.setdefault(series, []).append(
                np.atleast_1d(np.array(given, float)).tolist())
        self.cpu_s[setting] = self.cpu_s.get(setting, 0.0) + cpu_s

    def saving(self, setting: str, theirs: str, ours: str = 'virtco'
               ) -> outcome.Saving | None:
        """Compare the times of two schemes in a setting."""
        return outcome.saving(self.of(setting, ours),
                              self.of(setting, theirs))


#: Value of a setting: the mean of a series, a constant of each setting, or a
#: function of the samples and the setting.
Cell = (str | Mapping[str, Any] | Callable[[Samples, str], outcome.Cell])
#: Numbers of a setting: those of a series, or the result of a function.
Values = str | Callable[[Samples, str], outcome.Numbers]
#: Headings, rows of cells, and panels of samples, with any of the settings.
Shown = tuple[Sequence[str], Sequence[Sequence[Any]], Sequence[outcome.Panel]]
Table = Callable[[Samples], Shown]
Panel = Callable[[Samples], outcome.Panel]


def by_setting(first: str, columns: Sequence[tuple[str, Cell]],
               *panels: Panel) -> Table:
    """Build the function that makes a table with a row for each setting.

    :param first: heading of the settings.
    :param columns: heading and cell of each further column.
    """
    return lambda found: (
        (first, *(heading for heading, _ in columns)),
        [(setting, *(found.value(setting, cell) for _, cell in columns))
         for setting in found.settings],
        [panel(found) for panel in panels])


def turned(table: Table) -> Table:
    """Build the function that makes a table with its rows as columns."""
    def turn(found: Samples) -> Shown:
        headings, rows, panels = table(found)
        first, *others = zip(headings, *rows, strict=True)
        return first, others, panels
    return turn


def shown(values: Values, factor: float = 1.0
          ) -> Callable[[Samples, str], str]:
    """Build the function that formats the mean and deviation of numbers."""
    return lambda found, setting: outcome.shown(
        factor * np.array(found.numbers(setting, values)))


def ratio(series: str, other: str, of: str | None = None) -> Values:
    """Build the function of a series' numbers over those of another one.

    :param of: setting of the other one; None: the same.
    """
    return lambda found, setting: found.ratios(setting, series, of or setting,
                                               other)


def averages(kind: str, title: str, x_label: str, y_label: str,
             series: Mapping[str, Values], log_y: bool = False) -> Panel:
    """Build the function that draws means and deviations at each setting.

    :param kind: bars, or lines over settings that are numbers.
    """
    def panel(found: Samples) -> outcome.Panel:
        x = (tuple(map(float, found.settings)) if kind == 'lines'
             else found.settings)
        return outcome.Panel(kind, title, x_label, y_label, tuple(
            outcome.averaged(label, x, [found.numbers(setting, values)
                                        for setting in found.settings])
            for label, values in series.items()), log_y=log_y)
    return panel


def compared(kind: str, title: str, first: str, y_label: str,
             series: Mapping[str, Values], log_y: bool = False,
             drawn: Collection[str] | None = None) -> Table:
    """Build the function that tabulates and draws means and deviations.

    :param first: heading of the settings.
    :param drawn: series that are drawn; None: all.
    """
    return by_setting(
        first, [(name, shown(values)) for name, values in series.items()],
        averages(kind, title, first, y_label, {
            name: values for name, values in series.items()
            if drawn is None or name in drawn}, log_y))


def bars(title: str, x_label: str, y_label: str, cells: Mapping[str, Cell],
         papers: Mapping[str, Cell] | None = None) -> Panel:
    """Build the function that draws values of each setting as bars.

    :param papers: the papers' numbers.
    """
    return lambda found: outcome.Panel('bars', title, x_label, y_label, tuple(
        outcome.Series(label, found.settings, tuple(
            found.value(setting, cell) for setting in found.settings),
            paper=is_paper)
        for is_paper, its in ((False, cells), (True, papers or {}))
        for label, cell in its.items()))


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """A figure or table of the papers.

    :ivar settings: its rows, columns or both; each is run for each seed.
    :ivar numbers: makes the numbers of one setting and seed, of the inputs.
    :ivar notes: remarks for readers, or functions of the samples.
    :ivar inputs: fields of a context that the numbers are made of.
    :ivar seeded: something is random.
    :ivar short: settings for a quick check; all if empty.
    :ivar measured: series that are times of the machine.
    """

    name: str
    title: str
    settings: tuple[str, ...]
    numbers: Callable[..., Found]
    table: Table
    notes: tuple[str | Callable[[Samples], str], ...] = ()
    inputs: tuple[str, ...] = ()
    seeded: bool = True
    short: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()

    @property
    def needs_trace(self) -> bool:
        """Whether it runs only where the published trace is."""
        return 'trace' in self.inputs

    def run(self, setting: str, seed: int, context: Context) -> Found:
        """Make the numbers of one setting and seed."""
        return self.numbers(setting, seed, *self._given(context))

    def _given(self, context: Context) -> tuple[Any, ...]:
        return tuple(getattr(context, name) for name in self.inputs)

    def show(self, found: Samples, context: Context) -> outcome.Outcome:
        """Return the table and plot of the samples."""
        columns, rows, panels = self.table(found)
        notes = [note if isinstance(note, str) else note(found)
                 for note in self.notes]
        if 'shape' in self.inputs:
            notes.append(f'Shape of the matrices: {context.shape}.')
        return outcome.Outcome(
            self.name, self.title, tuple(columns), tuple(map(tuple, rows)),
            tuple(panels), tuple(notes))

    def chosen(self, context: Context) -> tuple[str, ...]:
        """Return the settings to run."""
        return (self.short if context.short else ()) or self.settings

    def seeds(self, context: Context) -> tuple[int, ...]:
        """Return the context's seeds, or 0 alone where nothing is random."""
        return context.seeds if self.seeded else (0,)

    def sample(self, context: Context, track: Track = lambda jobs, _: jobs
               ) -> Samples:
        """Run all settings for all seeds.

        :param track: iterates over its first argument and shows progress
            under the name that is its second.
        """
        seeds = self.seeds(context)
        found = Samples(seeds)
        jobs = list(itertools.product(self.chosen(context), seeds))
        one = functools.partial(_timed, self.numbers, self._given(context))
        with contextlib.ExitStack() as stack:
            run: Any = map if context.processes == 1 else (
                stack.enter_context(concurrent.futures.ProcessPoolExecutor(
                    context.processes)).map)
            results = run(one, jobs)
            for setting, _seed in track(jobs, self.name):
                found.add(setting, *next(results))
        return found


def _timed(numbers: Callable[..., Found], given: tuple[Any, ...],
           job: tuple[str, int]) -> tuple[Found, float]:
    began_s = time.process_time()
    found = numbers(*job, *given)
    return found, time.process_time() - began_s
