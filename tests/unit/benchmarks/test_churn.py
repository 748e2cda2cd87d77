# SPDX-License-Identifier: Apache-2.0

"""Growth is told from what is steady."""

import pytest

from benchmarks import churn


@pytest.mark.parametrize('values, expected', [
    ([5.0] * 20, 1.0),
    (list(range(20)), 17.5 / 5.5),
    # What is filled at first, or grows for a moment, is no growth.
    ([0.0] * 4 + [3.0] * 16, 1.0),
    ([1.0, 2.0], 1.0)])
def test_growth_is_of_the_last_fifth_over_the_second(values, expected):
    assert churn.grown(values) == pytest.approx(expected)
