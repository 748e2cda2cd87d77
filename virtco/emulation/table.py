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

"""The demo's table."""

import rich.console
import rich.table
import rich.text

from virtco.emulation import results as results_module
from virtco import units

_WIDTH = 118
_NTH = ('1st', '2nd', '3rd')


def console() -> rich.console.Console:
    """Of the terminal's width; wide enough for the table when piped."""
    found = rich.console.Console()
    if not found.is_terminal:
        return rich.console.Console(width=_WIDTH)
    return found


def build(results: results_module.Results) -> rich.table.Table:
    """One table: a section per workload, a column pair per scheme."""
    measured = ('measured' if results.mode == 'emulated' else 'simulated')
    table = rich.table.Table(
        title=f'Coflow completion times in seconds, {results.n_hosts} '
              f'hypervisors at {units.format_rate(results.rate_bps)}',
        caption='saved = (other − virtco) / other: the relative speed-up '
                'of VirtCO section 5.1')
    table.add_column('coflow', no_wrap=True)
    table.add_column('size', justify='right', no_wrap=True)
    for nth in _NTH:
        table.add_column(f'{nth} scheme\npredicted → {measured}',
                         justify='right')
    for nth in _NTH[:-1]:
        table.add_column(f'saved\nvs {nth}', justify='right')
    for workload in results.workloads:
        _add_section(table, workload)
    return table


def _add_section(table: rich.table.Table,
                 workload: results_module.WorkloadResult) -> None:
    table.add_row(_bold(workload.name), '',
                  *(_bold(scheme.label) for scheme in workload.schemes))
    for rows in zip(*(scheme.coflows for scheme in workload.schemes)):
        table.add_row(
            rows[0].name, units.format_size(rows[0].size_bytes),
            *(_times(row.predicted_s, row.measured_s) for row in rows),
            *_saved([row.measured_s for row in rows]))
    means = [(scheme.mean_predicted_s, scheme.mean_measured_s)
             for scheme in workload.schemes]
    table.add_row(_bold('average'), '',
                  *(_bold(_times(*mean)) for mean in means),
                  *map(_bold, _saved([mean for _, mean in means])))
    if workload.unit_s is not None:
        table.add_row(f'in units of {workload.unit_s:g} s', '',
                      *(_times(predicted / workload.unit_s,
                               measured / workload.unit_s)
                        for predicted, measured in means))
        table.add_row('in the paper', '',
                      *(f'{mean:.2f}' for mean in workload.paper_means))
    table.add_section()


def _times(predicted: float, measured: float) -> str:
    return f'{predicted:.2f} → {measured:5.2f}'


def _saved(measured_s: list[float]) -> list[str]:
    return [f'{results_module.relative_speed_up(other, measured_s[-1]):.0%}'
            for other in measured_s[:-1]]


def _bold(text: str) -> rich.text.Text:
    return rich.text.Text(text, style='bold')
