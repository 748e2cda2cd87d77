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

"""Panels as PNG files."""

import pathlib

import matplotlib
from matplotlib import figure as mpl_figure
import numpy as np

from virtco.lab.sim.figures import outcome

matplotlib.use('Agg')
_DPI = 110


def draw(result: outcome.Outcome, directory: pathlib.Path) -> pathlib.Path:
    """Write ``<name>.png`` with all panels side by side."""
    n_panels = len(result.panels)
    width = min(2, n_panels)
    height = -(-n_panels // width)
    figure = mpl_figure.Figure(figsize=(7.5 * width, 5.0 * height),
                               layout='constrained')
    figure.suptitle(result.title)
    for i, panel in enumerate(result.panels):
        axes = figure.add_subplot(height, width, i + 1)
        {'bars': _bars, 'lines': _lines, 'cdf': _cdf}[panel.kind](axes, panel)
        axes.set_title(panel.title, fontsize=10)
        axes.set_xlabel(panel.x_label)
        axes.set_ylabel(panel.y_label)
        if panel.log_y:
            axes.set_yscale('log')
            # A deviation above the mean would pull the axis far down.
            axes.set_ylim(bottom=_least(panel) / 2)
        axes.grid(axis='y', alpha=0.3)
    # Below the axes: nowhere else is always free. Panels share their series.
    figure.legend(*axes.get_legend_handles_labels(), fontsize=8, ncols=3,
                  loc='outside lower center')
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f'{result.name}.png'
    figure.savefig(path, dpi=_DPI)
    return path


def _least(panel: outcome.Panel) -> float:
    return min((y for series in panel.series for y in series.y if y > 0),
               default=1.0)


def _bars(axes, panel: outcome.Panel) -> None:  # type: ignore[no-untyped-def]
    groups = panel.series[0].x
    width = 0.84 / len(panel.series)
    for i, series in enumerate(panel.series):
        offset = (i - (len(panel.series) - 1) / 2) * width
        axes.bar(np.arange(len(groups)) + offset, series.y, width,
                 yerr=series.error, capsize=2, label=series.label)
    names = [str(group) for group in groups]
    axes.set_xticks(np.arange(len(names)), names)
    if max(map(len, names)) > 8:
        axes.tick_params('x', rotation=20)
        for label in axes.get_xticklabels():
            label.set_horizontalalignment('right')


def _lines(axes, panel: outcome.Panel) -> None:  # type: ignore[no-untyped-def]
    for series in panel.series:
        axes.errorbar(series.x, series.y, yerr=series.error, capsize=3,
                      marker='o', label=series.label)


def _cdf(axes, panel: outcome.Panel) -> None:  # type: ignore[no-untyped-def]
    for series in panel.series:
        values = np.sort(np.asarray(series.y))
        axes.step(values, (np.arange(len(values)) + 1) / len(values),
                  where='post', label=series.label)
    axes.set_ylim(0, 1)
