# SPDX-License-Identifier: Apache-2.0

"""The hard instances and the arithmetic of the placement benchmark."""

import math

import pytest

from benchmarks import instances as generator
from benchmarks import placement
from benchmarks import reference


@pytest.mark.parametrize('family', generator.HARD)
def test_same_seed_same_feasible_instances(family):
    items = generator.hard(family, 1)
    shape = generator.HARD[family]
    assert items == generator.hard(family, 1)
    assert len({item['name'] for item in items}) == len(items)
    assert [i['flows'] for i in items] != [
        i['flows'] for i in generator.hard(family, 2)]
    for item in items:
        assert len(item['hosts']) == shape.hosts
        assert len(item['vms']) == shape.vms
        assert len(item.get('racks', ())) == shape.racks + shape.pods
        assert generator.first_fit(
            [list(reference.vector(vm['size'])) for vm in item['vms']],
            [list(reference.vector(h['slots'])) for h in item['hosts']])


def test_three_resources_are_planned_and_judged():
    item = generator.hard('cube18x40', 1)[0]
    problem = reference.to_problem(item)
    assert len(problem.resources) == len(problem.vms[0].demand) == 3
    row = placement.measure(item, 'virtco', 0, 0.1)
    assert row['valid']
    host = row['placement']['v0']
    free = next(h['slots'] for h in item['hosts'] if h['id'] == host)
    free[2] = 0
    assert reference.completion_time_s(item, row['placement']) is None


@pytest.mark.parametrize('family', ['within18x40', 'spread18x40'])
def test_wishes_are_planned_and_judged(family):
    item = generator.hard(family, 1)[0]
    row = placement.measure(item, 'virtco', 0, 0.1)
    assert row['valid'] and row['t_s'] >= row['lower_bound_s']
    free = {key: value for key, value in item.items() if key != 'wish'}
    other = placement.measure(free, 'virtco', 0, 0.1)
    assert other['valid']
    assert reference.completion_time_s(item, other['placement']) is None


def row_of(name, t_s, budget_s=1.0, best_s=None, **more):
    return {'name': name, 'family': 'f', 'hosts': 2, 'vms': 9, 't_s': t_s,
            'best_known_s': best_s, 'ratio': None, 'gap': 0.0,
            'seconds': 0.5, 'budget_s': budget_s, 'valid': True,
            'relaxed': 'certified before', **more}


def test_ratios_are_to_the_best_known_or_found():
    rows = [row_of('a', 3.0), row_of('a', 2.0), row_of('b', 5.0),
            row_of('c', 6.0, best_s=4.0), row_of('d', 1.0), row_of('e', 0.0),
            row_of('e', 1.0)]
    best_s = placement.compare(rows, {'c': 3.0, 'd': 2.0, 'other': 7.0})
    assert [row['ratio'] for row in rows] == [
        1.5, 1.0, None, 2.0, 1.0, 1.0, math.inf]
    assert best_s == {'a': 2.0, 'b': 5.0, 'c': 3.0, 'd': 1.0, 'e': 0.0,
                      'other': 7.0}


def test_summary_counts_shares_and_overruns():
    rows = [row_of('a', 2.0, best_s=1.0, gap=0.01),
            row_of('b', 1.0, best_s=2.0, gap=0.0, relaxed='solved'),
            row_of('c', 3.0, best_s=3.0, gap=0.5, seconds=1.5),
            row_of('d', None, gap=None)]
    placement.compare(rows, {})
    summary = placement.summarise(rows)['f']
    assert summary['ratio_p50'] == 1.0
    assert summary['ratio_p99'] == summary['ratio_max'] == 2.0
    assert summary['better_than_best_known'] == 1
    assert summary['certified_1_percent'] == 2
    assert summary['certified_share'] == 0.5
    assert summary['relaxed_share'] == 0.25
    assert summary['certified_before_share'] == 0.75
    assert summary['used_max'] == 1.5
