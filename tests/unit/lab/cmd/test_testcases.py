# SPDX-License-Identifier: Apache-2.0

"""What ``virtco-emulate reproduce virtco-case…`` runs, without a network."""

import json
import types

import pytest

from virtco_lab.cmd import emulate
from virtco_lab.emulation import extent
from virtco_lab.emulation import hinted
from virtco_lab.emulation import reproduce
from virtco_lab.sim import workloads
from virtco_lab.sim.figures import outcome
from virtco_lab.sim.figures import record


@pytest.fixture(name='case')
def _case(monkeypatch, tmp_path):
    """A test case that is made of nothing."""
    made = types.SimpleNamespace(options=[], unmet=(),
                                 record=tmp_path / 'record')
    made.record.mkdir()

    def figure(options):
        made.options.append(options)
        return outcome.Outcome(
            'emulated', 'A case', ('a',), ((1.0,),), (outcome.Panel(
                'bars', 'p', 'x', 'y', (outcome.Series(
                    'ours', ('a',), (1.0,)),)),), (), made.unmet,
            {'runs': [7]})

    for known in (hinted.FIGURES, reproduce.FIGURES):
        for name in known:
            monkeypatch.setitem(known, name, figure)
    monkeypatch.setattr(record, 'DIRECTORY', made.record)
    monkeypatch.setattr(emulate.capability, 'check', lambda: None)
    monkeypatch.setattr(emulate.namespaces, 'sweep', list)
    monkeypatch.setattr(emulate.signal, 'signal', lambda *_: None)
    made.output = tmp_path / 'out'
    made.run = lambda *words: emulate.main(
        ['reproduce', 'virtco-case2', '--output', str(made.output), *words])
    return made


def test_a_case_by_default(case, capsys):
    assert case.run() == 0
    options, = case.options
    assert options == extent.Options(
        20e6, (0,), False, 8, ('medium',), case.output)
    assert 'plot: ' in capsys.readouterr().out
    assert not list(case.record.iterdir())
    # Progress must not get into what is printed.
    options.say('something')
    assert 'something' in capsys.readouterr().err


def test_words_reach_the_case(case, capsys):
    assert case.run('--hosts', '20', '--rate', '30Mbit', '--seeds', '3',
                    '--first-seed', '5', '--shape', 'all', '--json',
                    '--check') == 0
    options, = case.options
    assert options == extent.Options(
        30e6, (5, 6, 7), True, 20, workloads.SHAPES, case.output)
    assert json.loads(capsys.readouterr().out)['title'] == 'A case'


@pytest.mark.parametrize(('words', 'command'), [
    ((), '--hosts 8 --rate 20Mbit/s --seeds 1 --shape medium'),
    (('--hosts', '4', '--rate', '1Gbit', '--seeds', '2', '--first-seed', '7',
      '--shape', 'all'),
     '--hosts 4 --rate 1Gbit/s --seeds 2 --first-seed 7 --shape all')])
def test_a_case_is_recorded_with_its_command_and_plotted(
        case, words, command):
    assert case.run('--write', *words) == 0
    known, = case.record.glob('*.json')
    kept = json.loads(known.read_text())
    assert kept['command'] == (
        f'virtco-emulate reproduce virtco-case2 {command}')
    assert kept['runs'] == [7]
    assert len(list(case.record.glob('*.png'))) == 1


@pytest.mark.parametrize(('unmet', 'words', 'code'), [
    (('late',), ('--check',), 1), (('late',), (), 0), ((), ('--check',), 0)])
def test_a_check_ends_with_1_where_a_claim_is_unmet(case, unmet, words, code,
                                                    capsys):
    case.unmet = unmet
    assert case.run(*words) == code
    assert ('virtco-emulate: late\n' in capsys.readouterr().err) is bool(unmet)
