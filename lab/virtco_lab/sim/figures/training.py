# SPDX-License-Identifier: Apache-2.0

"""Training jobs: two and more on a link, a cluster of them, mixed with others.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import functools
import itertools
import pathlib

import numpy as np

from virtco.scheduling import fabric as fabric_model
from virtco.scheduling.periodic import job_bounds as bounds
from virtco.topology import formats
from virtco.topology import tree
from virtco_lab.sim import training
from virtco_lab.sim import training_bounds
from virtco_lab.sim import training_jobs
from virtco_lab.sim.figures import outcome
from virtco_lab.sim.figures import samples

#: Models and tokens of the jobs that share one link.
ON_A_LINK = {
    '2 × gpt-7b': (('gpt-7b', 2048),) * 2,
    '2 × gpt-13b': (('gpt-13b', 4096),) * 2,
    '2 × mixtral-8x7b': (('mixtral-8x7b', 4096),) * 2,
    'gpt-7b, gpt-13b': (('gpt-7b', 2048), ('gpt-13b', 4096)),
    '3 × gpt-7b': (('gpt-7b', 4096),) * 3,
    '6 × gpt-7b': (('gpt-7b', 10240),) * 6}
PAIR_SCHEMES = ('fair', 'mrtf', 'order')
CLUSTER_SCHEMES = ('mrtf', 'order', 'order, guarded')
CLUSTER_ROWS = (*CLUSTER_SCHEMES, 'bound', 'bound, no stragglers',
                *(f'{name}, placed' for name in (*CLUSTER_SCHEMES, 'bound')))
MIXED_SCHEMES = ('mrtf', 'training first', 'order')
#: Length of a run, in longest periods, of which a quarter warms up in a
#: cluster and half on one link. Iterations are cut off by the ends of the
#: counted time; on a link that must not bring a mean below its bound.
PERIODS, PAIR_PERIODS = 100, 1000
#: Slowdown of a straggler, over the least that the slowest job can have.
STRAGGLES = 1.05
#: Oversubscription of the racks' uplinks in the cluster …
OVERSUBSCRIPTION = {'4:1': 4.0, '8:1': 8.0, '16:1': 16.0}
#: … where training runs together with other coflows.
MIXED_OVERSUBSCRIPTION = 8.0
#: Ordinary coflows per second, their bytes' median and spread (log-normal).
ORDINARY_PER_S = 2.0
ORDINARY_BYTES = 2e9
ORDINARY_SIGMA = 1.5


def _pair_run(setting: str, seed: int) -> samples.Found:
    named = ON_A_LINK[setting]
    n = len(named)
    uplink = tree.Uplink(training_jobs.HOST_BPS, training_jobs.HOST_BPS)
    at = training_jobs.site(tree.Topology((tree.Plane(roots=tuple(
        tree.Node(f'rack{rack}', tuple(
            f'host{rack}-{i}' for i in range(n)), uplink=uplink)
        for rack in range(2))),)))
    jobs = [training_jobs.job(str(i), _model(*one), [i, n + i])
            for i, one in enumerate(named)]
    periodic = at.cluster.periodic(jobs)
    horizon_s = PAIR_PERIODS * max(job.period_s for job in periodic)
    found: dict[str, float] = {
        'bound': training_bounds.least_mean_iteration_s(periodic),
        'bound of GPUs': training_bounds.most_utilisation(periodic)}
    for scheme in PAIR_SCHEMES:
        result = at.cluster.run(jobs, scheme, horizon_s, horizon_s / 2)
        found[scheme] = float(np.mean([
            times.mean() for times in result.iteration_s]))
        found[f'{scheme}, GPUs'] = result.utilisation
        found[f'{scheme}, p95'] = float(np.percentile(
            np.concatenate(result.iteration_s), 95))
    return found


def _model(name: str, tokens: int) -> training_jobs.Model:
    """Return a model with another number of tokens per iteration.

    The bytes that experts exchange grow with it, those of gradients do not.
    """
    model = training_jobs.MODELS[name]
    return dataclasses.replace(model, tokens=tokens, sends=tuple(
        (kind, size_bytes * tokens / model.tokens
         if kind == 'all_to_all' else size_bytes)
        for kind, size_bytes in model.sends))


@functools.lru_cache
def _site(path: pathlib.Path | None, oversubscription: float
          ) -> training_jobs.Site:
    """Read the cluster of a file, or build the small one."""
    topology = training_jobs.small() if path is None else formats.read(
        path.read_text(encoding='utf-8'), str(path)).topology
    return training_jobs.site(topology, oversubscription=oversubscription)


def _cluster_run(setting: str, seed: int, topology: pathlib.Path | None,
                 kinds: Sequence[training_jobs.Kind]) -> samples.Found:
    at = _site(topology, OVERSUBSCRIPTION[setting])
    jobs = training_jobs.mix(at, np.random.default_rng(seed),
                             kinds=kinds)
    found: dict[str, float] = {'jobs': len(jobs)}
    _serve(at, jobs, CLUSTER_SCHEMES, '', found)
    _serve(at, training_jobs.placed(at, jobs), CLUSTER_SCHEMES, ', placed',
           found)
    return found


def _serve(at: training_jobs.Site, jobs: list[training.Job],
           schemes: tuple[str, ...], where: str, found: dict[str, float]
           ) -> None:
    """Write the results of jobs at their places under each scheme."""
    periodic = at.cluster.periodic(jobs)
    period_s = np.array([job.period_s for job in periodic])
    horizon_s = PERIODS * float(period_s.max())
    least = bounds.least_worst_slowdown(periodic)
    found[f'bound{where}, GPUs'] = training_bounds.most_utilisation(periodic)
    found[f'bound, no stragglers{where}, GPUs'] = (
        training_bounds.most_utilisation(periodic, STRAGGLES * least))
    for scheme in schemes:
        result = at.cluster.run(jobs, scheme, horizon_s, horizon_s / 4)
        slowdown = result.mean_s / period_s
        name = scheme + where
        found[f'{name}, GPUs'] = result.utilisation
        found[f'{name}, stragglers'] = float(
            (slowdown > STRAGGLES * least).mean())
        # A job that computes nothing counts as one iteration of all the time.
        found[f'{name}, slowdown'] = float(np.median(
            np.minimum(slowdown, horizon_s / period_s)))
        found[f'{name}, slowest'] = least / float(slowdown.max())


def _cluster(found: samples.Samples) -> samples.Shown:
    rows: list[tuple[outcome.Cell, ...]] = []
    for setting, scheme in itertools.product(found.settings, CLUSTER_ROWS):
        gpus, mrtf = (100 * np.array(found.of(setting, f'{one}, GPUs'))
                      for one in (scheme, 'mrtf'))
        row = (setting, scheme, outcome.shown(gpus.tolist()),
               outcome.shown((gpus - mrtf).tolist()))
        rows.append((*row, None, None, None) if scheme.startswith('bound')
                    else (*row, *(found.value(setting, cell) for cell in (
                        samples.shown(f'{scheme}, slowdown'),
                        _percent(f'{scheme}, stragglers'),
                        samples.shown(f'{scheme}, slowest', 100)))))
    return (('uplinks', 'scheme', 'GPUs %', 'above MRTF, points',
             'median slowdown', 'jobs that straggle %',
             'slowest job, % of its bound'), rows, [samples.bars(
                 'GPUs that compute', 'uplinks', '%', {
                     scheme: _percent(f'{scheme}, GPUs')
                     for scheme in CLUSTER_ROWS})(found)])


def _ordinary(at: training_jobs.Site, rng: np.random.Generator,
              until_s: float) -> list[training.Ordinary]:
    """Draw shuffles between a few hosts each, arriving at random."""
    n_hosts = len(at.cluster.cap_bps) // 2
    found, now_s = [], 0.0
    while (now_s := now_s + float(rng.exponential(1 / ORDINARY_PER_S))
           ) < until_s:
        hosts = rng.choice(n_hosts, 4, replace=False)
        size_bytes = rng.lognormal(np.log(ORDINARY_BYTES), ORDINARY_SIGMA, 4)
        found.append(training.Ordinary(now_s, fabric_model.Demand(
            np.repeat(hosts[:2], 2), np.tile(hosts[2:], 2), 8 * size_bytes,
            np.ones(4))))
    return found


def _mixed_run(setting: str, seed: int, topology: pathlib.Path | None,
               kinds: Sequence[training_jobs.Kind]) -> samples.Found:
    at = _site(topology, MIXED_OVERSUBSCRIPTION)
    rng = np.random.default_rng(seed)
    jobs = [job for job in training_jobs.mix(at, rng, 0.7, kinds)
            if kinds or 'llama' not in job.name]
    horizon_s = 10 * max(job.period_s for job in at.cluster.periodic(jobs))
    ordinary = _ordinary(at, rng, 0.9 * horizon_s)
    result = at.cluster.run(jobs, setting, horizon_s, horizon_s / 4,
                            ordinary)
    return {'GPUs': result.utilisation,
            'mean CCT': float(result.cct_s.mean()),
            'median CCT': float(np.median(result.cct_s)),
            'p95 CCT': float(np.percentile(result.cct_s, 95)),
            'ended': len(result.cct_s) / len(ordinary)}


def _mixed_panel(found: samples.Samples) -> outcome.Panel:
    return outcome.Panel('bars', 'Both goals', 'goal', '% and s', tuple(
        outcome.Series(scheme, ('GPUs %', 'mean CCT s'), (
            100 * found.mean(scheme, 'GPUs'), found.mean(scheme, 'mean CCT')))
        for scheme in found.settings))


def _percent(series: str) -> samples.Cell:
    return lambda found, setting: 100 * found.mean(setting, series)


def above_mrtf(scheme: str) -> Callable[[samples.Samples, str], float]:
    """Return the cell of the GPUs that compute beyond MRTF's, in points."""
    return lambda found, setting: 100 * (
        found.mean(setting, f'{scheme}, GPUs')
        - found.mean(setting, 'mrtf, GPUs'))


def ratio(series: str, other: str) -> Callable[[samples.Samples, str], float]:
    """Return the cell of a series' mean over that of another one."""
    return lambda found, setting: found.mean(setting, series) / found.mean(
        setting, other)


FIGURES = (
    samples.Figure(
        'training-pair', 'Training jobs that share one link',
        tuple(ON_A_LINK), _pair_run, samples.by_setting('jobs', (
            *((f'{scheme} s', scheme) for scheme in (*PAIR_SCHEMES, 'bound')),
            ('fair / order', ratio('fair', 'order')),
            ('fair / bound', ratio('fair', 'bound')),
            ('GPUs, fair %', _percent('fair, GPUs')),
            ('GPUs, order %', _percent('order, GPUs')),
            # Equal iterations differ by rounding.
            ('p95 above the mean %', lambda *at: round(100 * (
                ratio('order, p95', 'order')(*at) - 1), 6))), samples.bars(
                    'Mean iteration', 'jobs', 's', {
                        name: name for name in (*PAIR_SCHEMES, 'bound')})),
        ('All jobs start at once, with two hosts each, on two sides of a link '
         'of 200 Gbit/s. Nothing here is random.',
         'Two jobs cannot gain more than a factor of 1.5 over work-conserving '
         'fair sharing: it delays a job by no more than the other sends, an '
         'iteration by 1 + b / P each, and the shares b / P of two jobs that '
         'fit on the link add up to 1. The factor of n jobs is below '
         '2 - 1 / n.'), seeded=False,
        short=('2 × gpt-7b', 'gpt-7b, gpt-13b')),
    samples.Figure(
        'training-cluster', 'GPUs of a cluster that compute',
        tuple(OVERSUBSCRIPTION), _cluster_run, _cluster,
        ('88 hosts with 8 GPUs and 200 Gbit/s in 12 unequal racks, or the '
         'cluster of --topology; 90 % in use, models by chance, or files of '
         '--workload. A job straggles that is slowed down by more than 5 % '
         'beyond what the slowest job must be, under any schedule; 100 % in '
         'the column of the slowest job is that bound, 95.2 % is 5 % beyond '
         'it, and 0 is a job that never computes.',
         'The bounds are of any schedule: of all, and of those without '
         'stragglers. *guarded* lets jobs go first that would fall behind '
         'what the slowest job must be.',
         'Jobs stand as on a cluster where others have come and gone: half of '
         'the hosts of each below one switch. *placed* is where virtco\'s '
         'planner puts the same jobs, one after another, on the empty '
         'cluster.'), ('topology', 'kinds'), short=('8:1',)),
    samples.Figure(
        'training-mixed', 'Training jobs beside other coflows', MIXED_SCHEMES,
        _mixed_run, samples.by_setting('scheme', (
            ('GPUs %', samples.shown('GPUs', 100)),
            ('mean CCT s', samples.shown('mean CCT')),
            ('median s', samples.shown('median CCT')),
            ('p95 s', samples.shown('p95 CCT')),
            ('ended %', _percent('ended'))), _mixed_panel),
        ('The cluster without the largest model, 70 % in use, and two '
         'shuffles a second of 2 by 2 hosts, 2 GB per flow at the median. '
         'CCTs are those of the shuffles that ended.',
         '*order* serves jobs among themselves by intensity, '
         'shuffles among themselves by MRTF, and of the two that lead the one '
         'with less left.'), ('topology', 'kinds'), short=('mrtf', 'order')))
