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


class Rates:
    """The newest measurement per pair of hosts.

    Between two measurements only the age of what they say changes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pairs: dict[tuple[str, str], history.Reading] = {}
        self._measured: dict[tuple[str, str], reports.Measurement] = {}
        self._readings = hostrates.Readings()
        # None: something was measured since.
        self._estimate: Estimate | None = None

    def load(self, stored: 'Iterable[models.Reading]') -> None:
        """Take over stored readings that are later than the known ones.

        :param stored: the newest last.
        """
        with self._lock:
            for row in stored:
                known = self._pairs.get((row.src, row.dst))
                if known is None or row.measured_at > known.measured_s:
                    self._put(reports.Measurement(probe_id='', **{
                        name: getattr(row, name) for name in _STORED}),
                        row.measured_at)

    def add(self, measurement: reports.Measurement,
            measured_s: float) -> None:
        with self._lock:
            self._put(measurement, measured_s)

    def _put(self, measurement: reports.Measurement,
             measured_s: float) -> None:
        pair = measurement.src, measurement.dst
        self._pairs[pair] = history.Reading(
            *pair, rate_bps=measurement.rate_bps, measured_s=measured_s,
            lower_bound=measurement.lower_bound)
        self._measured[pair] = measurement
        self._readings.add(self._pairs[pair])
        self._estimate = None

    def forget(self, hosts: Set[str]) -> None:
        """Forget the pairs of these hosts."""
        with self._lock:
            kept = {pair: rate for pair, rate in self._pairs.items()
                    if hosts.isdisjoint(pair)}
            if len(kept) == len(self._pairs):
                return
            self._pairs = kept
            self._measured = {pair: self._measured[pair] for pair in kept}
            self._readings = hostrates.Readings()
            for rate in kept.values():
                self._readings.add(rate)
            self._estimate = None

    def age_s(self, now_s: float) -> dict[tuple[str, str], float]:
        with self._lock:
            return {pair: now_s - rate.measured_s
                    for pair, rate in self._pairs.items()}

    def pairs(self, now_s: float) -> list[wire.MeasuredPair]:
        """Return the rows of ``GET /v1/rates``."""
        with self._lock:
            return [wire.MeasuredPair(
                age_s=now_s - rate.measured_s,
                confidence=hostrates.confidence(now_s - rate.measured_s)
                * (0.5 if rate.lower_bound else 1.0),
                **{name: getattr(self._measured[pair], name)
                   for name in _STORED})
                    for pair, rate in sorted(self._pairs.items())]

    def estimate(self, now_s: float) -> Estimate:
        """Return the hosts' rates; the same object until a new measurement."""
        with self._lock:
            if self._estimate is None:
                self._estimate = Estimate(
                    now_s, self._readings.estimate(now_s))
            return self._estimate
