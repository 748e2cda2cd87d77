# SPDX-License-Identifier: Apache-2.0

"""Wishes as constraints: which are asked, dropped, refused, and why."""

import dataclasses

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest

from tests.unit.place import test_wishes
from virtco import exception
from virtco import hints
from virtco.model import cluster
from virtco.model import snapshot
from virtco.place import wishes

RACKS = test_wishes.RACKS
RACK = hints.Wish('rack', True)
MAYBE = hints.Wish('rack')


class Solver:
    """Puts every VM onto the first host, and remembers what it was asked.

    :param fits: whether a problem, by its wishes, has a placement.
    """

    def __init__(self, fits=lambda _within, _spread: True):
        self.asked, self._fits = [], fits

    def __call__(self, some):
        asked = [one.level for one in some.within], [
            (one.level, one.skew) for one in some.spread]
        self.asked.append(asked)
        if not self._fits(*asked):
            raise exception.PlacementInfeasible(what='vm', why='a test')
        return snapshot.Plan(
            (some.hosts[0].name,) * len(some.vms), 0.0, (),
            snapshot.Objective.ONLINE, 1.0, 0.0, 0.0,
            snapshot.Method.SPREAD)


def refused(some, wish):
    """How many fit and what limits, where nothing keeps the wish."""
    with pytest.raises(exception.WishRefused) as error:
        wishes.plan(some, wish, Solver(lambda *_wishes: False))
    return error.value.kwargs['fitting'], error.value.kwargs['limiting']


def test_wishes_are_constraints_of_all_vms():
    solver = Solver()
    some = test_wishes.problem([(3, 3)] * 3, 4)
    met = wishes.plan(some, hints.Wishes(
        hints.Wish('pod', True), hints.Wish('rack', skew=2)), solver)
    assert met.problem == dataclasses.replace(
        some, within=(snapshot.Within('pod', (0, 1, 2, 3)),),
        spread=(snapshot.Spread('rack', (0, 1, 2, 3), 2),))
    assert met.notes == () and len(solver.asked) == 1


@pytest.mark.parametrize('within, spread, fits, asked', [
    (RACK, MAYBE, lambda _within, spread: not spread,
     [(['rack'], [('rack', 0)]), (['rack'], [])]),
    (MAYBE, RACK, lambda within, _spread: not within,
     [(['rack'], [('rack', 0)]), ([], [('rack', 0)])]),
    # The spread gives way first, then the switch that is shared.
    (MAYBE, MAYBE, lambda within, spread: not (within or spread),
     [(['rack'], [('rack', 0)]), (['rack'], []), ([], [('rack', 0)]),
      ([], [])])])
def test_preferred_wishes_give_way(within, spread, fits, asked):
    solver = Solver(fits)
    met = wishes.plan(test_wishes.problem([(9, 9)] * 3),
                      hints.Wishes(within, spread), solver)
    assert solver.asked == asked
    kept = [wish for wish in (within, spread) if wish.required]
    assert len(met.notes) == 2 - len(kept)
    assert all('limiting: constraints (No placement exists for vm: a test.)'
               in text for text in met.notes)


def test_what_is_preferred_is_not_what_is_refused():
    """The reason of a refusal is the required wish that does not fit."""
    some = test_wishes.problem([(1, 1)] * 3, 3)
    with pytest.raises(exception.WishRefused,
                       match='virtco:within rack:required: 2 of 3 fit'):
        wishes.plan(some, hints.Wishes(RACK, MAYBE),
                    Solver(lambda *_wishes: False))
    assert refused(some, hints.Wishes(None, RACK)) == (0, 'constraints')
    # Of two, the one that is short of room.
    assert refused(test_wishes.problem([(3, 3), (0, 0), (0, 0)], 3),
                   hints.Wishes(RACK, RACK)) == (1, 'slots')


def test_where_most_of_them_run_is_home():
    some = test_wishes.problem([(9, 9), (0, 0), (9, 9)], 4, pinned={
        0: 'r1-0', 1: 'r1-1', 2: 'r0-0'})
    assert refused(some, hints.Wishes(RACK)) == (0, 'slots')
    # Of as many, the last in the tree.
    assert refused(test_wishes.problem([(9, 9), (0, 0), (9, 9)], 3, pinned={
        0: 'r0-0', 1: 'r1-1'}), hints.Wishes(RACK)) == (0, 'slots')


def test_the_scarcest_resource_limits():
    hosts = tuple(cluster.Host(f'r0-{i}', free, 1e9, 2e9) for i, free in
                  enumerate([(9.0, 5.0, 1.0), (9.0, 1.0, 9.0),
                             (9.0, 9.0, 1.0)]))
    some = dataclasses.replace(
        test_wishes.problem([(0, 0)] * 3, 2, demand=(1.0, 5.0, 5.0)),
        hosts=hosts, resources=('cpu', 'disk', 'memory'))
    tree = dataclasses.replace(some.tree, leaf_of=dict.fromkeys(
        ('r0-0', 'r0-1', 'r0-2'), 'r0'))
    some = dataclasses.replace(some, tree=tree)
    assert refused(some, hints.Wishes(RACK)) == (0, 'memory')
    assert refused(some, hints.Wishes(None, RACK)) == (0, 'memory')


def test_large_ones_are_put_first():
    """Else the small ones take the room of the large one."""
    some = test_wishes.problem([(3, 1), (0, 0), (0, 0)], 3)
    some = dataclasses.replace(some, vms=tuple(
        dataclasses.replace(vm, demand=(size,))
        for vm, size in zip(some.vms, (1.0, 1.0, 2.0))))
    assert refused(some, hints.Wishes(RACK)) == (0, 'constraints')


def test_excluded_hosts_and_those_that_are_not_allowed_hold_none():
    def change(free):
        some = test_wishes.problem(free, 2)
        return dataclasses.replace(
            some, excluded_hosts=frozenset({'r0-0'}), vms=tuple(
                dataclasses.replace(vm, allowed=frozenset({
                    'r0-0', 'r0-1', 'r1-0'})) for vm in some.vms))

    assert refused(change([(9, 1), (1, 9), (9, 9)]), hints.Wishes(RACK)) == (
        1, 'slots')
    assert refused(change([(9, 1), (2, 9), (9, 9)]), hints.Wishes(RACK)) == (
        0, 'constraints')
    # Two racks are usable, so that each may have one.
    assert refused(change([(9, 0), (2, 9), (9, 9)]),
                   hints.Wishes(None, RACK)) == (1, 'slots')
    assert refused(change([(9, 1), (1, 9), (9, 9)]),
                   hints.Wishes(None, RACK)) == (0, 'constraints')


def test_an_excluded_host_counts_where_a_vm_runs_there():
    some = dataclasses.replace(
        test_wishes.problem([(9, 9), (9, 9), (0, 0)], 3, {0: 'r2-0'}),
        excluded_hosts=frozenset({'r2-0', 'r2-1', 'r1-0', 'r1-1'}))
    # A share of two in r0 and in r2.
    assert refused(some, hints.Wishes(None, RACK)) == (0, 'constraints')
    assert refused(dataclasses.replace(some, excluded_hosts=frozenset({
        'r1-0', 'r1-1'}), vms=some.vms[1:], coflows=()), hints.Wishes(
            None, RACK)) == (1, 'slots')


def test_a_rack_where_a_vm_runs_has_a_share_though_it_takes_no_more():
    """Of four VMs r0 may have two, as r2 is used."""
    some = dataclasses.replace(
        test_wishes.problem([(9, 9), (0, 0), (9, 9)], 4, {0: 'r2-0'}),
        excluded_hosts=frozenset({'r2-0', 'r2-1', 'r1-0', 'r1-1'}))
    assert refused(some, hints.Wishes(None, RACK)) == (2, 'slots')


def test_a_vm_on_an_excluded_host_counts_for_its_rack():
    """Of four VMs each rack may have two, and one runs in r2 already."""
    some = dataclasses.replace(
        test_wishes.problem([(1, 0), (0, 0), (0, 9)], 4, {0: 'r2-0'}),
        excluded_hosts=frozenset({'r2-0', 'r1-0', 'r1-1'}))
    assert refused(some, hints.Wishes(None, RACK)) == (2, 'slots')


def test_one_rack_alone_may_have_all():
    some = dataclasses.replace(
        test_wishes.problem([(2, 1), (9, 9), (9, 9)], 4),
        excluded_hosts=frozenset({'r1-0', 'r1-1', 'r2-0', 'r2-1'}))
    assert refused(some, hints.Wishes(None, RACK)) == (3, 'slots')


def test_the_emptiest_rack_says_what_limits():
    """r0 has no slot left, r1 no memory."""
    some = test_wishes.problem([(0, 0)] * 3, 4, demand=(1.0, 1.0))
    some = dataclasses.replace(
        some, resources=('slots', 'memory'), hosts=tuple(
            dataclasses.replace(host, free=free) for host, free in zip(
                some.hosts, ((2.0, 9.0), (0.0, 9.0), (9.0, 1.0), (9.0, 0.0)),
                strict=False)))
    assert refused(some, hints.Wishes(None, RACK)) == (3, 'memory')


def test_a_share_has_a_skew_and_counts_those_that_run():
    some = test_wishes.problem([(9, 9), (0, 0), (0, 0)], 5, {0: 'r0-0'})
    assert refused(some, hints.Wishes(None, RACK)) == (1, 'slots')
    assert refused(some, hints.Wishes(None, hints.Wish(
        'rack', True, 2))) == (3, 'slots')


def test_of_a_level_that_is_not_there_none_fit():
    assert refused(test_wishes.problem([(9, 9)] * 3), hints.Wishes(
        hints.Wish('row', True))) == (0, 'topology')


def test_what_cannot_be_solved_is_tried_once():
    solver = Solver(lambda *_wishes: False)
    with pytest.raises(exception.PlacementInfeasible) as error:
        wishes.plan(test_wishes.problem([(9, 9)] * 3), hints.Wishes(),
                    solver)
    assert len(solver.asked) == 1
    assert not isinstance(error.value, exception.WishRefused)


FREE = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=3,
                max_size=3)
PINS = st.dictionaries(st.integers(0, 7),
                       st.sampled_from(['r0-0', 'r1-1', 'r2-0']))


@settings(deadline=None, max_examples=60)
@given(FREE, st.integers(1, 8))
def test_a_refusal_counts_what_the_fullest_rack_holds(free, n_vms):
    most = max(map(sum, free))
    fitting, limiting = refused(test_wishes.problem(free, n_vms),
                                hints.Wishes(RACK))
    assert (fitting, limiting) == (
        (most, 'slots') if most < n_vms else (0, 'constraints'))


@settings(deadline=None, max_examples=60)
@given(FREE, st.integers(1, 8), PINS)
def test_a_refusal_counts_what_the_shares_hold(free, n_vms, pinned):
    pinned = {vm: host for vm, host in pinned.items() if vm < n_vms}
    if len(pinned) == n_vms:
        pinned.popitem()
    share = -(-n_vms // 3)
    runs = [pinned[vm][:2] for vm in pinned]
    held = sum(max(0, min(sum(both), share - runs.count(name)))
               for name, both in zip(RACKS, free))
    left = n_vms - len(pinned)
    assert refused(test_wishes.problem(free, n_vms, pinned), hints.Wishes(
        None, RACK)) == ((held, 'slots') if held < left
                         else (0, 'constraints'))
