# SPDX-License-Identifier: Apache-2.0

"""The report's plots, as SVG text, narrow enough for a phone."""

from collections.abc import Sequence
import html
import io
import textwrap
from typing import Any

import matplotlib
from matplotlib import figure
import numpy as np

from virtco import units
from virtco_lab.emulation import results as results_module

# A colour per scheme, of Okabe and Ito's palette, distinct also to the
# colour-blind; coflows have colours that none of the schemes has.
SCHEME_COLOURS = ('#999999', '#e69f00', '#0072b2')
_COFLOW_COLOURS = ('#1b9e77', '#e7298a', '#7570b3', '#66a61e', '#a6761d',
                   '#66c2a5', '#bc80bd', '#1a1a1a')
_WIDTH_IN = 4.6
_SETTINGS: Any = {
    'font.size': 9, 'axes.titlesize': 9.5, 'axes.grid': True,
    'grid.alpha': 0.3, 'axes.axisbelow': True, 'axes.spines.top': False,
    'axes.spines.right': False, 'svg.fonttype': 'none'}


def completion_bars(workload: results_module.WorkloadResult,
                    measured: str) -> str:
    """Draw measured CCTs by coflow and scheme, and predictions as marks."""
    first, *_ = workload.schemes
    names = [*(coflow.name for coflow in first.coflows), 'average']
    width = 0.8 / len(workload.schemes)
    with matplotlib.rc_context(_SETTINGS):
        made = figure.Figure(figsize=(_WIDTH_IN, 3.4), layout='constrained')
        axes = made.subplots()
        for number, scheme in enumerate(workload.schemes):
            at = (np.arange(len(names))
                  + (number - (len(workload.schemes) - 1) / 2) * width)
            axes.bar(at, [*(c.measured_s for c in scheme.coflows),
                          scheme.mean_measured_s], width,
                     color=SCHEME_COLOURS[number], label=scheme.label)
            axes.plot(at, [*(c.predicted_s for c in scheme.coflows),
                           scheme.mean_predicted_s], 'k_', markersize=8,
                      label='predicted' if number == 0 else None)
        axes.set_xticks(np.arange(len(names)), names, rotation=25, ha='right')
        axes.set_ylabel('completion time (s)')
        axes.set_title(f'Completion times, {measured} and predicted',
                       loc='left')
        axes.grid(axis='x', visible=False)
        axes.legend(fontsize=8)
        return _svg(made, f'Bars: {measured} completion times. ' + ' '.join(
            f'{scheme.label}: ' + ', '.join(
                f'{c.name} {c.measured_s:.1f} s' for c in scheme.coflows)
            + f'; average {scheme.mean_measured_s:.1f} s.'
            for scheme in workload.schemes))


def agreement(workloads: Sequence[results_module.WorkloadResult], measured: str
              ) -> str:
    """Draw the measured against the predicted CCT of every coflow."""
    with matplotlib.rc_context(_SETTINGS):
        made = figure.Figure(figsize=(_WIDTH_IN, 4.6), layout='constrained')
        axes = made.subplots()
        largest, n_near, n_all = 0.1, 0, 0
        for marker, workload in zip('os^v', workloads):
            for colour, scheme in zip(SCHEME_COLOURS, workload.schemes):
                times = [(c.predicted_s, c.measured_s)
                         for c in scheme.coflows]
                largest = max(largest, *map(max, times))
                n_all += len(times)
                n_near += sum(abs(m - p) <= 0.1 * p for p, m in times)
                axes.plot(*zip(*times), marker, color=colour,
                          label=f'{workload.name}: {scheme.label}',
                          linestyle='none', markersize=5)
        ends = np.array([0, largest * 1.05])
        axes.plot(ends, ends, color='black', linewidth=0.8)
        axes.fill_between(ends, ends * 0.9, ends * 1.1, color='black',
                          alpha=0.08, label='± 10 %')
        axes.set_xlabel('predicted completion time (s)')
        axes.set_ylabel(f'{measured} completion time (s)')
        axes.set_title(f'{measured.capitalize()} against predicted',
                       loc='left')
        axes.legend(fontsize=7.5, loc='upper left')
        return _svg(made, f'Points: {n_near} of {n_all} {measured} '
                    'completion times are within 10 % of the predicted ones.')


def timelines(workload: results_module.WorkloadResult) -> str:
    """Draw the rate of every coflow over the fabric, one panel per scheme."""
    shown = [s for s in workload.schemes if s.timeline]
    with matplotlib.rc_context(_SETTINGS):
        made = figure.Figure(figsize=(_WIDTH_IN, 1.6 * len(shown) + 1.0),
                             layout='constrained')
        panels = made.subplots(len(shown), 1, sharex=True, sharey=True,
                               squeeze=False)[:, 0]
        for axes, scheme in zip(panels, shown):
            rates = np.array(scheme.timeline, float)
            mbps = units.bytes_per_s_to_bps(1) * rates / scheme.bin_s / 1e6
            at = (np.arange(len(rates)) + 0.5) * scheme.bin_s
            axes.stackplot(at, _smooth(mbps, 3).T, step='mid',
                           colors=_COFLOW_COLOURS,
                           labels=[c.name for c in scheme.coflows])
            axes.set_title(scheme.label, loc='left')
            axes.set_ylabel('Mbit/s')
        axes.set_xlabel('time since the common start (s)')
        handles, labels = axes.get_legend_handles_labels()
        made.suptitle('Rates of the coflows over the fabric', fontsize=9.5,
                      x=0.02, ha='left')
        made.legend(handles, labels, fontsize=7.5, ncols=3,
                    loc='outside lower center')
        return _svg(made, 'Stacked areas: Mbit/s of each coflow over time. '
                    + ' '.join(
                        f'Under {scheme.label} the last byte arrives after '
                        f'{len(scheme.timeline) * scheme.bin_s:.1f} s.'
                        for scheme in shown))


def _smooth(rows: np.ndarray, width: int) -> np.ndarray:
    """Average over ``width`` bins: super-packets come in lumps."""
    if len(rows) < width:
        return rows
    kernel = np.ones(width) / width
    return np.apply_along_axis(np.convolve, 0, rows, kernel, mode='same')


def _svg(made: figure.Figure, words: str) -> str:
    """Render the ``<svg>`` element with words for screen readers."""
    text = io.StringIO()
    made.savefig(text, format='svg', metadata={'Date': None})
    found = text.getvalue()[text.getvalue().index('<svg'):]
    spoken = html.escape(textwrap.shorten(words, 1000))
    return found.replace('<svg', f'<svg role="img" aria-label="{spoken}"', 1)
