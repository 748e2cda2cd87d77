# SPDX-License-Identifier: Apache-2.0

"""VirtCO test cases 4 to 6, and how test case 2 depends on its sizes."""

from collections.abc import Mapping
import functools

from virtco_lab.sim import groups
from virtco_lab.sim import workloads
from virtco_lab.sim.figures import outcome
from virtco_lab.sim.figures import samples
from virtco_lab.sim.figures import virtco

COMPARED = ('baseline', 'sebf-ta-greedy', 'sebf-ta')
#: Spread of the flows' sizes, in parts of the drawn one.
SIGMAS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5)
_COLUMNS = (*virtco.times(virtco.FEW), ('bound s', samples.shown(
    virtco.BOUND)), ('above the bound %', virtco.gap()), *(
        (f'vs {name} %', virtco.saved(scheme)) for name, scheme in (
            ('Baseline', 'baseline'), ('TA greedy', 'sebf-ta-greedy'),
            ('TA min-cut', 'sebf-ta'), ('printed', 'virtco-printed'))))
_DRAWN = (*virtco.FEW, virtco.BOUND)
_NOTES = (virtco.TA_NOTE, virtco.SAVED_NOTE, virtco.BOUND_NOTE)


def _run(name: str, setting: str, seed: int, shape: str) -> samples.Found:
    word, value = setting.split()
    return virtco.mean_ccts_s(
        virtco.datacentre(seed, True), virtco.swept_groups(
            name, float(value), virtco.LOADS[word], seed, shape),
        virtco.FEW, seed)


def _swept(name: str, what: str, title: str, note: str,
           short: tuple[str, ...], ends: Mapping[str, tuple[float, float]],
           bands: tuple[outcome.Band, ...] = ()) -> samples.Figure:
    """Build the figure of a swept parameter.

    :param what: name of the swept quantity.
    :param ends: the paper's savings over schemes at the first and the last
        value, in percent.
    :param bands: ranges of savings in the paper's text, in percent.
    """
    values = [f'{value:g}' for value in virtco.SWEPT[name]]

    papers = {scheme: dict(zip((values[0], values[-1]), percents))
              for scheme, percents in ends.items()}
    table_of = {word: samples.by_setting(
        what, (('load', dict.fromkeys(values, word)), *_COLUMNS),
        virtco.panel(f'Average CCT, {word} load', what, _DRAWN),
        virtco.savings_panel(what, COMPARED, papers, bands, f', {word} load'))
        for word in virtco.LOADS}

    def table(found: samples.Samples) -> samples.Shown:
        shown = [table_of[word](samples.Samples(found.seeds, {
            setting.split()[1]: its for setting, its in found.values.items()
            if setting.split()[0] == word}))
            for word in dict.fromkeys(
                setting.split()[0] for setting in found.settings)]
        return (shown[0][0], [row for _, rows, _ in shown for row in rows],
                [panel for *_, panels in shown for panel in panels])

    return samples.Figure(
        name, title, tuple(f'{word} {value}' for word in virtco.LOADS
                           for value in values),
        functools.partial(_run, name), table,
        (note, 'With the background of test case 2. Under heavy load groups '
         'are as far apart as the fabric needs for all bytes of one, under '
         'light load twice as far. Those without room wait (not counted) '
         'until others have ended.', *_NOTES), ('shape',), short=short)


def _sigma_run(setting: str, seed: int, shape: str) -> samples.Found:
    coflows = workloads.table2(seed=seed, shape=shape,
                               tail_sigma=float(setting))
    return virtco.mean_ccts_s(virtco.datacentre(seed, True),
                              groups.of_coflows(coflows), virtco.FEW, seed)


FIGURES = (
    _swept('virtco-case4', 'width', 'Impact of width (VirtCO test case 4)',
           '20 coflows, 0.5 GB per VM, 2 GB at the longest. The paper: '
           'SEBF-TA\'s gain falls with the width, VirtCO keeps its own.',
           ('light 10', 'light 20'), {}),
    _swept('virtco-case5', 'length GB',
           'Impact of length (VirtCO test case 5)',
           '20 coflows of 20 VMs, five times the length in all. The paper: 40 '
           'to 50 % below Baseline and 17 to 20 % below SEBF-TA throughout.',
           ('light 1',), {}, (outcome.Band('paper, of Baseline', 40.0, 50.0),
                              outcome.Band('paper, of SEBF-TA', 17.0, 20.0))),
    _swept('virtco-case6', 'skew GB', 'Impact of skew (VirtCO test case 6)',
           '20 coflows of 20 VMs, 60 flows of '
           '1 GB on average; skew is the standard deviation of their sizes, '
           'the longest has 1 GB plus four times it. The '
           'paper: from 23.5 % below Baseline at 0.1 GB to 61.2 % at 3 GB, '
           'and from 7.1 % below SEBF-TA (its text names 30.6 % for the same '
           'point) to 40.5 %.', ('light 3',),
           {'baseline': (23.5, 61.2), 'sebf-ta-greedy': (7.1, 40.5)}),
    samples.Figure(
        'virtco-sigma', 'Impact of the spread of the flows\' sizes, σ',
        tuple(f'{sigma:g}' for sigma in SIGMAS), _sigma_run,
        samples.by_setting('σ', _COLUMNS,
                           virtco.panel('Average CCT', 'σ', _DRAWN),
                           virtco.savings_panel('σ', COMPARED)),
        ('The six applications of test case 2 with background; σ is the '
         'standard deviation of the logarithm of the flows\' sizes as drawn, '
         'before size and length are met. The papers do not say it; all '
         f'other figures have {workloads.TAIL_SIGMA:g}.', *_NOTES),
        ('shape',), short=('0', '1')))
