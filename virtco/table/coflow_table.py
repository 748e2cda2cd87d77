# SPDX-License-Identifier: Apache-2.0

"""The coflow table: which class and which flows each coflow has at a host.

Pure. A host's document holds the coflows that send from it: per coflow a
class with the sum of its rates, per destination host a child with its share
(VirtCO Corollary 1: enforcement per coflow and hypervisor), and per pair of
VMs the entry by which the edge finds the child. Here is what stays while
nothing moves; :mod:`virtco.table.host_policy` adds the numbers.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import itertools

from virtco.model import live
from virtco.wire import edge_policy

FIRST_MINOR = edge_policy.FIRST_MINOR
LAST_MINOR = edge_policy.LAST_MINOR


@dataclasses.dataclass(frozen=True, slots=True)
class Link:
    """Uplink of one host; ``default_rate_bps`` is kept for everything else.
    """

    host: str
    egress_bps: float
    ingress_bps: float
    default_rate_bps: float

    def speeds(self) -> tuple[float, float, float]:
        """Return the rates of egress, ingress and all other traffic."""
        return self.egress_bps, self.ingress_bps, self.default_rate_bps


@dataclasses.dataclass(frozen=True, slots=True)
class VmFlow:
    """A flow of a coflow between two VMs whose hosts are known."""

    src_vm: str
    src_host: str
    src_ips: tuple[str, ...]
    dst_host: str
    dst_ips: tuple[str, ...]
    dst_macs: tuple[str, ...] = ()

    def ips(self) -> Iterator[tuple[str, str]]:
        """Yield the addresses that meet: two of one family."""
        for src_ip, dst_ip in itertools.product(self.src_ips, self.dst_ips):
            if (':' in src_ip) == (':' in dst_ip):
                yield src_ip, dst_ip


# Source VM, its address, the destination's, destination port or None.
EntryKey = tuple[str, str, str, int | None]
Entries = dict[EntryKey, edge_policy.FlowEntry]
Received = dict[edge_policy.ReceivedPair, None]


class TableCoflow:
    """A coflow as the table sees it; another object is another coflow.

    :param flows: flows between hosts.
    :ivar flows: flows to other hosts by source host; also finished ones.
    :ivar pairs: the hosts between which they are, in the schedule's order.
    :ivar places: places of its peers among the pairs, by source host.
    """

    def __init__(self, coflow_id: str, name: str, flows: Iterable[VmFlow],
                 dst_port: int | None, pairs: live.Pairs):
        self.coflow_id = coflow_id
        self.name = name
        self.dst_port = dst_port
        self.pairs = pairs
        self.flows: dict[str, list[VmFlow]] = {}
        for flow in flows:
            self.flows.setdefault(flow.src_host, []).append(flow)
        self.places: dict[str, dict[str, int]] = {}
        for place, (src, dst) in enumerate(pairs):
            self.places.setdefault(src, {})[dst] = place
        # Entries by source host, with the minors of its peers that they hold.
        self._made: dict[str, tuple[Mapping[str, int], Entries]] = {}

    def entries(self, host: str, minors: Mapping[str, int]) -> Entries:
        """Return the entries of a source host.

        They are made once, as minors hardly change.

        :param minors: minors by destination host; flows to others get no
            entry.
        """
        made = self._made.get(host)
        if made is None or made[0] != minors:
            made = self._made[host] = minors, self._make(host, minors)
        return made[1]

    def _make(self, host: str, minors: Mapping[str, int]) -> Entries:
        """Build the flow entries of a host for the classes that it has."""
        entries: Entries = {}
        for flow in self.flows[host]:
            if flow.dst_host not in minors:
                continue
            for src_ip, dst_ip in flow.ips():
                entries.setdefault(
                    (flow.src_vm, src_ip, dst_ip, self.dst_port),
                    edge_policy.FlowEntry(
                        coflow_id=self.coflow_id, src_vm=flow.src_vm,
                        src_ip=src_ip, dst_ip=dst_ip,
                        minor=minors[flow.dst_host], dst_port=self.dst_port))
        return entries

    @functools.cached_property
    def macs(self) -> Mapping[str, tuple[str, ...]]:
        """Ethernet addresses of the receivers per destination host; none of a
        host where they are not all known.
        """
        found: dict[str, set[tuple[str, ...]]] = {}
        for flow in itertools.chain.from_iterable(self.flows.values()):
            found.setdefault(flow.dst_host, set()).add(flow.dst_macs)
        known = {host: tuple(sorted(set().union(*some)))
                 for host, some in found.items() if () not in some}
        return {host: macs for host, macs in known.items()
                if len(macs) <= edge_policy.MAX_MACS}

    @functools.cached_property
    def received(self) -> Mapping[str, Received]:
        """Arriving pairs per destination host."""
        found: dict[str, Received] = {}
        for flow in itertools.chain.from_iterable(self.flows.values()):
            pairs = found.setdefault(flow.dst_host, {})
            for src_ip, dst_ip in flow.ips():
                pairs[edge_policy.ReceivedPair(
                    src_ip, dst_ip, self.dst_port)] = None
        return found


@dataclasses.dataclass(frozen=True, slots=True)
class Minors:
    """HTB minors of one host.

    A key is a coflow's id, or its id and a destination host.

    :ivar taken: key -> minor.
    :ivar needed_s: time at which keys that are no longer needed last were.
    """

    taken: Mapping[str, int] = dataclasses.field(default_factory=dict)
    needed_s: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def assign(self, keys: Iterable[str], now_s: float,
               grace_s: float) -> 'Minors':
        """Keep the minors of known keys, give new ones the lowest free minors.

        A key of the last call is needed until this one. A minor is free once
        nobody needed it for ``grace_s``. Keys beyond the last minor get none:
        their flows stay in the default class.
        """
        keys = list(keys)
        idle = dict.fromkeys(self.taken, now_s) | dict(self.needed_s)
        for key in keys:
            idle.pop(key, None)
        gone = {key for key, needed_s in idle.items()
                if now_s - needed_s > grace_s}
        taken = {key: minor for key, minor in self.taken.items()
                 if key not in gone}
        used = set(taken.values())
        candidate = FIRST_MINOR
        for key in keys:
            if key in taken:
                continue
            while candidate in used:
                candidate += 1
            if candidate > LAST_MINOR:
                break
            taken[key] = candidate
            used.add(candidate)
        return Minors(taken, {key: needed_s for key, needed_s in idle.items()
                              if key not in gone})


#: Minors of a host without classes.
NO_MINORS = Minors()


def destination_key(coflow_id: str, host: str) -> str:
    """Return the key of a coflow's class for one destination host."""
    return f'{coflow_id}/{host}'


def wanted_keys(host: str, coflows: Iterable[TableCoflow]) -> list[str]:
    """Return the keys of a host's classes, in the order of the coflows."""
    keys = []
    for coflow in coflows:
        peers = coflow.places.get(host)
        if peers:
            keys.append(coflow.coflow_id)
            keys += [destination_key(coflow.coflow_id, peer)
                     for peer in peers]
    return keys


def by_host(coflows: Sequence[TableCoflow],
            hosts: Callable[[TableCoflow], Iterable[str]]
            ) -> dict[str, tuple[TableCoflow, ...]]:
    """Return the coflows of each host, in their order.

    :param hosts: returns those of a coflow.
    """
    found: dict[str, list[TableCoflow]] = {}
    for coflow in coflows:
        for host in hosts(coflow):
            found.setdefault(host, []).append(coflow)
    return {host: tuple(some) for host, some in found.items()}
