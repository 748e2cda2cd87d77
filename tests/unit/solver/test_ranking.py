# SPDX-License-Identifier: Apache-2.0

"""What a ranking says, and the loads that it reads."""

import math

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from tests.unit.solver import problems
from virtco import exception
from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import planner
from virtco.solver.model import instance as instances
from virtco.solver.model import loads
from virtco.solver.moves import ranking


def test_hosts_not_looked_at_come_after_those_that_were():
    hosts = tuple(cluster.Host(f'h{m}', (2.0,), 1e9 + m, 1e9)
                  for m in range(3 * ranking.CHUNK_HOSTS))
    flows = coflow.Coflow.from_flows('c', 2, [(0, 1, 1e8)])
    problem = snapshot.PlacementProblem(
        hosts, tuple(cluster.Vm(f'v{j}', (1.0,)) for j in range(2)),
        (flows,))
    plan = planner.plan(problem)
    inst = instances.build(problem)
    assign = np.array([int(name[1:]) for name in plan.hosts])
    ranked = ranking.rank(inst, plan.objective, assign, 0, lambda: False)
    assert len(ranked) == len(hosts) and ranked[0].host == plan.hosts[0]
    bounded = ['lower bound' in row.why for row in ranked]
    assert bounded == sorted(bounded) and 0 < sum(bounded) < len(hosts)
    values = ranking.evaluate(inst, plan.objective, assign, 0,
                              np.arange(len(hosts)), lambda: False)
    assert (values.port[~values.is_exact] == -1).all()
    full = ranking.evaluate(inst, plan.objective, assign, 0,
                            np.arange(len(hosts)), lambda: True)
    assert (values.objective_s <= full.objective_s).all()
    # Who sets no end has all looked at.
    assert not any('lower bound' in row.why for row in ranking.rank(
        inst, plan.objective, assign, 0))


def test_a_look_at_hosts_costs_time_for_each_coflow():
    """Three chunks of hosts: two looks at the clock for each pass."""
    hosts = tuple(cluster.Host(f'h{m}', (2.0,), 1e9, 1e9)
                  for m in range(2 * ranking.CHUNK_HOSTS + 1))
    problem = snapshot.PlacementProblem(
        hosts, tuple(cluster.Vm(f'v{j}', (1.0,)) for j in range(2)),
        (coflow.Coflow.from_flows('c', 2, [(0, 1, 1e8)]),),
        active=tuple(snapshot.ActiveCoflow(
            f'r{i}', (('h3', 1e8),), (('h4', 1e8),)) for i in range(2)))
    plan = planner.plan(problem, planner='spread')
    read, clock = budgets.unlimited(), budgets.Counter()
    planner._read(problem, read)
    planner.rank_hosts(problem, plan, 0, clock=clock)
    assert clock.units - read.clock.units == 2 * 2 * (
        planner.RANK_UNITS * ranking.CHUNK_HOSTS * (1 + 2)
        + budgets.ASK_UNITS)


@hypothesis.given(st.lists(st.lists(st.sampled_from((0.0, 1.0, 2.5)),
                                    min_size=4, max_size=4), max_size=6))
def test_sparse_loads_are_the_dense_ones(rows):
    dense = np.array(rows).reshape(-1, 4)
    sparse = loads.of_dense(dense)
    s_per_byte = np.array([1.0, 0.5, math.inf, 2.0])
    assert (sparse.dense() == dense).all()
    assert (sparse.per_port() == dense.sum(axis=0)).all()
    times = instances.times_s(np.vstack([np.zeros(4), np.cumsum(
        dense, axis=0)]), s_per_byte)
    ports, tops = sparse.prefix_tops(s_per_byte, 2)
    assert (tops == -np.sort(-times, axis=1)[:, :2]).all()
    rows_of = np.arange(len(dense) + 1)[:, None]
    assert (times[rows_of, ports][ports >= 0] == tops[ports >= 0]).all()
    assert (sparse.isolated_s(s_per_byte)
            == instances.times_s(dense, s_per_byte).max(axis=1)).all()
    order = np.arange(len(dense))[::-1]
    assert (sparse.ordered(order).dense() == dense[order]).all()
    position = np.array([1, -1, 0, -1])
    assert (sparse.moved(position, 2).dense() == dense[:, [2, 0]]).all()


def test_why_says_who_is_there_and_what_decides():
    vms = tuple(cluster.Vm(f'v{j}', (1.0,)) for j in range(4))
    problem = snapshot.PlacementProblem(
        tuple(cluster.Host(f'h{m}', (3.0,), 8.0, 8.0) for m in range(4)),
        vms, (coflow.Coflow.from_flows('c', 4, [(0, 1, 6.0), (0, 2, 1.0)]),))
    inst = instances.build(problem)
    ranked = ranking.rank(inst, snapshot.Objective.ISOLATED,
                          np.array([0, 1, 1, 2]), 0)
    assert {one.host: one.why for one in ranked} == {
        'h1': 'beside 2 VMs of its group; no port decides with 0 s',
        'h0': 'planned; h0 egress decides with 7 s',
        'h2': 'beside 1 VMs of its group; h2 egress decides with 7 s',
        'h3': 'alone there; h3 egress decides with 7 s'}
    assert [one.host for one in ranked] == ['h1', 'h0', 'h2', 'h3']


def test_a_planned_host_that_is_closed_is_the_first_of_the_closed():
    inst = instances.build(problems.fig_1_problem(
        excluded_hosts=frozenset(['h1', 'h2'])))
    ranked = ranking.rank(inst, snapshot.Objective.ISOLATED,
                          np.array([2, 0, 0]), 0)
    assert [one.host for one in ranked] == ['h2', 'h0', 'h1']
    assert not any(one.feasible for one in ranked)


def test_a_vm_that_receives_what_it_sends_costs_what_its_trials_cost():
    """Bytes both ways are no less than bytes one way."""
    problem = snapshot.PlacementProblem(
        tuple(cluster.Host(f'h{m}', (3.0,), 8.0, 8.0) for m in range(3)),
        tuple(cluster.Vm(f'v{j}', (1.0,)) for j in range(3)),
        (coflow.Coflow.from_flows('c', 3, [
            (0, 1, 6.0), (1, 0, 6.0), (2, 0, 3.0), (0, 2, 3.0)]),))
    inst = instances.build(problem)
    found = ranking.evaluate(
        inst, snapshot.Objective.ISOLATED, np.array([0, 1, 2]), 0,
        np.arange(3), lambda: True)
    assert found.cct_s.tolist() == [9.0, 3.0, 6.0]


def test_bytes_of_running_coflows_are_checked():
    for size in (math.nan, -1.0, math.inf):
        problem = problems.fig_1_problem(active=(snapshot.ActiveCoflow(
            'other', (('h0', 1.0),), (('elsewhere', size),)),))
        with pytest.raises(exception.Invalid, match='other.bytes'):
            instances.build(problem)
