# SPDX-License-Identifier: Apache-2.0

"""How many bulk connections a path already carries (Choreo section 3.2).

The unit is "the equivalent of one backlogged TCP connection": a load, not a
count of connections. It assumes that TCP shares the bottleneck evenly.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence

from virtco import exception
from virtco import units

#: Throughput of the probing connection is taken over windows of this length.
WINDOW_S = 0.01


def cross_traffic(path_rate_bps: float, throughput_bps: float) -> float:
    """Other connections on the path: c = c1 / c2 - 1.

    :param path_rate_bps: c1, rate of the path when nobody else is there.
    :param throughput_bps: c2, what one connection gets now.
    :raises virtco.exception.Invalid: for a rate that is not positive.
    """
    _need_positive('path_rate_bps', path_rate_bps)
    _need_positive('throughput_bps', throughput_bps)
    return max(0.0, path_rate_bps / throughput_bps - 1)


def path_and_cross_traffic(one_bps: float,
                           each_of_two_bps: float) -> tuple[float, float]:
    """Path rate and cross traffic when neither is known.

    With c others, one connection gets R / (c + 1), and each of two that run
    together R / (c + 2); the change of the throughput gives both.

    :returns: (R in bits per second, c).
    :raises virtco.exception.Invalid: when a rate is not positive, or two
        connections did not share: then something else limits each of them.
    """
    _need_positive('one_bps', one_bps)
    _need_positive('each_of_two_bps', each_of_two_bps)
    drop = one_bps / each_of_two_bps
    if drop <= 1:
        raise exception.Invalid(
            field='each_of_two_bps', value=each_of_two_bps,
            limit=f'less than the {one_bps} bit/s of one connection')
    others = max(0.0, (2 - drop) / (drop - 1))
    return one_bps * (others + 1), others


def expected_rate_bps(path_rate_bps: float, others: float,
                      n_new: int) -> float:
    """What each of n_new connections will get beside the others."""
    return path_rate_bps / (others + n_new)


def over_time(arrivals: Iterable[tuple[float, int]], path_rate_bps: float, *,
              window_s: float = WINDOW_S) -> Iterator[tuple[float, float]]:
    """Yield (start of the window in s, cross traffic) of a connection.

    :param arrivals: (kernel timestamp in s, bytes) of each packet, in order.
        Windows in which nothing arrived, and the last one, say nothing.
    """
    origin_s: float | None = None
    current = 0
    size_bytes = 0
    for time_s, packet_bytes in arrivals:
        if origin_s is None:
            origin_s = time_s
        window = int((time_s - origin_s) / window_s)
        if window > current:
            if size_bytes:
                yield origin_s + current * window_s, cross_traffic(
                    path_rate_bps,
                    units.bytes_per_s_to_bps(size_bytes / window_s))
            current = window
            size_bytes = 0
        size_bytes += packet_bytes


def of_windows(windows_bytes: Sequence[int], path_rate_bps: float
               ) -> list[float]:
    """Cross traffic in each window in which something arrived, without the
    last one, which ends early.
    """
    return [cross_traffic(path_rate_bps, units.bytes_per_s_to_bps(
        size_bytes / WINDOW_S)) for size_bytes in windows_bytes[:-1]
        if size_bytes]


def steady_bps(windows_bytes: Sequence[int]) -> float:
    """Rate of a connection without its first quarter: slow start, and what a
    token bucket lets through; and without its last window, which ends early.
    """
    steady = windows_bytes[len(windows_bytes) // 4:-1]
    if not steady:
        return 0.0
    return units.bytes_per_s_to_bps(sum(steady) / (len(steady) * WINDOW_S))


def _need_positive(field: str, rate_bps: float) -> None:
    if not rate_bps > 0:
        raise exception.Invalid(field=field, value=rate_bps,
                                limit='a rate above 0')
