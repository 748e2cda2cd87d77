# SPDX-License-Identifier: Apache-2.0

"""The demo's report: a self-contained HTML file, pictures, results.json."""

import io
import json
import pathlib

import jinja2
from matplotlib import ticker
import rich.console

from virtco import screenshot
from virtco import units
from virtco_lab.emulation import plots
from virtco_lab.emulation import results as results_module
from virtco_lab.emulation import table

_PICTURE_COLUMNS = 80
# Ticks on the axis of timeline.svg at most, and the place of the last one.
_TICKS = 6
_TIMELINE_PX = 600


def write(results: results_module.Results,
          directory: pathlib.Path) -> pathlib.Path:
    """Write results.json, table.svg, timeline.svg and report.html.

    :returns: the path of report.html.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / 'results.json').write_text(
        json.dumps(results.to_dict(), indent=1) + '\n')
    screen = rich.console.Console(file=io.StringIO(), record=True,
                                  width=_PICTURE_COLUMNS)
    table.show(results, screen)
    screenshot.save(screen, directory / 'table.svg', 'virtco-emulate demo')
    (directory / 'timeline.svg').write_text(timeline(results))
    path = directory / 'report.html'
    path.write_text(render(results))
    return path


def render(results: results_module.Results) -> str:
    """Return the text of report.html."""
    measured = results.measured
    return _template('report.html.j2').render(
        results=results, measured=measured, notes=table.notes(results),
        colours=plots.SCHEME_COLOURS, sections=[{
            'workload': one,
            'rows': list(zip(*(scheme.coflows for scheme in one.schemes))),
            'bars': plots.completion_bars(one, measured),
            'timelines': plots.timelines(one) if any(
                scheme.timeline for scheme in one.schemes) else None}
            for one in results.workloads],
        agreement=plots.agreement(results.workloads, measured))


def timeline(results: results_module.Results) -> str:
    """Draw when each coflow of the last workload ended, scheme by scheme.

    :returns: an SVG file with the colours of light and of dark pages.
    """
    workload = results.workloads[-1]
    longest_s = max(0.1, *(coflow.measured_s for scheme in workload.schemes
                           for coflow in scheme.coflows))
    ticks = ticker.MaxNLocator(_TICKS).tick_values(0, longest_s)
    return _template('timeline.svg.j2').render(
        workload=workload, sentence=results.sentence(),
        measured=results.measured, colours=plots.SCHEME_COLOURS,
        ticks=ticks, scale=_TIMELINE_PX / ticks[-1])


def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader('virtco_lab.emulation'), autoescape=True,
        undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True)
    environment.filters.update(
        rate=lambda bps: '–' if bps is None else units.format_rate(bps),
        size=units.format_size, percent=lambda share: f'{share * 100:.0f} %')
    return environment.get_template(name)
