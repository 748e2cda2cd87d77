# SPDX-License-Identifier: Apache-2.0

"""What the planner promises its callers."""

import dataclasses
import math
import random

import numpy as np
import pytest

from benchmarks import instances as generator
from benchmarks import reference
from tests.unit.solver import problems
from virtco import exception
from virtco.model import cluster
from virtco.model import coflow
from virtco.model import matrix
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import planner
from virtco.solver.model import instance as instances
from virtco.solver.model import objectives
from virtco.solver.stages import search_state as states

Objective = snapshot.Objective


@pytest.mark.parametrize('objective', [Objective.ONLINE, Objective.JOINT])
def test_fig_1_together_is_2_5_s(objective):
    plan = planner.plan(problems.fig_1_problem(), objective=objective)
    assert sum(plan.coflow_cct_s) / 2 == pytest.approx(2.5)
    assert plan.hosts[1] == plan.hosts[2] != plan.hosts[0]


def test_fig_1_as_printed_ends_at_3_s():
    """Algorithm 2 on C1 first, then C2 over the same, placed VMs."""
    both = problems.fig_1_problem()
    first = planner.plan(
        dataclasses.replace(both, coflows=both.coflows[:1]),
        objective=Objective.ISOLATED)
    assert first.cct_s == pytest.approx(2.0)
    assert first.hosts[0] == first.hosts[1]
    pinned = tuple(dataclasses.replace(vm, pinned=host) for vm, host in
                   zip(both.vms, first.hosts, strict=True))
    second = planner.plan(dataclasses.replace(both, vms=pinned))
    assert sum(second.coflow_cct_s) / 2 == pytest.approx(3.0)
    assert second.coflow_cct_s == pytest.approx((2.0, 4.0)) or (
        sum(second.coflow_cct_s) == pytest.approx(6.0))


def test_fig_1_without_co_residence_is_4_5_s():
    plan = planner.plan(problems.fig_1_problem(), planner='spread')
    assert len(set(plan.hosts)) == 3
    assert sum(plan.coflow_cct_s) / 2 == pytest.approx(4.5)


def test_fig_1_traffic_aware_is_3_s():
    plan = planner.plan(problems.fig_1_problem(), planner='min-cut')
    assert sum(plan.coflow_cct_s) / 2 == pytest.approx(3.0)


def test_online_avoids_the_host_a_running_coflow_needs():
    hosts = tuple(cluster.Host(f'h{m}', (1.0,), 8e8, 8e8) for m in range(4))
    vms = tuple(cluster.Vm(f'v{j}', (1.0,)) for j in range(2))
    mine = coflow.Coflow.from_flows('mine', 2, [(0, 1, 1e8)])
    running = snapshot.ActiveCoflow('running', (('h0', 2e8),),
                                    (('h1', 2e8),))
    plan = planner.plan(snapshot.PlacementProblem(
        hosts, vms, (mine,), active=(running,)))
    assert plan.hosts[0] != 'h0' and plan.hosts[1] != 'h1'
    # One coflow runs for 2 s, so one comes every 2 s, to one of 8 ports; a
    # second of backlog at two of them costs it half a second each.
    assert plan.objective_s == pytest.approx(1.0 + 2.0 + 2 * 0.5 / 2 / 8)


@pytest.mark.parametrize('objective, n_running, together', [
    (Objective.ONLINE, 0, False), (Objective.ONLINE, 1, True),
    (Objective.JOINT, 1, False)])
def test_bytes_are_dear_while_others_run(objective, n_running, together):
    """Two senders take 2 s together, 1.9 s apart with half as many bytes more.

    Only somebody to come would notice those.
    """
    hosts = tuple(cluster.Host(f'h{m}', (2.0,), 8e8, 8e8) for m in range(4))
    vms = tuple(cluster.Vm(f'v{j}', (1.0,), allowed=frozenset(
        ('h0', 'h1') if j < 2 else ('h2', 'h3'))) for j in range(4))
    mine = coflow.Coflow.from_flows(
        'mine', 4, [(0, 2, 1e8), (1, 3, 1e8), (0, 1, 0.9e8)])
    running = (snapshot.ActiveCoflow(
        'running', (('h0', 1.0),), (('h2', 1.0),)),) * n_running
    plan = planner.plan(snapshot.PlacementProblem(
        hosts, vms, (mine,), active=running), objective=objective)
    assert (plan.hosts[0] == plan.hosts[1]) == together
    assert plan.cct_s == pytest.approx(2.0 if together else 1.9)


def test_printed_planner_avoids_what_a_running_coflow_reserved():
    hosts = tuple(cluster.Host(f'h{m}', (1.0,), 8e8, 8e8) for m in range(3))
    vms = tuple(cluster.Vm(f'v{j}', (1.0,)) for j in range(2))
    mine = coflow.Coflow.from_flows('mine', 2, [(0, 1, 1e8)])
    running = snapshot.ActiveCoflow('running', (('h0', 2e8),),
                                    (('h1', 2e8),))
    plan = planner.plan(snapshot.PlacementProblem(
        hosts, vms, (mine,), active=(running,)), planner='virtco-printed')
    assert plan.hosts[0] != 'h0' and plan.hosts[1] != 'h1'


def test_no_vms_no_flows_no_hosts():
    hosts = problems.fig_1_problem().hosts
    empty = planner.plan(snapshot.PlacementProblem(hosts, (), ()))
    assert empty.hosts == () and empty.cct_s == 0.0 and empty.gap == 0.0
    idle = planner.plan(problems.fig_1_problem(coflows=()))
    assert len(idle.hosts) == 3 and idle.objective_s == 0.0
    for name in planner.PLANNERS:
        nothing = planner.plan(snapshot.PlacementProblem((), (), ()),
                               planner=name)
        assert nothing.hosts == () and nothing.objective_s == 0.0
    with pytest.raises(exception.PlacementInfeasible):
        planner.plan(problems.fig_1_problem(hosts=()))


def test_all_pinned_is_only_judged():
    problem = problems.fig_1_problem(vms=tuple(
        cluster.Vm(f'vm{j}', (1.0,), pinned=f'h{j}') for j in range(3)))
    plan = planner.plan(problem)
    assert plan.hosts == ('h0', 'h1', 'h2')
    assert plan.objective_s == pytest.approx(9.0)


def test_vm_larger_than_every_host_is_named():
    vms = (cluster.Vm('small', (1.0,)), cluster.Vm('giant', (3.0,)))
    with pytest.raises(exception.PlacementInfeasible, match='giant'):
        planner.plan(problems.fig_1_problem(vms=vms, coflows=()))


def test_unreachable_traffic_is_infinite_not_an_error():
    hosts = tuple(cluster.Host(f'h{m}', (1.0,), 0.0, 0.0) for m in range(2))
    vms = tuple(cluster.Vm(f'v{j}', (1.0,)) for j in range(2))
    flows = coflow.Coflow.from_flows('c', 2, [(0, 1, 1e6)])
    plan = planner.plan(snapshot.PlacementProblem(hosts, vms, (flows,)))
    assert plan.cct_s == math.inf and set(plan.hosts) == {'h0', 'h1'}


@pytest.mark.parametrize('field, changes', [
    ('egress_bps', {'egress_bps': math.nan}),
    ('ingress_bps', {'ingress_bps': -1.0}),
    ('free', {'free': (math.nan,)}),
    ('free', {'free': (math.inf,)}),
    ('free', {'free': (1.0, 2.0)}),
])
def test_senseless_hosts_are_refused(field, changes):
    good = problems.fig_1_problem().hosts
    bad = dataclasses.replace(good[0], **changes)
    with pytest.raises(exception.Invalid, match=field):
        planner.plan(problems.fig_1_problem(hosts=(bad, *good[1:])))


@pytest.mark.parametrize('vm', [
    cluster.Vm('v', (math.nan,)), cluster.Vm('v', (-1.0,)),
    cluster.Vm('v', (math.inf,)), cluster.Vm('v', (1.0, 1.0)),
    cluster.Vm('v', (1.0,), pinned='nowhere')])
def test_senseless_vms_are_refused(vm):
    with pytest.raises(exception.Invalid, match='v'):
        planner.plan(problems.fig_1_problem(vms=(vm,), coflows=()))


def test_senseless_traffic_and_arguments_are_refused():
    problem = problems.fig_1_problem()
    far = coflow.Coflow('far', matrix.Matrix.of(9, [0], [8], [1.0]))
    nan = coflow.Coflow('nan', matrix.Matrix.of(3, [0], [1], [math.nan]))
    for bad in (far, nan):
        with pytest.raises(exception.Invalid, match=bad.name):
            planner.plan(dataclasses.replace(problem, coflows=(bad,)))
    with pytest.raises(exception.Invalid, match='planner'):
        planner.plan(problem, planner='magic')
    with pytest.raises(exception.Invalid, match='budget_s'):
        planner.plan(problem, budget_s=math.nan)
    with pytest.raises(exception.Invalid, match='vm_index'):
        planner.rank_hosts(problem, planner.plan(problem), 3)


def test_two_pins_of_one_affinity_group_are_infeasible():
    vms = (cluster.Vm('a', (1.0,), pinned='h0'),
           cluster.Vm('b', (1.0,), pinned='h1'))
    group = snapshot.ServerGroup(snapshot.GroupPolicy.AFFINITY, (0, 1))
    with pytest.raises(exception.PlacementInfeasible):
        planner.plan(problems.fig_1_problem(
            vms=vms, coflows=(), server_groups=(group,)))


def test_a_bad_packing_order_is_no_excuse():
    """Only one split of 10 + 10 works; greedy orders miss it."""
    hosts = tuple(cluster.Host(f'h{m}', (10.0,), 8.0, 8.0) for m in (0, 1))
    vms = tuple(cluster.Vm(f'v{j}', (float(size),)) for j, size in
                enumerate((6, 3, 3, 2, 2, 2, 2)))
    plan = planner.plan(snapshot.PlacementProblem(hosts, vms, ()))
    assert problems.is_valid(snapshot.PlacementProblem(hosts, vms, ()),
                             plan.hosts)


def hard_item():
    """Dense, tight, not closed by the bound."""
    return generator.paper18(random.Random(5), 'pager-4m', 'dense', 'tight')


def test_large_groups_are_planned_the_same_twice():
    item = generator.datacentre(random.Random(6), 100, 100, 'zipf', 'het')
    problem = reference.to_problem(item)
    first = planner.plan(problem, objective=Objective.ISOLATED, budget_s=30)
    assert not any('cut' in note for note in first.notes)
    assert planner.plan(problem, objective=Objective.ISOLATED,
                        budget_s=30) == first


def test_one_vm_goes_where_its_sibling_is_near():
    problem = problems.fig_1_problem(
        vms=(cluster.Vm('up', (1.0,), pinned='h1'),
             cluster.Vm('new', (1.0,))),
        coflows=(coflow.Coflow.from_flows('c', 2, [(0, 1, 5.0)]),))
    plan = planner.plan(problem)
    assert plan.hosts == ('h1', 'h1') and plan.cct_s == 0.0
    ranked = planner.rank_hosts(problem, plan, 1)
    assert [row.host for row in ranked][0] == 'h1'
    assert [row.cct_s for row in ranked[1:]] == [5.0, 5.0]


def test_names_of_hosts_differ():
    host = problems.fig_1_problem().hosts[0]
    with pytest.raises(exception.Invalid, match='hosts'):
        planner.plan(problems.fig_1_problem(hosts=(host, host)))


def test_soft_policies_and_empty_groups_change_nothing():
    plain = planner.plan(problems.fig_1_problem())
    soft = tuple(snapshot.ServerGroup(policy, members, frozenset(['h0']))
                 for policy, members in (
                     (snapshot.GroupPolicy.SOFT_AFFINITY, (0, 1, 2)),
                     (snapshot.GroupPolicy.SOFT_ANTI_AFFINITY, (0, 1, 2)),
                     (snapshot.GroupPolicy.AFFINITY, ()),
                     (snapshot.GroupPolicy.ANTI_AFFINITY, ())))
    assert planner.plan(problems.fig_1_problem(
        server_groups=soft)).hosts == plain.hosts


def test_no_budget_still_gives_a_valid_plan():
    problem = reference.to_problem(hard_item())
    plan = planner.plan(problem, budget_s=0.0)
    assert problems.is_valid(problem, plan.hosts)
    assert any('budget' in note for note in plan.notes)


def test_host_classes_do_not_hide_the_fast_host():
    hosts = tuple(cluster.Host(f'h{m}', (1.0,), 8e8 if m in (3, 7) else 8e7,
                               8e8 if m in (3, 7) else 8e7)
                  for m in range(30))
    vms = tuple(cluster.Vm(f'v{j}', (1.0,)) for j in range(2))
    flows = coflow.Coflow.from_flows('c', 2, [(0, 1, 1e8)])
    problem = snapshot.PlacementProblem(hosts, vms, (flows,))
    assert set(planner.plan(problem).hosts) == {'h3', 'h7'}
    assert instances.build(problem, budgets.unlimited()).n_hosts == 2


def test_ranking_says_why():
    problem = problems.fig_1_problem(
        excluded_hosts=frozenset(['h2']))
    plan = planner.plan(problem)
    rows = planner.rank_hosts(problem, plan, 0)
    assert rows[0].host == plan.hosts[0]
    assert 'decides' in rows[0].why
    assert rows[-1].host == 'h2' and 'excluded' in rows[-1].why
    full = next(row for row in rows if row.host == plan.hosts[1])
    assert not full.feasible and 'slots' in full.why


@pytest.mark.parametrize('pin', [0, 1])
def test_ranking_says_where_a_vm_is_pinned(pin):
    problem = problems.fig_1_problem(vms=tuple(
        cluster.Vm(f'vm{j}', (1.0,), f'h{(pin + j) % 3}') for j in range(3)))
    first, *others = planner.rank_hosts(problem, planner.plan(problem), 0)
    assert (first.host, first.feasible) == (f'h{pin}', True)
    assert others and {(row.feasible, row.why) for row in others} == {
        (False, f'it is pinned to h{pin}')}


@pytest.mark.parametrize('most', [1, 2, 3, 4, 100])
def test_ranking_names_the_best_hosts_and_the_planned_one(most):
    problem = problems.fig_1_problem(excluded_hosts=frozenset(['h2']))
    plan = planner.plan(problem)
    for vm in range(len(problem.vms)):
        every = planner.rank_hosts(problem, plan, vm)
        best = planner.rank_hosts(problem, plan, vm, most=most)
        assert best == tuple(
            row for i, row in enumerate(every)
            if i < most or row.host == plan.hosts[vm])


@pytest.mark.parametrize('free, need, why', [
    (1e-9, 1.0, '0 of 1 vCPU left'), (1.0, 2.0, '1 of 2 vCPUs left'),
    (2.4996, 2.5, '2.499 of 2.5 vCPUs left')])
def test_a_host_that_is_too_full_says_what_it_lacks(free, need, why):
    problem = snapshot.PlacementProblem(
        (cluster.Host('a', (free,), 1e9, 1e9),
         cluster.Host('b', (8.0,), 1e9, 1e9)),
        (cluster.Vm('v0', (need,)), cluster.Vm('v1', (need,))),
        (coflow.Coflow.from_flows('c', 2, [(0, 1, 1e6)]),),
        resources=('vcpus',))
    full = planner.rank_hosts(problem, planner.plan(problem), 0)[-1]
    assert full.why == f'{why} beside the planned VMs'


def test_incumbents_only_improve_and_the_last_is_the_answer():
    problem = reference.to_problem(generator.hard('hose18x40', 3)[6])
    seen = []
    plan = planner.plan(problem, objective=Objective.ISOLATED, budget_s=0.1,
                        clock=budgets.Counter(), on_incumbent=seen.append)
    objectives_s = [progress.objective_s for progress in seen]
    bounds_s = [progress.bound_s for progress in seen]
    assert len(set(objectives_s)) > 2 and len(set(bounds_s)) > 1
    assert objectives_s == sorted(objectives_s, reverse=True)
    assert bounds_s == sorted(bounds_s)
    assert [p.seconds for p in seen] == sorted(p.seconds for p in seen)
    assert (plan.objective_s, plan.hosts) == (objectives_s[-1],
                                              seen[-1].hosts)
    assert plan.gap == pytest.approx(seen[-1].gap)
    assert f'incumbent {plan.objective_s:.6g} s' in str(seen[-1])


def test_a_caller_stops_the_search():
    problem = reference.to_problem(generator.hard('hose18x40', 3)[6])
    clock = budgets.Counter()
    seen = []

    def third(progress):
        seen.append(progress)
        return len(seen) == 3

    plan = planner.plan(problem, objective=Objective.ISOLATED, budget_s=9.0,
                        clock=clock, on_incumbent=third)
    assert plan.hosts == seen[2].hosts and clock() < 0.5
    assert plan.notes == ('the caller stopped the search',)


def test_the_plan_says_what_became_of_the_relaxation():
    hard = reference.to_problem(generator.hard('hose18x40', 3)[6])

    def relaxed(problem, budget_s):
        return planner.plan(problem, objective=Objective.ISOLATED,
                            budget_s=budget_s,
                            clock=budgets.Counter()).relaxed

    assert relaxed(hard, 0.5) == snapshot.Relaxed.SOLVED
    assert relaxed(hard, 0.001) == snapshot.Relaxed.NO_TIME
    easy = dataclasses.replace(hard, vms=hard.vms[:1], coflows=())
    assert relaxed(easy, 0.5) == snapshot.Relaxed.CERTIFIED_BEFORE


@pytest.mark.parametrize('rates, bottleneck', [
    (((1e9, 9e9), (9e9, 9e9)), 'h0 egress'),
    (((9e9, 9e9), (9e9, 1e9)), 'h1 ingress')])
def test_the_port_that_decides_is_named(rates, bottleneck):
    problem = snapshot.PlacementProblem(
        tuple(cluster.Host(f'h{m}', (1.0,), *rate)
              for m, rate in enumerate(rates)),
        tuple(cluster.Vm(f'v{j}', (1.0,), f'h{j}') for j in range(2)),
        (coflow.Coflow.from_flows('c', 2, [(0, 1, 1e9)]),))
    plan = planner.plan(problem, clock=budgets.Counter())
    assert plan.bottleneck == bottleneck and plan.cct_s == pytest.approx(8)
    idle = planner.plan(dataclasses.replace(problem, coflows=()),
                        clock=budgets.Counter())
    assert idle.bottleneck == 'none'


def asked_of(monkeypatch, *places):
    """What time each is given, by the counted clock."""
    asked = []

    def watch(module, name, of):
        function = getattr(module, name)

        def noted(*args, **options):
            asked.append((name, round(args[of].left_s(), 6)))
            return function(*args, **options)

        monkeypatch.setattr(module, name, noted)

    for place in places:
        watch(*place)
    return asked


def busy_problem():
    return problems.fig_1_problem(active=(snapshot.ActiveCoflow(
        'r', (('h0', 9.0),), (('h1', 9.0),)),))


def test_the_printed_planner_has_its_part_of_the_time(monkeypatch):
    asked = asked_of(monkeypatch, (planner.choices.search, 'run', 1))
    clock = budgets.Counter()
    moves = []
    run = planner.choices.search.run

    def noted(state, budget):
        run(state, budget)
        moves.append(state.local.moves_done)

    monkeypatch.setattr(planner.choices.search, 'run', noted)
    plan = planner.plan(busy_problem(), budget_s=2.0, clock=clock)
    assert asked == [('run', 1.0), ('run', 0.6)]
    assert plan.iterations == sum(moves) > 0
    # It is not asked when the time is over.
    asked.clear()
    clock = budgets.Counter()

    def slow(*args):
        clock.spend(2e9)
        run(*args)

    monkeypatch.setattr(planner.choices.search, 'run', slow)
    planner.plan(busy_problem(), budget_s=1.0, clock=clock)
    assert asked == [('run', 0.0)]


def test_the_printed_planner_has_no_more_time_than_is_left(monkeypatch):
    asked = asked_of(monkeypatch, (planner.choices.search, 'run', 1))
    clock = budgets.Counter()
    run = planner.choices.search.run

    def slow(*args):
        run(*args)
        clock.spend(9e8)

    monkeypatch.setattr(planner.choices.search, 'run', slow)
    planner.plan(busy_problem(), budget_s=1.0, clock=clock)
    assert asked == [('run', 0.5), ('run', pytest.approx(0.1, abs=0.02))]


@pytest.mark.parametrize('slots, n_runs', [(2.0, 2), (3.0, 1)])
def test_the_printed_planner_is_asked_unless_nothing_is_sent(
        monkeypatch, slots, n_runs):
    """However short it takes: three VMs on two slots send for 40 ms."""
    asked = asked_of(monkeypatch, (planner.choices.search, 'run', 1))
    planner.plan(dataclasses.replace(busy_problem(), hosts=tuple(
        cluster.Host(f'h{m}', (slots,), 800.0, 800.0) for m in range(3))),
        budget_s=0.1, clock=budgets.Counter())
    assert len(asked) == n_runs


@pytest.mark.parametrize('rule', ['spread', 'min-cut'])
def test_a_rules_bound_has_a_quarter_of_the_time(monkeypatch, rule):
    asked = asked_of(monkeypatch, (planner.lowerbounds, 'anchored_sets', 2),
                     (planner.candidates, 'spend', 1))
    plan = planner.plan(busy_problem(), planner=rule, budget_s=0.8,
                        clock=budgets.Counter())
    assert asked[0] == ('anchored_sets', pytest.approx(0.2, rel=1e-2))
    assert asked[1] == ('spend', math.inf)
    assert plan.iterations == 0 and plan.notes == ()
    asked.clear()
    planner.evaluate(busy_problem(), plan,
                     budgets.Budget(budgets.Counter(), 0.8))
    assert asked == [('anchored_sets', pytest.approx(0.2, rel=1e-2))]


def test_arrays_of_a_problem_cost_time():
    budget = budgets.unlimited()
    inst = planner._read(busy_problem(), budget)
    assert inst.n_hosts == 3
    assert budget.clock.units == (
        budgets.CALL_UNITS * planner.BUILD_CALLS
        + planner.BUILD_CELLS * 3 * (3 + 1))


@pytest.mark.parametrize('hosts', [
    ('h0', 'h1'), ('h0', 'h1', 'h2', 'h2'), ('h0', 'h1', 'h9')])
def test_plans_of_other_vms_or_hosts_are_refused(hosts):
    problem = problems.fig_1_problem()
    plan = dataclasses.replace(planner.plan(problem, planner='spread'),
                               hosts=hosts)
    with pytest.raises(exception.Invalid, match='plan.hosts'):
        planner.rank_hosts(problem, plan, 0)
    with pytest.raises(exception.Invalid, match='plan.hosts'):
        planner.evaluate(problem, plan, budgets.unlimited())


@pytest.mark.parametrize('bound_s, told_s, gap', [
    (0.0, 0.0, math.inf), (0.5, 0.5, 13.0), (3.5, 3.5, 1.0),
    (7.0, 7.0, 0.0), (9.0, 7.0, 0.0)])
def test_a_gap_is_how_far_the_bound_is(bound_s, told_s, gap):
    inst = instances.build(problems.fig_1_problem())
    apart = np.array([0, 1, 2])
    value = objectives.evaluate(inst, apart, Objective.JOINT)
    plan = planner._answer(inst, states.Outcome(
        apart, value, snapshot.Method.SPREAD, lower_s=bound_s, floor_s=2.5),
        Objective.JOINT)
    assert (plan.lower_bound_s, plan.gap) == (told_s, pytest.approx(gap))
    assert (plan.cct_s, plan.objective_s) == (7.0, 9.0)
    assert plan.objective_bound_s == 2.5 and plan.iterations == 0
    assert plan.bottleneck == 'h1 ingress'


def test_a_bound_says_what_it_is_about():
    problem = problems.fig_1_problem()
    assert planner.plan(problem).bound_scope == (
        'any placement under these constraints')
    still = dataclasses.replace(problem, vms=tuple(
        dataclasses.replace(vm, pinned=f'h{i}')
        for i, vm in enumerate(problem.vms)))
    plan = planner.plan(still)
    assert plan.bound_scope == 'this placement' and plan.gap == 0


def test_vms_that_stay_and_never_end_take_no_search():
    """Nothing moves, so that no work is done that a counter would count."""
    asked = 0

    def is_cancelled():
        nonlocal asked
        asked += 1
        assert asked < 10_000, 'the search does not end'
        return False

    tree = cluster.Tree((cluster.Subtree('r0', 1e9, 0.0),
                         cluster.Subtree('r1', 1e9, 1e9)),
                        {'h0': 'r0', 'h1': 'r1'})
    plan = planner.plan(snapshot.PlacementProblem(
        tuple(cluster.Host(name, (2.0,), 1e9, 1e9) for name in ('h0', 'h1')),
        tuple(cluster.Vm(f'v{j}', (1.0,), f'h{j}') for j in range(2)),
        (coflow.Coflow.from_flows('c', 2, [(0, 1, 1e6), (1, 0, 1e6)]),),
        tree), clock=budgets.Counter(), is_cancelled=is_cancelled)
    assert plan.hosts == ('h0', 'h1') and math.isinf(plan.cct_s)
