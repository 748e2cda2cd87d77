# SPDX-License-Identifier: Apache-2.0

"""The papers' statements, each with its command, result and differences."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import pathlib

import numpy as np

from virtco_lab.sim import errata
from virtco_lab.sim.figures import broadcasts
from virtco_lab.sim.figures import outcome
from virtco_lab.sim.figures import record
from virtco_lab.sim.figures import samples

#: Result of a statement: the number, and its spread over the seeds.
Reached = tuple[str, str]
COLUMNS = ('statement', 'paper', 'here', 'spread', 'command', 'differences')
ERRATA_COLUMNS = ('where', 'printed', 'counterexample', 'a run finds')
_HEAVY = ('Larger than in the paper: flows\' sizes are heavy tailed here '
          '(sigma 2), and a few pairs hold most bytes.')
_HONEST = ('The paper\'s SEBF-TA packs greedily; the minimum cut is the '
           'stronger opponent, and the paper has no number for it.')


@dataclasses.dataclass(frozen=True, slots=True)
class Statement:
    """A statement of a paper, or a target.

    :ivar paper: the paper's number.
    :ivar figure: name of the figure whose record has the result.
    :ivar reached: returns the result from the record's numbers.
    :ivar why: differences from the paper, and their reasons.
    """

    text: str
    paper: str
    figure: str
    reached: Callable[[samples.Samples], Reached]
    why: str = ''


def rows(directory: pathlib.Path) -> Iterator[tuple[outcome.Cell, ...]]:
    """Yield the table's row of each statement whose figure is recorded."""
    for one in STATEMENTS:
        if (directory / f'{one.figure}.json').exists():
            found = record.read(directory, one.figure).found
            number, spread = one.reached(found)
            seeds = record.shown_seeds(found.seeds)
            command = f'virtco-sim reproduce {one.figure}'
            yield (one.text, one.paper, number, spread and
                   f'{spread}; seeds {seeds}', f'``{command}``',
                   one.why or '–')


def errata_rows() -> list[tuple[outcome.Cell, ...]]:
    """Run every counterexample; return the rows of their table.

    :raises AssertionError: when one does not refute the printed statement.
    """
    found = errata.check()
    assert all(one.holds for one in found), [
        one.where for one in found if not one.holds]
    return [(one.where, one.printed, one.example, one.found)
            for one in found]


def _saved(theirs: str, settings: Sequence[str] = ()
           ) -> Callable[[samples.Samples], Reached]:
    """Return a function of the settings' savings and widest interval."""
    def reached(found: samples.Samples) -> Reached:
        known = [saving for name in settings or found.settings
                 if (saving := found.saving(name, theirs)) is not None]
        percents = [round(saving.percent, 1) + 0.0 for saving in known]
        number = (f'{percents[0]:.1f} %' if len(percents) == 1 else
                  f'{min(percents):.1f} to {max(percents):.1f} %')
        half = max(saving.half for saving in known)
        return number, f'± {half:.1f} at most' if np.isfinite(half) else ''
    return reached


def _trend(theirs: str, first: str, last: str
           ) -> Callable[[samples.Samples], Reached]:
    """Return a function of the savings at the first and last setting."""
    def reached(found: samples.Samples) -> Reached:
        both = [found.saving(name, theirs) for name in (first, last)]
        return (' → '.join('no traffic' if one is None
                           else f'{one.percent:.1f} %' for one in both),
                ' → '.join('–' if one is None else f'± {one.half:.1f}'
                           for one in both))
    return reached


def _share(limit_s: float) -> Callable[[samples.Samples], Reached]:
    def reached(found: samples.Samples) -> Reached:
        every = [value for setting in found.settings
                 for value in found.of(setting, 'cpu_s')]
        return (f'80 % in {np.quantile(every, 0.8):.2f} s, '
                f'{np.mean(np.array(every) <= limit_s):.0%} in '
                f'{limit_s:g} s', f'99 % in {np.quantile(every, 0.99):.2f} s')
    return reached


def table3(found: samples.Samples) -> Reached:
    """Format how much slower fair sharing is, by topology."""
    percents = (100 * (found.of(name, 'fair')[0] / found.of(name, 'mrtf')[0]
                       - 1) for name in found.settings)
    return ', '.join(f'{percent:.1f}' for percent in percents) + ' %', ''


def _fig14(found: samples.Samples) -> Reached:
    fair, first, low, low_first = (
        found.mean(name, series) for series in ('high', 'low')
        for name in ('fair', 'priority'))
    return (f'small ones {fair / first:.2f} times sooner, the large one '
            f'{low_first / low - 1:+.1%}', '')


def _fig15(found: samples.Samples) -> Reached:
    fair, fifo = (found.mean(name, 'ends_s') for name in ('fair', 'fifo'))
    return f'{fair / fifo:.2f} times', ''


def _cornet(found: samples.Samples) -> Reached:
    times_s = np.array(found.of('100', '1 GB, cornet'))
    least_s = broadcasts.bound_s(1e9)
    return (f'{100 * (times_s.mean() / least_s - 1):.0f} %',
            f'± {100 * times_s.std(ddof=1) / least_s:.1f}'
            if len(times_s) > 1 else '')


def _racks(found: samples.Samples) -> Reached:
    saved = [100 * (1 - found.mean(name, 'aware')
                    / found.mean(name, 'unaware')) for name in found.settings]
    return f'{min(saved):.0f} to {max(saved):.0f} %', ''


def greedy(found: samples.Samples) -> Reached:
    """Compare Choreo's greedy placement with the optimum."""
    setting, = found.settings
    ratios = np.array([ours_s / best_s for ours_s, best_s in zip(
        found.of(setting, 'choreo'), found.of(setting, 'optimum'))
        if best_s > 0])
    return (f'{100 * (np.median(ratios) - 1):.1f} % at the median',
            f'90 % within {100 * (np.quantile(ratios, 0.9) - 1):.0f} %')


def facebook(found: samples.Samples) -> Reached:
    """Format mean, median and 95th percentile under MRTF."""
    mean, median, p95 = (found.of('mrtf', key)[0] for key in (
        'mean_s', 'median_s', 'p95_s'))
    return f'{mean:.2f}, {median:.3f} and {p95:.2f} s', ''


def _rate(series: str, other: str, setting: str
          ) -> Callable[[samples.Samples], Reached]:
    """Return a function of the time that one series saves over another."""
    def reached(found: samples.Samples) -> Reached:
        saved = 100 * (1 - np.array(found.ratios(
            setting, series, setting, other)))
        return (f'{saved.mean():.0f} %',
                f'± {saved.std(ddof=1) if len(saved) > 1 else 0:.0f}')
    return reached


def lies(found: samples.Samples) -> Reached:
    """Compare a liar's CCT with the honest one."""
    costs = [100 * (float(np.mean(found.ratios(
        name, 'his CCT', '1', 'his CCT'))) - 1)
        for name in found.settings if name != '1']
    return f'a lie costs {min(costs):.1f} to {max(costs):.1f} %', ''


def wrong(found: samples.Samples) -> Reached:
    """Compare wrong hints and plain TCP with exact hints."""
    ratios = found.ratios('50 % wrong', 'mean_s', 'exact', 'mean_s')
    plain = found.ratios('exact', 'plain TCP', 'exact', 'mean_s')
    return (f'{100 * (np.mean(ratios) - 1):.0f} %; plain TCP costs '
            f'{100 * (np.mean(plain) - 1):.0f} %',
            f'± {100 * outcome.spread(ratios)[1]:.0f}'
            if len(ratios) > 1 else '')


_PAGER = ('PAGER-0.5M', 'PAGER-1M', 'PAGER-4M')
_RECOMM = ('RECOMM-1G', 'RECOMM-2G', 'RECOMM-5G')
_QUIET = ('sparse', 'medium', 'dense')
_NOISY = tuple(f'{shape}, background' for shape in _QUIET)

#: In the order of the papers.
STATEMENTS: tuple[Statement, ...] = (
    Statement('VirtCO case 1: PAGER alone, below Baseline', '58.3 %',
              'virtco-case1', _saved('baseline', _PAGER), _HEAVY),
    Statement('VirtCO case 1: RECOMM alone, below Baseline', 'over 60 %',
              'virtco-case1', _saved('baseline', _RECOMM), _HEAVY),
    Statement('VirtCO case 1: PAGER alone, below SEBF-TA', '16.7 % (28.6 % '
              'by its own definition)', 'virtco-case1',
              _saved('sebf-ta', _PAGER), _HONEST),
    Statement('VirtCO case 2: below Baseline, no background', '79.1 %',
              'virtco-case2', _saved('baseline', _QUIET), _HEAVY),
    Statement('VirtCO case 2: below SEBF-TA (greedy), no background',
              '36.5 %', 'virtco-case2', _saved('sebf-ta-greedy', _QUIET),
              _HEAVY),
    Statement('VirtCO case 2: below SEBF-TA (greedy), background', '24.1 %',
              'virtco-case2', _saved('sebf-ta-greedy', _NOISY), _HEAVY),
    Statement('VirtCO case 2: below SEBF-TA (minimum cut)', '–',
              'virtco-case2', _saved('sebf-ta'), _HONEST),
    Statement('VirtCO case 2: VirtCO as printed is slower by', '–',
              'virtco-case2', _saved('virtco-printed'),
              'The printed method plans on residual bandwidth.'),
    Statement('VirtCO case 3: time to decide', '80 % within 5.5 s',
              'virtco-case3', _share(5.5),
              'CPU time; the planner has a second.'),
    Statement('VirtCO case 4: below SEBF-TA (greedy), widths 10 → 40',
              'grows with the width', 'virtco-case4',
              _trend('sebf-ta-greedy', 'heavy 10', 'heavy 40'),
              'Groups of 10 fit into a host.'),
    Statement('VirtCO case 5: below Baseline, any length', '40 to 50 %',
              'virtco-case5', _saved('baseline'), _HEAVY),
    Statement('VirtCO case 5: below SEBF-TA (greedy), any length',
              '17 to 20 %', 'virtco-case5', _saved('sebf-ta-greedy'),
              _HEAVY),
    Statement('VirtCO case 6: below Baseline, from the least to the largest '
              'skew', '23.5 → 61.2 %', 'virtco-case6',
              _trend('baseline', 'heavy 0.2', 'heavy 3'),
              'The paper begins at 0.1 GB.'),
    Statement('VirtCO case 6: below SEBF-TA (greedy), likewise',
              '7.1 → 40.5 %', 'virtco-case6',
              _trend('sebf-ta-greedy', 'heavy 0.2', 'heavy 3')),
    Statement('Choreo: greedy above the optimum', '13 % at the median',
              'choreo-greedy', greedy,
              'Applications of 5 to 7 tasks on 5 machines; the paper\'s are '
              'not public.'),
    Statement('Orchestra Table 3: weighted shuffle', '25, 33, 38 %',
              'orchestra-table3', table3),
    Statement('Orchestra Fig. 14: priority of small transfers',
              '43 % sooner, the large one 6 % later', 'orchestra-fig14',
              _fig14, 'The paper\'s nodes reached half their rate.'),
    Statement('Orchestra Fig. 15: FIFO over fair sharing', '1.45 times',
              'orchestra-fig15', _fig15, 'In theory 1.6 (2n / (n + 1)).'),
    Statement('Orchestra Fig. 9: Cornet, 1 GB to 100 receivers, above the '
              'bound', '33 %', 'orchestra-fig9', _cornet,
              'No handshakes, hashing or slow nodes in the simulator.'),
    Statement('Orchestra Fig. 11: Cornet that knows its racks, less time',
              '50 %', 'orchestra-fig11', _racks,
              'Other racks: uplinks at 4:1, not three in a row.'),
    Statement('FB2010 by MRTF: mean, median, 95 %',
              '– (asked: 22.2, 0.184, 40.0 s)', 'facebook-trace', facebook),
    Statement('RPCA Fig. 7: broadcast over 196 hosts, below a plan that '
              'knows no rates', '–', 'rpca-fig7',
              _rate('rpca', 'baseline', 'broadcast'),
              'Generated clouds; the medians of each pair do as well.'),
    Statement('RPCA Fig. 13: cluster, below the baseline', '25 to 40 %',
              'rpca-fig13', _rate('rpca', 'baseline', 'broadcast'),
              'Links are equal in the long run, so nothing is to be gained.'),
    Statement('Lies must not pay', 'not in the papers', 'liars', lies),
    Statement('Hints wrong by 50 % cost', 'not in the papers',
              'wrong-hints', wrong))
