# SPDX-License-Identifier: Apache-2.0

"""Pairs of hosts are estimated whatever a single one of them measured."""

import pytest

from virtco.measure import constant
from virtco.measure import history
from virtco.measure import pipes
from virtco.state import measured_rates
from virtco.state import pair_history as known_pairs


@pytest.fixture
def pairs():
    return known_pairs.Pairs(measured_rates.Rates(), 10, 1e6, 1e6)


def test_a_pair_of_tiny_rates_keeps_no_other_from_its_estimate(pairs):
    for turn in range(6):
        for dst, rate_bps in (('b', 5e-324), ('c', 1e-310), ('d', 4e8)):
            pairs.add(history.Reading('a', dst, rate_bps, float(turn)))
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
            pairs.add(history.Reading('a', dst, rate_bps + now_s, now_s))
        assert pairs.refresh(now_s)
    median = constant.Estimator.MEDIAN
    assert asked == [None, median, median, median, None, median, None]


def test_what_failed_is_estimated_again(pairs, monkeypatch):
    pairs.add(history.Reading('a', 'b', 4e8, 0.0))
    with monkeypatch.context() as patch:
        patch.setattr(pipes, 'known', lambda *_args, **_kwargs: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            pairs.refresh(1.0)
    assert pairs.refresh(2.0)
    assert pairs.known.component.rates == pytest.approx([4e8])
    assert not pairs.refresh(3.0)
