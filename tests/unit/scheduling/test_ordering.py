# SPDX-License-Identifier: Apache-2.0

"""Who goes first, against Python's own sort."""

import math

import hypothesis
from hypothesis import strategies as st
import numpy as np

from virtco.scheduling import order_kernel
from virtco.scheduling import ordering


@hypothesis.given(st.lists(st.tuples(
    st.integers(-1, 2), st.sampled_from([0.0, 0.5, 1.0])), max_size=12),
    st.randoms(use_true_random=False))
def test_by_level_then_key_then_index(rows, random):
    level = np.array([row[0] for row in rows], np.int64)
    key = np.array([row[1] for row in rows], np.float64)
    order = np.arange(len(rows), dtype=np.int64)
    random.shuffle(order)
    order_kernel.sort(order, len(order), level, key)
    assert order.tolist() == sorted(
        range(len(rows)), key=lambda c: (level[c], key[c], c))


@hypothesis.given(st.floats(0, 1e9))
def test_a_queue_ends_at_the_first_limit_beyond(served_s):
    limit_s = ordering.queue_limit_s(served_s)
    assert served_s < limit_s <= max(0.5, 2 * served_s)
    assert math.frexp(limit_s)[0] == 0.5


def test_a_port_without_rate_serves_for_ever():
    assert ordering.queue_limit_s(math.inf) == math.inf
