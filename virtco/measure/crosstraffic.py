# SPDX-License-Identifier: Apache-2.0

"""How many bulk connections a path already carries (Choreo section 3.2).

The unit is "the equivalent of one backlogged TCP connection": a load, not a
count of connections. It assumes that TCP shares the bottleneck evenly.
"""

from collections.abc import Sequence

from virtco import exception
from virtco import units
from virtco.wire import reports


def cross_traffic(path_rate_bps: float, throughput_bps: float) -> float:
    """Estimate the other connections on the path: c = c1 / c2 - 1.

    :param path_rate_bps: c1, rate of the path when nobody else is there.
    :param throughput_bps: c2, what one connection gets now.
    :raises virtco.exception.Invalid: for a rate that is not positive.
    """
    for field, rate_bps in (('path_rate_bps', path_rate_bps),
                            ('throughput_bps', throughput_bps)):
        if not rate_bps > 0:
            raise exception.Invalid(field=field, value=rate_bps,
                                    limit='a rate above 0')
    return max(0.0, path_rate_bps / throughput_bps - 1)


def of_windows(windows_bytes: Sequence[float], path_rate_bps: float
               ) -> list[float]:
    """Compute the cross traffic of each window with bytes.

    The last window ends early and does not count.
    """
    return [cross_traffic(path_rate_bps, units.bytes_per_s_to_bps(
        size_bytes / reports.WINDOW_S)) for size_bytes in windows_bytes[:-1]
        if size_bytes]
