# SPDX-License-Identifier: Apache-2.0

"""Rates and latencies between the VMs of a group, by several estimates.

A measurement between two hosts holds for every pair of VMs on them. A pair
that was never measured gets the slower of its hosts' links.
"""

from collections.abc import Sequence
import dataclasses
import enum
import functools

import numpy as np
from numpy import typing as npt

from virtco import exception
from virtco.advise import mappings
from virtco.measure import constant
from virtco.measure import history
from virtco.measure import pipes

Matrix = npt.NDArray[np.float64]

#: Most pairs of hosts for RPCA, which takes 0.2 s for them.
MOST_RPCA_PAIRS = 10_000
#: Most pairs of hosts for which all estimates are shown and compared.
MOST_COMPARED_PAIRS = 2_500


class Basis(enum.StrEnum):
    """Estimate that advice is based on; the first is the default.

    ``constant`` is the long-term rate by the estimator that predicts this
    cloud best, ``rpca`` the paper's constant component, ``raw`` the newest
    reading of each pair.
    """

    CONSTANT = 'constant'
    RPCA = 'rpca'
    MEDIAN = 'median'
    RAW = 'raw'


@dataclasses.dataclass(frozen=True, slots=True)
class Estimate:
    """Rates and latencies of all pairs by one estimator.

    :ivar estimator: estimator of the constant component; None for raw
        readings.
    :ivar noise: Norm(N_E) of the readings around it.
    :ivar n_measured: pairs of hosts with a rate of their own, of ``n_pairs``.
    """

    basis: Basis
    paths: mappings.Paths
    estimator: constant.Estimator | None
    noise: float | None
    n_measured: int
    n_pairs: int

    @property
    def trust(self) -> constant.Trust | None:
        """Class of the noise around the estimate; None where noise is None."""
        return None if self.noise is None else constant.trust(self.noise)


@dataclasses.dataclass(frozen=True)
class Readings:
    """Measurements of the pairs of hosts of a group.

    :ivar machines: number of each member's host, shape (n_members,).
    :ivar links_bps: link rate of each host, for pairs without a measurement,
        shape (n_hosts,).
    :ivar usable: payload per bit of a link.
    :ivar ends: number of source and destination, shape (n_pairs, 2).
    :ivar rates_bps: shape (n_readings, n_pairs), oldest first, NaN where
        there is none.
    :ivar rtts_s: likewise.
    """

    machines: npt.NDArray[np.int64]
    links_bps: Matrix
    usable: float
    ends: npt.NDArray[np.int64]
    rates_bps: Matrix
    rtts_s: Matrix

    @classmethod
    def of(cls, table: history.Table, member_hosts: Sequence[str],
           links_bps: dict[str, float], default_bps: float,
           usable: float = 1.0) -> 'Readings':
        """Select the readings between a group's hosts.

        :param member_hosts: host of each member.
        :param links_bps: link rate by host, where it is known.
        :param default_bps: link rate of other hosts.
        """
        hosts = list(dict.fromkeys(member_hosts))
        number = {host: i for i, host in enumerate(hosts)}
        place = np.array([number.get(host, -1) for host in table.hosts],
                         np.int64)
        ends = place[table.ends] if len(table.ends) else np.zeros(
            (0, 2), np.int64)
        among = (ends >= 0).all(axis=1)
        return cls(np.array([number[host] for host in member_hosts]),
                   np.array([links_bps.get(host, default_bps)
                             for host in hosts]), usable,
                   ends[among], table.rates_bps[:, among],
                   table.rtts_s[:, among])

    def side_by_side(self, chosen: Basis) -> tuple[Basis, ...]:
        """Return the estimates to show together.

        With many pairs they are the chosen and the raw one only.
        """
        if len(self.ends) <= MOST_COMPARED_PAIRS:
            return tuple(Basis)
        return tuple(basis for basis in Basis
                     if basis in (chosen, Basis.RAW))

    def estimate(self, basis: Basis,
                 estimator: constant.Estimator | None = None) -> Estimate:
        """Estimate the paths between all members by one basis.

        :param estimator: estimator of the constant, where it was chosen
            before.
        :raises virtco.exception.Invalid: for RPCA of too many pairs.
        """
        rates_bps, component = self._rates(basis, estimator)
        known = np.isfinite(rates_bps) & (rates_bps > 0)
        src, dst = self.ends[known].T
        between = np.minimum(self.links_bps[:, None],
                             self.links_bps[None, :])
        between[src, dst] = rates_bps[known]
        np.fill_diagonal(between, np.inf)
        both = np.ix_(self.machines, self.machines)
        n_hosts = len(self.links_bps)
        return Estimate(
            basis, mappings.Paths(self.usable * between[both],
                                  self._latency_s()[both], self.machines),
            component.estimator if component else None,
            component.noise if component else None,
            int(known.sum()), n_hosts * (n_hosts - 1))

    def _rates(self, basis: Basis, estimator: constant.Estimator | None
               ) -> tuple[Matrix, constant.Constant | None]:
        """Return each pair's rate on a basis, and its constant component."""
        if not self.rates_bps.size:
            return np.zeros(len(self.ends)), None
        if basis is Basis.RAW:
            return _newest(self.rates_bps), None
        if basis is Basis.RPCA and len(self.ends) > MOST_RPCA_PAIRS:
            raise exception.Invalid(
                field='matrix', value=basis, limit='another matrix for more '
                f'than {MOST_RPCA_PAIRS} pairs of hypervisors')
        found = constant.fit(self._since_change, {
            Basis.CONSTANT: self._affordable(estimator),
            Basis.RPCA: constant.Estimator.RPCA,
            Basis.MEDIAN: constant.Estimator.MEDIAN}[basis])
        return found.rates, found

    def _affordable(self, estimator: constant.Estimator | None
                    ) -> constant.Estimator | None:
        """Return the estimator, or the consensus if it would take too long.

        :param estimator: None compares all estimators.
        """
        most = (MOST_COMPARED_PAIRS if estimator is None
                else MOST_RPCA_PAIRS if estimator is constant.Estimator.RPCA
                else len(self.ends))
        return (estimator if len(self.ends) <= most
                else constant.Estimator.CONSENSUS)

    @functools.cached_property
    def _since_change(self) -> Matrix:
        return constant.since_change(self.rates_bps, pipes.CHANGE)

    def _latency_s(self) -> Matrix:
        """Compute half of each median round trip, in s, by pair of hosts.

        Where it is unknown, the median of all is taken.
        """
        n_hosts = len(self.links_bps)
        found = np.full((n_hosts, n_hosts), np.nan)
        if self.rtts_s.size:
            found[self.ends[:, 0], self.ends[:, 1]] = constant.quantile(
                self.rtts_s, 0.5) / 2
        known = found[np.isfinite(found)]
        found[~np.isfinite(found)] = np.median(known) if known.size else 0.0
        np.fill_diagonal(found, 0.0)
        return found


def _newest(rows: Matrix) -> Matrix:
    """Return the last finite reading of each column, shape (n_columns,)."""
    known = np.isfinite(rows)
    last = len(rows) - 1 - np.argmax(known[::-1], axis=0)
    found: Matrix = rows[last, np.arange(rows.shape[1])]
    return found
