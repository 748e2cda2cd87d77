# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""What the uplinks can carry: measured, else nominal, else configured."""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import functools
import threading
from typing import Any

from virtco.db import models
from virtco.measure import hostrates


@dataclasses.dataclass(frozen=True, slots=True)
class Capacity:
    """Rates of one uplink and where they come from.

    :ivar source: ``measured``, ``link`` or ``unknown`` (the default).
    """

    egress_bps: float
    ingress_bps: float
    measured_egress_bps: float | None = None
    measured_ingress_bps: float | None = None
    measured_age_s: float | None = None
    source: str = 'unknown'


@dataclasses.dataclass(frozen=True, slots=True)
class Rules:
    """See ``[probe]`` and ``[placement] default_link_bps``."""

    default_bps: float
    tolerance: float
    max_age_s: float


def of_host(link: Mapping[str, Any], rate: hostrates.HostRate | None,
            rules: Rules) -> Capacity:
    """Combine the link's speed with what was measured.

    A measurement within the tolerance of the link's speed confirms it; one
    that only bounds the rate from below counts where it is the larger.
    """
    if rate is None or rate.age_s > rules.max_age_s:
        return _nominal(link.get('egress_bps'), link.get('ingress_bps'),
                        rules)
    egress_bps, out_source = _one_way(
        link.get('egress_bps'), rate.egress_bps, rate.egress_lower_bound,
        rules)
    ingress_bps, in_source = _one_way(
        link.get('ingress_bps'), rate.ingress_bps, rate.ingress_lower_bound,
        rules)
    source = next(s for s in ('measured', 'link', 'unknown')
                  if s in (out_source, in_source))
    is_measured = rate.egress_bps is not None or rate.ingress_bps is not None
    return Capacity(egress_bps, ingress_bps, rate.egress_bps,
                    rate.ingress_bps, rate.age_s if is_measured else None,
                    source)


@functools.lru_cache(maxsize=256)
def _nominal(egress_bps: float | None, ingress_bps: float | None,
             rules: Rules) -> Capacity:
    """Of an uplink that nobody measured; most hosts have the same."""
    egress_bps, out_source = _one_way(egress_bps, None, False, rules)
    ingress_bps, in_source = _one_way(ingress_bps, None, False, rules)
    return Capacity(egress_bps, ingress_bps, source=min(out_source, in_source))


def _one_way(link_bps: float | None, measured_bps: float | None,
             is_bound: bool, rules: Rules) -> tuple[float, str]:
    if measured_bps is None:
        if link_bps:
            return link_bps, 'link'
        return rules.default_bps, 'unknown'
    if not link_bps:
        return measured_bps, 'measured'
    if is_bound or measured_bps >= link_bps * (1 - rules.tolerance):
        return link_bps, 'measured' if not is_bound else 'link'
    return measured_bps, 'measured'


class Rates:
    """The newest measurement per pair of hosts.

    Between two measurements only the age of what they say changes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pairs: dict[tuple[str, str], hostrates.PairRate] = {}
        self._details: dict[tuple[str, str], dict[str, Any]] = {}
        self._readings = hostrates.Readings()
        self._estimate: tuple[float, dict[str, hostrates.HostRate]] | None = (
            None)

    def load(self, stored: Iterable[models.Rate]) -> None:
        with self._lock:
            for row in stored:
                self._put({'src': row.src, 'dst': row.dst,
                           'rate_bps': row.rate_bps,
                           'lower_bound': row.lower_bound, 'loss': row.loss,
                           'rtt_s': row.rtt_s, 'method': row.method},
                          row.measured_at)

    def add(self, measurement: Mapping[str, Any], measured_s: float) -> None:
        with self._lock:
            self._put(measurement, measured_s)

    def _put(self, measurement: Mapping[str, Any], measured_s: float) -> None:
        pair = measurement['src'], measurement['dst']
        self._pairs[pair] = hostrates.PairRate(
            *pair, rate_bps=measurement['rate_bps'], measured_s=measured_s,
            lower_bound=measurement.get('lower_bound', False))
        self._details[pair] = {
            name: measurement.get(name)
            for name in ('lower_bound', 'loss', 'rtt_s', 'method')}
        self._readings.add(self._pairs[pair])
        self._estimate = None

    def age_s(self, now_s: float) -> dict[tuple[str, str], float]:
        with self._lock:
            return {pair: now_s - rate.measured_s
                    for pair, rate in self._pairs.items()}

    def pairs(self, now_s: float) -> list[dict[str, Any]]:
        """Rows of ``GET /v1/rates``."""
        with self._lock:
            return [{'src': src, 'dst': dst, 'rate_bps': rate.rate_bps,
                     'age_s': now_s - rate.measured_s,
                     'confidence': hostrates.confidence(
                         now_s - rate.measured_s)
                     * (0.5 if rate.lower_bound else 1.0),
                     **self._details[src, dst]}
                    for (src, dst), rate in sorted(self._pairs.items())]

    def hosts(self, now_s: float) -> dict[str, hostrates.HostRate]:
        with self._lock:
            if self._estimate is None:
                self._estimate = now_s, self._readings.estimate(now_s)
            then_s, found = self._estimate
        return {host: _aged(rate, now_s - then_s)
                for host, rate in found.items()}


def _aged(rate: hostrates.HostRate, by_s: float) -> hostrates.HostRate:
    fresh = hostrates.confidence(by_s)
    return dataclasses.replace(
        rate, age_s=max(0.0, rate.age_s + by_s),
        egress_confidence=rate.egress_confidence * fresh,
        ingress_confidence=rate.ingress_confidence * fresh)
