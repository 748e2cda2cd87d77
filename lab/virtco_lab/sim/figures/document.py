# SPDX-License-Identifier: Apache-2.0

"""Recorded figures as the tables of the documentation."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import csv
import io
import json
import pathlib

import numpy as np

from virtco_lab.sim.figures import outcome
from virtco_lab.sim.figures import packets
from virtco_lab.sim.figures import record
from virtco_lab.sim.figures import samples
from virtco_lab.sim.figures import statements

#: Name of the table of the targets and the results.
TARGETS = 'targets'
#: A table with more is turned on its side.
MOST_COLUMNS = 10


def fragment(figure: samples.Figure, recorded: record.Record) -> str:
    """Format the table of a record for an ``include`` in the documentation."""
    result = figure.show(recorded.found, samples.Context(
        shape=recorded.shape))
    made = recorded.made
    seeds = (f'seeds {record.shown_seeds(recorded.found.seeds)}, '
             if figure.seeded else '')
    command = (f'``virtco-sim reproduce {recorded.name}``: {seeds}'
               f'{made["cpu_s"]:.0f} s of CPU time, commit {made["commit"]}, '
               f'Python {made["python"]}, numpy {made["numpy"]}, scipy '
               f'{made["scipy"]}, {made["machine"]}.')
    return table(result.columns, result.rows) + f'\n{command}\n'


def write_measured(directory: pathlib.Path, result: outcome.Outcome,
                   made: Mapping[str, object], command: str) -> None:
    """Record a figure that was measured, not simulated, and write its table.

    Nothing compares its numbers: another machine measures something else.

    :param command: command that made it.
    """
    record.write(directory, {**result.to_dict(), 'made': made,
                             'command': command, **result.runs})
    for name, text in ((result.name, _measured(directory, result.name)),
                       (TARGETS, targets(directory))):
        _path(directory, name).write_text(text, encoding='utf-8')


def _measured(directory: pathlib.Path, name: str) -> str:
    """Format the table of a record of the testbed, with its notes."""
    found = json.loads((directory / f'{name}.json').read_text('utf-8'))
    lines = [found['columns'], *found['rows']]
    if len(found['columns']) > MOST_COLUMNS:
        lines = list(zip(*lines, strict=True))
    return (f'{table(list(map(outcome.cell, lines[0])), lines[1:])}\n'
            f'{" ".join(found["notes"])}\n\n``{found["command"]}``: commit '
            f'{found["made"]["commit"]}, {found["made"]["machine"]}.\n')


def table(columns: Sequence[str], rows: Iterable[Sequence[outcome.Cell]]
          ) -> str:
    """Format a table as reStructuredText."""
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator='\n')
    writer.writerow(columns)
    writer.writerows([[outcome.cell(value) for value in row] for row in rows])
    lines = [f'   {line}' for line in text.getvalue().splitlines()]
    return '\n'.join(['.. csv-table::', '   :header-rows: 1', '', *lines, ''])


def write(directory: pathlib.Path, figures: Mapping[str, samples.Figure],
          names: Iterable[str]) -> None:
    """Write the tables of these figures from their records, and those that
    cover all records.
    """
    for path, text in _tables(directory, figures, names).items():
        path.write_text(text, encoding='utf-8')


def outdated(directory: pathlib.Path, figures: Mapping[str, samples.Figure],
             names: Iterable[str]) -> list[pathlib.Path]:
    """List tables that differ from their records."""
    return [path for path, text in _tables(directory, figures, names).items()
            if not path.exists() or path.read_text(encoding='utf-8') != text]


def _tables(directory: pathlib.Path, figures: Mapping[str, samples.Figure],
            names: Iterable[str]) -> dict[pathlib.Path, str]:
    """Format the tables of recorded figures, and those of all records."""
    texts = {name: fragment(figures[name], record.read(directory, name))
             for name in names if (directory / f'{name}.json').exists()}
    texts |= {path.stem: _measured(directory, path.stem)
              for path in directory.glob('emulated-*.json')}
    texts |= {
        TARGETS: targets(directory),
        'statements': table(statements.COLUMNS, statements.rows(directory)),
        'errata': table(statements.ERRATA_COLUMNS, statements.errata_rows())}
    return {_path(directory, name): text for name, text in texts.items()}


def _path(directory: pathlib.Path, name: str) -> pathlib.Path:
    return directory / f'{name}.inc'


def targets(directory: pathlib.Path) -> str:
    """Return the table of the targets, with the records' results."""
    rows = []
    for asked, name, reached in _TARGETS:
        if (directory / f'{name}.json').exists():
            rows.append((asked, reached(record.read(directory, name).found)))
    return table(('asked', 'reached'), [*rows, *packets.targets(directory)])


def _saves(least: float, theirs: str) -> Callable[[samples.Samples], str]:
    def reached(found: samples.Samples) -> str:
        saved = [saving.percent for setting in found.settings
                 if (saving := found.saving(setting, theirs)) is not None]
        there = sum(percent >= least for percent in saved)
        return (f'{min(saved):.1f} to {max(saved):.1f} %, '
                f'{np.mean(saved):.1f} % in the mean; {there} of '
                f'{len(saved)} columns')
    return reached


def _above_bound(found: samples.Samples) -> str:
    bound_s = found.of('bound of any schedule', 'mean_s')[0]
    gaps = (found.of(policy, 'mean_s')[0] / bound_s - 1
            for policy in ('mrtf', 'mrtf+swap'))
    return '{:.1%} (mrtf) and {:.1%} (mrtf+swap) above {:.2f} s'.format(
        *gaps, bound_s)


def _unknown(found: samples.Samples) -> str:
    ratios = (100 * float(np.mean(found.ratios(
        'unknown sizes', 'mean_s', 'exact', basis)))
        for basis in ('mean_s', 'plain TCP'))
    return '{:.0f} % of exact hints, {:.0f} % of plain TCP'.format(*ratios)


def _number(reached: Callable[[samples.Samples], statements.Reached]
            ) -> Callable[[samples.Samples], str]:
    """Return a function of a statement's result without its spread."""
    return lambda found: reached(found)[0]


def _in_order(found: samples.Samples) -> str:
    return ', '.join(
        '{}: {:.2f}'.format(setting, found.of(setting, 'fair')[0]
                            / found.of(setting, 'order')[0])
        for setting in found.settings)


def _above_mrtf(found: samples.Samples) -> str:
    gains = [100 * (found.mean(setting, f'{ours}, GPUs')
                    - found.mean(setting, 'mrtf, GPUs'))
             for setting in found.settings for ours in ('order', 'bound')]
    return '; '.join(
        f'{setting}: {ours:.1f} points, {bound:.1f} at most'
        for setting, ours, bound in zip(found.settings, gains[::2],
                                        gains[1::2]))


def _guarded(where: str) -> Callable[[samples.Samples], str]:
    def reached(found: samples.Samples) -> str:
        ours = f'order, guarded{where}'
        return '; '.join('{}: {:.0f} %, {:.1f} points above MRTF'.format(
            setting, 100 * (1 / float(np.median(found.of(
                setting, f'{ours}, slowest'))) - 1),
            100 * (found.mean(setting, f'{ours}, GPUs')
                   - found.mean(setting, 'mrtf, GPUs')))
            for setting in found.settings)
    return reached


#: Targets: the question, the figure that answers it, and the answer's text.
_TARGETS: tuple[tuple[str, str, Callable[[samples.Samples], str]], ...] = (
    ('Test case 2, average CCT at least 15 % below strong SEBF-TA (aim 35)',
     'virtco-case2', _saves(15.0, 'sebf-ta')),
    ('… at least 36.5 % below the paper\'s SEBF-TA (greedy)',
     'virtco-case2', _saves(36.5, 'sebf-ta-greedy')),
    ('… at least 79.1 % below Baseline',
     'virtco-case2', _saves(79.1, 'baseline')),
    ('… never behind VirtCO as printed by more than 2.5 %',
     'virtco-case2', _saves(-2.5, 'virtco-printed')),
    ('Test case 4 likewise', 'virtco-case4', _saves(-2.5, 'virtco-printed')),
    ('Test case 6 likewise', 'virtco-case6', _saves(-2.5, 'virtco-printed')),
    ('Facebook trace: mean 22.2 s ± 2 %, median 0.184, p95 40.0',
     'facebook-trace', _number(statements.facebook)),
    ('… near what any schedule can reach', 'facebook-trace', _above_bound),
    ('With sizes unknown at most 1.10 × MRTF', 'wrong-hints', _unknown),
    ('Orchestra Table 3: 25, 33, 38 %', 'orchestra-table3',
     _number(statements.table3)),
    ('Choreo, greedy above the optimum: 13 % at the median',
     'choreo-greedy', _number(statements.greedy)),
    ('Two training jobs on a link, in order: iterations 1.6 × faster than '
     'fair (1.5 is the most for two)', 'training-pair', _in_order),
    ('GPUs of a cluster that compute: 10 points above MRTF',
     'training-cluster', _above_mrtf),
    ('The slowest training job at most 5 % beyond its bound (median of the '
     'seeds, with the guard)', 'training-cluster', _guarded('')),
    ('… and where virtco places the jobs, too', 'training-cluster',
     _guarded(', placed')),
    ('Lies must not pay', 'liars', _number(statements.lies)),
    ('Hints wrong by 50 % degrade gracefully', 'wrong-hints',
     _number(statements.wrong)))
