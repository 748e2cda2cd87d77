# SPDX-License-Identifier: Apache-2.0

"""The Cloud Monitoring Framework's Figs. 2 to 5 on generated readings.

The paper's readings are of 19 EC2 instances in 2010, which cannot be measured
again. These have the dynamics that the paper names: rates of 600 to
800 Mbit/s that single readings fall below, and round trips of 0.3 ms with
congestion that lasts for seconds. Two instances are bad: one sends at half of
its rate, the other's rates vary. The poor performers are those that ``virtco
rate list --hosts`` finds.
"""

from collections.abc import Sequence
import functools

import numpy as np
from numpy import typing as npt

from virtco.measure import constant
from virtco.measure import history
from virtco.measure import performers
from virtco.wire import rate as wire
from virtco_lab.sim.figures import outcome
from virtco_lab.sim.figures import samples

Matrix = npt.NDArray[np.float64]

N_HOSTS = 19
RATE_ROUNDS, RTT_ROUNDS = 5, 30
#: Indices of the host that sends at half of its rate, and of the host that
#: sends at 30 to 100 % of it.
SLOW, VARYING = 4, 13
HOSTS = tuple(f'i{n + 1}' for n in range(N_HOSTS))
_PAIRS = ~np.eye(N_HOSTS, dtype=bool)
#: Mbit/s and milliseconds.
_UNITS = 1e6, 1e-3
_DISTURBED, _CUT = 0.05, (0.4, 0.8)
_RTT_S, _CONGESTED, _CONGESTION_S = 3e-4, 0.2, 3e-3
_MODEL = ('Generated: 600 to 800 Mbit/s, readings within 3 %, one in twenty '
          'cut to 40 to 80 %; round trips of 0.3 ms, a fifth of them with '
          f'3 ms of congestion on average. {HOSTS[SLOW]} sends at half of '
          f'its rate, that of {HOSTS[VARYING]} varies by round.')


@functools.lru_cache(maxsize=16)
def readings(seed: int) -> tuple[Matrix, Matrix]:
    """Draw rates in bits per second and round trips in seconds.

    :returns: shapes (rounds, hosts, hosts), NaN on the diagonals.
    """
    rng = np.random.default_rng([seed, 60])
    out, into = rng.uniform(6e8, 8e8, (2, N_HOSTS))
    out[SLOW] /= 2
    shape = N_HOSTS, N_HOSTS
    rates = np.empty((RATE_ROUNDS, *shape))
    for one in rates:
        now = out.copy()
        now[VARYING] *= rng.uniform(0.3, 1.0)
        one[:] = np.minimum(now[:, None], into[None, :])
        one *= 1 + 0.03 * rng.standard_normal(shape)
        cut = rng.random(shape) < _DISTURBED
        one[cut] *= rng.uniform(*_CUT, int(cut.sum()))
    rtts = _RTT_S * rng.uniform(0.7, 1.3, (RTT_ROUNDS, *shape))
    rtts += np.where(rng.random(rtts.shape) < _CONGESTED,
                     rng.exponential(_CONGESTION_S, rtts.shape), 0.0)
    rates[:, ~_PAIRS] = rtts[:, ~_PAIRS] = np.nan
    return rates, rtts


def poor(rates: Matrix) -> tuple[wire.Performer, ...]:
    """Return the poor performers that the product finds in readings.

    :param rates: shape (rounds, hosts, hosts), bit/s.
    """
    kept = history.History(RATE_ROUNDS)
    for turn, one in enumerate(rates):
        for i, j in zip(*np.nonzero(_PAIRS)):
            kept.add(history.Reading(HOSTS[i], HOSTS[j], float(one[i, j]),
                                     turn + 1.0))
    table = kept.table()
    found = performers.performers(table, constant.estimate(
        table.rates_bps, constant.Estimator.MEDIAN))
    return tuple(sorted(found, key=lambda one: HOSTS.index(one.host)))


def _of_links(which: int, setting: str, seed: int) -> samples.Found:
    """Return the links' readings of each round, or the range of each link."""
    found = readings(seed)[which][:, _PAIRS] / _UNITS[which]
    if setting == 'range':
        found = (found.max(axis=0) - found.min(axis=0))[None]
    else:
        found = found[:int(setting)]
    return {f'round {n + 1}' if setting != 'range' else setting:
            one.round(3).tolist() for n, one in enumerate(found)}


def _of_hosts(which: int, setting: str, seed: int) -> samples.Found:
    whole = readings(seed)[which] / _UNITS[which]
    # The diagonal is left out: rows by instance and other instance.
    to, of = (rows[:, _PAIRS].reshape(len(rows), N_HOSTS, N_HOSTS - 1)
              for rows in (whole, whole.transpose(0, 2, 1)))
    found = {'to others': to.mean(axis=(0, 2)),
             'from others': of.mean(axis=(0, 2)),
             'range': (to.max(axis=0) - to.min(axis=0)).mean(axis=1)}
    if which == 0:
        found['singled out'] = np.array([
            float(bool(one.reasons)) for one in poor(readings(seed)[0])])
    return {name: one.round(3).tolist() for name, one in found.items()}


def _row(name: str, values: Sequence[float], edge: float, decimals: int
         ) -> tuple[outcome.Cell, ...]:
    return (name, len(values), *(
        round(float(np.quantile(values, q)), decimals)
        for q in (0.1, 0.5, 0.9)), edge,
        round(100 * float((np.array(values) > edge).mean()), 1))


def _links(number: int, which: int, what: str, unit: str, limit: float,
           most: float, rounds: str, paper: str, decimals: int = 0
           ) -> samples.Figure:
    """Build the figure of the links' readings.

    :param which: 0 for rates, 1 for round trips.
    :param limit: value of a round above which a link is counted.
    :param most: the same for the range over the rounds.
    """
    def table(found: samples.Samples) -> samples.Shown:
        rows = [_row(name, found.of(setting, name),
                     most if setting == 'range' else limit, decimals)
                for setting in found.settings
                for name in found.values[setting]]
        return (('readings', 'links', f'10 % {unit}', 'median', '90 %',
                 'limit', 'above it, %'), rows, [outcome.Panel(
                     'cdf', 'Range over the rounds' if setting == 'range'
                     else 'Each round', unit, 'share of the links', tuple(
                         outcome.Series(name, (), tuple(
                             found.of(setting, name)))
                         for name in found.values[setting]))
                     for setting in found.settings])
    return samples.Figure(
        f'monitoring-{number}', f'{what} of the links (Cloud Monitoring '
        f'Framework Fig. {number})', (rounds, 'range'),
        functools.partial(_of_links, which), table, (f'{_MODEL} {paper}',))


def _hosts(number: int, which: int, what: str, unit: str, paper: str
           ) -> samples.Figure:
    """Build the figure of each instance's readings."""
    def table(found: samples.Samples) -> samples.Shown:
        setting, = found.settings
        means = {name: np.mean(rows, axis=0).tolist()
                 for name, rows in found.values[setting].items()}
        drawn = [name for name in means if name != 'singled out']
        shares = [f'{100 * share:.0f} %'
                  for share in means.get('singled out', ())]
        columns = [[round(value, 2) for value in means[name]]
                   for name in drawn] + ([shares] if shares else [])
        return (('instance', *(f'{name}, {unit}' for name in drawn),
                 *(['singled out'] if shares else [])),
                list(zip(HOSTS, *columns)),
                [outcome.Panel('bars', what, 'instance', unit, tuple(
                    outcome.Series(name, HOSTS, tuple(means[name]))
                    for name in drawn))])
    return samples.Figure(
        f'monitoring-{number}', f'{what} of each instance (Cloud Monitoring '
        f'Framework Fig. {number})', ('instances',),
        functools.partial(_of_hosts, which), table, (f'{_MODEL} {paper}',))


FIGURES = (
    _links(2, 0, 'TCP rates', 'Mbit/s', 400.0, 200.0, str(RATE_ROUNDS),
           'The paper: less than 10 % of the links below 400 Mbit/s, 20 % '
           'vary by more than 200.'),
    _hosts(3, 0, 'Mean rate', 'Mbit/s', 'Singled out: share of the seeds in '
           'which ``virtco rate list --hosts`` names the instance.'),
    _links(4, 1, 'Round trips', 'ms', 1.0, 1.0, '1',
           'The paper: median 0.3 ms, 20 % above 1 ms; over 30 rounds 80 % of '
           'the links see congestion.', 2),
    _hosts(5, 1, 'Mean round trip', 'ms', 'As in the paper congestion is no '
           'instance\'s own.'))
