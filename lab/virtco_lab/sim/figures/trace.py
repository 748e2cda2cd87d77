# SPDX-License-Identifier: Apache-2.0

"""Traces whose ports are given: policies against each other and a bound."""

import functools
import pathlib

from virtco.scheduling import policies
from virtco_lab.sim import replay
from virtco_lab.sim import simulation
from virtco_lab.sim import traces
from virtco_lab.sim import workloads
from virtco_lab.sim.figures import outcome
from virtco_lab.sim.figures import samples

RATE_BPS = 1e9
POLICIES = ('mrtf', 'mrtf+swap', 'sebf', 'fifo', 'fifo+', 'priority',
            'weighted-fair', 'fair', 'dark')
#: Policy, the ends at which rates are computed again, back-fill, and whether
#: MADD comes before it where the policy has it otherwise.
RULES = ('mrtf, flows, greedy', 'mrtf, coflows, greedy',
         'mrtf, coflows, max-min', 'sebf, flows, greedy',
         'sebf, coflows, max-min', 'dark, flows, greedy',
         'dark, coflows, greedy', 'sincronia, flows, greedy',
         'sincronia, flows, greedy, MADD', 'mrtf, flows, greedy, no MADD',
         'mrtf, flows, in-order', 'mrtf, flows, in-order, no MADD',
         'mrtf+swap, flows, in-order, no MADD')
_MADD = {'MADD': policies.SHARE_MADD, 'no MADD': policies.SHARE_GREEDY}
#: Lower bound on the mean CCT of any schedule.
BOUND = 'bound of any schedule'
ALONE = 'each alone'
#: Mean, median and 95th percentile of an independent prototype of ours that
#: follows the rules of CoflowSim, seconds.
PROTOTYPE = {
    'prototype mean s': {'mrtf': 22.2, 'mrtf+swap': 21.86, 'sebf': 27.27,
                         'dark': 45.08, ALONE: 14.72},
    'median s': {'mrtf': 0.184, 'sebf': 0.160, 'dark': 0.184, ALONE: 0.160},
    'p95 s': {'mrtf': 40.0, 'sebf': 37.53, 'dark': 56.48, ALONE: 37.51}}
#: Size of the synthetic trace, a fifth of the published one's coflows.
N_PORTS, N_COFLOWS, DURATION_S = 60, 105, 720.0


_published = functools.lru_cache(maxsize=2)(traces.read)


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


def _rules_run(setting: str, seed: int, path: pathlib.Path) -> samples.Found:
    name, ends, backfill, *madd = setting.split(', ')
    policy = simulation.POLICIES[name]
    if madd:
        policy = policy._replace(sharing=_MADD[madd[0]])
    return replay.summary(replay.replay(
        _published(path), RATE_BPS, simulation.Config(
            policy, backfill, each_flow=ends == 'flows')).cct_s)


def _above_bound(found: samples.Samples, setting: str) -> float | None:
    if setting == ALONE or BOUND not in found.settings:
        return None
    return round(100 * (found.mean(setting, 'mean_s')
                        / found.mean(BOUND, 'mean_s') - 1), 1)


def _cell(series: str, seeded: bool) -> samples.Cell:
    """Return the cell of a series, empty where a bound has no such number."""
    def cell(found: samples.Samples, setting: str) -> outcome.Cell:
        if series not in found.values[setting]:
            return None
        return (samples.shown(series)(found, setting) if seeded
                else found.mean(setting, series))
    return cell


def _columns(seeded: bool) -> list[tuple[str, samples.Cell]]:
    return [(f'{name} s', _cell(f'{name}_s', seeded))
            for name in ('mean', 'median', 'p95')] + [
        ('above the bound %', _above_bound)]


_SETTINGS = (*POLICIES, ALONE, BOUND)
_SHORT = ('mrtf', 'fair', BOUND)
_MEANS = {'mean CCT': 'mean_s'}
_NOTE = (
    'Ports of 1 Gbit/s. sebf and dark as published: rates anew only when '
    'a coflow starts, ends or changes its queue. No schedule at all has '
    'a mean CCT below the bound.')

FIGURES = (
    samples.Figure(
        'facebook-trace', 'Facebook trace, FB2010-1Hr-150-0', _SETTINGS, _run,
        samples.by_setting('policy', (
            *_columns(False), *PROTOTYPE.items(),
            ('CPU s', lambda found, at: round(found.cpu_s[at], 1))),
            samples.bars('Mean CCT', 'policy', 's', _MEANS,
                         {'prototype': PROTOTYPE['prototype mean s']})),
        (_NOTE,), ('trace',), seeded=False, short=_SHORT),
    samples.Figure(
        'facebook-rules', 'Facebook trace by rules of the rates', RULES,
        _rules_run, samples.by_setting(
            'rules', _columns(False)[:3],
            samples.bars('Mean CCT', 'rules', 's', _MEANS)),
        ('Ports of 1 Gbit/s. Rates anew at the end of each flow or only of a '
         'coflow, and the use of the bandwidth that an order leaves: of all, '
         'without MADD.',),
        ('trace',), seeded=False, short=RULES[1:3]),
    samples.Figure(
        'facebook-like', 'Synthetic traces like Facebook\'s', _SETTINGS, _run,
        samples.by_setting('policy', _columns(True), samples.bars(
            'Mean CCT', 'policy', 's', _MEANS)),
        (_NOTE, f'{N_COFLOWS} coflows on {N_PORTS} ports within '
         f'{DURATION_S:g} s.'), short=_SHORT))
