# SPDX-License-Identifier: Apache-2.0

"""The newest reading of each pair of hosts, and what they say."""

import dataclasses
import types

from hypothesis import given
from hypothesis import strategies as st
import pytest

from tests.unit import made
from virtco.measure import constant
from virtco.measure import history
from virtco.measure import pipes
from virtco.state import measured_rates


def test_the_newest_measurement_of_a_pair_counts():
    found = measured_rates.Rates()
    for rate_bps, at_s in ((1e8, 1), (5e7, 2)):
        for src, dst in (('a', 'b'), ('a', 'c')):
            found.add(made.measurement(src, dst, rate_bps), at_s)
    assert found.hosts()['a'].egress_bps == 5e7
    assert found.hosts() is found.hosts()
    assert found.age_s(3) == {('a', 'b'): 1, ('a', 'c'): 1}
    (first, _second) = found.pairs(3)
    assert first.rate_bps == 5e7
    assert 0.9 < first.confidence <= 1


def stored(reading):
    return types.SimpleNamespace(
        src=reading.src, dst=reading.dst, rate_bps=reading.rate_bps,
        lower_bound=reading.lower_bound, loss=0.0, rtt_s=None,
        rtt_median_s=None, rtt_p99_s=None, method='', slot=0,
        measured_at=reading.measured_s)


def test_what_is_read_again_changes_nothing():
    found, row = measured_rates.Rates(), stored(
        history.Reading('a', 'b', 1e8, 5.0))
    found.load([row])
    before = found.hosts()
    assert before['a'].egress_bps == 1e8
    found.load([row])
    assert found.hosts() is before
    # Hosts of which nothing is known are forgotten in vain.
    found.forget({'c'})
    assert found.hosts() is before


def test_what_is_measured_after_hosts_were_forgotten_counts():
    found = measured_rates.Rates()
    for dst in 'bc':
        found.add(made.measurement('a', dst, 1e8), 5.0)
    assert found.hosts().keys() == {'a', 'b', 'c'}
    found.forget({'c'})
    found.add(made.measurement('a', 'd', 3e8), 7.0)
    estimate = found.hosts()
    assert estimate.keys() == {'a', 'b', 'd'}
    assert estimate['a'].egress_bps == 3e8


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
            known.hosts()
    # What is known stays where an older one comes in.
    loaded.load(map(stored, (*newest.values(), *(
        dataclasses.replace(p, measured_s=-1.0, rate_bps=1.0)
        for p in newest.values()))))
    for some in (known, loaded):
        found = some.hosts()
        expected = made.host_rates(newest.values())
        assert found.keys() == expected.keys()
        for host, rate in expected.items():
            assert dataclasses.asdict(found[host]) == pytest.approx(
                dataclasses.asdict(rate))


@pytest.fixture
def pairs():
    return measured_rates.Rates(10, 1e6, 1e6)


def test_a_pair_of_tiny_rates_keeps_no_other_from_its_estimate(pairs):
    for turn in range(6):
        for dst, rate_bps in (('b', 5e-324), ('c', 1e-310), ('d', 4e8)):
            pairs.add(made.measurement('a', dst, rate_bps), float(turn))
        assert pairs.refresh(float(turn))
    row = pairs.known.table.hosts.index('d')
    found = dict(zip(pairs.known.table.ends[:, 1],
                     pairs.known.component.rates, strict=True))
    assert found[row] == pytest.approx(4e8)


def test_estimators_are_compared_every_ten_minutes(pairs, monkeypatch):
    asked = []

    def known(*args, estimator):
        asked.append(estimator)
        return found(*args, estimator=estimator)

    found = pipes.known
    monkeypatch.setattr(pipes, 'known', known)
    for now_s in (0.0, 1.0, 2.0, 3.0, 603.0, 604.0, 1203.0):
        for dst, rate_bps in (('b', 4e8), ('c', 6e8)):
            pairs.add(made.measurement('a', dst, rate_bps + now_s), now_s)
        assert pairs.refresh(now_s)
    median = constant.Estimator.MEDIAN
    assert asked == [None, median, median, median, None, median, None]


def test_what_failed_is_estimated_again(pairs, monkeypatch):
    pairs.add(made.measurement('a', 'b', 4e8), 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(pipes, 'known', lambda *_args, **_kwargs: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            pairs.refresh(1.0)
    assert pairs.refresh(2.0)
    assert pairs.known.component.rates == pytest.approx([4e8])
    assert not pairs.refresh(3.0)
