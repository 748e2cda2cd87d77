# SPDX-License-Identifier: Apache-2.0

"""VirtCO's test cases 1 to 6 with real TCP, compared with the simulator.

The applications and schemes are those of ``virtco-sim reproduce``, with links
and bytes scaled down together, so that completion times stay those of
1 Gbit/s. The controller places and the edge modules enforce; there is no Nova,
unlike in ``virtco-emulate demo``.
"""

from collections.abc import Iterable
from collections.abc import Sequence
import functools
import statistics
from typing import Any

import numpy as np

from virtco import units
from virtco_lab.emulation import cases
from virtco_lab.emulation import extent
from virtco_lab.emulation import measure
from virtco_lab.sim import schemes
from virtco_lab.sim import workloads
from virtco_lab.sim.figures import outcome
from virtco_lab.sim.figures import virtco as paper

#: Largest relative difference of measured average CCTs from the simulator's:
#: mean of a scheme's runs, and any of them.
MEAN_TOLERANCE, WORST_TOLERANCE = 0.10, 0.20
_TITLES = {
    'virtco-case1': 'Single CCT', 'virtco-case2': 'Average CCT',
    'virtco-case4': 'Impact of width', 'virtco-case5': 'Impact of length',
    'virtco-case6': 'Impact of skew'}
_COLUMNS = ('workload', 'scheme', 'simulated', 'same placement', 'measured',
            'off %', 'worst off %', 'virtco saves, simulated %',
            'measured %', 'paper %')
#: Share of a processor that an edge module has, by the paper's test case 3.
_PAPER_CPU = 0.02


def _runs(case: str, options: extent.Options
          ) -> dict[tuple[cases.Cell, str], list[measure.Run]]:
    return measure.run(options.cells(case), options, options.scale)


def case(name: str, options: extent.Options) -> outcome.Outcome:
    """Compare the mean CCTs of a test case, simulated and measured."""
    runs = _runs(name, options)
    every = [run for its in runs.values() for run in its]
    return outcome.Outcome(
        f'emulated-{name}', f'{_TITLES[name]} on the emulated testbed, '
        f'seconds (VirtCO test case {name[-1]})', _COLUMNS, tuple((
            cell.label, schemes.get(scheme).label,
            *(outcome.shown([getattr(run, field) for run in its])
              for field in ('simulated_s', 'expected_s', 'measured_s')),
            round(100 * mean_off(its), 1), round(100 * worst_off(its), 1),
            *_saved(runs[cell, 'virtco'], its, scheme), _paper(cell, scheme))
            for (cell, scheme), its in runs.items()),
        _panels(runs), (*_notes(options, every), *_agreement(every)),
        tuple(_unmet(every)), _recorded(every))


def overhead(options: extent.Options) -> outcome.Outcome:
    """Measure time to decide and CPU of the edge modules in test case 2."""
    runs = _runs('virtco-case2', options)
    rows: list[tuple[outcome.Cell, ...]] = []
    panels = []
    for what, values, papers in (
            ('time to decide, s per group',
             lambda run: (run.placing_s / len(run.coflows),), (5.5, 0.8)),
            ('edge module, share of a processor',
             lambda run: run.edge_cpu, (_PAPER_CPU, 0.8))):
        found = {schemes.get(name).label: [
            value for (_, scheme), its in runs.items() if scheme == name
            for run in its for value in values(run)]
            for name in measure.SCHEMES[1:]}
        rows += [(what, label, *(float(np.quantile(its, q))
                                 for q in (0.5, 0.8, 0.99)), papers[0])
                 for label, its in found.items()]
        panels.append(outcome.Panel('cdf', what, what, 'share', (
            *(outcome.Series(label, (), tuple(its))
              for label, its in found.items()),
            outcome.Series('paper, 80 %', papers[:1], papers[1:],
                           paper=True))))
    every = [run for its in runs.values() for run in its]
    return outcome.Outcome(
        'emulated-virtco-case3', 'Overhead on the emulated testbed (VirtCO '
        'test case 3)', ('what', 'scheme', 'median', '80 %', '99 %',
                         'paper 80 %'), tuple(rows), tuple(panels), (
            *_notes(options, every),
            'Time to decide is by the wall, on a machine that is the whole '
            'datacentre; it includes the requests and the start of the VMs. '
            'An edge module\'s processor time is that of its processes while '
            'the bytes move, with a report each tenth of a second; the '
            'kernel\'s shaping is not in it.'), runs=_recorded(every))


def _recorded(runs: Sequence[measure.Run]) -> dict[str, Any]:
    """Return the runs as a record keeps them, in few lines."""
    return {'run columns': ['seed', 'simulated_s', 'expected_s', 'measured_s',
                            'waited', 'busy', 'tries'],
            'runs': {f'{run.key} / {run.scheme} / {run.seed}': [
                run.seed, *(round(value, 4) for value in (
                    run.simulated_s, run.expected_s, run.measured_s,
                    run.waited, run.busy)), run.tries] for run in runs}}


FIGURES: dict[str, extent.Figure] = {
    name: functools.partial(case, name) if name in _TITLES else overhead
    for name in (f'virtco-case{number}' for number in range(1, 7))}


def mean_off(runs: Sequence[measure.Kept]) -> float:
    """Return the mean of the runs' absolute deviations, as a fraction."""
    return statistics.fmean(abs(run.off) for run in runs)


def worst_off(runs: Sequence[measure.Kept]) -> float:
    """Return the deviation that is largest in size, with its sign."""
    return max((run.off for run in runs), key=abs)


def _saved(ours: Sequence[measure.Run], theirs: Sequence[measure.Run],
           scheme: str) -> tuple[outcome.Cell, outcome.Cell]:
    """Return virtco's saving over a scheme as text: simulated, measured."""
    if scheme == 'virtco':
        return None, None
    both = [outcome.saving([getattr(run, field) for run in ours],
                           [getattr(run, field) for run in theirs])
            for field in ('expected_s', 'measured_s')]
    expected, measured = (None if one is None else str(one) for one in both)
    return expected, measured


def _paper(cell: cases.Cell, scheme: str) -> outcome.Cell:
    if cell.case == 'virtco-case1':
        return paper.CASE1_PAPER[cell.setting.split('-')[0]].get(scheme)
    if cell.case == 'virtco-case2':
        name = 'sebf-ta-greedy' if scheme == 'sebf-ta' else scheme
        return paper.CASE2_PAPER.get((cell.background, name))
    return None


def _panels(runs: dict[tuple[cases.Cell, str], list[measure.Run]]
            ) -> tuple[outcome.Panel, ...]:
    cells = list(dict.fromkeys(cell for cell, _ in runs))
    labels = [f'{cell.setting} {cell.shape}{", bg" * cell.background}'.strip()
              for cell in cells]
    return tuple(outcome.Panel('bars', title, 'workload', 's', tuple(
        outcome.averaged(schemes.get(name).label, labels, [
            [getattr(run, field) for run in runs[cell, name]]
            for cell in cells])
        for name in measure.schemes_of(cells[0].case)), log_y=True)
        for title, field in (('Simulated, same placement', 'expected_s'),
                             ('Measured', 'measured_s')))


def _agreement(runs: Sequence[measure.Run]) -> list[str]:
    """Summarise how far the runs of each scheme are from the simulator."""
    return [f'{schemes.get(name).label}: {len(its)} runs, {agreement(its)}'
            for name in measure.ALL_SCHEMES
            if (its := [run for run in runs if run.scheme == name])]


def agreement(runs: Sequence[measure.Kept]) -> str:
    """Say how far runs are from the simulator, and how far they may be."""
    return (f'{mean_off(runs):.1%} off in the mean ({MEAN_TOLERANCE:.0%} '
            f'allowed), {abs(worst_off(runs)):.1%} at most '
            f'({WORST_TOLERANCE:.0%} allowed).')


def _unmet(runs: Sequence[measure.Run]) -> list[str]:
    by_scheme = {run.scheme: [one for one in runs if one.scheme == run.scheme]
                 for run in runs}
    return [*worst_unmet(runs), *(
        f'{scheme}: {one}' for scheme, its in by_scheme.items()
        for one in mean_unmet(its))]


def worst_unmet(runs: Iterable[measure.Kept]) -> list[str]:
    """List the runs that are too far from the simulator."""
    return [f'{run.name}: {run.off:+.1%} off the simulator, '
            f'{WORST_TOLERANCE:.0%} allowed'
            for run in runs if abs(run.off) > WORST_TOLERANCE]


def mean_unmet(runs: Sequence[measure.Kept]) -> list[str]:
    """Say that runs are too far from the simulator in the mean, if so."""
    off = mean_off(runs)
    return [] if off <= MEAN_TOLERANCE else [
        f'{off:.1%} off in the mean, {MEAN_TOLERANCE:.0%} allowed']


def _notes(options: extent.Options, runs: Sequence[measure.Run]
           ) -> tuple[str, ...]:
    again = sum(run.tries > 1 for run in runs)
    beyond = sum(run.waited > measure.MOST_WAITED for run in runs)
    wide = [max(cases.MIN_VMS, round(row.width * options.scale.width_factor))
            for row in workloads.TABLE2]
    return (
        f'{options.scale.n_hosts} hypervisors of {options.scale.slots} slots '
        f'at {units.format_rate(options.scale.rate_bps)}, applications of '
        f'{min(wide)} to {max(wide)} VMs, {len(options.seeds)} seed(s). '
        '"off" compares the measured mean CCT of a run with the simulator\'s '
        'at the same placement and the cables\' rates: the mean of its '
        'absolute values over the seeds, and the furthest one.',
        f'Each run sends so much that its longest CCT is {measure.RUN_S:g} s '
        '(times the length in test case 5); times are given for the paper\'s '
        'bytes. Flows inside of a host send 1 MiB at most and count as 0.',
        'A run is repeated, whatever it measured, when a thread of the '
        f'testbed waited for more than {measure.MOST_WAITED:.0%} of it for a '
        f'processor, {measure.MOST_TRIES} runs at most: {again} of '
        f'{len(runs)} were, {beyond} stayed above. The machine was '
        f'{statistics.fmean(run.busy for run in runs):.0%} busy in the mean.',
        'SEBF-TA is the strong min-cut placement; the paper\'s own number '
        'is against its greedy one.')
