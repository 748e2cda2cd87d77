# SPDX-License-Identifier: Apache-2.0

"""Lowered targets: never worse, never below the optimum, often better."""

import math
import random

import hypothesis
import numpy as np
import pytest

from benchmarks import objectives as generator
from tests.unit.solver import problems
from virtco import exception
from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import targets
from virtco.solver.model import instance as instances
from virtco.solver.moves import localsearch
from virtco.solver.starts import candidates

SETTINGS = hypothesis.settings(
    max_examples=40, deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck))


@SETTINGS
@hypothesis.given(problems.problems('hose'))
def test_targets_only_improve_and_only_what_can_be(problem):
    try:
        inst = instances.build(problem, budgets.unlimited())
    except exception.PlacementInfeasible:
        hypothesis.reject()
    start = candidates.best_fit(inst)
    hypothesis.assume(start is not None)
    before = problems.online_s(problem, inst.to_hosts(start))
    hypothesis.assume(before < math.inf)
    found = targets.improve(inst, start, budgets.unlimited())
    assert problems.is_valid(problem, inst.to_hosts(found))
    after = problems.online_s(problem, inst.to_hosts(found))
    assert problems.optimum(problem, problems.online_s) <= after * (1 + 1e-9)
    assert after <= before * (1 + 1e-9)


@pytest.mark.parametrize('groups', [1, 2])
def test_targets_better_a_loaded_cloud(groups):
    rng = random.Random(0)
    hosts = generator.cloud(rng, True)
    apps = sorted(generator.applications(rng, 'medium'),
                  key=lambda app: app.n_vms)
    running = snapshot.ActiveCoflow(
        'running', tuple((h.name, 1e8 * i) for i, h in enumerate(hosts)),
        tuple((h.name, 2e8) for h in hosts))
    problem = generator.group(hosts, apps[-1], [running])
    if groups == 2:
        problem = generator.merged(hosts, apps[:2])
    inst = instances.build(problem, budgets.unlimited())
    local = localsearch.Searcher(inst, snapshot.Objective.ONLINE, 0)
    start = candidates.spread(inst, rng)
    found = targets.improve(inst, start, budgets.unlimited())
    assert inst.fits(found)
    assert (local.evaluate(found).objective_s
            < 0.8 * local.evaluate(start).objective_s)
    # Each group is looked at once more, in half a second at most.
    budget = budgets.Budget(budgets.Counter(), 2.0)
    targets.improve(inst, found, budget)
    assert budget.left_s() > 0


def test_targets_of_worse_placements_are_no_use():
    rng = random.Random(0)
    hosts = generator.cloud(rng, True)
    app = max(generator.applications(rng, 'medium'),
              key=lambda app: app.n_vms)
    inst = instances.build(generator.group(hosts, app, ()))
    start = candidates.spread(inst, rng)
    group = targets._Group(inst, budgets.unlimited(),
                           snapshot.Objective.ONLINE)
    levels = group._levels(start)
    found = group._better(levels, group.local.evaluate(start).objective_s)
    found_s = group.local.evaluate(found).objective_s
    assert group._better(levels, 0.6 * found_s) is None


@pytest.mark.parametrize('seconds, most_s, spent_s', [
    (0.03, 0.5, 0.03), (0.5, 0.02, 0.02)])
def test_a_group_keeps_to_its_time(monkeypatch, seconds, most_s, spent_s):
    """It asks for the time so often that it exceeds it by little."""
    rng = random.Random(0)
    hosts = generator.cloud(rng, True)
    inst = instances.build(generator.group(hosts, max(
        generator.applications(rng, 'medium'), key=lambda app: app.n_vms),
        ()))
    monkeypatch.setattr(targets, 'MOST_S', most_s)
    budget = budgets.Budget(budgets.Counter(), seconds)
    targets.improve(inst, candidates.spread(inst, rng), budget)
    assert spent_s <= budget.spent_s() <= 1.2 * spent_s


def test_what_is_aimed_at():
    """All levels lower, then each by itself, then all by a little."""
    levels = targets._Levels(np.zeros((3, 0)), np.array([1.0, 2.0, 3.0]),
                             np.array([1.0, 1e-9, 2.0]))
    found = [aim.tolist() for aim in levels.aims()]
    expected = [[1.7, 2.0, 4.4], [1.9, 2.0, 4.8],
                [1.5, 2.0, 5.0], [2.0, 2.0, 4.0],
                [1.85, 2.0, 5.0], [2.0, 2.0, 4.7], [1.97, 2.0, 4.94]]
    assert np.array(found) == pytest.approx(np.array(expected), rel=1e-8)
    short = targets._Levels(levels.base, levels.least_s / 1e6,
                            levels.excess_s / 1e6)
    assert np.array(list(short.aims())) == pytest.approx(
        np.array(expected) / 1e6, rel=1e-8)


def test_levels_and_the_bytes_they_leave():
    """One coflow of 6 bytes behind a running one, on three alike hosts."""
    running = snapshot.ActiveCoflow('r', (('h0', 2.0),), (('h2', 4.0),))
    late = snapshot.ActiveCoflow('s', (('h1', 9.0),), (('h2', 5.0),))
    problem = snapshot.PlacementProblem(
        tuple(cluster.Host(f'h{m}', (1.0,), 8.0, 16.0) for m in range(3)),
        tuple(cluster.Vm(f'v{j}', (1.0,)) for j in range(2)),
        (coflow.Coflow.from_flows('c', 2, [(0, 1, 6.0)]),),
        active=(running, late))
    inst = instances.build(problem)
    group = targets._Group(inst, budgets.unlimited(),
                           snapshot.Objective.ONLINE)
    assert group.bytes == 6.0
    levels = group._levels(np.array([0, 1]))
    # Levels from the own coflow on: behind r, and with s behind it.
    assert levels.base.tolist() == [[2, 0, 0, 0, 0, 4], [2, 9, 0, 0, 0, 9]]
    assert levels.least_s.tolist() == [2.0, 9.0]
    assert levels.excess_s.tolist() == [6.0, 0.0]
    limits = group._limits(levels.base, np.array([5.0, 9.0]))
    ports = group.partition.pool.ports
    room = np.array([3.0, 6e-9, 5.0, 10.0, 10.0, 6.0])
    # Out of h1 s sends all that its target allows.
    assert 1 / limits == pytest.approx(room[ports])


def test_a_group_that_cannot_move_stays(monkeypatch):
    pinned = problems.fig_1_problem(vms=tuple(
        cluster.Vm(f'vm{j}', (1.0,), f'h{j}') for j in range(3)))
    inst = instances.build(pinned)
    apart = np.array([0, 1, 2])
    assert targets.improve(inst, apart, budgets.unlimited()) is apart
    one = problems.fig_1_problem(
        coflows=problems.fig_1_problem().coflows[:1])
    inst = instances.build(one)
    late = budgets.Budget(budgets.Counter(), 0.0)
    assert targets.improve(inst, apart, late) is apart
    found = targets.improve(inst, apart, budgets.unlimited())
    # VMs 0 and 1 together send 1 byte and get 2, VM 2 sends 2.
    assert problems.isolated_s(one, inst.to_hosts(found)) == 2.0
    assert apart.tolist() == [0, 1, 2]
