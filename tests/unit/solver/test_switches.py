# SPDX-License-Identifier: Apache-2.0

"""VMs below one switch and spread over switches, against brute force."""

import dataclasses
from unittest import mock

import hypothesis
from hypothesis import strategies as st
import pytest

from tests import examples
from tests.unit.solver import problems
from virtco import exception
from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.solver import planner
from virtco.solver.judging import foresight
from virtco.solver.judging import portfolio

FEW = hypothesis.settings(
    max_examples=examples.count(60), deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck))


@st.composite
def wished(draw, model='any'):
    """A random problem below a tree, with one or two wishes."""
    problem = draw(problems.problems(model))
    if not problem.tree.subtrees:
        problem = dataclasses.replace(problem, tree=draw(problems.trees(
            [host.name for host in problem.hosts])))
    n_vms = len(problem.vms)
    members = st.sets(st.integers(0, n_vms - 1), min_size=1).map(
        lambda found: tuple(sorted(found)))
    level = st.sampled_from(('1', '1', '2'))
    kind = draw(st.sampled_from(('within', 'spread', 'both')))
    return dataclasses.replace(
        problem,
        within=tuple(snapshot.Within(draw(level), draw(members)) for _ in
                     range(0 if kind == 'spread' else draw(
                         st.integers(1, 2)))),
        spread=tuple(snapshot.Spread(draw(level), draw(members), draw(
            st.integers(0, 1))) for _ in range(
                0 if kind == 'within' else draw(st.integers(1, 2)))))


@FEW
@hypothesis.given(wished())
def test_the_optimum_is_found_and_no_bound_is_above_it(problem):
    best = problems.optimum(problem, problems.isolated_s)
    if best is None:
        with pytest.raises(exception.PlacementInfeasible):
            planner.plan(problem, objective=snapshot.Objective.ISOLATED)
        return
    plan = planner.plan(problem, objective=snapshot.Objective.ISOLATED,
                        budget_s=2)
    assert problems.is_valid(problem, plan.hosts)
    assert problems.close(plan.cct_s, problems.isolated_s(
        problem, plan.hosts))
    assert plan.cct_s <= best * (1 + 1e-6)
    assert plan.lower_bound_s <= best * (1 + 1e-6)


@FEW
@hypothesis.given(wished('hose'))
def test_online_bounds_hold_under_wishes(problem):
    best = problems.optimum(problem, problems.online_s)
    hypothesis.assume(best is not None)
    with (mock.patch.object(foresight, 'WEIGHT', 0.0),
          mock.patch.object(portfolio, 'applies', return_value=False)):
        plan = planner.plan(problem, budget_s=2)
    assert problems.is_valid(problem, plan.hosts)
    assert plan.objective_s <= best * (1 + 1e-6) + 1e-12
    assert plan.objective_bound_s <= best * (1 + 1e-5) + 1e-12
    assert plan.lower_bound_s <= problems.optimum(
        problem, problems.isolated_s) * (1 + 1e-6)


@FEW
@hypothesis.given(wished(), st.sampled_from(planner.PLANNERS))
def test_every_planner_keeps_wishes(problem, name):
    try:
        plan = planner.plan(problem, planner=name, budget_s=1, seed=3)
    except exception.PlacementInfeasible:
        assert problems.optimum(problem, problems.isolated_s) is None
        return
    assert problems.is_valid(problem, plan.hosts)


@FEW
@hypothesis.given(wished(), st.integers(0, 4))
def test_a_ranking_keeps_wishes(problem, vm_index):
    hypothesis.assume(vm_index < len(problem.vms) and not any(
        group.policy == 'affinity' for group in problem.server_groups))
    try:
        plan = planner.plan(problem, budget_s=1)
    except exception.PlacementInfeasible:
        return
    for row in planner.rank_hosts(problem, plan, vm_index):
        trial = list(plan.hosts)
        trial[vm_index] = row.host
        assert row.feasible == problems.is_valid(problem, trial), row
        assert row.why


TREE = cluster.Tree((
    cluster.Subtree('r0', 1e9, 1e9), cluster.Subtree('r1', 1e9, 1e9)),
    {'h0': 'r0', 'h1': 'r0', 'h2': 'r1'})


def ring(**wishes):
    return snapshot.PlacementProblem(
        tuple(cluster.Host(f'h{m}', (3.0,), 1e9, 1e9) for m in range(4)),
        tuple(cluster.Vm(f'v{j}', (1.0,)) for j in range(3)),
        (coflow.Coflow.from_flows('c', 3, [
            (j, (j + 1) % 3, 1e9) for j in range(3)]),), TREE, **wishes)


@pytest.mark.parametrize('wishes, placed, why', [
    ({'spread': (snapshot.Spread('rack', (0, 1, 2)),)}, ('h0', 'h2', 'h2'),
     dict.fromkeys(('h2', 'h3'),
                   'no share of its group is left below that switch')),
    ({'within': (snapshot.Within('rack', (0, 1)),)}, ('h0', 'h1', 'h3'),
     dict.fromkeys(('h2', 'h3'), 'it has to share a switch with its group')),
    ({'within': (snapshot.Within('rack', (0,)),)}, ('h0', 'h1', 'h3'),
     {'h3': 'not below a switch that its wishes allow'})])
def test_a_ranking_says_which_wish_forbids_a_host(wishes, placed, why):
    problem = ring(**wishes)
    plan = dataclasses.replace(planner.plan(problem), hosts=placed)
    assert {row.host: row.why for row in planner.rank_hosts(
        problem, plan, 0) if not row.feasible} == why


@pytest.mark.parametrize('skew, most', [(0, 2), (1, 3)])
def test_a_skew_is_what_a_switch_may_have_beyond_its_share(skew, most):
    plan = planner.plan(ring(spread=(
        snapshot.Spread('rack', (0, 1, 2), skew),)))
    assert max(map([TREE.leaf_of[host] for host in plan.hosts].count,
                   ('r0', 'r1'))) == most
