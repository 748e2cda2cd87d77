# SPDX-License-Identifier: Apache-2.0

"""Whether nobody else can have taken over, as far as peers say."""

import pytest

from virtco.leadership import elector

LEASE_S = 3.0


def arrive(one, now_s, *names):
    one.arrived(dict.fromkeys(names, True), now_s)


@pytest.fixture
def one():
    found = elector.Agreement(LEASE_S)
    arrive(found, 100.0, 'a', 'b')
    return found


def say(one, now_s, **has_database):
    for name, value in has_database.items():
        one.said(name, value, now_s)


def test_without_peers_nobody_else_takes_over():
    assert elector.Agreement(LEASE_S).have_no_database(100.0)


def test_each_peer_has_to_say_so(one):
    assert not one.have_no_database(100.0)
    say(one, 100.0, a=False)
    assert not one.have_no_database(100.0)
    say(one, 100.0, b=True)
    assert not one.have_no_database(100.0)
    say(one, 100.0, b=False)
    assert one.have_no_database(100.0)
    say(one, 101.0, a=True)
    assert not one.have_no_database(101.0)


def test_what_a_peer_said_holds_for_a_lease(one):
    say(one, 100.0, a=False)
    say(one, 101.0, b=False)
    assert one.have_no_database(103.0)
    assert not one.have_no_database(103.1)
    say(one, 103.1, a=False)
    assert one.have_no_database(104.0)
    assert not one.have_no_database(104.1)


def test_one_that_is_gone_may_lead(one):
    say(one, 100.0, a=False, b=False)
    arrive(one, 101.0, 'a')
    assert not one.have_no_database(101.0)
    # It came back, and has to say so again.
    arrive(one, 102.0, 'a', 'b')
    assert not one.have_no_database(102.0)
    say(one, 102.0, b=False)
    assert one.have_no_database(102.0)


def test_one_that_is_gone_and_never_leads_is_not_missed(one):
    one.arrived({'a': True, 'relay': False}, 100.0)
    one.written()
    say(one, 100.0, a=False)
    # While it is here it may know that there is a database.
    assert not one.have_no_database(100.0)
    say(one, 100.0, relay=False)
    assert one.have_no_database(100.0)
    arrive(one, 101.0, 'a')
    assert one.have_no_database(101.0)


def test_peers_that_stay_need_not_say_it_again(one):
    say(one, 100.0, a=False, b=False)
    arrive(one, 101.0, 'a', 'b', 'c')
    assert not one.have_no_database(101.0)
    say(one, 101.0, c=False)
    assert one.have_no_database(101.0)


def test_one_that_left_while_the_database_was_there_is_not_missed(one):
    say(one, 100.0, a=False)
    arrive(one, 100.0, 'a')
    assert not one.have_no_database(100.0)
    one.written()
    assert one.have_no_database(100.0)
    # Who comes from here on counts.
    arrive(one, 101.0, 'a', 'c')
    assert not one.have_no_database(101.0)
    arrive(one, 101.0, 'a')
    assert not one.have_no_database(101.0)


def test_writing_does_not_forget_those_that_are_here(one):
    one.written()
    assert not one.have_no_database(100.0)
    say(one, 100.0, a=False, b=False)
    assert one.have_no_database(100.0)
    arrive(one, 100.0)
    assert not one.have_no_database(100.0)
    one.written()
    assert one.have_no_database(100.0)


def test_one_that_came_while_the_beat_was_written_counts(one):
    say(one, 100.0, a=False, b=False)
    arrive(one, 100.0, 'a', 'b', 'c')
    # The set of before that the other thread stored last.
    one._expected = frozenset({'a', 'b'})
    assert not one.have_no_database(100.0)
    say(one, 100.0, c=False)
    assert one.have_no_database(100.0)
