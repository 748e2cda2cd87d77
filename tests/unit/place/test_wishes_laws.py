# SPDX-License-Identifier: Apache-2.0

"""Wishes by their problems alone: whoever solves them is told where."""

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


class Solver:
    """Puts every VM onto the first host, and remembers what it was asked.

    :param cost: of a problem.
    """

    def __init__(self, cost=lambda _some: 1.0):
        self.asked, self._cost = [], cost

    def __call__(self, some, part):
        self.asked.append((some, part))
        objective_s = self._cost(some)
        if objective_s is None:
            raise exception.PlacementInfeasible(what='vm', why='a test')
        return snapshot.Plan(
            (some.hosts[0].name,) * len(some.vms), 0.0, (),
            snapshot.Objective.ONLINE, objective_s, 0.0, 0.0,
            snapshot.Method.SPREAD)


def racks(some):
    """To which racks each VM may go; None: anywhere."""
    return [None if vm.allowed is None else {
        host[:2] for host in vm.allowed} for vm in some.vms]


def within(free, **values):
    solver = Solver()
    wishes.plan(test_wishes.problem(free, **values), hints.Wishes(RACK),
                solver)
    return [(racks(some), part) for some, part in solver.asked]


def spread(free, wish=RACK, change=lambda some: some, **values):
    solver = Solver()
    met = wishes.plan(change(test_wishes.problem(free, **values)),
                      hints.Wishes(spread=wish), solver)
    return racks(met.problem), met.notes


def test_every_rack_that_holds_all_is_tried_the_roomiest_first():
    assert within([(2, 2), (1, 1), (5, 4)], n_vms=4) == [
        ([{'r2'}] * 4, 0.5), ([{'r0'}] * 4, 0.5)]
    # Equals by name.
    assert [found[0][0] for found in within([(1, 1)] * 3, n_vms=2)] == [
        {'r0'}, {'r1'}, {'r2'}][:wishes.MOST_TRIES]


def test_the_cheapest_of_the_plans_is_taken():
    solver = Solver(lambda some: {'r0': 5.0, 'r1': 3.0, 'r2': None}[
        min(racks(some)[0])])
    met = wishes.plan(test_wishes.problem([(2, 2), (2, 2), (9, 9)]),
                      hints.Wishes(RACK), solver)
    assert racks(met.problem) == [{'r1'}] * 4 and met.notes == ()


def test_where_most_of_them_run_is_home():
    pinned = {0: 'r1-0', 1: 'r1-1', 2: 'r0-0'}
    assert within([(9, 9), (1, 0), (9, 9)], pinned=pinned) == [
        ([None, None, None, {'r1'}], 1.0)]
    # Of as many, the last by name.
    assert within([(9, 9), (1, 0), (9, 9)],
                  pinned={0: 'r0-0', 1: 'r1-1'}, n_vms=3)[0][0][2] == {'r1'}


def test_a_preferred_wish_that_no_plan_keeps_is_noted():
    def nowhere(some):
        return None if racks(some)[0] else 2.0

    for wish in (hints.Wishes(hints.Wish('rack')),
                 hints.Wishes(spread=hints.Wish('rack'))):
        solver = Solver(nowhere)
        some = test_wishes.problem([(9, 9)] * 3)
        met = wishes.plan(some, wish, solver)
        assert met.problem is some and solver.asked[-1] == (some, 1.0)
        assert len(met.notes) == 1
        assert met.notes[0].startswith('wishes are not met: ')


def test_a_required_wish_that_no_plan_keeps_is_refused():
    for wish in (hints.Wishes(hints.Wish('pod'), RACK),
                 hints.Wishes(spread=RACK)):
        with pytest.raises(exception.WishRefused) as error:
            wishes.plan(test_wishes.problem([(9, 9)] * 3, pinned={
                0: 'r0-0'}), wish, Solver(lambda _some: None))
        assert {key: error.value.kwargs[key] for key in (
            'level', 'fitting', 'wanted')} == {
                'level': 'rack', 'fitting': 0, 'wanted': 3}


def test_the_scarcest_resource_limits():
    hosts = tuple(cluster.Host(f'r0-{i}', free, 1e9, 2e9) for i, free in
                  enumerate([(9.0, 5.0, 1.0), (9.0, 1.0, 9.0),
                             (9.0, 9.0, 1.0)]))
    some = dataclasses.replace(
        test_wishes.problem([(0, 0)] * 3, 2, demand=(1.0, 5.0, 5.0)),
        hosts=hosts, resources=('cpu', 'disk', 'memory'))
    tree = dataclasses.replace(some.tree, leaf_of=dict.fromkeys(
        ('r0-0', 'r0-1', 'r0-2'), 'r0'))
    with pytest.raises(exception.WishRefused,
                       match='0 of 2 fit at level rack .r0.; limiting: '
                             'memory'):
        wishes.plan(dataclasses.replace(some, tree=tree),
                    hints.Wishes(RACK), Solver())
    with pytest.raises(exception.WishRefused, match='limiting: memory'):
        wishes.plan(dataclasses.replace(some, tree=tree),
                    hints.Wishes(spread=RACK), Solver())


def test_large_ones_are_put_first():
    """Else the small ones take the room of the large one."""
    some = test_wishes.problem([(3, 1), (0, 0), (0, 0)], 3)
    some = dataclasses.replace(some, vms=tuple(
        dataclasses.replace(vm, demand=(size,))
        for vm, size in zip(some.vms, (1.0, 1.0, 2.0))))
    met = wishes.plan(some, hints.Wishes(RACK), Solver())
    assert racks(met.problem) == [{'r0'}] * 3


def test_excluded_hosts_and_those_that_are_not_allowed_hold_none():
    def change(some):
        return dataclasses.replace(
            some, excluded_hosts=frozenset({'r0-0'}), vms=tuple(
                dataclasses.replace(vm, allowed=frozenset({
                    'r0-0', 'r0-1', 'r1-0'})) for vm in some.vms))

    found, notes = spread([(9, 9)] * 3, change=change, n_vms=2)
    assert found == [{'r0'}, {'r1'}] and notes == ()
    solver = Solver()
    with pytest.raises(exception.WishRefused, match='1 of 2 fit'):
        wishes.plan(change(test_wishes.problem([(9, 1), (1, 9), (9, 9)], 2)),
                    hints.Wishes(RACK), solver)
    met = wishes.plan(change(test_wishes.problem([(9, 1), (2, 9), (9, 9)],
                                                 2)),
                      hints.Wishes(RACK), solver)
    assert [vm.allowed for vm in met.problem.vms] == [{'r1-0'}] * 2


def test_each_vm_has_its_own_hosts():
    def change(some, *hosts):
        return dataclasses.replace(some, vms=tuple(
            dataclasses.replace(vm, allowed=frozenset({host}))
            for vm, host in zip(some.vms, hosts)))

    assert spread([(9, 9)] * 3, n_vms=2, change=lambda some: change(
        some, 'r0-0', 'r1-0'))[0] == [{'r0'}, {'r1'}]
    # Below one switch only, all of them are there.
    assert spread([(9, 9)] * 3, n_vms=2, change=lambda some: change(
        some, 'r0-0', 'r0-1'))[0] == [{'r0'}, {'r0'}]


def test_what_cannot_be_solved_is_tried_once():
    solver = Solver(lambda _some: None)
    with pytest.raises(exception.PlacementInfeasible):
        wishes.plan(test_wishes.problem([(9, 9)] * 3), hints.Wishes(),
                    solver)
    assert len(solver.asked) == 1
    assert wishes.MOST_TRIES == 3


def test_of_a_level_that_is_not_there_none_fit():
    with pytest.raises(exception.WishRefused) as error:
        wishes.plan(test_wishes.problem([(9, 9)] * 3), hints.Wishes(
            hints.Wish('row', True)), Solver())
    assert error.value.kwargs['fitting'] == 0


def test_those_that_run_count_in_a_spread():
    found, _notes = spread([(9, 9)] * 3, n_vms=4, pinned={
        0: 'r1-0', 1: 'r1-1'})
    assert found == [None, None, {'r0'}, {'r2'}]
    # The roomier first, at as many.
    assert spread([(1, 1), (9, 9), (5, 5)], n_vms=2)[0] == [{'r1'}, {'r2'}]


def test_a_spread_without_room_says_how_many_fit():
    with pytest.raises(exception.WishRefused) as error:
        spread([(1, 0), (9, 9), (0, 0)], n_vms=6)
    assert error.value.kwargs['fitting'] == 3
    assert '3 of 6 fit at level rack; limiting: slots' in str(error.value)
    _found, notes = spread([(1, 0), (9, 9), (0, 0)], hints.Wish('rack'),
                           n_vms=6)
    assert notes == ('virtco:spread rack:preferred: 3 of 6 fit at level '
                     'rack; limiting: slots',)


FREE = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=3,
                max_size=3)


@settings(deadline=None, max_examples=60)
@given(FREE, st.integers(1, 8))
def test_within_is_refused_only_where_no_rack_holds_all(free, n_vms):
    sizes = {name: sum(both) for name, both in zip(RACKS, free)}
    holding = {name for name, size in sizes.items() if size >= n_vms}
    try:
        tries = within(free, n_vms=n_vms)
    except exception.WishRefused as error:
        assert not holding
        assert error.kwargs['fitting'] == max(sizes.values())
        assert error.kwargs['wanted'] == n_vms
        return
    found = [min(one[0]) for one, _part in tries]
    assert set(found) <= holding
    assert len(found) == min(len(holding), wishes.MOST_TRIES)
    assert [sizes[name] for name in found] == sorted(
        (sizes[name] for name in holding), reverse=True)[:len(found)]
    assert all(one == [one[0]] * n_vms and part == 1 / len(tries)
               for one, part in tries)


@settings(deadline=None, max_examples=60)
@given(FREE, st.integers(1, 8), st.dictionaries(
    st.integers(0, 7), st.sampled_from(['r0-0', 'r1-1', 'r2-0'])))
def test_a_spread_is_as_even_as_can_be(free, n_vms, pinned):
    pinned = {vm: host for vm, host in pinned.items() if vm < n_vms}
    share = -(-n_vms // 3)
    runs = [pinned[vm][:2] for vm in pinned]
    rooms = {name: max(0, min(sum(both), share - runs.count(name)))
             for name, both in zip(RACKS, free)}
    fits = sum(rooms.values()) >= n_vms - len(pinned)
    try:
        found, _notes = spread(free, n_vms=n_vms, pinned=pinned)
    except exception.WishRefused as error:
        assert not fits
        assert error.kwargs['fitting'] == sum(rooms.values())
        return
    assert fits
    chosen = [min(some) for some in found if some is not None]
    assert all(chosen.count(name) <= room for name, room in rooms.items())
    assert len(chosen) == n_vms - len(pinned)
