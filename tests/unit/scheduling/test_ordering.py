# SPDX-License-Identifier: Apache-2.0

"""Who goes first, against Python's own sort."""

import hypothesis
from hypothesis import strategies as st
import numpy as np

from virtco.scheduling import order_kernel


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
