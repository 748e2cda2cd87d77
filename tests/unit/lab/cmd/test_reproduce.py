# SPDX-License-Identifier: Apache-2.0

"""``virtco-sim reproduce`` with figures that are made up."""

import functools
import json

import pytest

from virtco_lab.cmd import reproduce
from virtco_lab.cmd import sim as command
from virtco_lab.sim.figures import index
from virtco_lab.sim.figures import outcome
from virtco_lab.sim.figures import record
from virtco_lab.sim.figures import samples

#: What all but one of the figures are made of.
INPUTS = ('shape', 'short', 'topology', 'kinds', 'processes')


class Evaluation:
    """Three figures; notes what they are run with."""

    def __init__(self, directory, capsys):
        self.directory, self._capsys = directory, capsys
        self.record = directory / 'a' / 'record'
        self.jobs, self.contexts = [], []
        self.factor = 1.0

    def run_one(self, inputs, setting, seed, *given):
        self.jobs.append((setting, seed))
        self.contexts.append(samples.Context(
            **dict(zip(inputs, given, strict=True))))
        return {'ours': self.factor * (5.0 + seed)}

    def show(self, found):
        values = tuple(found.of(one, 'ours')[0] for one in found.settings)
        return (('setting', 'mean'),
                tuple(zip(found.settings, values, strict=True)),
                (outcome.Panel('bars', 'p', 'x', 'y', (outcome.Series(
                    'ours', found.settings, values),)),))

    def figure(self, name, **options):
        inputs = options.setdefault('inputs', INPUTS)
        return samples.Figure(
            name, 'A figure', ('a', 'b'),
            functools.partial(self.run_one, inputs), self.show,
            short=('b',), **options)

    def __call__(self, *words):
        self.jobs.clear()
        self.contexts.clear()
        code = command.main(['reproduce', *map(str, words), '--record',
                             str(self.record)])
        self.out, self.err = self._capsys.readouterr()
        return code


@pytest.fixture(name='run')
def _run(monkeypatch, tmp_path, capsys):
    evaluation = Evaluation(tmp_path, capsys)
    made = [evaluation.figure('drawn'), evaluation.figure(
            'fixed', seeded=False), evaluation.figure(
            'traced', inputs=('trace',))]
    monkeypatch.setattr(index, 'FIGURES', {one.name: one for one in made})
    monkeypatch.delenv(reproduce.TRACE_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    return evaluation


def test_a_figure_is_run_with_eight_seeds_and_shown(run):
    assert run('drawn') == 0
    assert run.jobs == [(setting, seed) for setting in 'ab'
                        for seed in range(8)]
    assert run.err == ('drawn: 2 settings, seeds 0 to 7, not recorded how '
                       'long\nin all about 0 s of CPU time, as recorded\n')
    assert 'A figure' in run.out
    assert 'plot: virtco-sim-output/drawn.png\n' in run.out
    kept = json.loads((run.directory / 'virtco-sim-output' / 'drawn.json'
                       ).read_text())
    assert kept['seeds'] == list(range(8)) and kept['shape'] == 'medium'
    assert kept['samples']['a']['ours'] == [[5.0 + seed]
                                            for seed in range(8)]
    assert not run.record.exists()
    usual, = {(one.shape, one.short, one.trace, one.topology, one.kinds,
               one.processes) for one in run.contexts}
    assert usual == ('medium', False, None, None, (), 1)


def test_what_is_asked_for_reaches_the_figure(run, tmp_path):
    topology = tmp_path / 'topology'
    topology.touch()
    assert run('drawn', '--short') == 0
    assert run.jobs == [('b', 0)]
    assert run('drawn', '--short', '--seeds', '4-5', '--shape', 'dense',
               '--topology', topology, '--output', tmp_path / 'out') == 0
    assert run.jobs == [('b', 4), ('b', 5)]
    assert {(one.shape, one.short, one.topology) for one in run.contexts} == {
        ('dense', True, topology)}
    assert f'plot: {tmp_path}/out/drawn.png' in run.out
    assert not run('fixed')
    assert run.jobs == [('a', 0), ('b', 0)]
    assert 'fixed: 2 settings, not recorded' in run.err


def test_json_is_an_object_for_one_figure_a_list_for_more(run):
    run('drawn', '--json')
    found = json.loads(run.out)
    assert found['name'] == 'drawn'
    assert found['plot'] == 'virtco-sim-output/drawn.png'
    run('all', '--only', 'fixed,drawn', '--json')
    assert [one['name'] for one in json.loads(run.out)] == ['fixed', 'drawn']


def test_what_is_written_is_found_again(run):
    for _ in range(2):
        assert run('drawn', '--write', '--seeds', '2-4') == 0
    assert 'A figure' in run.out
    path = run.record / 'drawn.json'
    known = json.loads(path.read_text())
    assert known['seeds'] == [2, 3, 4] and 'plot' not in known
    assert 'virtco-sim reproduce drawn' in (run.record / 'drawn.inc'
                                            ).read_text()
    known['cpu_s'] = {'a': 1.25, 'b': 3.0}
    path.write_text(json.dumps(known))
    run('drawn', '--render')
    assert not run.jobs

    # A check runs the recorded seeds, writes and prints nothing else.
    (run.directory / 'virtco-sim-output' / 'drawn.json').unlink()
    assert run('drawn', '--check') == 0
    assert [seed for _setting, seed in run.jobs] == 2 * [2, 3, 4]
    assert run.out == (
        'drawn: 2 cells compared, 0 off by more than 1.00%; recorded at '
        f'commit {known["made"]["commit"]}\n')
    assert run.err == (
        'drawn: 2 settings, seeds 2 to 4, about 4.25 s\n'
        'in all about 4.25 s of CPU time, as recorded\n')
    assert not (run.directory / 'virtco-sim-output' / 'drawn.json').exists()
    assert run('drawn', '--check', '--short', '--output',
               run.directory / 'out') == 0
    assert run.jobs == [('b', 2)]
    assert 'drawn: 1 settings, seeds 2, about 1 s' in run.err
    assert (run.directory / 'out' / 'drawn.json').exists()
    # Another run of what is recorded takes its own seeds.
    assert run('drawn') == 0
    assert len(run.jobs) == 16


def test_the_time_of_all_figures_is_told(run):
    run('all', '--write', '--only', 'drawn,fixed', '--seeds', '1')
    for name, cpu_s in (('drawn', 1.0), ('fixed', 2.5)):
        path = run.record / f'{name}.json'
        path.write_text(json.dumps(json.loads(path.read_text()) | {
            'cpu_s': {'a': cpu_s, 'b': 0.0}}))
    run('all', '--seeds', '2')
    assert run.err.splitlines() == [
        'traced: left out, it needs --trace',
        'drawn: 2 settings, seeds 0 to 1, about 2 s',
        'fixed: 2 settings, about 2.5 s',
        'in all about 4.5 s of CPU time, as recorded']


def test_numbers_that_differ_end_with_1(run):
    run('drawn', '--write', '--seeds', '2')
    run.factor = 1.02
    assert run('drawn', '--check') == 1
    said = [line for line in run.err.splitlines()
            if line.startswith('virtco-sim: drawn: ')]
    assert len(said) == 2
    assert 'drawn: 2 cells compared, 2 off by more than 1.00%' in run.out
    assert run('drawn', '--check', '--tolerance', '0.03') == 0
    run.factor = 1.0
    (run.record / 'drawn.inc').write_text('something else')
    assert run('drawn', '--check', '--json') == 1
    found = json.loads(run.out)
    assert [one['name'] for one in found['figures']] == ['drawn']
    assert found['figures'][0]['compared'] == 2
    assert found['figures'][0]['differences'] == []
    failure, = found['failures']
    assert failure == (f'{run.record}/drawn.inc: not the table of its '
                       'record; --write makes it')
    assert run.err.splitlines()[-1] == f'virtco-sim: {failure}'


def test_tables_are_rendered_of_what_is_recorded_alone(run):
    run('drawn', '--write', '--seeds', '1')
    (run.record / 'drawn.inc').unlink()
    assert run('all', '--render') == 0
    assert not run.jobs
    assert (run.record / 'drawn.inc').exists()
    assert not (run.record / 'fixed.inc').exists()


def test_a_figure_that_needs_the_trace_gets_it(run, tmp_path, monkeypatch):
    trace = tmp_path / 'trace'
    trace.touch()
    assert run('traced', '--trace', trace, '--seeds', '1') == 0
    assert {one.trace for one in run.contexts} == {trace}
    other = tmp_path / 'other'
    other.touch()
    monkeypatch.setenv(reproduce.TRACE_VARIABLE, str(other))
    assert run('all', '--seeds', '1') == 0
    assert {one.trace for one in run.contexts if one.trace} == {other}
    assert len(run.jobs) == 6 and 'left out' not in run.err
    assert run('traced', '--trace', trace, '--seeds', '1') == 0
    assert {one.trace for one in run.contexts} == {trace}


def test_without_it_the_figure_is_left_out_of_all_others(run):
    assert run('all', '--seeds', '1') == 0
    assert len(run.jobs) == 4
    for words in (('traced',), ('all', '--only', 'traced,fixed')):
        assert run(*words) == 2
        assert 'the trace of traced' in run.err and not run.jobs


@pytest.mark.parametrize(('words', 'said'), [
    (('--write', '--short'), '--short: expected nothing with --write'),
    (('--check', '--shape', 'dense'), '--shape: expected medium'),
    (('--write', '--shape', 'dense'), '--shape: expected medium'),
    (('--check', '--topology', 'x'), '--topology: expected nothing with'),
    (('--write', '--topology', 'x'), '--topology: expected nothing with'),
    (('--check', '--workload', 'x'), '--workload: '),
    (('--write', '--workload', 'x'), '--workload: '),
    (('--trace', 'x'), '--trace: expected nothing for drawn, got x'),
    (('--topology', 'x'), '--topology: expected an existing file, got x'),
    (('--only', 'drawn'), '--only: expected nothing without the figure'),
    (('--tolerance', '1'), '--tolerance: expected nothing without --check'),
    (('--render', '--seeds', '1'), '--seeds: expected nothing with --render'),
    (('--render', '--json'), '--json: expected nothing with --render'),
    (('--check',), 'drawn.json')])
def test_what_cannot_be_done_is_named(run, words, said):
    assert run('drawn', *words) == 2
    assert run.err.startswith('virtco-sim: ') and said in run.err
    assert not run.jobs and not run.out


@pytest.mark.parametrize(('words', 'said'), [
    (('fixed', '--seeds', '1'), '--seeds: expected nothing for fixed'),
    (('traced', '--shape', 'dense'), '--shape: expected nothing for traced'),
    (('traced', '--topology', 'x'), '--topology: expected nothing for'),
    (('traced', '--workload', 'x'), '--workload: expected nothing for'),
    (('traced', '--trace', 'x'), '--trace: expected an existing file, got x'),
    (('all', '--only', 'drawn,fixed', '--trace', 'x'), '--trace: ')])
def test_a_figure_takes_what_it_is_made_of(run, words, said):
    assert run(*words) == 2
    assert said in run.err and not run.jobs


def test_a_name_that_is_no_figure_is_named_with_those_that_are(run):
    assert run('all', '--only', 'drawn,other') == 2
    assert ('--only: expected one of drawn, fixed, traced'
            in run.err)


def test_a_terminal_sees_how_far_it_is(monkeypatch):
    class Terminal:
        is_terminal = True

    shown = {}

    def track(items, description, console, transient, disable):
        shown.update(description=description, disable=disable,
                     transient=transient, console=console)
        return items

    monkeypatch.setattr(reproduce.rich_progress, 'track', track)
    assert list(reproduce._track([1, 2], 'name')) == [1, 2]
    assert shown == {'description': 'name', 'disable': True,
                     'transient': True, 'console': reproduce._ERRORS}
    # What is printed may be JSON.
    assert reproduce._ERRORS.stderr
    monkeypatch.setattr(reproduce, '_ERRORS', Terminal)
    assert list(reproduce._track([1], 'name')) == [1]
    assert shown['disable'] is False


def test_records_are_where_the_documentation_has_them():
    args = command.make_parser().parse_args(['reproduce', 'all'])
    assert args.record == record.DIRECTORY
    reproduce._settle(args)
    assert (args.tolerance, args.processes, args.seeds, args.shape,
            args.only, args.output) == (0.01, 1, None, 'medium', (), None)
