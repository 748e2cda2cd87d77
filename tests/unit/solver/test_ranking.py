# SPDX-License-Identifier: Apache-2.0

"""Ranking against the plain evaluation of every trial."""

import dataclasses
import itertools
import math

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from benchmarks import ranking as benchmark
from tests import examples
from tests.unit.solver import problems
from virtco import compiled as kernels
from virtco import exception
from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import planner
from virtco.solver.model import instance as instances
from virtco.solver.model import loads
from virtco.solver.model import loads_kernel
from virtco.solver.model import objectives
from virtco.solver.moves import rank_kernel
from virtco.solver.moves import ranking
from virtco.solver.starts import feasible

RATES = st.sampled_from((8e8, 4e8, 1e9, 2e8, 0.0))
SIZES = st.integers(0, 30).map(lambda x: x * 1e7)


@st.composite
def busy_problems(draw):
    """Several own and running coflows over hosts, racks and pairs."""
    model = draw(st.sampled_from(('hose', 'tree', 'pipe', 'both')))
    n_hosts, n_vms = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    hosts = tuple(cluster.Host(
        f'h{m}', (float(draw(st.integers(2, 9))),), draw(RATES), draw(RATES))
        for m in range(n_hosts))
    names = st.sampled_from([host.name for host in hosts])
    beyond = st.sampled_from([*(host.name for host in hosts), 'x0', 'x1'])
    vms = tuple(cluster.Vm(f'v{j}', (1.0,), draw(
        st.one_of(st.none(), st.none(), st.none(), names)))
        for j in range(n_vms))
    index = st.integers(0, n_vms - 1)
    coflows = tuple(coflow.Coflow.from_flows(f'c{i}', n_vms, draw(
        st.lists(st.tuples(index, index, SIZES), max_size=8)))
        for i in range(draw(st.integers(1, 4))))
    entries = st.lists(st.tuples(beyond, SIZES), max_size=4).map(tuple)
    active = tuple(
        snapshot.ActiveCoflow(f'a{i}', draw(entries), draw(entries))
        for i in range(draw(st.integers(0, 6))))
    groups = ()
    if n_vms > 1 and draw(st.booleans()):
        policy = draw(st.sampled_from(snapshot.GroupPolicy))
        groups = (snapshot.ServerGroup(policy, tuple(range(
            draw(st.integers(2, n_vms)))), max_per_host=2),)
    pairs = {pair: draw(RATES) for pair in itertools.permutations(
        [host.name for host in hosts], 2)}
    return snapshot.PlacementProblem(
        hosts, vms, coflows, draw(problems.trees(
            [*(host.name for host in hosts), 'x0', 'x1'], RATES))
        if model == 'tree' else cluster.Tree(), active, groups,
        pairs if model in ('pipe', 'both') else None,
        model == 'both')


def close(a, b):
    return a == b or abs(a - b) <= 1e-9 * max(abs(a), abs(b))


@hypothesis.settings(max_examples=examples.count(400), deadline=None)
@hypothesis.given(busy_problems(), st.sampled_from(snapshot.Objective),
                  st.integers(0, 5))
def test_each_host_costs_what_its_trial_costs(problem, objective, number):
    try:
        inst = instances.build(problem, reduce=False)
        assign = feasible.any_placement(inst, number, budgets.unlimited())
    except exception.PlacementInfeasible:
        hypothesis.reject()
    node = number % inst.n_nodes
    hosts = np.roll(np.arange(inst.n_hosts), number)
    values = ranking.evaluate(inst, objective, assign, node, hosts,
                              lambda: True)
    assert values.is_exact.all()
    for i, host in enumerate(hosts):
        trial = assign.copy()
        trial[node] = host
        found = objectives.evaluate(inst, trial, objective)
        assert close(values.objective_s[i], found.objective_s)
        assert close(values.cct_s[i], found.cct_s)
        if math.isfinite(found.cct_s):
            times = instances.times_s(objectives.own_loads(
                inst, trial).sum(axis=0), inst.s_per_byte)
            assert (values.port[i] < 0) == (found.port < 0)
            assert found.port < 0 or close(times[values.port[i]],
                                           found.cct_s)


@hypothesis.settings(max_examples=examples.count(100), deadline=None)
@hypothesis.given(busy_problems(), st.sampled_from(snapshot.Objective),
                  st.integers(0, 5), st.integers(0, 6))
def test_without_time_a_bound_is_given(problem, objective, number, looks):
    try:
        inst = instances.build(problem, reduce=False)
        assign = feasible.any_placement(inst, number, budgets.unlimited())
    except exception.PlacementInfeasible:
        hypothesis.reject()
    node = number % inst.n_nodes
    hosts = np.arange(inst.n_hosts)
    exact = ranking.evaluate(inst, objective, assign, node, hosts,
                             lambda: True)
    left = iter([True] * looks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, 'CHUNK_HOSTS', 1)
        hasty = ranking.evaluate(inst, objective, assign, node, hosts,
                                 lambda: next(left, False))
    assert hasty.is_exact[0]
    for a, b, is_exact in zip(hasty.objective_s, exact.objective_s,
                              hasty.is_exact):
        assert close(a, b) if is_exact else a <= b * (1 + 1e-9)


def test_kernels_agree_with_their_plain_selves(monkeypatch):
    problem = benchmark.problem_of(12, 15, 6, 4, seed=3)
    problem = dataclasses.replace(problem, coflows=(
        *problem.coflows, problem.coflows[0].scaled(0.3)))

    def found():
        inst = instances.build(problem, reduce=False)
        values = ranking.evaluate(
            inst, snapshot.Objective.ONLINE, np.arange(6) // 2, 1,
            np.arange(12), lambda: True)
        return [values.objective_s, values.cct_s, values.port]

    compiled = found()
    monkeypatch.setattr(loads, 'loads_kernel',
                        kernels.plain(loads_kernel.__name__))
    monkeypatch.setattr(ranking, 'rank_kernel',
                        kernels.plain(rank_kernel.__name__))
    np.testing.assert_array_equal(found(), compiled)


def test_hosts_not_looked_at_come_after_those_that_were():
    hosts = tuple(cluster.Host(f'h{m}', (2.0,), 1e9 + m, 1e9)
                  for m in range(3 * ranking.CHUNK_HOSTS))
    flows = coflow.Coflow.from_flows('c', 2, [(0, 1, 1e8)])
    problem = snapshot.PlacementProblem(
        hosts, tuple(cluster.Vm(f'v{j}', (1.0,)) for j in range(2)),
        (flows,))
    plan = planner.plan(problem)
    inst = instances.build(problem, reduce=False)
    assign = np.array([int(name[1:]) for name in plan.hosts])
    ranked = ranking.rank(inst, plan.objective, assign, 0, lambda: False)
    assert len(ranked) == len(hosts) and ranked[0].host == plan.hosts[0]
    bounded = ['lower bound' in row.why for row in ranked]
    assert bounded == sorted(bounded) and 0 < sum(bounded) < len(hosts)


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
    inst = instances.build(problem, reduce=False)
    ranked = ranking.rank(inst, snapshot.Objective.ISOLATED,
                          np.array([0, 1, 1, 2]), 0)
    assert {one.host: one.why for one in ranked} == {
        'h1': 'beside 2 VMs of its group; no port decides with 0 s',
        'h0': 'planned; h0 egress decides with 7 s',
        'h2': 'beside 1 VMs of its group; h2 egress decides with 7 s',
        'h3': 'alone there; h3 egress decides with 7 s'}
    assert [one.host for one in ranked] == ['h1', 'h0', 'h2', 'h3']


def test_bytes_of_running_coflows_are_checked():
    for size in (math.nan, -1.0, math.inf):
        problem = problems.fig_1_problem(active=(snapshot.ActiveCoflow(
            'other', (('h0', 1.0),), (('elsewhere', size),)),))
        with pytest.raises(exception.Invalid, match='other.bytes'):
            instances.build(problem)
