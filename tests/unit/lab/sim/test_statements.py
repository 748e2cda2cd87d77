# SPDX-License-Identifier: Apache-2.0

"""Results of the papers' statements, of made-up samples."""

import json
import math

import pytest

from virtco_lab.cmd import report
from virtco_lab.sim.figures import broadcasts
from virtco_lab.sim.figures import document
from virtco_lab.sim.figures import index
from virtco_lab.sim.figures import packets
from virtco_lab.sim.figures import record
from virtco_lab.sim.figures import samples
from virtco_lab.sim.figures import statements
from virtco_lab.sim.figures import trace

LEAST_S = broadcasts.bound_s(1e9)


def found(values):
    """Samples of settings and series with one number per seed."""
    n_seeds = len(next(iter(next(iter(values.values())).values())))
    return samples.Samples(tuple(range(n_seeds)), {
        setting: {series: [[float(value)] for value in row]
                  for series, row in rows.items()}
        for setting, rows in values.items()})


@pytest.mark.parametrize(('reached', 'values', 'told'), [
    (statements._TABLE3, {'A': {'fair': [5], 'mrtf': [4]},
                         'B': {'fair': [3], 'mrtf': [2]}},
     '25.0, 50.0 %'),
    (statements._fig14, {'fair': {'high': [4], 'low': [10]},
                         'priority': {'high': [2], 'low': [11]}},
     '50 % sooner, the large one 10.0 % later'),
    (statements._fig15, {'fair': {'ends_s': [4, 12]},
                         'fifo': {'ends_s': [2, 8]}}, '1.60 times'),
    (statements._cornet, {'100': {'1 GB, cornet': [
        1.5 * LEAST_S, 1.7 * LEAST_S]}}, ('60 %', '± 14.1')),
    (statements._cornet, {'100': {'1 GB, cornet': [1.75 * LEAST_S]}},
     ('75 %', '')),
    (statements._racks, {'a': {'aware': [1], 'unaware': [4]},
                         'b': {'aware': [2], 'unaware': [4]}},
     '50 to 75 %'),
    # An application that needs no link counts as at the optimum.
    (statements._greedy, {'x': {'choreo': [3, 5, 0.8, 0, 0],
                                'optimum': [2, 5, 0.4, 0, 0]}},
     ('0.0 % at the median', '90 % within 80 %')),
    (statements._rpca, {'broadcast': {'rpca': [1, 2],
                                     'baseline': [8, 8]}},
     ('81 %', '± 9')),
    (statements._rpca, {'broadcast': {'rpca': [1], 'baseline': [4]}},
     ('75 %', '')),
    (statements._lies, {'0.5': {'his CCT': [12, 30]},
                       '1': {'his CCT': [10, 20]},
                       '2': {'his CCT': [11, 24]}},
     'a lie costs 15.0 to 35.0 %'),
    (statements._wrong, {'exact': {'mean_s': [1, 2], 'plain TCP': [4, 4]},
                        '50 % wrong': {'mean_s': [1.5, 2.6]}},
     ('40 %; plain TCP costs 200 %', '± 14')),
    (statements._wrong, {'exact': {'mean_s': [2], 'plain TCP': [4]},
                        '50 % wrong': {'mean_s': [3]}},
     ('50 %; plain TCP costs 100 %', '')),
    (statements._facebook, {'mrtf': {'mean_s': [1], 'median_s': [0.5],
                                    'p95_s': [3]}},
     '1.00, 0.500 and 3.00 s'),
    (statements._saved('b'), {'s': {'virtco': [5, 5], 'b': [20, 20]},
                              't': {'virtco': [4, 4], 'b': [8, 8]},
                              'u': {'virtco': [0, 0], 'b': [0, 0]}},
     ('50.0 to 75.0 %', '± 0.0 at most')),
    (statements._saved('b', ['s']), {'s': {'virtco': [5], 'b': [20]}},
     ('75.0 %', '')),
    (statements._trend('b', 's', 't'), {
        's': {'virtco': [0, 0], 'b': [0, 0]},
        't': {'virtco': [4, 4], 'b': [8, 8]}},
     ('no traffic → 50.0 %', '– → ± 0.0')),
    (statements._decided, {'s': {'cpu_s': [1, 2, 3]},
                           't': {'cpu_s': [4, 5, 6]}},
     ('80 % in 5.00 s, 83% in 5.5 s', '99 % in 5.95 s'))])
def test_what_is_told(reached, values, told):
    text, _, spread = reached(found(values))
    assert (text, spread) == (
        (told, '') if isinstance(told, str) else told)


@pytest.mark.parametrize(('reached', 'values', 'numbers'), [
    (statements._TABLE3, {'A': {'fair': [5], 'mrtf': [4]},
                         'B': {'fair': [3], 'mrtf': [2]}},
     [(25, 0), (50, 0)]),
    (statements._fig14, {'fair': {'high': [4], 'low': [10]},
                         'priority': {'high': [2], 'low': [11]}},
     [(50, 0), (10, 0)]),
    (statements._fig15, {'fair': {'ends_s': [16]}, 'fifo': {'ends_s': [10]}},
     [(1.6, 0)]),
    (statements._racks, {'a': {'aware': [1], 'unaware': [4]},
                         'b': {'aware': [2], 'unaware': [4]}},
     [(75, 0), (50, 0)]),
    (statements._decided, {'s': {'cpu_s': [1, 2, 3]},
                           't': {'cpu_s': [4, 5, 6]}}, [(5, 0)]),
    (statements._rpca, {'broadcast': {'rpca': [1], 'baseline': [4]}},
     [(75, math.inf)]),
    (statements._facebook, {'mrtf': {'mean_s': [1], 'median_s': [0.5],
                                    'p95_s': [3]}},
     [(1, 0), (0.5, 0), (3, 0)]),
    (statements._above_bound, {
        setting: {'mean_s': [mean_s]} for setting, mean_s in (
            (trace.BOUND, 2), ('mrtf', 3), ('mrtf+swap', 2))},
     [(50, 0), (0, 0)]),
    # For two seeds half of the interval is 12.7 deviations / √2.
    (statements._lies, {'0.5': {'his CCT': [12, 30]},
                       '1': {'his CCT': [10, 20]}}, [(35, 190.6)]),
    (statements._unknown, {
        'exact': {'mean_s': [2, 2], 'plain TCP': [4, 4]},
        'unknown sizes': {'mean_s': [3, 3]}}, [(150, 0)]),
    # Against plain TCP, which costs 100 % more.
    (statements._wrong, {'exact': {'mean_s': [2, 2], 'plain TCP': [4, 4]},
                        '50 % wrong': {'mean_s': [3, 3]}}, [(-50, 0)]),
    (statements._saved('b'), {'s': {'virtco': [5, 5], 'b': [20, 20]},
                              'u': {'virtco': [0, 0], 'b': [0, 0]}},
     [(75, 0)]),
    (statements._saves(60, 'b'), {'s': {'virtco': [5, 5], 'b': [20, 20]}},
     [(75, 0)]),
    (statements._growing(statements._trend('b', 's', 't', 'u')), {
        's': {'virtco': [0, 0], 'b': [0, 0]},
        't': {'virtco': [4, 4], 'b': [8, 8]},
        'u': {'virtco': [2, 2], 'b': [8, 8]}}, [(25, 0)]),
    (statements._of_two(statements._each('{} {}', 'x')), {
        '2 × gpt-7b': {'x': [7]}, '3 × gpt-7b': {'x': [8]}}, [(7, 0)])])
def test_what_is_judged(reached, values, numbers):
    assert [pytest.approx(pair, abs=0.1)
            for pair in reached(found(values)).numbers] == numbers


def test_greedy_is_as_far_above_the_optimum_as_its_figure_shows():
    recorded = record.read(record.DIRECTORY, 'choreo-greedy').found
    first, *_ = index.FIGURES['choreo-greedy'].table(recorded)[1]
    assert statements._greedy(recorded) == (
        f'{first[1]:.1f} % at the median', [(first[1], 0.0)],
        f'90 % within {first[2]:.0f} %')


@pytest.mark.parametrize(('numbers', 'verdict'), [
    ([(50, 2), (45, 1)], 'met'), ([(50, 5), (59, 1)], 'met'),
    ([(50, 2), (59, 2)], 'not shown'), ([(61, 2)], 'not shown'),
    ([(50, 2), (70, 2)], 'missed'), ([(30, 9)], 'missed'),
    ([(50, math.inf)], 'not shown')])
def test_numbers_are_judged_by_their_intervals(numbers, verdict):
    assert statements.near(50) == (40, 60)
    assert statements.verdict(numbers, [statements.near(50)]) == verdict


def test_each_number_has_its_own_range():
    ranges = statements.near(10, 20), statements.near(1.0, by=0.5)
    assert ranges == ((0, 30), (0.5, 1.5))
    assert statements.verdict([(30, 0), (0.5, 0)], ranges) == 'met'
    assert statements.verdict([(1, 0), (3, 0)], ranges) == 'missed'
    # Those of the first, again.
    assert statements.verdict([(9, 0), (1, 0), (31, 0)], ranges) == 'missed'
    assert statements.verdict([(9, 0)], ()) == '–'


def test_verdicts_are_those_of_the_records():
    verdicts = {one['statement']: one['verdict']
                for one in document.verdicts(record.DIRECTORY)}
    assert set(verdicts.values()) <= {'met', 'missed', 'not shown', '–'}
    assert verdicts['Orchestra Table 3: weighted shuffle'] == 'met'
    assert verdicts['RPCA Fig. 13: cluster, below the baseline'] == 'missed'
    assert verdicts['VirtCO case 2: below VirtCO as printed'] == '–'
    assert verdicts['On packets: a lie must not pay'] == 'not shown'
    assert verdicts['With sizes unknown at most 1.10 × MRTF'] == 'missed'
    # A paper's number without a range would be left unjudged.
    assert all(one.ranges for one in statements.STATEMENTS
               if one.paper != '–')
    assert all(one.ranges for one in (*statements.TARGETS, *packets.TARGETS))


def test_verdicts_are_printed(capsys):
    assert report.main(['--verdicts', '--json']) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == document.verdicts(record.DIRECTORY)
    assert report.main(['--verdicts']) == 0
    assert 'missed' in capsys.readouterr().out


@pytest.mark.parametrize(('words', 'said'), [
    (('--json',), '--json: expected nothing without --verdicts'),
    (('--verdicts', '--write'), '--write: expected nothing with --verdicts'),
    (('--verdicts', '--pdf', 'x'), '--pdf: expected nothing with --verdicts')])
def test_what_a_report_would_ignore_is_refused(words, said, capsys, tmp_path,
                                               monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert report.main(list(words)) == 1
    assert f'virtco-report: {said}' in capsys.readouterr().err
