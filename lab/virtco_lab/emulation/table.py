# SPDX-License-Identifier: Apache-2.0

"""The demo's tables, 80 columns wide."""

import rich.box
import rich.console
import rich.table
import rich.text

from virtco import units
from virtco_lab.emulation import results as results_module
from virtco_lab.emulation import scenario

# Narrower than this, the predictions are left out.
_FULL_WIDTH = 80
_TIE = '*'


def show(results: results_module.Results,
         console: rich.console.Console) -> None:
    """Print a table per workload, and the notes."""
    for workload in results.workloads:
        console.print(build(workload, results, console.width))
    for note in notes(results):
        console.print(note, highlight=False, markup=False)


def build(workload: results_module.WorkloadResult,
          results: results_module.Results, width: int = _FULL_WIDTH
          ) -> rich.table.Table:
    """Build the table: a column per scheme and a row per coflow."""
    pairs = width >= _FULL_WIDTH
    shown = f'predicted → {results.measured}' if pairs else results.measured
    table = rich.table.Table(
        title=f'{workload.title}\ncompletion times in seconds: {shown}',
        title_style='bold', box=rich.box.SIMPLE_HEAD, pad_edge=False)
    table.add_column('coflow', no_wrap=True)
    table.add_column('size', justify='right', no_wrap=True)
    for scheme in workload.schemes:
        table.add_column(scheme.label, justify='right')

    def times(predicted_s: float, measured_s: float, tied: bool = False
              ) -> str:
        found = f'{predicted_s:.2f} → ' if pairs else ''
        mark = (_TIE if tied else ' ') if workload.has_ties else ''
        return f'{found}{measured_s:5.2f}{mark}'

    for first, *others in zip(*(scheme.coflows
                                for scheme in workload.schemes)):
        table.add_row(
            first.name, units.format_size(first.size_bytes),
            *(times(row.predicted_s, row.measured_s, row.tied)
              for row in (first, *others)))
    means = [(scheme.mean_predicted_s, scheme.mean_measured_s)
             for scheme in workload.schemes]
    table.add_section()
    table.add_row(_bold('average'), '',
                  *(_bold(times(*mean)) for mean in means))
    if workload.unit_s is not None:
        table.add_row(f'units of {workload.unit_s:g} s', '',
                      *(times(predicted / workload.unit_s,
                              measured / workload.unit_s)
                        for predicted, measured in means))
        table.add_row('in the paper', '', *(
            f'{mean:.2f} ' if workload.has_ties else f'{mean:.2f}'
            for mean in workload.paper_means))
    if workload.complete:
        table.add_row(_bold('virtco saves'), '', *(
            _bold(f'{saved:.0%}') for saved in workload.speed_ups()), '')
    return table


def notes(results: results_module.Results) -> list[str]:
    """Return the notes to print below the tables."""
    found = ['Partial: the run broke off.'] if results.partial else []
    found += results.notes
    if any(workload.has_ties for workload in results.workloads):
        found.append(
            f'{_TIE} As large as another one in the scheme\'s order, so that '
            'either may go first; predicted for the order that was taken.')
    for workload in results.workloads:
        unpaced = [f'{scheme.mean_unpaced_s:.2f}'
                   for scheme in workload.schemes]
        if unpaced != [f'{scheme.mean_predicted_s:.2f}'
                       for scheme in workload.schemes]:
            found.append(
                f'{workload.name}: the VMs of one host send each other '
                f'{scenario.LOCAL_PACE} times an uplink\'s rate at most, '
                'so that the processors have time for the uplinks. Without '
                'that limit the predicted averages are '
                + ', '.join(unpaced) + ' s.')
    return found


def _bold(text: str) -> rich.text.Text:
    return rich.text.Text(text, style='bold')
