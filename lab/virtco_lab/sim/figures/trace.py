# SPDX-License-Identifier: Apache-2.0

"""Traces whose ports are given: policies against each other and a bound."""

import functools
import pathlib

from virtco_lab.sim import replay
from virtco_lab.sim import traces
from virtco_lab.sim import workloads
from virtco_lab.sim.figures import outcome
from virtco_lab.sim.figures import samples

RATE_BPS = 1e9
POLICIES = ('mrtf', 'mrtf+swap', 'sebf', 'fifo', 'fifo+', 'priority',
            'weighted-fair', 'fair', 'dark')
#: Lower bound on the mean CCT of any schedule.
BOUND = 'bound of any schedule'
ALONE = 'each alone'
#: Mean, median and 95th percentile of an independent prototype of ours that
#: follows the rules of CoflowSim, seconds.
PROTOTYPE: dict[str, tuple[float | None, float | None, float | None]] = {
    'mrtf': (22.2, 0.184, 40.0), 'mrtf+swap': (21.86, None, None),
    'sebf': (27.27, 0.160, 37.53), 'dark': (45.08, 0.184, 56.48),
    ALONE: (14.72, 0.160, 37.51)}
#: Size of the synthetic trace, a fifth of the published one's coflows.
N_PORTS, N_COFLOWS, DURATION_S = 60, 105, 720.0


@functools.lru_cache(maxsize=2)
def _published(path: pathlib.Path) -> traces.Trace:
    return traces.read(path)


def _run(setting: str, seed: int, path: pathlib.Path | None = None
         ) -> samples.Found:
    if path is None:
        trace = workloads.facebook_like(
            seed=seed, n_ports=N_PORTS, n_coflows=N_COFLOWS,
            duration_s=DURATION_S)
    else:
        trace = _published(path)
    if setting == BOUND:
        return {'mean_s': replay.least_mean_cct_s(trace, RATE_BPS)}
    policy = 'mrtf' if setting == ALONE else setting
    found = replay.replay(trace, RATE_BPS, replay.config_of(policy))
    return replay.summary(found.alone_s if setting == ALONE else found.cct_s)


def _show(synthetic: bool, found: samples.Samples) -> outcome.Outcome:
    bound_s = (found.mean(BOUND, 'mean_s')
               if BOUND in found.settings else None)
    rows: list[tuple[outcome.Cell, ...]] = []
    for setting in found.settings:
        cells: list[outcome.Cell] = [
            outcome.shown(found.of(setting, key)) if synthetic
            else found.of(setting, key)[0]
            for key in found.values[setting]]
        cells += [None] * (3 - len(cells))
        mean_s = found.mean(setting, 'mean_s')
        cells.append(None if bound_s is None or setting == ALONE else
                     round(100 * (mean_s / bound_s - 1), 1))
        if not synthetic:
            cells += PROTOTYPE.get(setting, (None, None, None))
            cells.append(round(found.cpu_s[setting], 1))
        rows.append((setting, *cells))
    means = tuple(found.mean(setting, 'mean_s')
                  for setting in found.settings)
    series = [outcome.Series('mean CCT', found.settings, means)]
    if not synthetic:
        series.append(outcome.Series(
            'prototype', found.settings, tuple(
                PROTOTYPE.get(setting, (None,))[0]
                for setting in found.settings), paper=True))
    columns: tuple[str, ...] = ('policy', 'mean s', 'median s', 'p95 s',
                                'above the bound %')
    if not synthetic:
        columns += ('prototype mean s', 'median s', 'p95 s', 'CPU s')
    return outcome.Outcome(
        'facebook-like' if synthetic else 'facebook-trace',
        'Synthetic traces like Facebook\'s' if synthetic
        else 'Facebook trace, FB2010-1Hr-150-0', columns, tuple(rows),
        (outcome.Panel('bars', 'Mean CCT', 'policy', 's', tuple(series)),),
        ('Ports of 1 Gbit/s. sebf and dark as published: rates anew only when '
         'a coflow starts, ends or changes its queue. No schedule at all has '
         'a mean CCT below the bound.', *([
             f'{N_COFLOWS} coflows on {N_PORTS} ports within '
             f'{DURATION_S:g} s.'] if synthetic else [])))


FIGURES = tuple(samples.Figure(
    name, (*POLICIES, ALONE, BOUND),
    _run, functools.partial(_show, synthetic),
    () if synthetic else ('trace',), seeded=synthetic,
    short=('mrtf', 'fair', BOUND))
    for name, synthetic in (('facebook-trace', False),
                            ('facebook-like', True)))
