# SPDX-License-Identifier: Apache-2.0

"""Groups within a rack, and spread over racks."""

import dataclasses
import itertools
import random

import hypothesis
from hypothesis import strategies as st
import pytest

from virtco import exception
from virtco import hints
from virtco.model import cluster
from virtco.model import coflow as coflow_model
from virtco.model import snapshot
from virtco.place import wishes
from virtco.solver import budget
from virtco.solver import planner

GBIT = 1e9
RACKS = ('r0', 'r1', 'r2')
WITHIN = hints.Wishes(within=hints.Wish('rack', True))
SPREAD = hints.Wishes(spread=hints.Wish('rack', True))


def problem(free, n_vms=4, pinned=None, demand=(1.0,)):
    """Racks of two hosts each, r0 and r1 in a pod; a ring of VMs."""
    hosts = tuple(cluster.Host(f'{rack}-{i}', (float(slots),), GBIT, GBIT)
                  for rack, both in zip(RACKS, free)
                  for i, slots in enumerate(both))
    tree = cluster.Tree(tuple(
        cluster.Subtree(name, GBIT, GBIT, parent, level)
        for name, parent, level in (
            ('p0', None, 'pod'), ('r0', 'p0', 'rack'), ('r1', 'p0', 'rack'),
            ('r2', None, 'rack'))),
        {host.name: host.name[:2] for host in hosts})
    pinned = pinned or {}
    return snapshot.PlacementProblem(
        hosts, tuple(cluster.Vm(f'v{i}', demand, pinned.get(i),
                                i in pinned) for i in range(n_vms)),
        (coflow_model.Coflow.from_flows('c', n_vms, [
            (i, (i + 1) % n_vms, 1e9) for i in range(n_vms)]),), tree=tree)


def solve(some):
    return planner.plan(some, clock=budget.Counter(), budget_s=0.05)


def racks_of(met):
    return [host[:2] for host in met.plan.hosts]


def test_within_takes_a_rack_that_holds_the_group():
    met = wishes.plan(problem([(3, 0), (2, 2), (1, 1)]), WITHIN, solve)
    assert racks_of(met) == ['r1'] * 4
    assert met.notes == ()


def test_a_refusal_says_how_many_fit_and_what_limits():
    with pytest.raises(exception.WishRefused) as error:
        wishes.plan(problem([(2, 1), (1, 1), (2, 0)]), WITHIN, solve)
    assert str(error.value) == (
        'virtco:within rack:required: 3 of 4 fit at level rack (r0); '
        'limiting: slots.')
    assert {name: error.value.kwargs[name] for name in (
        'level', 'fitting', 'wanted', 'limiting')} == {
            'level': 'rack', 'fitting': 3, 'wanted': 4, 'limiting': 'slots'}


def test_servers_that_fit_nowhere_are_tried_once():
    """Of 500 like it, and 1,000 hosts, the reason took half a second."""
    compared = []

    class Amount(float):
        def __le__(self, have):
            compared.append(have)
            return float(self) <= have

    found = problem([(1, 0), (1, 1), (0, 0)], 50, demand=(Amount(2.0),))
    reason = wishes._reason(found, hints.WITHIN, WITHIN.within, None)[1]
    assert reason == '0 of 50 fit at level rack (r0); limiting: slots'
    # Once more for what they lack.
    assert len(compared) == 2 * 6


def test_a_preferred_wish_goes_unmet_with_a_note():
    free = [(2, 1), (1, 1), (2, 0)]
    met = wishes.plan(problem(free), hints.Wishes(hints.Wish('rack')), solve)
    assert len(met.plan.hosts) == 4
    assert met.notes == ('virtco:within rack:preferred: 3 of 4 fit at level '
                         'rack (r0); limiting: slots',)
    pod = wishes.plan(problem(free), hints.Wishes(hints.Wish('pod', True)),
                      solve)
    assert set(racks_of(pod)) <= {'r0', 'r1'}


def test_a_failed_vm_is_replaced_inside_its_rack():
    """r2 has more room, but the others run in r1 and stay there."""
    met = wishes.plan(problem([(9, 9), (1, 1), (9, 9)], pinned={
        0: 'r1-0', 1: 'r1-0', 2: 'r1-1'}), WITHIN, solve)
    assert racks_of(met) == ['r1'] * 4
    assert met.plan.hosts[:3] == ('r1-0', 'r1-0', 'r1-1')
    with pytest.raises(exception.WishRefused, match='0 of 1 fit'):
        wishes.plan(problem([(9, 9), (0, 0), (9, 9)], pinned={
            0: 'r1-0', 1: 'r1-0', 2: 'r1-1'}), WITHIN, solve)


@hypothesis.settings(deadline=None, max_examples=40)
@hypothesis.given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)),
                           min_size=3, max_size=3), st.integers(1, 6))
def test_required_wishes_hold_or_are_refused(free, n_vms):
    some = problem(free, n_vms)
    for wish in (WITHIN, SPREAD):
        try:
            met = wishes.plan(some, wish, solve)
        except exception.WishRefused as error:
            assert error.kwargs['fitting'] < error.kwargs['wanted'] == n_vms
            if wish is WITHIN:
                assert max(map(sum, free)) < n_vms
            continue
        found = racks_of(met)
        if wish is WITHIN:
            assert len(set(found)) == 1
        else:
            assert max(map(found.count, RACKS)) <= -(-n_vms // 3)


def test_spread_counts_those_that_run():
    met = wishes.plan(problem([(3, 3)] * 3, 3, {0: 'r0-0'}), SPREAD, solve)
    assert sorted(racks_of(met)) == ['r0', 'r1', 'r2']


def test_hosts_below_the_same_switch():
    tree = problem([(3, 3)] * 3).tree
    assert wishes.below_the_same(tree, 'rack', 'r1-0') == {'r1-0', 'r1-1'}
    assert wishes.below_the_same(tree, 'pod', 'r1-0') == {
        'r0-0', 'r0-1', 'r1-0', 'r1-1'}
    assert wishes.below_the_same(tree, 'row', 'r1-0') == {'r1-0'}
    assert wishes.below_the_same(tree, 'rack', 'alien') == {'alien'}


def test_a_required_wish_is_refused_for_whatever_reason():
    """It fits by the count, but a constraint stands in the way."""
    def nothing(_some):
        raise exception.PlacementInfeasible(what='vm-0', why='affinity')

    with pytest.raises(exception.WishRefused) as error:
        wishes.plan(problem([(3, 3)] * 3), WITHIN, nothing)
    assert error.value.kwargs['limiting'] == 'constraints'
    with pytest.raises(exception.PlacementInfeasible) as error:
        wishes.plan(problem([(3, 3)] * 3), hints.Wishes(), nothing)
    assert not isinstance(error.value, exception.WishRefused)


def test_both_wishes():
    both = hints.Wishes(hints.Wish('pod', True), hints.Wish('rack'))
    met = wishes.plan(problem([(3, 3)] * 3), both, solve)
    found = racks_of(met)
    assert set(found) == {'r0', 'r1'}


def test_a_level_that_is_unknown_and_no_topology():
    unknown = hints.Wishes(hints.Wish('row'))
    met = wishes.plan(problem([(3, 3)] * 3), unknown, solve)
    assert met.notes == ('virtco:within row:preferred: no host is below a '
                         'row, levels are pod, rack',)
    bare = dataclasses.replace(problem([(3, 3)] * 3), tree=cluster.Tree())
    with pytest.raises(exception.WishRefused, match='levels are unknown'):
        wishes.plan(bare, WITHIN, solve)


def test_without_wishes_it_is_one_plan():
    some, asked = problem([(3, 3)] * 3), []

    def noted(one):
        asked.append(one)
        return solve(one)

    met = wishes.plan(some, hints.Wishes(), noted)
    assert met.problem == some and asked == [some] and met.notes == ()


@pytest.mark.parametrize('wish', (WITHIN, SPREAD))
@pytest.mark.parametrize('seed', range(8))
def test_no_placement_that_keeps_a_wish_is_below_the_bound(wish, seed):
    rng = random.Random(seed)
    some = problem([(2, 2)] * 3)
    some = dataclasses.replace(
        some, hosts=tuple(dataclasses.replace(
            host, egress_bps=GBIT * rng.uniform(0.2, 1),
            ingress_bps=GBIT * rng.uniform(0.2, 1)) for host in some.hosts),
        coflows=(coflow_model.Coflow.from_flows('c', 4, [
            (i, j, 1e9 * rng.random() ** 4) for i in range(4)
            for j in range(4) if i != j]),))
    kept = []
    for hosts in itertools.product([host.name for host in some.hosts],
                                   repeat=4):
        racks = [name[:2] for name in hosts]
        most = max(map(racks.count, racks))
        if max(map(hosts.count, hosts)) <= 2 and (
                most == 4 if wish is WITHIN else most <= 2):
            kept.append(hosts)
    found = wishes.plan(some, wish, solve).plan
    assert found.hosts in kept
    least_s = min(planner.evaluate(
        some, dataclasses.replace(found, hosts=hosts),
        budget.Budget(budget.Counter(), 0.0)).cct_s for hosts in kept)
    assert found.lower_bound_s <= least_s * (1 + 1e-9)
    assert found.cct_s == pytest.approx(
        found.lower_bound_s * (1 + found.gap))
