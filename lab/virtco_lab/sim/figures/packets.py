# SPDX-License-Identifier: Apache-2.0

"""Targets on real packets, with results from the testbed's records."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import json
import pathlib
import statistics
from typing import Any

from virtco_lab.sim import schemes

Row = dict[str, Any]
_CASES = ('virtco-case1', 'virtco-case2', 'virtco-case4', 'virtco-case5',
          'virtco-case6')
_HINTED = ('wrong-hints', 'late-hints', 'unknown-sizes', 'liars')
#: Share of a run above which a wait for a processor is listed separately.
_LONG_WAIT = 0.10
_WITH_RACKS, _WITHOUT = 'virtco, topology', 'virtco'


def targets(directory: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Yield (target, result) of each target on packets that is recorded."""
    for asked, reached in _TARGETS:
        try:
            yield f'On packets: {asked}', reached(directory)
        except FileNotFoundError:
            continue  # not recorded


def _read(directory: pathlib.Path, name: str) -> dict[str, Any]:
    path = directory / f'emulated-{name}.json'
    found: dict[str, Any] = json.loads(path.read_text(encoding='utf-8'))
    return found


def _rows(directory: pathlib.Path, name: str) -> dict[str, Row]:
    """Read the rows of a record by first cell, each as cells by column."""
    found = _read(directory, name)
    return {row[0]: dict(zip(found['columns'], row, strict=True))
            for row in found['rows']}


def _cases(directory: pathlib.Path) -> str:
    """Return the spread of measured mean CCTs around simulated ones."""
    off: dict[str, list[float]] = {}
    for scheme, distance, _waited in _case_runs(directory):
        off.setdefault(scheme, []).append(distance)
    return '; '.join(f'{schemes.get(name).label}: {_spread(its)}'
                     for name, its in off.items())


def _waits(directory: pathlib.Path) -> str:
    runs = list(_case_runs(directory))
    halves = ([distance for *_, distance, waited in runs
               if (waited > _LONG_WAIT) == is_long]
              for is_long in (False, True))
    return '; '.join(
        f'{words} {_LONG_WAIT:.0%} of the run: {_spread(its)}, beyond 5 %: '
        f'{sum(one > 0.05 for one in its)}'
        for words, its in zip(('up to', 'over'), halves) if its)


def _case_runs(directory: pathlib.Path) -> Iterator[tuple[str, float, float]]:
    """Yield (scheme, distance from the simulator, longest wait) by run."""
    for case in _CASES:
        found = _read(directory, case)
        for key, run in found['runs'].items():
            row = dict(zip(found['run columns'], run, strict=True))
            yield (key.split(' / ')[1],
                   abs(row['measured_s'] / row['expected_s'] - 1)
                   if row['expected_s'] else 0.0, row['waited'])


def _spread(off: Sequence[float]) -> str:
    return (f'{100 * statistics.fmean(off):.1f} and {100 * max(off):.1f} % '
            f'in {len(off)} runs')


def _hinted(directory: pathlib.Path) -> str:
    shown = []
    for name in _HINTED:
        off = [abs(sum(measured) / sum(simulated) - 1) for simulated, measured,
               *_ in _read(directory, name)['runs'].values()]
        shown.append(f'{name.replace("-", " ")}: {_spread(off)}')
    return '; '.join(shown)


def _lies(directory: pathlib.Path) -> str:
    return '; '.join(
        f'claim {claim} × the truth: {row["his, measured"]} of its CCT '
        f'(simulated {row["his, simulated"]})'
        for claim, row in _rows(directory, 'liars').items()
        if float(claim) != 1)


def _racks(directory: pathlib.Path) -> str:
    rows = _rows(directory, 'orchestra-11')
    ours = rows[_WITH_RACKS]['mean s']
    unaware = {name: rows[name]['mean s'] / ours
               for name in ('Cornet', _WITHOUT)}
    most = rows['Cornet']['of the bound']
    return (f'{unaware["Cornet"]:.2f} × Cornet, {unaware[_WITHOUT]:.2f} × '
            f'virtco-cast without racks; any cast at most {most:.2f} × Cornet')


def _ahead(directory: pathlib.Path) -> str:
    racks = _rows(directory, 'orchestra-11')
    flat = _rows(directory, 'orchestra-9')
    most = _read(directory, 'orchestra-9')['columns'][-2]
    return (
        'two racks: ' + ', '.join(
            f'{name} {racks[name]["mean s"]} s'
            for name in (_WITH_RACKS, 'Cornet', 'chain', 'tree')) +
        f'; {most} in one: ' + ', '.join(
            f'{name} {flat[name][most]} s'
            for name in (_WITHOUT, 'Cornet', 'chain', 'tree')))


def _bound(directory: pathlib.Path) -> str:
    racks = _rows(directory, 'orchestra-11')[_WITH_RACKS]['of the bound']
    flat = _read(directory, 'orchestra-9')
    most, last = flat['columns'][-2:]
    over = _rows(directory, 'orchestra-9')[_WITHOUT][last]
    return (f'{100 * (racks - 1):.0f} % above it in two racks, '
            f'{100 * (over - 1):.0f} % with {most} in one')


def _iterations(directory: pathlib.Path) -> str:
    shown = []
    for name, number in (('training-2', 'two'), ('training-6', 'six')):
        its = {scheme: row['iteration s'] for scheme, row in _rows(
            directory, name).items()}
        shown.append(
            f'{number}: {100 * (its["order"] / its["bound"] - 1):+.1f} %, '
            f'with TCP {100 * (its["TCP"] / its["bound"] - 1):+.1f} %')
    return '; '.join(shown)


_TARGETS: tuple[tuple[str, Callable[[pathlib.Path], str]], ...] = (
    ('test cases 1 to 6 within 10 % of the simulator in the mean, 20 % at '
     'most', _cases),
    ('the same by how long a thread of the testbed waited for a processor',
     _waits),
    ('wrong, late and unknown hints and lies likewise', _hinted),
    ('a lie must not pay', _lies),
    ('two racks of ten at 4:1, a cast that knows them twice as fast as one '
     'that does not', _racks),
    ('Cornet ahead of tree and chain', _ahead),
    ('a cast within 20 % of the bound (aim 10)', _bound),
    ('jobs on a link, in order: iterations within 5 % of the bound',
     _iterations))
