# SPDX-License-Identifier: Apache-2.0

"""Bounds, relaxation, exact solvers and reduction against each other."""

import dataclasses
import math
import random

import hypothesis
from hypothesis import strategies as st
import pytest

from benchmarks import instances as generator
from benchmarks import reference
from tests import examples
from tests.unit.solver import oracles
from tests.unit.solver import problems
from virtco import exception
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import planner
from virtco.solver import smallgroup
from virtco.solver.bounds import lowerbounds
from virtco.solver.model import instance as instances

SETTINGS = hypothesis.settings(
    max_examples=examples.count(50), deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck))
ISOLATED = snapshot.Objective.ISOLATED


@SETTINGS
@hypothesis.given(problems.problems())
def test_bounds_stay_below_the_optimum(problem):
    best = problems.optimum(problem, problems.isolated_s)
    hypothesis.assume(best is not None)
    inst = instances.build(problem, budgets.unlimited())
    bound = lowerbounds.anchored_sets(inst, math.inf, budgets.unlimited())
    assert bound.lower_s <= best


@SETTINGS
@hypothesis.given(problems.problems('hose', max_vms=6))
def test_reduction_loses_nothing(problem):
    best = problems.optimum(problem, problems.isolated_s)
    hypothesis.assume(best is not None)
    full = instances.build(problem)
    small = instances.build(problem, budgets.unlimited())
    assert set(small.host_index) <= set(full.host_index)
    kept = [problem.hosts[m] for m in small.host_index]
    rest = dataclasses.replace(problem, hosts=tuple(kept), active=())
    assert problems.optimum(rest, problems.isolated_s) == pytest.approx(
        best, rel=1e-9)


@SETTINGS
@hypothesis.given(problems.problems())
def test_enumeration_finds_the_optimum(problem):
    try:
        inst = instances.build(problem, budgets.unlimited())
    except exception.PlacementInfeasible:
        return
    best = problems.optimum(problem, problems.isolated_s)
    best = math.inf if best is None else best
    if smallgroup.enumerable(inst):
        result = smallgroup.enumerate_all(inst, math.inf,
                                          budgets.unlimited())
        assert result is not None
        assert result[0] == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize('seed', range(4))
def test_milp_and_enumeration_agree(seed):
    item = generator.small(random.Random(seed), 4 * seed + seed % 2)
    problem = reference.to_problem(item)
    optimum_s, hosts = oracles.virtco_milp(problem)
    found_s, _assign = smallgroup.enumerate_all(
        instances.build(problem,
            budgets.unlimited()), math.inf, budgets.unlimited())
    assert optimum_s == pytest.approx(found_s, rel=1e-5)
    assert problems.is_valid(problem, hosts)
    assert problems.isolated_s(problem, hosts) == pytest.approx(
        optimum_s, rel=1e-5)


@pytest.mark.parametrize('number', [2, 3])
def test_milps_of_racks_and_pipes(number):
    problem = reference.to_problem(
        generator.small(random.Random(number), number))
    model = oracles.choreo_ilp if number == 3 else oracles.virtco_milp
    optimum_s, hosts = model(problem)
    assert problems.is_valid(problem, hosts)
    plan = planner.plan(problem, objective=ISOLATED, budget_s=20)
    assert plan.cct_s == pytest.approx(optimum_s, rel=1e-5)
    assert plan.gap == pytest.approx(0.0, abs=1e-8)


def test_choreo_ilp_needs_pipes():
    with pytest.raises(exception.Invalid):
        oracles.choreo_ilp(problems.fig_1_problem())


@SETTINGS
@hypothesis.given(st.integers(1, 40), st.integers(0, 10 ** 6))
def test_many_equal_hosts_reduce_to_the_number_of_vms(n_hosts, seed):
    rng = random.Random(seed)
    item = generator.small(rng, 0)
    item['hosts'] = [dict(item['hosts'][0], id=f'h{m}', slots=8)
                     for m in range(n_hosts)]
    inst = instances.build(reference.to_problem(item), budgets.unlimited())
    assert inst.n_hosts == min(n_hosts, len(item['vms']))


def test_better_hosts_push_out_worse_ones():
    item = generator.small(random.Random(0), 0)
    good = [{'id': f'g{m}', 'slots': 9, 'egress': 2e8, 'ingress': 2e8}
            for m in range(len(item['vms']))]
    bad = [{'id': f'b{m}', 'slots': 8, 'egress': 2e8, 'ingress': 1e8}
           for m in range(30)]
    wide = [{'id': 'wide', 'slots': 10, 'egress': 1e7, 'ingress': 1e7}]
    item['hosts'] = bad + good + wide
    inst = instances.build(reference.to_problem(item), budgets.unlimited())
    kept = {inst.host_name(m) for m in range(inst.n_hosts)}
    assert kept == {h['id'] for h in good + wide}
