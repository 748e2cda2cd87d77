# SPDX-License-Identifier: Apache-2.0

"""What ``virtco-sim`` takes and prints, on workloads of a few flows."""

import json
import math
import pathlib
import re
import subprocess
import sys

import pytest

from virtco_lab.cmd import sim as command
from virtco_lab.sim import cloud
from virtco_lab.sim import errata
from virtco_lab.sim import groups as groups_module
from virtco_lab.sim import simulation
from virtco_lab.sim import traces
from virtco_lab.sim import workloads

#: Two coflows on one pair of ports, 1 and 3 s alone at 8 Mbit/s.
TRACE = '4 2\nc1 0 1 0 1 1:1.0\nc2 0 1 0 1 1:3.0\n'


@pytest.fixture(name='run')
def _run(capsys):
    def run(*words):
        code = command.main([str(word) for word in words])
        found = capsys.readouterr()
        assert code == 0, found.err
        run.err = found.err
        return found.out
    return run


@pytest.fixture(name='trace')
def _trace(tmp_path):
    path = tmp_path / 'trace'
    path.write_text(TRACE)
    return path


def parse(*words):
    found = vars(command.make_parser().parse_args(words))
    found.pop('run')
    return found


def test_what_runs_by_default():
    assert parse('run', '--table2', 'sparse') == {
        'trace': None, 'groups': None, 'table2': 'sparse', 'policy': None,
        'scheme': None, 'rate': None, 'theta': math.inf,
        'bound': False, 'seed': None, 'json': False}
    assert parse('generate', 'table2', 'x') == {
        'kind': 'table2', 'output': pathlib.Path('x'), 'seed': 0,
        'ports': None, 'coflows': None, 'duration': None, 'shape': None}
    assert parse('errata') == {'json': False}


def test_a_run_loads_no_figures(trace):
    """They take more room than the simulation of a small trace."""
    code = ('import sys; from virtco_lab.cmd import sim; '
            f'sim.main(["run", "--trace", {str(trace)!r}]); '
            'sys.exit(sorted({"matplotlib", "scipy.stats", "sqlalchemy"} '
            '& sys.modules.keys()) or 0)')
    subprocess.run([sys.executable, '-c', code], check=True)


def test_help_loads_no_figures():
    code = ('import sys; from virtco_lab.cmd import emulate, sim; '
            'sim.make_parser().format_help(); '
            'emulate._parser().format_help(); '
            'sys.exit(sorted({"matplotlib", "scipy.stats", "sqlalchemy"} '
            '& sys.modules.keys()) or 0)')
    subprocess.run([sys.executable, '-c', code], check=True)


@pytest.mark.parametrize(('argv', 'said'), [
    (['run', '--trace', 'a', '--scheme', 'baseline'], '--scheme: expected '
     'nothing with --trace, whose ports are given, got baseline'),
    (['run', '--trace', 'a', '--seed', '0'], '--seed: expected nothing with'),
    (['run', '--table2', 'sparse', '--rate', '1Gbit'],
     '--rate: expected nothing without --trace'),
    (['generate', 'facebook-like', 'x', '--shape', 'dense'],
     '--shape: expected nothing for facebook-like, got dense'),
    (['generate', 'table2', 'x', '--ports', '4'],
     '--ports: expected nothing for table2'),
    (['generate', 'table2', 'x', '--coflows', '4'], '--coflows: expected'),
    (['generate', 'table2', 'x', '--duration', '4'], '--duration: expected')])
def test_options_that_would_be_ignored_are_refused(argv, said, capsys,
                                                   monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert command.main(argv) == 2
    assert f'virtco-sim: {said}' in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('argv', [
    [], ['run', '--trace', 'a', '--table2', 'sparse'],
    ['run', '--table2', 'sparse', '--seed', '-1'],
    ['run', '--table2', 'sparse', '--theta', '0.009']])
def test_wrong_usage_is_told_in_one_line(argv, capsys):
    with pytest.raises(SystemExit) as caught:
        command.main(argv)
    assert caught.value.code == 2
    said, = capsys.readouterr().err.splitlines()
    assert said.startswith('virtco-sim')


def test_how_it_ends(monkeypatch, capsys):
    assert command.main(['run', '--trace', '/nowhere']) == 2
    assert capsys.readouterr().err.startswith(
        'virtco-sim: trace: expected a readable text file')

    def end():
        raise KeyboardInterrupt

    monkeypatch.setattr(errata, 'check', end)
    assert command.main(['errata']) == 130


def _erratum(holds):
    return errata.Erratum('§1', 'it is', 'one', '2 s', holds)


@pytest.mark.parametrize(('holding', 'code'), [
    ((True, True), 0), ((True, False), 1), ((False, False), 1)])
def test_each_erratum_must_hold(holding, code, monkeypatch, capsys):
    monkeypatch.setattr(errata, 'check', lambda: list(map(_erratum, holding)))
    assert command.main(['errata']) == code
    said = capsys.readouterr().out
    for word in ('Errata', 'where', 'printed', 'counterexample',
                 'a run finds', '§1', 'it is', '2 s'):
        assert word in said
    assert command.main(['errata', '--json']) == code
    assert json.loads(capsys.readouterr().out) == [
        {'where': '§1', 'printed': 'it is', 'example': 'one', 'found': '2 s',
         'holds': holds} for holds in holding]


# Traces.

def test_a_trace_at_a_rate_and_with_a_policy(run, trace):
    found = json.loads(run('run', '--trace', trace, '--rate', '8Mbit/s',
                           '--json', '--bound'))
    assert found['cct_s'] == pytest.approx([1.0, 4.0])
    assert found['mean_s'] == pytest.approx(2.5)
    assert found['alone']['mean_s'] == pytest.approx(2.0)
    assert found['bound'] == pytest.approx({'mean_s': 2.5, 'gap': 0.0})
    assert 'bound' not in json.loads(run('run', '--trace', trace, '--json'))
    # The second is the first of another policy.
    trace.write_text(TRACE.replace('c2 0', 'c2 1'))
    for policy, cct_s in (('mrtf', [1.0, 3.999]), ('fair', [1.999, 3.999])):
        found = json.loads(run('run', '--trace', trace, '--rate', '8Mbit/s',
                               '--json', '--policy', policy))
        assert found['cct_s'] == pytest.approx(cct_s, rel=1e-2)


def test_the_table_of_a_trace(run, trace):
    said = run('run', '--trace', trace, '--rate', '8Mbit/s', '--bound')
    assert '2 coflows, ' in said
    rows = [[cell.strip() for cell in line.split('│')[1:-1]]
            for line in said.splitlines() if '│' in line]
    assert rows == [['CCT', '2.5', '4', '4'],
                    ['alone', '2', '3', '3'],
                    ['bound of any schedule', '2.5', '', '']]
    assert said.splitlines()[-1] == (
        'The best schedule\'s mean CCT is at least 2.5 s; this one is 0.0% '
        'above that.')
    assert 'bound' not in run('run', '--trace', trace)


def test_progress_runs_to_the_last_arrival(run, trace, monkeypatch):
    shown = []

    class Bar:
        def __init__(self, *columns, console, transient):
            assert console.stderr and transient

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def add_task(self, name, total, events):
            shown.append(total)
            assert events == 0
            return 'task'

        def update(self, task, completed, events):
            shown.append(completed)

    class Progress(Bar):
        get_default_columns = staticmethod(list)

    monkeypatch.setattr(command.rich_progress, 'Progress', Progress)
    trace.write_text('4 3\nc1 0 1 0 1 1:1\nc3 500 1 2 1 3:9\n'
                     'c2 2000 1 0 1 1:3\n')
    run('run', '--trace', trace, '--rate', '8Mbit/s')
    assert shown[0] == 2.0
    assert max(shown) == 2.0
    assert shown[1:] and min(shown) < 2.0


def test_policies_are_compared_with_ones_own(run, trace, tmp_path):
    path = tmp_path / 'mine.py'
    path.write_text('class Last:\n    def order(self, coflows):\n'
                    '        return coflows[::-1]\n')
    found = json.loads(run('compare', '--trace', trace, '--rate', '8Mbit',
                           '--policy', f'{path}:Last', '--output', tmp_path,
                           '--json'))
    rows = {row[0]: row[1:] for row in found['rows']}
    # 1 and 4 s, or 4 and 3 s with the larger one first.
    assert rows['mrtf'] == [2.5, '+0.0%', 4, 4, 4]
    assert rows[f'{path}:Last'] == [3.5, '+40.0%', 4, 4, 4]
    assert rows['bound of any schedule'] == pytest.approx(
        [2.5, None, None, None, None])
    assert set(simulation.POLICIES) < set(rows)
    assert found['rows'][0][1] == 2.5
    assert (tmp_path / 'compare.png').stat().st_size > 1000


class Unordered:
    """No policy: it has no method ``order``."""


@pytest.mark.parametrize('text', [
    'mine.py', 'no/such.py:Mine', f'{__file__}:NoSuchClass',
    f'{__file__}:{Unordered.__name__}'])
def test_a_policy_that_cannot_be_loaded_is_named(trace, text, capsys):
    with pytest.raises(SystemExit):
        command.main(['compare', '--trace', str(trace), '--policy', text])
    assert 'FILE:CLASS that can be loaded' in capsys.readouterr().err


def test_a_policy_that_fails_on_the_trace_is_one_line(trace, tmp_path,
                                                      capsys):
    path = tmp_path / 'mine.py'
    path.write_text('class Mine:\n    def order(self, coflows):\n'
                    '        return coflows.sort()\n')
    assert command.main(['compare', '--trace', str(trace), '--policy',
                         f'{path}:Mine', '--output', str(tmp_path)]) == 2
    assert re.search(r'virtco-sim: order of Mine: .*TypeError.*\n$',
                     capsys.readouterr().err)


def test_a_trace_without_coflows_takes_no_time(run, tmp_path):
    path = tmp_path / 'none'
    path.write_text('4 0\n')
    words = ('run', '--trace', path, '--bound')
    said = run(*words)
    assert 'this one is 0.0% above that.' in said
    found = json.loads(run(*words, '--json'))
    assert found['mean_s'] == 0
    assert found['cct_s'] == []


def test_a_bound_of_nothing_is_not_exceeded():
    assert command._gap(0.0, 0.0) == {'mean_s': 0.0, 'gap': 0.0}
    assert command._gap(3.0, 2.0) == {'mean_s': 2.0, 'gap': 0.5}
    assert command._gap(0.75, 0.5) == {'mean_s': 0.5, 'gap': 0.5}


# Groups.

@pytest.fixture(name='groups')
def _groups(tmp_path):
    path = tmp_path / 'groups.json'
    path.write_text(json.dumps({
        'hosts': {'count': 2, 'slots': 1, 'rate': '8Mbit'},
        'groups': [{'name': 'one', 'tm': {
            'n': 2, 'flows': [[0, 1, 2_000_000]]}}]}))
    return path


def test_groups_are_placed_and_run(run, groups):
    found = json.loads(run('run', '--groups', groups, '--json'))
    assert found['mean_cct_s'] == pytest.approx(2.0)
    assert found['scheme'] == 'virtco' and 'bound' not in found
    assert sorted(found['hosts']['one']) == ['h0', 'h1']
    row, = found['coflows']
    assert row['group'] == 'one' and row['cct_s'] == pytest.approx(2.0)
    bounded = json.loads(run('run', '--groups', groups, '--json', '--bound'))
    assert bounded['bound'] == pytest.approx({'mean_s': 2.0, 'gap': 0.0})
    said = run('run', '--groups', groups)
    assert 'mean CCT 2 s' in said and 'best schedule' not in said
    row, = ([cell.strip() for cell in line.split('│')[1:-1]]
            for line in said.splitlines() if '│ one' in line)
    assert row[0] == 'one' and row[2:] == ['2 MB', '0', '2', '2']
    assert run('run', '--groups', groups, '--bound').splitlines()[-1] == (
        'At these placements the best schedule\'s mean CCT is at least 2 s; '
        'this one is 0.0% above that.')


def test_table_2_runs_on_its_hosts_with_the_policy_asked_for(
        run, monkeypatch):
    asked = []

    def simulate(hosts, its_groups, scheme, seed, config):
        asked.append((hosts, its_groups, scheme.name, seed, config))
        raise command.exception.Invalid(field='a', value=1, limit='2')

    monkeypatch.setattr(cloud, 'simulate', simulate)
    usual = command.schemes.get('virtco').order
    for words in ((), ('--policy', 'fifo', '--theta', '7', '--seed', '5')):
        assert command.main(['run', '--table2', 'dense', *words]) == 2
    hosts, its_groups, name, seed, config = asked[0]
    assert hosts == groups_module.equal_hosts(18, 12.0, 1e9)
    assert its_groups == groups_module.of_coflows(
        workloads.table2(seed=0, shape='dense'))
    assert (name, seed, config.policy, config.theta_s) == (
        'virtco', 0, usual, math.inf)
    _hosts, its_groups, _name, seed, config = asked[1]
    assert its_groups == groups_module.of_coflows(
        workloads.table2(seed=5, shape='dense'))
    assert (seed, config.policy, config.theta_s) == (5, 'fifo', 7)


# Workloads.

def test_a_generated_trace_is_that_of_its_words(run, tmp_path):
    path = tmp_path / 'trace'
    run('generate', 'facebook-like', path, '--ports', '20', '--coflows', '7',
        '--duration', '60', '--seed', '3')
    expected = tmp_path / 'expected'
    traces.write(expected, workloads.facebook_like(
        seed=3, n_ports=20, n_coflows=7, duration_s=60.0))
    assert path.read_text() == expected.read_text()


def test_generated_groups_are_those_of_table_2(run, tmp_path):
    path = tmp_path / 'groups'
    run('generate', 'table2', path, '--shape', 'sparse', '--seed', '3')
    text = path.read_text()
    assert text.startswith('{\n "hosts": {\n  "count": 18')
    found = json.loads(text)
    assert found['hosts'] == {'count': 18, 'slots': 12, 'rate': '1Gbit'}
    coflows = workloads.table2(seed=3, shape='sparse')
    assert [group['name'] for group in found['groups']] == [
        coflow.name for coflow in coflows]
    tm = found['groups'][0]['tm']
    assert tm['n'] == coflows[0].n_vms
    assert tm['flows'] == [[flow.src, flow.dst, round(flow.size_bytes)]
                           for flow in coflows[0].flows]
