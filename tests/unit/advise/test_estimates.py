# SPDX-License-Identifier: Apache-2.0

"""Paths between members from the readings between their hosts."""

import dataclasses

import numpy as np
import pytest

from virtco import exception
from virtco.advise import estimates
from virtco.measure import constant
from virtco.measure import history

#: Rows 0 and 2 share a host; nobody is on c.
MEMBERS = ('b', 'a', 'b')


def readings(rates_bps, member_hosts=MEMBERS, usable=1.0):
    kept = history.History()
    for at_s, found in enumerate(rates_bps):
        for (src, dst), rate_bps in found.items():
            kept.add(history.Reading(src, dst, rate_bps, float(at_s + 1),
                                     rtt_s=0.004))
    return estimates.Readings.of(kept.table(), member_hosts,
                                 {'a': 50.0, 'b': 40.0}, 30.0, usable)


def rates(found, basis):
    return found.estimate(estimates.Basis(basis)).paths.rates_bps


def test_each_estimate_reads_the_history():
    found = readings([{('a', 'b'): rate_bps, ('b', 'a'): 20.0,
                       ('a', 'c'): 1.0}
                      for rate_bps in (10.0, 10.0, 10.0, 10.0, 2.0)])
    for basis, told in (('median', 10.0), ('raw', 2.0)):
        matrix = rates(found, basis)
        assert matrix[1, 0] == matrix[1, 2] == told
        assert matrix[0, 1] == matrix[2, 1] == 20.0
        assert matrix[0, 2] == matrix[1, 1] == np.inf
    one = found.estimate(estimates.Basis.MEDIAN)
    assert (one.n_measured, one.n_pairs) == (2, 2)
    assert one.noise == pytest.approx(0.1) and str(one.trust) == 'stable'
    assert one.paths.latency_s.tolist() == [
        [0.0, 0.002, 0.0], [0.002, 0.0, 0.002], [0.0, 0.002, 0.0]]
    assert found.estimate(estimates.Basis.RAW).noise is None


def test_what_was_not_measured_is_as_fast_as_the_slower_link():
    found = readings([{('a', 'b'): 10.0}], ('b', 'a', 'c'), 0.5)
    for basis in estimates.Basis:
        matrix = rates(found, basis)
        assert matrix[1, 0] == pytest.approx(5.0)
        assert matrix[0, 1] == 20.0  # half of b's link
        assert matrix[2, 1] == 15.0  # c is unknown
    one = found.estimate(estimates.Basis.RAW)
    assert (one.n_measured, one.n_pairs) == (1, 6)


def test_nothing_that_got_through_is_no_rate():
    found = readings([{('a', 'b'): 0.0, ('b', 'a'): 20.0}])
    one = found.estimate(estimates.Basis.RAW)
    assert one.n_measured == 1
    assert (one.paths.rates_bps[1, 0], one.paths.rates_bps[0, 1]) == (
        40.0, 20.0)


def test_without_any_reading():
    found = readings([])
    for basis in estimates.Basis:
        one = found.estimate(basis)
        assert one.n_measured == 0 and one.noise is None
        assert one.paths.rates_bps[0, 1] == 40.0
        assert not one.paths.latency_s.any()


def test_many_pairs_get_only_what_is_quick(monkeypatch):
    """RPCA of them is refused, and takes no part in a comparison."""
    rows = [{('a', 'b'): 10.0, ('b', 'a'): 20.0}] * 4
    few = readings(rows)
    assert few.side_by_side(estimates.Basis.RPCA) == tuple(estimates.Basis)
    for most in 2, 1:
        monkeypatch.setattr(estimates, 'MOST_COMPARED_PAIRS', most)
        assert (few.side_by_side(estimates.Basis.RPCA) == tuple(
            estimates.Basis)) == (most == 2)
    many = readings(rows)
    assert many.side_by_side(estimates.Basis.MEDIAN) == (
        estimates.Basis.MEDIAN, estimates.Basis.RAW)
    rpca = constant.Estimator.RPCA
    for known, used in ((None, constant.Estimator.CONSENSUS), (rpca, rpca)):
        one = many.estimate(estimates.Basis.CONSTANT, known)
        assert one.estimator is used
    monkeypatch.setattr(estimates, 'MOST_RPCA_PAIRS', 2)
    assert many.estimate(estimates.Basis.RPCA).estimator is rpca
    monkeypatch.setattr(estimates, 'MOST_RPCA_PAIRS', 1)
    assert many.estimate(estimates.Basis.CONSTANT, rpca).estimator is (
        constant.Estimator.CONSENSUS)
    with pytest.raises(exception.Invalid, match='1 pairs .*, got rpca'):
        many.estimate(estimates.Basis.RPCA)


def test_latency_is_half_a_round_trip():
    """And that of the others where nobody measured it."""
    found = readings([{('a', 'b'): 10.0}])
    latency_s = found.estimate(estimates.Basis.MEDIAN).paths.latency_s
    assert latency_s[1, 0] == latency_s[0, 1] == pytest.approx(0.002)
    assert latency_s[0, 2] == latency_s[1, 1] == 0.0
    nothing = readings([]).estimate(estimates.Basis.MEDIAN).paths
    assert not nothing.latency_s.any()


def test_the_newest_reading_of_each_pair():
    nan = np.nan
    np.testing.assert_array_equal(estimates._newest(np.array([
        [1.0, 4.0, nan], [2.0, nan, nan], [nan, 5.0, nan]])),
        [2.0, 5.0, nan])


@pytest.mark.parametrize('n_pairs, estimator, taken', [
    (7, None, None), (8, None, constant.Estimator.CONSENSUS),
    (5, constant.Estimator.RPCA, constant.Estimator.RPCA),
    (6, constant.Estimator.RPCA, constant.Estimator.CONSENSUS),
    (99, constant.Estimator.MEDIAN, constant.Estimator.MEDIAN)])
def test_what_takes_too_long_is_replaced(monkeypatch, n_pairs, estimator,
                                         taken):
    monkeypatch.setattr(estimates, 'MOST_COMPARED_PAIRS', 7)
    monkeypatch.setattr(estimates, 'MOST_RPCA_PAIRS', 5)
    found = dataclasses.replace(readings([]), ends=np.zeros((n_pairs, 2)))
    assert found._affordable(estimator) is taken


def test_round_trips_of_both_directions_may_differ():
    kept = history.History()
    for at_s, (src, dst, rtt_s) in enumerate((
            ('a', 'b', 0.004), ('b', 'a', 0.010), ('c', 'a', 0.002)), 1):
        kept.add(history.Reading(src, dst, 0.5, float(at_s), rtt_s=rtt_s))
    found = estimates.Readings.of(kept.table(), ('a', 'b', 'c'), {}, 30.0)
    one = found.estimate(estimates.Basis.RAW)
    # Others take the median.
    assert one.paths.latency_s == pytest.approx(np.array([
        [0.0, 0.002, 0.002], [0.005, 0.0, 0.002], [0.001, 0.002, 0.0]]))
    # Half a bit per second is a rate, too.
    assert (one.n_measured, one.paths.rates_bps[0, 1]) == (3, 0.5)
