# SPDX-License-Identifier: Apache-2.0

"""Targets on real packets, with results from the testbed's records."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import json
import pathlib
import statistics
from typing import Any

from virtco_lab.sim import schemes

Record = dict[str, Any]
_CASES = ('virtco-case1', 'virtco-case2', 'virtco-case4', 'virtco-case5',
          'virtco-case6')
_HINTED = ('wrong-hints', 'late-hints', 'unknown-sizes', 'liars')
#: Two racks, and one switch.
_CASTS = ('orchestra-11', 'orchestra-9')
#: Share of a run above which a wait for a processor is listed separately.
_LONG_WAIT = 0.10
_WITH_RACKS, _WITHOUT = 'virtco, topology', 'virtco'


def targets(directory: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Yield (target, result) of each target on packets that is recorded."""
    for asked, names, tell in _TARGETS:
        paths = [directory / f'emulated-{name}.json' for name in names]
        if all(path.exists() for path in paths):
            yield f'On packets: {asked}', tell(*(
                json.loads(path.read_text(encoding='utf-8'))
                for path in paths))


def _rows(found: Record) -> dict[str, Record]:
    """Return the rows of a record by first cell, each as cells by column."""
    return {row[0]: dict(zip(found['columns'], row, strict=True))
            for row in found['rows']}


def _cases(*cases: Record) -> str:
    """Return the spread of measured mean CCTs around simulated ones."""
    off: dict[str, list[float]] = {}
    for scheme, distance, _waited in _runs(cases):
        off.setdefault(scheme, []).append(distance)
    return '; '.join(f'{schemes.get(name).label}: {_spread(its)}'
                     for name, its in off.items())


def _waits(*cases: Record) -> str:
    runs = list(_runs(cases))
    halves = ([distance for *_, distance, waited in runs
               if (waited > _LONG_WAIT) == is_long]
              for is_long in (False, True))
    return '; '.join(
        f'{words} {_LONG_WAIT:.0%} of the run: {_spread(its)}, beyond 5 %: '
        f'{sum(one > 0.05 for one in its)}'
        for words, its in zip(('up to', 'over'), halves) if its)


def _runs(cases: Iterable[Record]) -> Iterator[tuple[str, float, float]]:
    """Yield (scheme, distance from the simulator, longest wait) by run."""
    for found in cases:
        for key, run in found['runs'].items():
            row = dict(zip(found['run columns'], run, strict=True))
            yield (key.split(' / ')[1],
                   abs(row['measured_s'] / row['expected_s'] - 1)
                   if row['expected_s'] else 0.0, row['waited'])


def _spread(off: Sequence[float]) -> str:
    return (f'{100 * statistics.fmean(off):.1f} and {100 * max(off):.1f} % '
            f'in {len(off)} runs')


def _hinted(*records: Record) -> str:
    off = ([abs(sum(measured) / sum(simulated) - 1)
            for simulated, measured, *_ in found['runs'].values()]
           for found in records)
    return '; '.join(f'{name.replace("-", " ")}: {_spread(its)}'
                     for name, its in zip(_HINTED, off))


def _lies(liars: Record) -> str:
    return '; '.join(
        f'claim {claim} × the truth: {row["his, measured"]} of its CCT '
        f'(simulated {row["his, simulated"]})'
        for claim, row in _rows(liars).items() if float(claim) != 1)


def _racks(racks: Record) -> str:
    rows = _rows(racks)
    cornet, unaware, ours = (rows[name]['mean s'] for name in (
        'Cornet', _WITHOUT, _WITH_RACKS))
    most = rows['Cornet']['of the bound']
    return (f'{cornet / ours:.2f} × Cornet, {unaware / ours:.2f} × '
            f'virtco-cast without racks; any cast at most {most:.2f} × Cornet')


def _ahead(racks: Record, flat: Record) -> str:
    most = flat['columns'][-2]
    return '; '.join(
        f'{where}: ' + ', '.join(
            f'{name} {_rows(found)[name][column]} s'
            for name in (ours, 'Cornet', 'chain', 'tree'))
        for where, found, column, ours in (
            ('two racks', racks, 'mean s', _WITH_RACKS),
            (f'{most} in one', flat, most, _WITHOUT)))


def _bound(racks: Record, flat: Record) -> str:
    most, last = flat['columns'][-2:]
    return '{:.0f} % above it in two racks, {:.0f} % with {} in one'.format(
        *(100 * (_rows(found)[ours][column] - 1) for found, ours, column in (
            (racks, _WITH_RACKS, 'of the bound'), (flat, _WITHOUT, last))),
        most)


def _iterations(*records: Record) -> str:
    shown = []
    for number, found in zip(('two', 'six'), records):
        order, tcp, bound = (_rows(found)[name]['iteration s']
                             for name in ('order', 'TCP', 'bound'))
        shown.append(f'{number}: {100 * (order / bound - 1):+.1f} %, with TCP '
                     f'{100 * (tcp / bound - 1):+.1f} %')
    return '; '.join(shown)


#: The question, the records that answer it, and the answer.
_TARGETS: tuple[tuple[str, tuple[str, ...], Callable[..., str]], ...] = (
    ('test cases 1 to 6 within 10 % of the simulator in the mean, 20 % at '
     'most', _CASES, _cases),
    ('the same by how long a thread of the testbed waited for a processor',
     _CASES, _waits),
    ('wrong, late and unknown hints and lies likewise', _HINTED, _hinted),
    ('a lie must not pay', ('liars',), _lies),
    ('two racks of ten at 4:1, a cast that knows them twice as fast as one '
     'that does not', _CASTS[:1], _racks),
    ('Cornet ahead of tree and chain', _CASTS, _ahead),
    ('a cast within 20 % of the bound (aim 10)', _CASTS, _bound),
    ('jobs on a link, in order: iterations within 5 % of the bound',
     ('training-2', 'training-6'), _iterations))
