# SPDX-License-Identifier: Apache-2.0

"""Choreo section 6: applications at once and in sequence; section 5: greedy
against optimal.

The HP Cloud traces are not public; applications are drawn instead: 4 to 8
tasks, each sending to 1 to 3 others, sizes log-normal (median 0.5 GB, sigma
1.5), 0.5 to 4 cores per task on machines of 4 cores. The network is a hose
per machine as on EC2: most near 1 Gbit/s, one in five between 0.3 and 0.9.
Transfers share it as TCP does.
"""

from collections.abc import Callable
from collections.abc import Sequence
import functools
import math

import numpy as np

from virtco.model import cluster
from virtco.model import coflow as coflow_model
from virtco_lab.sim import cloud
from virtco_lab.sim import groups
from virtco_lab.sim import joint_optimum
from virtco_lab.sim import schemes
from virtco_lab.sim.figures import outcome
from virtco_lab.sim.figures import samples

N_MACHINES = 10
CORES = 4.0
TRIALS_PER_SEED = 5
PLANNERS = {'choreo': 'Choreo', 'random': 'Random',
            'round-robin': 'Round-robin', 'min-machines': 'Minimum Machines',
            'virtco': 'virtco'}
#: Range of the means and of the medians over the three opponents, percent.
PAPER = {'a': '8 to 14 / 7 to 15', 'b': '22 to 43 / 19 to 51'}
PAPER_MEDIANS = {'a': (7.0, 15.0), 'b': (19.0, 51.0)}
#: How far the median is above the optimum, percent.
GREEDY_PAPER = 13.0
GREEDY_TRIALS_PER_SEED = 14


def machines(rng: np.random.Generator, count: int = N_MACHINES
             ) -> tuple[cluster.Host, ...]:
    """Draw machines with rates of 0.3 to 1 Gbit/s, a fifth of them slow."""
    slow = rng.uniform(size=count) < 0.2
    rates = np.where(slow, rng.uniform(0.3e9, 0.9e9, count),
                     rng.uniform(0.9e9, 1.0e9, count))
    return tuple(cluster.Host(f'm{i}', (CORES,), float(rate), float(rate))
                 for i, rate in enumerate(rates))


def application(rng: np.random.Generator, name: str, tasks: int | None = None
                ) -> groups.Group:
    """Draw an application of 4 to 8 tasks that send to 1 to 3 others each."""
    count = int(rng.integers(4, 9)) if tasks is None else tasks
    rows = []
    for src in range(count):
        others = [task for task in range(count) if task != src]
        for dst in rng.choice(others, int(rng.integers(1, 4)),
                              replace=False):
            rows.append((src, int(dst),
                         float(rng.lognormal(np.log(0.5e9), 1.5))))
    demands = tuple((float(cores),) for cores in rng.choice(
        [0.5, 1.0, 2.0, 4.0], count, p=[0.35, 0.35, 0.2, 0.1]))
    return groups.Group(name, demands, (
        coflow_model.Coflow.from_flows(name, count, rows),))


def combined(several: Sequence[groups.Group]) -> groups.Group:
    """Combine the VMs and flows of applications into one (section 6.2)."""
    rows: list[tuple[int, int, float]] = []
    demands: list[tuple[float, ...]] = []
    for group in several:
        first = len(demands)
        rows += [(flow.src + first, flow.dst + first, flow.size_bytes)
                 for flow in group.coflows[0].flows]
        demands.extend(group.vm_demands)
    return groups.Group('all', tuple(demands), (
        coflow_model.Coflow.from_flows('all', len(demands), rows),))


def _at_once(rng: np.random.Generator) -> list[groups.Group]:
    """Draw one to three simultaneous applications, combined into one."""
    count = int(rng.integers(1, 4))
    return [combined([application(rng, str(i)) for i in range(count)])]


def _in_sequence(rng: np.random.Generator) -> list[groups.Group]:
    """Draw two to four applications in sequence, overlapping in time."""
    arrivals = np.cumsum(rng.exponential(10.0, int(rng.integers(2, 5))))
    several = [application(rng, str(i)) for i in range(len(arrivals))]
    return [groups.Group(group.name, group.vm_demands, group.coflows,
                         float(arrival_s))
            for group, arrival_s in zip(several, arrivals)]


def _figure10_run(draw: Callable[[np.random.Generator], list[groups.Group]],
                  setting: str, seed: int) -> samples.Found:
    times: dict[str, list[float]] = {planner: [] for planner in PLANNERS}
    for trial in range(TRIALS_PER_SEED):
        rng = np.random.default_rng([seed, trial, 8])
        hosts, its_groups = machines(rng), draw(rng)
        for planner in PLANNERS:
            result = cloud.simulate(
                hosts, its_groups,
                schemes.Scheme(planner, planner, planner, 'fair'),
                seed=seed * TRIALS_PER_SEED + trial)
            # Several in sequence: the sum of their running times.
            times[planner].append(sum(row.cct_s for row in result.coflows))
    return times


def _saved(ours_s: float, theirs_s: float) -> float:
    """Compute the part of their time that is saved, in percent."""
    if theirs_s > 0:
        return outcome.reduction(ours_s, theirs_s)
    return 0.0 if ours_s == 0 else -100.0


def _figure10(part: str, found: samples.Samples) -> samples.Shown:
    what, = found.settings
    saved = {label: np.array(list(map(
        _saved, found.of(what, 'choreo'), found.of(what, planner))))
        for planner, label in PLANNERS.items() if planner != 'choreo'}
    return (('Choreo against', 'mean % saved', 'median %', 'better in %',
             'worse in %', 'paper mean / median %'),
            [(label, outcome.shown(its.tolist()), float(np.median(its)),
              100 * float((its > 0).mean()), 100 * float((its < 0).mean()),
              PAPER[part] if label != 'virtco' else None)
             for label, its in saved.items()],
            [outcome.Panel('cdf', what, 'relative speed-up of Choreo, %',
                           'share of the trials', tuple(
                               outcome.Series(label, (), tuple(np.clip(
                                   its, -100, 100).tolist()))
                               for label, its in saved.items()), bands=(
                           outcome.Band('paper, medians',
                                        *PAPER_MEDIANS[part]),))])


def _n_trials(found: samples.Samples) -> str:
    trials = found.of(found.settings[0], 'choreo')
    return (f'{len(trials)} trials; below -100 is drawn as -100. The row '
            'virtco shows how far Choreo stays behind this project\'s '
            'planner.')


def _greedy_run(setting: str, seed: int) -> samples.Found:
    """Compare greedy with the optimum over every placement (section 5)."""
    found: dict[str, list[float]] = {'choreo': [], 'virtco': [],
                                     'optimum': []}
    for trial in range(GREEDY_TRIALS_PER_SEED):
        rng = np.random.default_rng([seed, trial, 9])
        hosts = machines(rng, 5)
        group = application(rng, 'x', int(rng.integers(5, 8)))
        best_s = _optimum_s(hosts, group)
        if best_s is None:
            continue
        found['optimum'].append(best_s)
        for planner in ('choreo', 'virtco'):
            found[planner].append(cloud.simulate(
                hosts, [group],
                schemes.Scheme(planner, planner, planner, 'mrtf'),
                seed=seed).coflows[0].alone_s)
    return found


def _ratio(value_s: float, best_s: float) -> float:
    if best_s > 0:
        return value_s / best_s
    return 1.0 if value_s == 0 else math.inf


def over_optimum(found: samples.Samples, planner: str) -> np.ndarray:
    """Return a planner's times over the optimum, shape (n_applications,)."""
    setting, = found.settings
    return np.array(list(map(_ratio, found.of(setting, planner),
                             found.of(setting, 'optimum'))))


def above(ratios: np.ndarray, share: float) -> float:
    """Return how far a share of the times is above the optimum, in percent."""
    return 100 * (float(np.quantile(ratios, share)) - 1)


def _greedy(found: samples.Samples) -> samples.Shown:
    ratios = {label: over_optimum(found, planner) for planner, label in (
        ('choreo', 'Choreo greedy'), ('virtco', 'virtco'))}
    series = [outcome.Series(label, (), tuple(np.minimum(10.0, its).tolist()))
              for label, its in ratios.items()]
    return (('planner', 'median above optimum %', '90 % above %',
             'at the optimum %', 'paper median %'),
            [(label, above(its, 0.5), above(its, 0.9),
              100 * float((its < 1 + 1e-9).mean()), paper)
             for (label, its), paper in zip(ratios.items(),
                                            (GREEDY_PAPER, None))],
            [outcome.Panel('cdf', 'Completion time over the optimum', 'ratio',
                           'share', (*series, outcome.Series(
                               'paper, median', (1 + GREEDY_PAPER / 100,),
                               (0.5,), paper=True)))])


def _n_applications(found: samples.Samples) -> str:
    return (f'{len(found.of(found.settings[0], "optimum"))} applications of 5 '
            'to 7 tasks on 5 machines that fit at all; the optimum by trying '
            'every placement. Ratios above 10 are drawn as 10.')


def _optimum_s(hosts: Sequence[cluster.Host], group: groups.Group
               ) -> float | None:
    """Find the smallest t of VirtCO Eq. (3) over all placements that fit."""
    coflow, = group.coflows
    egress_bps, ingress_bps, cores = np.array([
        (host.egress_bps, host.ingress_bps, *host.free) for host in hosts]).T
    between = joint_optimum.bytes_between(coflow)
    busy_s = joint_optimum.choices(
        joint_optimum.Problem([between], egress_bps, ingress_bps, cores),
        between, np.ravel(group.vm_demands)).busy_s
    return float(busy_s.max(1).min()) if len(busy_s) else None


FIGURES = (
    *(samples.Figure(
        f'choreo-fig10{part}', f'Choreo Fig. 10 ({part}): {what}', (what,),
        functools.partial(_figure10_run, draw),
        functools.partial(_figure10, part),
        (' '.join((__doc__ or '').split('\n\n')[1].split()), _n_trials))
        for part, what, draw in (
            ('a', 'all applications at once', _at_once),
            ('b', 'sequences of applications', _in_sequence))),
    samples.Figure(
        'choreo-greedy', 'Greedy against optimal (Choreo section 5)',
        ('applications',), _greedy_run, _greedy, (_n_applications,)))
