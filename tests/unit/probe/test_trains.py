# SPDX-License-Identifier: Apache-2.0


import math
import random

from hypothesis import given
from hypothesis import strategies as st
import pytest

from edge_module.probe import trains

FRAME = 1514
PAYLOAD = 1472
RATE = st.floats(1e6, 1e10)


def _burst(rate_bps, n=200, *, bucket_bytes=0, line_bps=math.inf, granule=1,
           lost=(), start_s=1000.0, sending_s=0.0):
    """Arrivals behind a token bucket fed at line_bps in super-packets."""
    arrivals = []
    for seq in range(n):
        sent_bytes = (seq // granule + 1) * granule * FRAME
        time_s = max(sent_bytes * 8 / line_bps,
                     (sent_bytes - bucket_bytes) * 8 / rate_bps)
        if seq not in lost:
            arrivals.append((seq, start_s + time_s))
    return trains.Burst(n, tuple(arrivals), sending_s)


def _estimate(*bursts):
    return trains.estimate(bursts, frame_bytes=FRAME, packet_bytes=PAYLOAD)


@given(RATE, st.integers(20, 500), st.integers(1, 10))
def test_evenly_spaced_packets_give_their_rate(rate_bps, n, n_bursts):
    found = _estimate(*[_burst(rate_bps, n) for _ in range(n_bursts)])
    assert found.rate_bps == pytest.approx(rate_bps, rel=1e-3)
    assert found.throughput_bps == pytest.approx(
        rate_bps * PAYLOAD / FRAME, rel=1e-3)
    assert (found.loss, found.agrees, found.lower_bound) == (0, True, False)
    assert found.bursts == n_bursts


@given(RATE, st.integers(1, 16), st.integers(12, 40))
def test_super_packets_do_not_bend_the_rate(rate_bps, granule, n_granules):
    found = _estimate(_burst(rate_bps, granule * n_granules,
                             granule=granule))
    assert found.rate_bps == pytest.approx(rate_bps, rel=1e-3)
    assert found.throughput_bps == pytest.approx(
        rate_bps * PAYLOAD / FRAME, rel=1e-3)


@given(RATE, st.floats(0, 0.2))
def test_a_small_token_bucket_does_not_bend_the_rate(rate_bps, share):
    found = _estimate(_burst(rate_bps, bucket_bytes=share * 200 * FRAME,
                             line_bps=100 * rate_bps))
    assert found.rate_bps == pytest.approx(rate_bps, rel=1e-3)
    assert found.agrees


@given(RATE, st.floats(0.4, 0.95))
def test_a_large_token_bucket_is_noticed(rate_bps, share):
    found = _estimate(_burst(rate_bps, bucket_bytes=share * 200 * FRAME,
                             line_bps=100 * rate_bps))
    assert not found.agrees


@given(RATE, st.floats(1.0, 4.0))
def test_a_bucket_that_holds_the_burst_shows_the_sender_only(rate_bps, share):
    line_bps = 3 * rate_bps
    found = _estimate(_burst(
        rate_bps, bucket_bytes=share * 201 * FRAME, line_bps=line_bps,
        sending_s=200 * FRAME * 8 / line_bps))
    assert found.lower_bound
    assert found.rate_bps == pytest.approx(line_bps, rel=1e-3)


@given(RATE, st.integers(0, 60), st.integers(0, 60))
def test_packets_lost_at_the_ends_are_put_right(rate_bps, head, tail):
    n = 200
    lost = {*range(head), *range(n - tail, n)}
    found = _estimate(_burst(rate_bps, n, lost=lost))
    loss = (head + tail) / n
    assert found.loss == pytest.approx(loss)
    assert found.rate_bps == pytest.approx(rate_bps, rel=1e-3)
    assert found.throughput_bps == pytest.approx(
        rate_bps * (1 - loss) * PAYLOAD / FRAME, rel=1e-3)


def test_lost_packets_inside_lower_both_rates():
    rng = random.Random(5)
    bursts = [_burst(1e8, 2000, lost={seq for seq in range(2000)
                                      if rng.random() < 0.1})
              for _ in range(10)]
    found = _estimate(*bursts)
    assert found.loss == pytest.approx(0.1, abs=0.01)
    assert found.rate_bps == pytest.approx(0.9e8, rel=0.02)
    assert found.agrees


def test_super_packets_lost_on_the_way_do_not_look_like_a_bucket():
    rng = random.Random(7)
    for _ in range(20):
        lost = {16 * granule + k for granule in range(60)
                if rng.random() < 0.15 for k in range(16)}
        assert _estimate(_burst(1e8, 960, granule=16, lost=lost)).agrees


def test_a_queue_that_overflows_does_not_look_like_a_bucket():
    kept = [*range(90), *range(90, 2000, 20)]
    arrivals = tuple((seq, k * FRAME * 8 / 1e8) for k, seq in enumerate(kept))
    found = _estimate(trains.Burst(2000, arrivals))
    assert found.agrees
    assert found.rate_bps == pytest.approx(1e8)


def test_a_few_lost_packets_hardly_lower_the_rate():
    found = _estimate(_burst(1e8, 200, lost={50, 150}))
    assert found.rate_bps == pytest.approx(1e8, rel=0.02)
    assert found.throughput_bps == pytest.approx(
        0.99 * 1e8 * PAYLOAD / FRAME)
    assert found.loss == pytest.approx(0.01)


def test_one_disturbed_burst_does_not_count():
    found = _estimate(*[_burst(1e8)] * 4, _burst(2e7))
    assert found.rate_bps == pytest.approx(1e8)


def test_time_waiting_in_the_own_queue_is_not_sending():
    slow = 200 * FRAME * 8 / 1e8
    assert _estimate(_burst(1e8, sending_s=slow)).lower_bound
    assert not _estimate(_burst(1e8, sending_s=slow / 2)).lower_bound


@pytest.mark.parametrize('bursts', [
    [], [trains.Burst(200, ())], [trains.Burst(200, ((0, 1.0),))],
    [trains.Burst(10, tuple((i, 1.0) for i in range(10)))],
    [_burst(1e8, 4)],
])
def test_too_little_says_nothing(bursts):
    assert _estimate(*bursts) is None


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 10 ** 10)),
                max_size=100))
def test_any_arrivals_give_a_finite_answer_or_none(arrivals):
    in_order = sorted(arrivals, key=lambda arrival: arrival[1])
    burst = trains.Burst(100, tuple((seq, time_ns / 1e9)
                                    for seq, time_ns in in_order), 0.1)
    found = _estimate(burst)
    if found is not None:
        assert math.isfinite(found.rate_bps) and found.rate_bps > 0
        assert math.isfinite(found.throughput_bps)
        assert 0 <= found.loss <= 1


def _arriving(*times_s):
    return trains.Burst(len(times_s), tuple(enumerate(times_s)))


def test_the_rate_is_that_of_all_after_the_first_quarter():
    """Its thirds alone may be faster or slower."""
    found = _estimate(_arriving(
        0.0, 0.0, 0.0, 0.0, 1.0, 1.1, 1.2, 1.3, 2.0, 3.0, 4.0, 5.0, 5.1, 5.2,
        5.3, 6.0))
    assert found.rate_bps == pytest.approx(11 * FRAME * 8 / 5.0)
    assert not found.agrees


def test_a_burst_is_judged_by_thirds():
    """Within one the packets may come as they like."""
    found = _estimate(_arriving(
        0.0, 0.0, 0.0, 0.0, 4.0, 4.1, 4.2, 4.3, 8.0, 8.1, 8.2, 11.0, 11.1,
        11.2, 11.3, 15.0))
    assert found.agrees
    assert found.rate_bps == pytest.approx(FRAME * 8)


@pytest.mark.parametrize('n, is_enough', [(7, False), (8, True)])
def test_six_packets_after_the_first_quarter_are_enough(n, is_enough):
    found = _estimate(_burst(1e8, n))
    assert (found is not None) is is_enough


def test_bursts_that_took_no_time_do_not_count_as_throughput():
    single, none = trains.Burst(9, ((0, 1.0),)), trains.Burst(9, ())
    good = _arriving(*map(float, range(9)))
    assert trains.throughput_bps([single, none], 50) == 0.0
    assert trains.throughput_bps([single, good, none], 50) == 400.0


def test_a_burst_of_which_nothing_came_lasted_no_time():
    assert trains.Burst(9, ()).span_s == 0.0
    assert trains.Burst(9, ((0, 2.0), (4, 5.0))).span_s == 3.0


@pytest.mark.parametrize('arrivals, per_packet_s', [
    ((), 0.0), (((3, 1.0),), 0.0), (((0, 1.0), (4, 3.0)), 0.5),
    # Two came at once: it is counted from the last of them.
    (((0, 1.0), (2, 1.0), (4, 3.0)), 1.0),
    (((4, 1.0), (3, 3.0)), 0.0)])
def test_time_per_packet(arrivals, per_packet_s):
    assert trains._time_per_packet_s(trains.Burst(9, arrivals)) == (
        per_packet_s)


@pytest.mark.parametrize('arrived, sent, agrees', [
    ((4.0, 4.0, 5.0), (1.0, 1.0, 9.0), True),
    ((4.0, 4.0, 5.01), (4.0, 5.0, 4.0), True),
    ((4.0, 4.0, 5.01), (4.0, 4.0, 5.01), False),
    ((9.0, 9.0, 1.0), (9.0, 9.0, 1.0), False)])
def test_segments_agree_within_a_quarter(arrived, sent, agrees):
    """At either end."""
    burst = tuple(zip(arrived, sent))
    assert trains._agree([burst]) is agrees
    odd = ((1.0, 99.0),) * 3
    # The typical burst counts.
    assert trains._agree([burst, burst, odd]) is agrees


@pytest.mark.parametrize('sending_s, is_bound', [
    (8.0, True), (7.9, False)])
def test_a_sender_that_took_as_long_was_the_limit(sending_s, is_bound):
    burst = trains.Burst(11, tuple((i, float(i)) for i in range(11)),
                         sending_s)
    found = trains.estimate([burst], frame_bytes=100, packet_bytes=50)
    assert found.lower_bound is is_bound and found.bursts == 1
    assert found.rate_bps == pytest.approx(800.0) and found.agrees


def test_of_a_hundred_the_second_longest_is_the_99th_percentile():
    found = trains.round_trips([0.5, *[0.001] * 50, 0.2, *[0.002] * 48])
    assert found == trains.RoundTrips(0.001, 0.0015, 0.2)


@given(st.lists(st.floats(1e-6, 10), min_size=1))
def test_the_three_are_in_order(round_trips_s):
    found = trains.round_trips(round_trips_s)
    assert (min(round_trips_s) == found.min_s <= found.median_s
            <= found.p99_s <= max(round_trips_s))
