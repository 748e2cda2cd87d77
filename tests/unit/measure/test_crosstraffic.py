# SPDX-License-Identifier: Apache-2.0


from hypothesis import given
from hypothesis import strategies as st
import pytest

from virtco import exception
from virtco.measure import crosstraffic

RATE = st.floats(1e6, 1e11)
OTHERS = st.floats(0.0, 50.0)


@given(RATE, OTHERS)
def test_a_fair_share_tells_the_others(rate_bps, others):
    assert crosstraffic.cross_traffic(
        rate_bps, rate_bps / (others + 1)) == pytest.approx(others, abs=1e-6)


@given(RATE, OTHERS)
def test_two_steps_tell_the_path_too(rate_bps, others):
    path_bps, found = crosstraffic.path_and_cross_traffic(
        rate_bps / (others + 1), rate_bps / (others + 2))
    assert path_bps == pytest.approx(rate_bps, rel=1e-6)
    assert found == pytest.approx(others, abs=1e-6)


def test_the_papers_example():
    assert crosstraffic.cross_traffic(1e9, 250e6) == 3
    assert crosstraffic.expected_rate_bps(1e9, 3, 1) == 250e6
    assert crosstraffic.cross_traffic(1e9, 1.1e9) == 0


def test_cross_traffic_over_time():
    def packets():
        for k in range(4000):  # 1 Gbit/s alone, then 250 Mbit/s
            yield k * 12e-6, 1500
        for k in range(1000):
            yield 0.048 + k * 48e-6, 1500

    found = list(crosstraffic.over_time(packets(), 1e9))
    assert [round(c) for _, c in found[:4]] == [0, 0, 0, 0]
    assert [round(c) for _, c in found[5:8]] == [3, 3, 3]


def test_a_pause_is_no_window():
    found = list(crosstraffic.over_time(
        [(0.0, 1500), (0.005, 1500), (1.0, 1500), (1.02, 1500)], 1e9))
    assert [round(begin_s, 3) for begin_s, _ in found] == [0.0, 1.0]


@pytest.mark.parametrize('call, field', [
    (lambda: crosstraffic.cross_traffic(0, 1), 'path_rate_bps'),
    (lambda: crosstraffic.cross_traffic(1, -1), 'throughput_bps'),
    (lambda: crosstraffic.cross_traffic(1, float('nan')), 'throughput_bps'),
    (lambda: crosstraffic.path_and_cross_traffic(1e6, 1e6),
     'each_of_two_bps'),
])
def test_rates_that_make_no_sense_are_named(call, field):
    with pytest.raises(exception.Invalid, match=field):
        call()


def test_cross_traffic_of_windows_of_ten_milliseconds():
    full = int(1e8 / 8 * crosstraffic.WINDOW_S)
    windows = [full] * 5 + [full // 2] * 5 + [0, full // 4, 7]
    assert crosstraffic.of_windows(windows, 1e8) == pytest.approx(
        [0] * 5 + [1] * 5 + [3])


def test_the_steady_rate_leaves_slow_start_and_the_last_window_out():
    assert crosstraffic.steady_bps([10 ** 6, 0, 125, 125, 125, 125, 125, 125,
                                    1]) == pytest.approx(1e5)
    assert crosstraffic.steady_bps([]) == crosstraffic.steady_bps([9]) == 0
