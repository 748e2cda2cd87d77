# SPDX-License-Identifier: Apache-2.0

"""How far two clocks are apart for certain."""

from hypothesis import given
from hypothesis import strategies as st
import pytest

from edge_module.gates import reference

#: The controller's wall clock less this host's monotonic one.
AHEAD_S = 1.7e9
ROUND = 1e-5


@given(st.lists(st.tuples(st.floats(0, 60), st.floats(0, 2), st.floats(0, 1)),
                max_size=20),
       st.floats(-3, 3))
def test_it_says_no_more_than_is_certain(answers, off_s):
    found, now_s = reference.Reference(), 1000.0
    narrowest_s = float('inf')
    for pause_s, trip_s, place in answers:
        now_s += pause_s
        read_s = now_s + place * trip_s
        found.hear(now_s, now_s + trip_s, read_s + AHEAD_S)
        now_s += trip_s
        narrowest_s = trip_s
    seen_s = found.off_s(now_s, AHEAD_S + off_s)
    assert seen_s <= abs(off_s) + ROUND
    assert seen_s >= abs(off_s) - narrowest_s - ROUND


def test_of_several_answers_the_quick_one_tells():
    found = reference.Reference()
    assert found.off_s(0.0, 1.0) == 0.0
    found.hear(0.0, 1.0, AHEAD_S + 0.5)
    assert found.off_s(1.0, AHEAD_S + 0.4) == 0.0
    found.hear(1.0, 1.002, AHEAD_S + 1.001)
    assert found.off_s(1.002, AHEAD_S + 0.4) == pytest.approx(0.399, abs=1e-3)
    found.hear(2.0, 3.0, AHEAD_S + 2.5)
    assert found.off_s(3.0, AHEAD_S - 0.4) == pytest.approx(0.399, abs=1e-3)


def test_a_controllers_clock_that_was_set_is_followed():
    found = reference.Reference()
    for second in range(3):
        found.hear(second, second + 0.01, AHEAD_S + second)
    found.hear(3.0, 3.01, AHEAD_S + 63.0)
    assert found.off_s(3.01, AHEAD_S + 60.0) == 0.0
    assert found.off_s(3.01, AHEAD_S) == pytest.approx(60.0, abs=0.02)


def test_answers_belong_to_questions_in_their_order():
    found = reference.Reference()
    found.answer(1.0, AHEAD_S)
    assert found.off_s(1.0, 0.0) == 0.0
    # The answer to the first is lost: the next one seems slow, not wrong.
    found.ask(1.0)
    found.ask(2.0)
    found.answer(2.001, AHEAD_S + 2.0)
    assert found.off_s(2.001, AHEAD_S - 0.9) == pytest.approx(0.9, abs=0.01)
    assert found.off_s(2.001, AHEAD_S + 0.9) == 0.0
    # A question that was answered by nobody is forgotten.
    found.ask(10.0)
    found.answer(10.001, AHEAD_S + 10.0)
    assert found.off_s(10.001, AHEAD_S + 0.9) == pytest.approx(0.9, abs=0.01)
    found.ask(11.0)
    found.restart()
    found.answer(11.0, 5.0)
    assert found.off_s(11.0, AHEAD_S) == 0.0
