# SPDX-License-Identifier: Apache-2.0

"""The newest reading of each pair of hosts, and what they say."""

import dataclasses
import types

from hypothesis import given
from hypothesis import strategies as st
import pytest

from tests.unit import made
from virtco.measure import history
from virtco.state import measured_rates


def test_the_newest_measurement_of_a_pair_counts():
    found = measured_rates.Rates()
    for rate_bps, at_s in ((1e8, 1), (5e7, 2)):
        for src, dst in (('a', 'b'), ('a', 'c')):
            found.add(made.measurement(src, dst, rate_bps), at_s)
    assert found.estimate(3).hosts['a'].egress_bps == 5e7
    assert found.estimate(9) is found.estimate(10)
    assert found.age_s(3) == {('a', 'b'): 1, ('a', 'c'): 1}
    (first, _second) = found.pairs(3)
    assert first.rate_bps == 5e7
    assert 0.9 < first.confidence <= 1


HOSTS = st.sampled_from('abcdefg')
MEASUREMENTS = st.lists(
    st.tuples(HOSTS, HOSTS, st.floats(1e6, 1e9), st.booleans()).filter(
        lambda m: m[0] != m[1]), max_size=60)


@given(MEASUREMENTS, st.integers(0, 60))
def test_no_reading_that_counts_is_left_out(measured, asked_at):
    """As if each question was answered from all the pairs."""
    known, loaded, newest = measured_rates.Rates(), measured_rates.Rates(), {}
    for at_s, (src, dst, rate_bps, is_bound) in enumerate(measured):
        known.add(made.measurement(src, dst, rate_bps,
                                   lower_bound=is_bound), at_s)
        newest[src, dst] = history.Reading(src, dst, rate_bps, at_s,
                                              is_bound)
        if at_s == asked_at:
            known.estimate(at_s)
    # What is known stays where an older one comes in.
    loaded.load(types.SimpleNamespace(
        src=p.src, dst=p.dst, rate_bps=p.rate_bps, lower_bound=p.lower_bound,
        loss=0.0, rtt_s=None, rtt_median_s=None, rtt_p99_s=None, method='',
        measured_at=p.measured_s)
        for p in (*newest.values(), *(
            dataclasses.replace(p, measured_s=-1.0, rate_bps=1.0)
            for p in newest.values())))
    for some in (known, loaded):
        found = some.estimate(len(measured))
        expected = made.host_rates(newest.values(), found.at_s)
        assert found.hosts.keys() == expected.keys()
        for host, rate in expected.items():
            assert dataclasses.asdict(found.hosts[host]) == pytest.approx(
                dataclasses.asdict(rate))
