# SPDX-License-Identifier: Apache-2.0

"""Rates of all pairs of a generated cloud over time, with known truth.

The RPCA paper's figures come from traces of EC2 that are not public. These
traces have the dynamics that the paper names: a band around a constant, single
readings that other traffic disturbs, snapshots that are slow as a whole, and
permanent changes.
"""

from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import functools

import numpy as np
from numpy import typing as npt

from virtco.measure import constant
from virtco.measure import robustpca

Matrix = npt.NDArray[np.float64]

LINK_BPS = 1e9


def _rpca_of_rates(flat: Matrix) -> Matrix:
    """Decompose rates, not times; unseen readings are the pair's median."""
    median = constant.estimate(flat, constant.Estimator.MEDIAN)
    return robustpca.constant_component(
        np.where(np.isfinite(flat), flat, median))


#: Estimates of the pairs' rates by readings, shape (n, n_pairs), NaN where
#: nothing was seen.
ESTIMATES: dict[str, Callable[[Matrix], Matrix]] = {
    'mean rate': lambda flat: np.nanmean(flat, axis=0),
    'mean time': lambda flat: 1 / np.nanmean(1 / flat, axis=0),
    'least rate': lambda flat: np.nanmin(flat, axis=0),
    'rpca of rates': _rpca_of_rates,
    **{str(one): functools.partial(constant.estimate, estimator=one)
       for one in constant.Estimator},
    'chosen': lambda flat: constant.fit(flat).rates}


@dataclasses.dataclass(frozen=True, slots=True)
class Dynamics:
    """How a cloud's rates vary.

    :ivar spread: sigma of the log-normal factor between pairs.
    :ivar across: share of a link that pairs in different racks get.
    :ivar jitter: standard deviation of every reading, of its rate.
    :ivar disturbed: share of the readings that are cut …
    :ivar cut: … to between these shares of their rate.
    :ivar slow: share of the snapshots in which all pairs get ``slow_to``.
    :ivar changes: share of the hosts that change their rack or neighbours
        for good, per snapshot.
    """

    spread: float = 0.25
    across: float = 0.5
    jitter: float = 0.03
    disturbed: float = 0.1
    cut: tuple[float, float] = (0.1, 0.7)
    slow: float = 0.0
    slow_to: float = 0.5
    changes: float = 0.0


class Cloud:
    """Random cloud with a rate and a latency of each pair.

    :param n_hosts: instances, in racks of 16 on average.
    :ivar rates_bps: the constant component, shape (n, n), 0 on the diagonal.
    :ivar latency_s: latency of each pair, shape (n, n).
    """

    def __init__(self, n_hosts: int, dynamics: Dynamics,
                 rng: np.random.Generator):
        self._dynamics = dynamics
        self._rng = rng
        self._racks = rng.integers(0, max(2, n_hosts // 16), n_hosts)
        self._factor = rng.lognormal(-dynamics.spread ** 2 / 2,
                                     dynamics.spread, (n_hosts, n_hosts))
        self.rates_bps = self._constant()
        self.latency_s = rng.uniform(1e-4, 3e-4, (n_hosts, n_hosts))

    def _constant(self) -> Matrix:
        same = self._racks[:, None] == self._racks[None, :]
        rates = LINK_BPS * self._factor * np.where(
            same, 1.0, self._dynamics.across)
        np.fill_diagonal(rates, 0.0)
        return np.minimum(rates, LINK_BPS)

    def snapshot(self) -> Matrix:
        """Return the present rate of all pairs in bit/s, shape (n, n)."""
        how, rng = self._dynamics, self._rng
        moved = rng.random(len(self._racks)) < how.changes
        if moved.any():
            self._racks[moved] = rng.permutation(self._racks)[moved]
            anew = rng.lognormal(-how.spread ** 2 / 2, how.spread,
                                 self._factor.shape)
            change = moved[:, None] | moved[None, :]
            self._factor = np.where(change, anew, self._factor)
            self.rates_bps = self._constant()
        found = self.rates_bps * np.maximum(
            1 + how.jitter * rng.standard_normal(self.rates_bps.shape), 0.1)
        hit = rng.random(found.shape) < how.disturbed
        found[hit] *= rng.uniform(*how.cut, int(hit.sum()))
        if rng.random() < how.slow:
            found *= how.slow_to
        return found

    def snapshots(self, n: int) -> Matrix:
        """Draw snapshots of the rates, shape (n, n_hosts, n_hosts)."""
        return np.array([self.snapshot() for _ in range(n)])


def whole(rates: Matrix, n_hosts: int, own: float = 0.0) -> Matrix:
    """Return the rates of all pairs as a matrix, shape (n_hosts, n_hosts).

    :param rates: rows of the matrix without its diagonal, one after another.
    :param own: value of the diagonal.
    """
    found = np.full((n_hosts, n_hosts), own)
    found[~np.eye(n_hosts, dtype=bool)] = rates
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class Cluster:
    """The paper's simulated cluster: racks of hosts under one switch.

    Background traffic goes over ``n_flows`` random pairs of machines. Each
    waits for an exponential time of mean ``wait_s`` and then sends
    ``message_bytes``; how long that takes depends on the others, so a pair
    sends with the probability that makes sending and waiting alternate. A
    reading gets the least fair share, capacity by one more than the flows
    on a link, along its path.
    """

    n_racks: int = 32
    n_per_rack: int = 32
    host_bps: float = 1e9
    uplink_bps: float = 1e10
    n_flows: int = 512
    message_bytes: float = 1e8
    wait_s: float = 5.0

    def readings(self, machines: npt.NDArray[np.int64], n: int,
                 rng: np.random.Generator) -> Iterator[Matrix]:
        """Yield snapshots of all pairs of these machines, in bits per second.
        """
        total = self.n_racks * self.n_per_rack
        src = rng.integers(0, total, self.n_flows)
        dst = (src + rng.integers(1, total, self.n_flows)) % total
        # Sending and waiting alternate: a fixed point of the mean share.
        share = 1.0
        for _ in range(50):
            sending_s = self.message_bytes * 8 / (self.host_bps * share)
            busy = sending_s / (sending_s + self.wait_s)
            share = 1 / (1 + busy * self.n_flows / total)
        for _ in range(n):
            on = rng.random(self.n_flows) < busy
            yield self._rates(machines, src[on], dst[on])

    def _rates(self, machines: npt.NDArray[np.int64],
               src: npt.NDArray[np.int64],
               dst: npt.NDArray[np.int64]) -> Matrix:
        total, size = self.n_racks * self.n_per_rack, self.n_per_rack
        out = self.host_bps / (1 + np.bincount(src, minlength=total))
        into = self.host_bps / (1 + np.bincount(dst, minlength=total))
        far = src // size != dst // size
        up = self.uplink_bps / (1 + np.bincount(
            src[far] // size, minlength=self.n_racks))
        down = self.uplink_bps / (1 + np.bincount(
            dst[far] // size, minlength=self.n_racks))
        racks = machines // size
        found = np.minimum(out[machines][:, None], into[machines][None, :])
        above = np.minimum(up[racks][:, None], down[racks][None, :])
        found = np.where(racks[:, None] == racks[None, :], found,
                         np.minimum(found, above))
        np.fill_diagonal(found, 0.0)
        return found
