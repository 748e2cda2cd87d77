# SPDX-License-Identifier: Apache-2.0

"""Which switch VMs share: the choices, their race and their bounds."""

import dataclasses
import math

import pytest

from virtco import exception
from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import choices
from virtco.solver import planner
from virtco.solver.model import instance as instances
from virtco.solver.moves import localsearch
from virtco.solver.stages import search_state as states

Objective = snapshot.Objective


def racks(rates, slots=None, n_vms=4, **changes):
    """A ring of VMs below one rack, of two hosts each of a rate in Gbit/s."""
    slots = slots or [2.0] * len(rates)
    hosts = tuple(cluster.Host(f'h{q}{i}', (slots[q],), rate * 1e9, 8e9)
                  for q, rate in enumerate(rates) for i in range(2))
    return snapshot.PlacementProblem(
        hosts, tuple(cluster.Vm(f'v{j}', (1.0,)) for j in range(n_vms)),
        (coflow.Coflow.from_flows('c', n_vms, [
            (j, (j + 1) % n_vms, 1e9) for j in range(n_vms)]),),
        tree=cluster.Tree(tuple(cluster.Subtree(
            f'r{q}', math.inf, math.inf) for q in range(len(rates))),
            {host.name: f'r{host.name[1]}' for host in hosts}),
        within=(snapshot.Within('rack', tuple(range(n_vms))),), **changes)


def race(problem, budget_s=1.0, clock=None, **options):
    return choices.run(instances.prepare(problem), states.Task(
        Objective.ISOLATED, 1, budgets.Budget(
            clock or budgets.Counter(), budget_s), **options))


def plan(problem, budget_s=1.0, **options):
    return planner.plan(problem, objective=Objective.ISOLATED,
                        budget_s=budget_s, clock=budgets.Counter(), **options)


def usable(part):
    """Racks that the first VM may use."""
    names = [host.name for host in part.problem.hosts]
    return {names[m][1] for m in part.allowed[0].nonzero()[0]}


def test_switches_that_cannot_hold_the_group_are_no_choice():
    """The roomiest of the others come first."""
    problem = racks((1, 1, 1, 1), (2.0, 1.0, 5.0, 3.0))
    assert [usable(part) for part in choices.parts(
        instances.prepare(problem))] == [{'2'}, {'3'}, {'0'}]
    narrow = dataclasses.replace(problem, vms=(dataclasses.replace(
        problem.vms[0], allowed=frozenset({'h00', 'h01', 'h20'})),
        *problem.vms[1:]))
    assert [usable(part) for part in choices.parts(
        instances.prepare(narrow))] == [{'2'}, {'0'}]


def test_without_a_choice_there_is_one_search():
    problem = dataclasses.replace(racks((1, 2)), within=())
    assert len(list(choices.parts(instances.prepare(problem)))) == 1
    inst, found = race(problem)
    assert inst.n_hosts == 4 and found.value.cct_s == found.lower_s == 4.0


def test_the_best_switch_is_taken_and_the_bound_is_of_all():
    """Each host sends a flow of 8 Gbit, the fastest rack in 2 s."""
    found = plan(racks((1, 2, 4)))
    assert {host[1] for host in found.hosts} == {'2'}
    assert (found.cct_s, found.lower_bound_s, found.gap) == (2.0, 2.0, 0.0)
    # A second wish leaves no choice but another rack.
    both = racks((1, 2, 4))
    both = dataclasses.replace(both, within=both.within * 2, vms=(
        dataclasses.replace(both.vms[0], allowed=frozenset(
            {'h00', 'h01', 'h10', 'h11'})), *both.vms[1:]))
    assert plan(both).cct_s == plan(both).lower_bound_s == 4.0


def test_switches_that_are_alike_are_one_choice(monkeypatch):
    asked = []
    search = choices.search.run

    def noted(state, budget):
        asked.append(state)
        search(state, budget)

    monkeypatch.setattr(choices.search, 'run', noted)
    assert plan(racks([1] * 9)).gap == 0
    assert len(asked) == 1
    signatures = [choices._signature(part.instance()) for part in
                  choices.parts(instances.prepare(racks((1, 1, 2))))]
    assert signatures[0] == signatures[1] != signatures[2]
    running = racks((1, 1), active=(snapshot.ActiveCoflow(
        'a', (('h00', 1e9),), (('h10', 1e9),)),))
    assert {choices._signature(part.instance()) for part in choices.parts(
        instances.prepare(running))} == {None}


def test_several_choices_race_before_one_is_searched(monkeypatch):
    """The most promising one runs first, and none that it beats."""
    raced = []
    anneal = states.State.anneal

    def noted(state, start, moves, heat, power, budget):
        raced.append((state.inst.host_name(0), state.stage, moves, heat,
                      power))
        anneal(state, start, moves, heat, power, budget)

    monkeypatch.setattr(states.State, 'anneal', noted)
    how = 'race', 400, localsearch.HOT, 5
    for rates, first in (((1,), []), ((2, 1), [('h00', *how)]),
                         ((1, 2, 4), [('h20', *how)])):
        raced.clear()
        _inst, found = race(racks(rates))
        assert raced == first
        assert found.value.cct_s == found.lower_s == 8 / max(rates)


def test_the_moves_of_all_choices_are_counted(monkeypatch):
    searched = set()
    anneal = states.State.anneal

    def noted(state, *args):
        searched.add(state)
        anneal(state, *args)

    monkeypatch.setattr(states.State, 'anneal', noted)
    problem = racks((1, 1.01, 1.02), [3.0] * 3, n_vms=6)
    _inst, found = race(dataclasses.replace(problem, coflows=(
        coflow.Coflow.from_flows('c', 6, [
            (a, b, 1e9 * (1 + a * b % 5)) for a in range(6)
            for b in range(6) if a != b]),)))
    assert len(searched) > 1
    assert found.moves == sum(one.local.moves_done for one in searched)


def test_a_choice_that_cheap_bounds_leave_open_is_refuted():
    """Sets of the slower rack cannot cover all VMs in so short a time."""
    problem = racks((1, 1.1), [3.0] * 2, n_vms=6)
    _inst, found = race(dataclasses.replace(problem, coflows=(
        coflow.Coflow.from_flows('c', 6, [
            (a, b, 1e9 * (1 + (3 * a + 2 * b * b) % 5)) for a in range(6)
            for b in range(6) if a != b]),)))
    assert found.lower_s == pytest.approx(found.value.cct_s)


def test_rates_that_hardly_differ_leave_no_gap():
    """The bound of a choice is rounded down a little."""
    found = plan(racks((1, 1 + 1e-12)))
    assert found.gap == 0 and found.lower_bound_s == found.cct_s


def test_of_choices_that_are_not_looked_at_nothing_is_claimed(monkeypatch):
    monkeypatch.setattr(choices, 'MOST_CHOICES', 2)
    found = plan(racks((1, 2, 4)))
    assert found.lower_bound_s == 0 and found.gap == math.inf
    assert {host[1] for host in found.hosts} <= {'0', '1'}
    # Nor of those for which there is no time.
    assert plan(racks((1, 2, 4)), budget_s=0.0).lower_bound_s == 0


def test_progress_is_that_of_all_choices():
    told = []
    inst, found = race(racks((1, 2, 4)), on_incumbent=told.append)
    assert found.value.cct_s == 2.0
    bests = [one.objective_s for one in told]
    assert bests == sorted(bests, reverse=True)
    assert all(one.bound_s <= 2.0 for one in told)


def test_a_caller_that_has_enough_is_heard():
    clock = budgets.Counter()
    problem = racks((1.1, 1.2, 1.3), n_vms=4)
    race(problem, 50.0, clock, certify=True)
    asked = budgets.Counter()
    race(problem, 50.0, asked, certify=True,
         on_incumbent=lambda progress: True)
    assert asked.units <= clock.units


def test_where_nothing_fits_it_says_so():
    with pytest.raises(exception.PlacementInfeasible,
                       match='no switch has room for those that have to'):
        plan(racks((1, 1), (1.0, 1.0)))
    # Three VMs of two slots and hosts of three: by the sum they fit.
    odd = racks((1, 1), (3.0, 3.0), 3)
    odd = dataclasses.replace(odd, vms=tuple(
        dataclasses.replace(vm, demand=(2.0,)) for vm in odd.vms))
    for name in planner.PLANNERS:
        with pytest.raises(exception.PlacementInfeasible,
                           match='no switch has room'):
            plan(odd, planner=name)


def test_every_planner_takes_the_first_switch_that_holds_the_group():
    problem = racks((1, 2, 4), (1.0, 3.0, 2.0))
    for name in ('spread', 'min-cut'):
        found = plan(problem, planner=name)
        assert {host[1] for host in found.hosts} == {'1'}
        assert found.lower_bound_s <= found.cct_s
