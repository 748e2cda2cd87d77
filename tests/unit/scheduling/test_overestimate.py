# SPDX-License-Identifier: Apache-2.0

import math

import pytest

from virtco import exception
from virtco.scheduling import overestimate


@pytest.mark.parametrize('low, total, factor', [
    (0, 0, 1.0), (0, 10, 1.0), (3, 10, 1.3), (10, 10, 2.0)])
def test_factor(low, total, factor):
    assert overestimate.factor(low, total) == pytest.approx(factor)


@pytest.mark.parametrize('low, total, field', [
    (-1, 10, 'low_priority_bytes'), (1, math.nan, 'total_bytes'),
    (11, 10, 'low_priority_bytes'), (1, math.inf, 'total_bytes')])
def test_bad_counts(low, total, field):
    with pytest.raises(exception.Invalid) as caught:
        overestimate.factor(low, total)
    assert caught.value.kwargs['field'] == field
