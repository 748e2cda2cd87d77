# SPDX-License-Identifier: Apache-2.0

"""Measured rates of pairs of hosts, and rates of hosts estimated from them."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Set
import dataclasses
import threading
from typing import TYPE_CHECKING

from virtco.measure import history
from virtco.measure import hostrates
from virtco.wire import rate as wire
from virtco.wire import reports

if TYPE_CHECKING:
    from virtco.db import models

_STORED = ('src', 'dst', 'rate_bps', 'lower_bound', 'loss', 'rtt_s',
           'rtt_median_s', 'rtt_p99_s', 'method')


@dataclasses.dataclass(frozen=True, slots=True)
class Estimate:
    """Rates of the hosts by all measurements so far.

    :ivar at_s: the ages are of that time.
    """

    at_s: float
    hosts: Mapping[str, hostrates.HostRate]


def reading(of: 'reports.Measurement | models.Reading', measured_s: float
            ) -> history.Reading:
    """Make the reading of a measurement or of its row.

    It is in the middle of the train's round trips, if they were counted.
    """
    return history.Reading(of.src, of.dst, of.rate_bps, measured_s,
                           of.lower_bound, of.rtt_median_s or of.rtt_s)


class Rates:
    """The newest measurement per pair of hosts.

    Between two measurements only the age of what they say changes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Newest measurement of each pair, and its time.
        self._newest: dict[history.Pair, tuple[
            reports.Measurement, float]] = {}
        self._readings = hostrates.Readings()
        # None: something was measured since.
        self._estimate: Estimate | None = None

    def load(self, stored: 'Iterable[models.Reading]') -> None:
        """Take over stored readings that are later than the known ones.

        :param stored: the newest last.
        """
        with self._lock:
            for row in stored:
                known = self._newest.get((row.src, row.dst))
                if known is None or row.measured_at > known[1]:
                    self._put(reports.Measurement(probe_id='', **{
                        name: getattr(row, name) for name in _STORED}),
                        row.measured_at)

    def add(self, measurement: reports.Measurement,
            measured_s: float) -> None:
        with self._lock:
            self._put(measurement, measured_s)

    def _put(self, measurement: reports.Measurement,
             measured_s: float) -> None:
        self._newest[measurement.src, measurement.dst] = (measurement,
                                                          measured_s)
        self._readings.add(reading(measurement, measured_s))
        self._estimate = None

    def forget(self, hosts: Set[str]) -> None:
        """Forget the pairs of these hosts."""
        with self._lock:
            kept = {pair: one for pair, one in self._newest.items()
                    if hosts.isdisjoint(pair)}
            if len(kept) == len(self._newest):
                return
            self._newest = kept
            self._readings = hostrates.Readings()
            for one in kept.values():
                self._readings.add(reading(*one))
            self._estimate = None

    def age_s(self, now_s: float) -> dict[tuple[str, str], float]:
        """Return the age of the newest reading of each pair, in seconds."""
        with self._lock:
            return {pair: now_s - measured_s
                    for pair, (_, measured_s) in self._newest.items()}

    def pairs(self, now_s: float) -> list[wire.MeasuredPair]:
        """Return the rows of ``GET /v1/rates``."""
        with self._lock:
            return [wire.MeasuredPair(
                age_s=now_s - measured_s,
                confidence=hostrates.confidence(now_s - measured_s)
                * (0.5 if one.lower_bound else 1.0),
                **{name: getattr(one, name) for name in _STORED})
                    for _, (one, measured_s) in sorted(
                        self._newest.items())]

    def estimate(self, now_s: float) -> Estimate:
        """Return the hosts' rates; the same object until a new measurement."""
        with self._lock:
            if self._estimate is None:
                self._estimate = Estimate(
                    now_s, self._readings.estimate(now_s))
            return self._estimate
