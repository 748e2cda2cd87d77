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

"""The main job: the workloads under their schemes, shown and reported."""

import collections.abc
import contextlib
import dataclasses
import pathlib
import statistics
import time

import rich.console
import rich.progress

from virtco.emulation import report
from virtco.emulation import results as results_module
from virtco.emulation import runner
from virtco.emulation import scenario
from virtco.emulation import table
from virtco.emulation import testbed as testbed_module
from virtco import units

ONLY = ('fig1', 'mix')
_BUSY_FRACTION = 0.85


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What ``virtco-emulate demo`` was asked for.

    :ivar only: the workload to run, None = all of :data:`ONLY`.
    """

    n_hosts: int
    rate_bps: float
    seed: int
    report_dir: pathlib.Path
    slow_host: str | None = None
    only: str | None = None

    @property
    def slots(self) -> int:
        return scenario.slots_per_host(self.n_hosts)

    def workloads(self) -> list[scenario.Workload]:
        made = {'fig1': lambda: scenario.fig1(self.rate_bps, self.slots),
                'mix': lambda: scenario.mix(self.n_hosts, self.rate_bps,
                                            self.seed)}
        return [made[name]() for name in ONLY if self.only in (None, name)]


class Display:
    """A line per step with its time, and a bar while bytes move."""

    def __init__(self, console: rich.console.Console):
        self._console = console
        self._began_s = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began_s

    def say(self, text: str) -> None:
        self._console.print(f'[dim]{self.elapsed_s:6.1f} s[/dim]  {text}',
                            highlight=False)

    @contextlib.contextmanager
    def bar(self, text: str
            ) -> collections.abc.Iterator[runner.OnProgress]:
        with rich.progress.Progress(
                rich.progress.TextColumn('          {task.description}'),
                rich.progress.BarColumn(), rich.progress.DownloadColumn(),
                rich.progress.TransferSpeedColumn(),
                console=self._console, transient=True,
                disable=not self._console.is_terminal) as progress:
            task = progress.add_task(text, total=None)
            yield lambda done, total: progress.update(
                task, completed=done, total=total)


def emulate(options: Options,
            console: rich.console.Console) -> results_module.Results:
    """Run on the emulated testbed; everything is removed at the end."""
    display = Display(console)
    config = testbed_module.Config(
        options.n_hosts, options.rate_bps, options.report_dir / 'logs',
        options.slots, slow_host=options.slow_host)
    with testbed_module.Testbed(config) as testbed:
        display.say(f'building {options.n_hosts} hypervisors, uplinks of '
                    f'{units.format_rate(options.rate_bps)}')
        testbed.build()
        display.say('starting controller, edge modules and Nova')
        testbed.start_services()
        display.say('measuring the uplinks with packet trains')
        notes = [] if testbed.wait_measured() else [
            'Not every uplink was measured in time; the speed of the link '
            'was used for the others.']
        rates = testbed.host_rates()
        display.say(_describe(rates))
        todo = options.workloads()
        workloads = [_emulate_one(testbed, workload, display,
                                  is_last=workload is todo[-1])
                     for workload in todo]
        display.say('removing everything')
    notes += _business(workloads)
    if options.slow_host is not None:
        notes += _avoidance(options.slow_host, workloads)
    return results_module.Results(
        'emulated', options.n_hosts, options.rate_bps, config.slots,
        options.seed, tuple(workloads), rates, tuple(notes),
        display.elapsed_s)


def simulate(options: Options,
             console: rich.console.Console) -> results_module.Results:
    """The same workloads through the simulator, without root."""
    display = Display(console)
    rates_bps = dict.fromkeys(testbed_module.host_names(options.n_hosts),
                              options.rate_bps)
    if options.slow_host is not None:
        rates_bps[options.slow_host] /= 2
    workloads = []
    for workload in options.workloads():
        schemes = []
        for scheme in workload.schemes:
            display.say(f'{workload.name}: {scheme.label}')
            schemes.append(runner.run_simulated(
                workload, scheme, rates_bps, options.slots,
                options.seed))
        workloads.append(_workload_result(workload, schemes))
    notes = [] if options.slow_host is None else _avoidance(
        options.slow_host, workloads)
    return results_module.Results(
        'simulated', options.n_hosts, options.rate_bps,
        options.slots, options.seed, tuple(workloads),
        notes=tuple(notes), wall_s=display.elapsed_s)


def present(results: results_module.Results, options: Options,
            console: rich.console.Console) -> None:
    """Print the table, write the report and say where it is."""
    console.print(table.build(results))
    for note in results.notes:
        console.print(note)
    path = report.write(results, options.report_dir)
    console.print(f'Report: {path.resolve()}', soft_wrap=True,
                  highlight=False)


def _emulate_one(testbed: testbed_module.Testbed,
                 workload: scenario.Workload, display: Display,
                 is_last: bool) -> results_module.WorkloadResult:
    schemes = []
    for scheme in workload.schemes:
        title = f'{workload.name}: {scheme.label}'
        with display.bar(title) as on_progress:
            schemes.append(runner.run_emulated(
                testbed, workload, scheme,
                lambda step, title=title: display.say(  # type: ignore[misc]
                    f'{title}: {step}'),
                on_progress,
                keep=is_last and scheme is workload.schemes[-1]))
        display.say(f'{title}: average completion time '
                    f'{schemes[-1].mean_measured_s:.2f} s')
    return _workload_result(workload, schemes)


def _workload_result(workload: scenario.Workload,
                     schemes: list[results_module.SchemeResult]
                     ) -> results_module.WorkloadResult:
    return results_module.WorkloadResult(
        workload.name, workload.title, tuple(schemes), workload.unit_s,
        workload.paper_means)


def _describe(rates: tuple[results_module.HostRate, ...]) -> str:
    def shown(rate_bps: float | None) -> str:
        return '?' if rate_bps is None else f'{rate_bps / 1e6:.1f}'

    return 'measured out/in, Mbit/s: ' + ', '.join(
        f'{rate.host} {shown(rate.egress_bps)}/{shown(rate.ingress_bps)}'
        for rate in rates)


def _avoidance(slow_host: str, workloads: list[
        results_module.WorkloadResult]) -> list[str]:
    """What each scheme sends over the uplink that was halved."""
    notes = []
    for workload in workloads:
        for scheme in workload.schemes:
            loads = {host: sum(both)
                     for host, both in scheme.uplink_bytes.items()}
            others = [load for host, load in loads.items()
                      if host != slow_host]
            notes.append(
                f'{workload.name}: {scheme.label} moves '
                f'{units.format_size(loads[slow_host])} over the halved '
                f'uplink of {slow_host}, and '
                f'{units.format_size(statistics.fmean(others))} over each '
                f'other one on average.')
    return notes


def _business(workloads: list[results_module.WorkloadResult]) -> list[str]:
    """Say when the machine had too little time left for the testbed."""
    busy = [scheme.busy_fraction for workload in workloads
            for scheme in workload.schemes
            if scheme.busy_fraction > _BUSY_FRACTION]
    if not busy:
        return []
    return [f'The processors were up to {max(busy):.0%} busy during '
            f'{len(busy)} transfers: the measured times are longer than on '
            f'an idle machine. A lower --rate sends fewer bytes.']
