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
"""Measured, else nominal, else configured."""

import dataclasses
import types

from hypothesis import given
from hypothesis import strategies as st
import pytest

from virtco.know import uplinks
from virtco.measure import hostrates

RULES = uplinks.Rules(default_bps=1e9, tolerance=0.1, max_age_s=100)
LINK = {'egress_bps': 1e8, 'ingress_bps': 1e8}


def rate(egress_bps, ingress_bps=None, age_s=1.0, **kwargs):
    return hostrates.HostRate(egress_bps, ingress_bps, age_s, **kwargs)


@pytest.mark.parametrize(('link', 'measured', 'egress_bps', 'source'), [
    ({}, None, 1e9, 'unknown'),
    (LINK, None, 1e8, 'link'),
    (LINK, rate(5e7, 5e7), 5e7, 'measured'),
    (LINK, rate(9.6e7, 9.6e7), 1e8, 'measured'),
    (LINK, rate(9e7, 9e7), 1e8, 'measured'),
    (LINK, rate(8.9e7, 8.9e7), 8.9e7, 'measured'),
    (LINK, rate(5e7, 5e7, age_s=100), 5e7, 'measured'),
    (LINK, rate(2e8, 2e8), 1e8, 'measured'),
    (LINK, rate(5e7, 5e7, age_s=101), 1e8, 'link'),
    (LINK, rate(5e7, 5e7, egress_lower_bound=True,
                ingress_lower_bound=True), 1e8, 'link'),
    ({}, rate(5e7, 4e7), 5e7, 'measured'),
    ({'egress_bps': None, 'ingress_bps': None}, None, 1e9, 'unknown'),
])
def test_what_counts(link, measured, egress_bps, source):
    found = uplinks.of_host(link, measured, RULES)
    assert (found.egress_bps, found.source) == (egress_bps, source)


def test_directions_are_apart():
    found = uplinks.of_host(LINK, rate(5e7, None), RULES)
    assert (found.egress_bps, found.ingress_bps) == (5e7, 1e8)
    assert found.source == 'measured'
    # Only what was measured has an age.
    assert found.measured_age_s == 1.0
    assert uplinks.of_host(LINK, rate(None, 5e7), RULES
                           ).measured_age_s == 1.0
    assert uplinks.of_host(LINK, rate(None), RULES).measured_age_s is None
    assert uplinks.of_host(LINK, None, RULES).measured_age_s is None


def test_the_newest_measurement_of_a_pair_counts():
    rates = uplinks.Rates()
    for rate_bps, at_s in ((1e8, 1), (5e7, 2)):
        for src, dst in (('a', 'b'), ('a', 'c')):
            rates.add({'src': src, 'dst': dst, 'rate_bps': rate_bps}, at_s)
    assert rates.hosts(3)['a'].egress_bps == 5e7
    assert rates.age_s(3) == {('a', 'b'): 1, ('a', 'c'): 1}
    (first, _second) = rates.pairs(3)
    assert first['rate_bps'] == 5e7
    assert 0.9 < first['confidence'] <= 1


HOSTS = st.sampled_from('abcdefg')
MEASUREMENTS = st.lists(
    st.tuples(HOSTS, HOSTS, st.floats(1e6, 1e9), st.booleans()).filter(
        lambda m: m[0] != m[1]), max_size=60)


@given(MEASUREMENTS, st.integers(0, 60), st.floats(0, 5000))
def test_no_reading_that_counts_is_left_out(measured, asked_at, later_s):
    """As if each question was answered from all the pairs."""
    rates, loaded, newest = uplinks.Rates(), uplinks.Rates(), {}
    for at_s, (src, dst, rate_bps, is_bound) in enumerate(measured):
        rates.add({'src': src, 'dst': dst, 'rate_bps': rate_bps,
                   'lower_bound': is_bound}, at_s)
        newest[src, dst] = hostrates.PairRate(src, dst, rate_bps, at_s,
                                              is_bound)
        if at_s == asked_at:
            rates.hosts(at_s)
    loaded.load(types.SimpleNamespace(
        src=p.src, dst=p.dst, rate_bps=p.rate_bps, lower_bound=p.lower_bound,
        loss=0.0, rtt_s=None, method='', measured_at=p.measured_s)
        for p in newest.values())
    now_s = len(measured) + later_s
    expected = hostrates.estimate(newest.values(), now_s)
    rates.hosts(len(measured))
    for found in (rates.hosts(now_s), loaded.hosts(now_s)):
        assert found.keys() == expected.keys()
        for host, rate in expected.items():
            assert dataclasses.asdict(found[host]) == pytest.approx(
                dataclasses.asdict(rate))
