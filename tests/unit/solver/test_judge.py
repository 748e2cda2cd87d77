# SPDX-License-Identifier: Apache-2.0

"""The judge against the simulator, and what the planner makes of it."""

import dataclasses
import math
import types

import hypothesis
import numpy as np
import pytest

from tests import examples
from tests.unit.solver import problems
from virtco import exception
from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import planner
from virtco.solver.judging import judge
from virtco.solver.model import instance as instances
from virtco.solver.model import objectives
from virtco.solver.model import uplink_arrays as uplinks
from virtco.solver.stages import search_state as states
from virtco.solver.starts import feasible
from virtco_lab.sim import cloud
from virtco_lab.sim import simulation

ONLINE = snapshot.Objective.ONLINE


def simulated_s(problem, assign):
    """The same with the simulator."""
    names = {host.name: i for i, host in enumerate(problem.hosts)}
    sim = simulation.Simulation(np.array(
        [host.egress_bps for host in problem.hosts]
        + [host.ingress_bps for host in problem.hosts]),
        simulation.Config('mrtf'))
    demands = [cloud.demand_of(coflow.Coflow.from_flows(
        'running', len(names), [(names[a], names[b], size)
                                for a, b, size in running.pairs]),
        np.arange(len(names))) for running in problem.active]
    demands += [cloud.demand_of(own, assign) for own in problem.coflows]
    for index in sim.add(demands):
        sim.start(index)
    sim.run()
    return float(sim.completion_s().sum())


def with_pairs(problem):
    """Running coflows whose bytes have both ends, on live ports."""
    active = []
    names = {host.name for host in problem.hosts}
    for running in problem.active:
        pairs = tuple((a, b, size) for (a, size), (b, _size) in zip(
            running.out_bytes, running.in_bytes) if a != b and size > 0
            and {a, b} <= names)
        active.append(snapshot.ActiveCoflow(
            running.coflow_id, tuple((a, size) for a, _b, size in pairs),
            tuple((b, size) for _a, b, size in pairs), pairs))
    hosts = tuple(dataclasses.replace(
        host, egress_bps=host.egress_bps or 1e8,
        ingress_bps=host.ingress_bps or 1e8) for host in problem.hosts)
    return dataclasses.replace(
        problem, active=tuple(active), hosts=hosts, tree=cluster.Tree(),
        pair_rate_bps=None, hose_limits=False)


@hypothesis.settings(max_examples=examples.count(150), deadline=None)
@hypothesis.given(problems.busy_problems())
def test_it_tells_what_the_simulator_tells(problem):
    problem = with_pairs(problem)
    try:
        inst = instances.build(problem)
        assign = feasible.any_placement(inst, 0, budgets.unlimited())
    except exception.PlacementInfeasible:
        hypothesis.reject()
    told_s = judge.Judge(inst, budgets.unlimited()).total_s(assign)
    found_s = simulated_s(problem, assign[inst.node_of_vm])
    assert told_s == pytest.approx(found_s, rel=1e-6, abs=1e-9)


def shuffle(n_vms, size_bytes):
    return coflow.Coflow.from_flows('own', n_vms, [
        (a, b, size_bytes * (1 + a + b)) for a in range(n_vms)
        for b in range(n_vms) if a != b])


def busy_cloud():
    """Six hosts, two of which a long coflow keeps busy."""
    return snapshot.PlacementProblem(
        tuple(cluster.Host(f'h{m}', (2.0,), 1e9, 1e9) for m in range(6)),
        tuple(cluster.Vm(f'v{j}', (1.0,)) for j in range(6)),
        (shuffle(6, 1e7),), active=(snapshot.ActiveCoflow(
            'long', (('h0', 4e9),), (('h1', 4e9),),
            (('h0', 'h1', 4e9),)),))


def test_a_coarser_look_is_close_and_too_much_is_refused(monkeypatch):
    inst = instances.build(busy_cloud(), budgets.unlimited())
    assign = np.arange(6)
    exact = judge.Judge(inst, budgets.unlimited()).total_s(assign)
    monkeypatch.setattr(judge, 'MOST_LOOKS', 31 * 14.0)
    monkeypatch.setattr(judge, 'FEWEST_EVENTS', 10)
    assert judge.Judge(inst, budgets.unlimited()).total_s(
        assign) == pytest.approx(exact, rel=0.1)
    monkeypatch.setattr(judge, 'FEWEST_EVENTS', 50)
    assert judge.Judge(inst, budgets.unlimited()).total_s(assign) is None


def test_bytes_without_pairs_are_matched():
    running = snapshot.ActiveCoflow(
        'a', (('h0', 3.0), ('h1', 2.0)), (('h2', 4.0), ('h3', 2.0)))
    flows = judge._running((running,), [f'h{i}' for i in range(4)])
    out, into = np.zeros(5), np.zeros(5)
    for src, dst, size in zip(flows.src, flows.dst, flows.size_bytes):
        out[src] += size
        into[dst] += size
    assert out.tolist() == [3, 2, 0, 0, 1]
    assert into.tolist() == [0, 0, 4, 2, 0]


def racked(problem, uplink_bps, n_racks=2):
    """The hosts in turn in racks of these uplinks."""
    return dataclasses.replace(
        problem, tree=cluster.Tree(
            tuple(cluster.Subtree(f'r{i}', uplink_bps, uplink_bps)
                  for i in range(n_racks)),
            {host.name: f'r{m % n_racks}'
             for m, host in enumerate(problem.hosts)}))


def judged_s(problem, assign):
    inst = instances.build(problem)
    return judge.Judge(inst, budgets.unlimited()).total_s(assign)


@hypothesis.settings(max_examples=examples.count(100), deadline=None)
@hypothesis.given(problems.busy_problems())
def test_uplinks_that_never_limit_change_no_judgement(problem):
    problem = with_pairs(problem)
    try:
        inst = instances.build(problem)
        assign = feasible.any_placement(inst, 0, budgets.unlimited())
    except exception.PlacementInfeasible:
        hypothesis.reject()
    with pytest.MonkeyPatch.context() as patch:
        # Those are left out otherwise.
        patch.setattr(uplinks.uplinks, 'limiting',
                      lambda chains, *_rates: chains)
        told_s = judged_s(racked(problem, 1e15), assign)
    assert told_s == pytest.approx(judged_s(problem, assign), rel=1e-9,
                                   abs=1e-12)


def test_a_running_coflow_holds_its_racks_uplink():
    """Both coflows need all of an uplink of 1 Gbit/s, one after another."""
    hosts = tuple(cluster.Host(f'h{m}', (1.0,), 1e9, 1e9) for m in range(4))
    own = coflow.Coflow.from_flows('own', 2, [(0, 1, 125e6)])
    problem = racked(snapshot.PlacementProblem(
        hosts, tuple(cluster.Vm(f'v{j}', (1.0,)) for j in range(2)), (own,),
        active=(snapshot.ActiveCoflow(
            'a', (('h0', 125e6),), (('h1', 125e6),),
            (('h0', 'h1', 125e6),)),)), 1e9)
    across, inside = np.array([2, 3]), np.array([1, 3])
    assert judged_s(problem, across) == pytest.approx(3.0)
    assert judged_s(problem, inside) == pytest.approx(2.0)
    inst = instances.build(problem)
    assert inst.running.dense()[0, 8:].tolist() == [125e6, 0, 0, 125e6]


@hypothesis.settings(max_examples=examples.count(100), deadline=None)
@hypothesis.given(problems.busy_problems())
def test_running_coflows_load_uplinks_as_they_load_hosts(problem):
    """A rack of one host sends and receives what its host does."""
    problem = with_pairs(problem)
    alone = dataclasses.replace(
        problem, tree=cluster.Tree(
            tuple(cluster.Subtree(host.name, 1.0, 1.0)
                  for host in problem.hosts),
            {host.name: host.name for host in problem.hosts}))
    try:
        inst = instances.build(alone)
    except exception.PlacementInfeasible:
        hypothesis.reject()
    rows, m = inst.running.dense(), len(problem.hosts)
    assert rows[:, :2 * m] == pytest.approx(rows[:, 2 * m:])


@pytest.fixture
def proposals(monkeypatch):
    """Set the hosts of the online search and of the printed planner."""
    def propose(own, printed):
        inst = instances.build(busy_cloud())
        answers = iter([states.Outcome(
            assign, objectives.evaluate(inst, assign, ONLINE),
            snapshot.Method.LOCAL_SEARCH, moves=2)
            for assign in (own, printed)])
        monkeypatch.setattr(planner, '_searched', lambda *_: next(answers))
    return propose


SPREAD, PACKED = np.arange(6), 2 + np.arange(6) // 2 % 3


@pytest.mark.parametrize('placements, method', [
    ((SPREAD, PACKED), snapshot.Method.VIRTCO_PRINTED),
    ((PACKED, SPREAD), snapshot.Method.LOCAL_SEARCH),
    # The first one wins a tie.
    ((PACKED, PACKED + 1), snapshot.Method.LOCAL_SEARCH)])
def test_the_best_schedule_wins_and_the_first_on_a_tie(proposals, placements,
                                                       method):
    proposals(*placements)
    plan = planner.plan(busy_cloud())
    chosen = next(one for one in placements if one[0] == 2 or (
        method is snapshot.Method.LOCAL_SEARCH))
    assert (plan.hosts, plan.method, plan.iterations) == (
        tuple(f'h{m}' for m in chosen), method, 4)


def test_a_placement_is_simulated_once(proposals):
    spent = []
    for printed in (PACKED, PACKED[::-1], PACKED):
        proposals(PACKED, printed)
        clock = budgets.Counter()
        planner.plan(busy_cloud(), clock=clock)
        spent.append(clock.units)
    assert spent[0] == spent[2] < spent[1]


@pytest.mark.parametrize('answers, moves', [
    ((None,), 2), ((5.0, None), 4)])
def test_where_simulating_takes_too_long_the_online_answer_stands(
        proposals, monkeypatch, answers, moves):
    proposals(SPREAD, PACKED)
    left = list(answers)
    monkeypatch.setattr(judge.Judge, 'cost_s', lambda *_: left.pop(0))
    plan = planner.plan(busy_cloud())
    assert (plan.hosts, plan.iterations, left) == (
        tuple(f'h{m}' for m in SPREAD), moves, [])


def test_online_is_judged_only_where_it_can_be():
    problem = busy_cloud()
    assert planner.is_judged(problem, ONLINE)
    assert planner.is_judged(racked(problem, 1e9), ONLINE)
    for other in (dataclasses.replace(problem, active=()),
                  dataclasses.replace(problem, pair_rate_bps={})):
        assert not planner.is_judged(other, ONLINE)
    assert not planner.is_judged(problem, snapshot.Objective.JOINT)


def test_online_is_never_behind_the_proposal():
    problem = busy_cloud()
    plan = planner.plan(problem, seed=1)
    assert problems.is_valid(problem, plan.hosts)
    inst = instances.build(problem)

    def total_s(hosts):
        return judge.Judge(inst, budgets.unlimited()).total_s(np.array(
            [int(name[1:]) for name in hosts]))

    printed = planner.plan(problem, planner='virtco-printed', seed=1)
    assert total_s(plan.hosts) <= total_s(printed.hosts) * (1 + 1e-9)


@hypothesis.settings(max_examples=examples.count(60), deadline=None)
@hypothesis.given(problems.busy_problems())
def test_running_coflows_on_uplinks_cost_what_a_plain_reading_says(problem):
    if problem.pair_rate_bps is not None:
        problem = dataclasses.replace(problem, pair_rate_bps=None)
    try:
        inst = instances.build(problem)
        assign = feasible.any_placement(inst, 0, budgets.unlimited())
    except exception.PlacementInfeasible:
        hypothesis.reject()
    assert problems.close(
        objectives.evaluate(inst, assign, ONLINE).objective_s,
        problems.online_s(problem, inst.to_hosts(assign)))


def test_flows_of_a_running_coflow_are_those_that_touch_known_hosts():
    active = snapshot.ActiveCoflow('a', (), (), (
        ('h0', 'x', 5.0), ('x', 'y', 7.0), ('h0', 'h1', 0.0),
        ('h1', 'h1', 9.0),
        ('h1', 'h0', 2.0), ('h1', 'h0', 1.0), ('z', 'h1', 4.0)))
    flows = judge._running((active,), ['h0', 'h1'])
    assert list(zip(*(column.tolist() for column in flows))) == [
        (0, 0, 2, 5.0), (0, 1, 0, 3.0), (0, 2, 1, 4.0)]


@pytest.mark.parametrize('size_bytes', [1e7, 1e-4])
@pytest.mark.parametrize('most_looks, fewest, coarse', [
    (30 * 15, 15, False), (30 * 15 - 1, 14, True), (30 * 15, 16, None)])
def test_how_closely_a_schedule_is_looked_at(monkeypatch, most_looks, fewest,
                                             coarse, size_bytes):
    """Thirty own flows: 15 events are one of every two flows.

    A dead port that nothing passes is not looked at.
    """
    problem = dataclasses.replace(
        busy_cloud(), active=(), coflows=(shuffle(6, size_bytes),), hosts=(
            *busy_cloud().hosts, cluster.Host('h6', (2.0,), 0.0, 0.0)))
    inst = instances.build(problem)
    asked = []

    def run(_judge, fabric, rules, step_s, most_events):
        asked.append((len(fabric.base), rules.each_flow, step_s, most_events))
        return 3.0

    monkeypatch.setattr(judge.Judge, '_run', run)
    monkeypatch.setattr(judge, 'MOST_LOOKS', most_looks)
    monkeypatch.setattr(judge, 'FEWEST_EVENTS', fewest)
    budget = budgets.unlimited()
    told_s = judge.Judge(inst, budget).total_s(np.arange(6))
    assert told_s == (None if coarse is None else 3.0)
    if coarse is None:
        assert not asked and budget.clock.units == 0
        return
    # VM 5 sends 6 + 7 + 8 + 9 + 10 times this, at 1 Gbit/s.
    slowest_s = 40 * size_bytes * 8 / 1e9
    assert asked == [(30, not coarse, pytest.approx(
        slowest_s / (most_looks / 30) if coarse else math.inf),
        4 * most_looks / 30)]
    assert budget.clock.units == pytest.approx(
        judge.JUDGE_CALLS * budgets.CALL_UNITS
        + judge.FLOW_CELLS * 30 * budgets.CELL_UNITS)


@pytest.mark.parametrize('events, looks', [(2, 30), (59, 2)])
@pytest.mark.parametrize('step_s, found_s', [(1.0, None), (0.0, math.inf)])
def test_a_schedule_that_takes_too_long_has_no_cost(
        monkeypatch, step_s, found_s, events, looks):
    """One in which nothing moves has no end. The last event is looked at."""
    problem = dataclasses.replace(busy_cloud(), active=())
    inst = instances.build(problem)
    asked = []

    def advance(_rater, _run, _live, n_live, now_s, until_s, most, stop):
        asked.append((n_live, now_s, until_s, most, stop))
        return now_s + step_s, n_live, min(events, most)

    monkeypatch.setattr(judge, 'event_kernels',
                        types.SimpleNamespace(advance=advance))
    monkeypatch.setattr(judge, 'MOST_LOOKS', 30 * 15)
    monkeypatch.setattr(judge, 'FEWEST_EVENTS', 15)
    budget = budgets.unlimited()
    judged = judge.Judge(inst, budget)
    assert judged.cost_s(np.arange(6)) == found_s
    assert asked[0] == (1, 0.0, math.inf, 60, False)
    assert len(asked) == (looks if found_s is None else 1)
    begun = budgets.unlimited()
    begun.spend_numpy(judge.JUDGE_CALLS, judge.FLOW_CELLS * 30)
    assert budget.clock.units - begun.clock.units == pytest.approx(
        judge.LOOK_UNITS * 30 * (60 if found_s is None else events))


def test_a_port_without_a_rate_is_never_passed():
    problem = busy_cloud()
    dead = dataclasses.replace(problem, hosts=(
        *problem.hosts[:5], cluster.Host('h5', (2.0,), 0.0, 1e9)))
    assert judged_s(dead, np.arange(6)) == math.inf
    assert judged_s(dead, np.arange(6) // 2) < math.inf


def test_those_to_come_weigh_three_tenths_beside_a_schedule():
    inst = instances.build(busy_cloud())
    assign = np.arange(6)
    total_s = judge.Judge(inst, budgets.unlimited()).total_s(assign)
    ahead_s = objectives.evaluate(inst, assign, ONLINE).ahead_s
    assert ahead_s > 0
    assert judge.Judge(inst, budgets.unlimited()).cost_s(
        assign) == pytest.approx(total_s + 0.3 * ahead_s)
