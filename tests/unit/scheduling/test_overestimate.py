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
