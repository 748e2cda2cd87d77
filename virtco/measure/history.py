# SPDX-License-Identifier: Apache-2.0

"""The last readings of each pair of hosts, in arrays of bounded size."""

from collections.abc import Set
import dataclasses

import numpy as np
from numpy import typing as npt

from virtco.measure import constant

Matrix = npt.NDArray[np.float64]
Pair = tuple[str, str]

_GROWTH = 64


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
        self.row_of: dict[Pair, int] = {}
        self.hosts: dict[str, int] = {}
        self._ends = np.zeros((0, 2), np.int64)
        self._rates_bps = self._rtts_s = self._times_s = np.zeros(
            (0, depth))
        self._next: list[int] = []

    def __len__(self) -> int:
        return len(self.row_of)

    def add(self, reading: Reading, slot: int | None = None) -> int | None:
        """Take a reading in the place of the oldest one.

        :param slot: the place that it had before a restart.
        :returns: its place; None where a newer one of that place is known.
        """
        pair = reading.src, reading.dst
        row = self.row_of.get(pair)
        if row is None:
            row = self._new_row(pair)
        if slot is None:
            slot = self._next[row]
        elif slot >= self.depth or (self._times_s[row, slot]
                                    >= reading.measured_s):
            return None
        self._times_s[row, slot] = reading.measured_s
        # A lower bound says nothing of how fast the pair is.
        self._rates_bps[row, slot] = (np.nan if reading.lower_bound
                                      else reading.rate_bps)
        self._rtts_s[row, slot] = (np.nan if reading.rtt_s is None
                                   else reading.rtt_s)
        newest = int(np.nanargmax(self._times_s[row]))
        self._next[row] = (newest + 1) % self.depth
        return slot

    def forget(self, hosts: Set[str]) -> None:
        """Drop the rows of these hosts' pairs."""
        kept = {pair: row for pair, row in self.row_of.items()
                if hosts.isdisjoint(pair)}
        rows = list(kept.values())
        self._rates_bps, self._rtts_s, self._times_s = (
            one[rows] for one in (self._rates_bps, self._rtts_s,
                                  self._times_s))
        self._next = [self._next[row] for row in rows]
        self.row_of = {pair: row for row, pair in enumerate(kept)}
        self.hosts = {}
        self._ends = np.array(
            [[self.hosts.setdefault(host, len(self.hosts)) for host in pair]
             for pair in kept], np.int64).reshape(-1, 2)

    def _new_row(self, pair: Pair) -> int:
        """Add a row for a pair, and grow the arrays if they are full."""
        row = len(self.row_of)
        if row == len(self._ends):
            more = max(_GROWTH, row)
            self._ends = np.concatenate(
                [self._ends, np.zeros((more, 2), np.int64)])
            self._rates_bps, self._rtts_s, self._times_s = (
                np.concatenate([one, np.full((more, self.depth), np.nan)])
                for one in (self._rates_bps, self._rtts_s, self._times_s))
        self._next.append(0)
        self._ends[row] = [self.hosts.setdefault(host, len(self.hosts))
                           for host in pair]
        self.row_of[pair] = row
        return row

    def newest_s(self) -> float:
        """Return the time of the newest reading, 0 without any."""
        times_s = self._times_s[:len(self)]
        return float(np.nanmax(times_s, initial=0.0))

    def table(self, since_s: float = 0.0) -> 'Table':
        """Copy the readings of all pairs from ``since_s`` on, oldest first."""
        n = len(self)
        times_s = np.where(self._times_s[:n] >= since_s, self._times_s[:n],
                           np.nan)
        # Missing readings come first, so that the newest are aligned.
        order = np.argsort(np.where(np.isnan(times_s), -np.inf, times_s),
                           axis=1, kind='stable')
        rows = np.arange(n)[:, None]
        times_s = times_s[rows, order]
        known = ~np.isnan(times_s)
        return Table(
            tuple(self.hosts), self._ends[:n].copy(), times_s.T,
            np.where(known, self._rates_bps[rows, order], np.nan).T,
            np.where(known, self._rtts_s[rows, order], np.nan).T)


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
