# SPDX-License-Identifier: Apache-2.0

"""Shows tables and reproduced figures."""

from collections.abc import Iterable
from collections.abc import Sequence
import json
import pathlib
from typing import Any

from rich import console as rich_console
from rich import table as rich_table

from virtco_lab.sim.figures import outcome
from virtco_lab.sim.figures import plots
from virtco_lab.sim.figures import record


def show(result: outcome.Outcome, directory: pathlib.Path, as_json: bool
         ) -> None:
    """Write plot and JSON of a figure, and print it."""
    path = plots.draw(result, directory)
    record.write(directory, result.to_dict())
    if as_json:
        print(json.dumps({**result.to_dict(), 'plot': str(path)}))
    else:
        print_outcome(result)
        print(f'plot: {path}\n')


def print_outcome(result: outcome.Outcome) -> None:
    """Print the table of a result, and its notes."""
    print_table(result.title, result.columns, result.rows)
    for note in result.notes:
        print(f'- {note}')


def print_table(title: str, columns: Sequence[str],
                rows: Iterable[Sequence[Any]]) -> None:
    """Print a table, 200 columns wide where there is no terminal."""
    table = rich_table.Table(title=title)
    for i, column in enumerate(columns):
        table.add_column(column, justify='right' if i else 'left')
    for row in rows:
        table.add_row(*map(outcome.cell, row))
    console = rich_console.Console()
    if not console.is_terminal:
        console = rich_console.Console(width=200)
    console.print(table)
