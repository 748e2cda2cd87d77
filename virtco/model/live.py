# SPDX-License-Identifier: Apache-2.0

"""Coflows in flight, and the scheduler's decisions about them."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import itertools
import math
from typing import NamedTuple

import numpy as np

from virtco import units
from virtco.model import uplinks as uplinks_model


class Pairs(tuple[tuple[str, str], ...]):
    """(Source host, destination host) of a coflow's flows, each once."""

    _numbers: tuple[Mapping[str, int], np.ndarray] | None = None

    @functools.cached_property
    def hosts(self) -> frozenset[str]:
        return frozenset(itertools.chain.from_iterable(self))

    @functools.cached_property
    def sources(self) -> frozenset[str]:
        """Hosts that send in at least one pair."""
        return frozenset(self.of_source)

    @functools.cached_property
    def of_source(self) -> Mapping[str, Sequence[int]]:
        """Indices of the pairs of each source."""
        found: dict[str, list[int]] = {}
        for i, (src, _) in enumerate(self):
            found.setdefault(src, []).append(i)
        return found

    def numbers(self, index: Mapping[str, int]) -> np.ndarray:
        """Return the numbers of the hosts, shape (n_pairs, 2).

        They are looked up once while the index is the same object: between
        two events hardly a host or a coflow's way changes.

        :raises KeyError: for a host that is not in the index.
        """
        known = self._numbers
        if known is None or known[0] is not index:
            known = self._numbers = index, np.array(
                [(index[src], index[dst]) for src, dst in self],
                np.int64).reshape(-1, 2)
        return known[1]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Flows:
    """Bytes of one coflow from host to host, by columns.

    Flows between VMs of the same host pair are one: enforcement is at the
    granularity of coflows and hypervisors (VirtCO Corollary 1).

    :ivar remaining_bytes: bytes left of each pair, shape (n_pairs,).
    """

    pairs: Pairs
    remaining_bytes: np.ndarray


class Cap(NamedTuple):
    """A VM's cap: ``egress`` is the most that it sends, ``ingress`` the most
    that it receives.
    """

    host: str
    direction: str
    vm: str


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Capped:
    """Parts of a coflow's flows, by the caps of VMs that they pass.

    :ivar pair_of: pair of each part, each pair at least once, ascending,
        shape (n_parts,).
    :ivar share: share of its pair's bytes, shape (n_parts,).
    :ivar passed: index of the cap of each part's sender and of its receiver,
        -1 for none, shape (n_parts, 2).
    :ivar rates_bps: rate of each cap, on the wire.
    """

    pair_of: np.ndarray
    share: np.ndarray
    passed: np.ndarray
    rates_bps: Mapping[Cap, float]

    def busy_s(self, flows: Flows) -> dict[Cap, float]:
        """Return how long flows keep each cap busy.

        :param flows: over the pairs.
        """
        bits = (flows.remaining_bytes[self.pair_of] * self.share
                * units.BITS_PER_BYTE)
        load = np.bincount((self.passed + 1).T.ravel(), np.tile(bits, 2),
                           len(self.rates_bps) + 1)[1:]
        return {cap: float(load_bits / rate_bps) for load_bits, (
            cap, rate_bps) in zip(load, self.rates_bps.items())}


class LiveCoflow(NamedTuple):
    """An unfinished coflow as the scheduler sees it.

    :ivar flows: remaining flows.
    :ivar arrival_s: time at which it became active (any clock, the same for
        all).
    :ivar served_s: time of its last progress; theta counts from here.
    :ivar sent_bytes: bytes counted at the edges.
    :ivar priority_class: class set by an operator; lower is served first.
    :ivar weight: weight in weighted fair sharing.
    :ivar n_flows: number of VM-to-VM flows (per-flow fair sharing).
    :ivar whole: its flows with all of their bytes, as at its beginning; None:
        ``sent_bytes`` are spread over the remaining bytes.
    :ivar served: sent bytes per pair, which order a coflow whose sizes are not
        believed; None: the sizes are believed.
    :ivar compute_s: seconds per iteration in which nothing is sent; 0 for
        coflows that do not alternate, or whose tenant did not say.
    :ivar workers: number of VMs that wait while it sends.
    :ivar sending: flows over the same pairs without the bytes of silent ones;
        these get rates, while ``flows`` give the order. None: all send.
    :ivar deadline_s: deadline on the clock of the other times; inf for none.
    :ivar is_promised: whether the deadline was promised.
    :ivar capped: parts of the flows where VMs have caps; None: none has.
    :ivar least_s: least time from its first byte to its end, by the caps of
        VMs that also send or receive inside a host.
    :ivar began_s: time of its first byte; None before it.
    """

    coflow_id: str
    flows: Flows
    arrival_s: float = 0.0
    served_s: float = 0.0
    sent_bytes: float = 0.0
    priority_class: int = 0
    weight: float = 1.0
    n_flows: int = 1
    whole: Flows | None = None
    served: Flows | None = None
    compute_s: float = 0.0
    workers: int = 1
    sending: Flows | None = None
    deadline_s: float = math.inf
    is_promised: bool = False
    capped: Capped | None = None
    least_s: float = 0.0
    began_s: float | None = None

    def caps_s(self) -> float:
        """Return the time that the remaining bytes need on the slowest cap."""
        return 0.0 if self.capped is None else max(
            self.capped.busy_s(self.flows).values(), default=0.0)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Ports:
    """Rates that coflows may use, by columns.

    :ivar hosts: each once.
    :ivar egress_bps: rate out of each host, shape (n_hosts,).
    :ivar ingress_bps: rate into each host, shape (n_hosts,).
    :ivar uplinks: above the hosts.
    :ivar caps_bps: rate that is left of the caps that were used before.
    """

    hosts: tuple[str, ...]
    egress_bps: np.ndarray
    ingress_bps: np.ndarray
    uplinks: uplinks_model.Uplinks = uplinks_model.NONE
    caps_bps: Mapping[Cap, float] = dataclasses.field(default_factory=dict)

    @property
    def cap_bps(self) -> np.ndarray:
        """Rate of each port: egress, ingress and uplinks, shape (n_ports,)."""
        return np.concatenate((self.egress_bps, self.ingress_bps,
                               self.uplinks.cap_bps))

    def busy_s(self, flows: Flows, index: Mapping[str, int]) -> np.ndarray:
        """Return how long flows keep each port busy alone, shape (n_ports,).

        It is inf at a port without a rate that a flow crosses.

        :param index: number of each host among the ports.
        :raises KeyError: for a host that is none of the ports.
        """
        cap_bps = self.cap_bps
        src, dst = flows.pairs.numbers(index).T
        bits = flows.remaining_bytes * units.BITS_PER_BYTE * (src != dst)
        start, passed = self.uplinks.passed(src, dst)
        n_hosts = len(self.hosts)
        load = np.bincount(
            np.concatenate((src, n_hosts + dst, 2 * n_hosts + passed)),
            np.concatenate((bits, bits, np.repeat(bits, np.diff(start)))),
            len(cap_bps))
        with np.errstate(divide='ignore'):
            found: np.ndarray = np.divide(
                load, cap_bps, out=np.zeros(len(cap_bps)), where=load > 0)
        return found


#: Ports without any host.
NO_PORTS = Ports((), np.zeros(0), np.zeros(0))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class FlowRates:
    """Rates of one coflow by columns.

    :ivar pairs: the coflow's, in the order of its flows.
    :ivar rate_bps: rate of each pair, 0 where no bytes are left, shape
        (n_pairs,).
    """

    pairs: Pairs
    rate_bps: np.ndarray


class CoflowSchedule(NamedTuple):
    """Rank and rates of one coflow until the next event.

    :ivar rank: 0 is served first.
    :ivar remaining_cct_s: remaining time alone on the fabric.
    :ivar predicted_end_s: time of its end with the order and rates of this
        schedule.
    """

    coflow_id: str
    rank: int
    remaining_cct_s: float
    predicted_end_s: float
    flow_rates: FlowRates


@dataclasses.dataclass(frozen=True, slots=True)
class Schedule:
    """All coflows in order of rank.

    :ivar left: ports with the rates that the coflows leave.
    """

    now_s: float
    coflows: tuple[CoflowSchedule, ...]
    left: Ports = NO_PORTS
