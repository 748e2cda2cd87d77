# SPDX-License-Identifier: Apache-2.0

"""Figures are recorded, checked and made into the documentation's tables."""

import json
import pathlib
import shutil

import numpy as np
import pytest
import scipy.stats

from virtco import exception
from virtco_lab.cmd import sim as command
from virtco_lab.sim.figures import document
from virtco_lab.sim.figures import index
from virtco_lab.sim.figures import outcome
from virtco_lab.sim.figures import record
from virtco_lab.sim.figures import samples


@pytest.fixture
def reproduce(capsys, tmp_path):
    def run(*argv):
        code = command.main(['reproduce', *map(str, argv), '--record',
                             str(tmp_path / 'record')])
        out, err = capsys.readouterr()
        return code, out, err
    return run


@pytest.fixture(scope='module')
def written(tmp_path_factory):
    """Two quick figures, one of them with two seeds."""
    directory = tmp_path_factory.mktemp('written')
    assert command.main([
        'reproduce', 'all', '--only', 'orchestra-table3,training-mixed',
        '--seeds', '2', '--write', '--record', str(directory / 'record'),
        '--output', str(directory / 'out')]) == 0
    return directory / 'record'


@pytest.fixture
def recorded(written, tmp_path):
    return pathlib.Path(shutil.copytree(written, tmp_path / 'record'))


def altered(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_what_was_written_is_found_again(reproduce, recorded):
    code, out, err = reproduce('all', '--only',
                               'orchestra-table3,training-mixed',
                               '--check', '--processes', 2)
    assert (code, [line for line in err.splitlines()
                   if line.startswith('virtco-sim:')]) == (0, [])
    assert 'training-mixed: 15 cells compared, 0 off' in out
    assert 'training-mixed: 3 settings, seeds 0 to 1, about' in err


def test_seeds_short_and_json_together(reproduce, recorded):
    code, out, _ = reproduce('all', '--only', 'training-mixed', '--seeds',
                             '1-1', '--short', '--json', '--check')
    answer = json.loads(out)
    figure, = answer['figures']
    assert code == 0 and answer['failures'] == []
    assert figure['seeds'] == [1] and figure['compared'] == 10
    assert set(figure['made']) >= {'commit', 'python', 'numpy', 'machine',
                                   'cpu_s', 'others_processors', 'is_quiet'}


def test_a_cell_that_differs_is_named(reproduce, recorded):
    def worse(content):
        rows = content['samples']['mrtf']['mean CCT']
        rows[1] = [rows[1][0] * 1.1]
    altered(recorded / 'training-mixed.json', worse)
    short = ('training-mixed', '--check', '--short')
    code, _, err = reproduce(*short, '--seeds', 2)
    assert code == 1
    line, = (line for line in err.splitlines() if 'tolerance' in line)
    assert line.startswith('virtco-sim: training-mixed: mrtf / mean CCT: ')
    assert 'recorded ' in line and 'tolerance 1.00%' in line
    # The first seed is as recorded, and so is all within a fifth.
    assert 'tolerance' not in reproduce(*short)[2]
    assert 'tolerance' not in reproduce(*short, '--seeds', 2, '--tolerance',
                                        0.2)[2]


def test_a_table_that_is_not_its_record_is_named(reproduce, recorded):
    path = recorded / 'training-mixed.inc'
    path.write_text(path.read_text().replace('"mrtf","', '"mrtf","1', 1))
    code, _, err = reproduce('training-mixed', '--check', '--short')
    assert code == 1 and f'{path}: not the table of its record' in err
    assert reproduce('all', '--render')[0] == 0
    assert reproduce('training-mixed', '--check', '--short')[0] == 0


def test_short_takes_what_is_recorded_only(reproduce, recorded):
    def forget(content):
        del content['samples']['mrtf']
    altered(recorded / 'training-mixed.json', forget)
    code, _, err = reproduce('training-mixed', '--check')
    assert code == 2 and 'mrtf / GPUs' in err


@pytest.mark.parametrize('argv, said', [
    (('training-mixed', '--check', '--short', '--seeds', '2-3'), '0 to 1'),
    (('choreo-greedy', '--check'), 'choreo-greedy.json'),
    (('all', '--only', 'training-mix', '--check'), 'training-mix'),
    (('training-mixed', '--only', 'training-mixed'), '--only'),
    (('training-mixed', '--write', '--short'), '--short'),
    (('virtco-case1', '--check', '--shape', 'dense'), '--shape'),
    (('training-mixed', '--trace', '/nowhere'), '--trace')])
def test_what_cannot_be_done_is_said(reproduce, recorded, argv, said):
    code, _, err = reproduce(*argv)
    assert code == 2
    assert said in err.splitlines()[-1]


def test_a_figure_without_its_trace(reproduce, monkeypatch):
    monkeypatch.delenv('VIRTCO_TEST_TRACE', raising=False)
    code, _, err = reproduce('facebook-trace')
    assert code == 2 and '--trace' in err


def test_paired_saving():
    rng = np.random.default_rng(3)
    theirs = rng.uniform(5, 10, 12)
    ours = theirs * 0.7
    # In proportion, so that all pairs say the same.
    exact = outcome.saving(ours, theirs)
    assert exact.percent == pytest.approx(30.0)
    assert exact.half == pytest.approx(0.0, abs=1e-9)
    # Of equal ones, an interval of the differences.
    noise = rng.normal(0, 0.5, 12)
    found = outcome.saving(7 + noise, np.full(12, 10.0))
    low, high = scipy.stats.t.interval(
        0.95, 11, 3 - noise.mean(), scipy.stats.sem(noise))
    assert found.percent == pytest.approx(10 * (3 - noise.mean()))
    assert found.half == pytest.approx(10 * (high - low) / 2)
    assert outcome.half_interval(noise) == pytest.approx((high - low) / 2)
    assert outcome.half_interval([1.0]) == float('inf')
    assert outcome.saving([0.0], [0.0]) is None
    assert str(outcome.saving([1.0], [2.0])) == '50.0'
    assert outcome.saving([0.25], [0.5]).percent == 50.0
    assert str(outcome.Saving(-0.04, 0.2)) == '0.0 [-0.2, 0.2]'
    assert [outcome.reduction(ours, theirs) for ours, theirs in (
        (3.0, 4.0), (0.25, 0.5), (1.0, 0.0))] == [25.0, 50.0, 0.0]


@pytest.mark.parametrize('values, said', [
    ([90.46], '90.5'), ([0.8824], '0.882'), ([643.2, 500.1], '572 ± 101'),
    ([100.0], '100'), ([1.0], '1.00'), ([0.00126], '0.001'),
    ([-12.34], '-12.3'), ([0.0, 0.0], '0.00 ± 0.00')])
def test_three_digits(values, said):
    assert outcome.shown(values) == said


@pytest.mark.parametrize('name', sorted(
    path.stem for path in record.DIRECTORY.glob('*.json')))
def test_the_documentation_has_each_record(name):
    """Tables are generated; the text around them includes each."""
    # What was measured on real packets is nothing that could be run again
    # to the same numbers.
    if not name.startswith('emulated-'):
        figure = index.FIGURES[name]
        found = record.read(record.DIRECTORY, name)
        assert set(found.found.settings) == set(figure.settings)
        assert document.outdated(record.DIRECTORY, [name]) == []
    pages = pathlib.Path(record.DIRECTORY).parent.glob('*.rst')
    assert any(f'include:: evaluation/{name}.inc' in page.read_text()
               for page in pages)


@pytest.mark.parametrize(('seeds', 'said'), [
    ((3,), '3'), ((0, 1, 2), '0 to 2'), ((4, 5), '4 to 5'), ((0, 2), '0, 2')])
def test_seeds_in_a_row_are_shown_by_their_ends(seeds, said):
    assert record.shown_seeds(seeds) == said


def made_up(value, seeds=(0, 1)):
    return samples.Samples(seeds, {'s': {'x': [[value]] * len(seeds)}},
                           {'s': 10.0, 'other': 4.0})


def test_seconds_are_in_proportion_to_the_seeds():
    known = record.Record('training-mixed', 'medium', {}, made_up(1.0))
    assert record.seconds(known, ('s', 'new'), 3) == 15.0


@pytest.mark.parametrize(('recorded', 'value', 'tolerance', 'is_off'), [
    (1.0, 1.5, 0.5, False), (1.0, 1.5, 0.49, True), (-1.0, -1.5, 0.5, False),
    (0.0, 0.9e-9, 0.01, False), (0.0, 1.1e-9, 0.5, True),
    (2e-9, 1.1e-9, 0.01, False)])
def test_a_cell_is_off_by_more_than_the_tolerance(
        recorded, value, tolerance, is_off):
    known = record.Record('training-mixed', 'medium', {}, made_up(recorded))
    count, off = record.compare(index.FIGURES['training-mixed'],
                                made_up(value, (1,)), known, tolerance)
    assert (count, bool(off)) == (1, is_off)


def test_numbers_of_a_series_are_on_one_line(tmp_path):
    document = {'name': 'x', 'short': [1.5, 2.5], 'long': [0.25] * 500,
                'of': [{'y': 1}]}
    record.write(tmp_path, document)
    text = (tmp_path / 'x.json').read_text()
    assert '"short": [1.5, 2.5 ]' in text
    assert text.count('\n  0.25') == 500
    assert json.loads(text) == document


def test_a_record_tells_of_changed_files(tmp_path, monkeypatch):
    monkeypatch.setattr(record, 'ROOT', tmp_path)
    assert record.commit() is None
    (tmp_path / 'file').write_text('one')
    for args in (('init', '-q'), ('add', 'file'), (
            '-c', 'user.name=a', '-c', 'user.email=a@b', 'commit', '-qm',
            'a')):
        record._git(*args)
    commit = record.commit()
    assert len(commit) == 10 and not commit.endswith('+')
    (tmp_path / 'file').write_text('two')
    assert record.commit() == commit + '+'


def test_seeds_that_are_not_recorded():
    figure = index.FIGURES['training-mixed']
    known = record.Record('training-mixed', 'medium', {},
                          samples.Samples((0, 1)))
    with pytest.raises(exception.Invalid, match='0 to 1'):
        record.compare(figure, samples.Samples((5,)), known)


def test_a_cell_that_is_not_recorded():
    known = record.Record('training-mixed', 'medium', {},
                          samples.Samples((0, 1)))
    with pytest.raises(exception.Invalid, match='a recorded cell.* s / x'):
        record.compare(index.FIGURES['training-mixed'], made_up(1.0), known)
