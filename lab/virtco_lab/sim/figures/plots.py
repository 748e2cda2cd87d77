# SPDX-License-Identifier: Apache-2.0

"""Panels as PNG files."""

import pathlib
from typing import Any

import numpy as np

from virtco_lab.sim.figures import outcome

_DPI = 110
_MARKERS = ('D', 's', '^', 'v')
_PAPER: dict[str, Any] = {'color': 'black', 'fillstyle': 'none',
                          'markersize': 7}


def draw(result: outcome.Outcome, directory: pathlib.Path) -> pathlib.Path:
    """Write ``<name>.png`` with all panels side by side.

    The papers' numbers are black markers, the ranges that they name are
    hatched.
    """
    # Few runs draw, and it takes as long to import as a small simulation.
    from matplotlib import figure as mpl_figure

    n_panels = len(result.panels)
    width = min(2, n_panels)
    height = -(-n_panels // width)
    figure = mpl_figure.Figure(figsize=(7.5 * width, 5.0 * height),
                               layout='constrained')
    figure.suptitle(result.title)
    handles: dict[str, Any] = {}
    names = dict.fromkeys(series.colour for panel in result.panels
                          for series in panel.series if not series.paper)
    colours = {name: f'C{i}' for i, name in enumerate(names)}
    for i, panel in enumerate(result.panels):
        axes = figure.add_subplot(height, width, i + 1)
        {'bars': _bars, 'lines': _lines, 'points': _lines,
         'cdf': _cdf, 'log cdf': _cdf}[panel.kind](axes, panel, colours)
        _bands(axes, panel)
        if panel.title != result.title:
            axes.set_title(panel.title, fontsize='medium')
        axes.set_xlabel(panel.x_label)
        axes.set_ylabel(panel.y_label)
        if panel.log_y:
            axes.set_yscale('log')
            # A deviation above the mean would pull the axis far down.
            axes.set_ylim(bottom=min((
                y for series in panel.series for y in series.y
                if y is not None and y > 0), default=1.0) / 2)
        axes.grid(axis='y', color='0.9')
        for handle, label in zip(*axes.get_legend_handles_labels()):
            handles.setdefault(label, handle)
    # Below the axes: nowhere else is always free.
    figure.legend(list(handles.values()), list(handles), fontsize='small',
                  ncols=3 * width, loc='outside lower center')
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f'{result.name}.png'
    figure.savefig(path, dpi=_DPI)
    return path


def _bars(axes: Any, panel: outcome.Panel, colours: dict[str, str]) -> None:
    ours = [series for series in panel.series if not series.paper]
    names = [str(group) for group in ours[0].x]
    width = 0.84 / len(ours)
    offsets = {}
    for i, series in enumerate(ours):
        offsets[series.label] = (i - (len(ours) - 1) / 2) * width
        axes.bar(np.arange(len(names)) + offsets[series.label],
                 _heights(series), width, yerr=series.error, capsize=2,
                 label=series.label, color=colours[series.colour])
    for series, marker in zip(_papers(panel), _MARKERS):
        offset = offsets.get(series.over or '', 0.0)
        axes.plot([names.index(str(x)) + offset for x in series.x],
                  _heights(series), marker, label=series.label, **_PAPER)
    axes.set_xticks(np.arange(len(names)), names)
    if max(map(len, names)) > 8:
        axes.tick_params('x', rotation=20)
        for label in axes.get_xticklabels():
            label.set_horizontalalignment('right')


def _heights(series: outcome.Series) -> list[float]:
    return [np.nan if y is None else y for y in series.y]


def _papers(panel: outcome.Panel) -> list[outcome.Series]:
    return [series for series in panel.series if series.paper]


def _lines(axes: Any, panel: outcome.Panel, colours: dict[str, str]) -> None:
    """Draw lines, or points through which others are seen."""
    style: dict[str, Any] = ({'linestyle': 'none', 'alpha': 0.4}
                             if panel.kind == 'points' else {})
    for series in panel.series:
        axes.errorbar(series.x, _heights(series), yerr=series.error,
                      capsize=3, marker='o' if series.marks else None,
                      label=series.label, color=colours[series.colour],
                      **style)


def _cdf(axes: Any, panel: outcome.Panel, colours: dict[str, str]) -> None:
    for series in panel.series:
        if series.paper:
            continue
        values = np.sort(np.asarray(series.y))
        colour = colours[series.colour]
        # There are ten colours, C0 to C9.
        axes.step(values, (np.arange(len(values)) + 1) / len(values),
                  where='post', label=series.label, color=colour,
                  linestyle='--' if len(colour) > 2 else '-')
    for series, marker in zip(_papers(panel), _MARKERS):
        axes.plot(series.x, series.y, marker, label=series.label, **_PAPER)
    axes.set_ylim(0, 1)
    if panel.kind == 'log cdf':
        axes.set_xscale('log')


def _bands(axes: Any, panel: outcome.Panel) -> None:
    for band, hatch in zip(panel.bands, ('//', '\\\\', '..')):
        fill = axes.axvspan if panel.kind == 'cdf' else axes.axhspan
        fill(band.low, band.high, facecolor='none', edgecolor='0.3',
             hatch=hatch, linewidth=0, zorder=3, label=band.label)
