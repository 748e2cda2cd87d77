# SPDX-License-Identifier: Apache-2.0

"""VirtCO section 5: the datacentre, and test cases 1 to 3."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import time

import numpy as np

from virtco import units
from virtco.model import cluster
from virtco.model import coflow as coflow_model
from virtco_lab.sim import cloud
from virtco_lab.sim import groups
from virtco_lab.sim import optimum
from virtco_lab.sim import schemes
from virtco_lab.sim import workloads
from virtco_lab.sim.figures import outcome
from virtco_lab.sim.figures import samples

N_HOSTS = 18
SLOTS = 12
LINK_BPS = 1e9
BACKGROUND_VMS = 60
BACKGROUND_SHARE = BACKGROUND_VMS / (N_HOSTS * SLOTS)
LOADS = {'light': 0.5, 'heavy': 1.0}
#: Savings by setting, percent.
Papers = Mapping[str, float | None]
#: Savings of VirtCO over each opponent by the paper, percent.
CASE1_PAPER: dict[str, Papers] = {
    'PAGER': {'baseline': 58.3, 'sebf-ta': 16.7},
    'RECOMM': {'baseline': 60.0, 'sebf-ta': None}}
CASE2_PAPER = {(False, 'baseline'): 79.1, (False, 'sebf-ta-greedy'): 36.5,
               (True, 'sebf-ta-greedy'): 24.1}
#: The paper's Fig. 5a: four of five coflows are placed within, seconds.
CASE3_PAPER_S = 5.5
#: The schemes of section 5.1, then the honest opponent and the variants.
ALL = ('baseline', 'sebf-r', 'fs-ta', 'sebf-ta-greedy', 'sebf-ta',
       'virtco-printed', 'virtco-isolated', 'virtco', 'virtco-joint')
FEW = ('baseline', 'sebf-r', 'sebf-ta-greedy', 'sebf-ta', 'virtco-printed',
       'virtco')
AGAINST = ('baseline', 'sebf-ta-greedy', 'sebf-ta', 'virtco-printed')
#: Series of the lower bound on the mean CCT of any schedule: where virtco
#: placed the VMs, and with any placement.
BOUND, ANY_BOUND = 'bound', 'bound of any placement'
BOUNDS = {BOUND: 'bound where virtco placed',
          ANY_BOUND: 'bound of any placement'}
TA_NOTE = (
    'SEBF-TA (greedy) places the heaviest pairs together one by one, as the '
    'paper\'s Fig. 1 describes it; SEBF-TA (min-cut) minimises all bytes '
    'between hosts by clustering and annealing. The second is the honest '
    'opponent. All schemes but Baseline and FS-TA are re-rated at each flow '
    'end and back-filled.')
SAVED_NOTE = (
    'Mean of the seeds ± their standard deviation. Savings are of the means, '
    'with the 95 % interval of Student\'s t over the pairs of each seed.')
BOUND_NOTE = (
    'The bound is the least mean CCT of any schedule where virtco placed the '
    'VMs, by linear programming.')
#: Workloads of test case 2: the shape they are drawn with, and whether there
#: is background.
CASE2 = {f'{shape}{", background" if background else ""}': (shape, background)
         for shape in workloads.SHAPES for background in (False, True)}


def datacentre(seed: int, background: bool = False, n_hosts: int = N_HOSTS,
               slots: int = SLOTS, rate_bps: float = LINK_BPS,
               is_symmetric: bool = False) -> tuple[cluster.Host, ...]:
    """Build 18 hosts of 12 slots; the background takes slots and bandwidth.

    60 slots, or as large a share of more or fewer, go to background VMs at
    random and each port keeps 30 to 90 % of its rate: the traffic that the
    paper describes would exceed the fabric.

    :param is_symmetric: whether a host keeps the same rate both ways.
    """
    hosts = groups.equal_hosts(n_hosts, slots, rate_bps)
    if not background:
        return hosts
    rng = np.random.default_rng([seed, 5])
    n_taken = round(n_hosts * slots * BACKGROUND_SHARE)
    taken = np.bincount(rng.choice(n_hosts * slots, n_taken, replace=False
                                   ) // slots, minlength=n_hosts)
    left_bps = rate_bps * rng.uniform(
        0.3, 0.9, (n_hosts, 1 if is_symmetric else 2))
    return tuple(dataclasses.replace(
        host, free=(float(slots - taken[i]),), egress_bps=left_bps[i, 0],
        ingress_bps=left_bps[i, -1]) for i, host in enumerate(hosts))


def tight(hosts: Sequence[cluster.Host], seed: int, slots: float
          ) -> tuple[cluster.Host, ...]:
    """Return the hosts with about ``slots`` free slots left on all of them."""
    rng = np.random.default_rng([seed, 6])
    places = np.concatenate([[i] * int(host.free[0])
                             for i, host in enumerate(hosts)])
    kept = rng.choice(places, min(len(places), int(slots)), replace=False)
    free = np.bincount(kept, minlength=len(hosts))
    return tuple(dataclasses.replace(host, free=(float(free[i]),))
                 for i, host in enumerate(hosts))


#: Widths in VMs, lengths and skews in GB.
SWEPT: dict[str, tuple[float, ...]] = {
    'virtco-case4': (5, 10, 20, 40),
    'virtco-case5': (0.5, 1.0, 2.0, 4.0),
    'virtco-case6': (0.2, 0.5, 1.0, 2.0, 3.0)}


def swept_groups(case: str, value: float, load: float, seed: int,
                 shape: str) -> list[groups.Group]:
    """Generate the 20 groups of one value of a sweep.

    :param case: a key of :data:`SWEPT`.
    :param load: a value of :data:`LOADS`.
    :param shape: shape of the matrices; that of test case 6 is ``medium``.
    """
    sizes = swept_sizes(case, value, 20)
    # At a load of 1 they are as far apart as the fabric, without background,
    # would need for all bytes of one.
    apart_s = units.transfer_time_s(sizes[1], N_HOSTS * LINK_BPS) / load
    return [groups.of_slots(f'g{i}', [coflow], apart_s * i)
            for i, coflow in enumerate(swept_coflows(
                seed, shape if case != 'virtco-case6' else 'medium', sizes,
                20))]


def swept_sizes(case: str, value: float, width: int
                ) -> tuple[int, float, float, float | None]:
    """Return width, size, length and skew of the coflows of a sweep's value.

    :param width: width of the groups where it is not swept.
    """
    if case == 'virtco-case4':
        return int(value), 0.5e9 * int(value), 2e9, None
    if case == 'virtco-case5':
        return width, 5e9 * value, value * 1e9, None
    return width, 3e9 * width, 1e9 + 4e9 * value, value * 1e9


def swept_coflows(seed: int, shape: str,
                  sizes: tuple[int, float, float, float | None], count: int
                  ) -> list[coflow_model.Coflow]:
    """Draw coflows, half of them shuffles.

    :param sizes: result of :func:`swept_sizes`.
    """
    width, size_bytes, length_bytes, skew_bytes = sizes
    rng = np.random.default_rng([seed, 7])
    return [workloads.draw(
        f'c{i}', rng, n_vms=width, shape=shape, shuffle=i % 2 == 0,
        size_bytes=size_bytes, length_bytes=length_bytes,
        skew_bytes=skew_bytes) for i in range(count)]


def mean_ccts_s(hosts: Sequence[cluster.Host],
                its_groups: Sequence[groups.Group], names: Iterable[str],
                seed: int, with_bound: bool = True) -> dict[str, float]:
    """Simulate each scheme's mean CCT, and the bound at virtco's placement."""
    found = {}
    for name in names:
        result = cloud.simulate(hosts, its_groups, schemes.get(name),
                                seed=seed)
        found[name] = result.mean_cct_s
        if name == 'virtco' and with_bound:
            found[BOUND] = optimum.least_mean_cct_s(hosts, its_groups, result)
    return found


def _case1_run(setting: str, seed: int, shape: str) -> samples.Found:
    coflow, = (one for one in workloads.table2(seed=seed, shape=shape)
               if one.name == setting)
    hosts = tight(datacentre(seed, background=True), seed,
                  1.5 * coflow.n_vms)
    return mean_ccts_s(hosts, groups.of_coflows([coflow]), FEW, seed, False)


def _case2_run(setting: str, seed: int) -> samples.Found:
    shape, background = CASE2[setting]
    hosts = datacentre(seed, background)
    its_groups = groups.of_coflows(workloads.table2(seed=seed, shape=shape))
    found = mean_ccts_s(hosts, its_groups, ALL, seed)
    found[ANY_BOUND] = optimum.least_anywhere_s(hosts, its_groups, seed)
    return found


def _case3_run(setting: str, seed: int) -> samples.Found:
    marks: list[float] = []

    def mark() -> None:
        marks.append(time.process_time())
    result = cloud.simulate(
        datacentre(seed, True),
        groups.of_coflows(workloads.table2(seed=seed, shape=setting)),
        schemes.get('virtco'), seed=seed, on_plan=mark, on_planned=mark)
    return {'cpu_s': np.diff(marks)[::2].tolist(),
            'counted_s': result.planned_s}


def _quantile(series: str, share: float) -> samples.Cell:
    return lambda found, setting: float(
        np.quantile(found.of(setting, series), share))


def _case3_panel(found: samples.Samples) -> outcome.Panel:
    return outcome.Panel('cdf', 'Planning one coflow', 'CPU s', 'share', (
        *(outcome.Series(shape, (), tuple(found.of(shape, 'cpu_s')))
          for shape in found.settings),
        outcome.Series('paper, 80 %', (CASE3_PAPER_S,), (0.8,), paper=True)))


def label(scheme: str) -> str:
    return BOUNDS.get(scheme) or schemes.get(scheme).label


def times(names: Iterable[str]) -> list[tuple[str, samples.Cell]]:
    """List columns of the mean and the deviation of each scheme's CCT."""
    return [(f'{label(name)} s', samples.shown(name)) for name in names]


def saved(scheme: str) -> samples.Cell:
    """Return the cell of virtco's saving; empty where there is no traffic."""
    def cell(found: samples.Samples, setting: str) -> str | None:
        saving = found.saving(setting, scheme)
        return None if saving is None else str(saving)
    return cell


def gap(bound: str = BOUND) -> samples.Cell:
    """Return the cell of virtco's mean CCT above a bound, in percent."""
    def cell(found: samples.Samples, setting: str) -> float | None:
        bound_s = found.mean(setting, bound)
        if bound_s <= 0:
            return None
        ours_s = found.mean(setting, 'virtco')
        return round(100 * (ours_s / bound_s - 1), 1) + 0.0  # not -0.0
    return cell


def panel(title: str, x_label: str, chosen: Sequence[str]) -> samples.Panel:
    """Build bars of mean and deviation, on a logarithmic scale."""
    return samples.averages('bars', title, x_label, 's', {
        label(scheme): scheme for scheme in chosen}, log_y=True)


def savings_panel(x_label: str, against: Sequence[str],
                  papers: Mapping[str, Papers] | None = None,
                  bands: tuple[outcome.Band, ...] = (), what: str = ''
                  ) -> samples.Panel:
    """Build bars of virtco's savings, with intervals and the paper's.

    :param papers: savings over a scheme by setting, in percent.
    """
    def draw(found: samples.Samples) -> outcome.Panel:
        series = []
        for scheme in against:
            savings = [found.saving(key, scheme) for key in found.settings]
            series.append(outcome.Series(
                f'saved of {label(scheme)}', found.settings,
                tuple(one.percent if one else None for one in savings),
                tuple(one.half if one and np.isfinite(one.half) else 0.0
                      for one in savings), of=label(scheme)))
        series += [outcome.Series(
            f'paper, of {label(scheme)}', found.settings,
            tuple(map(by_setting.get, found.settings)), paper=True,
            over=f'saved of {label(scheme)}')
            for scheme, by_setting in (papers or {}).items()]
        return outcome.Panel(
            'bars', f'Time that virtco (online) saves{what}', x_label, '%',
            tuple(series), bands=bands)
    return draw


_CASE1 = {scheme: {app.name: CASE1_PAPER[app.name.split('-')[0]][scheme]
                   for app in workloads.TABLE2}
          for scheme in ('baseline', 'sebf-ta')}
_CASE2 = {scheme: {setting: CASE2_PAPER.get((background, scheme))
                   for setting, (_, background) in CASE2.items()}
          for scheme in ('baseline', 'sebf-ta-greedy')}
_CASE2_AGAINST = (*AGAINST, 'virtco-isolated')

FIGURES = (
    samples.Figure(
        'virtco-case1', 'Single CCT (VirtCO test case 1)',
        tuple(app.name for app in workloads.TABLE2), _case1_run,
        samples.by_setting('application', (
            *times(FEW), ('vs Baseline %', saved('baseline')),
            ('paper %', _CASE1['baseline']),
            ('vs min-cut TA %', saved('sebf-ta')),
            ('paper (TA) %', _CASE1['sebf-ta'])),
            panel('Single CCT', 'application', FEW),
            savings_panel('application', tuple(_CASE1), _CASE1)),
        ('Each application alone; background VMs leave 1.5 times the slots '
         'that it needs, spread over the hosts at random: on an empty '
         'datacentre the small ones fit into a host, and t is 0.',
         TA_NOTE, SAVED_NOTE), ('shape',), short=('PAGER-1M', 'RECOMM-2G')),
    samples.Figure(
        'virtco-case2', 'Average CCT, seconds (VirtCO test case 2)',
        tuple(CASE2), _case2_run, samples.turned(samples.by_setting('scheme', (
            *((label(name), samples.shown(name)) for name in (*ALL, *BOUNDS)),
            *((f'{who} vs {label(name)} %', cell) for name in _CASE2_AGAINST
              for who, cell in (('virtco', saved(name)),
                                ('paper', _CASE2.get(name))) if cell),
            *((f'virtco above the {name} %', gap(bound))
              for bound, name in BOUNDS.items())),
            panel('Average CCT', 'workload', (*ALL, BOUND)),
            savings_panel('workload', _CASE2_AGAINST[:3], _CASE2))),
        (TA_NOTE, SAVED_NOTE, BOUND_NOTE, 'No placement and schedule has a '
         'mean CCT below that of the proven bounds of each coflow alone in '
         'the datacentre. The paper has one workload with and one without '
         'background; its numbers stand in each column of the same kind.'),
        short=('sparse', 'medium, background')),
    samples.Figure(
        'virtco-case3', 'Time to decide, seconds (VirtCO test case 3)',
        workloads.SHAPES, _case3_run, samples.by_setting('workload', (
            *((f'{name} {what} s', _quantile(series, share))
              for series, what in (('cpu_s', 'CPU'), ('counted_s', 'counted'))
              for name, share in (('median', 0.5), ('80 %', 0.8),
                                  ('99 %', 0.99))),
            ('paper 80 % s', dict.fromkeys(workloads.SHAPES, CASE3_PAPER_S))),
            _case3_panel),
        ('CPU time of the planner per application on the machine that ran '
         'this, which --check does not compare, and the same work by the '
         'counter that simulated planning has for a clock.',),
        short=('sparse',), measured=('cpu_s',)))
