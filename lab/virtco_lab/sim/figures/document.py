# SPDX-License-Identifier: Apache-2.0

"""Recorded figures as the tables of the documentation."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import csv
import io
import pathlib
from typing import Any

from virtco_lab.sim import errata
from virtco_lab.sim.figures import index
from virtco_lab.sim.figures import outcome
from virtco_lab.sim.figures import packets
from virtco_lab.sim.figures import record
from virtco_lab.sim.figures import samples
from virtco_lab.sim.figures import statements

#: Name of the table of the targets and the results.
TARGETS = 'targets'
_TARGETS = (*statements.TARGETS, *packets.TARGETS)
#: A table with more is turned on its side.
MOST_COLUMNS = 10


def fragment(recorded: record.Record) -> str:
    """Format the table of a record for an ``include`` in the documentation."""
    figure = index.FIGURES[recorded.name]
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
    found = record.document(directory, name)
    lines = [found['columns'], *found['rows']]
    if len(found['columns']) > MOST_COLUMNS:
        lines = list(zip(*lines, strict=True))
    return (f'{table(list(map(outcome.cell, lines[0])), lines[1:])}\n'
            f'{" ".join(found["notes"])}\n\n``{found["command"]}``: commit '
            f'{found["made"]["commit"]}, {found["made"]["machine"]}'
            f'{_beside(found["made"])}.\n')


def _beside(made: Mapping[str, Any]) -> str:
    """Tell the load of other programs, where the record has it."""
    if 'is_quiet' not in made:
        return ''
    if made['is_quiet']:
        return ', otherwise idle'
    return f', beside programs that used {made["others_processors"]} cores'


def table(columns: Sequence[str], rows: Iterable[Sequence[outcome.Cell]]
          ) -> str:
    """Format a table as reStructuredText."""
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator='\n')
    writer.writerow(columns)
    writer.writerows([[outcome.cell(value) for value in row] for row in rows])
    lines = [f'   {line}' for line in text.getvalue().splitlines()]
    return '\n'.join(['.. csv-table::', '   :header-rows: 1', '', *lines, ''])


def write(directory: pathlib.Path, names: Iterable[str]) -> None:
    """Write the tables of these figures from their records, and those that
    cover all records.
    """
    for path, text in _tables(directory, names).items():
        path.write_text(text, encoding='utf-8')


def outdated(directory: pathlib.Path, names: Iterable[str]
             ) -> list[pathlib.Path]:
    """List tables that differ from their records."""
    return [path for path, text in _tables(directory, names).items()
            if not path.exists() or path.read_text(encoding='utf-8') != text]


def _tables(directory: pathlib.Path, names: Iterable[str]
            ) -> dict[pathlib.Path, str]:
    """Format the tables of recorded figures, and those of all records."""
    texts = {name: fragment(record.read(directory, name))
             for name in names if (directory / f'{name}.json').exists()}
    texts |= {path.stem: _measured(directory, path.stem)
              for path in directory.glob(f'{record.EMULATED}*.json')}
    texts |= {TARGETS: targets(directory), 'errata': _errata(),
              'statements': _statements(directory)}
    return {_path(directory, name): text for name, text in texts.items()}


def _path(directory: pathlib.Path, name: str) -> pathlib.Path:
    return directory / f'{name}.inc'


def targets(directory: pathlib.Path) -> str:
    """Return the table of the targets, with the records' results."""
    return table(('asked', 'reached', 'verdict'), [
        (one['statement'], one['here'], one['verdict'])
        for one in verdicts(directory, _TARGETS)])


def _statements(directory: pathlib.Path) -> str:
    """Return the table of the papers' statements, likewise."""
    return table(
        ('statement', 'paper', 'here', 'spread', 'verdict', 'command',
         'differences'),
        [(one['statement'], one['paper'], one['here'], one['spread'],
          one['verdict'], f'``virtco-sim reproduce {one["figure"]}``',
          one['differences'])
         for one in verdicts(directory, statements.STATEMENTS)])


def verdicts(directory: pathlib.Path, wanted: Iterable[statements.Statement]
             = (*statements.STATEMENTS, *_TARGETS)) -> list[dict[str, str]]:
    """Judge the papers' statements and the targets by the records.

    A verdict is *met*, *missed* or *not shown*; a dash where there is no
    number to meet.
    """
    found = []
    for one in wanted:
        names = one.figure if isinstance(one.figure, tuple) else (one.figure,)
        if not all((directory / f'{name}.json').exists() for name in names):
            continue
        known: list[Any] = [
            record.document(directory, name)
            if name.startswith(record.EMULATED)
            else record.read(directory, name).found for name in names]
        told = one.tell(*known)
        spread = told.spread
        if spread and isinstance(known[0], samples.Samples):
            spread += f'; seeds {record.shown_seeds(known[0].seeds)}'
        found.append({
            'statement': one.text, 'paper': one.paper, 'here': told.text,
            'spread': spread, 'figure': ', '.join(names),
            'verdict': statements.verdict(told.numbers, one.ranges),
            'differences': one.why})
    return found


def _errata() -> str:
    """Run every counterexample, and format their table.

    :raises AssertionError: when one does not refute the printed statement.
    """
    found = errata.check()
    assert all(one.holds for one in found), [
        one.where for one in found if not one.holds]
    return table(errata.COLUMNS, (one[:-1] for one in found))
