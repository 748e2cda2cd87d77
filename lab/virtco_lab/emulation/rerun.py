# SPDX-License-Identifier: Apache-2.0

"""Compares a measured figure with its record, seed by seed.

Two runs on packets never agree to the digit. A number is off where the mean
over the seeds has moved by more than the seeds' own differences explain, and
by more than a twentieth.
"""

from collections import abc
from typing import Any

import numpy as np

from virtco import exception
from virtco_lab.sim.figures import outcome

#: Largest relative difference of a mean that needs no explanation.
TOLERANCE = 0.05
#: Series of samples that depend on the machine's load.
_OF_THE_MACHINE = frozenset({'waited', 'repeated'})
#: Columns of runs that are measured.
_MEASURED = ('measured_s', 'placement', 'order', 'enforcement')

#: Measured numbers by cell and seed.
Numbers = dict[str, dict[int, float]]


def compare(known: abc.Mapping[str, Any], found: outcome.Outcome
            ) -> tuple[int, list[str]]:
    """Compare a figure with its record over the seeds that both have.

    :param known: document of the record.
    :returns: number of cells compared, and a line about each that is off.
    :raises virtco.exception.Invalid: for a cell that is not recorded.
    """
    recorded, again = numbers(known), numbers(found.runs)
    lines, count = [], 0
    for cell, by_seed in again.items():
        if cell not in recorded:
            raise exception.Invalid(
                field=found.name, value=cell,
                limit='a recorded cell (--write records the figure)')
        seeds = sorted(by_seed.keys() & recorded[cell].keys())
        then, now = (np.array([its[seed] for seed in seeds])
                     for its in (recorded[cell], by_seed))
        # A single seed does not tell how far a number varies.
        if len(seeds) < 2:
            continue
        count += 1
        moved = now.mean() - then.mean()
        half = outcome.half_of(float(np.std(now - then, ddof=1)), len(seeds))
        if abs(moved) > max(half, TOLERANCE * abs(then.mean())):
            lines.append(f'{found.name}: {cell}: {now.mean():.4g}, recorded '
                         f'{then.mean():.4g} ({len(seeds)} seeds)')
    return count, lines


def numbers(document: abc.Mapping[str, Any]) -> Numbers:
    """Return the measured numbers of a record, none of one without seeds."""
    found: Numbers = {}
    for setting, every in document.get('samples', {}).items():
        for series, rows in every.items():
            if series not in _OF_THE_MACHINE:
                found[f'{setting} / {series}'] = {
                    seed: float(np.mean(row))
                    for seed, row in zip(document['seeds'], rows) if row}
    for key, run in document.get('runs', {}).items():
        cell, _, seed = key.rpartition(' / ')
        for column, value in zip(document['run columns'], run, strict=True):
            if column in _MEASURED:
                found.setdefault(f'{cell} / {column}', {})[int(seed)] = (
                    float(np.mean(value)))
    return found
