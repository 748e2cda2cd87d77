# SPDX-License-Identifier: Apache-2.0

"""Prints tables."""

from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

from rich import console as rich_console
from rich import table as rich_table

from virtco_lab.sim.figures import outcome


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
