# SPDX-License-Identifier: Apache-2.0

import json

import pytest

from tests import figures
from virtco_lab.cmd import sim as command
from virtco_lab.sim.figures import samples


def run(capsys, *argv):
    code = command.main([str(arg) for arg in argv])
    out, err = capsys.readouterr()
    return code, out, err


def test_generate_and_run_a_trace(tmp_path, capsys):
    path = tmp_path / 'trace.txt'
    assert run(capsys, 'generate', 'facebook-like', path, '--ports', 20,
               '--coflows', 40, '--duration', 60)[0] == 0
    code, out, _ = run(capsys, 'run', '--trace', path, '--json')
    answer = json.loads(out)
    assert code == 0 and len(answer['cct_s']) == 40
    assert answer['mean_s'] >= answer['alone']['mean_s'] > 0
    fifo = json.loads(run(capsys, 'run', '--trace', path, '--policy', 'fifo',
                          '--json')[1])
    assert fifo['mean_s'] > answer['mean_s']
    code, out, _ = run(capsys, 'run', '--trace', path, '--bound', '--json')
    bounded = json.loads(out)
    assert answer['alone']['mean_s'] < bounded['bound']['mean_s']
    assert bounded['mean_s'] == pytest.approx(
        bounded['bound']['mean_s'] * (1 + bounded['bound']['gap']))
    assert 0 <= bounded['bound']['gap'] < 0.5
    out = run(capsys, 'run', '--trace', path, '--bound')[1]
    assert 'this one is' in out
    rows = [out.index(name) for name in (
        ' CCT ', ' alone ', 'bound of any schedule')]
    assert rows == sorted(rows)


def test_generate_and_run_groups(tmp_path, capsys):
    path = tmp_path / 'groups.json'
    assert run(capsys, 'generate', 'table2', path)[0] == 0
    code, out, _ = run(capsys, 'run', '--groups', path, '--scheme',
                       'sebf-r', '--json')
    answer = json.loads(out)
    assert code == 0 and len(answer['coflows']) == 6
    assert {host for hosts in answer['hosts'].values()
            for host in hosts} <= {f'h{i}' for i in range(18)}
    code, out, _ = run(capsys, 'run', '--groups', path, '--scheme', 'sebf-r',
                       '--bound')
    assert code == 0 and 'RECOMM-5G' in out and 'At these placements' in out
    bound = json.loads(run(capsys, 'run', '--groups', path, '--scheme',
                           'sebf-r', '--bound', '--json')[1])['bound']
    alone_s = [row['alone_s'] for row in answer['coflows']]
    assert sum(alone_s) / 6 < bound['mean_s'] <= answer['mean_cct_s']
    assert answer['mean_cct_s'] == pytest.approx(
        bound['mean_s'] * (1 + bound['gap']))


def test_reproduce_writes_table_and_plot(tmp_path, capsys):
    code, out, _ = run(capsys, 'reproduce', 'orchestra-table3', '--output',
                       tmp_path / 'out', '--json')
    answer = json.loads(out)
    assert code == 0
    speedups = {row[0]: row[5] for row in answer['rows']}
    assert speedups == {'A': pytest.approx(25.0), 'B': pytest.approx(100 / 3),
                        'C': pytest.approx(37.5)}
    assert (tmp_path / 'out/orchestra-table3.png').stat().st_size > 10_000
    written = json.loads((tmp_path / 'out/orchestra-table3.json').read_text())
    assert written['rows'] == answer['rows']


def test_fifo_theory_and_priority():
    fifo = figures.outcome('orchestra-fig15', samples.Context())
    means = {row[0]: row[1] for row in fifo.rows}
    assert means['fair'] / means['fifo'] == pytest.approx(1.6)
    assert means['fifo'] < means['fifo+'] < means['fair']
    priority = figures.outcome('orchestra-fig14', samples.Context())
    saved = priority.rows[-1]
    assert 43 < saved[1] < 55


@pytest.mark.parametrize('argv, said', [
    (['run', '--groups', '/nowhere'], '/nowhere'),
    (['run', '--trace', '/nowhere'], '/nowhere')])
def test_what_is_wrong_is_said(capsys, argv, said):
    code, _, err = run(capsys, *argv)
    assert code == 2 and said in err


@pytest.mark.parametrize('argv', [
    [], ['run'], ['reproduce', 'virtco-case99'],
    ['reproduce', 'virtco-case1', '--seeds', '0'],
    ['reproduce', 'virtco-case1', '--seeds', '5-3'],
    ['reproduce', 'all', '--check', '--write'],
    ['reproduce', 'all', '--tolerance', '0'],
    ['run', '--table2', 'sparse', '--theta', '-1']])
def test_wrong_usage(capsys, argv):
    with pytest.raises(SystemExit) as caught:
        command.main(argv)
    assert caught.value.code == 2
