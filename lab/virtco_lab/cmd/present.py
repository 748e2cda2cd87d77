# SPDX-License-Identifier: Apache-2.0

"""Shows reproduced figures."""

import json
import pathlib

from virtco_lab.cmd import tables
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
    tables.print_table(result.title, result.columns, result.rows)
    for note in result.notes:
        print(f'- {note}')
