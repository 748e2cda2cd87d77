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

from hypothesis import given
from hypothesis import strategies as st
import pytest

from virtco.measure import latency


def test_of_a_hundred_the_second_longest_is_the_99th_percentile():
    found = latency.of([0.5, *[0.001] * 50, 0.2, *[0.002] * 48])
    assert found == latency.RoundTrips(0.001, 0.0015, 0.2, 100)


@given(st.lists(st.floats(1e-6, 10), min_size=1))
def test_the_three_are_in_order(round_trips_s):
    found = latency.of(round_trips_s)
    assert (min(round_trips_s) == found.min_s <= found.median_s
            <= found.p99_s <= max(round_trips_s))


def test_a_small_message_takes_half_a_round_trip_a_large_one_its_size():
    assert latency.message_s(0, 0.002, 1e9) == 0.001
    assert latency.message_s(1.25e8, 0.002, 1e9) == pytest.approx(1.001)
