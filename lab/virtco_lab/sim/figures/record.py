# SPDX-License-Identifier: Apache-2.0

"""Records of figures: the numbers of each seed, with version and machine."""

from collections.abc import Sequence
import dataclasses
import json
import math
import os
import pathlib
import platform
import subprocess
import time
from typing import Any

import numpy as np
import psutil
import scipy

import virtco
from virtco import exception
from virtco import version
from virtco_lab.sim.figures import outcome
from virtco_lab.sim.figures import samples

#: Root of the source tree, where this runs from one.
ROOT = pathlib.Path(virtco.__file__).parents[1]
#: Directory of the documentation's records.
DIRECTORY = ROOT / 'doc/source/reference/evaluation'
#: Beginning of the names of the testbed's figures.
EMULATED = 'emulated-'
#: Largest relative difference of a cell's mean. Planning is counted in
#: operations, so on one platform nothing differs; libraries that round in
#: another way may break ties in another way.
TOLERANCE = 0.01
#: Means of fewer seconds than this are equal.
LEAST = 1e-9
#: Processors that other programs may use on a machine that is called quiet.
MOST_OTHERS = 0.1


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """A figure's numbers.

    :ivar made: their version, machine and cost, see :func:`made_on`.
    """

    name: str
    shape: str
    made: dict[str, Any]
    found: samples.Samples

    def to_dict(self, result: outcome.Outcome) -> dict[str, Any]:
        return {**result.to_dict(), 'made': self.made, 'shape': self.shape,
                'cpu_s': {key: round(value, 2)
                          for key, value in self.found.cpu_s.items()},
                **self.found.to_dict()}


class Others:
    """Processors that other programs use from the making of this on."""

    def __init__(self) -> None:
        self._start_s, self._start_cpu_s = time.monotonic(), _others_cpu_s()

    def processors(self) -> float:
        """Return the mean number, without the kernel's interrupts."""
        return max(0.0, _others_cpu_s() - self._start_cpu_s) / (
            time.monotonic() - self._start_s)


def _others_cpu_s() -> float:
    """Return CPU seconds of all but this process and its ended children."""
    of_all = psutil.cpu_times()
    return float(of_all.user + of_all.nice + of_all.system
                 - sum(os.times()[:4]))


def made_on(cpu_s: float, others: Others) -> dict[str, Any]:
    """Return commit, versions, machine, its load and CPU seconds of a run."""
    used = others.processors()
    return {'commit': commit(), 'virtco': version.version_string(),
            'python': platform.python_version(), 'numpy': np.__version__,
            'scipy': scipy.__version__, 'machine': _machine(),
            'cpu_s': round(cpu_s, 1), 'others_processors': round(used, 2),
            'is_quiet': used <= MOST_OTHERS}


def commit() -> str | None:
    """Return the source tree's commit, with ``+`` if files were changed.

    None outside of a repository.
    """
    try:
        found = _git('rev-parse', '--short=10', 'HEAD')
        changed = _git('status', '--porcelain', '--untracked-files=no', '--',
                       ':!doc')
    except (OSError, subprocess.CalledProcessError):
        return None
    return found + ('+' if changed else '')


def _git(*args: str) -> str:
    return subprocess.run(
        ('git', '-C', str(ROOT), *args), capture_output=True, check=True,
        text=True).stdout.strip()


def _machine() -> str:
    name = platform.machine()
    try:
        lines = pathlib.Path('/proc/cpuinfo').read_text().splitlines()
    except OSError:
        return name
    models = {line.partition(':')[2].strip() for line in lines
              if line.startswith('model name')}
    return ', '.join((name, *sorted(models)))


def write(directory: pathlib.Path, document: dict[str, Any]) -> None:
    """Write a record's JSON, numbers of one series in one line."""
    text = json.dumps(document, indent=1, ensure_ascii=False)
    path = directory / f'{document["name"]}.json'
    path.write_text(_short_lists(text) + '\n', encoding='utf-8')


def _short_lists(text: str) -> str:
    """Put each list of numbers, which json spreads over lines, on one."""
    lines: list[str] = []
    open_at: list[int] = []
    for line in text.split('\n'):
        lines.append(line)
        bare = line.strip()
        if bare.endswith('['):
            open_at.append(len(lines) - 1)
        elif bare in (']', '],') and open_at:
            start = open_at.pop()
            inside = ' '.join(part.strip() for part in lines[start + 1:])
            joined = lines[start] + inside
            if '{' not in inside and len(joined) < 2000:
                lines[start:] = [joined]
    return '\n'.join(lines)


def read(directory: pathlib.Path, name: str) -> Record:
    """Read the record of a simulated figure.

    :raises virtco.exception.Invalid: for a file that is missing or broken.
    """
    found = document(directory, name)
    try:
        return Record(found['name'], found['shape'], found['made'],
                      samples.Samples(tuple(found['seeds']),
                                      found['samples'], found['cpu_s']))
    except (KeyError, TypeError) as error:
        raise _unreadable(directory, name, error) from error


def document(directory: pathlib.Path, name: str) -> dict[str, Any]:
    """Read a record as it was written.

    :raises virtco.exception.Invalid: for a file that is missing or broken.
    """
    try:
        found: dict[str, Any] = json.loads(
            (directory / f'{name}.json').read_text(encoding='utf-8'))
    except (OSError, ValueError) as error:
        raise _unreadable(directory, name, error) from error
    return found


def _unreadable(directory: pathlib.Path, name: str, error: Exception
                ) -> exception.Invalid:
    return exception.Invalid(
        field='record', value=str(directory / f'{name}.json'),
        limit=f'a figure written by --write ({error})')


def seconds(record: Record, settings: Sequence[str], n_seeds: int) -> float:
    """Estimate the CPU seconds of a run on the machine of the record."""
    return sum(record.found.cpu_s.get(setting, 0.0) for setting in settings
               ) * n_seeds / len(record.found.seeds)


def compare(figure: samples.Figure, found: samples.Samples, record: Record,
            tolerance: float = TOLERANCE) -> tuple[int, list[str]]:
    """Compare means over the seeds of a run with those recorded.

    :returns: the number of cells compared, and a line about each that differs.
    :raises virtco.exception.Invalid: for a seed or a cell that is not
        recorded.
    """
    for seed in set(found.seeds) - set(record.found.seeds):
        raise exception.Invalid(
            field='--seeds', value=seed, limit='a recorded seed of '
            f'{record.name} ({shown_seeds(record.found.seeds)})')
    places = [record.found.seeds.index(seed) for seed in found.seeds]
    count, differences = 0, []
    for setting, rows in found.values.items():
        for series in rows:
            if series in figure.measured:
                continue
            known = record.found.values.get(setting, {}).get(series)
            if known is None:
                raise exception.Invalid(
                    field=record.name, value=f'{setting} / {series}',
                    limit='a recorded cell (--write records the figure)')
            expected = _mean([value for place in places
                              for value in known[place]])
            value = _mean(found.of(setting, series))
            count += 1
            if not abs(_off(value, expected)) <= tolerance:
                differences.append(
                    f'{figure.name}: {setting} / {series}: {value:.6g}, '
                    f'recorded {expected:.6g} ({_off(value, expected):+.2%}, '
                    f'tolerance {tolerance:.2%})')
    return count, differences


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def _off(value: float, expected: float) -> float:
    if abs(value - expected) <= LEAST:
        return 0.0
    return (value - expected) / abs(expected) if expected else math.inf


def shown_seeds(seeds: Sequence[int]) -> str:
    """Format seeds: ``0 to 7`` for a range, else each of them."""
    if len(seeds) > 1 and list(seeds) == list(range(seeds[0],
                                                    seeds[0] + len(seeds))):
        return f'{seeds[0]} to {seeds[-1]}'
    return ', '.join(map(str, seeds))
