# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""The report's plots, as SVG text."""

import collections.abc
import io
import typing

import matplotlib
from matplotlib import figure
import numpy as np

from virtco.emulation import results as results_module
from virtco import units

matplotlib.use('Agg')

# Okabe and Ito's palette: distinct also to the colour-blind.
_COLOURS = ('#999999', '#e69f00', '#0072b2')
_COFLOW_COLOURS = ('#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9',
                   '#d55e00', '#f0e442', '#000000')
_SETTINGS: typing.Any = {
    'font.size': 9, 'axes.grid': True, 'grid.alpha': 0.3,
    'axes.axisbelow': True, 'axes.spines.top': False,
    'axes.spines.right': False, 'svg.fonttype': 'none'}


def completion_bars(workload: results_module.WorkloadResult) -> str:
    """Measured CCT per coflow and scheme, with the prediction as a mark."""
    names = [coflow.name for coflow in workload.schemes[0].coflows]
    names.append('average')
    width = 0.8 / len(workload.schemes)
    with matplotlib.rc_context(_SETTINGS):
        made = figure.Figure(figsize=(7.5, 3.2), layout='constrained')
        axes = made.subplots()
        for number, scheme in enumerate(workload.schemes):
            at = np.arange(len(names)) + (number - 1) * width
            measured = [c.measured_s for c in scheme.coflows]
            predicted = [c.predicted_s for c in scheme.coflows]
            axes.bar(at, [*measured, scheme.mean_measured_s], width,
                     color=_COLOURS[number], label=scheme.label)
            axes.plot(at, [*predicted, scheme.mean_predicted_s], 'k_',
                      markersize=10,
                      label='predicted' if number == 0 else None)
        axes.set_xticks(np.arange(len(names)), names)
        axes.set_ylabel('completion time (s)')
        axes.grid(axis='x', visible=False)
        axes.legend(fontsize=8)
        return _svg(made)


def agreement(workloads: collections.abc.Sequence[
        results_module.WorkloadResult], measured_label: str) -> str:
    """Measured against predicted CCT of every coflow."""
    with matplotlib.rc_context(_SETTINGS):
        made = figure.Figure(figsize=(4.4, 4.0), layout='constrained')
        axes = made.subplots()
        largest = 0.1
        for marker, workload in zip('os^v', workloads):
            for colour, scheme in zip(_COLOURS, workload.schemes):
                predicted = [c.predicted_s for c in scheme.coflows]
                measured = [c.measured_s for c in scheme.coflows]
                largest = max(largest, *predicted, *measured)
                axes.plot(predicted, measured, marker, color=colour,
                          label=f'{workload.name}: {scheme.label}',
                          linestyle='none', markersize=5)
        ends = np.array([0, largest * 1.05])
        axes.plot(ends, ends, color='black', linewidth=0.8)
        axes.fill_between(ends, ends * 0.9, ends * 1.1, color='black',
                          alpha=0.08, label='± 10 %')
        axes.set_xlabel('predicted completion time (s)')
        axes.set_ylabel(f'{measured_label} completion time (s)')
        axes.legend(fontsize=7)
        return _svg(made)


def timelines(workload: results_module.WorkloadResult) -> str:
    """Rate of every coflow over the fabric, one panel per scheme."""
    shown = [s for s in workload.schemes if s.timeline]
    with matplotlib.rc_context(_SETTINGS):
        made = figure.Figure(figsize=(7.5, 1.7 * len(shown) + 0.4),
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
            axes.set_title(scheme.label, fontsize=9, loc='left')
            axes.set_ylabel('Mbit/s')
        panels[-1].set_xlabel('time since the common start (s)')
        panels[0].legend(fontsize=7, loc='upper right', ncols=3)
        return _svg(made)


def _smooth(rows: np.ndarray, width: int) -> np.ndarray:
    """Moving average over bins: super-packets come in lumps."""
    if len(rows) < width:
        return rows
    kernel = np.ones(width) / width
    return np.apply_along_axis(np.convolve, 0, rows, kernel, mode='same')


def _svg(made: figure.Figure) -> str:
    """The ``<svg>`` element alone, for use inside HTML."""
    text = io.StringIO()
    made.savefig(text, format='svg', metadata={'Date': None})
    return text.getvalue()[text.getvalue().index('<svg'):]
