# SPDX-License-Identifier: Apache-2.0

from hypothesis import given
from hypothesis import strategies as st

from edge_module.probe import latency


def test_of_a_hundred_the_second_longest_is_the_99th_percentile():
    found = latency.of([0.5, *[0.001] * 50, 0.2, *[0.002] * 48])
    assert found == latency.RoundTrips(0.001, 0.0015, 0.2, 100)


@given(st.lists(st.floats(1e-6, 10), min_size=1))
def test_the_three_are_in_order(round_trips_s):
    found = latency.of(round_trips_s)
    assert (min(round_trips_s) == found.min_s <= found.median_s
            <= found.p99_s <= max(round_trips_s))
