# SPDX-License-Identifier: Apache-2.0

"""What is booked on a host though Nova's numbers do not show it."""

from hypothesis import given
from hypothesis import strategies as st
import pytest

from virtco.model import booking

NOW_S = 1000.0


def booked(n=1.0, room=None, has_vm=True, is_settled=False):
    return booking.Booking('h', (n,), has_vm, is_settled,
                           None if room is None else (room,))


def held(shown, *bookings):
    room, found = booking.rooms(bookings, {'h': (shown,)})['h']
    return room[0], found[0]


def test_what_nova_does_not_show_is_held():
    """Four slots, one settled: Nova shows three."""
    assert held(3, booked(is_settled=True), booked(room=4)) == (4, 1)
    # Two reserved one after the other, then the numbers show the first.
    assert held(3, booked(is_settled=True), booked(room=4),
                booked(room=4)) == (4, 2)
    assert held(2, booked(is_settled=True), booked(room=4),
                booked(room=4)) == (4, 1)
    assert held(1, booked(is_settled=True), booked(room=4),
                booked(room=4)) == (4, 0)


def test_a_plan_is_always_held():
    """Nova knows nothing of it, whatever its numbers have shrunk by."""
    assert held(4, booked(room=4, has_vm=False)) == (4, 1)
    assert held(2, booked(room=4, has_vm=False)) == (2, 1)


def test_without_a_memory_all_is_held():
    assert held(3, booked(), booked(is_settled=True)) == (4, 1)


def test_servers_of_others_shrink_the_room():
    """Eight slots, three of strangers that came after the reservation."""
    assert held(5, booked(room=8)) == (6, 0)
    assert held(4, booked(room=8)) == (5, 0)
    # A stranger left: Nova shows more than was there then.
    assert held(9, booked(room=8)) == (9, 1)


def test_each_resource_for_itself():
    found = booking.rooms([
        booking.Booking('h', (2.0, 512.0), True, False, (4.0, 1024.0))],
        {'h': (4.0, 512.0), 'other': (1.0, 1.0)})
    assert found == {'h': ((4.0, 1024.0), (2.0, 0.0))}


@pytest.mark.parametrize(('is_running', 'placed_at', 'expected'), [
    (False, None, False), (False, 0.0, False), (True, None, True),
    (True, NOW_S - 60, True), (True, NOW_S - 59, False),
    (True, NOW_S, False), (True, NOW_S + 59, False),
    # The clock was set back by an hour.
    (True, NOW_S + 3600, True)])
def test_settled(is_running, placed_at, expected):
    assert booking.is_settled(is_running, placed_at, NOW_S) == expected


def test_a_plan_is_held_beside_those_that_nova_may_know():
    settled, young = booked(is_settled=True), booked(2, room=9)
    plan = booked(3, room=9, has_vm=False)
    # Nova shows nothing of the young one: 9 less the settled one.
    assert held(8, settled, young, plan) == (9, 2 + 3)
    # It shows all of it: the plan alone is held.
    assert held(6, settled, young, plan) == (9, 3)
    # More is held than Nova shows as free.
    assert held(2, booked(5, has_vm=False)) == (2, 5)


def test_vectors_are_of_the_same_resources():
    with pytest.raises(ValueError):
        booking.rooms([booking.Booking('h', (1.0, 2.0), True, False)],
                      {'h': (4.0,)})


@given(st.integers(1, 8), st.integers(0, 4),
       st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=6),
       st.integers(0, 6), st.lists(st.integers(1, 3), max_size=3))
def test_nothing_is_booked_twice_and_no_room_is_lost(
        free, n_settled, young, n_shown, plans):
    """Of those that came after the first one, Nova shows any number; of
    plans it shows none.
    """
    total = free + n_settled + sum(n for n, _ in young)
    bookings = [booked(is_settled=True)] * n_settled + [
        booked(n, total) for n, _ in young] + [
        booked(n, has_vm=False) for n in plans]
    shown = total - n_settled - sum(n for n, _ in young[:n_shown])
    found = booking.rooms(bookings, {'h': (float(shown),)}).get('h')
    left = shown - (found[1][0] if found else 0)
    assert left == free - sum(plans)
