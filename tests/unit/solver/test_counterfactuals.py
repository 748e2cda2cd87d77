# SPDX-License-Identifier: Apache-2.0

"""What decided a placement, on problems whose answer is plain."""

import dataclasses
import math

import hypothesis
import pytest

from tests.unit.solver import problems
from tests.unit.solver import test_counted
from virtco import exception
from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import counterfactuals
from virtco.solver import planner
from virtco.solver import smallgroup

GB = 1e9


def problem(rooms=(0, 1, 1), rates=(8e9, 8e9, 8e9), active=(), **changes):
    """One VM on h0 sends 1 GB to another that is to be placed."""
    return snapshot.PlacementProblem(**{
        'hosts': tuple(cluster.Host(f'h{i}', (float(room),), rate, rate)
                       for i, (room, rate) in enumerate(zip(rooms, rates))),
        'vms': (cluster.Vm('v0', (1.0,), pinned='h0', counted=True),
                cluster.Vm('v1', (1.0,))),
        'coflows': (coflow.Coflow.from_flows('c', 2, [(0, 1, GB)]),),
        'active': active} | changes)


def explain(asked, budget=None):
    budget = budget or budgets.unlimited()
    return counterfactuals.explain(
        asked, planner.plan(asked, clock=budgets.Counter()), 1, budget)


def only(explained, kind):
    return [reason for reason in explained.reasons if reason.kind == kind]


def test_one_slot_more():
    explained = explain(problem())
    assert explained.is_complete
    (reason,) = only(explained, 'room')
    assert (reason.subject, reason.host) == ('h0', 'h0')
    assert (reason.cct_s, reason.instead_of_s) == (0, pytest.approx(1))
    assert reason.saved_objective_s == pytest.approx(1)
    assert reason.text.startswith(
        'with one slot more on h0: 0 s instead of 1 s')


def test_one_slot_more_where_there_is_no_time_to_plan_again(monkeypatch):
    """Another coflow runs, and the VM alone would move."""
    monkeypatch.setattr(smallgroup, 'MAX_JUDGED', 0)
    asked = problem(rooms=(1, 0, 1), vms=(
        cluster.Vm('v0', (1.0,), pinned='h1', counted=True),
        cluster.Vm('v1', (1.0,))), active=(
        snapshot.ActiveCoflow('x', (('h2', 5 * GB),), ()),))
    plan = planner.plan(asked, clock=budgets.Counter())
    (reason,) = only(explain(asked, budgets.Budget(
        budgets.Counter(), 1e-9)), 'room')
    assert (reason.subject, reason.host, reason.cct_s) == ('h1', 'h1', 0.0)
    moved = planner.evaluate(asked, dataclasses.replace(
        plan, hosts=('h1', 'h1')), budgets.unlimited())
    assert reason.saved_objective_s == pytest.approx(
        plan.objective_s - moved.objective_s)


@pytest.mark.parametrize(('allowed', 'excluded', 'subjects'), [
    (None, set(), ['h0']), (None, {'h0'}, []), ({'h1', 'h2'}, set(), []),
    ({'h0', 'h1'}, set(), ['h0'])])
def test_rooms_count_on_hosts_that_the_vm_may_use(allowed, excluded,
                                                  subjects):
    asked = problem(excluded_hosts=frozenset(excluded), vms=(
        cluster.Vm('v0', (1.0,), pinned='h0', counted=True),
        cluster.Vm('v1', (1.0,), allowed=allowed and frozenset(allowed))))
    questions = counterfactuals._Asked(
        asked, planner.plan(asked, clock=budgets.Counter()), 1,
        budgets.unlimited(), 0)
    assert [one and one.subject for one in questions.rooms()] == subjects


def test_a_slot_more_where_it_would_not_help():
    assert only(explain(problem(rooms=(1, 0, 0))), 'room') == []


def test_without_a_coflow():
    busy = snapshot.ActiveCoflow('x', (), (('h1', 0.5 * GB),))
    idle = snapshot.ActiveCoflow('y', (), (('h2', 0.01 * GB),))
    asked = problem(rates=(8e9, 8e9, 7e9), active=(busy, idle))
    explained = explain(asked)
    (reason,) = only(explained, 'coflow')
    assert (reason.subject, reason.host) == ('x', 'h1')
    assert reason.instead_of_s == pytest.approx(8 / 7)
    assert 'without coflow x, h1 would be first: 1 s' in reason.text
    without = dataclasses.replace(asked, active=(idle,))
    on_h2, on_h1 = (planner.evaluate(without, dataclasses.replace(
        planner.plan(asked, clock=budgets.Counter()), hosts=('h0', host)),
        budgets.unlimited()).objective_s for host in ('h2', 'h1'))
    assert reason.saved_objective_s == pytest.approx(on_h2 - on_h1)


def test_twice_the_rate():
    (reason,) = only(explain(problem(rates=(8e9, 4e9, 4e9))), 'rate')
    assert reason.subject == 'h1 ingress'
    assert (reason.cct_s, reason.instead_of_s) == (
        pytest.approx(1), pytest.approx(2))
    assert reason.text == ('with twice the rate at h1 ingress: 1 s instead '
                           'of 2 s; then h0 egress limits')
    (reason,) = only(explain(problem(rates=(8e9, 8e9, 8e9))), 'rate')
    assert reason.subject == 'h0 egress and h1 ingress'
    assert reason.cct_s == pytest.approx(0.5)
    assert reason.text == ('with twice the rate at h0 egress and h1 ingress: '
                           '500 ms instead of 1 s')


@pytest.mark.parametrize(('pods', 'n_ports'), [((), 4), (('p',), 0)])
def test_up_to_four_ports_that_limit_alike_are_doubled(pods, n_ports):
    """Between two racks there are four; a pod above one is the fifth."""
    tree = cluster.Tree((
        *(cluster.Subtree(pod, 8e9, 8e9) for pod in pods),
        *(cluster.Subtree(f'r{i}', 8e9, 8e9, pods[0] if pods and i < 2
                          else None) for i in range(3))),
        {f'h{i}': f'r{i // 2}' for i in range(6)})
    asked = problem(rooms=(0, 0, 0, 0, 1, 0), rates=(8e9,) * 6, tree=tree)
    found = [reason.subject.split(' and ')
             for reason in only(explain(asked), 'rate')]
    assert list(map(len, found)) == [n_ports] * bool(n_ports)


def test_twice_the_rate_of_a_rack():
    tree = cluster.Tree((cluster.Subtree('r0', 1e9, 1e9),),
                        {'h0': 'r0'})
    explained = explain(problem(tree=tree))
    (reason,) = only(explained, 'rate')
    assert reason.subject == 'rack r0 up'
    assert reason.cct_s == pytest.approx(4)
    assert counterfactuals.with_twice(problem(), 'rack r0 up') is None
    assert counterfactuals.with_twice(problem(), 'none') is None


def test_what_there_is_no_time_for():
    budget = budgets.Budget(budgets.Counter(), 1e-9)
    assert not explain(problem(), budget).is_complete


@hypothesis.given(problems.busy_problems())
@hypothesis.settings(max_examples=30, deadline=None)
def test_every_reason_is_better_than_the_plan(asked):
    try:
        plan = planner.plan(asked, clock=budgets.Counter(), budget_s=0.01)
    except exception.PlacementInfeasible:
        return
    explained = counterfactuals.explain(
        asked, plan, 0, budgets.Budget(budgets.Counter(), 1.0))
    for reason in explained.reasons:
        assert reason.text
        if reason.kind == 'rate':
            assert reason.cct_s < reason.instead_of_s
        else:
            assert reason.saved_objective_s > 0


def test_each_room_has_its_part_of_the_time():
    """Of k rooms left to ask about, one takes half of a k-th."""
    asked = test_counted.problem('pipe')
    plan = planner.plan(asked, planner='min-cut', clock=budgets.Counter())
    used = {host.name: (0.0, 0.0) for host in asked.hosts}
    for vm, name in zip(asked.vms, plan.hosts, strict=True):
        used[name] = tuple(map(sum, zip(used[name], vm.demand, strict=True)))
    full = dataclasses.replace(asked, hosts=tuple(
        dataclasses.replace(host, free=used[host.name])
        for host in asked.hosts))
    budget = budgets.Budget(budgets.Counter(), 0.05)
    questions = counterfactuals._Asked(full, plan, 3, budget, 0)
    left_s = budget.left_s()
    assert len(list(questions.rooms())) == 6
    kept = math.prod(1 - 1 / (2 * k) for k in range(1, 7))
    assert budget.left_s() / left_s == pytest.approx(kept, abs=0.04)


def test_coflows_count_on_hosts_that_the_vm_could_go_to_instead():
    """Neither on its own host nor on one without room."""
    rates = (8e9, 8e9, 7e9)
    plan = planner.plan(problem(rates=rates), clock=budgets.Counter())
    assert plan.hosts == ('h0', 'h1')
    asked = problem(rates=rates, active=tuple(
        snapshot.ActiveCoflow(f'of {host}', (), ((host, GB),))
        for host in ('h0', 'h1', 'h2')))
    questions = counterfactuals._Asked(asked, plan, 1, budgets.unlimited(), 0)
    assert len(list(questions.coflows())) == 1


def test_a_dead_port_is_as_busy_as_one_of_a_bit_per_second():
    asked = problem(rates=(8.0, 0.0, 8.0), active=(
        snapshot.ActiveCoflow('alive', (), (('h2', 16.0),)),
        snapshot.ActiveCoflow('dead', (), (('h1', 3.0),)),
        snapshot.ActiveCoflow('elsewhere', (), (('h0', 99.0),))))
    assert counterfactuals._busiest(asked, ['h1', 'h2']) == ['dead', 'alive']
