# SPDX-License-Identifier: Apache-2.0

"""Uplinks of any level of a tree: what counts on them, and the optimum."""

import dataclasses
import random

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from tests import examples
from tests.unit.solver import problems
from virtco import exception
from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.solver import planner
from virtco.solver.model import instance as instances
from virtco.solver.model import objectives
from virtco.solver.model import uplink_arrays as uplinks

ISOLATED = snapshot.Objective.ISOLATED
INF = float('inf')
SETTINGS = hypothesis.settings(max_examples=examples.count(60), deadline=None)


def pods(*, rack_bps=8e8, pod_bps=4e8, extra=()):
    """Two pods: p0 of two racks, p1 of one and a host of its own."""
    return cluster.Tree(
        (cluster.Subtree('r0', rack_bps, rack_bps, 'p0'),
         cluster.Subtree('p0', pod_bps, pod_bps, level='pod'),
         cluster.Subtree('r1', rack_bps, rack_bps, 'p0'),
         cluster.Subtree('r2', rack_bps, rack_bps, 'p1'),
         cluster.Subtree('p1', pod_bps, pod_bps, level='pod')),
        {'h0': 'r0', 'h1': 'r0', 'h2': 'r1', 'h3': 'r2', 'h4': 'p1',
         **dict(extra)})


def problem_of(flows, tree, n_hosts=6, n_vms=6, active=()):
    return snapshot.PlacementProblem(
        tuple(cluster.Host(f'h{m}', (1.0,), 1e9, 1e9)
              for m in range(n_hosts)),
        tuple(cluster.Vm(f'v{j}', (1.0,)) for j in range(n_vms)),
        (coflow.Coflow.from_flows('c', n_vms, flows),), tree, active)


def loads(problem, assign):
    """Bytes per named uplink of a placement."""
    inst = instances.build(problem)
    row = objectives.own_loads(inst, np.array(assign)).sum(axis=0)
    return {inst.port_name(port): row[port] for port in range(
        2 * inst.n_hosts, inst.n_fabric) if row[port]}


@pytest.mark.parametrize('a, b, expected', [
    (0, 1, []), (0, 2, ['rack r0 up', 'rack r1 down']),
    (0, 3, ['rack r0 up', 'pod p0 up', 'pod p1 down', 'rack r2 down']),
    (2, 4, ['rack r1 up', 'pod p0 up', 'pod p1 down']), (3, 4, ['rack r2 up']),
    (4, 3, ['rack r2 down']), (5, 0, ['rack r0 down', 'pod p0 down']),
    (4, 5, ['pod p1 up'])])
def test_bytes_pass_the_uplinks_of_subtrees_that_part_two_hosts(
        a, b, expected):
    problem = problem_of([(0, 1, 5.0)], pods(), n_vms=2)
    assert loads(problem, [a, b]) == dict.fromkeys(expected, 5.0)


def test_levels_may_be_left_out_where_they_never_limit():
    """A rack of two hosts of 1 Gbit/s each, a pod of three."""
    def kept(**rates):
        found = uplinks.of(problem_of([], pods(**rates)))
        return {one.name for one in found.subtrees}, found.chains.shape[1]

    assert kept(rack_bps=2e9, pod_bps=3e9) == (set(), 0)
    assert kept(rack_bps=INF, pod_bps=INF) == (set(), 0)
    assert kept(rack_bps=9e8, pod_bps=3e9) == ({'r0', 'r1', 'r2'}, 1)
    # Two racks send no more than 1.8 Gbit/s.
    assert kept(rack_bps=9e8, pod_bps=1.9e9) == ({'r0', 'r1', 'r2'}, 1)
    assert kept(rack_bps=2e9, pod_bps=2e9) == ({'p0'}, 1)
    assert kept(rack_bps=9e8, pod_bps=1e9) == (
        {'r0', 'r1', 'r2', 'p0', 'p1'}, 2)


@SETTINGS
@hypothesis.given(problems.problems('tree'), st.integers(0, 99))
def test_what_is_left_out_changes_no_cost(problem, seed):
    rng = random.Random(seed)
    try:
        some = instances.build(problem)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(uplinks.uplinks, 'limiting',
                          lambda chains, *_rates: chains)
            every = instances.build(problem)
    except exception.PlacementInfeasible:
        hypothesis.reject()
    assign = np.array([rng.randrange(some.n_hosts) if host < 0 else host
                       for host in some.fixed])
    for objective in (ISOLATED, snapshot.Objective.JOINT):
        expected, found = (objectives.evaluate(
            inst, assign, objective).objective_s for inst in (every, some))
        assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize('pairs, hose_limits, count', [
    (None, False, 5), ({}, False, 0), ({}, True, 5)])
def test_uplinks_count_unless_only_pairs_have_rates(pairs, hose_limits,
                                                    count):
    assert len(uplinks.of(dataclasses.replace(
        problem_of([], pods()), pair_rate_bps=pairs,
        hose_limits=hose_limits))) == count


def test_running_coflows_count_on_the_uplinks_of_hosts_beyond():
    """h9 is no candidate; between it and h0 is r0's uplink only."""
    tree = pods(extra={'h9': 'r1'}.items())
    pair = ('h9', 'h0', 7.0)
    problem = problem_of([(0, 1, 5.0)], tree, n_vms=2, active=(
        snapshot.ActiveCoflow('a', (('h9', 7.0),), (('h0', 7.0),), (pair,)),))
    inst = instances.build(problem)
    row = inst.running.dense()[0]
    assert {inst.port_name(port): row[port]
            for port in np.flatnonzero(row)} == {
                'h0 ingress': 7.0, 'rack r1 up': 7.0, 'rack r0 down': 7.0}


@SETTINGS
@hypothesis.given(problems.problems('tree', max_vms=5))
def test_bounds_hold_and_proofs_are_true_at_any_depth(problem):
    best_s = problems.optimum(problem, problems.isolated_s)
    hypothesis.assume(best_s is not None)
    plan = planner.plan(problem, objective=ISOLATED, budget_s=5.0)
    assert problems.is_valid(problem, plan.hosts)
    assert plan.cct_s == pytest.approx(
        problems.isolated_s(problem, plan.hosts), rel=1e-9)
    assert plan.lower_bound_s <= best_s * (1 + 1e-8)
    assert plan.cct_s == pytest.approx(best_s, rel=1e-8)


@SETTINGS
@hypothesis.given(problems.problems('tree', max_vms=4))
def test_a_level_that_never_limits_changes_no_plan(problem):
    """The same below one more level."""
    higher = dataclasses.replace(problem, tree=cluster.Tree(
        (cluster.Subtree('all', INF, INF), *(
            one if one.parent else dataclasses.replace(one, parent='all')
            for one in problem.tree.subtrees)),
        {host.name: 'all' for host in problem.hosts}
        | dict(problem.tree.leaf_of)))
    try:
        plans = [planner.plan(one, objective=ISOLATED, budget_s=5.0)
                 for one in (problem, higher)]
    except exception.PlacementInfeasible:
        hypothesis.reject()
    assert plans[0].hosts == plans[1].hosts
