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
    rows = [{'column': 'a', 'scheme': scheme, 'seed': seed,
             'mean_cct_s': 1.0 + seed}
            for scheme in online.SCHEMES for seed in (0, 1, 2)]
    rows.remove(next(row for row in rows if row['seed'] == 1))
    entry, = online.table(rows, ['a', 'b'], range(4))
    assert entry['seeds'] == [0, 2]
    assert entry['mean_cct_s'][online.OURS] == 2.0
    assert entry['against'] == {
        scheme: (0.0, 0.0) for scheme in online.SCHEMES
        if scheme != online.OURS}


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


def test_a_window_plans_more_groups_at_once():
    options = argparse.Namespace(
        windows_ms=[100.0], apart_ms=20.0, budget=0.02, seeds=range(2))
    alone, together = window.measure('sparse', options)
    assert (alone['plans'], together['plans']) == (6, 1)
    assert (alone['window_ms'], together['window_ms']) == (None, 100.0)
    assert alone['saved_percent'] == 0
    assert together['saved_percent'] == pytest.approx(
        100 * (1 - together['response_s'] / alone['response_s']))
