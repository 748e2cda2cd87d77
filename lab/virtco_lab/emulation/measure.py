# SPDX-License-Identifier: Apache-2.0

"""Runs cells of the test cases with real TCP, and keeps each run on disk.

The controller places and the edge modules enforce. Each measured time is kept
with two of the simulator: one where the controller placed the VMs, one where
its own planner places them. A file of runs is a line of JSON per run. Runs in
it are not repeated, so an evaluation may stop and go on, and several processes
may share one directory.
"""

from collections.abc import Callable
from collections.abc import Sequence
import contextlib
import dataclasses
import functools
import itertools
import pathlib
from typing import Any
from typing import Protocol
from typing import TypeVar

import msgspec

from virtco.model import cluster
from virtco_lab.emulation import cases
from virtco_lab.emulation import extent
from virtco_lab.emulation import prediction
from virtco_lab.emulation import results
from virtco_lab.emulation import runner
from virtco_lab.emulation import scenario
from virtco_lab.emulation import testbed as testbed_module
from virtco_lab.emulation.display import Display
from virtco_lab.sim import cloud
from virtco_lab.sim import groups
from virtco_lab.sim import schemes

SCHEMES = ('baseline', 'sebf-ta', 'virtco')
#: Schemes of test case 2, which tells placement and order apart.
ALL_SCHEMES = ('baseline', 'fs-ta', 'sebf-r', 'sebf-ta', 'virtco-tcp',
               'virtco')
#: The longest CCT of each run, by the sizes it sends: long enough for a
#: start-up of tenths of a second to weigh little, not hours where one scheme
#: is a hundred times as slow as another.
RUN_S = 6.0
#: A run counts when no thread of the testbed waited longer than this share of
#: it for a processor. Otherwise it is repeated, whatever it measured.
MOST_WAITED = 0.25
#: Most tries of a run; after them the one that waited least counts.
MOST_TRIES = 3
#: Schemes by test case, where not :data:`SCHEMES` are compared.
_SCHEMES_OF = {'virtco-case2': ALL_SCHEMES, cases.GAP: (
    'baseline', 'fs-ta', 'sebf-r', 'sebf-ta', 'sincronia', 'virtco-tcp',
    'virtco', 'virtco-joint')}
RANDOM = 'random'
_LOCAL_BYTES = 2 ** 20
_DIGITS = 5

#: Fields that tell a run from all others.
Identity = tuple[str | float, ...]
T = TypeVar('T')


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """Result of one workload under one scheme.

    Times are in seconds, for the paper's bytes.

    :ivar key: key of the cell.
    :ivar simulated_s: mean CCT, placed and run by the simulator.
    :ivar expected_s: mean CCT, simulated where the controller placed the VMs.
    :ivar measured_s: mean CCT with real TCP.
    :ivar coflows: name, expected and measured CCT of each.
    :ivar stretch: sizes that were sent over those of the cell.
    :ivar placing_s: time to place all groups, with the requests and the VMs'
        start.
    :ivar tries: runs of which this is the one that counts.
    :ivar timeline: bytes of each coflow that arrived, per ``bin_s``.
    :ivar hosts: host of each VM, by coflow.
    """

    key: str
    scheme: str
    seed: int
    n_hosts: int
    rate_bps: float
    simulated_s: float
    expected_s: float
    measured_s: float
    coflows: tuple[tuple[str, float, float], ...]
    stretch: float
    placing_s: float
    waited: float
    busy: float
    edge_cpu: tuple[float, ...]
    retransmits: int
    tries: int = 1
    bin_s: float = 0.0
    timeline: tuple[tuple[int, ...], ...] = ()
    hosts: tuple[tuple[str, ...], ...] = ()

    @property
    def name(self) -> str:
        return f'{self.key}, {self.scheme}, seed {self.seed}'

    @property
    def off(self) -> float:
        """Relative difference of the measured mean CCT from the expected."""
        if self.expected_s == 0:
            return 0.0  # nothing crossed a link
        return self.measured_s / self.expected_s - 1

    @property
    def identity(self) -> Identity:
        """Key in a book: cell, scheme, seed, number of hosts, uplink rate."""
        return self.key, self.scheme, self.seed, self.n_hosts, self.rate_bps


class Kept(Protocol):
    """A run that a book keeps, a data class."""

    @property
    def identity(self) -> Identity:
        """Key in a book, which tells a run from all others."""

    @property
    def name(self) -> str:
        """Workload, scheme and seed of the run."""

    @property
    def off(self) -> float:
        """Relative difference of the measured mean CCT from the simulated."""


K = TypeVar('K', bound=Kept)


class Book(dict[Identity, K]):
    """The runs of a file by their identities, a line of JSON for each.

    :param kind: class of the runs.
    """

    def __init__(self, path: pathlib.Path, kind: type[K]):
        self._path = path
        for line in path.read_text().splitlines() if path.exists() else ():
            # A process that was killed wrote a part of a line.
            with contextlib.suppress(msgspec.DecodeError):
                found = msgspec.json.decode(line, type=kind)
                self[found.identity] = found

    def add(self, run: K) -> None:
        """Keep a run, also in the file."""
        self[run.identity] = run
        with self._path.open('ab') as file:
            file.write(b'\n%b\n' % msgspec.json.encode(run))


def run(wanted: Sequence[cases.Cell], options: extent.Options,
        scale: cases.Scale) -> dict[tuple[cases.Cell, str], list[Run]]:
    """Run the cells that are not in the directory's book yet.

    :param scale: size of the testbed instead of the options'.
    :returns: the run of each seed, by cell and scheme.
    """
    book = Book(options.directory / 'runs.jsonl', Run)
    seeds = options.seeds

    def identity(cell: cases.Cell, name: str, seed: int) -> Identity:
        return cell.key, name, seed, *scale.identity

    for seed in seeds:
        for cell in wanted:
            cases.check_room(cell, scale, seed)
    # All seeds have the same links if there is no background.
    for background, some in ((False, seeds),
                             *((True, (seed,)) for seed in seeds)):
        todo = [(seed, cell, name) for seed in some for cell in wanted
                if cell.background == background
                for name in schemes_of(cell.case)
                if identity(cell, name, seed) not in book]
        if not todo:
            continue
        logs = options.directory / 'logs' / f'{some[0]}-{int(background)}'
        with testbed_module.Testbed(
                cases.bed(scale, logs, some[0], background), options.say
                ) as testbed:
            testbed.wait_measured()
            for (seed, cell), rows in itertools.groupby(
                    todo, lambda row: row[:2]):
                _run_cell(testbed, cell, [name for *_, name in rows], seed,
                          scale, book, options.display)
    return {(cell, name): [book[identity(cell, name, seed)] for seed in seeds]
            for cell in wanted for name in schemes_of(cell.case)}


def _run_cell(testbed: testbed_module.Testbed, cell: cases.Cell,
              names: Sequence[str], seed: int, scale: cases.Scale,
              book: Book[Run], display: Display) -> None:
    free, its_groups = cases.prepare(cell, scale, seed)
    background = testbed.occupy({
        host.name: scale.slots - round(host.free[0]) for host in free})
    try:
        for name in names:
            tried = repeat(functools.partial(
                _once, testbed, cell, free, its_groups, name, seed, scale,
                display))
            book.add(tried)
            display.say(
                f'seed {seed}, {cell.key}, {name}: {tried.measured_s:.3g} s, '
                f'simulated {tried.expected_s:.3g} s where it was placed '
                f'({tried.off:+.1%}; {tried.simulated_s:.3g} s by the '
                f'simulator\'s planner; waited {tried.waited:.1%}, try '
                f'{tried.tries})')
    finally:
        testbed.vacate(background)


def repeat(once: Callable[[], T]) -> T:
    """Run until the machine did not disturb it, for any result.

    :param once: makes a run with the fields ``waited`` and ``tries``.
    """
    tried: list[Any] = []
    while not tried or (tried[-1].waited > MOST_WAITED
                        and len(tried) < MOST_TRIES):
        tried.append(once())
    found: T = dataclasses.replace(min(tried, key=lambda run: run.waited),
                                   tries=len(tried))
    return found


def _once(testbed: testbed_module.Testbed, cell: cases.Cell,
          free: Sequence[cluster.Host], its_groups: Sequence[scenario.Group],
          name: str, seed: int, scale: cases.Scale, display: Display) -> Run:
    scheme = scheme_of(name)
    rates_bps = {host.name: host.egress_bps for host in free}
    usable_bps = prediction.usable_bps(rates_bps, scheme)
    simulated = cloud.simulate(
        [dataclasses.replace(host, egress_bps=usable_bps[host.name],
                             ingress_bps=usable_bps[host.name])
         for host in free],
        [groups.of_slots(group.name, group.coflows) for group in its_groups],
        schemes.get(name), seed=seed)
    # CCTs are proportional to the sizes.
    longest_s = max(row.cct_s for row in simulated.coflows)
    stretch = cell.stretch * RUN_S / longest_s if longest_s > 0 else 1.0
    sent = [dataclasses.replace(group, coflows=tuple(
        coflow.scaled(stretch) for coflow in group.coflows))
        for group in its_groups]
    workload = scenario.Workload(cell.key, cell.key, tuple(sent), (scheme,))
    with display.progress(f'{cell.key}: {scheme.label}') as progress:
        found = runner.run_emulated(
            testbed, workload, scheme, progress, local_bytes=_LOCAL_BYTES,
            # No planner of the controller's places at random, and groups are
            # launched one after another.
            hosts=simulated.hosts if schemes.get(name).planner == RANDOM
            or schemes.get(name).window_s is not None else None)
    # Rates of the cables themselves, not those that the controller measured.
    expected_s = prediction.simulate_as_taken(
        prediction.placed_coflows(workload, found.hosts), usable_bps,
        scheme.order, [row.measured_s for row in found.coflows])
    return _made(cell, name, seed, scale, simulated.mean_cct_s, stretch,
                 found, expected_s)


def _made(cell: cases.Cell, name: str, seed: int, scale: cases.Scale,
          simulated_s: float, stretch: float, found: results.SchemeResult,
          expected_s: Sequence[float]) -> Run:
    """Build the record of a run, scaled to the paper's bytes."""
    # A coflow that stayed inside of a host has no time in the model.
    pairs = [(row.name, expected / stretch,
              row.measured_s / stretch if expected > 0 else 0.0)
             for row, expected in zip(found.coflows, expected_s)]
    count = len(pairs)
    return Run(
        cell.key, name, seed, scale.n_hosts, scale.rate_bps, simulated_s,
        sum(expected for _, expected, _ in pairs) / count,
        sum(measured for *_, measured in pairs) / count,
        tuple((label, round(one, _DIGITS), round(other, _DIGITS))
              for label, one, other in pairs),
        stretch, found.placing_s, found.waited_fraction, found.busy_fraction,
        tuple(round(share, _DIGITS) for share in found.edge_cpu.values()),
        found.retransmits, bin_s=found.bin_s, timeline=found.timeline,
        hosts=tuple(found.hosts.values()))


def schemes_of(case: str) -> tuple[str, ...]:
    """Return the names of the schemes that a test case compares."""
    return _SCHEMES_OF.get(case, SCHEMES)


def scheme_of(name: str) -> schemes.Scheme:
    """Return a scheme of the simulator with a planner of the controller's."""
    known = schemes.get(name)
    return (dataclasses.replace(known, planner='spread')
            if known.planner == RANDOM else known)
