# SPDX-License-Identifier: Apache-2.0

"""Hosts that are singled out by the pairs that they are part of.

The Cloud Monitoring Framework (section 3.3) averages the rates into and out of
each instance and looks at their range over time. A single slow pair is no
host's fault, so the median over the peers counts here.
"""

import dataclasses

import numpy as np
from numpy import typing as npt

from virtco.measure import constant
from virtco.measure import history

Matrix = npt.NDArray[np.float64]

#: Below this share of the hosts' median a host is poor …
POOR = 0.75
#: … and where rates of the typical pair vary by more than this share.
VARIES = 0.5
#: A round trip is poor above so many times the hosts' median.
SLOW_RTT = 3.0
#: Peers without which nothing is said.
LEAST_PEERS = 2


@dataclasses.dataclass(frozen=True, slots=True)
class Performer:
    """Rates and round trip of a host by its pairs; NaN where unknown.

    :ivar egress_bps: median over the peers of the long-term rate to them.
    :ivar range_share: median over its pairs of (max - min) by the rate.
    :ivar rtt_s: median over the peers of the median round trip.
    :ivar n_peers: in the direction that has fewer of them.
    :ivar reasons: why it is poor, with the numbers; empty when it is not.
    """

    host: str
    egress_bps: float
    ingress_bps: float
    range_share: float
    rtt_s: float
    n_peers: int
    reasons: tuple[str, ...] = ()


def performers(table: history.Table, rates_bps: Matrix
               ) -> tuple[Performer, ...]:
    """Judge all hosts, in the order of the table.

    :param rates_bps: long-term rate of each pair, shape (n_pairs,).
    """
    rates = table.matrix(rates_bps)
    with np.errstate(invalid='ignore'):
        low, high = (_along(table.rates_bps, q) for q in (0.0, 1.0))
        spread = table.matrix((high - low) / rates_bps)
    rtts = table.matrix(_along(table.rtts_s, 0.5))
    out, into = _median(rates.T), _median(rates)
    varies = _median(np.concatenate([spread, spread.T]))
    rtt = _median(np.concatenate([rtts, rtts.T]))
    n_out, n_in = np.isfinite(rates).sum(axis=1), np.isfinite(rates).sum(
        axis=0)
    usual = [float(_median(one[:, None])[0]) for one in (out, into, rtt)]
    found = []
    for i, host in enumerate(table.hosts):
        n_peers = int(min(n_out[i], n_in[i]))
        one = Performer(host, float(out[i]), float(into[i]),
                        float(varies[i]), float(rtt[i]), n_peers)
        found.append(dataclasses.replace(one, reasons=_reasons(one, usual)))
    return tuple(found)


def _reasons(one: Performer, usual: list[float]) -> tuple[str, ...]:
    found = []
    for name, value, middle in (('egress', one.egress_bps, usual[0]),
                                ('ingress', one.ingress_bps, usual[1])):
        if one.n_peers >= LEAST_PEERS and value < POOR * middle:
            found.append(f'{name} {value / 1e6:.4g} Mbit/s, the hosts\' '
                         f'median is {middle / 1e6:.4g}')
    if one.n_peers >= LEAST_PEERS and one.range_share > VARIES:
        found.append(f'rates vary by {one.range_share:.0%}')
    if one.rtt_s > SLOW_RTT * usual[2]:
        found.append(f'round trip {one.rtt_s * 1e3:.3g} ms, the hosts\' '
                     f'median is {usual[2] * 1e3:.3g}')
    return tuple(found)


def _along(values: Matrix, q: float) -> Matrix:
    """Compute each pair's quantile over time, NaN without values."""
    if not values.size:
        return np.zeros(values.shape[1])
    return constant.quantile(values, q)


def _median(values: Matrix) -> Matrix:
    """Compute each column's median without NaN; NaN without values."""
    if not values.size:
        return np.full(values.shape[1], np.nan)
    return constant.quantile(values, 0.5)
