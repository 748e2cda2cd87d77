# SPDX-License-Identifier: Apache-2.0

"""History of readings of each pair of hosts, and rates for planning."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Set
import math
import threading
from typing import TYPE_CHECKING

from virtco.measure import constant
from virtco.measure import history
from virtco.measure import pipes
from virtco.model import cluster
from virtco.state import measured_rates

if TYPE_CHECKING:
    from virtco.db import models

#: Readings kept of each pair: as many as the RPCA paper takes.
DEPTH = 10
#: Age at which a reading is forgotten: a week.
RETENTION_S = 604_800.0
#: Time between two comparisons of the estimators.
CHOICE_S = 600.0


class Pairs:
    """Readings of each pair of hosts and the rates estimated from them.

    :param rates: rates of the hosts by the same measurements.
    :param depth: readings that are kept of each pair.
    :param retention_s: age at which a reading is forgotten.
    :param max_age_s: largest age of the readings to plan by.
    :ivar errors: error of each estimator at the last comparison.
    :ivar estimator: the one with the smallest.
    """

    def __init__(self, rates: measured_rates.Rates, depth: int,
                 retention_s: float, max_age_s: float):
        self._rates = rates
        self._retention_s = retention_s
        self._max_age_s = max_age_s
        self._lock = threading.Lock()
        self._history = history.History(depth)
        self._version = 0
        self._seen = -1
        self.estimator: constant.Estimator | None = None
        self.errors: dict[constant.Estimator, float] = {}
        self._chosen_s = -CHOICE_S
        self.known = pipes.NOTHING

    def load(self, stored: 'Iterable[models.Reading]') -> None:
        with self._lock:
            for row in stored:
                if self._history.add(measured_rates.reading(
                        row, row.measured_at), row.slot) is not None:
                    self._version += 1

    def add(self, reading: history.Reading) -> int:
        """Take a reading; its place among those of its pair."""
        with self._lock:
            slot = self._history.add(reading)
            self._version += 1
        assert slot is not None
        return slot

    def forget(self, hosts: Set[str]) -> None:
        """Forget the pairs of these hosts."""
        with self._lock:
            if not hosts.isdisjoint(self._history.hosts):
                self._history.forget(hosts)
                self._version += 1

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
        found = pipes.known(table, self._rates.estimate(now_s).hosts,
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
