# SPDX-License-Identifier: Apache-2.0

"""Hosts that are singled out by the pairs that they are part of.

The Cloud Monitoring Framework (section 3.3) averages the rates into and out of
each instance and looks at their range over time. A single slow pair is no
host's fault, so the median over the peers counts here.
"""

from collections.abc import Sequence
import math

import numpy as np
from numpy import typing as npt

from virtco.measure import constant
from virtco.measure import history
from virtco.wire import rate as wire

Matrix = npt.NDArray[np.float64]

#: Below this share of the hosts' median a host is poor …
POOR = 0.75
#: … and where rates of the typical pair vary by more than this share.
VARIES = 0.5
#: Multiple of the hosts' median above which a round trip is poor.
SLOW_RTT = 3.0
#: Peers without which nothing is said.
LEAST_PEERS = 2
_VALUES = ('egress_bps', 'ingress_bps', 'range_share', 'rtt_s')


def performers(table: history.Table, rates_bps: Matrix
               ) -> list[wire.Performer]:
    """Judge all hosts, in the order of the table; [] without any.

    :param rates_bps: long-term rate of each pair, shape (n_pairs,).
    """
    if not table.hosts:
        return []
    rates = table.matrix(rates_bps)
    with np.errstate(invalid='ignore'):
        low, high = (constant.quantile(table.rates_bps, q)
                     for q in (0.0, 1.0))
        spread = table.matrix((high - low) / rates_bps)
    rtts = table.matrix(_median(table.rtts_s))
    out, into = _median(rates.T), _median(rates)
    varies = _median(np.concatenate([spread, spread.T]))
    rtt = _median(np.concatenate([rtts, rtts.T]))
    n_out, n_in = np.isfinite(rates).sum(axis=1), np.isfinite(rates).sum(
        axis=0)
    usual = [float(_median(one[:, None])[0]) for one in (out, into, rtt)]
    found = []
    for i, host in enumerate(table.hosts):
        n_peers = int(min(n_out[i], n_in[i]))
        values = [float(one[i]) for one in (out, into, varies, rtt)]
        found.append(wire.Performer(
            host=host, n_peers=n_peers,
            reasons=_reasons(n_peers, values, usual), **{
                name: value if math.isfinite(value) else None
                for name, value in zip(_VALUES, values)}))
    return found


def _reasons(n_peers: int, values: Sequence[float], usual: Sequence[float]
             ) -> tuple[str, ...]:
    """Say why a host is poor, with the numbers; NaN is no reason.

    :param values: values of the host, in the order of _VALUES.
    :param usual: median egress, ingress and round trip of the hosts.
    """
    found = []
    egress_bps, ingress_bps, range_share, rtt_s = values
    for name, value, middle in (('egress', egress_bps, usual[0]),
                                ('ingress', ingress_bps, usual[1])):
        if n_peers >= LEAST_PEERS and value < POOR * middle:
            found.append(f'{name} {value / 1e6:.4g} Mbit/s, the hosts\' '
                         f'median is {middle / 1e6:.4g}')
    if n_peers >= LEAST_PEERS and range_share > VARIES:
        found.append(f'rates vary by {range_share:.0%}')
    if rtt_s > SLOW_RTT * usual[2]:
        found.append(f'round trip {rtt_s * 1e3:.3g} ms, the hosts\' '
                     f'median is {usual[2] * 1e3:.3g}')
    return tuple(found)


def _median(values: Matrix) -> Matrix:
    """Compute each column's median without NaN; NaN without values."""
    return constant.quantile(values, 0.5)
