# SPDX-License-Identifier: Apache-2.0

"""What each figure shows of made-up samples is what it showed before.

``python -m tests.unit.lab.sim.test_shown`` writes ``shown.json`` again, after
a change of what figures show.
"""

import hashlib
import json
import pathlib

import pytest

from tests.unit.lab.sim import test_plots
from virtco_lab.sim.figures import index
from virtco_lab.sim.figures import record
from virtco_lab.sim.figures import samples

PATH = pathlib.Path(__file__).with_name('shown.json')


def digests(name):
    """Digests of a figure's headings, table and plots, and its settings."""
    figure = index.FIGURES[name]
    shown = figure.show(
        test_plots.made_up(record.read(record.DIRECTORY, name).found),
        samples.Context())
    parts = {
        'settings': [figure.settings, figure.short],
        'text': [shown.title, shown.columns, shown.notes],
        'table': [[_plain(cell) for cell in row] for row in shown.rows],
        'plots': [[panel.kind, panel.title, panel.x_label, panel.y_label,
                   panel.log_y, [str(band) for band in panel.bands],
                   [[one.label, list(map(_plain, one.x)),
                     list(map(_plain, one.y))] for one in panel.series]]
                  for panel in shown.panels]}
    return {part: hashlib.sha256(repr(value).encode()).hexdigest()[:16]
            for part, value in parts.items()}


def _plain(cell):
    """A number by five digits, as machines differ in the last ones."""
    try:
        return f'{float(cell):.5g}'
    except (TypeError, ValueError):
        return str(cell)


@pytest.mark.parametrize('name', index.FIGURES)
def test_a_figure_shows_what_it_showed(name):
    assert digests(name) == json.loads(PATH.read_text())[name]


if __name__ == '__main__':
    PATH.write_text(json.dumps(
        {name: digests(name) for name in index.FIGURES}, indent=1) + '\n')
