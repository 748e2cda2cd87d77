# SPDX-License-Identifier: Apache-2.0

"""Coflows in flight, and the scheduler's decisions about them."""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import itertools
import math
from typing import Any
from typing import overload
from typing import TypeVar

import numpy as np

from virtco import units
from virtco.model import uplinks as uplinks_model

Row = TypeVar('Row')


class Pairs(tuple[tuple[str, str], ...]):
    """(Source host, destination host) of a coflow's flows, each once."""

    _numbers: tuple[Mapping[str, int], np.ndarray] | None = None

    @functools.cached_property
    def hosts(self) -> frozenset[str]:
        return frozenset(itertools.chain.from_iterable(self))

    @functools.cached_property
    def sources(self) -> frozenset[str]:
        return frozenset(src for src, _ in self)

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


class _Columns(Sequence[Row]):
    """An array over all host pairs of a coflow, read as rows.

    A cloud has tens of thousands of pairs; a row is made when somebody looks
    at it.
    """

    __slots__ = ('pairs',)
    pairs: Pairs

    def _places(self) -> Sequence[int]:
        """Return the index of each row among the pairs."""
        return range(len(self.pairs))

    def _row(self, place: int) -> Row:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self._places())

    @overload
    def __getitem__(self, index: int) -> Row:
        ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]:
        ...

    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        if isinstance(index, slice):
            return tuple(map(self._row, self._places()[index]))
        return self._row(self._places()[index])

    def __iter__(self) -> Iterator[Row]:
        return map(self._row, self._places())

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __repr__(self) -> str:
        return repr(tuple(self))


@dataclasses.dataclass(frozen=True, slots=True)
class LiveFlow:
    """Remaining bytes of one coflow from one host to another.

    Flows between VMs of the same host pair are one LiveFlow: enforcement is
    at the granularity of coflows and hypervisors (VirtCO Corollary 1).
    """

    src_host: str
    dst_host: str
    remaining_bytes: float


class Flows(_Columns[LiveFlow]):
    """Flows by columns: what many of them are handed on as.

    :ivar remaining_bytes: of each pair, shape (n_pairs,).
    """

    __slots__ = ('remaining_bytes',)

    def __init__(self, pairs: Pairs, remaining_bytes: np.ndarray):
        self.pairs = pairs
        self.remaining_bytes = remaining_bytes

    def _row(self, place: int) -> LiveFlow:
        return LiveFlow(*self.pairs[place],
                        float(self.remaining_bytes[place]))


@dataclasses.dataclass(frozen=True, slots=True)
class LiveCoflow:
    """An unfinished coflow as the scheduler sees it.

    :ivar flows: remaining flows, as objects or :class:`Flows`.
    :ivar arrival_s: time at which it became active (any clock, the same for
        all).
    :ivar served_s: time of its last progress; theta counts from here.
    :ivar sent_bytes: bytes counted at the edges.
    :ivar claimed_bytes: bytes that the tenant hinted.
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
    """

    coflow_id: str
    flows: Sequence[LiveFlow]
    arrival_s: float = 0.0
    served_s: float = 0.0
    sent_bytes: float = 0.0
    claimed_bytes: float = 0.0
    project_id: str = ''
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


@dataclasses.dataclass(frozen=True, slots=True)
class Port:
    """Capacity of one host's uplink that coflows may use."""

    host: str
    egress_bps: float
    ingress_bps: float


class Ports(Sequence[Port]):
    """Ports by columns.

    :ivar hosts: each once.
    :ivar egress_bps: of each, shape (n_hosts,).
    :ivar ingress_bps: of each, shape (n_hosts,).
    :ivar uplinks: above the hosts.
    """

    __slots__ = ('egress_bps', 'hosts', 'ingress_bps', 'uplinks')

    def __init__(self, hosts: tuple[str, ...], egress_bps: np.ndarray,
                 ingress_bps: np.ndarray,
                 uplinks: uplinks_model.Uplinks = uplinks_model.NONE):
        self.hosts = hosts
        self.egress_bps = egress_bps
        self.ingress_bps = ingress_bps
        self.uplinks = uplinks

    @classmethod
    def of(cls, ports: Sequence[Port]) -> 'Ports':
        if isinstance(ports, cls):
            return ports
        return cls(tuple(port.host for port in ports),
                   np.array([port.egress_bps for port in ports], np.float64),
                   np.array([port.ingress_bps for port in ports],
                            np.float64))

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
        load = np.bincount(
            np.concatenate((src, len(self) + dst, 2 * len(self) + passed)),
            np.concatenate((bits, bits, np.repeat(bits, np.diff(start)))),
            len(cap_bps))
        with np.errstate(divide='ignore'):
            found: np.ndarray = np.divide(
                load, cap_bps, out=np.zeros(len(cap_bps)), where=load > 0)
        return found

    def __len__(self) -> int:
        return len(self.hosts)

    @overload
    def __getitem__(self, index: int) -> Port:
        ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Port]:
        ...

    def __getitem__(self, index: int | slice) -> Port | Sequence[Port]:
        if isinstance(index, slice):
            return tuple(self)[index]
        return Port(self.hosts[index], float(self.egress_bps[index]),
                    float(self.ingress_bps[index]))

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)


@dataclasses.dataclass(frozen=True, slots=True)
class FlowRate:
    src_host: str
    dst_host: str
    rate_bps: float


class FlowRates(_Columns[FlowRate]):
    """Rates by columns; rows are those of the flows that have bytes left.

    :ivar pairs: the coflow's, in the order of its flows.
    :ivar rate_bps: of each pair, 0 where nothing is left, shape (n_pairs,).
    :ivar has_left: whether the pair has bytes left, shape (n_pairs,).
    """

    __slots__ = ('rate_bps', 'has_left')

    def __init__(self, pairs: Pairs, rate_bps: np.ndarray,
                 has_left: np.ndarray):
        self.pairs = pairs
        self.rate_bps = rate_bps
        self.has_left = has_left

    def _places(self) -> Sequence[int]:
        places: list[int] = np.flatnonzero(self.has_left).tolist()
        return places

    def _row(self, place: int) -> FlowRate:
        return FlowRate(*self.pairs[place], float(self.rate_bps[place]))


@dataclasses.dataclass(frozen=True, slots=True)
class CoflowSchedule:
    """Rank and rates of one coflow until the next event.

    :ivar rank: 0 is served first.
    :ivar remaining_cct_s: remaining time alone on the fabric.
    :ivar predicted_end_s: time of its end with the order and rates of this
        schedule.
    :ivar starving: whether theta lifted it to the front.
    """

    coflow_id: str
    rank: int
    remaining_cct_s: float
    predicted_end_s: float
    flow_rates: FlowRates
    starving: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Schedule:
    """All coflows in order of rank.

    :ivar left: ports with the rates that the coflows leave.
    """

    now_s: float
    coflows: tuple[CoflowSchedule, ...]
    left: Sequence[Port] = ()
