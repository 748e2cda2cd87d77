# SPDX-License-Identifier: Apache-2.0

"""The compiled kernels against their interpreted selves."""

import dataclasses
import math
import random

import numpy as np
import pytest

from benchmarks import instances as generator
from benchmarks import reference
from virtco import compiled
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import enumeration_kernel
from virtco.solver import smallgroup
from virtco.solver.bounds import lowerbounds
from virtco.solver.bounds import sets_kernel
from virtco.solver.model import instance as instances
from virtco.solver.model import loads
from virtco.solver.moves import kernel
from virtco.solver.moves import localsearch
from virtco.solver.starts import candidates

ISOLATED = snapshot.Objective.ISOLATED


def draw_instance(kind, seed=0):
    rng = random.Random(seed)
    if kind == 'small rack':
        item = generator.small(rng, 2)
    elif kind == 'small pipe':
        item = generator.small(rng, 3)
    else:
        item = generator.paper18(rng, kind, 'medium', 'partial')
    return instances.build(reference.to_problem(item), budgets.unlimited())


@pytest.mark.parametrize('kind', ['pager-1m', 'recomm-1g', 'small rack',
                                  'small pipe'])
def test_search_is_the_same_uncompiled(kind):
    inst = draw_instance(kind)
    start = candidates.best_fit(inst)
    compiled_run = localsearch.Searcher(inst, ISOLATED, 7)
    plain_run = localsearch.Searcher(
        inst, ISOLATED, 7, code=compiled.plain(kernel.__name__))
    found, value = compiled_run.anneal(start, 1500)
    plain, plain_value = plain_run.anneal(start, 1500)
    np.testing.assert_array_equal(found, plain)
    assert value == plain_value
    np.testing.assert_array_equal(compiled_run.random, plain_run.random)
    np.testing.assert_array_equal(
        compiled_run.polish(found, 200, budgets.unlimited()),
        plain_run.polish(plain, 200, budgets.unlimited()))


def test_bound_is_the_same_uncompiled():
    inst = draw_instance('pager-1m')
    expected = least_times(inst, sets_kernel)
    assert len(set(expected)) > 5
    assert least_times(inst, compiled.plain(sets_kernel.__name__)) == expected


@pytest.mark.parametrize('kind', ['small rack', 'small pipe', 'recomm-1g'])
def test_enumeration_is_the_same_uncompiled(kind):
    inst = draw_instance(kind)
    runs = []
    for code in (enumeration_kernel,
                 compiled.plain(enumeration_kernel.__name__)):
        state = smallgroup._begin(inst, math.inf, code)
        done = code.search(state, smallgroup.CLOSER, 1e6)
        runs.append((done, state.work[0], *(np.array(x).tolist() for x in (
            state.least_s, state.best, state.counts, state.load))))
    assert runs[0] == runs[1] and runs[0][4][3] > 0


def least_times(inst, code):
    work = lowerbounds.prepare(
        inst, lowerbounds.undominated(inst, lowerbounds.hose_s_per_byte(inst)),
        budgets.unlimited(), code)
    work.sets.work[1] = math.inf
    return [code.least_around(work.sets, work.classes, node, 1e300, 0.0, 100)
            for node in range(inst.n_nodes)]


def test_search_never_breaks_a_constraint_nor_loses_its_best():
    for seed in range(6):
        inst = draw_instance('pager-1m', seed)
        search = localsearch.Searcher(inst, ISOLATED, seed)
        start = candidates.spread(inst, random.Random(seed))
        before = search.evaluate(start)
        found, value = search.anneal(start, 3000)
        assert inst.fits(found)
        assert value.objective_s <= before.objective_s
        assert value == search.evaluate(found)


def test_polish_keeps_the_objective_and_moves_fewer_bytes():
    inst = draw_instance('pager-1m', 1)
    search = localsearch.Searcher(inst, ISOLATED, 0)
    start, before = search.anneal(
        candidates.spread(inst, random.Random(0)), 40000)
    after = search.polish(start, 20000, budgets.unlimited())
    assert inst.fits(after)
    assert search.evaluate(after).objective_s <= before.objective_s

    def cut(assign):
        return sum(size[assign[src] != assign[dst]].sum()
                   for src, dst, size in inst.arcs)
    assert cut(after) < cut(start)


def test_min_cut_cuts_less_than_its_start():
    inst = draw_instance('pager-4m')

    def cut(assign):
        return sum(size[assign[src] != assign[dst]].sum()
                   for src, dst, size in inst.arcs)
    found = localsearch.min_cut(inst, 0, budgets.unlimited())
    assert cut(found) <= cut(candidates.cluster(inst, budgets.unlimited()))
    assert cut(found) < 0.8 * cut(
        candidates.spread(inst, random.Random(0)))


def test_many_levels_are_merged_but_judged_exactly():
    host_names = [f'h{m}' for m in range(4)]
    problem = reference.to_problem(generator.small(random.Random(1), 0))
    active = tuple(snapshot.ActiveCoflow(
        f'a{i}', ((host_names[i % 3], 1e7 * (i + 1)),),
        ((host_names[(i + 1) % 3], 1e7 * (i + 1)),)) for i in range(60))
    problem = snapshot.PlacementProblem(
        problem.hosts, problem.vms, problem.coflows, active=active)
    inst = instances.build(problem)
    search = localsearch.Searcher(inst, snapshot.Objective.ONLINE, 0)
    start = candidates.best_fit(inst)
    level, base, floor, weight = search.levels(start)
    assert len(weight) == len(floor) == len(base)
    assert len(weight) <= localsearch.MAX_LEVELS + 2
    found, value = search.anneal(start, 2000)
    assert value.objective_s <= search.evaluate(start).objective_s


def test_kernel_prices_what_the_objective_prices():
    """With the order held, the kernel's own cost is the objective's."""
    inst = draw_instance('pager-1m', 3)
    inst = dataclasses.replace(
        inst, running=loads.of_dense(
            np.full((3, len(inst.s_per_byte)), 1.0)),
        active_cct_s=np.full(3, 1e-8), floor_s=np.zeros(4))
    search = localsearch.Searcher(inst, snapshot.Objective.ONLINE, 0)
    start = candidates.spread(inst, random.Random(0))
    found, value = search.anneal(start, 20000)
    assert value.ahead_s > 0
    graph, state = search._prepare(
        found, search.s_per_byte, search.levels(found),
        price_s=search._price_s(found))
    cost_s = kernel.anneal(graph, state, 3, 0, 1.0, 1.0, math.inf, 0.0,
                           math.inf)
    assert cost_s == pytest.approx(value.objective_s, rel=1e-6)
