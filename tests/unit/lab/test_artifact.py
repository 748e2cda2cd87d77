# SPDX-License-Identifier: Apache-2.0

"""The steps of the artifact are commands that there are."""

import json
import pathlib
import tomllib
import types

import pytest

from virtco_lab import artifact
from virtco_lab.cmd import emulate
from virtco_lab.cmd import report
from virtco_lab.cmd import sim
from virtco_lab.sim import figures
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
    recorded = {name for name, figure in figures.FIGURES.items()
                if not figure.needs_trace
                and (record.DIRECTORY / f'{name}.json').exists()}
    assert len(recorded) > 10 and recorded <= STEPS.keys()
    emulated = {path.stem for path in record.DIRECTORY.glob('emulated-*.json')}
    assert len(emulated) > 10 and emulated <= STEPS.keys()


def test_a_checksum_is_of_the_numbers_and_of_nothing_else():
    path = record.DIRECTORY / 'virtco-case3.json'
    known = json.loads(path.read_text(encoding='utf-8'))
    usual = artifact.digest(known)
    known['made']['commit'] = 'another'
    shape = next(iter(known['samples']))
    known['samples'][shape]['cpu_s'][0][0] += 1.0  # a time of the machine
    known['samples'][shape]['counted_s'][0][0] *= 1 + 1e-12
    assert artifact.digest(known) == usual
    known['samples'][shape]['counted_s'][0][0] *= 1.001
    assert artifact.digest(known) != usual


@pytest.fixture
def runs(monkeypatch):
    """Commands that were run; what they write; their status."""
    made = types.SimpleNamespace(argv=[], factor=1.0, status=0)

    def run(argv, stdout, stderr):
        made.argv.append([argv[0].name, *argv[1:]])
        if 'reproduce' in argv and argv[0].name == 'virtco-sim':
            known = json.loads((record.DIRECTORY / f'{argv[2]}.json'
                                ).read_text(encoding='utf-8'))
            for series in known['samples'].values():
                for rows in series.values():
                    rows[0][0] *= made.factor
            (pathlib.Path(argv[-1]) / f'{argv[2]}.json').write_text(
                json.dumps(known))
        return types.SimpleNamespace(returncode=made.status)
    monkeypatch.setattr(artifact.subprocess, 'run', run)
    return made


def test_numbers_as_recorded_pass(runs, tmp_path):
    arguments = ['--only', 'orchestra-table3', '--output', str(tmp_path)]
    assert artifact.main(arguments) == 0
    assert runs.argv[0][:3] == ['virtco-sim', 'reproduce',
                                'orchestra-table3']
    runs.factor = 1.01
    assert artifact.main(arguments) == 1


def test_a_step_that_fails_is_told_of(runs, tmp_path, capsys):
    runs.status = 3
    assert artifact.main(['--only', 'errata', '--output',
                          str(tmp_path)]) == 1
    assert 'errata: status 3' in capsys.readouterr().err


def test_an_unknown_step_is_named(capsys):
    with pytest.raises(SystemExit) as caught:
        artifact.main(['--only', 'nonsense'])
    assert caught.value.code == 2 and 'nonsense' in capsys.readouterr().err
