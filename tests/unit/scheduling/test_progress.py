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

import math

import hypothesis
from hypothesis import strategies as st
import pytest

from virtco import exception
from virtco.scheduling import progress
from virtco.scheduling.progress import Phase

MB = 1e6


def watch(counts, claimed_bytes=10 * MB, state=None):
    """Feed (time, cumulative bytes) rows."""
    state = state or progress.Progress(claimed_bytes)
    for now_s, counter in counts:
        state = progress.observe(state, counter, now_s)
    return state


def test_start_is_told_from_noise():
    quiet = watch([(1.0, 500.0), (2.0, 1500.0)])
    assert (quiet.phase, quiet.iteration) == (Phase.ARMED, 0)
    started = watch([(1.0, 500.0), (2.0, 1500.0), (3.0, 2 * MB)])
    assert (started.phase, started.started_s) == (Phase.ACTIVE, 3.0)
    # The noise before counts as sent all the same.
    assert started.sent_bytes == 2 * MB
    assert started.remaining_bytes == 8 * MB


def test_end_is_at_the_last_byte():
    state = watch([(1.0, 4 * MB), (2.0, 9.5 * MB), (2.9, 9.5 * MB)])
    assert state.phase == Phase.ACTIVE
    state = watch([(3.1, 9.5 * MB)], state=state)
    assert (state.phase, state.ended_s) == (Phase.ENDED, 2.0)
    assert state.remaining_bytes == 0.0


def test_a_pause_is_no_end():
    state = watch([(1.0, 4 * MB), (200.0, 4 * MB)])
    assert state.phase == Phase.ACTIVE
    state = watch([(302.0, 4 * MB)], state=state)
    assert (state.phase, state.ended_s) == (Phase.ENDED, 1.0)


def test_recurring_coflow_rearms():
    state = watch([(1.0, 10 * MB), (50.0, 10 * MB), (60.0, 13 * MB),
                   (61.0, 19.2 * MB), (63.0, 19.2 * MB)])
    assert (state.phase, state.iteration) == (Phase.ENDED, 2)
    assert state.iteration_bytes == (10 * MB, pytest.approx(9.2 * MB))
    assert progress.expected_bytes(state) == pytest.approx(9.6 * MB)


def test_declared_end_is_honoured():
    state = progress.declare_end(watch([(1.0, 2 * MB)]), 1.5)
    assert (state.phase, state.ended_s) == (Phase.DECLARED, 1.5)
    assert watch([(2.0, 9 * MB)], state=state).phase == Phase.DECLARED
    assert state.remaining_bytes == 0.0
    never = progress.declare_end(progress.Progress(MB), 4.0)
    assert (never.phase, never.ended_s) == (Phase.DECLARED, 4.0)


def test_counter_that_began_anew():
    state = watch([(1.0, 4 * MB), (2.0, 1 * MB)])
    assert state.sent_bytes == 5 * MB


def test_unknown_size_is_the_claim_until_an_iteration_ended():
    assert progress.expected_bytes(progress.Progress(7.0)) == 7.0


@pytest.mark.parametrize('count', [-1.0, math.nan, math.inf])
def test_bad_count(count):
    with pytest.raises(exception.Invalid):
        watch([(1.0, count)])


@hypothesis.given(st.lists(st.tuples(st.floats(0.01, 500),
                                     st.floats(0, 5 * MB)), max_size=30))
def test_every_byte_is_counted_once(steps):
    now_s, counter, state = 0.0, 0.0, progress.Progress(10 * MB)
    for step_s, new in steps:
        now_s, counter = now_s + step_s, counter + new
        state = progress.observe(state, counter, now_s)
    present = 0.0 if state.phase == Phase.ENDED else state.sent_bytes
    assert sum(state.iteration_bytes) + present == pytest.approx(
        counter, abs=1e-3)
