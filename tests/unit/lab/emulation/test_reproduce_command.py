# SPDX-License-Identifier: Apache-2.0

"""What ``virtco-emulate reproduce`` does with a figure, without a network."""

import types

import pytest

from virtco_lab.cmd import emulate
from virtco_lab.cmd import emulate_reproduce
from virtco_lab.sim.figures import outcome


@pytest.fixture
def made(monkeypatch, tmp_path):
    """Figures that are made of nothing, with what they were asked for."""
    found = types.SimpleNamespace(options=[], written=[], unmet=('too slow',))

    def make(options):
        found.options.append(options)
        return outcome.Outcome('f', 'A figure', ('a',), ((1.0,),), (), (),
                               found.unmet)

    for module in emulate.capability, emulate.namespaces:
        monkeypatch.setattr(
            module, 'check' if module is emulate.capability else 'sweep',
            lambda: None)
    monkeypatch.setitem(emulate_reproduce.measured.FIGURES, 'choreo-9', make)
    monkeypatch.setitem(emulate_reproduce.training.FIGURES, 'training-2', make)
    name = next(iter(emulate_reproduce.broadcast.FIGURES))
    monkeypatch.setitem(emulate_reproduce.broadcast.FIGURES, name, make)
    found.on_mesh = name
    monkeypatch.setattr(emulate_reproduce.present, 'show',
                        lambda result, *_: print(result.title))
    monkeypatch.setattr(emulate_reproduce.document, 'write_measured',
                        lambda *args: found.written.append(args))
    monkeypatch.setattr(emulate_reproduce.record, 'made_on',
                        lambda _cpu_s, _others: 'here')
    monkeypatch.setattr(emulate.signal, 'signal', lambda *_: None)

    def run(figure, *argv):
        return emulate.main(['reproduce', figure, '--output', str(tmp_path),
                             *argv])

    found.run = run
    return found


@pytest.mark.parametrize('unmet, argv, code', [
    (('too slow',), ('--check',), 1), (('too slow',), (), 0),
    ((), ('--check',), 0), ((), (), 0)])
def test_a_check_ends_with_1_where_a_claim_is_unmet(made, capsys, unmet,
                                                    argv, code):
    made.unmet = unmet
    assert made.run('choreo-9', *argv) == code
    out, err = capsys.readouterr()
    assert out == 'A figure\n'
    assert err == ''.join(f'virtco-emulate: {one}\n' for one in unmet)
    assert made.options[0].short == bool(argv)


def test_a_figure_is_recorded_with_its_command(made):
    made.run('choreo-9')
    assert made.written == []
    made.run('choreo-9', '--write', '--rate', '20Mbit', '--first-seed', '3')
    (directory, result, maker, command), = made.written
    assert (directory, maker) == (emulate_reproduce.record.DIRECTORY, 'here')
    assert result.title == 'A figure'
    assert command == ('virtco-emulate reproduce choreo-9 --rate 20Mbit/s '
                       '--seeds 1 --first-seed 3')


def test_options_reach_the_figure(made):
    made.run('choreo-9')
    made.run('choreo-9', '--first-seed', '2')
    made.run('choreo-9', '--rate', '20Mbit', '--seeds', '1')
    made.run(made.on_mesh, '--seeds', '3')
    made.run('training-2')
    made.run('training-2', '--rate', '30Mbit')
    assert [(one.rate_bps, one.seeds, one.short) for one in made.options] == [
        (50e6, (0,), False), (50e6, (2,), False), (20e6, (0,), False),
        (50e6, (0, 1, 2), False), (20e6, (0,), False), (30e6, (0,), False)]


@pytest.mark.parametrize('seed', ['0', '99999'])
def test_a_test_case_begins_with_any_seed(made, monkeypatch, seed):
    monkeypatch.setitem(
        emulate_reproduce.reproduce.FIGURES, 'virtco-case1',
        lambda options: made.options.append(options) or (
            outcome.Outcome('f', 'A figure', ('a',), ((1.0,),), ())))
    assert made.run('virtco-case1', '--first-seed', seed, '--seeds', '2') == 0
    assert made.options[0].seeds == (int(seed), int(seed) + 1)


@pytest.mark.parametrize(('differences', 'unmet', 'code'), [
    (['f: a'], (), 1), ([], ('too slow',), 1), ([], (), 0)])
def test_a_figure_is_compared_with_its_record(made, capsys, monkeypatch,
                                              differences, unmet, code):
    made.unmet = unmet
    monkeypatch.setattr(emulate_reproduce.record, 'document',
                        lambda _directory, name: f'record of {name}')
    monkeypatch.setattr(emulate_reproduce.rerun, 'compare', lambda known, _: (
        3, differences) if known == 'record of f' else None)
    assert made.run('choreo-9', '--compare') == code
    out, err = capsys.readouterr()
    assert out == ('A figure\nf: 3 numbers compared with the record, '
                   f'{len(differences)} off\n')
    assert err == ''.join(f'virtco-emulate: {one}\n'
                          for one in (*unmet, *differences))
    assert not made.options[0].short
