# SPDX-License-Identifier: Apache-2.0

"""Rules that place a group node by node, by small clouds."""

import random

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest
import scipy

from tests import examples
from tests.unit.solver import problems
from virtco import exception
from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver.model import instance as instances
from virtco.solver.starts import candidates
from virtco.solver.starts import feasible

SETTINGS = hypothesis.settings(
    max_examples=examples.count(60), deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck))


def build(frees, demands, flows=(), rates=None, **changes):
    """:param frees: slots per host.
    :param rates: egress and ingress in bits per second per host.
    """
    rates = rates or [(8.0, 8.0)] * len(frees)
    n = len(demands)
    fields = {
        'hosts': tuple(cluster.Host(f'h{m}', _vector(free), *rate)
                       for m, (free, rate) in enumerate(
                           zip(frees, rates, strict=True))),
        'vms': tuple(cluster.Vm(f'v{j}', _vector(need))
                     for j, need in enumerate(demands)),
        'coflows': (coflow.Coflow.from_flows('c', n, flows),)}
    if frees and isinstance(frees[0], tuple):
        fields['resources'] = ('vcpus', 'ram')
    return instances.build(snapshot.PlacementProblem(
        **{**fields, **changes}))


def _vector(value):
    return tuple(map(float, value)) if isinstance(value, tuple) else (
        float(value),)


def pinned(demands, **hosts):
    return tuple(cluster.Vm(f'v{j}', (float(need),), hosts.get(f'v{j}'))
                 for j, need in enumerate(demands))


def places(found):
    return None if found is None else found.tolist()


RULES = {
    'best fit': lambda inst, rng: candidates.best_fit(inst),
    'spread': candidates.spread,
    'random': candidates.random_fit,
    'cluster': lambda inst, rng: candidates.cluster(
        inst, budgets.unlimited()),
    'in turn': lambda inst, rng: candidates.in_turn(
        inst, range(len(inst.arcs))),
}


@SETTINGS
@hypothesis.given(problems.problems(), st.sampled_from(sorted(RULES)),
                  st.integers(0, 99))
def test_a_rule_keeps_every_constraint(problem, rule, seed):
    try:
        inst = instances.build(problem)
    except exception.PlacementInfeasible:
        hypothesis.reject()
    found = RULES[rule](inst, random.Random(seed))
    assert found is None or inst.fits(found)
    again = RULES[rule](inst, random.Random(seed))
    assert places(again) == places(found)


@pytest.mark.parametrize('rule', sorted(RULES))
def test_a_rule_ends_where_there_is_no_room(rule):
    roomy = build([4, 4], [2, 1, 1])
    assert roomy.fits(RULES[rule](roomy, random.Random(1)))
    # All fit by sum, and each alone.
    full = build([3, 3], [2, 2, 2], [(0, 1, 1.0), (1, 2, 1.0)])
    assert RULES[rule](full, random.Random(1)) is None


def test_size_is_a_sum_of_shares_of_the_cloud():
    inst = build([(4, 10), (6, 30)], [(1, 20), (5, 4), (0, 0)])
    filler = candidates.Filler(inst)
    assert filler.size == pytest.approx([0.1 + 0.5, 0.5 + 0.1, 0.0])
    assert filler.left() == pytest.approx([0.4 + 0.25, 0.6 + 0.75])
    filler.put(1, 1)
    assert filler.left() == pytest.approx([0.65, 0.1 + 26 / 40])
    assert filler.hosts_for(0).tolist() == [1]
    assert filler.hosts_for(2).tolist() == [0, 1]
    assert filler.done() is None
    filler.put(0, 1)
    filler.put(2, 0)
    assert filler.done().tolist() == [1, 1, 0]
    # A full host has nothing to share, and little is shared as much is.
    small = candidates.Filler(build([0, 0.25, 0.25], [0.25]))
    assert small.size == pytest.approx([0.5])
    assert small.left() == pytest.approx([0.0, 0.5, 0.5], abs=1e-8)


def test_nodes_with_fewer_hosts_go_first_then_large_ones():
    inst = build([9, 9, 9], [1, 3, 2, 2], vms=(
        cluster.Vm('v0', (1.0,), allowed=frozenset({'h1'})),
        cluster.Vm('v1', (2.0,)), cluster.Vm('v2', (3.0,)),
        cluster.Vm('v3', (2.0,))))
    assert candidates.by_size(inst) == [0, 2, 1, 3]


def test_best_fit_takes_the_fullest_host_with_room():
    assert places(candidates.best_fit(build(
        [5, 3, 4], [3, 2, 1]))) == [1, 2, 2]
    # A host that some other is full of is not asked.
    assert places(candidates.best_fit(build([2, 9], [3]))) == [1]


def test_spread_shares_no_host_while_they_last():
    inst = build([9, 9, 9], [1] * 6)
    for seed in range(4):
        found = candidates.spread(inst, random.Random(seed))
        assert sorted(found[:3].tolist()) == [0, 1, 2]
        assert np.bincount(found).tolist() == [2, 2, 2]
    first = {candidates.spread(inst, random.Random(seed))[0]
             for seed in range(9)}
    assert len(first) > 1


def test_random_fit_may_choose_any():
    inst = build([9, 9, 0, 9], [1, 1])
    seen = {tuple(candidates.random_fit(inst, random.Random(seed)).tolist())
            for seed in range(80)}
    assert seen == {(a, b) for a in (0, 1, 3) for b in (0, 1, 3)}


def test_random_fit_takes_nodes_in_any_order(monkeypatch):
    orders = set()
    monkeypatch.setattr(
        candidates, 'first_fit',
        lambda inst, order, choose: orders.add(tuple(order)))
    for seed in range(40):
        candidates.random_fit(build([9], [1, 1, 1]), random.Random(seed))
    assert len(orders) == 6


def test_clusters_merge_along_the_heaviest_traffic():
    inst = build([2, 2], [1] * 4, [
        (0, 1, 4.0), (1, 2, 9.0), (2, 3, 4.0), (3, 0, 1.0)])
    found = candidates.cluster(inst, budgets.unlimited())
    assert found[1] == found[2] != found[0] == found[3]
    # 8 between {0, 1} and 2 is more than the 7 between 2 and 3.
    inst = build([3, 3], [1] * 4, [
        (0, 1, 9.0), (0, 2, 4.0), (2, 1, 4.0), (2, 3, 7.0)])
    found = candidates.cluster(inst, budgets.unlimited())
    assert found[0] == found[1] == found[2] != found[3]
    late = candidates.cluster(inst, budgets.Budget(budgets.Counter(), 0.0))
    assert inst.fits(late)


def test_clusters_meet_pinned_peers_and_fill_up():
    inst = build([3, 3], [1] * 4, [(0, 1, 1.0), (2, 1, 5.0), (3, 0, 2.0)],
                 vms=pinned([1] * 4, v0='h1', v2='h0'))
    assert places(candidates.cluster(
        inst, budgets.unlimited())) == [1, 0, 0, 1]
    filler = candidates.Filler(build([3, 2], [1, 1], [(0, 1, 1.0)]))
    # Without traffic to anybody the fullest host.
    assert places(candidates.fill(filler, np.zeros((2, 2)))) == [1, 1]


def test_what_is_left_is_placed_large_first():
    filler = candidates.Filler(build([3, 2], [1, 2, 2]))
    assert places(candidates.fill(filler, np.zeros((3, 3)))) == [0, 1, 0]


def test_two_nodes_merge_for_any_bytes_between_them():
    """Each on its own would go to the fullest host."""
    inst = build([1, 2], [1, 1], [(0, 1, 0.5)])
    assert places(candidates.cluster(inst, budgets.unlimited())) == [1, 1]


def test_nodes_merge_only_where_all_of_them_may_be():
    inst = build([4, 3], [1, 2, 1], [(0, 1, 9.0), (1, 2, 5.0)], vms=(
        cluster.Vm('v0', (1.0,), allowed=frozenset({'h0'})),
        cluster.Vm('v1', (2.0,)),
        cluster.Vm('v2', (1.0,), allowed=frozenset({'h1'}))))
    assert places(candidates.cluster(inst, budgets.unlimited())) == [0, 0, 1]


def test_a_rules_work():
    inst = build([1, 1, 1], [1, 1])
    budget = budgets.unlimited()
    candidates.spend(inst, budget)
    assert budget.clock.units == 2 * (
        budgets.CALL_UNITS * candidates.PLACE_CALLS
        + candidates.PLACE_CELLS * 3)


def test_any_placement_solves_what_rules_do_not():
    inst = build([5, 5], [3, 3, 2, 2])
    assert inst.fits(feasible.any_placement(inst, 1, budgets.unlimited()))
    # Best fit takes 4, 3, 3 | 2 ...: only 4 + 3 and 3 + 2 + 2 fill both.
    hard = build([7, 7], [4, 3, 3, 2, 2])
    assert hard.fits(feasible.any_placement(hard, 1, budgets.unlimited()))
    full = build([3, 3], [2, 2, 2])
    budget = budgets.unlimited()
    with pytest.raises(exception.PlacementInfeasible) as caught:
        feasible.any_placement(full, 1, budget)
    # Best fit, eight at random, and a program of a node for six pairs.
    assert budget.clock.units == 9 * candidates.units(full) + (
        6 * feasible.MILP_UNITS)
    assert 'exclude every assignment' in str(caught.value)
    assert '3 VMs on 2 hosts' in str(caught.value)


def test_a_program_finds_what_rules_do_not(monkeypatch):
    """Though there is no time left, and it says what it took."""
    monkeypatch.setattr(feasible, 'LEAST_S', 60.0)
    hard = build([7, 7, 0.5], [4, 3, 3, 2, 2])
    milp, limits_s = scipy.optimize.milp, []

    def noted(*args, options, **others):
        limits_s.append(options['time_limit'])
        found = milp(*args, options=options, **others)
        found.mip_node_count = 3
        return found

    monkeypatch.setattr(scipy.optimize, 'milp', noted)
    clock = budgets.Timer(lambda: 0.0)
    assert hard.fits(feasible._by_milp(hard, budgets.Budget(clock, 0.0)))
    assert limits_s == [60.0]
    assert clock.units == 10 * (1 + 3) * feasible.MILP_UNITS
