# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""A job behind a gate that only its counters open."""

import pytest

from virtco.scheduling.periodic import keeper
from virtco.scheduling.periodic import rehearsal

BYTES = 1000.0


def run(one, first_s, until_s, rate=1000.0, compute_s=1.0, step_s=0.01,
        leak=20.0):
    """A job that computes and sends; times at which its iterations ended."""
    ends_s, sent, waiting, now_s = [], 0.0, 0.0, 0.0
    ready_s = first_s
    while now_s < until_s:
        if ready_s is not None and now_s >= ready_s:
            waiting, ready_s = waiting + BYTES, None
        moved = min(waiting, step_s * (rate if one.is_open else leak))
        sent, waiting = sent + moved, waiting - moved
        if moved > 0 and waiting <= 0:
            ends_s.append(now_s)
            ready_s = now_s + compute_s
        one.look(now_s, sent, waiting)
        now_s += step_s
    return ends_s


def test_iterations_begin_at_their_turns():
    one = keeper.Keeper(rehearsal.Gate(2.2, 0.7), BYTES)
    ends_s = run(one, first_s=0.3, until_s=20)
    assert ends_s == pytest.approx([0.7 + 1 + 2.2 * n for n in range(
        len(ends_s))], abs=0.05)
    assert one.opened >= len(ends_s) >= 8
    # Ready at 0.3, then 0.2 before each turn.
    assert one.held_s == pytest.approx(0.4 + 0.2 * (one.opened - 1), abs=0.4)


def test_a_drift_beyond_a_share_of_the_period_waits_for_the_next_turn():
    for first_s, opens_s in ((0.3, 0.3), (0.6, 2.2)):
        one = keeper.Keeper(rehearsal.Gate(2.2, 0.0), BYTES)
        ends_s = run(one, first_s, until_s=4)
        assert ends_s[0] == pytest.approx(opens_s + 1, abs=0.05)


def test_what_is_sent_again_is_no_beginning():
    one = keeper.Keeper(rehearsal.Gate(2.0), BYTES)
    assert not one.look(0.0, 0.0, 0.5 * keeper.A_LITTLE * BYTES)
    assert not one.look(2.0, 0.0, 0.5 * keeper.A_LITTLE * BYTES)
    assert one.look(4.0, 0.0, BYTES)


def test_a_pause_within_an_iteration_does_not_close():
    one = keeper.Keeper(rehearsal.Gate(2.0), BYTES)
    assert one.look(0.0, 0.0, 100.0)
    assert one.look(0.1, 100.0, 0.0)
    assert not one.look(1.0, BYTES, 0.0)
