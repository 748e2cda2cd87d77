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


def test_little_is_no_flood_and_one_that_begins_is_told_once():
    found = activity.Activity()

    def look_at(sent_bytes):
        return found.has_changed([0], {0: wire.ClassStats(sent_bytes)}, 100)

    assert not look_at(100) and not look_at(200)
    assert look_at(301)
    # It goes on, and pauses once before the next report is due.
    assert not look_at(600) and look_at(600)
    assert not look_at(900) and not look_at(900)
    found.forget_told()
    assert look_at(1100)
