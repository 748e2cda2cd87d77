# SPDX-License-Identifier: Apache-2.0

"""Pairs of hosts that are slower than both of their hosts.

Hosts' rates explain most pairs: R_mn = min(B_e^m, B_in^n), the hose model. A
pair that stays behind that, in its long-term rate, is limited on the way
between the two; for it the planner takes Choreo's pipe R_mn besides.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
import dataclasses
import math

import numpy as np
from numpy import typing as npt

from virtco.measure import constant
from virtco.measure import history
from virtco.measure import hostrates

#: Readings of a pair needed to say anything of it.
LEAST_READINGS = 2
#: Relative move of a pair's rate above which it is another rate.
CHANGE = 0.3
#: Pairs of more hosts than this cost a launch too much.
MOST_HOSTS = 200
MOST_SHOWN = 3

Pair = history.Pair


@dataclasses.dataclass(frozen=True, slots=True)
class Slow:
    """A pair that its hosts' rates do not explain.

    :ivar expected_bps: the slower of its hosts' rates.
    :ivar confidence: 0 to 1, at ``measured_s``.
    :ivar measured_s: time of its newest reading.
    """

    rate_bps: float
    expected_bps: float
    confidence: float
    measured_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class Known:
    """Estimates of all pairs by their history.

    :ivar component: component of the pairs in the order of the table.
    :ivar newest_s: time of each pair's newest reading, shape (n_pairs,).
    :ivar count: readings of each pair that are no lower bounds.
    :ivar slow: the pairs to plan by.
    """

    table: history.Table
    component: constant.Constant | None = None
    newest_s: npt.NDArray[np.float64] = dataclasses.field(
        default_factory=lambda: np.zeros(0))
    count: npt.NDArray[np.int64] = dataclasses.field(
        default_factory=lambda: np.zeros(0, np.int64))
    slow: Mapping[Pair, Slow] = dataclasses.field(default_factory=dict)


NOTHING = Known(history.History().table())


def known(table: history.Table, hosts: Mapping[str, hostrates.HostRate],
          estimator: constant.Estimator | None = None) -> Known:
    """Estimate every pair, and find those that are slower than their hosts.

    :param hosts: estimates of the hosts by the same measurements.
    :param estimator: this one, without a comparison.
    """
    if not len(table.ends):
        return Known(table)
    readings = constant.since_change(table.rates_bps, CHANGE)
    component = constant.fit(readings, estimator)
    count = np.isfinite(readings).sum(axis=0)
    newest_s = table.times_s[-1]
    out_bps, in_bps = (np.array([
        _rate(hosts.get(host), way) for host in table.hosts])
        for way in ('egress_bps', 'ingress_bps'))
    expected = np.minimum(out_bps[table.ends[:, 0]],
                          in_bps[table.ends[:, 1]])
    with np.errstate(invalid='ignore'):
        is_slow = component.rates < (1 - hostrates.TOLERANCE) * expected
    is_slow &= count >= LEAST_READINGS
    is_slow &= component.pair_noise <= constant.UNSTABLE
    slow = {}
    for row in np.flatnonzero(is_slow):
        src, dst = table.ends[row]
        slow[table.hosts[src], table.hosts[dst]] = Slow(
            float(component.rates[row]), float(expected[row]),
            float((1 - 0.5 ** count[row]) * (1 - component.pair_noise[row])),
            float(newest_s[row]))
    return Known(table, component, newest_s, count, slow)


def _rate(host: hostrates.HostRate | None, way: str) -> float:
    found = None if host is None else getattr(host, way)
    return math.nan if found is None else found


@dataclasses.dataclass(frozen=True, slots=True)
class Chosen:
    """Pair rates for one question.

    :ivar rates_bps: rates of the pairs to plan by.
    :ivar text: remark on the estimate: which one, its age and trust, and the
        pairs that fall back to the hosts' rates; empty where nothing was ever
        measured between the hosts.
    """

    rates_bps: dict[Pair, float]
    text: str


def choose(found: Known, hosts: Set[str], now_s: float, max_age_s: float,
           uplinks_bps: Mapping[Pair, float] | None = None) -> Chosen:
    """Choose the pairs among the hosts that the planner should see.

    :param hosts: hosts of the question.
    :param max_age_s: largest age; of older pairs the hosts' rates are used.
    :param uplinks_bps: rate of the topology's uplinks between a slow pair;
        they explain a pair that is not slower.
    """
    inside = np.array([name in hosts for name in found.table.hosts], bool)
    ends = found.table.ends
    if not len(ends):
        return Chosen({}, '')
    both = inside[ends[:, 0]] & inside[ends[:, 1]]
    if not both.any():
        return Chosen({}, '')
    n_pairs = len(hosts) * (len(hosts) - 1)
    fresh = both & (now_s - found.newest_s <= max_age_s)
    n_fresh, n_stale = int(fresh.sum()), int((both & ~fresh).sum())
    slow = {pair: one for pair, one in found.slow.items()
            if pair[0] in hosts and pair[1] in hosts
            and now_s - one.measured_s <= max_age_s
            and one.rate_bps < (1 - hostrates.TOLERANCE)
            * (uplinks_bps or {}).get(pair, math.inf)}
    parts = []
    if slow and len(hosts) > MOST_HOSTS:
        parts.append(f'{len(slow)} slow pairs are left out, as there are more '
                     f'than {MOST_HOSTS} hosts')
        slow = {}
    elif slow:
        parts.append(f'{len(slow)} slow pairs are used '
                     f'({_shown(slow, now_s)})')
    if n_fresh < n_pairs:
        missing = n_pairs - n_fresh - n_stale
        parts.append(
            f'of {n_pairs} pairs {n_stale} were measured more than '
            f'{max_age_s:g} s ago and {missing} never: hosts\' rates there')
    return Chosen({pair: one.rate_bps for pair, one in slow.items()},
                  'pair rates: ' + '; '.join(parts) if parts else '')


def _shown(slow: Mapping[Pair, Slow], now_s: float) -> str:
    """Describe the slowest pairs in one line."""
    first: Sequence[tuple[Pair, Slow]] = sorted(
        slow.items(), key=lambda item: item[1].rate_bps)[:MOST_SHOWN]
    texts: Iterable[str] = (
        f'{src} to {dst} {one.rate_bps / 1e6:.4g} of '
        f'{one.expected_bps / 1e6:.4g} Mbit/s, '
        f'{now_s - one.measured_s:.0f} s old, confidence '
        f'{one.confidence * hostrates.confidence(now_s - one.measured_s):.2f}'
        for (src, dst), one in first)
    return ', '.join(texts) + (', …' if len(slow) > len(first) else '')
