# SPDX-License-Identifier: Apache-2.0

"""Plans and bounds under all constraints, against every placement."""

import dataclasses
import os

import pytest

from benchmarks import constraints
from virtco import exception
from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot

IS_FULL = os.environ.get('VIRTCO_TEST_GEAR') == 'full'
Objective = snapshot.Objective

#: A pair on two hosts of unlike rates in two racks, a byte per bit.
TREE = cluster.Tree(tuple(cluster.Subtree(name, 4.0, 4.0)
                          for name in ('r0', 'r1')),
                    {'h0': 'r0', 'h1': 'r0', 'h2': 'r1'})
PAIR = snapshot.PlacementProblem(
    tuple(cluster.Host(f'h{m}', (1.0,), 8.0 * (m + 1), 8.0 * (m + 1))
          for m in range(3)),
    tuple(cluster.Vm(f'v{j}', (1.0,)) for j in range(2)),
    (coflow.Coflow.from_flows('c', 2, [(0, 1, 6.0), (1, 0, 4.0)]),), TREE)


def test_no_bound_is_above_the_optimum_and_no_placement_is_missed():
    found = constraints.run(100_000 if IS_FULL else 1000, 50_000, 0.05)
    assert found['faults'] == [] and found['unsound'] == 0
    assert found['worst_ratio'] < 1.5
    assert found['above_1_percent'] <= found['problems'] / 200
    # A run without most kinds of constraints shows nothing.
    assert found['kinds'] > 30
    assert found['certified'] > 0.7 * found['feasible'] > 0


def placed(**changes):
    problem = dataclasses.replace(PAIR, **changes)
    found = constraints.enumerate_all(problem)
    return {''.join(map(str, row)): (cct_s, joint_s) for row, cct_s, joint_s
            in zip(found.hosts.tolist(), found.cct_s.tolist(),
                   found.joint_s.tolist())}


def test_every_placement_is_judged():
    """Within r0 h0 decides with 6 bytes, between racks the uplink."""
    assert placed() == {
        '01': (6.0, 6.0), '10': (6.0, 6.0), '02': (12.0, 12.0),
        '20': (12.0, 12.0), '12': (12.0, 12.0), '21': (12.0, 12.0)}


@pytest.mark.parametrize('changes, left', [
    ({'within': (snapshot.Within('rack', (0, 1)),)}, ['01', '10']),
    ({'spread': (snapshot.Spread('rack', (0, 1)),)},
     ['02', '12', '20', '21']),
    ({'spread': (snapshot.Spread('rack', (0, 1), 1),)},
     ['01', '02', '10', '12', '20', '21']),
    ({'excluded_hosts': frozenset({'h1'})}, ['02', '20']),
    ({'vms': (PAIR.vms[0], dataclasses.replace(
        PAIR.vms[1], allowed=frozenset({'h0', 'h2'})))},
     ['02', '10', '12', '20']),
    ({'vms': (PAIR.vms[0], dataclasses.replace(PAIR.vms[1], pinned='h2'))},
     ['02', '12']),
    # Beside one that runs the switch is its own.
    ({'vms': (PAIR.vms[0], dataclasses.replace(PAIR.vms[1], pinned='h1')),
      'within': (snapshot.Within('rack', (0, 1)),)}, ['01']),
    ({'server_groups': (snapshot.ServerGroup(
        snapshot.GroupPolicy.AFFINITY, (0, 1)),)}, []),
    ({'server_groups': (snapshot.ServerGroup(
        snapshot.GroupPolicy.ANTI_AFFINITY, (0, 1), frozenset({'h0'})),)},
     ['12', '21'])])
def test_placements_that_break_a_constraint_are_left_out(changes, left):
    assert sorted(placed(**changes)) == left


def test_what_runs_counts_in_the_sum():
    running = snapshot.ActiveCoflow('a', (('h1', 4.0),), (('h0', 4.0),),
                                    (('h1', 'h0', 4.0),))
    # 4 s alone; the group waits for it where it shares h0's ingress.
    found = placed(active=(running,))
    assert found['01'] == (6.0, 12.0) and found['10'] == (6.0, 14.0)
    rates = dict.fromkeys((('h0', 'h1'), ('h1', 'h0')), 2.0) | {
        pair: 1e9 for pair in (('h0', 'h2'), ('h2', 'h0'), ('h1', 'h2'),
                               ('h2', 'h1'))}
    assert placed(pair_rate_bps=rates)['02'] == (
        pytest.approx(4.8e-8), pytest.approx(4.8e-8))
    assert placed(pair_rate_bps=rates, hose_limits=True)['02'] == (12.0, 12.0)
    assert placed(pair_rate_bps=rates)['01'] == (24.0, 24.0)


def planned(monkeypatch, problem=PAIR, **changes):
    """Faults of a plan that is not what it should be."""
    plan = constraints.planner.plan

    def changed(*args, **options):
        return dataclasses.replace(plan(*args, **options), **changes)

    monkeypatch.setattr(constraints.planner, 'plan', changed)
    return constraints.check(problem, Objective.ISOLATED, 0.05)


def test_a_sound_plan_has_no_faults(monkeypatch):
    assert planned(monkeypatch) == {
        'kind': 'none', 'links': 'trees', 'ratio': 1.0, 'faults': [],
        'certified': True, 'within_1_percent': True}


@pytest.mark.parametrize('changes, fault', [
    ({'lower_bound_s': 6.1}, 'the bound of t is above the optimum'),
    ({'objective_bound_s': 6.1}, 'the bound of the objective is above it'),
    ({'cct_s': 5.9}, 'a time is misstated'),
    ({'objective_s': 6.1}, 'a time is misstated'),
    ({'hosts': ('h0', 'h0')}, 'it breaks a constraint')])
def test_what_is_not_so_is_a_fault(monkeypatch, changes, fault):
    assert planned(monkeypatch, **changes)['faults'] == [fault]


def test_a_worse_plan_has_a_ratio(monkeypatch):
    found = planned(monkeypatch, hosts=('h0', 'h2'), cct_s=12.0,
                    objective_s=12.0)
    assert found['ratio'] == 2.0 and not found['certified']
    assert found['faults'] == []


def test_a_placement_that_is_missed_is_a_fault(monkeypatch):
    def nothing(*_args, **_options):
        raise exception.PlacementInfeasible(what='v0', why='a test')

    monkeypatch.setattr(constraints.planner, 'plan', nothing)
    found = constraints.check(PAIR, Objective.JOINT, 0.05)
    assert found['faults'] == ['missed: No placement exists for v0: a test.']
    affine = dataclasses.replace(PAIR, server_groups=(snapshot.ServerGroup(
        snapshot.GroupPolicy.AFFINITY, (0, 1)),))
    assert constraints.check(affine, Objective.JOINT, 0.05) == {
        'kind': 'affinity', 'ratio': None, 'faults': [], 'certified': False,
        'links': 'trees', 'within_1_percent': False}
