# SPDX-License-Identifier: Apache-2.0

"""Round trips of a path."""

from collections.abc import Sequence
import dataclasses
import math
import statistics


@dataclasses.dataclass(frozen=True, slots=True)
class RoundTrips:
    """Of a path, measured while nothing else of the prober is in flight.

    :ivar p99_s: nearest rank: the longest of less than a hundred.
    """

    min_s: float
    median_s: float
    p99_s: float
    count: int


def of(round_trips_s: Sequence[float]) -> RoundTrips:
    """Summarise at least one round trip."""
    ordered = sorted(round_trips_s)
    return RoundTrips(ordered[0], statistics.median(ordered),
                      ordered[math.ceil(0.99 * len(ordered)) - 1],
                      len(ordered))
