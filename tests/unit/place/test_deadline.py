# SPDX-License-Identifier: Apache-2.0

"""What is committed, and what is not tried."""

import pytest

from virtco import exception
from virtco.place import deadline as deadlines


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


def test_what_is_claimed_in_time_is_not_given_up(clock):
    deadline = deadlines.Deadline(1.0, clock)
    clock.now_s += 0.999
    deadline.claim()
    assert not deadline.give_up()


def test_what_was_given_up_cannot_be_claimed(clock):
    deadline = deadlines.Deadline(1.0, clock)
    assert deadline.give_up()
    with pytest.raises(exception.TooLate):
        deadline.claim()


def test_what_is_late_cannot_be_claimed_although_nobody_gave_up(clock):
    deadline = deadlines.Deadline(1.0, clock)
    clock.now_s += 1.0
    with pytest.raises(exception.TooLate):
        deadline.claim()
    assert deadline.left_s() == 0
    assert deadline.give_up()


def test_nothing_is_committed_for_a_client_that_is_gone(clock):
    gone = []
    deadline = deadlines.Deadline(1.0, clock, lambda: bool(gone))
    assert deadline.left_s() == 1.0 and not deadline.is_abandoned()
    gone.append(1)
    assert deadline.left_s() == 0.0 and deadline.is_abandoned()
    with pytest.raises(exception.TooLate, match='in time: the client is gone,'
                       ' queue took 0.00 of 1 s'):
        deadline.claim()
    late = deadlines.Deadline(1.0, clock)
    assert late.give_up() and late.is_abandoned() and late.left_s() == 0.0


def test_the_slow_phase_is_named(clock):
    deadline = deadlines.Deadline(1.0, clock)
    for phase, took_s in (('read', 0.1), ('solve', 0.6), ('commit', 0.4)):
        deadline.enter(phase)
        clock.now_s += took_s
    error = deadline.too_late()
    assert error.kwargs['phase'] == 'solve'
    assert str(error) == 'no plan in time: solve took 0.60 of 1 s'
    assert deadline.spent_s() == pytest.approx(
        {'queue': 0, 'read': 0.1, 'hold': 0, 'solve': 0.6, 'rank': 0,
         'commit': 0.4})


def learned(clock, *spent_s, cpu_s=0.3, phase='rank'):
    pace = deadlines.Pace(clock)
    for took_s in spent_s:
        deadline = deadlines.Deadline(1.0, clock)
        deadline.enter(phase)
        clock.now_s += took_s
        pace.learn(deadline, cpu_s)
    return pace


def test_the_pace_is_learned_and_forgotten(clock):
    pace = learned(clock, 0.2)
    assert pace.expected_s('rank') == pytest.approx(0.2)
    assert pace.expected_s('commit') == 0
    clock.now_s += deadlines.HALF_LIFE_S
    assert pace.expected_s('rank', 'commit') == pytest.approx(0.1)


def test_later_placements_change_the_pace_step_by_step(clock):
    pace = learned(clock, 0.2, 0.1)
    assert pace.expected_s('rank') == pytest.approx(
        0.2 * 0.5 ** (0.1 / deadlines.HALF_LIFE_S) * 0.7 + 0.1 * 0.3)
    pace.learn(deadlines.Deadline(1.0, clock), 0.3)
    assert pace.expected_s('rank') > 0.16


def test_what_cannot_be_in_time_is_not_admitted(clock):
    pace = learned(clock, 0.3, cpu_s=0.4)
    deadline = deadlines.Deadline(1.0, clock)
    pace.admit(deadline)
    pace.admit(deadline)
    with pytest.raises(exception.TooLate) as caught:
        pace.admit(deadline)
    assert caught.value.kwargs['phase'] == 'rank'
    assert str(caught.value) == (
        'no plan in time: 2 placements are under way that take 0.40 s each, '
        'most of it to rank')
    pace.leave(deadline)
    pace.admit(deadline)
    # A load that is over is no reason.
    clock.now_s += 3 * deadlines.HALF_LIFE_S
    pace.admit(deadline)


def test_what_can_just_be_in_time_is_admitted(clock):
    """Two that take half of the limit each."""
    pace = learned(clock, 0.0, cpu_s=0.5)
    deadline = deadlines.Deadline(1.0, clock)
    pace.admit(deadline)
    pace.admit(deadline)
    assert pace.n_under_way == 2


def test_all_but_the_solver_needs_the_interpreter(clock):
    pace = learned(clock, 0.3, phase='solve')
    assert not pace.needs_interpreter(0.1)
    placing = [deadlines.Deadline(1.0, clock) for _ in range(2)]
    for deadline in placing:
        pace.admit(deadline)
        deadline.enter('solve')
    assert not pace.needs_interpreter(0.1)
    # The solve is expected to end before.
    assert pace.needs_interpreter(0.4)
    clock.now_s += 0.25
    assert pace.needs_interpreter(0.1)
    clock.now_s -= 0.25
    for phase in sorted({*deadlines.PHASES} - {'solve'}):
        placing[1].enter(phase)
        assert pace.needs_interpreter(0.0), phase
    pace.leave(placing[1])
    # The next VM of its group comes in a moment.
    clock.now_s += deadlines.NEXT_S / 2
    assert pace.needs_interpreter(0.0)
    clock.now_s += deadlines.NEXT_S
    assert not pace.needs_interpreter(0.1) and pace.n_under_way == 1


def test_others_go_first_where_nobody_waits_for_an_answer(clock):
    """A placement may hang in the database for seconds after that."""
    pace, gone = deadlines.Pace(clock), []
    given_up = deadlines.Deadline(1.0, clock)
    left = deadlines.Deadline(1.0, clock, lambda: bool(gone))
    for one in (given_up, left):
        pace.admit(one)
        one.enter('commit')
    given_up.give_up()
    assert pace.needs_interpreter(0.0)
    gone.append(True)
    assert not pace.needs_interpreter(0.0)
    # It has a thread all the same.
    assert pace.n_under_way == 2


def test_reading_may_be_what_takes_long(clock):
    """Waiting for a thread is no work."""
    pace = deadlines.Pace(clock)
    deadline = deadlines.Deadline(9.0, clock)
    clock.now_s += 5.0
    for phase in ('read', 'solve'):
        deadline.enter(phase)
        clock.now_s += {'read': 2.0, 'solve': 1.0}[phase]
    pace.learn(deadline, 8.0)
    pace.admit(deadline)
    with pytest.raises(exception.TooLate, match='most of it to read'):
        pace.admit(deadline)


def test_one_alone_is_always_tried(clock):
    pace = learned(clock, 3.0, cpu_s=3.0)
    pace.admit(deadlines.Deadline(1.0, clock))
