# SPDX-License-Identifier: Apache-2.0

"""Table, report and command line, without root."""

import dataclasses
import html.parser
import io
import json
import pathlib
import re
import subprocess
import sys

import pytest
import rich.console

from virtco_lab.cmd import emulate
from virtco_lab.emulation import demo
from virtco_lab.emulation import plots
from virtco_lab.emulation import report
from virtco_lab.emulation import results
from virtco_lab.emulation import table

ROOT = pathlib.Path(__file__).parents[4]


def _scheme(name, label, measured_s, timeline=()):
    return results.SchemeResult(
        name, label, tuple(
            results.CoflowResult(coflow, 'g', 3, 5e6, cct_s * 0.95, cct_s,
                                 cct_s * 0.9)
            for coflow, cct_s in zip(('C1', 'C2'), measured_s)),
        {'g': ('h0', 'h0', 'h1')},
        {'h0': (1e6, 0.0), 'h1': (0.0, 1e6)}, timeline, 0.1)


@pytest.fixture
def found():
    timeline = ((10 ** 6, 0), (10 ** 6, 5 * 10 ** 5), (0, 10 ** 5))
    workload = results.WorkloadResult(
        'fig1', 'Two <coflows>', (
            _scheme('a', 'apart', (7.0, 2.0), timeline),
            _scheme('b', 'TA', (4.0, 2.0), timeline),
            _scheme('c', 'joint', (5.0, 0.0), timeline)),
        unit_s=1.0, paper_means=(4.5, 3.0, 2.5))
    rates = (results.HostRate('h0', 1e8, 9.9e7, None),
             results.HostRate('h1', 1e8, 5e7, 5e7, slow=True))
    return results.Results('emulated', 3, 1e8, 2, 0, (workload,), rates,
                           ('Something & other',), 12.0)


class _Page(html.parser.HTMLParser):
    VOID = {'meta', 'br', 'img', 'link'}

    def __init__(self):
        super().__init__()
        self.open = []
        self.tags = []
        self.links = []
        self.labels = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag == 'svg':
            self.labels.append(dict(attrs)['aria-label'])
            assert dict(attrs)['role'] == 'img'
        self.links += [value for name, value in attrs
                       if name in ('src', 'href') and value
                       and not value.startswith('#')]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_report_is_one_whole_file(found, tmp_path):
    path = report.write(found, tmp_path / 'made')
    page = _Page()
    text = path.read_text()
    page.feed(text)
    assert page.open == []
    assert page.links == []  # nothing is loaded from elsewhere
    assert page.tags.count('svg') == 3
    assert 'Two &lt;coflows&gt;' in text and 'Something &amp; other' in text
    assert '44 %' in text  # (4.5 - 2.5) / 4.5
    assert 'name="viewport" content="width=device-width' in text
    opening = re.search('<p class="found">(.*?)</p>', text).group(1)
    assert opening == ('joint finished 2 coflows 44 % sooner than apart and '
                       '17 % sooner than TA: after 2.5 s on average.')
    bars, timelines, agreement = page.labels
    assert 'joint: C1 5.0 s, C2 0.0 s; average 2.5 s.' in bars
    assert 'Under TA the last byte arrives after 0.3 s.' in timelines
    assert '6 of 6 measured' in agreement
    for shown in ('completion time (s)', 'Mbit/s', 'time since the common '
                  'start (s)', 'Measured against predicted'):
        assert shown in text
    assert 'partial' not in re.sub('(?s)<style>.*</style>', '', text)


def test_colours_of_schemes_and_coflows_differ():
    assert not set(plots.SCHEME_COLOURS) & set(plots._COFLOW_COLOURS)


def test_timeline_draws_each_time_to_scale(found):
    text = report.timeline(found)
    assert 'aria-label="joint finished 2 coflows' in text
    assert 'prefers-color-scheme: dark' in text
    widths = [float(width) for width in re.findall(
        r'<rect class="bar\d" .*?width="([\d.]+)"', text, re.DOTALL)]
    longest_px = max(widths)
    assert 500 < longest_px <= 600
    assert [width / longest_px for width in widths] == pytest.approx(
        [time_s / 7.0 for time_s in (7.0, 2.0, 4.0, 2.0, 5.0, 0.0)], abs=1e-3)
    assert re.findall(r'"middle">([\d.]+)</text>', text) == [
        '0', '1.5', '3', '4.5', '6', '7.5']
    for label in ('apart:\n 4.5 s on average', '>7.0</text>', '>C2</text>'):
        assert label in text
    assert found.measured in text


def test_picture_of_the_docs_is_what_the_demo_draws(tmp_path):
    assert emulate.main(['demo', '--simulate', '--only', 'mix',
                         '--report-dir', str(tmp_path)]) == 0
    drawn = ROOT / 'doc/source/images/timeline.svg'
    text = drawn.read_text()
    assert (tmp_path / drawn.name).read_text() == text
    said = re.search('aria-label="([^:]+):', text)[1]
    for page in ('README.rst', 'doc/source/index.rst'):
        words = (ROOT / page).read_text().split()
        assert said.replace(' 4 ', ' four ') in ' '.join(words)


def test_partial_report_says_so_and_saves_nothing(found, tmp_path):
    (workload,) = found.workloads
    partial = dataclasses.replace(found, partial=True, workloads=(
        dataclasses.replace(workload, schemes=workload.schemes[:2],
                            paper_means=(4.5, 3.0), complete=False),))
    text = report.write(partial, tmp_path).read_text()
    assert 'The run broke off after fig1: TA.' in text
    assert 'This report is partial' in text
    assert 'saves' not in _shown(partial)
    assert 'Partial: the run broke off.' in _shown(partial)
    assert json.loads((tmp_path / 'results.json').read_text())['partial']


def test_json_holds_the_averages(found, tmp_path):
    report.write(found, tmp_path)
    picture = (tmp_path / 'table.svg').read_text()
    assert 'joint' in picture and 'url("https' not in picture
    read = json.loads((tmp_path / 'results.json').read_text())
    (workload,) = read['workloads']
    assert workload['relative_speed_up'] == pytest.approx(
        {'a': 2 / 4.5, 'b': 0.5 / 3})
    assert [scheme['mean_measured_s'] for scheme in workload['schemes']] == [
        4.5, 3.0, 2.5]
    assert read['host_rates'][1]['slow'] is True


def _shown(found, width=80):
    console = rich.console.Console(width=width, file=io.StringIO())
    table.show(found, console)
    return console.file.getvalue()


def test_table_shows_every_number_in_80_columns(found):
    text = _shown(found)
    for shown in ('6.65 →  7.00', '→  4.50', '44%', 'in the paper',
                  'predicted → measured', 'joint', 'Without that limit the '
                  'predicted averages are 4.05, 2.70, 2.25 s'):
        assert shown in re.sub(r'\s+', ' ', text) or shown in text
    assert max(map(len, text.splitlines())) <= 80
    narrow = _shown(found, 60)
    assert max(map(len, narrow.splitlines())) <= 60
    assert '→' not in narrow and ' 7.00' in narrow


def test_long_labels_and_sizes_fit_into_80_columns(found):
    (workload,) = found.workloads
    schemes = tuple(dataclasses.replace(
        scheme, label=label, coflows=tuple(
            dataclasses.replace(coflow, name='RECOMM-10G', size_bytes=1.234e9,
                                predicted_s=123.45, measured_s=123.45)
            for coflow in scheme.coflows)) for scheme, label in zip(
        workload.schemes, ('no co-residence + SEBF', 'TA + SEBF',
                           'joint (virtco)')))
    text = _shown(dataclasses.replace(found, workloads=(
        dataclasses.replace(workload, schemes=schemes),)))
    assert text.count('123.45 → 123.45') == 12
    assert max(map(len, text.splitlines())) <= 80


def test_ties_are_marked_as_ties(found):
    assert '*' not in _shown(found)
    (workload,) = found.workloads
    first = workload.schemes[0]
    tied = dataclasses.replace(first, coflows=tuple(
        dataclasses.replace(coflow, tied=True) for coflow in first.coflows))
    text = _shown(dataclasses.replace(found, workloads=(dataclasses.replace(
        workload, schemes=(tied, *workload.schemes[1:])),)))
    assert '7.00*' in text and '4.00*' not in text
    assert 'either may go first' in re.sub(r'\s+', ' ', text)


@pytest.mark.parametrize('arguments, words', [
    (['--hosts', '2'], 'between 3 and 64'),
    (['--hosts', 'six'], 'between 3 and 64'),
    (['--rate', '1bps'], 'between 5 Mbit/s and 1 Gbit/s'),
    (['--rate', 'fast'], "got 'fast'"),
    (['--rate', '20'],
     'argument --rate: expected a rate with a unit, such as 20Mbit, got'),
    (['--seed', '-1'],
     'argument --seed: expected a number between 0 and'),
    (['--seed', 'x'], ", got 'x'"),
    (['--only', 'fig9'], 'fig9'),
])
def test_wrong_options_are_named(arguments, words, capsys):
    with pytest.raises(SystemExit) as stopped:
        emulate.main(['demo', *arguments])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert words in error and error.count('\n') == 1


@pytest.mark.parametrize('arguments, code, words', [
    (['virtco-case1', '--hosts', '65'], 2,
     'expected a number between 4'),
    (['virtco-case1', '--first-seed', '-1'], 2, 'between 0 and 99999'),
    (['virtco-case1', '--seeds', '0'], 2, 'between 1 and 100'),
    (['choreo-4', '--hosts', '4'], 1,
     '--hosts: expected nothing for choreo-4'),
    (['training-2', '--shape', 'all'], 1,
     'training-2, which has no test cases'),
])
def test_options_that_a_figure_does_not_take_are_refused(
        arguments, code, words, capsys):
    try:
        found = emulate.main(['reproduce', *arguments])
    except SystemExit as stopped:
        found = stopped.code
    error = capsys.readouterr().err
    assert found == code and words in error and error.count('\n') == 1


def test_unwritable_report_directory_stops_before_any_work(
        tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo.Demo, 'run', None)
    file = tmp_path / 'file'
    file.write_text('')
    for command, option in ((['demo', '--simulate'], '--report-dir'),
                            (['reproduce', 'virtco-case1'], '--output')):
        with pytest.raises(SystemExit) as caught:
            emulate.main([*command, option, str(file / 'report')])
        assert caught.value.code == 2
        error = capsys.readouterr().err
        assert f'argument {option}: cannot write to {file}' in error
        assert error.count('\n') == 1


def test_what_was_finished_is_reported_when_it_breaks_off(
        tmp_path, monkeypatch, capsys):
    run_simulated = demo.runner.run_simulated

    def run(workload, scheme, *args):
        if scheme.name == 'joint':
            raise KeyboardInterrupt
        return run_simulated(workload, scheme, *args)

    monkeypatch.setattr(demo.runner, 'run_simulated', run)
    assert emulate.main(['demo', '--simulate', '--report-dir',
                         str(tmp_path)]) == 130
    read = json.loads((tmp_path / 'results.json').read_text())
    assert read['partial'] is True
    assert [scheme['name'] for scheme in read['workloads'][0]['schemes']] == [
        'sebf', 'ta-sebf']
    assert 'Interrupted' in capsys.readouterr().err


def test_nothing_is_reported_when_nothing_was_finished(
        tmp_path, monkeypatch):
    def run(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo.runner, 'run_simulated', run)
    assert emulate.main(['demo', '--simulate', '--report-dir',
                         str(tmp_path)]) == 130
    assert list(tmp_path.iterdir()) == []


def test_simulation_says_what_it_does(tmp_path, capsys):
    assert emulate.main(['demo', '--simulate', '--only', 'fig1',
                         '--report-dir', str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    for label in ('no co-residence + SEBF', 'TA + SEBF', 'joint (virtco)'):
        assert any(f'fig1: {label}: placing 3 VMs' in line for line in lines)
    assert max(map(len, lines[:-1])) <= 80


def test_slow_host_must_exist(capsys):
    assert emulate.main(['demo', '--slow-host', 'h6']) == 1
    error = capsys.readouterr().err
    assert '--slow-host' in error and 'h6' in error and 'h0 to h5' in error


def test_simulate_prints_json_and_nothing_else(tmp_path):
    done = subprocess.run(
        [sys.executable, '-m', 'virtco_lab.cmd.emulate', 'demo', '--simulate',
         '--json', '--only', 'fig1', '--slow-host', '--report-dir',
         str(tmp_path)], check=True, capture_output=True, text=True)
    read = json.loads(done.stdout)
    assert read['mode'] == 'simulated'
    assert any('h1' in note for note in read['notes'])
    assert (tmp_path / 'report.html').exists()


def test_without_root_the_way_out_is_named(monkeypatch, capsys):
    monkeypatch.setattr('os.geteuid', lambda: 1000)
    assert emulate.main(['demo']) == 2
    error = capsys.readouterr().err
    assert 'root' in error and 'tools/demo --simulate' in error
