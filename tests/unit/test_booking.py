# SPDX-License-Identifier: Apache-2.0

"""The ledger of room: what may be booked beside what Nova's numbers tell."""

from hypothesis import given
from hypothesis import strategies as st
import pytest

from virtco.model import booking


def left(shown, settled=0, claimed=0, planned=0, room=None):
    """Return (room, what is left), of one resource."""
    account = booking.Account(
        (settled,), (claimed,), (planned,),
        None if room is None else (room,))
    return account.room_in((shown,))[0], account.left_in((shown,))[0]


def test_what_nova_does_not_show_is_booked():
    """Four slots, one settled: Nova shows three."""
    assert left(3, settled=1, claimed=1, room=4) == (4, 2)
    # Two reserved one after the other, then the numbers show the first.
    assert left(3, settled=1, claimed=2, room=4) == (4, 1)
    assert left(2, settled=1, claimed=2, room=4) == (4, 1)
    assert left(1, settled=1, claimed=2, room=4) == (4, 1)


def test_a_plan_is_never_in_novas_numbers():
    assert left(4, planned=1, room=4) == (4, 3)
    assert left(2, planned=1, room=4) == (2, 1)
    settled, young = 1, 2
    # Nova shows nothing of the young one, or all of it.
    for shown in (8, 6):
        assert left(shown, settled, young, 3, room=9) == (9, 3)


def test_without_a_memory_nothing_young_is_in_the_numbers():
    assert left(3, settled=1, claimed=1) == (4, 2)


def test_more_may_be_booked_than_there_is():
    assert left(2, planned=5) == (2, 0)


def test_servers_without_a_group_shrink_the_room():
    """Eight slots, three of servers that came after the reservation."""
    assert left(5, claimed=1, room=8) == (6, 5)
    assert left(4, claimed=1, room=8) == (5, 4)
    # One left: Nova shows more than was there then.
    assert left(9, claimed=1, room=8) == (9, 8)
    # The numbers may lack one that a notification told of.
    assert left(8, claimed=3) == (8, 5)
    assert left(8, claimed=3 + 1, room=8) == (8, 4)
    assert left(5, claimed=3 + 1, room=8) == (8, 4)


def test_each_resource_for_itself():
    account = booking.Account((0, 0), (2, 512), (0, 0), (4, 1024))
    assert account.room_in((4, 512)) == (4, 1024)
    ledger = booking.Ledger({'h': account}, {'h': (4, 512), 'other': (1, 1)})
    assert ledger.left() == {'h': (2, 512), 'other': (1, 1)}
    assert ledger.room('other') == (1, 1)
    assert ledger.admits({'h': (2, 512), 'other': (1, 1)})
    for wanted in ({'h': (2.1, 0)}, {'other': (0, 1.1)}, {'unseen': (0, 0)}):
        assert not ledger.admits(wanted)
    # Sums of tenths are not exact.
    assert booking.fits((0.1 + 0.2,), (0.3,))
    assert booking.fits((1.0 + booking.ROUNDING,), (1.0,))


def test_vectors_are_of_the_same_resources():
    with pytest.raises(ValueError):
        booking.Account((1, 2), (1,), (1,)).room_in((4,))
    with pytest.raises(ValueError, match='zip'):
        booking.Account((1,), (1, 2), (1,)).room_in((4,))
    with pytest.raises(ValueError):
        booking.fits((1, 2), (1,))


def test_accounts_add_up():
    one = booking.Account((1,), (2,), (3,), (5,))
    other = booking.Account((10,), (20,), (30,))
    assert one + other == other + one == booking.Account(
        (11,), (22,), (33,), (5,))


@given(st.integers(1, 8), st.integers(0, 4),
       st.lists(st.integers(1, 3), max_size=6), st.integers(0, 6),
       st.lists(st.integers(1, 3), max_size=3))
def test_nothing_is_booked_twice_and_no_room_is_lost(
        free, settled, young, n_shown, plans):
    """Nova shows any number of those that came after the first one."""
    total = free + settled + sum(young)
    shown = total - settled - sum(young[:n_shown])
    assert left(shown, settled, sum(young), sum(plans), room=total)[1] == max(
        0, free - sum(plans))


def test_vectors_of_other_resources_do_not_add_up():
    assert booking._add((1.0, 2.0), (3.0, 5.0)) == (4.0, 7.0)
    with pytest.raises(ValueError):
        booking._add((1.0,), (1.0, 2.0))


def test_how_long_numbers_of_nova_may_lack_a_vm():
    assert (booking.SETTLED_S, booking.NUMBERS_S, booking.MOVE_S) == (
        60.0, 10.0, 600.0)
