# SPDX-License-Identifier: Apache-2.0

"""The rate of a path from the arrival times of packet trains; round trips.

A train is K bursts of B back-to-back packets (Choreo section 3.1).

Two rates are told from the same arrivals:

* :attr:`TrainRate.rate_bps`, how fast the bottleneck lets frames pass. The
  first quarter of each burst is left out, because a token bucket lets as much
  as it holds pass at the speed of the sender. Packets that a full queue drops
  do not lower it. Host rates are made of it.
* :attr:`TrainRate.throughput_bps`, what Choreo expects of a bulk TCP
  connection by the packets that arrived.
"""

import bisect
from collections.abc import Sequence
import dataclasses
import itertools
import math
import operator
import statistics

from virtco import units

#: Share of a burst that a token bucket may have let through early.
SKIPPED = 0.25
#: Segments of a burst may differ by so much from each other.
AGREEMENT = 0.25
#: A burst that took the sender this share of the time it took to arrive was
#: slowed down by the sender rather than by the path.
SENDER_LIMITED = 0.8
#: A burst with fewer packets left after the first quarter is not used.
MIN_PACKETS = 6

_SEGMENTS = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Burst:
    """Arrival times of the packets of a burst.

    :ivar sent: number of packets sent, B.
    :ivar arrivals: (sequence number from 0, kernel timestamp in seconds) in
        order of arrival. Packets that arrived in one super-packet share
        their timestamp.
    :ivar sending_s: time the sender needed for the burst, without the time
        it waited for room in its own queue.
    """

    sent: int
    arrivals: tuple[tuple[int, float], ...]
    sending_s: float = 0.0

    @property
    def span_s(self) -> float:
        """Seconds from the first arrival to the last, 0 without arrivals."""
        if not self.arrivals:
            return 0.0
        return self.arrivals[-1][1] - self.arrivals[0][1]


@dataclasses.dataclass(frozen=True, slots=True)
class TrainRate:
    """Result of a train.

    :ivar rate_bps: median over the bursts of the last-75 % rate, frames as
        tc counts them.
    :ivar throughput_bps: Choreo's estimate of TCP's throughput, payload.
    :ivar loss: fraction of the packets that did not arrive.
    :ivar lower_bound: whether the sender, not the path, was the limit.
    :ivar agrees: whether successive segments of the bursts had the same rate.
        If not, a token bucket or other traffic distorted the rate, and longer
        bursts should be sent.
    :ivar bursts: number of bursts that were used.
    """

    rate_bps: float
    throughput_bps: float
    loss: float
    lower_bound: bool
    agrees: bool
    bursts: int


def estimate(bursts: Sequence[Burst], *, frame_bytes: int, packet_bytes: int
             ) -> TrainRate | None:
    """Estimate the rate of a path.

    :param frame_bytes: size of one packet as tc counts it, with Ethernet and
        IP headers.
    :param packet_bytes: payload P of one packet.
    :returns: None when too few packets arrived to say anything.
    """
    used = [(burst, edges) for burst in bursts if (edges := _edges(burst))]
    if not used:
        return None
    rates = [_rate_between(burst, edges[0], edges[-1], frame_bytes)[0]
             for burst, edges in used]
    shares = [burst.sending_s / burst.span_s for burst, _ in used]
    sent = sum(burst.sent for burst in bursts)
    arrived = sum(len(burst.arrivals) for burst in bursts)
    return TrainRate(
        rate_bps=statistics.median(rates),
        throughput_bps=throughput_bps(bursts, packet_bytes),
        loss=max(0.0, 1 - arrived / sent),
        lower_bound=statistics.median(shares) >= SENDER_LIMITED,
        agrees=_agree([[_rate_between(burst, begin_s, end_s, frame_bytes)
                        for begin_s, end_s in itertools.pairwise(edges)]
                       for burst, edges in used]),
        bursts=len(used))


def _edges(burst: Burst) -> list[float]:
    """Return the times between which three successive parts of a burst, after
    its first quarter, arrived.

    Empty when the burst has too few packets or arrival times.
    """
    times = [time_s for _, time_s in burst.arrivals]
    start = math.ceil(len(times) * SKIPPED)
    if len(times) - start < MIN_PACKETS:
        return []
    step = (len(times) - 1 - start) / _SEGMENTS
    edges = [times[start + round(k * step)] for k in range(_SEGMENTS + 1)]
    return edges if all(map(operator.lt, edges, edges[1:])) else []


def throughput_bps(bursts: Sequence[Burst], packet_bytes: int) -> float:
    """Return Choreo's estimate of TCP throughput, in payload bit/s.

    It is P(N-1)(1-l)/T. T is extended by the average time per packet for each
    packet missing at either end of a burst. Choreo's other term,
    MSS C / (RTT sqrt(l)), is left out: the receiver knows no round-trip time.
    """
    packets = total_s = 0.0
    for burst in bursts:
        per_packet_s = _time_per_packet_s(burst)
        if per_packet_s > 0:
            packets += (burst.sent - 1) * len(burst.arrivals) / burst.sent
            total_s += per_packet_s * (burst.sent - 1)
    if total_s <= 0:
        return 0.0
    return units.bytes_per_s_to_bps(packet_bytes * packets / total_s)


def _time_per_packet_s(burst: Burst) -> float:
    """Return the mean time from one packet sent to the next, lost or not.

    Packets that share the first timestamp took no measurable time, so the
    count begins with the last of them.
    """
    if burst.span_s <= 0:
        return 0.0
    first_s = burst.arrivals[0][1]
    first = max(seq for seq, time_s in burst.arrivals if time_s <= first_s)
    last = max(seq for seq, _ in burst.arrivals)
    return burst.span_s / (last - first) if last > first else 0.0


def _rate_between(burst: Burst, begin_s: float, end_s: float,
                  frame_bytes: int) -> tuple[float, float]:
    """Return the rates of the packets that arrived in (begin_s, end_s], and
    of those that left meanwhile, arrived or not.
    """
    times = [time_s for _, time_s in burst.arrivals]
    begin = bisect.bisect_right(times, begin_s) - 1
    end = bisect.bisect_right(times, end_s) - 1
    n_sent = burst.arrivals[end][0] - burst.arrivals[begin][0]
    per_packet_bps = units.bytes_per_s_to_bps(frame_bytes / (end_s - begin_s))
    return (end - begin) * per_packet_bps, n_sent * per_packet_bps


def _agree(bursts: Sequence[Sequence[tuple[float, float]]]) -> bool:
    """Return whether the segments of the typical burst have the same rate.

    Either rate, of arrived or of sent packets, may agree: an overflowing queue
    drops more of the late segments, losses on the way hit any segment, but a
    token bucket distorts both rates.
    """
    typical = [map(statistics.median, zip(*segment))
               for segment in zip(*bursts)]
    return any(max(rates) <= min(rates) * (1 + AGREEMENT)
               for rates in zip(*typical))


@dataclasses.dataclass(frozen=True, slots=True)
class RoundTrips:
    """Round-trip times of a path, without other probe traffic in flight.

    :ivar p99_s: 99th percentile by nearest rank: the maximum of fewer than
        100 round trips.
    """

    min_s: float
    median_s: float
    p99_s: float


def round_trips(round_trips_s: Sequence[float]) -> RoundTrips:
    """Summarise one or more round-trip times."""
    ordered = sorted(round_trips_s)
    return RoundTrips(ordered[0], statistics.median(ordered),
                      ordered[math.ceil(0.99 * len(ordered)) - 1])
