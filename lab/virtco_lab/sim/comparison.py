# SPDX-License-Identifier: Apache-2.0

"""Policies of scheduling beside each other on one trace."""

from collections.abc import Mapping

from virtco_lab.sim import replay
from virtco_lab.sim.figures import outcome

_FRACTIONS = {'p50 s': 0.5, 'p95 s': 0.95, 'p99 s': 0.99}


def outcome_of(found: Mapping[str, replay.Replay], bound_s: float
               ) -> outcome.Outcome:
    """Tabulate and draw the CCTs of replays of one trace, by policy.

    :param bound_s: mean CCT that no schedule goes below.
    """
    mean_s = {name: replay.summary(its.cct_s)['mean_s']
              for name, its in found.items()}
    best_first = sorted(found, key=lambda name: mean_s[name])
    nothing: list[outcome.Cell] = [None] * len(_FRACTIONS)
    return outcome.Outcome(
        'compare', 'Policies on one trace',
        ('policy', 'mean s', 'above bound', *_FRACTIONS),
        (*((name, mean_s[name], f'{mean_s[name] / bound_s - 1:+.1%}'
            if bound_s > 0 else None, *(
                replay.quantile(found[name].cct_s, part)
                for part in _FRACTIONS.values())) for name in best_first),
         ('bound of any schedule', bound_s, None, *nothing)),
        (outcome.Panel(
            'log cdf', 'Coflow completion times', 'CCT s', 'share', tuple(
                outcome.Series(name, (), tuple(found[name].cct_s.tolist()))
                for name in best_first)),))
