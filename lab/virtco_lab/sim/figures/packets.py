# SPDX-License-Identifier: Apache-2.0

"""Targets on real packets, with results from the testbed's records."""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import math
import statistics
from typing import Any

from virtco_lab.sim import schemes
from virtco_lab.sim.figures import outcome
from virtco_lab.sim.figures import record
from virtco_lab.sim.figures import statements

Record = dict[str, Any]
_CASES = ('virtco-case1', 'virtco-case2', 'virtco-case4', 'virtco-case5',
          'virtco-case6')
_HINTED = ('wrong-hints', 'late-hints', 'unknown-sizes', 'liars')
#: Two racks, and one switch.
_CASTS = ('orchestra-11', 'orchestra-9')
#: Share of a run above which a wait for a processor is listed separately.
_LONG_WAIT = 0.10
_WITH_RACKS, _WITHOUT = 'virtco, topology', 'virtco'


def _rows(found: Record) -> dict[str, Record]:
    """Return the rows of a record by first cell, each as cells by column."""
    return {row[0]: dict(zip(found['columns'], row, strict=True))
            for row in found['rows']}


def _cases(*cases: Record) -> statements.Told:
    """Tell the spread of measured mean CCTs around simulated ones."""
    off: dict[str, list[float]] = {}
    for scheme, distance, _waited in _runs(cases):
        off.setdefault(schemes.get(scheme).label, []).append(distance)
    return _distances(off)


def _waits(*cases: Record) -> statements.Told:
    runs = list(_runs(cases))
    halves = {words: its for words, is_long in (('up to', False),
                                                ('over', True))
              if (its := [distance for *_, distance, waited in runs
                          if (waited > _LONG_WAIT) == is_long])}
    return _distances(halves)._replace(text='; '.join(
        f'{words} {_LONG_WAIT:.0%} of the run: {_spread(its)}, beyond 5 %: '
        f'{sum(one > 0.05 for one in its)}'
        for words, its in halves.items()))


def _runs(cases: Iterable[Record]) -> Iterator[tuple[str, float, float]]:
    """Yield (scheme, distance from the simulator, longest wait) by run."""
    for found in cases:
        for key, run in found['runs'].items():
            row = dict(zip(found['run columns'], run, strict=True))
            yield (key.split(' / ')[1],
                   abs(row['measured_s'] / row['expected_s'] - 1)
                   if row['expected_s'] else 0.0, row['waited'])


def _distances(off: Mapping[str, Sequence[float]]) -> statements.Told:
    """Tell mean and largest distance of each kind of runs, in percent."""
    return statements.Told(
        '; '.join(f'{name}: {_spread(its)}' for name, its in off.items()),
        statements.exactly(*(
            100 * distance for its in off.values()
            for distance in (statistics.fmean(its), max(its)))))


def _spread(off: Sequence[float]) -> str:
    return (f'{100 * statistics.fmean(off):.1f} and {100 * max(off):.1f} % '
            f'in {len(off)} runs')


def _hinted(*records: Record) -> statements.Told:
    return _distances({
        name.replace('-', ' '): [
            abs(sum(measured) / sum(simulated) - 1)
            for simulated, measured, *_ in found['runs'].values()]
        for name, found in zip(_HINTED, records)})


def _lies(liars: Record) -> statements.Told:
    rows = {claim: row for claim, row in _rows(liars).items()
            if float(claim) != 1}
    n_seeds = len(liars['runs']) // len(liars['rows'])
    # A single seed has no deviation.
    ratios = [row['his, measured'].partition(' ± ') for row in rows.values()]
    return statements.Told('; '.join(
        f'claim {claim} × the truth: {row["his, measured"]} of its CCT '
        f'(simulated {row["his, simulated"]})'
        for claim, row in rows.items()),
        [(float(mean), outcome.half_of(float(deviation or 0), n_seeds))
         for mean, _, deviation in ratios])


def _racks(racks: Record) -> statements.Told:
    rows = _rows(racks)
    cornet, unaware, ours = (rows[name]['mean s'] for name in (
        'Cornet', _WITHOUT, _WITH_RACKS))
    most = rows['Cornet']['of the bound']
    return statements.Told(
        f'{cornet / ours:.2f} × Cornet, {unaware / ours:.2f} × '
        f'virtco-cast without racks; any cast at most {most:.2f} × Cornet',
        statements.exactly(unaware / ours))


def _ahead(racks: Record, flat: Record) -> statements.Told:
    """Tell times; how far tree and chain are behind Cornet is judged."""
    most = flat['columns'][-2]
    told, behind_s = [], []
    for where, found, column, ours in (
            ('two racks', racks, 'mean s', _WITH_RACKS),
            (f'{most} in one', flat, most, _WITHOUT)):
        time_s = {name: row[column] for name, row in _rows(found).items()}
        told.append(f'{where}: ' + ', '.join(
            f'{name} {time_s[name]} s'
            for name in (ours, 'Cornet', 'chain', 'tree')))
        behind_s += [time_s[name] - time_s['Cornet']
                     for name in ('chain', 'tree')]
    return statements.Told('; '.join(told), statements.exactly(*behind_s))


def _bound(racks: Record, flat: Record) -> statements.Told:
    most, last = flat['columns'][-2:]
    above = [100 * (_rows(found)[ours][column] - 1)
             for found, ours, column in (
                 (racks, _WITH_RACKS, 'of the bound'),
                 (flat, _WITHOUT, last))]
    return statements.Told(
        '{:.0f} % above it in two racks, {:.0f} % with {} in one'.format(
            *above, most), statements.exactly(*above))


def _iterations(*records: Record) -> statements.Told:
    shown, off = [], []
    for number, found in zip(('two', 'six'), records):
        order, tcp, bound = (_rows(found)[name]['iteration s']
                             for name in ('order', 'TCP', 'bound'))
        off.append(100 * (order / bound - 1))
        shown.append(f'{number}: {off[-1]:+.1f} %, with TCP '
                     f'{100 * (tcp / bound - 1):+.1f} %')
    return statements.Told('; '.join(shown), statements.exactly(*off))


#: Distance in the mean, and at most.
_NEAR = ((0.0, 10.0), (0.0, 20.0))
TARGETS = tuple(statements.Statement(
    f'On packets: {text}', statements.TARGET,
    tuple(record.EMULATED + name for name in names), tell, '–', ranges)
    for text, names, tell, ranges in (
    ('test cases 1 to 6 within 10 % of the simulator in the mean, 20 % at '
     'most', _CASES, _cases, _NEAR),
    ('the same by how long a thread of the testbed waited for a processor',
     _CASES, _waits, _NEAR),
    ('wrong, late and unknown hints and lies likewise', _HINTED, _hinted,
     _NEAR),
    ('a lie must not pay', ('liars',), _lies, ((1.0, math.inf),)),
    ('two racks of ten at 4:1, a cast that knows them twice as fast as one '
     'that does not', _CASTS[:1], _racks, ((2.0, math.inf),)),
    ('Cornet ahead of tree and chain', _CASTS, _ahead,
     (statements.AT_LEAST_0,)),
    ('a cast within 20 % of the bound (aim 10)', _CASTS, _bound,
     ((0.0, 20.0),)),
    ('jobs on a link, in order: iterations within 5 % of the bound',
     ('training-2', 'training-6'), _iterations, ((-math.inf, 5.0),))))
