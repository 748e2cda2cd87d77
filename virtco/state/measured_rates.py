# SPDX-License-Identifier: Apache-2.0

"""Measured rates of pairs of hosts, and rates of hosts estimated from them."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Set
import math
import threading
from typing import TYPE_CHECKING

from virtco.measure import constant
from virtco.measure import history
from virtco.measure import hostrates
from virtco.measure import pipes
from virtco.model import cluster
from virtco.wire import rate as wire
from virtco.wire import reports

if TYPE_CHECKING:
    from virtco.db import models

#: Readings kept of each pair: as many as the RPCA paper takes.
DEPTH = 10
#: Age at which a reading is forgotten: a week.
RETENTION_S = 604_800.0
#: Time between two comparisons of the estimators.
CHOICE_S = 600.0
#: Fields of a measurement that the database keeps.
STORED = ('src', 'dst', 'rate_bps', 'lower_bound', 'loss', 'rtt_s',
           'rtt_median_s', 'rtt_p99_s', 'method')


def _reading(of: reports.Measurement, measured_s: float) -> history.Reading:
    """Make the reading of a measurement.

    It is in the middle of the train's round trips, if they were counted.
    """
    return history.Reading(of.src, of.dst, of.rate_bps, measured_s,
                           of.lower_bound, of.rtt_median_s or of.rtt_s)


class Rates:
    """The last measurements of each pair of hosts, and rates by them.

    :param depth: readings that are kept of each pair.
    :param retention_s: age at which a reading is forgotten.
    :param max_age_s: largest age of the readings to plan by.
    :ivar known: rates of pairs by their history.
    :ivar errors: error of each estimator at the last comparison.
    :ivar estimator: the one with the smallest.
    """

    def __init__(self, depth: int = DEPTH, retention_s: float = RETENTION_S,
                 max_age_s: float = math.inf):
        self._retention_s = retention_s
        self._max_age_s = max_age_s
        self._lock = threading.Lock()
        #: Newest measurement of each pair, and its time.
        self._newest: dict[history.Pair, tuple[
            reports.Measurement, float]] = {}
        self._readings = hostrates.Readings()
        # None: something was measured since.
        self._hosts: Mapping[str, hostrates.HostRate] | None = None
        self._history = history.History(depth)
        self._version = 0
        self._seen = -1
        self.estimator: constant.Estimator | None = None
        self.errors: dict[constant.Estimator, float] = {}
        self._chosen_s = -CHOICE_S
        self.known = pipes.NOTHING

    def load(self, stored: 'Iterable[models.Reading]') -> None:
        """Take over stored readings that are later than the known ones.

        :param stored: the newest last.
        """
        with self._lock:
            for row in stored:
                self._put(reports.Measurement(probe_id='', **{
                    name: getattr(row, name) for name in STORED}),
                    row.measured_at, row.slot)

    def add(self, measurement: reports.Measurement, measured_s: float) -> int:
        """Take a measurement; its place among the readings of its pair."""
        with self._lock:
            slot = self._put(measurement, measured_s)
        assert slot is not None
        return slot

    def _put(self, measurement: reports.Measurement, measured_s: float,
             slot: int | None = None) -> int | None:
        """Take a measurement; return its place.

        :param slot: the place that it has in the database, if it was stored.
        """
        pair = measurement.src, measurement.dst
        found = _reading(measurement, measured_s)
        if (slot is None or pair not in self._newest
                or measured_s > self._newest[pair][1]):
            self._newest[pair] = measurement, measured_s
            self._readings.add(found)
            self._hosts = None
        slot = self._history.add(found, slot)
        self._version += slot is not None
        return slot

    def forget(self, hosts: Set[str]) -> None:
        """Forget the pairs of these hosts."""
        with self._lock:
            if hosts.isdisjoint(self._history.hosts):
                return
            self._newest = {pair: one for pair, one in self._newest.items()
                            if hosts.isdisjoint(pair)}
            self._readings = hostrates.Readings()
            for one in self._newest.values():
                self._readings.add(_reading(*one))
            self._hosts = None
            self._history.forget(hosts)
            self._version += 1

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
                **{name: getattr(one, name) for name in STORED})
                    for _, (one, measured_s) in sorted(
                        self._newest.items())]

    def hosts(self) -> Mapping[str, hostrates.HostRate]:
        """Return the hosts' rates; the same object until a new measurement."""
        with self._lock:
            if self._hosts is None:
                self._hosts = self._readings.estimate()
            return self._hosts

    def newest_s(self) -> float:
        with self._lock:
            return self._history.newest_s()

    def table(self, since_s: float, until_s: float = math.inf
              ) -> history.Table:
        with self._lock:
            return self._history.table(since_s, until_s)

    def refresh(self, now_s: float) -> bool:
        """Estimate all pairs again where something was measured."""
        with self._lock:
            version = self._version
            if version == self._seen:
                return False
            table = self._history.table(now_s - self._retention_s)
        is_due = now_s - self._chosen_s >= CHOICE_S
        found = pipes.known(table, self.hosts(),
                            estimator=None if is_due else self.estimator)
        if is_due and found.component is not None:
            self._chosen_s = now_s
            # Two readings are too few to compare estimators.
            self.estimator = (found.component.estimator
                              if found.component.errors else None)
            self.errors = found.component.errors
        # Set last, so that the next turn repeats a failed estimate.
        self.known, self._seen = found, version
        return True

    def choose(self, hosts: Set[str], now_s: float,
               tree: Callable[[], cluster.Tree]) -> pipes.Chosen:
        """Choose the pair rates for hosts, in bits per second on the wire."""
        found = self.known
        return pipes.choose(found, hosts, now_s, self._max_age_s,
                            _between(tree(), found.slow)
                            if found.slow else None)


def _between(tree: cluster.Tree, pairs: Iterable[history.Pair]
             ) -> dict[history.Pair, float]:
    """Return the rate of the slowest uplink between each two hosts."""
    if not tree.subtrees:
        return {}
    chains = tree.chains()
    found = {}
    for src, dst in pairs:
        up, down = ({one.name: one for one in chains.get(
            tree.leaf_of.get(host, ''), ())} for host in (src, dst))
        rates = [*(up[name].uplink_out_bps for name in up.keys() - down),
                 *(down[name].uplink_in_bps for name in down.keys() - up)]
        if rates:
            found[src, dst] = min(rates)
    return found
