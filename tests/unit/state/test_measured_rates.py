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


def stored(reading):
    return types.SimpleNamespace(
        src=reading.src, dst=reading.dst, rate_bps=reading.rate_bps,
        lower_bound=reading.lower_bound, loss=0.0, rtt_s=None,
        rtt_median_s=None, rtt_p99_s=None, method='',
        measured_at=reading.measured_s)


def test_what_is_read_again_changes_nothing():
    found, row = measured_rates.Rates(), stored(
        history.Reading('a', 'b', 1e8, 5.0))
    found.load([row])
    before = found.estimate(6.0)
    assert before.hosts['a'].egress_bps == 1e8
    found.load([row])
    assert found.estimate(7.0) is before
    # Hosts of which nothing is known are forgotten in vain.
    found.forget({'c'})
    assert found.estimate(8.0) is before


def test_what_is_measured_after_hosts_were_forgotten_counts():
    found = measured_rates.Rates()
    for dst in 'bc':
        found.add(made.measurement('a', dst, 1e8), 5.0)
    assert found.estimate(6.0).hosts.keys() == {'a', 'b', 'c'}
    found.forget({'c'})
    found.add(made.measurement('a', 'd', 3e8), 7.0)
    estimate = found.estimate(8.0)
    assert estimate.hosts.keys() == {'a', 'b', 'd'}
    assert estimate.hosts['a'].egress_bps == 3e8 and estimate.at_s == 8.0


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
    loaded.load(map(stored, (*newest.values(), *(
        dataclasses.replace(p, measured_s=-1.0, rate_bps=1.0)
        for p in newest.values()))))
    for some in (known, loaded):
        found = some.estimate(len(measured))
        expected = made.host_rates(newest.values(), found.at_s)
        assert found.hosts.keys() == expected.keys()
        for host, rate in expected.items():
            assert dataclasses.asdict(found.hosts[host]) == pytest.approx(
                dataclasses.asdict(rate))
