# SPDX-License-Identifier: Apache-2.0

"""A ranked host costs what the plain evaluation of its trial says."""

import dataclasses
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
from virtco.solver.model import instance as instances
from virtco.solver.model import loads
from virtco.solver.model import loads_kernel
from virtco.solver.model import objectives
from virtco.solver.moves import rank_kernel
from virtco.solver.moves import ranking
from virtco.solver.starts import feasible


@hypothesis.settings(max_examples=examples.count(400), deadline=None)
@hypothesis.given(problems.busy_problems(),
                  st.sampled_from(snapshot.Objective), st.integers(0, 5))
def test_each_host_costs_what_its_trial_costs(problem, objective, number):
    try:
        inst = instances.build(problem)
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
        assert problems.close(values.objective_s[i], found.objective_s)
        assert problems.close(values.cct_s[i], found.cct_s)
        if math.isfinite(found.cct_s):
            times = instances.times_s(objectives.own_loads(
                inst, trial).sum(axis=0), inst.s_per_byte)
            assert (values.port[i] < 0) == (found.port < 0)
            assert found.port < 0 or problems.close(
                times[values.port[i]], found.cct_s)


def racked():
    """Two racks behind slow uplinks and a host behind none, all of it busy."""
    rng = np.random.default_rng(7)
    hosts = tuple(cluster.Host(f'h{m}', (4.0,), 1e9 + m, 2e9 - m)
                  for m in range(5))
    tree = cluster.Tree(
        (cluster.Subtree('r0', 3e8, 4e8), cluster.Subtree('r1', 5e8, 2e8)),
        {'h0': 'r0', 'h1': 'r0', 'h2': 'r1', 'h3': 'r1'})
    return snapshot.PlacementProblem(
        hosts, tuple(cluster.Vm(f'v{j}', (1.0,)) for j in range(4)),
        tuple(coflow.Coflow.from_flows(f'c{i}', 4, [
            (a, b, float(rng.integers(1, 99)) * 1e6) for a in range(4)
            for b in range(4) if a != b]) for i in range(2)), tree,
        (snapshot.ActiveCoflow('a', (('h0', 1e8),), (('h2', 1e8),)),))


@pytest.mark.parametrize('objective', snapshot.Objective)
@pytest.mark.parametrize('placement', [(0, 1, 2, 4), (0, 0, 3, 3)])
def test_in_racks_each_host_costs_what_its_trial_costs(objective, placement):
    inst, assign = instances.build(racked()), np.array(placement)
    hosts = np.arange(inst.n_hosts)
    for node in range(inst.n_nodes):
        values = ranking.evaluate(inst, objective, assign, node, hosts,
                                  lambda: True)
        for host in hosts:
            trial = assign.copy()
            trial[node] = host
            found = objectives.evaluate(inst, trial, objective)
            assert problems.close(values.objective_s[host],
                                  found.objective_s)
            assert problems.close(values.cct_s[host], found.cct_s)


@hypothesis.settings(max_examples=examples.count(200), deadline=None)
@hypothesis.given(problems.busy_problems(),
                  st.sampled_from(snapshot.Objective), st.integers(0, 99))
def test_many_placements_cost_what_each_costs(problem, objective, number):
    try:
        inst = instances.build(problem)
    except exception.PlacementInfeasible:
        hypothesis.reject()
    rng = np.random.default_rng(number)
    assigns = np.where(inst.fixed >= 0, inst.fixed, rng.integers(
        inst.n_hosts, size=(9, inst.n_nodes)))
    keys = objectives.keys_of_many(inst, assigns, objective)
    for key, assign in zip(keys, assigns, strict=True):
        expected = objectives.evaluate(inst, assign, objective).key
        assert all(map(problems.close, key, expected))
    assert inst.fit_all(assigns).tolist() == [
        inst.fits(assign) for assign in assigns]


@hypothesis.settings(max_examples=examples.count(100), deadline=None)
@hypothesis.given(problems.busy_problems(),
                  st.sampled_from(snapshot.Objective), st.integers(0, 5),
                  st.integers(0, 6))
def test_without_time_a_bound_is_given(problem, objective, number, looks):
    try:
        inst = instances.build(problem)
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
        assert problems.close(a, b) if is_exact else a <= b * (1 + 1e-9)


def test_kernels_agree_with_their_plain_selves(monkeypatch):
    problem = benchmark.problem_of(12, 15, 6, 4, seed=3)
    problem = dataclasses.replace(problem, coflows=(
        *problem.coflows, problem.coflows[0].scaled(0.3)))

    def found():
        inst = instances.build(problem)
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
