# SPDX-License-Identifier: Apache-2.0

"""Queues and rates of one coflow at its hosts, by their last reports. Pure."""

from collections.abc import Mapping
from collections.abc import Set
import math

import numpy as np

from virtco.model import live
from virtco.wire import reports

# Destination, None: any, and bits per second.
Rates = Mapping[str | None, float]


class Sending:
    """Queues and rates of one coflow at the hosts that send it."""

    def __init__(self) -> None:
        self._rates_bps: dict[str, Rates] = {}
        # Host with a queue -> bytes that wait there, first those of no told
        # destination, then by destination, where it has a class of its own.
        self._queues: dict[str, tuple[float, Mapping[str, float]]] = {}

    @property
    def is_queued(self) -> bool:
        """Whether bytes wait at any host."""
        return bool(self._queues)

    def keep(self, hosts: Set[str]) -> None:
        """Forget queues and rates elsewhere: no VM is there to send."""
        for host in (self._queues.keys() | self._rates_bps) - hosts:
            self.take(host)

    def take(self, host: str, counters: reports.CoflowCounters | None = None,
             rates_bps: Rates | None = None) -> bool:
        """Set the queue and the rates of a host; return whether there was a
        queue.

        :param counters: counters with a queue; None: there is none.
        :param rates_bps: None: the host sent nothing.
        """
        was_queued = self._queues.pop(host, None) is not None
        if counters is not None:
            told: dict[str, float] = {}
            for child in counters.destinations:
                if child.backlog_bytes:  # of two classes for a while
                    told[child.host] = (told.get(child.host, 0.0)
                                        + child.backlog_bytes)
            self._queues[host] = max(0.0, counters.backlog_bytes
                                     - sum(told.values())), told
        self._rates_bps.pop(host, None)
        if rates_bps:
            self._rates_bps[host] = rates_bps
        return was_queued

    def queued_bytes(self, pairs: live.Pairs, shares: np.ndarray
                     ) -> np.ndarray:
        """Return the bytes that wait for each pair, shape (n_pairs,).

        :param shares: shares by which the bytes of a host are divided among
            its destinations where it does not tell of these, shape (n_pairs,).
        """
        found = np.zeros(len(pairs))
        for src, (rest_bytes, told) in self._queues.items():
            at = list(pairs.of_source.get(src, ()))
            found[at] = [told.get(pairs[i][1], 0.0) for i in at]
            total = shares[at].sum()
            if total > 0:
                found[at] += shares[at] * (rest_bytes / total)
        return found

    def are_queues_empty(self, pairs: live.Pairs) -> np.ndarray:
        """Return whether no bytes wait for a pair's destination, (n_pairs,).

        What a host counts beside the classes of destinations may be for each
        of them: they have no such classes, or it does not tell of those.
        """
        found = np.ones(len(pairs), bool)
        for src, (rest_bytes, told) in self._queues.items():
            for i in pairs.of_source.get(src, ()):
                found[i] = not rest_bytes and pairs[i][1] not in told
        return found

    def rates_bps(self, pairs: live.Pairs) -> np.ndarray | None:
        """Return the rate of each pair, shape (n_pairs,), inf where bytes
        wait.

        A rate to any destination is divided among all of its host. None where
        nothing is sent and nothing waits.
        """
        if not (self._rates_bps or self._queues):
            return None
        found = np.zeros(len(pairs))
        for src, rates_bps in self._rates_bps.items():
            at = pairs.of_source.get(src, ())
            rest_bps = rates_bps.get(None, 0.0) / max(1, len(at))
            for i in at:
                found[i] = rates_bps.get(pairs[i][1], rest_bps)
        found[~self.are_queues_empty(pairs)] = math.inf
        return found
