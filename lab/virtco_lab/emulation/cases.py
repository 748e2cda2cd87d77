# SPDX-License-Identifier: Apache-2.0

"""Workloads of VirtCO's test cases 1 to 6, and of the gap, on the testbed.

From 18 hypervisors on they have the paper's size: 12 slots, Table 2's widths.
Below: 6 slots, applications of 4, 4 and 9 VMs, and 4 groups where the paper
sends 20 coflows. All groups of a test case start together.
"""

from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import pathlib
import types

import numpy as np

from virtco import exception
from virtco.model import cluster
from virtco.model import coflow as coflow_model
from virtco_lab.emulation import bed as beds
from virtco_lab.emulation import process
from virtco_lab.emulation import scenario
from virtco_lab.sim import workloads
from virtco_lab.sim.figures import virtco as paper

#: Free slots per VM in test case 1.
TIGHT = 1.5
_FEW_SLOTS = 6
_FEW_WIDTH = 0.225
#: VMs of the narrowest application.
MIN_VMS = 4
#: Widths of the paper's test case 4 and those of a small testbed, where a
#: group should be too wide for one host.
_WIDTHS: dict[bool, tuple[int, ...]] = {True: (5, 10, 20, 40),
                                        False: (5, 7, 8)}
_MIDDLE_WIDTH = {True: 20, False: 7}
_N_GROUPS = {True: 20, False: 4}
LENGTHS_GB = (0.5, 1.0, 2.0)
SKEWS_GB = (0.2, 1.0, 3.0)
_SWEPT_SHAPE = 'medium'
#: Few coflows on few hosts, so that the optimum can be proven.
GAP = 'virtco-gap'
#: VMs of each coflow, by their number: together about the slots that are free.
_GAP_WIDTHS = {3: 5, 4: 4, 5: 3}
_GAP_SIZES_GB = (4.0, 32.0)


@dataclasses.dataclass(frozen=True, slots=True)
class Scale:
    """Size of the testbed.

    :ivar rate_bps: rate of each uplink before the background takes its part.
    """

    n_hosts: int
    rate_bps: float

    @property
    def identity(self) -> tuple[int, float]:
        """Part of a run's key in a book."""
        return self.n_hosts, self.rate_bps

    @property
    def is_paper(self) -> bool:
        """Whether there are at least as many hypervisors as in the paper."""
        return self.n_hosts >= paper.N_HOSTS

    @property
    def slots(self) -> int:
        """Slots of each hypervisor: the paper's 12, or 6 below its size."""
        return paper.SLOTS if self.is_paper else _FEW_SLOTS

    @property
    def width_factor(self) -> float:
        """Factor on the number of VMs in Table 2; 1 at the paper's size."""
        return 1.0 if self.is_paper else _FEW_WIDTH

    @property
    def size_factor(self) -> float:
        """Bytes here for a byte on the paper's links."""
        return scenario.goodput_bps(self.rate_bps) / paper.LINK_BPS

    @property
    def widths(self) -> tuple[int, ...]:
        """Number of VMs of a group in each cell of test case 4."""
        return _WIDTHS[self.is_paper]


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """A workload of a test case; one run per seed and scheme.

    :ivar setting: application, width, length or skew.
    :ivar stretch: factor of the time that a run takes.
    """

    case: str
    setting: str
    shape: str
    background: bool
    stretch: float = 1.0

    @property
    def label(self) -> str:
        """How its table calls it."""
        with_it = 'background' if self.background else 'no background'
        return f'{self.setting} {self.shape}, {with_it}'.strip()

    @property
    def key(self) -> str:
        return f'{self.case}: {self.label}'


def cells(case: str, shapes: Sequence[str], scale: Scale) -> list[Cell]:
    """List the cells of a test case.

    :param shapes: shapes of the matrices, for test cases 1 to 3.
    """
    if case == 'virtco-case1':
        return [Cell(case, row.name, shape, True)
                for shape in shapes for row in workloads.TABLE2]
    if case == GAP:
        return [Cell(case, '', 'dense', True)]
    if case == 'virtco-case2':
        return [Cell(case, '', shape, background)
                for background in (False, True) for shape in shapes]
    swept: Iterable[float] = {
        'virtco-case4': scale.widths, 'virtco-case5': LENGTHS_GB,
        'virtco-case6': SKEWS_GB}[case]
    return [Cell(case, f'{value:g}', _SWEPT_SHAPE, True,
                 value if case == 'virtco-case5' else 1.0)
            for value in swept]


def hosts(scale: Scale, seed: int, background: bool
          ) -> tuple[cluster.Host, ...]:
    """Return the hypervisors with the slots and rates that are free.

    :param background: whether background VMs take slots at random, and 10 to
        70 % of each cable, the same both ways.
    """
    return paper.datacentre(seed, background, scale.n_hosts, scale.slots,
                            scale.rate_bps, is_symmetric=True)


def bed(scale: Scale, logs: pathlib.Path, seed: int = 0,
        background: bool = False, slots: int | None = None,
        controller: process.Options = types.MappingProxyType({})) -> beds.Bed:
    """Describe a testbed with the rates that the background leaves of each
    cable; the controller, which is told their speed, finds the rest out.

    :param slots: slots of each hypervisor, instead of the scale's.
    :param controller: options of the controller, by group.
    """
    return beds.Bed(
        {host.name: host.egress_bps
         for host in hosts(scale, seed, background)}, link_bps=scale.rate_bps,
        slots=slots or scale.slots, controller=controller, logs=logs)


def prepare(cell: Cell, scale: Scale, seed: int
            ) -> tuple[tuple[cluster.Host, ...], list[scenario.Group]]:
    """Return the free hosts of a cell and its groups, in scaled bytes."""
    free = hosts(scale, seed, cell.background)
    coflows = _coflows(cell, scale, seed)
    if cell.case == 'virtco-case1':
        coflows = [one for one in coflows if one.name == cell.setting]
        free = paper.tight(free, seed, TIGHT * coflows[0].n_vms)
    return free, [scenario.group_of(one.scaled(scale.size_factor))
                  for one in coflows]


def check_room(cell: Cell, scale: Scale, seed: int) -> None:
    """Check that the groups of a cell fit on the free hosts.

    :raises virtco.exception.Invalid: when they do not.
    """
    free, its_groups = prepare(cell, scale, seed)
    n_vms = sum(group.n_vms for group in its_groups)
    n_free = round(sum(host.free[0] for host in free))
    if n_vms > n_free:
        raise exception.Invalid(
            field='--hosts', value=f'{n_free} on {scale.n_hosts} hosts',
            limit=f'{n_vms} free slots for the VMs of {cell.key}')


def _coflows(cell: Cell, scale: Scale, seed: int) -> list[coflow_model.Coflow]:
    if cell.case == GAP:
        return _gap_coflows(seed)
    if cell.case in ('virtco-case1', 'virtco-case2'):
        return list(workloads.table2(
            seed=seed, shape=cell.shape, scale_width=scale.width_factor))
    return paper.swept_coflows(seed, cell.shape, paper.swept_sizes(
        cell.case, float(cell.setting), _MIDDLE_WIDTH[scale.is_paper]),
        _N_GROUPS[scale.is_paper])


def _gap_coflows(seed: int) -> list[coflow_model.Coflow]:
    """Draw three to five coflows, half of them shuffles."""
    rng = np.random.default_rng([seed, 9])
    n_coflows = 3 + seed % 3
    least, most = _GAP_SIZES_GB
    sizes_bytes = 1e9 * least * (most / least) ** rng.uniform(size=n_coflows)
    return [workloads.draw(
        f'c{number}', rng, n_vms=_GAP_WIDTHS[n_coflows], shape='dense',
        shuffle=number % 2 == 0, size_bytes=float(size_bytes),
        length_bytes=float(size_bytes) / 2)
        for number, size_bytes in enumerate(sizes_bytes)]
