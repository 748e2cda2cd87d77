# SPDX-License-Identifier: Apache-2.0

"""Laws of the local search's kernel: a run's books agree with its answer."""

import dataclasses
import functools
import math
import random

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from benchmarks import instances as generator
from benchmarks import reference
from tests import examples
from tests.unit.solver import problems
from virtco import compiled
from virtco import exception
from virtco.model import coflow
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver.model import instance as instances
from virtco.solver.model import objectives
from virtco.solver.moves import kernel
from virtco.solver.moves import localsearch
from virtco.solver.starts import candidates

SETTINGS = hypothesis.settings(
    max_examples=examples.count(60), deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck))
OBJECTIVES = st.sampled_from((snapshot.Objective.ISOLATED,
                              snapshot.Objective.ONLINE))
plain = functools.cache(compiled.plain)


def begin(problem, objective, seed=1, code=kernel):
    """A searcher and where it starts; rejects what fits nowhere."""
    try:
        inst = instances.build(problem)
    except exception.PlacementInfeasible:
        hypothesis.reject()
    start = candidates.best_fit(inst)
    if start is None or not len(inst.movable):
        hypothesis.reject()
    return localsearch.Searcher(inst, objective, seed, code), start


class Run:
    """One call of the kernel, and what its books should say.

    :ivar load: bytes per port and level of the placement it ended with.
    """

    def __init__(self, search, start, power, moves, ceiling=math.inf,
                 enough_s=-1.0, most=math.inf):
        self.search, self.inst = search, search.inst
        self.level, self.base, self.floor, self.weight = search.levels(start)
        self.price_s = search._price_s(start)
        self.graph, self.state = search._prepare(
            start, search.s_per_byte,
            (self.level, self.base, self.floor, self.weight),
            np.full(len(self.weight), ceiling), self.price_s)
        self.power = power
        self.told_s = kernel.anneal(
            self.graph, self.state, power, moves, 0.3, 0.01, math.inf,
            enough_s, most)
        self.assign = np.array(self.state.assign)
        self.best = np.array(self.state.best)
        self.load = self.loads(self.assign)

    def loads(self, assign):
        """Bytes per level and port, a plain reading."""
        found = self.base.copy()
        for level, row in zip(self.level, objectives.own_loads(
                self.inst, assign), strict=True):
            found[level:] += row
        return found

    def times_s(self, assign):
        return self.loads(assign) * self.search.s_per_byte

    def cost_s(self, assign):
        """What the kernel minimises."""
        times_s = self.times_s(assign)
        each_s = (np.maximum(times_s.max(axis=1), self.floor) if self.power
                  else times_s.sum(axis=1) + self.floor)
        return float((each_s * self.weight).sum()
                     + self.loads(assign)[-1] @ self.price_s)


@SETTINGS
@hypothesis.given(problems.problems(), OBJECTIVES,
                  st.sampled_from((0, 1, 3, 5)), st.integers(0, 60),
                  st.integers(0, 99))
def test_the_books_agree_with_the_placement(problem, objective, power, moves,
                                            seed):
    search, start = begin(problem, objective, seed)
    run = Run(search, start, power, moves)
    inst, state = run.inst, run.state
    n, m, kk = inst.n_nodes, inst.n_hosts, len(run.weight)
    assert inst.fits(run.assign) and inst.fits(run.best)
    assert run.told_s == pytest.approx(run.cost_s(run.best), rel=1e-6)
    assert run.told_s <= run.cost_s(start) * (1 + 1e-6)
    assert state.counts[2] == moves
    load = np.array(state.load).reshape(-1, kk).T
    np.testing.assert_allclose(load, run.load, rtol=1e-9, atol=1e-3)
    used = np.zeros_like(inst.free)
    np.add.at(used, run.assign, inst.demand)
    np.testing.assert_allclose(np.array(state.free).reshape(used.shape),
                               inst.room - used, atol=1e-9)
    assert not any(state.mark)
    for host in range(m):
        count = state.n_members[host]
        here = list(state.members[host * n:host * n + count])
        assert sorted(here) == [
            j for j in inst.movable if run.assign[j] == host]
        assert [state.place[j] for j in here] == list(range(count))
    times_s = load * search.s_per_byte
    np.testing.assert_allclose(
        state.top_s, np.maximum(times_s.max(axis=1), run.floor), rtol=1e-9)
    for k in range(kk):
        if state.top_s[k] > run.floor[k]:
            assert times_s[k, state.top_port[k]] == state.top_s[k]
        powers = ((times_s[k] / state.scale[k]) ** (2 ** power)).sum() + (
            run.floor[k] / state.scale[k]) ** (2 ** power)
        assert state.power_sum[k] == pytest.approx(
            # What was added and taken again leaves its rounding.
            powers, rel=1e-4, abs=1e-12 + 1e-5 * state.power_top[k])
    assert state.priced_s[0] == pytest.approx(
        load[-1] @ run.price_s, rel=1e-6, abs=1e-9)


@SETTINGS
@hypothesis.given(problems.problems(), OBJECTIVES, st.integers(0, 99))
def test_no_move_lifts_a_port_above_its_ceiling(problem, objective, seed):
    search, start = begin(problem, objective, seed)
    before = Run(search, start, 0, 0)
    ceiling = float(before.times_s(start).max())
    run = Run(search, start, 0, 60, ceiling * (1 + 1e-9))
    for assign in (run.assign, run.best):
        assert run.times_s(assign).max() <= ceiling * (1 + 1e-6)


@SETTINGS
@hypothesis.given(problems.problems(), OBJECTIVES, st.integers(1, 4000),
                  st.integers(0, 99))
def test_work_ends_soon_after_it_may(problem, objective, most, seed):
    search, start = begin(problem, objective, seed)
    setup = Run(search, start, 3, 0).state.counts[3]
    run = Run(search, start, 3, 400, most=most)
    every = Run(search, start, 3, 400)
    made = run.state.counts[2]
    assert made <= every.state.counts[2] == 400
    if made < 400:
        assert run.state.counts[3] >= setup + most
    if made > 1:
        one_less = Run(search, start, 3, made - 1)
        assert one_less.state.counts[2] == made - 1


def test_a_run_ends_where_it_has_enough():
    search, start = begin(problems.fig_1_problem(),
                          snapshot.Objective.ISOLATED)
    best_s = Run(search, start, 5, 300).told_s
    worst = np.arange(3)
    assert Run(search, worst, 5, 300).told_s == best_s
    run = Run(search, worst, 5, 300, enough_s=best_s)
    assert run.told_s == best_s and run.state.counts[2] < 300
    idle = Run(search, start, 5, 300, enough_s=1e9)
    assert idle.state.counts[2] == 0


@SETTINGS
@hypothesis.given(problems.problems(), OBJECTIVES,
                  st.sampled_from((0, 3, 5)), st.integers(0, 10 ** 9))
def test_a_run_is_the_same_uncompiled(problem, objective, power, seed):
    """Draws, work and answers."""
    def run(code):
        search, start = begin(problem, objective, seed, code)
        budget = budgets.unlimited()
        found, value = search.anneal(start, 120, power=power, hot=0.3,
                                     budget=budget)
        polished = search.polish(found, 40, budget)
        cut = search.least_cut(start, 40, budget)
        return (found.tolist(), value, polished.tolist(), cut.tolist(),
                search.random.tolist(), search.moves_done,
                budget.clock.units)

    assert run(kernel) == run(plain(kernel.__name__))


def test_a_run_over_many_ports():
    """The largest of each block of ports is remembered."""
    n = 17
    search, start = begin(problems.fig_1_problem(
        hosts=tuple(problems.cluster.Host(f'h{m}', (2.0,), 8.0 + m, 8.0)
                    for m in range(n))), snapshot.Objective.ONLINE)
    run = Run(search, start, 3, 300)
    assert run.told_s == pytest.approx(run.cost_s(run.best), rel=1e-9)
    assert run.told_s == min(
        Run(search, np.array([0, 0, m]), 3, 0).told_s for m in range(1, n))


def test_of_ports_that_are_equally_slow_the_first_is_the_top():
    """Host 0 sends what host 16 receives, in another block of ports."""
    search, _start = begin(problems.fig_1_problem(
        hosts=tuple(problems.cluster.Host(f'h{m}', (2.0,), 8.0, 8.0)
                    for m in range(17))), snapshot.Objective.ISOLATED)
    state = Run(search, np.array([0, 16, 16]), 3, 0).state
    assert state.top_s[0] == 5.0 and state.top_port[0] == 0


def crowded(number):
    """A small problem of the benchmarks with more coflows.

    :param number: 2 has racks, 3 has pairs of hosts.
    """
    problem = reference.to_problem(generator.small(random.Random(5), number))
    return dataclasses.replace(
        problem, coflows=(*problem.coflows, coflow.Coflow.from_flows(
            'second', 7, [(0, 3, 7e8), (3, 5, 4e8), (5, 1, 2e8)])),
        active=(snapshot.ActiveCoflow('small', (('h0', 1e8),),
                                      (('h1', 1e8),)),
                snapshot.ActiveCoflow('large', (('h2', 9e8),),
                                      (('h0', 9e8),))))


#: Problem, objective and power; hosts of the nodes in the best placement and
#: in the one with fewest bytes between hosts; state of the random numbers;
#: units of work.
RECORDED = [
    (2, snapshot.Objective.ISOLATED, 0, (
        '3323211', '3323211', 6328709, 199568)),
    (2, snapshot.Objective.ISOLATED, 4, (
        '3323211', '3323112', 493826244, 198424)),
    (2, snapshot.Objective.ONLINE, 0, (
        '3321312', '3313121', 15259553, 1907296)),
    (2, snapshot.Objective.ONLINE, 4, (
        '3323211', '3323011', 10856259, 1915726)),
    (3, snapshot.Objective.ISOLATED, 0, (
        '2211103', '1002332', 1490950997, 224042)),
    (3, snapshot.Objective.ISOLATED, 4, (
        '1221031', '2001331', 3065995915, 241418)),
    (3, snapshot.Objective.ONLINE, 0, (
        '3113023', '1001331', 2921899169, 1988696)),
    (3, snapshot.Objective.ONLINE, 4, (
        '0112132', '2003113', 1600517142, 1961672)),
]
#: State of the random numbers, and units of work.
RECORDED_FULL = 725887768, 30996


@pytest.mark.parametrize('number, objective, power, expected', RECORDED)
def test_moves_of_a_seed_are_the_recorded_ones(number, objective, power,
                                               expected):
    """A changed draw, rule of acceptance or temperature ends elsewhere."""
    search, start = begin(crowded(number), objective, seed=3)
    budget = budgets.unlimited()
    found, _value = search.anneal(start, 300, power=power, hot=0.3,
                                  budget=budget)
    cut = search.least_cut(start, 100, budget)
    assert (''.join(map(str, found)), ''.join(map(str, cut)),
            int(search.random[0]), budget.clock.units) == expected


def test_hosts_of_more_nodes_than_a_move_holds_are_not_exchanged():
    """Half of an exchange would be judged, by one more random number."""
    n = localsearch.MAX_MOVE_NODES + 2
    problem = problems.fig_1_problem(
        hosts=tuple(problems.cluster.Host(f'h{m}', (float(n),), 8.0, 9.0)
                    for m in range(2)),
        vms=tuple(problems.cluster.Vm(f'v{j}', (1.0,)) for j in range(n)),
        coflows=(coflow.Coflow.from_flows('c', n, [
            (j, j - 1, 1.0 + j) for j in range(1, n)]),))
    search, _start = begin(problem, snapshot.Objective.ISOLATED)
    run = Run(search, np.arange(n) % 2, 0, 500)
    assert (run.state.random[0], run.state.counts[3]) == RECORDED_FULL
