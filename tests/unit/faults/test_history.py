# SPDX-License-Identifier: Apache-2.0

"""The checker of over-booking finds what is wrong in made-up histories."""

import pytest

from tests.faults import history

CAPACITIES = {'h0': 2.0, 'h1': 1.0}


def change(generation, row, host, state='planned', vcpus=1.0, group='g'):
    return history.Change(generation, group, row, state, host, vcpus,
                          f'vm{row}')


def test_a_host_may_be_full():
    assert history.overbooked([
        change(1, 0, 'h0'), change(1, 1, 'h0'), change(2, 2, 'h1')],
        CAPACITIES) == []


def test_one_too_many():
    found, = history.overbooked([
        change(1, 0, 'h0'), change(1, 1, 'h0'), change(2, 2, 'h0')],
        CAPACITIES)
    assert (found.generation, found.host, found.booked, found.capacity,
            found.is_novas) == (2, 'h0', 3.0, 2.0, False)
    assert len(found.rows) == 3


def test_one_commit_may_be_too_much():
    assert len(history.overbooked([
        change(1, row, 'h0') for row in range(3)], CAPACITIES)) == 1


def test_large_servers_count_more():
    assert len(history.overbooked([change(1, 0, 'h1', vcpus=2.0)],
                                  CAPACITIES)) == 1


@pytest.mark.parametrize('state', ['planned', 'reserved', 'running'])
def test_whether_nova_built_it_there(state):
    found, = history.overbooked([
        change(1, 0, 'h1'), change(2, 1, 'h1', state)], CAPACITIES)
    assert found.is_novas == (state == 'running')


def test_room_that_was_left_is_free():
    assert history.overbooked([
        change(1, 0, 'h1'), change(2, 0, None, 'vacant'),
        change(3, 1, 'h1'), change(4, 1, 'h0', 'running'),
        change(5, 2, 'h1')], CAPACITIES) == []


def test_a_vm_that_left_leaves_its_room_before_the_database_is_told():
    """Whatever its row is used for until then; not before it left."""
    changes = [change(1, 0, 'h1', 'running'), change(3, 1, 'h1'),
               change(4, 0, 'h1', 'running'), change(5, 0, None, 'vacant')]
    assert history.overbooked(changes, CAPACITIES)
    assert not history.overbooked(
        history.leaving(changes, [('vm0', 'h1', 2), ('nobody', 'h1', 2)]),
        CAPACITIES)
    found, = history.overbooked(
        history.leaving(changes, [('vm0', 'h1', 3)]), CAPACITIES)
    assert found.generation == 3


def test_commits_count_in_the_order_of_their_generations():
    """The second one was written first, as its transaction began first."""
    assert history.overbooked([
        change(2, 1, 'h1'), change(1, 0, None, 'vacant')],
        CAPACITIES) == []
    assert len(history.overbooked([
        change(3, 0, None, 'vacant'), change(2, 1, 'h1'),
        change(1, 0, 'h1')], CAPACITIES)) == 1


def test_an_overfull_host_is_told_when_it_becomes_fuller():
    found = history.overbooked([
        change(1, 0, 'h1'), change(2, 1, 'h1'), change(3, 0, None, 'vacant'),
        change(4, 1, 'h1', 'reserved'), change(5, 2, 'h1')], CAPACITIES)
    assert [one.generation for one in found] == [2, 5]


def test_the_end_is_the_last_of_each():
    assert history.final([
        change(1, 0, 'h0'), change(1, 1, 'h1'),
        change(2, 0, 'h1', 'running')]) == {
            'vm0': ('h1', 'running'), 'vm1': ('h1', 'planned')}


def test_who_ever_shared_a_host():
    assert history.neighbours([
        change(1, 0, 'h0'), change(1, 1, 'h0'), change(2, 1, 'h1'),
        change(2, 0, 'h0', group='k'), change(3, 0, None, group='k'),
        change(3, 1, 'h0', group='k')]) == {'g'}
