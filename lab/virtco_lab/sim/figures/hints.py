# SPDX-License-Identifier: Apache-2.0

"""The cost of wrong hints, and the gain of lying.

30 coflows of 1 to 4 senders and as many receivers arrive on ten hosts of
1 Gbit/s, one every two seconds on average. Their sizes are log-normal (median
0.5 GB, sigma 1.5); all of them need six tenths of what the links can carry.
Each coflow is a project of its own, so that none pays for another one.
"""

from collections.abc import Callable
import dataclasses
from typing import Any

import numpy as np

from virtco.model import live
from virtco_lab.sim import claims
from virtco_lab.sim.figures import outcome
from virtco_lab.sim.figures import samples

N_HOSTS = 10
N_COFLOWS = 30
LINK_BPS = 1e9
GAP_S = 2.0
LATE_S = 5.0
PORTS = live.Ports(tuple(f'h{i}' for i in range(N_HOSTS)),
                   *np.full((2, N_HOSTS), LINK_BPS))

Spoil = Callable[[np.random.Generator, claims.Claim], claims.Claim]


def _times(row: claims.Claim, factor: float) -> claims.Claim:
    return dataclasses.replace(row, claimed_bytes=row.size_bytes * factor)


SPOILS: dict[str, Spoil] = {
    'exact': lambda rng, row: row,
    '10 % wrong': lambda rng, row: _times(row, rng.uniform(0.9, 1.1)),
    '50 % wrong': lambda rng, row: _times(row, rng.uniform(0.5, 1.5)),
    'half of the truth': lambda rng, row: _times(row, 0.5),
    'twice the truth': lambda rng, row: _times(row, 2.0),
    f'{LATE_S:g} s late': lambda rng, row: dataclasses.replace(
        row, hint_delay_s=LATE_S),
    'half of them missing': lambda rng, row: _times(
        row, float(rng.integers(0, 2))),
    'all missing': lambda rng, row: _times(row, 0.0)}
#: Settings of policing, by name.
TAKEN: dict[str, dict[str, Any]] = {
    'policed, beta 0.1': {'beta': 0.1}, 'policed, beta 0.5': {'beta': 0.5},
    'not policed': {'beta': 0.1, 'policed': False}}
#: Bytes that the liar claims, as a multiple of the truth.
FACTORS = (0.1, 0.3, 0.6, 0.9, 1.0, 1.5, 3.0)
#: Series, by whether they are the liar's and whether he is policed.
LIARS = {(True, True): 'his CCT, policed',
         (True, False): 'his CCT, not policed',
         (False, True): 'mean of the others, policed',
         (False, False): 'mean of the others, not policed'}


def workload(seed: int) -> list[claims.Claim]:
    """Draw coflows with exact hints."""
    rng = np.random.default_rng([seed, 12])
    arrivals_s = np.cumsum(rng.exponential(GAP_S, N_COFLOWS))
    rows = []
    for i, arrival_s in enumerate(arrivals_s):
        n_src, n_dst = rng.integers(1, 5, 2)
        hosts = rng.choice(N_HOSTS, n_src + n_dst, replace=False)
        size_bytes = float(rng.lognormal(np.log(0.5e9), 1.5))
        shares = rng.dirichlet(np.ones(n_src * n_dst))
        flows = live.Flows(live.Pairs(
            (f'h{src}', f'h{dst}') for src in hosts[:n_src]
            for dst in hosts[n_src:]), size_bytes * shares)
        rows.append(claims.Claim(f'c{i}', f'c{i}', float(arrival_s), flows,
                                 size_bytes))
    return rows


def _hints_run(setting: str, seed: int, context: samples.Context
               ) -> samples.Found:
    """Compute mean CCTs when all hints are wrong in the same way."""
    rng = np.random.default_rng([seed, 13])
    exact = workload(seed)
    rows = [SPOILS[setting](rng, row) for row in exact]
    found = {label: _mean_s(claims.simulate(rows, PORTS, **options))
             for label, options in TAKEN.items()}
    if setting == 'exact':
        found['fair'] = _mean_s(claims.simulate(exact, PORTS, policy='fair'))
    return found


def _hints_show(found: samples.Samples, context: samples.Context
                ) -> outcome.Outcome:
    best_s = np.array(found.of('exact', 'not policed'))
    # Per seed against exact hints: seeds differ more than schemes do.
    ratios = {(setting, label): (np.array(found.of(setting, label)) / best_s
                                 ).tolist()
              for setting in found.settings for label in TAKEN}
    fair = (np.array(found.of('exact', 'fair')) / best_s).tolist()
    return outcome.Outcome(
        'wrong-hints', 'Mean CCT with wrong hints over that with exact ones',
        ('hints', *TAKEN), (
            *((setting, *(outcome.shown(ratios[setting, label])
                          for label in TAKEN)) for setting in found.settings),
            ('none: fair sharing', *[outcome.shown(fair)] * len(TAKEN))),
        (outcome.Panel('bars', 'Mean CCT over that with exact hints', 'hints',
                       'ratio', tuple(
                           _series(label, [ratios[setting, label]
                                           for setting in found.settings],
                                   found.settings) for label in TAKEN)),),
        (' '.join((__doc__ or '').split('\n\n')[1].split()),
         'Beta is both the overestimate and what policing forgives. Not in '
         'the papers, which police nobody.'))


def _liars_run(setting: str, seed: int, context: samples.Context
               ) -> samples.Found:
    """Simulate a tenant that lies about a coflow of ordinary size."""
    found = {}
    rows = workload(seed)
    # The liar's coflow is the sixth largest, with many to overtake.
    liar = sorted(rows, key=lambda row: row.size_bytes)[-6]
    rows[rows.index(liar)] = _times(liar, float(setting))
    for policed in (True, False):
        ccts_s = claims.simulate(rows, PORTS, policed=policed)
        found[LIARS[True, policed]] = ccts_s.pop(liar.coflow_id)
        found[LIARS[False, policed]] = _mean_s(ccts_s)
    return found


def _liars_show(found: samples.Samples, context: samples.Context
                ) -> outcome.Outcome:
    table = [[(np.array(found.of(setting, label))
               / np.array(found.of('1', label))).tolist()
              for label in LIARS.values()] for setting in found.settings]
    return outcome.Outcome(
        'liars', 'CCT when one tenant lies, over that when he does not',
        ('claim / truth', *LIARS.values()), tuple(
            (setting, *(outcome.shown(cell) for cell in cells))
            for setting, cells in zip(found.settings, table)),
        (outcome.Panel('lines', 'What a lie is worth', 'claim / truth',
                       'CCT over the honest one\'s', tuple(
                           _series(label, [cells[i] for cells in table],
                                   tuple(map(float, found.settings)))
                           for i, label in enumerate(LIARS.values()))),),
        ('The workload of wrong-hints; the liar\'s coflow is the sixth '
         'largest of 30. Beta is 0.1. Not in the papers.',))


def _mean_s(ccts_s: dict[str, float]) -> float:
    return float(np.mean(list(ccts_s.values())))


def _series(label: str, values: list[list[float]],
            x: tuple[outcome.Cell, ...]) -> outcome.Series:
    both = [outcome.spread(ratios) for ratios in values]
    return outcome.Series(label, x, tuple(mean for mean, _ in both),
                          tuple(deviation for _, deviation in both))


FIGURES = (
    samples.Figure('wrong-hints', tuple(SPOILS), _hints_run, _hints_show,
                   short=('exact', '50 % wrong')),
    samples.Figure('liars', tuple(f'{factor:g}' for factor in FACTORS),
                   _liars_run, _liars_show, short=('0.3', '1')))
