# SPDX-License-Identifier: Apache-2.0

"""What ``virtco-emulate`` takes, and how it ends, without a network."""

import json
import pathlib
import signal
import types

import pytest

from virtco import exception
from virtco_lab.cmd import emulate
from virtco_lab.cmd import emulate_demo
from virtco_lab.cmd import emulate_reproduce
from virtco_lab.sim.figures import outcome


@pytest.fixture(autouse=True)
def _here(monkeypatch, tmp_path):
    """Directories are made where it is called."""
    monkeypatch.chdir(tmp_path)


def parse(*argv):
    return vars(emulate._parser().parse_args(argv))


def test_a_demo_by_default():
    found = parse('demo')
    assert found.pop('function') is emulate_demo.run
    assert found == {
        'hosts': 6, 'rate': None, 'slow_host': None, 'simulate': False,
        'seed': None, 'only': None, 'order': None, 'json': False, 'ui': False,
        'report_dir': pathlib.Path('virtco-report')}
    assert parse('demo', '--slow-host')['slow_host'] == 'h1'
    assert parse('demo', '--slow-host', 'h3')['slow_host'] == 'h3'


def test_a_figure_by_default():
    found = parse('reproduce', 'virtco-case1')
    assert found.pop('function') is emulate_reproduce.run
    assert found == {
        'figure': 'virtco-case1', 'rate': None, 'seeds': 1, 'shape': None,
        'hosts': None, 'first_seed': 0, 'check': False, 'compare': False,
        'write': False,
        'output': pathlib.Path('virtco-emulate-output'), 'json': False}


@pytest.mark.parametrize(('words', 'option', 'good', 'bad'), [
    (('demo',), '--hosts', {'3': 3, '64': 64}, ['2', '65']),
    (('demo',), '--seed', {'0': 0, '4294967295': 2 ** 32 - 1},
     ['-1', '4294967296']),
    (('demo',), '--rate', {'5Mbit': 5e6, '1Gbit/s': 1e9, ' 20 Mbit': 20e6},
     ['4.999Mbit', '1001Mbit', 'fast']),
    (('reproduce', 'choreo-9'), '--seeds', {'1': 1, '100': 100},
     ['0', '101']),
    (('reproduce', 'virtco-case1'), '--hosts', {'4': 4, '64': 64},
     ['3', '65']),
    (('reproduce', 'virtco-case1'), '--first-seed', {'0': 0, '99999': 99_999},
     ['-1', '100000'])])
def test_words_have_bounds(words, option, good, bad, capsys):
    name = option[2:].replace('-', '_')
    for text, value in good.items():
        assert parse(*words, f'{option}={text}')[name] == value
    for text in bad:
        with pytest.raises(SystemExit) as caught:
            parse(*words, f'{option}={text}')
        assert caught.value.code == 2
        said, = capsys.readouterr().err.splitlines()
        assert said.startswith('virtco-emulate') and option in said


def test_a_rate_needs_its_unit(capsys):
    for text in ('50', ' 50 '):
        with pytest.raises(SystemExit):
            parse('demo', f'--rate={text}')
        assert 'such as 50Mbit' in capsys.readouterr().err
    for text in ('2Gbit', '1000000001bps', '4999999bps'):
        with pytest.raises(SystemExit):
            parse('demo', f'--rate={text}')
        assert (f"between 5 Mbit/s and 1 Gbit/s, got '{text}'"
                in capsys.readouterr().err)


@pytest.mark.parametrize('argv', [
    [], ['demo', '--only', 'x'], ['reproduce'], ['reproduce', 'nothing'],
    ['reproduce', 'choreo-9', '--check', '--write']])
def test_wrong_usage_is_told_in_one_line(argv, capsys):
    with pytest.raises(SystemExit) as caught:
        emulate.main(argv)
    assert caught.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Notes how the machine is prepared instead of preparing it."""
    made = types.SimpleNamespace(done=[], signals={}, swept=[])

    def sweep():
        made.done.append('swept')
        return made.swept

    monkeypatch.setattr(emulate.capability, 'check',
                        lambda: made.done.append('checked'))
    monkeypatch.setattr(emulate.namespaces, 'sweep', sweep)
    monkeypatch.setattr(emulate.signal, 'signal', made.signals.__setitem__)
    return made


@pytest.mark.parametrize(('error', 'code', 'said'), [
    (emulate.capability.CannotEmulate(why='it needs root'), 2,
     'This machine cannot run the emulated testbed: it needs root.\n'
     'Without it, tools/demo --simulate runs the same workload through the '
     'simulator.\n'),
    (exception.Invalid(field='a', value=1, limit='2'), 1,
     'virtco-emulate: a: expected 2, got 1.\n'),
    (KeyboardInterrupt(), 130, 'Interrupted; everything was removed.\n')])
def test_how_it_ends(error, code, said, machine, monkeypatch, capsys):
    def fail():
        raise error

    monkeypatch.setattr(emulate.namespaces, 'sweep', fail)
    assert emulate.main(['clean']) == code
    assert capsys.readouterr().err == said


def test_what_was_left_behind_is_removed_and_named(machine, capsys):
    machine.swept = ['abc', 'def']
    assert emulate.main(['clean']) == 0
    assert capsys.readouterr().out == 'removed run abc\nremoved run def\n'


def test_a_signal_ends_it_through_every_finally(machine):
    emulate.main(['clean'])
    assert machine.signals.keys() == {signal.SIGTERM, signal.SIGHUP}
    for number, end in machine.signals.items():
        with pytest.raises(SystemExit) as caught:
            end(number, None)
        assert caught.value.code == 128 + number


@pytest.mark.parametrize('words', [('demo', '--report-dir'),
                                   ('reproduce', 'choreo-9', '--output')])
def test_a_directory_that_cannot_be_written_is_named_first(
        words, machine, capsys, tmp_path):
    (tmp_path / 'file').touch()
    for path in ('/proc', tmp_path / 'file' / 'x'):
        with pytest.raises(SystemExit):
            emulate.main([*words, str(path)])
        assert (f'argument {words[-1]}: cannot write to {path}: '
                in capsys.readouterr().err)
    assert machine.done == []


# Demos.

class Demo:
    """Finds what it is given; may break off."""

    found = types.SimpleNamespace(to_dict=lambda: {'mean_s': 1.5})
    error = None

    def __init__(self, options, console, is_simulated):
        Demo.made = (options, console, is_simulated)

    def run(self):
        Demo.has_run = True
        if self.error:
            raise self.error

    def results(self):
        return self.found


@pytest.fixture
def demo(monkeypatch, machine, tmp_path):
    class Own(Demo):
        presented = []

    Demo.has_run = False
    monkeypatch.setattr(emulate_demo.demo, 'Demo', Own)
    monkeypatch.setattr(emulate_demo.demo, 'present',
                        lambda *args: Own.presented.append(args))
    # One more level, which is made.
    Own.directory = tmp_path / 'a' / 'report'
    Own.run_it = staticmethod(lambda *words: emulate.main(
        ['demo', '--report-dir', str(Own.directory), *words]))
    return Own


def test_a_demo_is_run_and_presented(demo, machine, capsys):
    assert demo.run_it('--hosts', '4', '--rate', '20Mbit', '--seed', '7',
                       '--slow-host', 'h3', '--only', 'mix') == 0
    options, console, is_simulated = Demo.made
    assert options == emulate_demo.demo.Options(
        4, 20e6, 7, demo.directory, 'h3', 'mix')
    assert not is_simulated and not console.stderr
    assert Demo.has_run
    assert demo.presented == [(demo.found, options, console)]
    assert machine.done == ['checked', 'swept']
    assert demo.directory.is_dir()
    assert capsys.readouterr().out == ''
    # The directory may be there already.
    assert demo.run_it() == 0


def test_a_simulated_demo_needs_nothing_of_the_machine(demo, machine, capsys):
    assert demo.run_it('--simulate', '--json') == 0
    _options, console, is_simulated = Demo.made
    assert is_simulated and console.stderr
    assert machine.done == []
    assert capsys.readouterr().out == '{\n "mean_s": 1.5\n}\n'


def test_what_was_finished_before_a_demo_broke_off_is_presented(demo):
    demo.error = KeyboardInterrupt()
    assert demo.run_it() == 130
    assert len(demo.presented) == 1


def test_a_demo_that_finished_nothing_presents_nothing(demo, capsys):
    demo.found = None
    assert demo.run_it('--json') == 0
    assert demo.presented == [] and capsys.readouterr().out == ''


def test_the_slow_host_must_be_one_of_the_demo(demo, capsys):
    assert demo.run_it('--hosts', '4', '--slow-host', 'h4') == 1
    assert 'one of h0 to h3' in capsys.readouterr().err
    assert demo.run_it('--hosts', '5', '--slow-host', 'h4') == 0


def test_the_page_is_of_a_real_run(demo, capsys):
    assert demo.run_it('--ui') == 0
    assert Demo.made[0].has_page
    assert demo.run_it('--ui', '--simulate') == 1
    assert '--ui' in capsys.readouterr().err


def test_the_mix_is_served_in_the_order_asked_for(demo, capsys):
    assert demo.run_it('--order', 'sincronia') == 0
    mix = Demo.made[0].workloads(50e6)[-1]
    assert [scheme.order for scheme in mix.schemes] == [
        'fair', 'sebf', 'sincronia']
    assert demo.run_it('--order', 'own') == 1
    assert 'virtco.policies' in capsys.readouterr().err


def test_options_of_the_mix_are_refused_without_it(demo, capsys):
    for words in (('--order', 'sincronia'), ('--seed', '0')):
        assert demo.run_it('--only', 'fig1', *words) == 1
        assert (f'{words[0]}: expected nothing with --only fig1, got '
                f'{words[1]}.') in capsys.readouterr().err
    assert not Demo.has_run
    assert demo.run_it('--only', 'fig1') == 0


# Figures.

@pytest.fixture
def figure(monkeypatch, machine, tmp_path):
    """One that is made of nothing."""
    found = outcome.Outcome('f', 'A figure', ('a',), ((1.0,),), (
        outcome.Panel('bars', 'p', 'x', 'y', (
            outcome.Series('ours', ('a',), (1.0,)),)),), (), ('too slow',))
    made = types.SimpleNamespace(options=[])

    def make(options):
        made.options.append(options)
        return found

    for known in emulate_reproduce._FIGURES.maps:
        for name in known:
            monkeypatch.setitem(known, name, make)
    made.run = lambda name, *words: emulate.main(
        ['reproduce', name, '--output', str(tmp_path / 'out'), *words])
    return made


def test_each_kind_of_figure_has_its_own_rate(figure, capsys):
    for name, rate_bps in (
            ('choreo-9', 50e6), ('orchestra-9', 10e6), ('training-2', 20e6),
            *((name, 50e6) for name in (
                *emulate_reproduce.broadcast.FIGURES,
                *emulate_reproduce.mpi.FIGURES))):
        assert figure.run(name) == 0
        assert figure.options[-1].rate_bps == rate_bps, name
        assert figure.run(name, '--rate', '30Mbit', '--check') == 1
        assert figure.options[-1].rate_bps == 30e6
        assert figure.options[-1].short is True
    assert 'virtco-emulate: too slow\n' in capsys.readouterr().err


def test_a_figure_is_made_on_a_machine_that_can_and_shown(
        figure, machine, capsys, tmp_path):
    assert figure.run('orchestra-9', '--seeds', '2', '--json') == 0
    assert figure.options[0].seeds == (0, 1)
    assert machine.done == ['checked', 'swept']
    assert json.loads(capsys.readouterr().out)['title'] == 'A figure'
    assert (tmp_path / 'out' / 'f.json').exists()
    # Progress must not get into the JSON.
    figure.options[0].say('something')
    said = capsys.readouterr()
    assert said.out == '' and 'something' in said.err


def test_options_of_test_cases_are_refused_elsewhere(figure, machine, capsys):
    for words in (('--shape', 'dense'), ('--hosts', '5')):
        assert figure.run('choreo-9', *words) == 1
        assert (f'{words[0]}: expected nothing for choreo-9, which has no '
                f'test cases, got {words[1]}.') in capsys.readouterr().err
    assert figure.run('virtco-case4', '--shape', 'dense') == 1
    assert ('--shape: expected medium for virtco-case4, got dense.'
            in capsys.readouterr().err)
    for name in ('choreo-9', 'training-2'):
        assert figure.run(name, '--seeds', '2') == 1
        assert (f'--seeds: expected 1 for {name}, which is measured once, '
                'got 2.') in capsys.readouterr().err
    assert not figure.options and not machine.done
