# SPDX-License-Identifier: Apache-2.0

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from virtco.scheduling import pilots

MB = 1e6


def remaining(receiver, sent_mb, has_ended, is_pilot):
    """In MB."""
    return (pilots.remaining_bytes(
        np.array(receiver), np.array(sent_mb) * MB,
        np.array(has_ended, bool), np.array(is_pilot, bool)) / MB).tolist()


@hypothesis.given(st.integers(0, 30_000), st.floats(0.001, 1.0))
def test_pilots_are_a_share_and_at_least_one(n_flows, share):
    chosen = pilots.choose(n_flows, share)
    assert chosen.shape == (n_flows,)
    assert chosen.sum() == min(n_flows, max(1, np.ceil(share * n_flows)))


def test_pilots_are_spread():
    """146 senders to 145 receivers, by sender and by receiver."""
    at = np.flatnonzero(pilots.choose(146 * 145))
    assert len(np.unique(at // 145)) > 100
    assert len(np.unique(at % 145)) > 80


def test_the_same_flows_are_pilots_each_time():
    """Steps of the golden ratio spread them."""
    assert np.flatnonzero(pilots.choose(1000)).tolist() == [
        90, 180, 236, 326, 472, 562, 618, 708, 854, 944]
    assert np.flatnonzero(pilots.choose(10, 0.5)).tolist() == [0, 2, 4, 6, 8]
    assert np.flatnonzero(pilots.choose(201)).tolist() == [47, 124, 171]


def test_without_a_sample_all_are_taken_for_a_megabyte():
    assert remaining([0, 1], [0, 0.25], [0, 0], [0, 0]) == [1.0, 0.75]
    # What seems to be sent is to send a tenth of it, or of 100 kB.
    assert remaining([0] * 3, [0.05, 0.08, 0.2], [1, 0, 0], [0] * 3) == (
        pytest.approx([0.0, 0.01, 0.02]))


def test_a_pilot_tells_of_the_others():
    # One of 8 MB has ended; 2 MB of another's are on their way.
    assert remaining([0, 0, 0], [8, 2, 0], [1, 0, 0], [1, 0, 0]) == (
        pytest.approx([0.0, 6.0, 8.0]))


def test_who_still_sends_is_expected_to_go_on():
    assert remaining([0, 0], [0, 0], [0, 0], [1, 0]) == [1.0, 1.0]
    assert remaining([0, 0], [30, 0], [0, 0], [1, 0]) == [30.0, 60.0]


def test_a_receiver_is_known_by_its_own():
    """10 and 1 MB; the mean of all counts like half a flow."""
    left = remaining([0, 0, 1, 1, 2], [10, 0, 1, 0, 0], [1, 0, 1, 0, 0],
                     [1, 0, 1, 0, 0])
    assert left == pytest.approx([
        0.0, (10 + 0.5 * 5.5) / 1.5, 0.0, (1 + 0.5 * 5.5) / 1.5, 5.5])


def test_what_ended_is_a_sample_too():
    """The others of a receiver that have ended tell of the last one."""
    assert remaining([0] * 4, [5, 5, 5, 0], [1, 1, 1, 0],
                     [1, 0, 0, 0])[3] == pytest.approx(5.0)


def test_the_overdue_has_something_left():
    left = remaining([0, 0], [2, 40], [1, 0], [1, 0])
    assert left == pytest.approx([0.0, 4.0])


@hypothesis.given(st.lists(st.tuples(
    st.integers(0, 3), st.floats(0, 1e12), st.booleans(), st.booleans()),
    min_size=1, max_size=20))
def test_all_that_run_have_something_left(flows):
    receiver, sent, ended, is_pilot = map(np.array, zip(*flows))
    left = pilots.remaining_bytes(receiver, sent, ended, is_pilot)
    assert np.all(np.isfinite(left))
    assert np.array_equal(left > 0, ~ended)
