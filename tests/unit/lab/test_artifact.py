# SPDX-License-Identifier: Apache-2.0

"""The steps of the artifact are commands that there are."""

import io
import json
import pathlib
import tomllib
import types

import pytest

from virtco_lab import artifact
from virtco_lab.cmd import emulate
from virtco_lab.cmd import report
from virtco_lab.cmd import sim
from virtco_lab.sim.figures import index
from virtco_lab.sim.figures import record

ROOT = pathlib.Path(__file__).parents[3]
OUTPUT = pathlib.Path('out')
STEPS = {step.name: step for short in (True, False)
         for step in artifact.steps(OUTPUT, short)}


@pytest.mark.parametrize('name', STEPS)
def test_a_step_names_a_command(name, tmp_path):
    step = STEPS[name]
    program, *arguments = (part.replace('out', str(tmp_path), 1)
                           if part.startswith('out') else part
                           for part in step.argv)
    assert program in tomllib.loads(
        (ROOT / 'lab/pyproject.toml').read_text())['project']['scripts']
    parser = {'virtco-sim': sim.make_parser, 'virtco-emulate':
              emulate._parser, 'virtco-report': report.make_parser}[program]()
    parser.parse_args(arguments)
    assert step.expected_s >= 1


def test_every_recorded_figure_is_a_step():
    recorded = {name for name, figure in index.FIGURES.items()
                if not figure.needs_trace
                and (record.DIRECTORY / f'{name}.json').exists()}
    assert len(recorded) > 10 and recorded <= STEPS.keys()
    emulated = {path.stem for path in record.DIRECTORY.glob('emulated-*.json')}
    assert len(emulated) > 10 and emulated <= STEPS.keys()
    assert STEPS.keys() - emulated - recorded == {
        'errata', 'tables', 'simulated', 'pdf'}
    # Of those alone real packets want root.
    assert emulated == {step.name for step in STEPS.values()
                        if step.needs_root}


def test_a_figure_whose_trace_is_not_here_is_no_step(tmp_path, monkeypatch):
    name = next(name for name, figure in index.FIGURES.items()
                if figure.needs_trace)
    known = json.loads((record.DIRECTORY / 'virtco-case1.json').read_text())
    (tmp_path / f'{name}.json').write_text(json.dumps(known))
    (tmp_path / 'virtco-case1.json').write_text(json.dumps(known))
    monkeypatch.setattr(record, 'DIRECTORY', tmp_path)
    assert [step.name for step in artifact.steps(OUTPUT, False)] == [
        'errata', 'tables', 'virtco-case1', 'pdf']


def test_a_simulated_figure_is_compared_with_all_of_its_record():
    known = json.loads((record.DIRECTORY / 'virtco-case1.json').read_text())
    step, = (step for step in artifact.steps(OUTPUT, False)
             if step.name == 'virtco-case1')
    assert step.argv == (
        'virtco-sim', 'reproduce', 'virtco-case1', '--check', '--tolerance',
        '1e-6', '--output', 'out')
    assert step.expected_s == known['made']['cpu_s']


@pytest.mark.parametrize(('name', 'check_s', 'seed_s'), [
    ('virtco-case1', 60, 300), ('orchestra-12', 120, 600),
    ('liars', 100, 120)])
def test_an_emulated_figure_is_run_by_the_command_that_made_it(
        name, check_s, seed_s):
    known = json.loads((record.DIRECTORY / f'emulated-{name}.json'
                        ).read_text(encoding='utf-8'))['command'].split()
    n_seeds = int(known[known.index('--seeds') + 1])
    assert n_seeds > 1
    short, full = (
        next(step for step in artifact.steps(OUTPUT, is_short)
             if step.name == f'emulated-{name}')
        for is_short in (True, False))
    assert short.argv == ('virtco-emulate', 'reproduce', name, '--check',
                          '--output', 'out/emulated')
    assert full.argv == (*known, '--compare', '--output', 'out/emulated')
    assert (short.expected_s, full.expected_s) == (check_s, n_seeds * seed_s)


@pytest.fixture
def runs(monkeypatch):
    """Commands that were run; their status."""
    made = types.SimpleNamespace(argv=[], status=0)

    def run(argv, stdout, stderr):
        made.argv.append([argv[0].name, *argv[1:]])
        return types.SimpleNamespace(returncode=made.status)
    monkeypatch.setattr(artifact.subprocess, 'run', run)
    return made


def test_numbers_as_recorded_pass(runs, tmp_path, capsys):
    directory = tmp_path / 'of' / 'two'
    arguments = ['--only', 'orchestra-table3', '--output', str(directory)]
    for _ in range(2):
        assert artifact.main(arguments) == 0
        assert 'orchestra-table3: passed, 0 s' in capsys.readouterr().out
    assert runs.argv == 2 * [[
        'virtco-sim', 'reproduce', 'orchestra-table3', '--check',
        '--tolerance', '1e-6', '--output', str(directory)]]
    runs.status = 1
    assert artifact.main(arguments) == 1
    assert capsys.readouterr().err == (
        'tools/artifact: orchestra-table3: status 1, see '
        f'{directory}/orchestra-table3.log\n')


def test_a_step_that_fails_is_told_of(runs, tmp_path, capsys):
    runs.status = 3
    assert artifact.main(['--only', 'errata,tables', '--output',
                          str(tmp_path)]) == 1
    said = capsys.readouterr()
    log = tmp_path / 'errata.log'
    assert said.err.splitlines()[0] == (
        f'tools/artifact: errata: status 3, see {log}')
    assert log.exists()
    # Those behind it run, too.
    assert runs.argv == [['virtco-sim', 'errata'], ['virtco-report']]
    assert f'errata: errata: status 3, see {log}, 0 s' in said.out


def test_a_program_that_is_not_installed_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(artifact.sys, 'executable', str(tmp_path / 'python'))
    assert artifact.run([STEPS['errata']], tmp_path) == [
        f'errata: {tmp_path}/virtco-sim: No such file or directory']


@pytest.mark.parametrize(('uid', 'n_run'), [(0, 2), (1, 1), (1000, 1)])
def test_real_packets_are_left_to_root(uid, n_run, runs, tmp_path,
                                       monkeypatch, capsys):
    monkeypatch.setattr(artifact.os, 'geteuid', lambda: uid)
    assert artifact.run([STEPS['emulated-liars'], STEPS['errata']],
                        tmp_path) == []
    assert len(runs.argv) == n_run
    said = capsys.readouterr().out
    assert ('emulated-liars: left out, it needs root' in said) is (uid != 0)
    assert ('emulated-liars: passed, 0 s' in said) is (uid == 0)


def test_each_line_is_seen_as_soon_as_it_is_said(runs, tmp_path,
                                                 monkeypatch):
    """A pipe is written to in blocks unless it is told otherwise."""
    pipe = io.BytesIO()
    seen = []

    def fails(step, output):
        seen.append(pipe.getvalue().decode().splitlines()[-1])
        return ''

    monkeypatch.setattr(artifact, '_fails', fails)
    with monkeypatch.context() as patched:
        patched.setattr(artifact.sys, 'stdout', io.TextIOWrapper(pipe))
        artifact.run([STEPS['errata']], tmp_path)
        seen.append(pipe.getvalue().decode().splitlines()[-1])
    assert seen == ['errata: virtco-sim errata (about 2 s)',
                    'errata: passed, 0 s']


def test_a_list_shows_seconds_and_commands(runs, capsys):
    assert artifact.main(['--list', '--only',
                          'errata,tables,orchestra-table3,pdf']) == 0
    assert capsys.readouterr().out.splitlines() == [
        'errata                        2 s  virtco-sim errata',
        'tables                        3 s  virtco-report',
        'orchestra-table3              1 s  virtco-sim reproduce '
        'orchestra-table3 --check --tolerance 1e-6 --output virtco-artifact',
        'pdf                          20 s  virtco-report --pdf '
        'virtco-artifact/evaluation.pdf']
    assert artifact.main(['--list', '--check', '--only', 'simulated']) == 0
    assert capsys.readouterr().out.split() == [
        'simulated', '60', 's', 'virtco-sim', 'reproduce', 'all', '--check',
        '--short']
    assert artifact.main(['--list']) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(STEPS) - 1
    assert not runs.argv


def test_an_unknown_step_is_named(capsys):
    with pytest.raises(SystemExit) as caught:
        artifact.main(['--only', 'nonsense'])
    assert caught.value.code == 2 and 'nonsense' in capsys.readouterr().err
