# SPDX-License-Identifier: Apache-2.0

"""Rates at which hosts send one coflow, by their last reports. Pure."""

from collections.abc import Mapping
from collections.abc import Set
import math

import numpy as np

from virtco.model import live
from virtco.state import silent_flows

# Destination, None: any, and bits per second.
Rates = Mapping[str | None, float]


class Sending:
    """Rates of one coflow at the hosts that sent bytes of it."""

    def __init__(self) -> None:
        self._rates_bps: dict[str, Rates] = {}

    def keep(self, hosts: Set[str]) -> None:
        """Forget rates elsewhere: no VM is there to send."""
        for host in self._rates_bps.keys() - hosts:
            del self._rates_bps[host]

    def take(self, host: str, rates_bps: Rates | None) -> None:
        """Set the rates of a host; None: it sent nothing."""
        if rates_bps:
            self._rates_bps[host] = rates_bps
        else:
            self._rates_bps.pop(host, None)

    def of_pairs(self, pairs: live.Pairs, queues: silent_flows.Queues
                 ) -> np.ndarray | None:
        """Return the rate of each pair, shape (n_pairs,), inf where bytes
        wait.

        A rate to any destination is divided among all of its host. None where
        nothing is sent and nothing waits.
        """
        if not self._rates_bps and not queues:
            return None
        each = [0.0] * len(pairs)
        for src, rates_bps in self._rates_bps.items():
            at = pairs.of_source.get(src, ())
            rest_bps = rates_bps.get(None, 0.0) / max(1, len(at))
            for i in at:
                each[i] = rates_bps.get(pairs[i][1], rest_bps)
        found = np.array(each)
        if queues:
            found[~queues.are_empty(pairs)] = math.inf
        return found
