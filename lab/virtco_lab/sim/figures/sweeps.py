# SPDX-License-Identifier: Apache-2.0

"""VirtCO test cases 4 to 6, and how test case 2 depends on its sizes."""

import functools

from virtco_lab.sim import groups
from virtco_lab.sim import workloads
from virtco_lab.sim.figures import outcome
from virtco_lab.sim.figures import samples
from virtco_lab.sim.figures import virtco

#: Name of the swept quantity, title and note of each figure.
ABOUT = {
    'virtco-case4': (
        'width', 'Impact of width (VirtCO test case 4)',
        '20 coflows, 0.5 GB per VM, 2 GB at the longest. The paper: '
        'SEBF-TA\'s gain falls with the width, VirtCO keeps its own.'),
    'virtco-case5': (
        'length GB', 'Impact of length (VirtCO test case 5)',
        '20 coflows of 20 VMs, five times the length in all. The paper: 40 '
        'to 50 % below Baseline and 17 to 20 % below SEBF-TA throughout.'),
    'virtco-case6': (
        'skew GB', 'Impact of skew (VirtCO test case 6)',
        '20 coflows of 20 VMs, 60 flows of '
        '1 GB on average; skew is the standard deviation of their sizes, the '
        'longest has 1 GB plus four times it. The '
        'paper: from 23.5 % below Baseline at 0.1 GB to 61.2 % at 3 GB, and '
        'from 7.1 % below SEBF-TA (its text names 30.6 % for the same point) '
        'to 40.5 %.')}
#: Savings of VirtCO over Baseline and SEBF-TA in the paper's text, percent.
BANDS = {'virtco-case5': (
    outcome.Band('paper, of Baseline', 40.0, 50.0),
    outcome.Band('paper, of SEBF-TA', 17.0, 20.0))}
#: Savings at the values of the first and the last setting, percent.
ENDS = {'virtco-case6': {'baseline': (23.5, 61.2),
                         'sebf-ta-greedy': (7.1, 40.5)}}
SHORT = {'virtco-case4': ('light 10', 'light 20'),
         'virtco-case5': ('light 1',),
         'virtco-case6': ('light 3',)}
COMPARED = ('baseline', 'sebf-ta-greedy', 'sebf-ta')
#: Spread of the flows' sizes, in parts of the drawn one.
SIGMAS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5)


def figures() -> tuple[samples.Figure, ...]:
    """Return a figure for each swept parameter, and for the hints' errors."""
    return (*(samples.Figure(
        name, tuple(f'{word} {value:g}' for word in virtco.LOADS
                    for value in values),
        functools.partial(_run, name), functools.partial(_show, name),
        ('shape',), short=SHORT[name], against=virtco.AGAINST)
        for name, values in virtco.SWEPT.items()), samples.Figure(
            'virtco-sigma', tuple(f'{sigma:g}' for sigma in SIGMAS),
            _sigma_run, _sigma_show, ('shape',), short=('0', '1'),
            against=virtco.AGAINST))


def _run(name: str, setting: str, seed: int, shape: str) -> samples.Found:
    word, value = setting.split()
    return virtco.mean_ccts_s(
        virtco.datacentre(seed, True), virtco.swept_groups(
            name, float(value), virtco.LOADS[word], seed, shape),
        virtco.FEW, seed)


def _show(name: str, found: samples.Samples) -> outcome.Outcome:
    what, title, note = ABOUT[name]
    rows: list[tuple[outcome.Cell, ...]] = []
    panels = []
    for word in virtco.LOADS:
        names = {setting: setting.split()[1] for setting in found.settings
                 if setting.split()[0] == word}
        if not names:
            continue
        rows += [(value, word, *_cells(found, setting))
                 for setting, value in names.items()]
        panels.append(virtco.panel(f'Average CCT, {word} load', what, found,
                                   (*virtco.FEW, virtco.BOUND), names))
        values = tuple(names.values())
        panels.append(virtco.savings_panel(
            what, found, COMPARED, [
                virtco.papers_series(values, scheme, [
                    low if value == values[0] else
                    high if value == values[-1] else None
                    for value in values])
                for scheme, (low, high) in ENDS.get(name, {}).items()],
            BANDS.get(name, ()), names, f', {word} load'))
    return outcome.Outcome(
        name, title, (what, 'load', *_COLUMNS), tuple(rows), tuple(panels),
        (note, 'With the background of test case 2. Under heavy load groups '
         'are as far apart as the fabric needs for all bytes of one, under '
         'light load twice as far. Those without room wait (not counted) '
         'until others have ended.', virtco.TA_NOTE, virtco.SAVED_NOTE,
         virtco.BOUND_NOTE))


_COLUMNS = (*(f'{virtco.label(scheme)} s' for scheme in virtco.FEW),
            'bound s', 'above the bound %', 'vs Baseline %',
            'vs TA greedy %', 'vs TA min-cut %', 'vs printed %')


def _cells(found: samples.Samples, setting: str) -> tuple[outcome.Cell, ...]:
    return (*(outcome.shown(found.of(setting, series))
              for series in (*virtco.FEW, virtco.BOUND)),
            virtco.gap(found, setting), *(
                virtco.cell(found.saving(setting, scheme))
                for scheme in (*COMPARED, 'virtco-printed')))


def _sigma_run(setting: str, seed: int, shape: str) -> samples.Found:
    coflows = workloads.table2(seed=seed, shape=shape,
                               tail_sigma=float(setting))
    return virtco.mean_ccts_s(virtco.datacentre(seed, True),
                              groups.of_coflows(coflows), virtco.FEW, seed)


def _sigma_show(found: samples.Samples) -> outcome.Outcome:
    rows = tuple((setting, *_cells(found, setting))
                 for setting in found.settings)
    return outcome.Outcome(
        'virtco-sigma', 'Impact of the spread of the flows\' sizes, σ',
        ('σ', *_COLUMNS), rows,
        (virtco.panel('Average CCT', 'σ', found,
                      (*virtco.FEW, virtco.BOUND)),
         virtco.savings_panel('σ', found, COMPARED)),
        ('The six applications of test case 2 with background; σ is the '
         'standard deviation of the logarithm of the flows\' sizes as drawn, '
         'before size and length are met. The papers do not say it; all '
         f'other figures have {workloads.TAIL_SIGMA:g}.',
         virtco.TA_NOTE, virtco.SAVED_NOTE, virtco.BOUND_NOTE))
