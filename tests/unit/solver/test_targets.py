# SPDX-License-Identifier: Apache-2.0

"""Lowered targets: never worse, never below the optimum, often better."""

import math
import random

import hypothesis
import pytest

from benchmarks import objectives as generator
from tests.unit.solver import problems
from virtco import exception
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver.model import instance as instances
from virtco.solver.moves import localsearch
from virtco.solver.starts import candidates
from virtco.solver import targets

SETTINGS = hypothesis.settings(
    max_examples=40, deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck))


@SETTINGS
@hypothesis.given(problems.problems('hose'))
def test_targets_only_improve_and_only_what_can_be(problem):
    try:
        inst = instances.build(problem)
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
    inst = instances.build(problem)
    local = localsearch.Searcher(inst, snapshot.Objective.ONLINE, 0)
    start = candidates.spread(inst, rng)
    found = targets.improve(inst, start, budgets.unlimited())
    assert inst.fits(found)
    assert (local.evaluate(found).objective_s
            < 0.8 * local.evaluate(start).objective_s)
