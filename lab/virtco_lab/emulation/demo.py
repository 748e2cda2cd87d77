# SPDX-License-Identifier: Apache-2.0

"""The main job: the workloads under their schemes, shown and reported."""

from collections.abc import Callable
from collections.abc import Sequence
import contextlib
import dataclasses
import pathlib
import statistics
import webbrowser

import rich.console

from virtco import units
from virtco_lab.emulation import bed as beds
from virtco_lab.emulation import calibration
from virtco_lab.emulation import display as displays
from virtco_lab.emulation import report
from virtco_lab.emulation import results as results_module
from virtco_lab.emulation import runner
from virtco_lab.emulation import scenario
from virtco_lab.emulation import table
from virtco_lab.emulation import testbed as testbed_module
from virtco_lab.sim import schemes

ONLY = ('fig1', 'mix')
_BUSY_FRACTION = 0.95
#: Rate of the uplinks when none is measured.
DEFAULT_RATE_BPS = calibration.RATES_BPS[-1]


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """Options of ``virtco-emulate demo``.

    :ivar rate_bps: rate of the uplinks; None measures the rate that the
        machine carries.
    :ivar only: the workload to run, None = all of :data:`ONLY`.
    :ivar has_page: whether the controller's live page can be seen.
    :ivar order: order in which virtco serves coflows of the mix.
    """

    n_hosts: int
    rate_bps: float | None
    seed: int
    report_dir: pathlib.Path
    slow_host: str | None = None
    only: str | None = None
    has_page: bool = False
    order: str = scenario.VIRTCO.order

    @property
    def slots(self) -> int:
        """Slots of each hypervisor, chosen from the number of hypervisors."""
        return scenario.slots_per_host(self.n_hosts)

    def workloads(self, rate_bps: float) -> list[scenario.Workload]:
        """Make the workloads that were asked for."""
        made = {'fig1': lambda: scenario.fig1(rate_bps, self.slots),
                'mix': lambda: scenario.mix(
                    self.n_hosts, rate_bps, self.seed, order=self.order)}
        return [made[name]() for name in ONLY if self.only in (None, name)]


class Demo:
    """Run of the demo's workloads under their schemes.

    If it breaks off, :meth:`results` has the finished part.

    :param simulated: run the simulator instead of the testbed.
    """

    def __init__(self, options: Options, console: rich.console.Console,
                 simulated: bool):
        self._options = options
        self._display = displays.Display(console)
        self._simulated = simulated
        self._rate_bps = options.rate_bps or DEFAULT_RATE_BPS
        self._found: dict[str, results_module.WorkloadResult] = {}
        self._host_rates: tuple[results_module.HostRate, ...] = ()
        self._notes: list[str] = []
        self._complete = False

    def run(self) -> None:
        """Run all workloads; a testbed is removed at the end."""
        if self._simulated:
            self._each(lambda workload, scheme, progress, _: self._finish(
                workload, runner.run_simulated(
                    workload, scheme, self._rates_bps(), self._options.slots,
                    self._options.seed, progress)))
        else:
            self._emulate()
        self._complete = True

    def results(self) -> results_module.Results | None:
        """Return the results of finished schemes; None without one."""
        workloads = tuple(self._found.values())
        if not workloads:
            return None
        notes = [*self._notes, *_business(workloads)]
        if self._options.slow_host is not None:
            notes += _avoidance(self._options.slow_host, workloads)
        return results_module.Results(
            'simulated' if self._simulated else 'emulated',
            self._options.n_hosts, self._rate_bps, self._options.slots,
            self._options.seed, workloads, self._host_rates,
            tuple(notes), self._display.elapsed_s, not self._complete)

    def _emulate(self) -> None:
        options, display = self._options, self._display
        if options.rate_bps is None:
            self._choose_rate()
        bed = beds.Bed(
            self._rates_bps(), link_bps=self._rate_bps, slots=options.slots,
            has_nova=True, has_page=options.has_page,
            logs=options.report_dir / 'logs')
        with testbed_module.Testbed(bed, display.say) as testbed:
            if options.has_page:
                url = testbed.open_page()
                display.say(f'watch it at {url}')
                _browse(url)
            if not testbed.wait_measured():
                self._notes.append(
                    'Not every uplink was measured; the speed of the link '
                    'was used for the others.')
            self._host_rates = testbed.host_rates()
            display.say(_describe(self._host_rates))
            self._each(lambda workload, scheme, progress, is_last: (
                runner.run_emulated(
                    testbed, workload, scheme, progress, keep=is_last,
                    on_result=lambda result: self._finish(workload, result))))
            display.say('removing everything')

    def _choose_rate(self) -> None:
        carried_bps = calibration.measure_bps()
        self._rate_bps = calibration.choose_rate_bps(carried_bps,
                                                     self._options.n_hosts)
        self._display.say(
            f'this machine carries {units.format_rate(carried_bps)} of TCP: '
            f'{units.format_rate(self._rate_bps)} per uplink, '
            f'{scenario.LOCAL_PACE} times that inside of a host')

    def _each(self, run: Callable[[
            scenario.Workload, schemes.Scheme, displays.Progress, bool],
            object]) -> None:
        """Run each workload under each of its schemes.

        :param run: gets also whether it is the last one.
        """
        todo = [(workload, scheme)
                for workload in self._options.workloads(self._rate_bps)
                for scheme in workload.schemes]
        for left, (workload, scheme) in enumerate(todo, 1 - len(todo)):
            with self._display.progress(
                    f'{workload.name}: {scheme.label}') as progress:
                run(workload, scheme, progress, not left)

    def _rates_bps(self) -> dict[str, float]:
        """Return the real rate of each hypervisor's uplink."""
        return {host: self._rate_bps / (1 + (host == self._options.slow_host))
                for host in beds.host_names(self._options.n_hosts)}

    def _finish(self, workload: scenario.Workload,
                result: results_module.SchemeResult) -> None:
        known = self._found.get(workload.name)
        done = (*(known.schemes if known else ()), result)
        self._found[workload.name] = results_module.WorkloadResult(
            workload.name, workload.title, done, workload.unit_s,
            workload.paper_means[:len(done)],
            len(done) == len(workload.schemes))
        self._display.say(f'{workload.name}: {result.label}: average '
                          f'completion time {result.mean_measured_s:.2f} s')


def present(results: results_module.Results, options: Options,
            console: rich.console.Console) -> None:
    """Print the tables, write the report and say where it is."""
    table.show(results, console)
    path = report.write(results, options.report_dir)
    console.print(f'Report: {path.resolve()}', soft_wrap=True,
                  highlight=False)


def _browse(url: str) -> None:
    """Open a page in the browser of the desktop, where there is one.

    A browser in the terminal would cover the display of the run.
    """
    with contextlib.suppress(webbrowser.Error):
        found = webbrowser.get()
        if type(found) is not webbrowser.GenericBrowser:
            found.open(url)


def _describe(rates: tuple[results_module.HostRate, ...]) -> str:
    def shown(rate_bps: float | None) -> str:
        return '?' if rate_bps is None else f'{rate_bps / 1e6:.1f}'

    return 'measured out/in, Mbit/s: ' + ', '.join(
        f'{rate.host} {shown(rate.egress_bps)}/{shown(rate.ingress_bps)}'
        for rate in rates)


def _avoidance(slow_host: str,
               workloads: Sequence[results_module.WorkloadResult]
               ) -> list[str]:
    """Return notes on the bytes of each scheme over the halved uplink."""
    notes = []
    for workload in workloads:
        for scheme in workload.schemes:
            loads = {host: sum(both)
                     for host, both in scheme.uplink_bytes.items()}
            slow = units.format_size(loads.pop(slow_host))
            notes.append(
                f'{workload.name}: {scheme.label} moves {slow} over the '
                f'halved uplink of {slow_host}, and '
                f'{units.format_size(statistics.fmean(loads.values()))} over '
                'each other one on average.')
    return notes


def _business(workloads: Sequence[results_module.WorkloadResult]) -> list[str]:
    """Say when the machine had too little time left for the testbed."""
    busy = [scheme.busy_fraction for workload in workloads
            for scheme in workload.schemes
            if scheme.busy_fraction > _BUSY_FRACTION]
    if not busy:
        return []
    return [f'The processors were up to {max(busy):.0%} busy during '
            f'{len(busy)} transfers: measured times may be longer than on '
            f'an idle machine. A lower --rate sends fewer bytes.']
