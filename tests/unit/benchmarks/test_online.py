# SPDX-License-Identifier: Apache-2.0

"""The paired table of planners that place groups as they come."""

import argparse
import math

import pytest

from benchmarks import online
from benchmarks import window


def test_difference_is_paired_and_has_its_interval():
    percent, half = online.compare([9.0, 19.0, 29.0], [10.0, 20.0, 30.0])
    assert percent == pytest.approx(-5.0)
    assert half == pytest.approx(0.0)
    percent, half = online.compare([8.0, 12.0], [10.0, 10.0])
    assert percent == pytest.approx(0.0)
    assert half == pytest.approx(12.706 * 20, rel=1e-4)


def test_difference_from_nothing_is_none_or_endless():
    assert online.compare([0.0, 0.0], [0.0, 0.0]) == (0.0, 0.0)
    assert online.compare([1.0], [0.0])[0] == math.inf
    assert online.compare([9.0], [10.0])[1] == math.inf


def test_table_has_the_seeds_that_every_planner_ran():
    mix, other = online.columns(['mix'])[:2]
    rows = [{'column': mix.name, 'scheme': scheme, 'seed': seed,
             'mean_cct_s': 1.0 + seed}
            for scheme in online.SCHEMES for seed in (0, 1, 2)]
    rows.remove(next(row for row in rows if row['seed'] == 1))
    entry, = online.table(rows, [mix, other], range(4))
    assert entry['seeds'] == [0, 2]
    assert entry['mean'][online.OURS] == 2.0
    assert entry['against'] == {
        scheme: (0.0, 0.0) for scheme in online.SCHEMES
        if scheme != online.OURS}


def test_table_names_the_seed_in_which_another_planner_is_furthest_ahead():
    mix = online.columns(['mix'])[0]
    rows = [{'column': mix.name, 'scheme': scheme, 'seed': seed,
             'mean_cct_s': 4.0 + seed * (scheme == online.OURS)}
            for scheme in online.SCHEMES for seed in (0, 1, -3)]
    entry, = online.table(rows, [mix], (0, 1, -3))
    assert set(entry['worst_percent'].values()) == {25.0}


def test_groups_of_a_stationary_cloud_take_the_slots_that_it_says():
    half, *_, most = online.columns(['stationary'])
    assert (half.number, most.number) == (0.5, 0.95)
    for column in (half, most):
        hosts, its_groups = column.workload(2)
        assert len(its_groups) == 200
        slot_s = sum(len(group.vm_demands) * group.stay_s
                     for group in its_groups)
        offered = slot_s / its_groups[-1].arrival_s / sum(
            host.free[0] for host in hosts)
        assert offered == pytest.approx(column.number, rel=0.2)
    assert max(len(group.vm_demands) for group in its_groups) > 20
    assert min(len(group.vm_demands) for group in its_groups) == 2


@pytest.mark.parametrize('case', online.CASES)
def test_every_column_has_a_workload_of_its_own(case):
    columns = online.columns([case])
    assert len({column.name for column in columns}) == len(columns)
    for column in columns:
        hosts, its_groups = column.workload(3)
        assert len(hosts) in (6, 18)
        assert its_groups
        assert all(sum(host.free[0] for host in hosts)
                   >= len(group.vm_demands) for group in its_groups)


def test_a_run_is_repeatable():
    column = online.columns(['mix'])[0]
    first, again = (online.run(column, 'min-cut', 3) for _ in range(2))
    assert first['mean_cct_s'] == again['mean_cct_s'] > 0
    assert first['response_s'] >= first['mean_cct_s']
    assert first['p95_s'] > first['response_s'] > 0 <= first['hosts']


def test_a_window_plans_more_groups_at_once():
    options = argparse.Namespace(
        windows_ms=[100.0], apart_ms=20.0, budget=0.02, seeds=range(2))
    alone, together = window.measure('sparse', options)
    assert (alone['plans'], together['plans']) == (6, 1)
    assert (alone['window_ms'], together['window_ms']) == (None, 100.0)
    assert alone['saved_percent'] == 0
    assert together['saved_percent'] == pytest.approx(
        100 * (1 - together['response_s'] / alone['response_s']))
