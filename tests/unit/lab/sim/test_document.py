# SPDX-License-Identifier: Apache-2.0

"""What the documentation tells of made-up records."""

import json
import shutil

import psutil
import pytest

from virtco_lab.sim.figures import document
from virtco_lab.sim.figures import outcome
from virtco_lab.sim.figures import record


def told(directory, name, **values):
    """What the targets that a figure reaches tell of these samples."""
    record.write(directory, {
        'name': name, 'shape': 'medium', 'made': {}, 'seeds': [0, 1],
        'cpu_s': {}, 'samples': values})
    return document.targets(directory)


@pytest.mark.parametrize(('ours_s', 'there'), [(102, 1), (103, 0), (97, 1)])
def test_savings_count_from_two_and_a_half_percent_behind(
        tmp_path, ours_s, there):
    column = {'virtco': [[ours_s], [ours_s]],
              'virtco-printed': [[100.0], [100.0]]}
    for name in ('virtco-case4', 'virtco-case6'):
        saved = f'{100 - ours_s:.1f}'
        assert (f'{saved} to {saved} %, {saved} % in the mean; {there} of 1 '
                'columns') in told(tmp_path, name, one=column)
        (tmp_path / f'{name}.json').unlink()


def test_case_2_is_held_to_each_scheme_by_its_own_bound(tmp_path):
    """A column just at the bounds, and one just below all of them."""
    theirs = {'sebf-ta': 15.0, 'sebf-ta-greedy': 36.5, 'baseline': 79.1,
              'virtco-printed': -2.5}
    text = told(tmp_path, 'virtco-case2', **{
        setting: {'virtco': [[1e3], [1e3]], **{
            name: [[1e3 / (1 - (percent + more) / 100)]] * 2
            for name, percent in theirs.items()}}
        for setting, more in (('above', 0.01), ('below', -0.01))})
    assert text.count('; 1 of 2 columns') == 4


def test_the_guard_is_told_by_the_median_and_the_mean(tmp_path):
    of = {'order, guarded, slowest': [[0.1], [0.1]],
          'order, guarded, GPUs': [[0.9], [0.7]],
          'order, guarded, placed, slowest': [[0.2], [0.2]],
          'order, guarded, placed, GPUs': [[0.6], [0.6]],
          'order, GPUs': [[0.7], [0.8]], 'bound, GPUs': [[0.9], [0.9]],
          'mrtf, GPUs': [[0.5], [0.5]]}
    text = told(tmp_path, 'training-cluster', flat=of)
    assert '"flat: 900 %, 30.0 points above MRTF"' in text
    assert '"flat: 400 %, 10.0 points above MRTF"' in text
    assert '"flat: 25.0 points, 40.0 at most"' in text


def test_other_targets_are_told_in_their_own_units(tmp_path):
    assert '"2 × gpt-7b: 1.60","met"' in told(
        tmp_path, 'training-pair', **{
            '2 × gpt-7b': {'fair': [[4.0]], 'order': [[2.5]]}})
    assert '"2 × gpt-7b: 1.60, 3 × gpt-7b: 1.00","met"' in told(
        tmp_path, 'training-pair', **{
            '2 × gpt-7b': {'fair': [[4.0]], 'order': [[2.5]]},
            '3 × gpt-7b': {'fair': [[4.0]], 'order': [[4.0]]}})
    text = told(tmp_path, 'wrong-hints', **{
        'exact': {'mean_s': [[2.0], [4.0]], 'plain TCP': [[4.0], [4.0]]},
        'unknown sizes': {'mean_s': [[3.0], [4.0]]},
        '50 % wrong': {'mean_s': [[3.0], [4.0]]}})
    assert '"125 % of exact hints, 88 % of plain TCP"' in text


@pytest.mark.parametrize(('n_columns', 'head'), [
    (10, '"0","1","2"'), (11, '"0","7"')])
def test_a_wide_table_is_turned_on_its_side(tmp_path, n_columns, head):
    document.write_measured(tmp_path, outcome.Outcome(
        'wide', 'Wide', tuple(map(str, range(n_columns))),
        ((7.0,) * n_columns,), (), runs={'runs': [1]}),
        {'commit': 'c', 'machine': 'm'}, 'made')
    assert f'   {head}' in (tmp_path / 'wide.inc').read_text()
    written = json.loads((tmp_path / 'wide.json').read_text())
    assert (written['command'], written['runs']) == ('made', [1])
    assert (tmp_path / 'targets.inc').read_text() == document.targets(
        tmp_path)


def test_a_table_of_the_testbed_is_compared_with_its_record(
        tmp_path, monkeypatch):
    monkeypatch.setattr(document, '_errata', str)
    for suffix in ('json', 'inc'):
        shutil.copy(record.DIRECTORY / f'emulated-training-2.{suffix}',
                    tmp_path)
    path = tmp_path / 'emulated-training-2.inc'
    text = path.read_text()
    document.write(tmp_path, ())
    assert path.read_text() == text
    assert document.outdated(tmp_path, ()) == []
    path.write_text(text.replace('"order"', '"other"'))
    assert document.outdated(tmp_path, ()) == [path]


@pytest.mark.parametrize(('load', 'told_of'), [
    ({}, ''), ({'is_quiet': True, 'others_processors': 0.04},
               ', otherwise idle'),
    ({'is_quiet': False, 'others_processors': 1.2},
     ', beside programs that used 1.2 cores')])
def test_a_measured_table_says_what_else_ran(tmp_path, load, told_of):
    made = {'commit': 'c', 'machine': 'm', **load}
    document.write_measured(tmp_path, outcome.Outcome(
        'one', 'One', ('a',), ((7.0,),), ()), made, 'command')
    assert f'commit c, m{told_of}.\n' in (tmp_path / 'one.inc').read_text()


def test_work_of_this_process_is_not_of_others(monkeypatch):
    cpu = psutil.cpu_times()._replace(user=10.0, nice=1.0, system=2.0)
    times = [(cpu, (4.0, 1.0, 2.0, 1.0, 0.0), 100.0),
             (cpu._replace(user=31.0), (14.0, 1.0, 2.0, 1.0, 0.0), 110.0)]
    monkeypatch.setattr(record.psutil, 'cpu_times', lambda: times[0][0])
    monkeypatch.setattr(record.os, 'times', lambda: times[0][1])
    monkeypatch.setattr(record.time, 'monotonic', lambda: times[0][2])
    others = record.Others()
    del times[0]
    assert others.processors() == pytest.approx((21 - 10) / 10)
    made = record.made_on(1.0, others)
    assert (made['others_processors'], made['is_quiet']) == (1.1, False)
