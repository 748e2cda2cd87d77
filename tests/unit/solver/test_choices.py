# SPDX-License-Identifier: Apache-2.0

"""Which switch VMs share: the choices, their race and their bounds."""

import dataclasses
import math

import numpy as np
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


def left_open(rates):
    """Six VMs whose time cheap bounds do not tell."""
    return dataclasses.replace(
        racks(rates, [3.0] * len(rates), n_vms=6), coflows=(
            coflow.Coflow.from_flows('c', 6, [
                (a, b, 1e9 * (1 + (3 * a + 2 * b * b) % 5))
                for a in range(6) for b in range(6) if a != b]),))


def race(problem, budget_s=1.0, clock=None, **options):
    return choices.run(instances.build(problem), states.Task(
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
    problem = racks((1, 1, 1, 1), (2.0, 1.0, 5.0, 3.0))
    assert [usable(part) for part in choices.parts(
        instances.build(problem))] == [{'0'}, {'2'}, {'3'}]
    narrow = dataclasses.replace(problem, vms=(dataclasses.replace(
        problem.vms[0], allowed=frozenset({'h00', 'h01', 'h20'})),
        *problem.vms[1:]))
    assert [usable(part) for part in choices.parts(
        instances.build(narrow))] == [{'0'}, {'2'}]


def test_the_switch_whose_hosts_divide_the_traffic_best_comes_first():
    """A VM's traffic, in parts by rates, until hosts are full."""
    problem = racks((1, 3, 2), (4.0, 1.0, 2.0))
    problem = dataclasses.replace(problem, vms=problem.vms[:2], coflows=(
        coflow.Coflow.from_flows('c', 2, [(0, 1, 1e9)]),), within=(
        snapshot.Within('rack', (0, 1)),), hosts=tuple(
        dataclasses.replace(host, ingress_bps=host.egress_bps / 2)
        for host in problem.hosts[:-1]) + problem.hosts[-1:])
    whole = instances.build(problem)
    (wish,) = whole.together
    # Halves at 0.5 Gbit/s, at 1.5, and a third at 1 and two at 2 but for room.
    assert [choices._even_s(whole, wish.nodes, wish.switch == number) * 1e9
            for number in range(3)] == pytest.approx([8, 8 / 3, 8 / 3])
    less = dataclasses.replace(problem, hosts=(*problem.hosts[:-1],
        dataclasses.replace(problem.hosts[-1], free=(1.0,))))
    whole = instances.build(less)
    assert choices._even_s(whole, wish.nodes, wish.switch == 2
                           ) * 1e9 == pytest.approx(4)
    assert [usable(part) for part in choices.parts(whole)] == [
        {'1'}, {'2'}, {'0'}]
    # A host without a limit takes all that it has room for at once.
    fast = dataclasses.replace(less, hosts=(*less.hosts[:-1],
        dataclasses.replace(less.hosts[-1], egress_bps=math.inf,
                            ingress_bps=math.inf)))
    assert choices._even_s(instances.build(fast), wish.nodes,
                           wish.switch == 2) * 1e9 == pytest.approx(4)
    # The rates of all pairs of hosts are not looked at for each switch.
    names = [host.name for host in less.hosts]
    pairs = dataclasses.replace(less, hose_limits=True, pair_rate_bps={
        (a, b): 1e6 for a in names for b in names})
    assert choices._even_s(instances.build(pairs), wish.nodes,
                           wish.switch == 2) * 1e9 == pytest.approx(4)


def test_a_full_host_adds_no_room_to_its_switch():
    problem = racks((1, 1), n_vms=3)
    full = dataclasses.replace(problem, hosts=(dataclasses.replace(
        problem.hosts[0], free=(0.0,)), *problem.hosts[1:]))
    assert [usable(part) for part in choices.parts(
        instances.build(full))] == [{'1'}]


def test_without_a_choice_nothing_is_said_of_switches():
    full = dataclasses.replace(racks((1,), [3.0], 3), within=())
    full = dataclasses.replace(full, vms=tuple(
        dataclasses.replace(vm, demand=(2.0,)) for vm in full.vms))
    with pytest.raises(exception.PlacementInfeasible,
                       match='exclude every assignment'):
        choices.any_placement(instances.build(full), 1,
                              budgets.unlimited())


def test_without_a_choice_there_is_one_search():
    problem = dataclasses.replace(racks((1, 2)), within=())
    assert len(list(choices.parts(instances.build(problem)))) == 1
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
    signatures = [choices._signature(part) for part in
                  choices.parts(instances.build(racks((1, 1, 2))))]
    assert signatures[0] != signatures[1] == signatures[2]
    running = racks((1, 1), active=(snapshot.ActiveCoflow(
        'a', (('h00', 1e9),), (('h10', 1e9),)),))
    pinned = racks((1, 1), n_vms=2)
    pinned = dataclasses.replace(pinned, within=(), vms=(
        dataclasses.replace(pinned.vms[0], pinned='h00'), pinned.vms[1]))
    for problem in running, pinned:
        assert {choices._signature(part) for part in choices.parts(
            instances.build(problem))} == {None}


@pytest.mark.parametrize(('spread', 'uplink_bps'), [
    ((), 1e9), ((snapshot.Spread('rack', (0, 1), 4),), math.inf)])
def test_hosts_of_one_switch_are_alike_below_its_uplink_and_share(
        spread, uplink_bps):
    problem = racks((1, 1), spread=spread)
    problem = dataclasses.replace(problem, tree=cluster.Tree(
        tuple(cluster.Subtree(f'r{q}', uplink_bps, uplink_bps)
              for q in range(2)), problem.tree.leaf_of))
    parts = list(choices.parts(instances.build(problem)))
    one, other = (choices._signature(part.reduced(budgets.unlimited()))
                  for part in parts)
    assert one == other is not None
    # Not so with the hosts of both.
    assert choices._signature(parts[0]) is None


def test_several_choices_race_before_one_is_searched(monkeypatch):
    """The most promising one runs first, and none that it beats."""
    raced = []
    anneal = states.State.anneal

    def noted(state, start, moves, heat, power, budget):
        raced.append((state.inst.host_name(0), state.stage, moves, heat,
                      power))
        anneal(state, start, moves, heat, power, budget)

    monkeypatch.setattr(states.State, 'anneal', noted)
    for rates in (1,), (2, 1), (1, 2, 4):
        # Some placement is as good as the bound already.
        _inst, found = race(racks(rates))
        assert not raced
        assert found.value.cct_s == found.lower_s == 8 / max(rates)
        race(left_open(rates))
        assert raced[0] == (f'h{np.argmax(rates)}0', 'race', 600,
                            localsearch.HOT, 5)
        raced.clear()


@pytest.mark.parametrize(('rates', 'share'), [
    ((1,), 1.0), ((1, 1), 1.0), ((1, 8), 1.0), ((1, 1.1), 0.9)])
def test_a_choice_has_all_the_time_where_no_other_may_be_better(
        monkeypatch, rates, share):
    shares = []
    search = choices.search.run

    def noted(state, budget):
        shares.append(budget.left_s() / whole.left_s())
        search(state, budget)

    monkeypatch.setattr(choices.search, 'run', noted)
    whole = budgets.Budget(budgets.Counter(), 1.0)
    choices.run(instances.build(left_open(rates)), states.Task(
        Objective.ISOLATED, 1, whole))
    assert shares == [pytest.approx(share)]


def test_the_time_of_a_race_is_shared_by_those_that_are_left(monkeypatch):
    """After a look at five they run in three rounds: five, three and two."""
    shares = []
    monkeypatch.setattr(
        states.State, 'anneal',
        lambda state, start, moves, heat, power, budget: shares.append(
            budget.left_s() / whole.left_s()))
    whole = budgets.Budget(budgets.Counter(), 100.0)
    choices.run(instances.build(left_open((1, 1.01, 1.02, 1.03, 1.04))),
                states.Task(Objective.ISOLATED, 1, whole))
    assert shares[:5] == pytest.approx([choices.LOOK_SHARE] * 5, rel=0.01)
    assert shares[5:15] == pytest.approx([
        3 / (3 + choices.LAST_ROUNDS) / part
        for part in (15, 12, 9, 6, 3, 6, 4, 2, 2, 1)], rel=0.01)


@pytest.mark.parametrize('objective', [Objective.ISOLATED, Objective.ONLINE])
def test_choices_that_may_be_better_are_refuted_in_turn(monkeypatch,
                                                        objective):
    """By their bounds, the least first; of several coflows by a search."""
    looked_at, searched = [], []

    def narrow(state, upper_s, budget):
        looked_at.append((state.inst.host_name(0),
                          budget.left_s() / whole.left_s()))

    def run(state, budget):
        searched.append((state.inst.host_name(0),
                         budget.left_s() / whole.left_s()))

    monkeypatch.setattr(choices.search, 'run', run)
    monkeypatch.setattr(choices.proofs, 'narrow', narrow)
    whole = budgets.Budget(budgets.Counter(), 1.0)
    problem = left_open((1, 1.1, 1.2, 9))
    if objective == Objective.ONLINE:
        problem = dataclasses.replace(problem, coflows=problem.coflows * 2)
    # The last one is fast, but there is no room.
    problem = dataclasses.replace(problem, hosts=(*problem.hosts[:6], *(
        dataclasses.replace(host, free=(2.0,)) for host in problem.hosts[6:])))
    choices.run(instances.build(problem),
                states.Task(objective, 1, whole))
    refuted = [('h10', pytest.approx(0.5)), ('h00', pytest.approx(1.0))]
    assert searched[0] == ('h20', pytest.approx(choices.LAST_SHARE))
    if objective == Objective.ONLINE:
        assert searched[1:] == refuted and not looked_at
    else:
        assert looked_at == refuted and not searched[1:]


def test_the_choice_of_the_least_bound_is_refuted_first(monkeypatch):
    task = states.Task(Objective.ISOLATED, 1, budgets.unlimited())
    race = choices._Race(instances.build(left_open((1, 2, 4))), task)
    race._bound()
    race._gather(budgets.unlimited())
    race.choices = [states.State(part, task)
                    for part in choices.parts(race.whole)]
    for choice, floor_s in zip(race.choices, (3.0, 2.0, 1.0), strict=True):
        choices.search.begin(choice, budgets.unlimited())
        choice.floor_s = floor_s
    seen = []
    monkeypatch.setattr(choices.search, 'run',
                        lambda choice, budget: seen.append(choice.floor_s))
    monkeypatch.setattr(
        choices.proofs, 'narrow',
        lambda choice, upper_s, budget: seen.append(choice.floor_s))
    race._refute()
    assert len(seen) == 2 and seen == sorted(seen)


@pytest.mark.parametrize(('ratio', 'is_beaten'), [
    (1 - 0.9e-8, True), (1 - 1.1e-8, False)])
def test_a_choice_is_beaten_by_a_time_near_its_bound(ratio, is_beaten):
    task = states.Task(Objective.ISOLATED, 1, budgets.unlimited())
    race = choices._Race(instances.build(racks((1, 2))), task)
    race._bound()
    race._gather(budgets.unlimited())
    one, other = (states.State(part, task)
                  for part in choices.parts(race.whole))
    race.choices = [one, other]
    choices.search.begin(one, budgets.unlimited())
    other.floor_s = one.answer.value.objective_s * ratio
    assert race._is_beaten(other) is is_beaten


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
    _inst, found = race(left_open((1, 1.1)))
    assert found.lower_s == pytest.approx(found.value.cct_s)


def test_rates_that_hardly_differ_leave_no_gap():
    """The bound of a choice is rounded down a little."""
    found = plan(racks((1, 1 + 1e-12)))
    assert found.gap == 0 and found.lower_bound_s == found.cct_s


def test_of_choices_that_are_not_looked_at_no_wish_is_known(monkeypatch):
    found = plan(racks((1, 2, 4)))
    assert found.lower_bound_s == found.cct_s == 2.0
    # Without the fastest rack's hosts the bound without wishes is not met.
    apart = racks((1, 1.1, 4, 4), [2.0, 2.0, 1.0, 1.0])
    found = plan(apart)
    assert {host[1] for host in found.hosts} == {'1'}
    assert found.lower_bound_s == found.cct_s == pytest.approx(8 / 1.1)
    monkeypatch.setattr(choices, 'MOST_CHOICES', 1)
    one = plan(apart)
    assert one.cct_s == found.cct_s
    assert 0 < one.lower_bound_s < found.lower_bound_s
    # Nor of those for which there is no time.
    assert plan(racks((1, 2, 4)), budget_s=0.0).lower_bound_s == 0


def test_progress_is_that_of_all_choices():
    told = []
    inst, found = race(racks((1, 2, 4)), on_incumbent=told.append)
    assert found.value.cct_s == 2.0
    bests = [one.objective_s for one in told]
    assert bests == sorted(bests, reverse=True) and bests[-1] == 2.0
    assert all(one.bound_s <= 2.0 for one in told)
    told.clear()
    _inst, found = race(left_open((1, 1.1, 1.2)), on_incumbent=told.append)
    bests = [one.objective_s for one in told]
    assert bests == sorted(bests, reverse=True)
    assert bests[-1] == found.value.cct_s


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


def test_a_switch_below_which_nothing_fits_hides_no_other():
    """Two of three VMs of two slots fit on two hosts of three."""
    problem = racks((4, 1), (3.0, 4.0), 3)
    problem = dataclasses.replace(problem, vms=tuple(
        dataclasses.replace(vm, demand=(2.0,)) for vm in problem.vms))
    assert {host[1] for host in plan(problem).hosts} == {'1'}


def test_every_planner_takes_the_first_switch_that_holds_the_group():
    problem = racks((1, 2, 4), (1.0, 3.0, 2.0))
    for name in ('spread', 'min-cut'):
        found = plan(problem, planner=name)
        assert {host[1] for host in found.hosts} == {'2'}
        assert found.lower_bound_s <= found.cct_s
