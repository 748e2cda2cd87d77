# SPDX-License-Identifier: Apache-2.0

"""Laws of the planner on random problems, against brute force."""

import math
from unittest import mock

import hypothesis
from hypothesis import strategies as st
import pytest

from tests import examples
from tests.unit.solver import problems
from virtco import exception
from virtco.model import snapshot
from virtco.solver import planner

FEW = hypothesis.settings(
    max_examples=examples.count(60), deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck))


def close(a, b):
    return a == b or math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-12)


@FEW
@hypothesis.given(problems.problems())
def test_isolated_search_finds_the_optimum(problem):
    best = problems.optimum(problem, problems.isolated_s)
    if best is None:
        with pytest.raises(exception.PlacementInfeasible):
            planner.plan(problem, objective=snapshot.Objective.ISOLATED)
        return
    plan = planner.plan(problem, objective=snapshot.Objective.ISOLATED,
                        budget_s=4)
    assert problems.is_valid(problem, plan.hosts)
    assert close(plan.cct_s, problems.isolated_s(problem, plan.hosts))
    assert close(plan.cct_s, best)
    assert plan.objective_s == plan.cct_s
    assert plan.lower_bound_s <= best * (1 + 1e-6)


@FEW
@hypothesis.given(problems.problems('hose'))
def test_online_search_finds_the_optimum(problem):
    best = problems.optimum(problem, problems.online_s)
    hypothesis.assume(best is not None)
    with mock.patch.object(planner, 'is_judged', return_value=False):
        plan = planner.plan(problem, budget_s=4)
    assert problems.is_valid(problem, plan.hosts)
    assert close(plan.objective_s, problems.online_s(problem, plan.hosts))
    assert close(plan.objective_s, best)
    lowest = problems.optimum(problem, problems.isolated_s)
    assert plan.lower_bound_s <= lowest * (1 + 1e-6)
    assert 0 <= plan.objective_bound_s <= best * (1 + 1e-5) + 1e-12
    assert plan.objective_bound_s <= plan.objective_s


@FEW
@hypothesis.given(problems.problems(), st.sampled_from(planner.PLANNERS))
def test_every_planner_answers_validly(problem, name):
    try:
        plan = planner.plan(problem, planner=name, budget_s=5, seed=3)
    except exception.PlacementInfeasible:
        assert problems.optimum(problem, problems.isolated_s) is None
        return
    assert problems.is_valid(problem, plan.hosts)
    assert close(plan.cct_s, problems.isolated_s(problem, plan.hosts))
    assert plan.lower_bound_s <= plan.cct_s
    assert len(plan.coflow_cct_s) == len(problem.coflows)


@FEW
@hypothesis.given(problems.problems(), st.sampled_from(snapshot.Objective),
                  st.integers(0, 4))
def test_ranking_is_exact(problem, objective, vm_index):
    cost = {'isolated': problems.isolated_s, 'joint': problems.joint_s,
            'online': problems.online_s}[objective]
    hypothesis.assume(objective == 'isolated'
                      or problem.pair_rate_bps is None)
    affine = any(g.policy == 'affinity' for g in problem.server_groups)
    hypothesis.assume(vm_index < len(problem.vms) and not affine)
    try:
        plan = planner.plan(problem, objective=objective, budget_s=4)
    except exception.PlacementInfeasible:
        return
    ranked = planner.rank_hosts(problem, plan, vm_index)
    assert sorted(r.host for r in ranked) == [
        host.name for host in problem.hosts]
    for row in ranked:
        trial = list(plan.hosts)
        trial[vm_index] = row.host
        assert row.feasible == problems.is_valid(problem, trial), row
        assert row.why
        if row.feasible:
            assert close(row.objective_s, cost(problem, trial))
            assert close(row.cct_s, problems.isolated_s(problem, trial))
    feasible = [row for row in ranked if row.feasible]
    assert list(ranked[:len(feasible)]) == feasible
    assert feasible == sorted(feasible, key=lambda row: row.objective_s)
    assert (ranked[0].objective_s <= plan.objective_s
            or close(ranked[0].objective_s, plan.objective_s))


@FEW
@hypothesis.given(problems.problems(max_vms=4), st.integers(0, 3))
def test_same_snapshot_and_seed_same_plan(problem, seed):
    try:
        first = planner.plan(problem, seed=seed, budget_s=4)
    except exception.PlacementInfeasible:
        return
    assert planner.plan(problem, seed=seed, budget_s=4) == first
