# SPDX-License-Identifier: Apache-2.0

"""The papers' statements and this project's targets, and their answers.

An answer is told from the samples of a figure.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import itertools
import math
from typing import NamedTuple

import numpy as np

from virtco_lab.sim import claims
from virtco_lab.sim import workloads
from virtco_lab.sim.figures import broadcasts
from virtco_lab.sim.figures import choreo
from virtco_lab.sim.figures import hints
from virtco_lab.sim.figures import orchestra
from virtco_lab.sim.figures import outcome
from virtco_lab.sim.figures import samples
from virtco_lab.sim.figures import trace
from virtco_lab.sim.figures import training
from virtco_lab.sim.figures import virtco

#: Least and largest value of a number that meets a statement.
Range = tuple[float, float]
#: Points by which a paper's number may be missed.
TOLERANCE = 10.0
AT_LEAST_0 = (0.0, math.inf)
#: Stands for the number of a paper in a target of the project.
TARGET = 'target'


class Told(NamedTuple):
    """Answer of records to a statement.

    :ivar numbers: the numbers that are judged, each with half of its 95 %
        interval.
    :ivar spread: spread over the seeds, where there is one.
    """

    text: str
    numbers: Sequence[tuple[float, float]] = ()
    spread: str = ''


#: Tells of the samples of a figure, or of records of the testbed.
Tell = Callable[..., Told]


class Statement(NamedTuple):
    """A statement of a paper or a target, and its answer.

    :ivar paper: number of the paper.
    :ivar figure: record that answers it, or records.
    :ivar why: differences from the paper, with their reasons.
    :ivar ranges: range of each number, or one for all; none without a number
        that could be met.
    """

    text: str
    paper: str
    figure: str | tuple[str, ...]
    tell: Tell
    why: str
    ranges: Sequence[Range] = ()


def near(low: float, high: float | None = None, by: float = TOLERANCE
         ) -> Range:
    """Return the range around one or two numbers of a paper."""
    return low - by, (low if high is None else high) + by


def verdict(numbers: Iterable[tuple[float, float]], ranges: Sequence[Range]
            ) -> str:
    """Judge numbers, each with half of its interval.

    A statement is met where all intervals lie in their ranges, missed where
    one lies outside, and not shown else; a dash without a range.
    """
    if not ranges:
        return '–'
    known = [(number - half, number + half, low, high)
             for (number, half), (low, high) in zip(
                 numbers, itertools.cycle(ranges))]
    if known and all(low <= least and most <= high
                     for least, most, low, high in known):
        return 'met'
    return 'missed' if any(most < low or least > high
                           for least, most, low, high in known
                           ) else 'not shown'


def _ranged(values: Iterable[float], digits: int) -> str:
    """Format the least and the largest value, or a single one."""
    known = [round(value, digits) + 0.0 for value in values]
    if len(known) == 1:
        return f'{known[0]:.{digits}f} %'
    return f'{min(known):.{digits}f} to {max(known):.{digits}f} %'


def exactly(*numbers: float) -> list[tuple[float, float]]:
    """Return numbers whose seeds do not tell how far they vary."""
    return [(number, 0.0) for number in numbers]


def _savings(found: samples.Samples, theirs: str, settings: Sequence[str]
             ) -> list[outcome.Saving]:
    """List virtco's savings in the settings that have traffic."""
    return [saving for name in settings or found.settings
            if (saving := found.saving(name, theirs)) is not None]


def _saved(theirs: str, settings: Sequence[str] = ()) -> Tell:
    """Return a function of the settings' savings and widest interval."""
    def tell(found: samples.Samples) -> Told:
        known = _savings(found, theirs, settings)
        half = max(saving.half for saving in known)
        return Told(_ranged((saving.percent for saving in known), 1),
                    [(saving.percent, saving.half) for saving in known],
                    f'± {half:.1f} at most' if np.isfinite(half) else '')
    return tell


def _saves(least: float, theirs: str) -> Tell:
    """Return a function of the savings, and of those that reach the least."""
    def tell(found: samples.Samples) -> Told:
        known = _savings(found, theirs, ())
        percents = [one.percent for one in known]
        there = sum(percent >= least for percent in percents)
        return Told(f'{min(percents):.1f} to {max(percents):.1f} %, '
                    f'{np.mean(percents):.1f} % in the mean; {there} of '
                    f'{len(percents)} columns',
                    [(one.percent, one.half) for one in known])
    return tell


def _trend(theirs: str, *settings: str) -> Tell:
    """Return a function of the savings from one setting to the next."""
    def tell(found: samples.Samples) -> Told:
        savings = [found.saving(name, theirs) for name in settings]
        return Told(' → '.join('no traffic' if one is None
                               else f'{one.percent:.1f} %' for one in savings),
                    [(one.percent, one.half) for one in savings if one],
                    ' → '.join('–' if one is None else f'± {one.half:.1f}'
                               for one in savings))
    return tell


def _growing(tell: Tell) -> Tell:
    """Return a function that has the change between its numbers judged."""
    def changes(found: samples.Samples) -> Told:
        told = tell(found)
        return told._replace(numbers=[
            (after - before, math.hypot(half, half_before))
            for (before, half_before), (after, half) in itertools.pairwise(
                told.numbers)])
    return changes


def _each(text: str, *cells: samples.Cell, join: str = '; ', end: str = ''
          ) -> Tell:
    """Return a function of cells of each setting; the first is judged.

    :param text: format of a setting's name and cells.
    """
    def tell(found: samples.Samples) -> Told:
        rows = [(setting, *(found.value(setting, cell) for cell in cells))
                for setting in found.settings]
        return Told(join.join(text.format(*row) for row in rows) + end,
                    exactly(*(row[1] for row in rows)))
    return tell


def _decided(found: samples.Samples) -> Told:
    every = np.concatenate([found.of(setting, 'cpu_s')
                            for setting in found.settings])
    limit_s = virtco.CASE3_PAPER_S
    most_s = float(np.quantile(every, 0.8))
    return Told(f'80 % in {most_s:.2f} s, '
                f'{np.mean(every <= limit_s):.0%} in {limit_s:g} s',
                exactly(most_s),
                f'99 % in {np.quantile(every, 0.99):.2f} s')


def _greedy(found: samples.Samples) -> Told:
    ratios = choreo.over_optimum(found, 'choreo')
    median = choreo.above(ratios, 0.5)
    return Told(f'{median:.1f} % at the median', exactly(median),
                f'90 % within {choreo.above(ratios, 0.9):.0f} %')


def _fig14(found: samples.Samples) -> Told:
    high, low = (outcome.reduction(found.mean('priority', series),
                                   found.mean('fair', series))
                 for series in orchestra.HIGH_LOW)
    return Told(f'{high:.0f} % sooner, the large one {-low:.1f} % later',
                exactly(high, -low))


def _fig15(found: samples.Samples) -> Told:
    fair_s, fifo_s = (found.mean(name, 'ends_s') for name in ('fair', 'fifo'))
    return Told(f'{fair_s / fifo_s:.2f} times', exactly(fair_s / fifo_s))


def _percent(values: np.ndarray, digits: int = 0) -> Told:
    """Tell the mean of percents, and the deviation of several."""
    mean, deviation = outcome.spread(values)
    return Told(f'{mean:.0f} %', [(mean, outcome.half_interval(values))],
                f'± {deviation:.{digits}f}' if len(values) > 1 else '')


def _cornet(found: samples.Samples) -> Told:
    least_s = broadcasts.bound_s(broadcasts.SIZES['1 GB'])
    return _percent(100 * (np.array(
        found.of('100', '1 GB, cornet')) / least_s - 1), 1)


def _racks(found: samples.Samples) -> Told:
    less = [outcome.reduction(found.mean(name, 'aware'),
                              found.mean(name, 'unaware'))
            for name in found.settings]
    return Told(_ranged(less, 0), exactly(*less))


def _facebook(found: samples.Samples) -> Told:
    times_s = [found.mean('mrtf', series)
               for series in ('mean_s', 'median_s', 'p95_s')]
    return Told('{:.2f}, {:.3f} and {:.2f} s'.format(*times_s),
                exactly(*times_s))


def _above_bound(found: samples.Samples) -> Told:
    bound_s, *ours_s = (found.mean(name, 'mean_s') for name in (
        trace.BOUND, 'mrtf', 'mrtf+swap'))
    above = [100 * (mean_s / bound_s - 1) for mean_s in ours_s]
    return Told('{:.1f} % (mrtf) and {:.1f} % (mrtf+swap) above {:.2f} s'
                .format(*above, bound_s), exactly(*above))


def _rpca(found: samples.Samples) -> Told:
    return _percent(100 * (1 - found.ratios('broadcast', 'rpca', 'broadcast',
                                            'baseline')))


def _lies(found: samples.Samples) -> Told:
    costs = [_percent(100 * (found.ratios(name, 'his CCT', '1', 'his CCT') - 1)
                      ).numbers[0] for name in found.settings if name != '1']
    return Told(f'a lie costs {_ranged((cost for cost, _ in costs), 1)}',
                costs)


def _wrong(found: samples.Samples) -> Told:
    """Return the cost of wrong hints, to be judged beside plain TCP's."""
    wrong, plain = (100 * (found.ratios(setting, series, 'exact', 'mean_s')
                           - 1)
                    for setting, series in (('50 % wrong', 'mean_s'),
                                            ('exact', hints.PLAIN)))
    told = _percent(wrong)
    return Told(f'{told.text}; plain TCP costs {_percent(plain).text}',
                _percent(wrong - plain).numbers, told.spread)


def _unknown(found: samples.Samples) -> Told:
    exact, plain = (_percent(100 * found.ratios(
        claims.UNKNOWN, 'mean_s', 'exact', basis))
        for basis in ('mean_s', hints.PLAIN))
    return Told(f'{exact.text} of exact hints, {plain.text} of plain TCP',
                exact.numbers)


def _guarded(scheme: str) -> Tell:
    return _each('{}: {:.0f} %, {:.1f} points above MRTF',
                 lambda found, setting: 100 * (1 / np.median(found.of(
                     setting, f'{scheme}, slowest')) - 1),
                 training.above_mrtf(scheme))


def _of_two(tell: Tell) -> Tell:
    """Return a function that has only pairs of training jobs judged."""
    def pairs(found: samples.Samples) -> Told:
        told = tell(found)
        return told._replace(numbers=[
            number for setting, number in zip(found.settings, told.numbers)
            if len(training.ON_A_LINK[setting]) == 2])
    return pairs


_TABLE3 = _each('{1:.1f}', orchestra.speed_up, join=', ', end=' %')
_TABLE3_PAPER = tuple(map(near, orchestra.THEORY.values()))
_CHOREO_PAPER = (near(choreo.GREEDY_PAPER),)
#: Asked of FB2010: mean, median and 95th percentile, each within 2 %.
_FACEBOOK_ASKED = tuple(near(asked_s, by=0.02 * asked_s)
                        for asked_s in (22.2, 0.184, 40.0))
_BEHIND_PRINTED = _saves(-2.5, 'virtco-printed')
_BEHIND_AT_MOST = ((-2.5, math.inf),)
_PAGER, _RECOMM = (tuple(app.name for app in workloads.TABLE2
                         if app.name.startswith(kind))
                   for kind in virtco.CASE1_PAPER)
_QUIET, _NOISY = (tuple(name for name, (_, is_noisy) in virtco.CASE2.items()
                        if is_noisy == wanted) for wanted in (False, True))
_LARGER = ('Larger than in the paper; the cause is not known. Heavy tails are '
           'not: with equal flows virtco saves 89 % of Baseline\'s time and '
           '65 % of the greedy one\'s (virtco-sigma).')
_HONEST = ('The paper\'s SEBF-TA packs greedily; the minimum cut is the '
           'stronger opponent, and the paper has no number for it.')

#: In the order of the papers.
STATEMENTS = tuple(itertools.starmap(Statement, (
    ('VirtCO case 1: PAGER alone, below Baseline', '58.3 %', 'virtco-case1',
     _saved('baseline', _PAGER), _LARGER,
     (near(58.3),)),
    ('VirtCO case 1: RECOMM alone, below Baseline', 'over 60 %',
     'virtco-case1', _saved('baseline', _RECOMM), _LARGER,
     ((60.0, 100.0),)),
    ('VirtCO case 1: PAGER alone, below SEBF-TA', '16.7 % (28.6 % by its own '
     'definition)', 'virtco-case1', _saved('sebf-ta', _PAGER), _HONEST,
     (near(16.7, 28.6),)),
    ('VirtCO case 2: below Baseline, no background', '79.1 %',
     'virtco-case2', _saved('baseline', _QUIET), _LARGER,
     (near(79.1),)),
    ('VirtCO case 2: below SEBF-TA (greedy), no background', '36.5 %',
     'virtco-case2', _saved('sebf-ta-greedy', _QUIET), _LARGER,
     (near(36.5),)),
    ('VirtCO case 2: below SEBF-TA (greedy), background', '24.1 %',
     'virtco-case2', _saved('sebf-ta-greedy', _NOISY), _LARGER,
     (near(24.1),)),
    ('VirtCO case 2: below SEBF-TA (minimum cut)', '–', 'virtco-case2',
     _saved('sebf-ta'), _HONEST),
    ('VirtCO case 2: below VirtCO as printed', '–', 'virtco-case2',
     _saved('virtco-printed'),
     'The printed method plans on residual bandwidth.'),
    ('VirtCO case 3: time to decide', '80 % within 5.5 s', 'virtco-case3',
     _decided, 'CPU time; the planner has a second.',
     ((0.0, virtco.CASE3_PAPER_S),)),
    ('VirtCO case 4: below SEBF-TA (greedy), widths 10 → 20 → 40',
     'grows with the width', 'virtco-case4',
     _growing(_trend('sebf-ta-greedy', 'heavy 10', 'heavy 20', 'heavy 40')),
     'Groups of 10 fit into a host.', (AT_LEAST_0,)),
    ('VirtCO case 5: below Baseline, any length', '40 to 50 %',
     'virtco-case5', _saved('baseline'), _LARGER,
     (near(40.0, 50.0),)),
    ('VirtCO case 5: below SEBF-TA (greedy), any length', '17 to 20 %',
     'virtco-case5', _saved('sebf-ta-greedy'), _LARGER,
     (near(17.0, 20.0),)),
    ('VirtCO case 6: below Baseline, from the least to the largest skew',
     '23.5 → 61.2 %', 'virtco-case6',
     _trend('baseline', 'heavy 0.2', 'heavy 3'),
     'The paper begins at 0.1 GB.',
     (near(23.5), near(61.2))),
    ('VirtCO case 6: below SEBF-TA (greedy), likewise', '7.1 → 40.5 %',
     'virtco-case6', _trend('sebf-ta-greedy', 'heavy 0.2', 'heavy 3'), '–',
     (near(7.1), near(40.5))),
    ('Choreo: greedy above the optimum', '13 % at the median',
     'choreo-greedy', _greedy, 'Applications of 5 to 7 tasks on 5 machines; '
     'the paper\'s are not public.',
     _CHOREO_PAPER),
    ('Orchestra Table 3: weighted shuffle', '25, 33, 38 %',
     'orchestra-table3', _TABLE3, '–',
     _TABLE3_PAPER),
    ('Orchestra Fig. 14: priority of small transfers',
     '43 % sooner, the large one 6 % later', 'orchestra-fig14', _fig14,
     'The paper\'s nodes reached half their rate.',
     (near(43.0), near(6.0))),
    ('Orchestra Fig. 15: FIFO over fair sharing', '1.45 times',
     'orchestra-fig15', _fig15, 'In theory 1.6 (2n / (n + 1)).',
     (near(1.45, by=TOLERANCE / 100),)),
    ('Orchestra Fig. 9: Cornet, 1 GB to 100 receivers, above the bound',
     '33 %', 'orchestra-fig9', _cornet,
     'No handshakes, hashing or slow nodes in the simulator.',
     (near(33.0),)),
    ('Orchestra Fig. 11: Cornet that knows its racks, less time', '50 %',
     'orchestra-fig11', _racks,
     'Other racks: uplinks at 4:1, not three in a row.',
     (near(50.0),)),
    ('RPCA Fig. 7: broadcast over 196 hosts, below a plan that knows no rates',
     '–', 'rpca-fig7', _rpca,
     'Generated clouds; the medians of each pair do as well.'),
    ('RPCA Fig. 13: cluster, below the baseline', '25 to 40 %', 'rpca-fig13',
     _rpca, 'Links are equal in the long run, so nothing is to be gained.',
     (near(25.0, 40.0),)))))

#: The project's own targets.
TARGETS = tuple(Statement(text, TARGET, figure, tell, '–', ranges)
                for text, figure, tell, ranges in (
    ('Test case 2, average CCT at least 15 % below strong SEBF-TA (aim 35)',
     'virtco-case2', _saves(15.0, 'sebf-ta'), ((15.0, 100.0),)),
    ('… at least 36.5 % below the paper\'s SEBF-TA (greedy)',
     'virtco-case2', _saves(36.5, 'sebf-ta-greedy'), ((36.5, 100.0),)),
    ('… at least 79.1 % below Baseline',
     'virtco-case2', _saves(79.1, 'baseline'), ((79.1, 100.0),)),
    ('… never behind VirtCO as printed by more than 2.5 %',
     'virtco-case2', _BEHIND_PRINTED, _BEHIND_AT_MOST),
    ('Test case 4 likewise', 'virtco-case4', _BEHIND_PRINTED,
     _BEHIND_AT_MOST),
    ('Test case 6 likewise', 'virtco-case6', _BEHIND_PRINTED,
     _BEHIND_AT_MOST),
    ('Facebook trace: mean 22.2 s ± 2 %, median 0.184, p95 40.0',
     'facebook-trace', _facebook, _FACEBOOK_ASKED),
    ('… at most 5 % above the bound of any schedule', 'facebook-trace',
     _above_bound, ((0.0, 5.0),)),
    ('With sizes unknown at most 1.10 × MRTF', 'wrong-hints', _unknown,
     ((0.0, 110.0),)),
    ('Orchestra Table 3: 25, 33, 38 %', 'orchestra-table3', _TABLE3,
     _TABLE3_PAPER),
    ('Choreo, greedy above the optimum: 13 % at the median',
     'choreo-greedy', _greedy, _CHOREO_PAPER),
    ('Two training jobs on a link, in order: iterations 1.6 × faster than '
     'fair (1.5 is the most for two)', 'training-pair',
     _of_two(_each('{}: {:.2f}', training.ratio('fair', 'order'),
                   join=', ')), ((1.6, math.inf),)),
    ('GPUs of a cluster that compute: 10 points above MRTF',
     'training-cluster', _each('{}: {:.1f} points, {:.1f} at most', *map(
         training.above_mrtf, ('order', 'bound'))), ((10.0, math.inf),)),
    ('The slowest training job at most 5 % beyond its bound (median of the '
     'seeds, with the guard)', 'training-cluster',
     _guarded('order, guarded'), ((-math.inf, 5.0),)),
    ('… and where virtco places the jobs, too', 'training-cluster',
     _guarded('order, guarded, placed'), ((-math.inf, 5.0),)),
    ('Lies must not pay (nine tenths of the truth are within what is '
     'tolerated)', 'liars', _lies, (AT_LEAST_0,)),
    ('Hints wrong by 50 % degrade gracefully: they cost less than plain TCP',
     'wrong-hints', _wrong, ((-math.inf, 0.0),))))
