# SPDX-License-Identifier: Apache-2.0

"""``virtco measure check``, ``checks``, ``matrix`` and ``performers``."""

import json

from osc_lib import exceptions as osc_exceptions
import pytest

from tests.unit.osc import controller
from virtco import exception
from virtco.osc import command_base as base
from virtco.osc import matrices
from virtco.wire import rate as wire

DONE = {'check_id': 'c', 'state': 'done', 'hosts': ['h1', 'h2'],
        'n_rounds': 4, 'n_rounds_done': 4, 'seconds': 1.25,
        'sent_bytes': 3.5e6, 'n_failed': 1, 'purpose': 'check',
        'trigger': 'operator', 'asked': 1.0, 'findings': [
            {'kind': 'host-egress', 'subject': 'h2', 'rate_bps': 1e8,
             'expected_bps': 1e9, 'evidence': [{}, {}, {}]}]}
EFFORT = '2 hosts, 4 rounds in 1.2 s, 3.5 MB, 1 trains failed'


@pytest.fixture(autouse=True)
def polls(monkeypatch):
    """Let time pass by asking alone."""
    found = []
    monkeypatch.setattr(matrices.time, 'monotonic', lambda: sum(found))
    monkeypatch.setattr(matrices.time, 'sleep', found.append)
    return found


@pytest.mark.parametrize(('argv', 'body'), [
    (['--hosts', 'h1,h2'], {'hosts': ['h1', 'h2']}),
    (['--group', 'g'], {'group': 'g'})])
def test_a_check_is_waited_for(argv, body, polls):
    one = controller.Controller(**{
        'POST /v1/checks': DONE | {'state': 'waiting'},
        'GET /v1/checks/c': [DONE | {'state': 'running'}, DONE]})
    found, told = controller.rows(matrices.Check, one, *argv)
    assert found == [{'kind': 'host-egress', 'subject': 'h2', 'rate_bps': 1e8,
                      'expected_bps': 1e9, 'n_readings': 3}]
    assert told == f'{EFFORT}: 1 found.\n'
    assert one.asked[0][2] == body
    assert polls == [matrices.POLL_S] * 2


def test_a_check_that_finds_nothing():
    one = controller.Controller(**{'POST /v1/checks': DONE | {
        'findings': []}})
    assert controller.rows(matrices.Check, one, '--hosts', 'h1,h2') == (
        [], f'{EFFORT}: nothing found.\n')


@pytest.mark.parametrize(('argv', 'n_polls'), [
    ([], 601), (['--timeout', '1'], 3), (['--timeout', '0'], 1)])
def test_a_check_that_does_not_end(argv, n_polls, polls):
    running = DONE | {'state': 'running'}
    one = controller.Controller(**{'POST /v1/checks': running,
                                   'GET /v1/checks/c': running})
    with pytest.raises(osc_exceptions.CommandError, match='Check c is not'):
        controller.run(matrices.Check, one, '--group', 'g', *argv)
    assert len(polls) == n_polls


@pytest.mark.parametrize(('told', 'words'), [
    ({}, 'failed: see the log'),
    ({'why': 'nobody led'}, 'failed: nobody led')])
def test_a_check_that_fails(told, words):
    one = controller.Controller(**{'POST /v1/checks': DONE | {
        'state': 'failed'} | told})
    with pytest.raises(osc_exceptions.CommandError, match=words):
        controller.run(matrices.Check, one, '--group', 'g')


@pytest.mark.parametrize('argv', [[], ['--hosts', 'a,b', '--group', 'g']])
def test_a_check_wants_either_hosts_or_a_group(argv):
    with pytest.raises((SystemExit, osc_exceptions.CommandError)):
        controller.run(matrices.Check, controller.Controller(), *argv)


def test_checks_are_listed():
    (found,), _ = controller.rows(matrices.Check, controller.Controller(
        **{'GET /v1/checks': {'checks': [DONE]}}), '--list')
    assert (found['n_hosts'], found['n_findings'], found['subjects']) == (
        2, 1, 'host-egress h2')


PERFORMERS = {'estimator': 'rpca', 'noise': 0.126, 'trust': 'good', 'hosts': [
    {'host': 'h1', 'egress_bps': 2.0, 'ingress_bps': 1.0, 'rtt_s': 3.0,
     'reasons': ['slow', 'far'], 'range_share': 0.5, 'n_peers': 4},
    {'host': 'h2', 'reasons': []}]}


@pytest.mark.parametrize(('argv', 'hosts'), [
    ([], ['h1']), (['--all'], ['h1', 'h2'])])
def test_poor_performers_and_all_of_them(argv, hosts):
    found, told = controller.rows(matrices.ListRates, controller.Controller(
        **{'GET /v1/performers': PERFORMERS}), '--hosts', *argv)
    assert [one['host'] for one in found] == hosts
    assert found[0]['reasons'] == ['slow', 'far'] and found[0]['n_peers'] == 4
    assert told == 'Long-term rates by rpca, Norm(N_E) 0.13: good.\n'


def test_performers_without_an_estimate():
    assert controller.rows(matrices.ListRates, controller.Controller(
        **{'GET /v1/performers': PERFORMERS | {'estimator': None}}),
                           '--hosts')[1] == ''


MATRIX = {'kind': 'rate', 'unit': 'bps', 'statistic': 'least', 'ages_s': [],
          'hosts': ['h1', 'h2'],
          'values': [[None, 1.5], [2e9, None]]}


def test_a_matrix_as_a_table_and_as_json():
    one = controller.Controller(**{'GET /v1/matrices/rate': MATRIX})
    _, out, _ = controller.run(
        matrices.Matrix, one, 'rate', '--statistic', 'least', '--at', '7.5',
        '--hosts', 'h1,h2')
    assert out == 'rate bps,h1,h2\nh1,,1.5\nh2,2000000000.0,\n'
    _, out, _ = controller.run(matrices.Matrix, one, 'rate', '--format',
                               'json')
    assert out.endswith('}\n') and json.loads(out) == MATRIX
    assert [path for _, path, _ in one.asked] == [
        '/v1/matrices/rate?statistic=least&at=7.5&hosts=h1,h2',
        '/v1/matrices/rate']


def test_a_picture_and_what_keeps_one_from_being_drawn(tmp_path,
                                                       monkeypatch):
    (tmp_path / 'virtco_draws.py').write_text(
        'def save(drawn, path):\n'
        '    print(drawn.unit, file=open(path, "w"))\n')
    monkeypatch.syspath_prepend(tmp_path)
    drawn = controller.made(wire.Matrix, **MATRIX)
    base.save_plot('virtco_draws', drawn, str(tmp_path / 'm.svg'))
    assert (tmp_path / 'm.svg').read_text() == 'bps\n'
    with pytest.raises(exception.InputInvalid, match='No such file'):
        base.save_plot('virtco_draws', drawn, str(tmp_path / 'no' / 'm.svg'))
    with pytest.raises(osc_exceptions.CommandError, match='plot'):
        base.save_plot('virtco_that_is_not_there', drawn, 'm.svg')


def test_a_matrix_as_a_picture(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(base, 'save_plot', lambda *given: drawn.append(given))
    one = controller.Controller(**{'GET /v1/matrices/rate': MATRIX})
    _, out, _ = controller.run(matrices.Matrix, one, 'rate', '--plot', 'm.svg')
    assert out == ''
    ((module, found, path),) = drawn
    assert (module, found.unit, path) == (
        'virtco.measure.heatmap', 'bps', 'm.svg')


def test_nothing_measured_is_nothing_to_draw():
    one = controller.Controller(**{'GET /v1/matrices/rate': {'kind': 'rate'}})
    with pytest.raises(osc_exceptions.CommandError, match='nothing to draw'):
        controller.run(matrices.Matrix, one, 'rate', '--plot', 'm.svg')
