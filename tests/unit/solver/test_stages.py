# SPDX-License-Identifier: Apache-2.0

"""What the stages of a search share, and when each has something to do."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from tests.unit.solver import problems
from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import search
from virtco.solver.bounds import lowerbounds
from virtco.solver.judging import judge
from virtco.solver.model import instance as instances
from virtco.solver.model import objectives
from virtco.solver.stages import annealing
from virtco.solver.stages import finishing
from virtco.solver.stages import proofs
from virtco.solver.stages import search_state as states

ISOLATED = snapshot.Objective.ISOLATED
ONLINE = snapshot.Objective.ONLINE
BEST_FIT = snapshot.Method.BEST_FIT
SPREAD = snapshot.Method.SPREAD
#: VirtCO Fig. 1, both coflows at once: the best takes 4 s, apart VM 2
#: receives for 7 s.
TOGETHER, APART = np.array([0, 0, 1]), np.array([0, 1, 2])


def begin(objective=ISOLATED, seconds=math.inf, seen=None, answer=None,
          problem=None, **options):
    inst = instances.build(problem or problems.fig_1_problem())
    return states.State(inst, states.Task(
        objective, 1, budgets.Budget(budgets.Counter(), seconds),
        on_incumbent=None if seen is None else (
            lambda progress: seen.append(progress) or answer), **options))


def value(objective_s, cct_s=0.0, ahead_s=0.0):
    return objectives.Evaluation(cct_s, (), objective_s, ahead_s, -1)


def test_only_a_better_offer_is_the_answer():
    seen = []
    state = begin(seen=seen)
    state.offer(BEST_FIT, None)
    assert state.best is None and not seen
    state.offer(BEST_FIT, APART)
    first = state.answer
    assert first.value.objective_s == pytest.approx(7.0)
    assert first.method == BEST_FIT and len(seen) == 1
    assert (first.lower_s, first.floor_s, first.moves) == (0.0, 0.0, 0)
    state.offer(SPREAD, APART)
    assert state.answer is first and len(seen) == 1
    offered = TOGETHER.copy()
    state.offer(SPREAD, offered)
    offered[:] = 0
    assert state.answer.assign.tolist() == TOGETHER.tolist()
    assert state.answer.method == SPREAD
    assert [p.hosts for p in seen] == [('h0', 'h1', 'h2'),
                                       ('h0', 'h0', 'h1')]
    assert seen[0].objective_s > seen[1].objective_s
    assert not state.pool


def test_the_isolated_time_decides_between_equal_objectives():
    assert value(2.0, 1.0).key < value(2.0, 1.5).key
    assert value(1.0, 9.0).key < value(2.0, 0.0).key


def test_the_pool_hands_out_its_best():
    state = begin()
    for objective_s, cct_s in ((3.0, 3.0), (1.0, 2.0), (2.0, 2.0),
                               (1.0, 1.0)):
        state.add(SPREAD, APART, value(objective_s, cct_s))
    assert [one.value.key for one in state.starts(3)] == [
        (1.0, 1.0), (1.0, 2.0), (2.0, 2.0)]
    assert state.answer.value.key == (1.0, 1.0)
    state.add(BEST_FIT, TOGETHER)
    assert len(state.pool) == 5
    assert state.pool[-1].value == state.evaluate(TOGETHER)


def test_bounds_only_rise_and_are_told_where_they_matter():
    seen = []
    state = begin(seen=seen)
    state.raise_bound(1.0)
    assert (state.lower_s, state.floor_s) == (1.0, 1.0) and not seen
    state.add(SPREAD, APART)
    state.raise_bound(0.5)
    state.raise_bound(1.0)
    assert (state.lower_s, state.floor_s) == (1.0, 1.0) and len(seen) == 1
    state.raise_bound(1.5)
    assert (state.lower_s, state.floor_s) == (1.5, 1.5)
    state.raise_floor(9.0)
    assert state.lower_s == 1.5
    # No bound is told above what was found.
    assert [p.bound_s for p in seen] == [1.0, 1.5, seen[-1].objective_s]
    several = begin(ONLINE)
    several.raise_bound(1.0)
    assert (several.lower_s, several.floor_s) == (1.0, 0.0)


@pytest.mark.parametrize('answer', [False, True])
def test_the_caller_may_have_enough(answer):
    state = begin(seen=[], answer=answer)
    state.offer(SPREAD, APART)
    assert state.budget.is_stopped() is answer
    assert state.is_done(state.budget) is answer


def test_an_answer_is_closed_where_its_bound_is():
    state = begin()
    assert not state.is_closed()
    state.offer(SPREAD, APART, value(8.0, ahead_s=3.0))
    state.raise_floor(4.9)
    assert not state.is_closed() and state.is_closed(0.1)
    state.raise_floor(5.0)
    assert state.is_closed() and state.is_done(state.budget)


def test_a_stage_is_done_without_time():
    state = begin()
    state.offer(SPREAD, APART)
    assert not state.is_done(state.budget)
    assert state.is_done(state.budget.slice(0.5, most_s=0.0))


def test_dear_moves_are_fewer():
    def moves(n_vms):
        flows = [(a, b, 1e6) for a in range(n_vms) for b in range(n_vms)
                 if a != b]
        state = begin(problem=snapshot.PlacementProblem(
            (cluster.Host('h', (99.0,), 1e9, 1e9),),
            tuple(cluster.Vm(f'v{n}', (1.0,)) for n in range(n_vms)),
            (coflow.Coflow.from_flows('c', n_vms, flows),)))
        return state.moves(10)

    assert moves(1) == 10
    assert moves(states.USUAL_DEGREE + 1) == 410
    # Twice the neighbours, half the moves per node.
    assert moves(2 * states.USUAL_DEGREE + 1) == 5 * 81


def test_evaluating_costs_time():
    state = begin()
    before = state.budget.clock.units
    state.evaluate(APART)
    assert state.budget.clock.units - before == (
        budgets.CALL_UNITS * states.EVALUATE_CALLS
        + states.EVALUATE_CELLS * 6)


def test_annealing_stops_at_the_bound():
    state = begin()
    state.add(SPREAD, APART)
    state.raise_floor(state.answer.value.objective_s)
    state.anneal(APART, 500, 0.1, 5, state.budget)
    assert state.local.moves_done == 0
    state = begin()
    state.anneal(APART, 500, 0.1, 5, state.budget)
    assert state.local.moves_done == 500
    assert state.answer.method == snapshot.Method.LOCAL_SEARCH
    assert state.answer.value.cct_s == pytest.approx(4.0)


def test_a_stage_for_one_coflow_leaves_several_alone_and_back():
    several, one = begin(ONLINE), begin()
    for state in (several, one):
        state.offer(SPREAD, APART)
    proofs.try_all(one, one.budget)
    assert one.answer.method == SPREAD
    proofs.try_all(several, several.budget)
    assert several.answer.method == snapshot.Method.EXHAUSTIVE
    assert several.floor_s == several.answer.value.objective_s
    untouched = begin(ONLINE)
    untouched.offer(SPREAD, APART)
    proofs.solve(untouched, untouched.budget)
    proofs.exhaust(untouched, untouched.budget)
    assert untouched.partition is None and untouched.floor_s == 0


def test_set_partition_bounds_several_coflows_together():
    state = begin(ONLINE)
    state.add(SPREAD, APART)
    before_s = state.answer.value.objective_s
    proofs.prove(state, state.budget)
    assert state.relaxed and state.floor_s == 0
    assert state.lower_s == pytest.approx(4.0)
    assert state.answer.method == snapshot.Method.SET_PARTITION
    assert state.answer.value.objective_s < before_s


def test_set_partition_closes_a_group():
    state = begin()
    state.add(SPREAD, APART)
    proofs.solve(state, state.budget)
    assert state.relaxed and state.is_closed(1e-6)
    assert state.answer.value.cct_s == pytest.approx(4.0)
    assert state.lower_s == pytest.approx(4.0)
    late = begin(seconds=proofs.LEAST_UNITS * 9 / budgets.UNITS_PER_S)
    late.offer(SPREAD, APART, value(6.0, 6.0))
    late.budget.spend(1)
    proofs.solve(late, late.budget)
    assert late.partition is None and not late.relaxed


@pytest.mark.parametrize('cct_s', [0.0, math.inf])
def test_nothing_is_proven_of_no_time_and_of_endless(cct_s):
    state = begin()
    state.offer(SPREAD, APART, value(cct_s, cct_s))
    proofs.solve(state, state.budget)
    assert not state.relaxed


@pytest.mark.parametrize('most, tried', [(8, False), (9, True)])
def test_a_large_group_is_not_partitioned(monkeypatch, most, tried):
    """Three nodes on three hosts."""
    monkeypatch.setattr(proofs, 'MAX_CELLS', most)
    state = begin()
    state.add(SPREAD, APART)
    proofs.solve(state, state.budget)
    assert state.relaxed is tried


def test_small_groups_are_enumerated_where_hosts_are_tied():
    tree = cluster.Tree((cluster.Subtree('s', 8.0, 8.0),),
                        {'h0': 's', 'h1': 's'})
    for changes, tried in (({}, False), ({'tree': tree}, True)):
        state = begin(problem=problems.fig_1_problem(**changes))
        state.offer(SPREAD, APART)
        proofs.exhaust(state, state.budget)
        assert state.is_closed() is tried
        assert (state.answer.method
                == snapshot.Method.EXHAUSTIVE) is tried


def test_the_first_bound_keeps_its_sets(monkeypatch):
    state = begin()
    proofs.bound(state, state.budget)
    assert state.lower_s == state.floor_s > 0
    assert state.bound.sets
    cut = begin(seconds=1e-9)
    proofs.bound(cut, cut.budget)
    assert cut.lower_s == 0 and not cut.bound.sets
    # Trees that are too small are left, as they may take long.
    monkeypatch.setattr(lowerbounds, 'TREE_LIMIT', 1)
    state = begin()
    proofs.bound(state, state.budget)
    assert state.lower_s < 3.9


def test_a_partition_begins_with_the_sets_of_the_bound():
    state = begin()
    proofs.bound(state, state.budget)
    partition = proofs._begun(state, 7.0, state.budget)
    assert [True, True, False] in partition.pool.members.tolist()


@pytest.mark.parametrize('objective', [ISOLATED, ONLINE])
def test_bounds_hold_for_the_objective(objective):
    state = begin(objective)
    proofs.bound(state, state.budget)
    best = min((state.evaluate(np.array(assign)) for assign in (
        (0, 0, 1), (0, 1, 0), (0, 1, 1), (0, 1, 2))),
        key=lambda value: value.key)
    assert 0 < state.floor_s <= best.objective_s
    assert state.lower_s <= best.cct_s


@pytest.mark.parametrize('seed', range(4))
def test_groups_that_wait_together_get_the_best_schedule(seed):
    rng = np.random.default_rng(seed)
    room = tuple(cluster.Host(f'h{i}', (slots,), *rng.choice((4.0, 8.0), 2))
                 for i, slots in enumerate((3.0, 2.0, 3.0, 2.0, 2.0)))
    problem = snapshot.PlacementProblem(
        room, tuple(cluster.Vm(f'v{i}', (1.0,)) for i in range(12)),
        tuple(coflow.Coflow.from_flows(f'c{first}', 12, [
            (first + src, first + dst, float(rng.integers(1, 9)))
            for src, dst in itertools.permutations(range(4), 2)])
            for first in (0, 4, 8)))
    state = begin(snapshot.Objective.JOINT, 0.5, problem=problem)
    search.run(state, state.budget)
    found = judge.Judge(state.inst, budgets.unlimited())
    sums_s = [found.total_s(one.assign)
              for one in state.starts(finishing.N_JUDGED)]
    assert found.total_s(state.answer.assign) == pytest.approx(min(sums_s))
    assert sums_s[0] > 1.02 * min(sums_s)


def test_one_group_is_not_judged_again(monkeypatch):
    monkeypatch.setattr(finishing.judging, 'Judge', None)
    for objective in (ONLINE, ISOLATED):
        state = begin(objective)
        state.offer(BEST_FIT, APART)
        finishing.judge(state, state.budget)
        assert state.answer.method == BEST_FIT


def test_polish_looks_at_others_only_for_others():
    state = begin(ISOLATED)
    state.offer(SPREAD, APART)
    before = state.answer
    finishing.polish(state, state.budget)
    assert state.answer is before
    late = begin(ONLINE, seconds=1e-9)
    late.offer(SPREAD, APART)
    before = late.answer
    finishing.polish(late, late.budget)
    assert late.answer is before


def test_polish_moves_fewer_bytes_at_the_same_objective():
    """Another coflow waits for the slow port, so two may part or not."""
    names = [f'h{n}' for n in range(4)]
    problem = snapshot.PlacementProblem(
        tuple(cluster.Host(name, (2.0,), 8.0, 8.0) for name in names),
        tuple(cluster.Vm(f'v{n}', (1.0,), pin) for n, pin in enumerate(
            ('h0', 'h1', None, None))),
        (coflow.Coflow.from_flows('c', 4, [(0, 1, 10), (2, 3, 1)]),))
    state = begin(ONLINE, problem=problem)
    state.offer(SPREAD, np.array([0, 1, 2, 3]))
    before = state.answer
    finishing.polish(state, state.budget)
    after = state.answer
    assert after.value.objective_s == before.value.objective_s
    assert after.assign[2] == after.assign[3]
    assert after.method == SPREAD


def test_heat_and_norm_alternate_by_rank():
    one, several = begin(), begin(ONLINE)
    assert [annealing._heat(one, n) for n in range(3)] == [
        0.1, annealing.REHEAT, 0.1]
    assert [annealing._heat(several, n) for n in range(3)] == [
        annealing.REHEAT, 0.3, annealing.REHEAT]
    assert [annealing.power(one, n) for n in range(3)] == [5, 6, 5]
    assert [annealing.power(several, n) for n in range(3)] == [3, 4, 3]


@pytest.mark.parametrize('stage, runs', [
    (annealing.quick, (annealing.QUICK,)),
    (annealing.deepen, annealing.DEEPER)])
def test_a_stage_anneals_so_often(stage, runs):
    state = begin()
    state.add(BEST_FIT, APART)
    stage(state, state.budget)
    assert len(state.pool) == 1 + sum(n for _moves, n in runs)
    assert state.local.moves_done == sum(
        state.moves(moves) * n for moves, n in runs)
    late = begin(seconds=1e-9)
    late.add(BEST_FIT, APART)
    stage(late, late.budget)
    assert len(late.pool) == 2


def regrouped(monkeypatch, *sets, assign=(0, 1, 2, 2), then=None,
              objective=ISOLATED, **changes):
    """Starts of the runs in which a set of four nodes is put together.

    h0 and h1 have 2 slots and are slow, h3 and h4 have room and are fast.
    Node 0 sends 9 to node 1 and 1 to node 2, which sends 5 to node 3.
    """
    problem = snapshot.PlacementProblem(
        tuple(cluster.Host(f'h{m}', (slots,), rate, 8.0)
              for m, (slots, rate) in enumerate(
                  ((2.0, 8.0), (2.0, 8.0), (2.0, 8.0), (3.0, 16.0),
                   (3.0, 32.0)))),
        tuple(cluster.Vm(f'v{n}', (1.0,), **more) for n, more in enumerate(
            changes.pop('vms', ({},) * 4))),
        (coflow.Coflow.from_flows('c', 4, [(0, 1, 9), (0, 2, 1),
                                           (2, 3, 5)]),), **changes)
    state = begin(objective, problem=problem)
    state.offer(SPREAD, np.array(assign))
    state.bound = lowerbounds.Bound(0.0, tuple(
        np.isin(range(4), nodes) for nodes in sets))
    starts = []

    def anneal(start, moves, hot, power, _budget):
        assert (moves, hot, power) == (
            state.moves(annealing.REGROUP[0]), annealing.REHEAT, 5)
        starts.append(start.tolist())
        if then is not None:
            then(state, len(starts))

    monkeypatch.setattr(state, 'anneal', anneal)
    annealing.regroup(state, state.budget)
    return starts


def test_sets_of_the_slowest_host_go_together_to_the_best_empty_one(
        monkeypatch):
    # Node 0 sends most, and more to node 1; node 2 and 3 are elsewhere.
    assert regrouped(monkeypatch, (0, 2), (0, 1), (2, 3)) == [
        [4, 4, 2, 2], [4, 1, 4, 2]]
    assert regrouped(monkeypatch, (2, 3)) == []
    assert regrouped(monkeypatch, (0, 1), (0, 1)) == [[4, 4, 2, 2]]
    assert regrouped(monkeypatch) == []
    assert regrouped(monkeypatch, (0, 1), objective=ONLINE,
                     active=(snapshot.ActiveCoflow(
                         'a', (('h0', 1.0),), (('h1', 1.0),)),)) == []
    # Its own host is empty without it.
    assert regrouped(monkeypatch, (0, 1), assign=(4, 1, 2, 2)) == [
        [4, 4, 2, 2]]


@pytest.mark.parametrize('vms, start', [
    # No pinned node moves; a host has to take all; so has its zone.
    (({'pinned': 'h0'}, {}, {}, {}), []),
    (({}, {'allowed': frozenset({'h1', 'h2', 'h3'})}, {}, {}),
     [[3, 3, 2, 2]]),
    (({}, {'allowed': frozenset({'h2'})}, {}, {}), [])])
def test_sets_go_where_they_may(monkeypatch, vms, start):
    assert regrouped(monkeypatch, (0, 1), vms=vms) == start


def test_sets_need_an_empty_host_with_room(monkeypatch):
    assert regrouped(monkeypatch, (0, 1, 2, 3)) == []
    assert regrouped(monkeypatch, (0, 1, 2), assign=(0, 1, 2, 4)) == [
        [3, 3, 3, 4]]
    # A set that has no host is no run: the next one has its turn.
    assert regrouped(monkeypatch, (0, 1, 2, 3), (0, 1)) == [[4, 4, 2, 2]]
    # Two switches share the four, two each, and t has both of its own.
    spread = {'tree': cluster.Tree(
        tuple(cluster.Subtree(name, math.inf, math.inf) for name in 'st'),
        {f'h{m}': 'st'[m > 2] for m in range(5)}),
        'spread': (snapshot.Spread('rack', (0, 1, 2, 3)),)}
    assert regrouped(monkeypatch, (0, 1, 2), assign=(0, 3, 1, 4),
                     **spread) == []
    assert regrouped(monkeypatch, (0, 1), assign=(0, 1, 3, 3),
                     **spread) == []


def test_uplinks_have_no_sets(monkeypatch):
    tree = cluster.Tree((cluster.Subtree('s', 0.5, 8.0),),
                        {'h0': 's'})
    assert regrouped(monkeypatch, (0, 1), tree=tree) == []


def test_regrouping_ends_where_it_no_longer_helps(monkeypatch):
    one_each = [(0, 1), (0, 2), (0,), (0, 3), (0, 1, 2)]
    assert len(regrouped(monkeypatch, *one_each)) == annealing.REGROUP[1]

    def better(state, n):
        if n == 1:
            state.offer(SPREAD, state.answer.assign, value(1.0, 1.0))
            state.best = dataclasses.replace(state.answer, value=(
                dataclasses.replace(value(9.5, 9.5), port=0)))

    assert len(regrouped(monkeypatch, *one_each, then=better)) == (
        1 + annealing.REGROUP[1])

    def closed(state, n):
        state.raise_floor(state.answer.value.cct_s)

    assert len(regrouped(monkeypatch, *one_each, then=closed)) == 1


def test_rounds_end_where_they_no_longer_help():
    state = begin()
    state.add(BEST_FIT, APART)
    state.raise_floor(0.9 * 4.0)
    annealing.rounds(state, state.budget)
    assert state.answer.value.cct_s == pytest.approx(4.0)
    assert not state.is_closed(annealing.CLOSE)
    closed = begin()
    closed.add(BEST_FIT, TOGETHER, value(1.0005, 1.0005))
    closed.raise_floor(1.0)
    annealing.rounds(closed, closed.budget)
    assert len(closed.pool) == 1


def test_the_outcome_says_why_it_ended():
    def outcome(lower_s=0.0, floor_s=0.0, relaxed=False, pipe=False,
                seconds=math.inf, objective=ISOLATED, stop=False):
        state = begin(objective, seconds)
        state.inst = dataclasses.replace(state.inst, pipe=pipe)
        state.offer(SPREAD, APART, value(6.0, 6.0))
        state.lower_s, state.floor_s = lower_s, floor_s
        state.relaxed = relaxed
        state.budget.spend(10)
        if stop:
            state.budget.stop()
        return search.outcome(state)

    late = 'the time budget cut the search short'
    stopped = 'the caller stopped the search'
    assert outcome().notes == ()
    assert outcome(seconds=1e-9).notes == (late,)
    assert outcome(seconds=1e-9, floor_s=6.0).notes == ()
    assert outcome(stop=True).notes == (stopped,)
    assert outcome(objective=ONLINE, floor_s=2.5).notes == (
        'the objective of any placement under these constraints is at '
        'least 2.5 s',)
    assert outcome(lower_s=4.0).lower_s == 4.0
    assert outcome(lower_s=6.0 - 1e-9).lower_s == 6.0
    assert outcome(lower_s=7.0).lower_s == 6.0
    relaxed = snapshot.Relaxed
    assert outcome(relaxed=True, floor_s=6.0).relaxed == relaxed.SOLVED
    assert outcome(floor_s=6.0).relaxed == relaxed.CERTIFIED_BEFORE
    assert outcome().relaxed == relaxed.NO_TIME
    assert outcome(objective=ONLINE).relaxed == relaxed.NO_TIME


def test_a_stage_takes_no_more_than_there_is():
    stages = (*search.STAGES, *search.FINISH)
    assert all(0 < stage.share <= 1 for stage in stages)
    assert len({stage.name for stage in stages}) == len(stages)


def annealed(state, monkeypatch, then=None):
    """Runs that a stage asks for, as (moves, heat, power)."""
    asked = []

    def anneal(start, moves, hot, power, _budget):
        asked.append((moves, hot, power))
        if then is not None:
            then(len(asked))

    monkeypatch.setattr(state, 'anneal', anneal)
    return asked


@pytest.mark.parametrize('objective, heats, powers', [
    (ISOLATED, [0.1] * 3, [5, 6, 5]), (ONLINE, [0.3] * 3, [3, 4, 3])])
def test_the_first_runs_are_hot(monkeypatch, objective, heats, powers):
    state = begin(objective)
    state.add(BEST_FIT, APART)
    asked = annealed(state, monkeypatch)
    annealing.quick(state, state.budget)
    assert asked == [(state.moves(500), heat, power)
                     for heat, power in zip(heats, powers, strict=True)]
    asked.clear()
    annealing.deepen(state, state.budget)
    heats = [0.03, 0.03, 0.1] if objective is ISOLATED else [0.3, 0.3, 0.03]
    assert asked == [
        (state.moves(moves), heat, power) for moves, heat, power in zip(
            (2000, 6000, 6000), heats,
            (powers[1], powers[1], powers[0]), strict=True)]


def test_each_round_proves_in_between(monkeypatch):
    def proven(then=None):
        state = begin(seconds=1.0)
        state.add(SPREAD, APART)
        state.add(SPREAD, TOGETHER, value(8.0, 8.0))
        asked, again = annealed(state, monkeypatch), []

        def prove(_state, budget):
            again.append(budget.left_s() / state.budget.left_s())
            if then is not None:
                then(state, len(again))

        monkeypatch.setattr(annealing.proofs, 'prove', prove)
        state.partition = object()
        annealing.rounds(state, state.budget)
        return len(asked), again

    n_runs, again = proven()
    assert n_runs == 3 * 2
    assert again == pytest.approx([annealing.PARTITION_SHARE] * 3)
    # Nearly closed is enough.
    assert proven(lambda state, _n: state.raise_floor(7.0 / 1.0005)) == (
        2, [pytest.approx(annealing.PARTITION_SHARE)])

    def better(state, n):
        if n == 2:
            state.offer(SPREAD, TOGETHER, value(6.9, 6.9))

    assert len(proven(better)[1]) == 2 * 3

    def hardly(state, n):
        state.offer(SPREAD, TOGETHER, value(6.999, 6.999))

    assert len(proven(hardly)[1]) == 3


def test_rounds_are_long_and_endless_where_hosts_are_tied(monkeypatch):
    tree = cluster.Tree((cluster.Subtree('s', 8.0, 8.0),),
                        {'h0': 's', 'h1': 's'})
    state = begin(seconds=1.0, problem=problems.fig_1_problem(tree=tree))
    state.add(SPREAD, APART)
    state.add(SPREAD, TOGETHER, value(8.0, 8.0))
    asked, shares = annealed(state, monkeypatch, lambda n: (
        state.budget.stop() if n == 3 * 2 + 1 else None)), []
    monkeypatch.setattr(
        annealing.proofs, 'prove', lambda _state, budget: shares.append(
            budget.left_s() / state.budget.left_s()))
    state.partition = object()
    annealing.rounds(state, state.budget)
    lengths = [state.moves(n) for n in (6000, 6000, 20000)]
    assert [moves for moves, _heat, _power in asked] == [
        *lengths, *lengths, lengths[0]]
    assert shares == pytest.approx([annealing.TIED_SHARE] * 4)


def test_who_certifies_goes_on_to_the_end(monkeypatch):
    state = begin(certify=True)
    state.add(SPREAD, APART)
    asked = annealed(state, monkeypatch, lambda n: (
        state.budget.stop() if n == 8 else None))
    monkeypatch.setattr(annealing.proofs, 'prove', None)
    state.partition = object()
    annealing.rounds(state, state.budget)
    assert len(asked) == 8



@pytest.mark.parametrize('floor_s, ahead_s, annealed', [
    (5.0, 3.0, True), (4.9, 3.0, False), (8.0, 0.0, False),
    (8.0, 1e-3, True)])
def test_those_to_come_are_looked_at_where_the_known_are_done(
        monkeypatch, floor_s, ahead_s, annealed):
    state = begin(ONLINE)
    state.offer(SPREAD, APART, value(8.0, ahead_s=ahead_s))
    state.raise_floor(floor_s)
    asked = []

    def anneal(assign, moves, *, hot, budget):
        asked.append((moves, hot))
        return assign, None

    monkeypatch.setattr(state.local, 'anneal', anneal)
    monkeypatch.setattr(state.local, 'polish',
                        lambda assign, moves, budget: assign)
    finishing.polish(state, state.budget)
    assert asked == [(state.moves(300), 0.03)] * annealed
