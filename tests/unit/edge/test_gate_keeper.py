# SPDX-License-Identifier: Apache-2.0

"""A job behind a gate that only its counters open."""

from hypothesis import given
from hypothesis import strategies as st
import pytest

from edge_module.gates import keeper
from virtco.table import edge_policy

BYTES = 1000.0


def gate(period_s=2.2, offset_s=0.0, open_s=0.88, epoch=1):
    return edge_policy.Gate(period_s, offset_s, open_s, BYTES, epoch)


def run(one, first_s, until_s, rate=1000.0, compute_s=1.0, step_s=0.01,
        leak=20.0, size=BYTES):
    """A job that computes and sends; times at which its iterations ended."""
    ends_s, sent, waiting, now_s = [], 0.0, 0.0, 0.0
    ready_s = first_s
    while now_s < until_s:
        if ready_s is not None and now_s >= ready_s:
            waiting, ready_s = waiting + size, None
        moved = min(waiting, step_s * (rate if one.is_open or one.gave_up
                                       else leak))
        sent, waiting = sent + moved, waiting - moved
        if moved > 0 and waiting <= 0:
            ends_s.append(now_s)
            ready_s = now_s + compute_s
        one.look(now_s, sent, waiting)
        now_s += step_s
    return ends_s


def test_iterations_begin_at_their_turns():
    one = keeper.Keeper(gate(2.2, 0.7))
    ends_s = run(one, first_s=0.1, until_s=20)
    assert ends_s == pytest.approx([0.7 + 1 + 2.2 * n for n in range(
        len(ends_s))], abs=0.05)
    assert one.opened >= len(ends_s) >= 8
    # Ready at 0.1, then 0.2 before each turn.
    assert one.held_s == pytest.approx(0.6 + 0.2 * (one.opened - 1), abs=0.4)
    assert not one.gave_up


@pytest.mark.parametrize('ahead_s', [-3.3, 0.3, 1e9])
def test_turns_are_those_of_the_wall_clock(ahead_s):
    """However far it is from the clock that is looked at."""
    one = keeper.Keeper(gate(2.0, 0.5), ahead_s)
    ends_s = run(one, first_s=0.1, until_s=20, compute_s=0.9)
    assert len(ends_s) >= 7
    for end_s in ends_s[5:]:
        assert (end_s - 1 + ahead_s - 0.5) % 2.0 == pytest.approx(
            0.05, abs=0.1)


def test_a_drift_beyond_a_share_of_the_turn_waits_for_the_next_one():
    for first_s, opens_s in ((0.3, 0.3), (0.6, 2.2)):
        ends_s = run(keeper.Keeper(gate()), first_s, until_s=4)
        assert ends_s[0] == pytest.approx(opens_s + 1, abs=0.05)


def test_what_is_sent_again_is_no_beginning():
    one = keeper.Keeper(gate(2.0))
    assert not one.look(0.0, 0.0, 0.5 * keeper.A_LITTLE * BYTES)
    assert not one.look(2.0, 0.0, 0.5 * keeper.A_LITTLE * BYTES)
    assert one.look(4.0, 0.0, BYTES)


@pytest.mark.parametrize('size_bytes', [2e6, 2e9])
def test_tcps_first_packets_are_a_beginning(size_bytes):
    """However large the iteration is; two of ten have gone at the trickle."""
    one = keeper.Keeper(edge_policy.Gate(2.0, 0.0, 0.88, size_bytes, 1))
    assert one.look(0.0, 2 * 1514.0, 8 * 1514.0)


def test_a_pause_within_an_iteration_does_not_close():
    one = keeper.Keeper(gate(2.0))
    assert one.look(0.0, 0.0, 100.0)
    assert one.look(0.1, 100.0, 0.0)
    assert one.look(0.2, 100.0, 0.0)
    assert one.look(1.0, BYTES, 0.0)
    # TCP may send again what was lost.
    assert one.look(1.1, BYTES, 0.0)
    assert not one.look(1.3, BYTES, 0.0)


def test_less_than_was_hinted_closes_by_silence():
    """Otherwise the next iteration would begin when it liked."""
    one = keeper.Keeper(gate(2.2, 0.7))
    ends_s = run(one, first_s=0.1, until_s=20, size=0.5 * BYTES,
                 compute_s=1.5)
    assert ends_s == pytest.approx([0.7 + 0.5 + 2.2 * n for n in range(
        len(ends_s))], abs=0.05)


@given(st.floats(0.1, 10), st.floats(0, 1), st.floats(0, 1),
       st.floats(-1e9, 1e9), st.floats(0, 100),
       st.lists(st.floats(-1e3, 1e3), max_size=3))
def test_no_gate_holds_back_for_longer_than_its_period(
        period_s, offset, open_part, ahead_s, ready_s, steps_s):
    """Whatever the wall clock does meanwhile."""
    one = keeper.Keeper(gate(period_s, offset * period_s,
                             open_part * period_s), ahead_s)
    one.look(ready_s, 0.0, BYTES)
    for step_s in steps_s:
        one.set(one.gate, ahead_s + step_s)
    assert one.look(ready_s + period_s * (1 + 1e-6) + 1e-6, 0.0, BYTES)


def test_who_always_comes_late_is_held_back_no_more():
    """Its iterations take longer than was hinted."""
    one = keeper.Keeper(gate(2.2))
    ends_s = run(one, first_s=0.0, until_s=40, compute_s=1.7)
    assert one.gave_up and one.look(50.0, 0.0, 0.0)
    between_s = [after - before for before, after in zip(ends_s, ends_s[1:])]
    assert max(between_s) > 4 and between_s[-3:] == pytest.approx(
        [2.7] * 3, abs=0.05)
    one.set(gate(3.0, epoch=1), 0.0)
    assert one.gave_up
    one.set(gate(3.0, epoch=2), 0.0)
    assert not one.gave_up


def test_counters_that_begin_anew_are_no_reason_to_hang():
    one = keeper.Keeper(gate(2.0), sent_bytes=1e9)
    assert one.look(0.0, 1e9, BYTES)
    one.look(0.5, 500.0, 0.0)
    one.look(1.0, 1000.0, 0.0)
    assert not one.look(1.3, 1000.0, 0.0)
