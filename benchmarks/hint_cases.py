# SPDX-License-Identifier: Apache-2.0

"""Coflows with hints of every quality, and the fluid that carries them. Pure.

Every other coflow has three or more senders and one receiver, the others are
shuffles (:data:`SHAPES`). The bytes that each receiver gets are log-normal,
cut off at 1.5 sigma so that no coflow alone fills the busiest link. Coflows
arrive as a Poisson process whose rate makes the busiest link carry the wanted
load on average. The planner chooses the hosts with exact hints, one VM of a
coflow to a host; all qualities and loads keep these hosts.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import itertools

import numpy as np
from oslo_config import cfg

from benchmarks import hint_ideal
from virtco import units
from virtco.conf import scheduler_options as scheduler
from virtco.decide import loop
from virtco.model import cluster
from virtco.model import coflow as coflow_model
from virtco.model import snapshot as planning
from virtco.solver import budget
from virtco.solver import planner
from virtco.state import schedule_input
from virtco_lab.emulation import cases
from virtco_lab.emulation import misled
from virtco_lab.emulation import scenario
from virtco_lab.sim import claims
from virtco_lab.sim import controlled
from virtco_lab.sim import groups
from virtco_lab.sim import optimum

#: Of a link, on the wire, where nothing else is said.
RATE_BPS = 20e6


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """:ivar most_senders: to one receiver.
    :ivar most_ends: senders, and receivers, of a shuffle.
    """

    n_coflows: int
    most_senders: int
    most_ends: int


#: By the number of hosts.
SHAPES = {6: Shape(16, 5, 3), 18: Shape(36, 8, 6)}
#: What the busiest link sends in a run takes so long.
BUSY_S = 15.0
NONE, LIAR = 'none', 'liar'
FOREIGN_TCP, FOREIGN_UDP = 'foreign-tcp', 'foreign-udp'
#: Plain TCP beside the datagrams of FOREIGN_UDP.
NONE_UDP = 'none-udp'
WITH_UDP = (FOREIGN_UDP, NONE_UDP)
PLAIN_TCP = (NONE, NONE_UDP)
#: Launched without sizes, which are announced 0.5 or 2 s after the start.
TOLD = 'told0.5', 'told2'
ON_PACKETS_ONLY = (*WITH_UDP, *TOLD)
#: Share of a link that the datagrams of one foreign coflow take.
UDP_SHARE = 0.3
#: Of the fluid only: see :mod:`benchmarks.hint_ideal`; and the least mean CCT
#: of any schedule, as the CCT of each coflow.
IDEAL, BOUND = 'ideal', 'bound'
#: What the liar claims of his coflow, the largest but one.
LIE = 0.3
_SIGMA, _MOST_SIGMAS = 1.0, 1.5
_PORT = 5001
_PLAN_S = 0.05
Hosts = tuple[tuple[str, ...], ...]
Claim = claims.Claim


def _all(claim: Claim) -> Callable[[np.random.Generator, int], list[Claim]]:
    return lambda rng, n_coflows: [claim] * n_coflows


def _foreign(_: np.random.Generator, n_coflows: int) -> list[Claim]:
    return [Claim(late_s=claims.NEVER_S) if is_foreign(i) else Claim()
            for i in range(n_coflows)]


def _turning(_: np.random.Generator, n_coflows: int) -> list[Claim]:
    """Exact hints, and from the half on a quarter or four times the truth."""
    return [Claim(1.0 if 2 * i < n_coflows else 4.0 if i % 2 else 0.25)
            for i in range(n_coflows)]


def is_foreign(number: int) -> bool:
    return number % 4 == 0


#: Quality of hints -> claims of coflows.
QUALITIES: dict[str, Callable[[np.random.Generator, int], list[Claim]]] = {
    NONE: _all(Claim(late_s=claims.NEVER_S)),
    IDEAL: _all(Claim()), BOUND: _all(Claim()),
    'exact': _all(Claim()),
    'unknown': _all(Claim(is_sized=False)),
    'half': _all(Claim(0.5)),
    'quarter': _all(Claim(0.25)),
    'twice': _all(Claim(2.0)),
    'four': _all(Claim(4.0)),
    'random50': lambda rng, n_coflows: [
        Claim(float(factor)) for factor in rng.uniform(0.5, 1.5, n_coflows)],
    'turning': _turning,
    'late0.5': _all(Claim(late_s=0.5)),
    'late1': _all(Claim(late_s=1.0)),
    'late2': _all(Claim(late_s=2.0)),
    TOLD[0]: _all(Claim(late_s=0.5, is_launched=True)),
    TOLD[1]: _all(Claim(late_s=2.0, is_launched=True)),
    'half-unknown': lambda rng, n_coflows: [
        Claim(is_sized=i % 2 == 0) for i in range(n_coflows)],
    LIAR: _all(Claim()),
    # TCP of tenants who never say anything, beside exact hints.
    FOREIGN_TCP: _foreign,
    # Each of these tenants also sends datagrams; on packets only.
    FOREIGN_UDP: _foreign,
    NONE_UDP: _all(Claim(late_s=claims.NEVER_S))}


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """What a run is of.

    :ivar ceil: of ``[scheduler]``: whether classes borrow.
    :ivar receiver: 'tcp' or 'order'; on packets it is what it is.
    :ivar options: name and value of the product's others of ``[scheduler]``.
    :ivar rate_bps: of every link, on the wire.
    :ivar report_s: from one report of a host to its next, in the fluid.
    :ivar look_s: from one look at its classes to the next, likewise.
    """

    quality: str
    load: float
    hosts: int
    seed: int
    ceil: str
    receiver: str = 'tcp'
    on_packets: bool = False
    options: tuple[tuple[str, str], ...] = ()
    rate_bps: float = RATE_BPS
    report_s: float = controlled.Timing().report_s
    look_s: float = controlled.Timing().look_s

    def case(self) -> 'Case':
        return make(self.seed, self.hosts, self.load, self.rate_bps)


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """Coflows, where their VMs are, and when they start."""

    coflows: tuple[claims.Coflow, ...]
    hosts: Mapping[str, tuple[str, ...]]

    def claims(self, quality: str, seed: int) -> list[Claim]:
        """What the controller is told of each coflow."""
        made = QUALITIES[quality](np.random.default_rng([seed, 27]),
                                  len(self.coflows))
        if quality == LIAR:
            made[self.liar] = Claim(LIE)
        return made

    def parts(self, quality: str, seed: int) -> dict[str, list[int]]:
        """Rows of a quality: label and indices of the coflows it is of."""
        everyone = range(len(self.coflows))
        if quality == LIAR:
            its, labels = {self.liar}, ('his own', 'the others')
        elif quality in (FOREIGN_TCP, FOREIGN_UDP):
            its = {i for i in everyone if is_foreign(i)}
            labels = 'the foreign', 'the hinted'
        else:
            return {quality: list(everyone)}
        return {f'{quality}: {labels[0]}': sorted(its), f'{quality}: '
                f'{labels[1]}': [i for i in everyone if i not in its]}

    @property
    def liar(self) -> int:
        """Index of the coflow with the second most bytes."""
        return misled.liar(self.coflows)


@functools.lru_cache
def make(seed: int, n_hosts: int, load: float, rate_bps: float = RATE_BPS
         ) -> Case:
    """Draw a case; at any rate the same one, with more bytes.

    :param load: of the busiest link, from the first arrival on until one
        mean gap after the last.
    """
    coflows, hosts, gaps = _drawn(seed, n_hosts, rate_bps)
    starts_s = np.cumsum(gaps) * BUSY_S / load / len(coflows)
    return Case(tuple(
        claims.Coflow(coflow, float(start_s - starts_s[0]))
        for coflow, start_s in zip(coflows, starts_s)),
        {coflow.name: its for coflow, its in zip(coflows, hosts)})


@functools.lru_cache
def _drawn(seed: int, n_hosts: int, rate_bps: float
           ) -> tuple[tuple[coflow_model.Coflow, ...], Hosts, np.ndarray]:
    """Coflows, hosts and gaps whose mean is one."""
    rng = np.random.default_rng([seed, n_hosts, 26])
    rows, shape = [], SHAPES[n_hosts]
    for number in range(shape.n_coflows):
        n_src, n_dst = (
            (int(rng.integers(3, 1 + shape.most_senders)), 1) if number % 2
            else map(int, rng.integers(1, 1 + shape.most_ends, 2)))
        size = n_dst * np.exp(_SIGMA * min(_MOST_SIGMAS,
                                           rng.standard_normal()))
        pairs = itertools.product(range(n_src), range(n_src, n_src + n_dst))
        rows.append((n_src + n_dst, [
            (src, dst, float(size * share)) for (src, dst), share in zip(
                pairs, rng.dirichlet(np.ones(n_src * n_dst)))]))
    gaps = rng.exponential(1.0, len(rows))
    coflows = [coflow_model.Coflow.from_flows(f'c{i}', n_vms, flows, _PORT)
               for i, (n_vms, flows) in enumerate(rows)]
    hosts = _place(coflows, n_hosts, seed)
    most = max(link_bytes(coflows, hosts).values())
    factor = BUSY_S * units.bps_to_bytes_per_s(
        scenario.goodput_bps(rate_bps)) / most
    return (tuple(coflow_model.Coflow.from_flows(f'c{i}', n_vms, [
        (src, dst, max(1, round(size * factor))) for src, dst, size in flows],
        _PORT) for i, (n_vms, flows) in enumerate(rows)), hosts,
        gaps)


def _place(coflows: Sequence[coflow_model.Coflow], n_hosts: int, seed: int
           ) -> Hosts:
    """Hosts of each coflow, planned one after another."""
    found: list[tuple[str, ...]] = []
    active: list[planning.ActiveCoflow] = []
    for coflow in coflows:
        plan = planner.plan(planning.PlacementProblem(
            # A slot per host: no two VMs of a coflow meet.
            groups.equal_hosts(n_hosts, 1.0, scenario.goodput_bps(RATE_BPS)),
            groups.of_slots(coflow.name, (coflow,)).vms, (coflow,),
            active=tuple(active)), seed=seed, budget_s=_PLAN_S,
            clock=budget.Counter())
        found.append(plan.hosts)
        active.append(planning.ActiveCoflow.of(coflow.name, (
            (plan.hosts[flow.src], plan.hosts[flow.dst], flow.size_bytes)
            for flow in coflow.flows)))
    return tuple(found)


def link_bytes(coflows: Sequence[coflow_model.Coflow], hosts: Hosts
                ) -> Mapping[tuple[str, int], float]:
    """By host and end, what its link carries."""
    found: dict[tuple[str, int], float] = {}
    for coflow, at in zip(coflows, hosts):
        for flow in coflow.flows:
            for end in ((at[flow.src], 0), (at[flow.dst], 1)):
                found[end] = found.get(end, 0.0) + flow.size_bytes
    return found


def options(cell: Cell) -> schedule_input.Options:
    """The product's defaults but for what the cell says.

    There is no background. The fluid knows no limits of unmanaged traffic.

    :raises ValueError: for a value that is none of the option.
    """
    conf = cfg.ConfigOpts()
    conf.register_opts(scheduler.OPTS, scheduler.GROUP)
    for name, value in cell.options:
        conf.set_override(name, value, 'scheduler')
    return dataclasses.replace(
        loop.options(conf.scheduler, {
            'order': (schedule_input.FAIR if cell.quality in PLAIN_TCP
                      else conf.scheduler.order),
            'ceil': cell.ceil}, False), beta=0.0, limit_senders=False)


def fluid_s(cell: Cell) -> list[float]:
    """CCT of each coflow in the fluid."""
    case = cell.case()
    if cell.quality == IDEAL:
        return hint_ideal.ccts_s(
            case.coflows, case.hosts, scenario.goodput_bps(cell.rate_bps),
            cell.receiver == 'order')
    if cell.quality == BOUND:
        return [least_mean_s(case, scenario.goodput_bps(cell.rate_bps))] * len(
            case.coflows)
    claimed = case.claims(cell.quality, cell.seed)
    return list(misled.expect(
        case.coflows, claimed, case.hosts, [
            0.0 if claim.late_s is None else one.start_s + claim.late_s
            for one, claim in zip(case.coflows, claimed)],
        cases.Scale(cell.hosts, cell.rate_bps), options(cell),
        'order' if cell.receiver == 'order' else 'tcp',
        controlled.Timing(report_s=cell.report_s, look_s=cell.look_s)))


def least_mean_s(case: Case, link_bps: float) -> float:
    """Lower bound on the mean CCT of any schedule at the case's hosts."""
    names = sorted({host for its in case.hosts.values() for host in its})
    return optimum.least_placed_s(
        [cluster.Host(name, (), link_bps, link_bps) for name in names],
        [(one.coflow, case.hosts[one.coflow.name]) for one in case.coflows],
        [one.start_s for one in case.coflows])
