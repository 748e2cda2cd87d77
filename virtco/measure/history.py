# SPDX-License-Identifier: Apache-2.0

"""The last readings of each pair of hosts, in arrays of bounded size."""

from collections.abc import Set
import dataclasses
import itertools
import math

import numpy as np
from numpy import typing as npt

from virtco.measure import constant

Matrix = npt.NDArray[np.float64]
Pair = tuple[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """Measurement of a pair.

    :ivar measured_s: time of the measurement, on the caller's clock.
    :ivar lower_bound: the pair is at least this fast: the sender was the
        limit, or other traffic shared the link.
    :ivar rtt_s: median round-trip time, None where it was not measured.
    """

    src: str
    dst: str
    rate_bps: float
    measured_s: float
    lower_bound: bool = False
    rtt_s: float | None = None


class History:
    """A ring of readings per pair.

    :param depth: readings that are kept of each pair.
    """

    def __init__(self, depth: int = constant.SNAPSHOTS):
        self.depth = depth
        #: Times, rates and round trips of each pair, NaN for none, shape
        #: (3, depth).
        self._rings: dict[Pair, Matrix] = {}

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts in the order in which they were first measured."""
        return tuple(dict.fromkeys(itertools.chain.from_iterable(
            self._rings)))

    def add(self, reading: Reading, slot: int | None = None) -> int | None:
        """Take a reading in the place of the oldest one.

        :param slot: the place that it had before a restart.
        :returns: its place; None where a newer one of that place is known.
        """
        ring = self._rings.setdefault((reading.src, reading.dst), np.full(
            (3, self.depth), np.nan))
        times_s = ring[0]
        if slot is None:
            slot = (0 if np.isnan(times_s).all()
                    else (int(np.nanargmax(times_s)) + 1) % self.depth)
        elif slot >= self.depth or times_s[slot] >= reading.measured_s:
            return None
        # A lower bound says nothing of how fast the pair is.
        ring[:, slot] = (
            reading.measured_s,
            np.nan if reading.lower_bound else reading.rate_bps,
            np.nan if reading.rtt_s is None else reading.rtt_s)
        return slot

    def forget(self, hosts: Set[str]) -> None:
        """Drop the readings of these hosts' pairs."""
        self._rings = {pair: ring for pair, ring in self._rings.items()
                       if hosts.isdisjoint(pair)}

    def newest_s(self) -> float:
        """Return the time of the newest reading, 0 without any."""
        return float(np.nanmax(self._columns()[0], initial=0.0))

    def _columns(self) -> Matrix:
        """Return times, rates and round trips, shape (3, n_pairs, depth)."""
        return np.array(list(self._rings.values())).reshape(
            -1, 3, self.depth).transpose(1, 0, 2)

    def table(self, since_s: float = 0.0, until_s: float = math.inf
              ) -> 'Table':
        """Copy the readings of a time, both ends included, oldest first."""
        found = self._columns()
        found[:, ~((since_s <= found[0]) & (found[0] <= until_s))] = np.nan
        # Missing readings come first, so that the newest are aligned.
        order = np.argsort(np.where(np.isnan(found[0]), -np.inf, found[0]),
                           axis=1, kind='stable')
        number = {host: i for i, host in enumerate(self.hosts)}
        ends = np.array([(number[src], number[dst])
                         for src, dst in self._rings], np.int64)
        return Table(tuple(number), ends.reshape(-1, 2), *np.take_along_axis(
            found, order[None], axis=2).transpose(0, 2, 1))


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """A copy of a history.

    :ivar hosts: their names.
    :ivar ends: number of source and destination, int array (n_pairs, 2).
    :ivar times_s: shape (depth, n_pairs), oldest first, NaN where missing.
    :ivar rates_bps: likewise; NaN also for lower bounds.
    :ivar rtts_s: likewise.
    """

    hosts: tuple[str, ...]
    ends: npt.NDArray[np.int64]
    times_s: Matrix
    rates_bps: Matrix
    rtts_s: Matrix

    def matrix(self, values: Matrix) -> Matrix:
        """Spread values of the pairs, (n_hosts, n_hosts), NaN if unknown."""
        found = np.full((len(self.hosts),) * 2, np.nan)
        if len(self.ends):
            found[self.ends[:, 0], self.ends[:, 1]] = values
        return found
