# SPDX-License-Identifier: Apache-2.0

"""How tables and reproduced figures are shown."""

import json

import numpy as np

from virtco_lab.cmd import present
from virtco_lab.cmd import tables
from virtco_lab.sim.figures import outcome


def _figure(name):
    series = outcome.Series('ours', ('a', 'b'), (1.0, 2.0))
    return outcome.Outcome(
        name, f'Title of {name}', ('what', 'seconds'),
        (('a', 1.23456), ('b', None)), (outcome.Panel(
            'bars', 'panel', 'x', 'y', (series,)),), ('a note',))


def test_a_figure_is_written_plotted_and_printed(tmp_path, capsys):
    present.show(_figure('one'), tmp_path, as_json=False)
    said = capsys.readouterr().out
    assert json.loads((tmp_path / 'one.json').read_text()) == _figure(
        'one').to_dict()
    assert (tmp_path / 'one.json').read_text().startswith('{\n "name": "one"')
    assert (tmp_path / 'one.png').exists()
    words = ['Title of one', 'seconds', '1.235', '–', '- a note\n',
             f'plot: {tmp_path}/one.png\n']
    places = [said.index(word) for word in words]
    assert places == sorted(places)


def test_json_of_a_figure_names_its_plot(tmp_path, capsys):
    present.show(_figure('one'), tmp_path, as_json=True)
    assert json.loads(capsys.readouterr().out) == {
        **_figure('one').to_dict(), 'plot': f'{tmp_path}/one.png'}


def test_names_stand_left_and_numbers_right_in_lines_of_any_length(capsys):
    tables.print_table('T', ('name', 'value'), [
        ('x' * 80, 'y' * 70), ('a', np.float64(1 / 3)), ('b', 12),
        ('c', 12345.6)])
    lines = capsys.readouterr().out.splitlines()
    rows = [[cell[1:-1] for cell in line.split('│')[1:-1]]
            for line in lines if '│' in line]
    assert rows == [
        ['x' * 80, 'y' * 70], ['a'.ljust(80), '0.3333'.rjust(70)],
        ['b'.ljust(80), '12'.rjust(70)], ['c'.ljust(80), '12346'.rjust(70)]]
    assert 'name' in ''.join(lines) and 'value' in ''.join(lines)


def test_a_table_is_200_wide_where_there_is_no_terminal(capsys):
    tables.print_table('T', ('name',), [('x' * 250,)])
    assert {len(line) for line in capsys.readouterr().out.splitlines()
            if '━' in line or '│' in line} == {200}
