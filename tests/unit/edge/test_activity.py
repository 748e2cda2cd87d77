# SPDX-License-Identifier: Apache-2.0

"""Which classes began or ceased to send, from one look to the next."""

from hypothesis import given
from hypothesis import strategies as st

from edge_module import activity
from edge_module.qdisc import wire

A, B, OTHER = 0x10, 0x11, 0x12


def look(found, **sent):
    """:param sent: bytes, or bytes and backlog, of classes A and B."""
    return found.has_changed({A, B}, {
        {'a': A, 'b': B, 'other': OTHER}[name]: wire.ClassStats(
            *((value, 1, 0) if isinstance(value, int)
              else (value[0], 1, value[1])))
        for name, value in sent.items()})


def test_a_class_begins_and_ceases():
    found = activity.Activity()
    assert not look(found, a=0, b=0)
    assert look(found, a=5, b=0)
    assert not look(found, a=9, b=0)
    # It waits: that it sends nothing at the moment is no end.
    assert not look(found, a=(9, 60), b=0)
    assert look(found, a=9, b=0)
    assert not look(found, a=9, b=0)


def test_a_class_that_is_new_begins_with_its_first_bytes():
    found = activity.Activity()
    assert not look(found)
    assert not look(found, a=0)
    assert look(found, a=0, b=7)
    # Its class was deleted, or is another's.
    assert look(found, a=0)


def test_other_classes_do_not_matter():
    found = activity.Activity()
    assert not look(found, other=5)
    assert not look(found, other=(9, 60))


def test_each_class_counts_once_until_the_next_interval():
    found = activity.Activity()
    assert look(found, a=1)
    assert look(found, a=1)
    assert not look(found, a=2)
    assert not look(found, a=2)
    # Another one may.
    assert look(found, a=2, b=1)
    found.forget_told()
    assert look(found, a=3, b=2)
    assert look(found, a=3, b=3)


@given(st.lists(st.lists(st.booleans(), min_size=2, max_size=2), max_size=30))
def test_no_more_reports_than_classes_begin_and_cease(sends):
    """And none where nothing changes."""
    found = activity.Activity()
    sent = [0, 0]
    before = [False, False]
    n_reports = 0
    for now in sends:
        sent = [bytes_ + is_busy for bytes_, is_busy in zip(sent, now)]
        has_changed = look(found, a=sent[0], b=sent[1])
        assert not has_changed or now != before
        n_reports += has_changed
        before = now
    assert n_reports <= 4


def begins(found, much=100, **sent):
    """:param sent: bytes of classes of unmanaged traffic, by letter."""
    return found.has_begun({ord(name): wire.ClassStats(value)
                            for name, value in sent.items()}, much)


def test_a_flood_that_begins_is_told_once():
    found = activity.Floods()
    # Nobody knows when the first bytes that are seen were sent.
    assert not begins(found, a=500, b=500)
    assert not begins(found, a=550, b=550)
    assert begins(found, a=601, b=600)
    assert not begins(found, a=900, b=600)
    # It pauses, and goes on: not twice before the next report is due.
    assert not begins(found, a=900, b=600)
    assert not begins(found, a=1200, b=600)
    found.forget_told()
    assert not begins(found, a=1500, b=600)
    assert not begins(found, a=1500, b=600)
    assert begins(found, a=1500, b=900)


def test_a_new_class_is_no_flood():
    found = activity.Floods()
    assert not begins(found, a=0)
    assert not begins(found, a=0, b=10**9)
    assert begins(found, a=0, b=10**9 + 101)
