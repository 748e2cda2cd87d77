# SPDX-License-Identifier: Apache-2.0


from hypothesis import given
from hypothesis import strategies as st
import pytest

from virtco import exception
from virtco.measure import crosstraffic
from virtco.wire import reports

RATE = st.floats(1e6, 1e11)
OTHERS = st.floats(0.0, 50.0)


@given(RATE, OTHERS)
def test_a_fair_share_tells_the_others(rate_bps, others):
    assert crosstraffic.cross_traffic(
        rate_bps, rate_bps / (others + 1)) == pytest.approx(others, abs=1e-6)


def test_the_papers_example():
    assert crosstraffic.cross_traffic(1e9, 250e6) == 3
    assert crosstraffic.cross_traffic(1e9, 1.1e9) == 0


@pytest.mark.parametrize('call, field', [
    (lambda: crosstraffic.cross_traffic(0, 1), 'path_rate_bps'),
    (lambda: crosstraffic.cross_traffic(1, -1), 'throughput_bps'),
    (lambda: crosstraffic.cross_traffic(1, float('nan')), 'throughput_bps'),
])
def test_rates_that_make_no_sense_are_named(call, field):
    with pytest.raises(exception.Invalid, match=field):
        call()


def test_cross_traffic_of_windows_of_ten_milliseconds():
    full = int(1e8 / 8 * reports.WINDOW_S)
    windows = [full] * 5 + [full // 2] * 5 + [0, full // 4, 7]
    assert crosstraffic.of_windows(windows, 1e8) == pytest.approx(
        [0] * 5 + [1] * 5 + [3])
