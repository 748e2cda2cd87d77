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

"""VirtCO's test cases 1 and 2 with real TCP, beside the simulator.

The same applications, hosts and background as ``virtco-sim reproduce``, with
links and bytes scaled down together, so that completion times stay those of
the simulator's 1 Gbit/s. The controller places, the edge modules enforce;
what Nova does in between, ``virtco-emulate demo`` shows.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import pathlib

import numpy as np

from virtco.lab.emulation.display import Display
from virtco.lab.emulation import prediction
from virtco.lab.emulation import results
from virtco.lab.emulation import runner
from virtco.lab.emulation import scenario
from virtco.lab.emulation import testbed as testbed_module
from virtco.lab.sim import cloud
from virtco.lab.sim.figures import outcome
from virtco.lab.sim.figures import virtco as paper
from virtco.lab.sim import groups
from virtco.lab.sim import schemes
from virtco.lab.sim import workloads
from virtco.model import cluster
from virtco.model import coflow as coflow_model
from virtco import units

SCHEMES = ('baseline', 'sebf-ta', 'virtco')
#: What measured average CCTs may differ from the simulator's.
TOLERANCE = 0.15
# Mean CCT that each run is made to have by the sizes it sends: long enough for
# a start-up of tenths of a second to weigh little, not hours where a scheme is
# a hundred times as slow as another.
_RUN_S = 15.0
_LOCAL_BYTES = 2 ** 20


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """How much to run.

    :ivar rate_bps: of each uplink before the background takes its part.
    :ivar seeds: of workload and background.
    """

    rate_bps: float
    seeds: tuple[int, ...]
    shape: str
    logs: pathlib.Path


@dataclasses.dataclass(frozen=True, slots=True)
class Measured:
    """A workload under one scheme: mean CCTs in seconds.

    :ivar simulated_s: placed and run by the simulator.
    :ivar expected_s: run by the simulator where the controller placed the
        VMs.
    :ivar measured_s: with real TCP.
    """

    simulated_s: float
    expected_s: float
    measured_s: float


Found = dict[tuple[str, str], list[Measured]]


def case1(options: Options, display: Display) -> outcome.Outcome:
    """CCT of each application alone, on a nearly full datacentre."""
    found: Found = {}
    for seed in options.seeds:
        hosts = paper.datacentre(seed, background=True)
        with _datacentre(hosts, options, display) as testbed:
            for app in _apps(options, seed):
                free = paper.tight(hosts, seed, 1.5 * app.n_vms)
                _measure(testbed, free, [scenario.group_of(app)], seed,
                         options, display, app.name, found)
    names = [row.name for row in workloads.TABLE2]
    rows: list[tuple[outcome.Cell, ...]] = []
    for name in names:
        advice = paper.CASE1_PAPER[name.split('-')[0]]
        rows.append((
            name, *(cell for scheme in SCHEMES
                    for cell in _cells(found[name, scheme])),
            _saved(found, name, 'baseline'), advice['baseline'],
            _saved(found, name, 'sebf-ta'), advice['sebf-ta']))
    return outcome.Outcome(
        'emulated-case1', 'Single CCT on the emulated testbed '
        '(VirtCO test case 1)',
        ('application', *_headings(), 'vs Baseline %',
         'paper %', 'vs min-cut TA %', 'paper (TA) %'), tuple(rows),
        _panels(found, names, 'application'),
        _notes(options, found))


def case2(options: Options, display: Display) -> outcome.Outcome:
    """Average CCT of all six applications at once."""
    found: Found = {}
    labels = {False: 'no background', True: 'background'}
    for seed in options.seeds:
        its_groups = [scenario.group_of(app)
                      for app in _apps(options, seed)]
        for background, label in labels.items():
            hosts = paper.datacentre(seed, background)
            with _datacentre(hosts, options, display) as testbed:
                _measure(testbed, hosts, its_groups, seed, options, display,
                         label, found)
    names = list(labels.values())
    rows: list[tuple[outcome.Cell, ...]] = [
        (schemes.get(scheme).label,
         *(cell for name in names for cell in _cells(found[name, scheme])))
        for scheme in SCHEMES]
    for scheme in SCHEMES[:-1]:
        rows.append((f'virtco vs {schemes.get(scheme).label} %', *(
            cell for name in names for cell in (
                *_saved_by_all(found, name, scheme), None))))
    rows.append(('paper vs Baseline %', None, None,
                 paper.CASE2_PAPER[False, 'baseline'], *[None] * 5))
    rows.append(('paper vs its SEBF-TA %', *(
        cell for background in labels for cell in (
            None, None, paper.CASE2_PAPER[background, 'sebf-ta-greedy'],
            None))))
    return outcome.Outcome(
        'emulated-case2', 'Average CCT on the emulated testbed, seconds '
        '(VirtCO test case 2)',
        ('scheme', *(f'{name}: {what}' for name in names
                     for what in _COLUMNS)), tuple(rows),
        _panels(found, names, 'workload'),
        _notes(options, found))


FIGURES: dict[str, Callable[[Options, Display], outcome.Outcome]] = {
    'virtco-case1': case1, 'virtco-case2': case2}
_COLUMNS = ('simulated', 'same placement', 'measured', 'off %')


class _datacentre(testbed_module.Testbed):
    """A testbed with the rates that the background leaves of each host.

    The controller is told the links' speed and finds the rest out.
    """

    def __init__(self, hosts: Sequence[cluster.Host], options: Options,
                 display: Display):
        super().__init__(testbed_module.Config(
            paper.N_HOSTS, options.rate_bps, options.logs, paper.SLOTS,
            with_nova=False), display.say)
        self._rates_bps = _rates_bps(hosts, options)
        self._display = display

    def __enter__(self) -> '_datacentre':
        self._display.say(f'building {self.config.n_hosts} hypervisors')
        self.build()
        for host, rate_bps in self._rates_bps.items():
            if rate_bps < self.config.rate_bps:
                self.fabric.set_uplink_rate(host, rate_bps)
        self._display.say('starting controller and edge modules')
        self.start_services()
        self._display.say('measuring the uplinks with packet trains')
        self.wait_measured()
        return self


def _rates_bps(hosts: Sequence[cluster.Host], options: Options
               ) -> dict[str, float]:
    """The emulated cables have one rate for both ways: that of egress."""
    return {host.name: host.egress_bps / paper.LINK_BPS * options.rate_bps
            for host in hosts}


def _apps(options: Options, seed: int) -> list[coflow_model.Coflow]:
    scale = scenario.goodput_bps(options.rate_bps) / paper.LINK_BPS
    return [app.coflow for app in workloads.table2(
        seed=seed, shape=options.shape, scale_bytes=scale)]


def _measure(testbed: testbed_module.Testbed, hosts: Sequence[cluster.Host],
             its_groups: Sequence[scenario.Group], seed: int,
             options: Options, display: Display, label: str,
             found: Found) -> None:
    """Run one workload under each scheme, with only the hosts' slots free."""
    background = testbed.occupy({
        host.name: paper.SLOTS - round(host.free[0]) for host in hosts})
    try:
        for name in SCHEMES:
            scheme = _scheme(name)
            simulated_s = _simulate(hosts, its_groups, scheme, seed, options)
            # CCTs are proportional to the sizes.
            stretch = _RUN_S / simulated_s if simulated_s > 0 else 1.0
            result = _emulate(testbed, label, [
                _stretched(group, stretch) for group in its_groups], scheme,
                display)
            measured = Measured(simulated_s,
                                result.mean_predicted_s / stretch,
                                result.mean_measured_s / stretch)
            found.setdefault((label, name), []).append(measured)
            display.say(f'seed {seed}, {label}: {scheme.label}: '
                        f'{measured.measured_s:.2f} s, simulated '
                        f'{measured.expected_s:.2f} s where it was placed '
                        f'({simulated_s:.2f} s by the simulator\'s planner)')
    finally:
        testbed.vacate(background)


def _stretched(group: scenario.Group, stretch: float) -> scenario.Group:
    return dataclasses.replace(group, coflows=tuple(
        coflow.scaled(stretch) for coflow in group.coflows))


def _scheme(name: str) -> scenario.Scheme:
    known = schemes.get(name)
    return scenario.Scheme(name, known.label, known.planner, known.policy,
                           known.objective.value)


def _simulate(hosts: Sequence[cluster.Host],
              its_groups: Sequence[scenario.Group],
              scheme: scenario.Scheme, seed: int, options: Options) -> float:
    usable_bps = prediction.usable_bps(_rates_bps(hosts, options), scheme)
    found = cloud.simulate(
        [dataclasses.replace(host, egress_bps=usable_bps[host.name],
                             ingress_bps=usable_bps[host.name])
         for host in hosts],
        [groups.of_slots(group.name, group.coflows)
         for group in its_groups], schemes.get(scheme.name), seed=seed)
    return found.mean_cct_s


def _emulate(testbed: testbed_module.Testbed, label: str,
             its_groups: Sequence[scenario.Group], scheme: scenario.Scheme,
             display: Display) -> results.SchemeResult:
    workload = scenario.Workload(label, label, tuple(its_groups), (scheme,))
    with display.progress(f'{label}: {scheme.label}') as progress:
        return runner.run_emulated(testbed, workload, scheme, progress,
                                   local_bytes=_LOCAL_BYTES)


def _mean(rows: Sequence[Measured]) -> Measured:
    return Measured(*np.mean([dataclasses.astuple(row) for row in rows],
                             axis=0).tolist())


def _off(row: Measured) -> float:
    """How far the measured time is from the simulator's, %."""
    if row.expected_s == 0:
        return 0.0  # nothing crossed a link
    return 100 * (row.measured_s / row.expected_s - 1)


def _cells(rows: Sequence[Measured]) -> tuple[outcome.Cell, ...]:
    mean = _mean(rows)
    return (mean.simulated_s, mean.expected_s,
            outcome.shown([row.measured_s for row in rows]),
            round(_off(mean), 1))


def _headings() -> list[str]:
    return [f'{schemes.get(name).label}: {what}' for name in SCHEMES
            for what in _COLUMNS]


def _saved(found: Found, label: str, scheme: str) -> float:
    return _saved_by_all(found, label, scheme)[-1]


def _saved_by_all(found: Found, label: str, scheme: str
                  ) -> tuple[float, ...]:
    """Time saved over a scheme: simulated, same placement, measured; %."""
    ours = dataclasses.astuple(_mean(found[label, 'virtco']))
    theirs = dataclasses.astuple(_mean(found[label, scheme]))
    return tuple(round(outcome.reduction(a, b), 1)
                 for a, b in zip(ours, theirs))


def _panels(found: Found, labels: Sequence[str], x_label: str
            ) -> tuple[outcome.Panel, ...]:
    panels = []
    for title, field in (('Simulated, same placement', 'expected_s'),
                         ('Measured', 'measured_s')):
        series = []
        for name in SCHEMES:
            both = [outcome.spread([getattr(row, field)
                                    for row in found[label, name]])
                    for label in labels]
            series.append(outcome.Series(
                schemes.get(name).label, tuple(labels),
                tuple(mean for mean, _ in both),
                tuple(deviation for _, deviation in both)))
        panels.append(outcome.Panel('bars', title, x_label, 's',
                                    tuple(series), log_y=True))
    return tuple(panels)


def _notes(options: Options, found: Mapping[tuple[str, str],
                                            Sequence[Measured]]
           ) -> tuple[str, ...]:
    worst = max((abs(_off(_mean(rows))), key)
                for key, rows in found.items())
    within = sum(abs(_off(_mean(rows))) <= 100 * TOLERANCE
                 for rows in found.values())
    return (
        f'{paper.N_HOSTS} hypervisors at '
        f'{units.format_rate(options.rate_bps)}, {options.shape} matrices, '
        f'{len(options.seeds)} seed(s). "off" compares the measured time '
        'with the simulator\'s at the same placement.',
        f'Each run sends as much as makes its mean {_RUN_S:g} s; times are '
        'given for the sizes that the links\' scale asks for. Flows inside '
        'of a host send 1 MiB at most.',
        f'{within} of {len(found)} averages are within {TOLERANCE:.0%} of '
        f'the simulator; the furthest, {worst[1][0]} under '
        f'{schemes.get(worst[1][1]).label}, is {worst[0]:.1f} % off.',
        'SEBF-TA is the strong min-cut placement; the paper\'s own number '
        'is against its greedy one.')
