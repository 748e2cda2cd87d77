# SPDX-License-Identifier: Apache-2.0

import math

import hypothesis
from hypothesis import strategies as st

from virtco.scheduling import attained


@hypothesis.given(st.floats(0, 1e9), st.floats(0.01, 10), st.floats(1.5, 10))
def test_a_queue_ends_at_the_first_limit_beyond(served_s, first_s, growth):
    limit_s = first_s
    while limit_s <= served_s:
        limit_s *= growth
    found_s = attained.limit_s(served_s, first_s, growth)
    assert found_s > served_s
    assert abs(found_s / limit_s - 1) < 1e-6 or (
        abs(served_s * growth / found_s - 1) < 1e-6)


def test_a_port_without_rate_serves_for_ever():
    assert attained.limit_s(math.inf) == math.inf
