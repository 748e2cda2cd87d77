# SPDX-License-Identifier: Apache-2.0

"""Policies of scheduling beside each other on one trace."""

from collections.abc import Mapping

import numpy as np

from virtco_lab.sim import replay
from virtco_lab.sim.figures import outcome

_FRACTIONS = {'p50 s': 0.5, 'p95 s': 0.95, 'p99 s': 0.99}


def outcome_of(found: Mapping[str, replay.Replay], bound_s: float
               ) -> outcome.Outcome:
    """Tabulate and draw the CCTs of replays of one trace, by policy.

    :param bound_s: mean CCT that no schedule goes below.
    """
    best_first = sorted(found, key=lambda name: _mean_s(found[name].cct_s))
    nothing: list[outcome.Cell] = [None] * len(_FRACTIONS)
    return outcome.Outcome(
        'compare', 'Policies on one trace',
        ('policy', 'mean s', 'above bound', *_FRACTIONS),
        (*((name, *_cells(found[name].cct_s, bound_s))
           for name in best_first),
         ('bound of any schedule', bound_s, None, *nothing)),
        (outcome.Panel(
            'log cdf', 'Coflow completion times', 'CCT s', 'share', tuple(
                outcome.Series(name, (), tuple(found[name].cct_s.tolist()))
                for name in best_first)),))


def _cells(cct_s: np.ndarray, bound_s: float) -> tuple[outcome.Cell, ...]:
    mean_s = _mean_s(cct_s)
    return (mean_s, f'{mean_s / bound_s - 1:+.1%}' if bound_s > 0 else None,
            *(replay.quantile(cct_s, part) if len(cct_s) else 0.0
              for part in _FRACTIONS.values()))


def _mean_s(cct_s: np.ndarray) -> float:
    return float(cct_s.mean()) if len(cct_s) else 0.0
