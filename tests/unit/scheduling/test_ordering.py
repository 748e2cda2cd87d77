# SPDX-License-Identifier: Apache-2.0

"""Who goes first, against Python's own sort."""

import hypothesis
from hypothesis import strategies as st
import numpy as np

from virtco.scheduling import order_kernel
from virtco.scheduling import ordering
from virtco.scheduling import policies


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


def test_levels_keep_offenders_inside_their_class():
    classes = np.array([7, -1, 7, -1, 3])
    demoted = np.array([0, 2, 1, 0, 2])
    ranked = ordering.levels(policies.get('mrtf'), classes, demoted)
    assert np.argsort(ranked).tolist() == [3, 1, 4, 0, 2]
    # Nobody is pushed into the next class.
    assert ranked[1] < ranked[4] < ranked[0]
    assert ordering.levels(policies.get('fifo'), classes,
                           demoted).tolist() == [0, 2, 1, 0, 2]
