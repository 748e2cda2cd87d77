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

"""The coflow table: a schedule becomes one policy document per host.

Pure. A host's document holds the coflows that send from it: per coflow a
class with the sum of its rates, per destination host a child with its share
(VirtCO Corollary 1: enforcement per coflow and hypervisor), and per pair of
VMs the entry by which the edge finds the child.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools

from virtco.model import live
from virtco.table import edge_policy

FIRST_MINOR = 0x10
LAST_MINOR = 0xfffe
LAST_PRIO = 7


@dataclasses.dataclass(frozen=True, slots=True)
class Link:
    """Uplink of one host; ``default_rate_bps`` is kept for everything else.
    """

    host: str
    egress_bps: float
    ingress_bps: float
    default_rate_bps: float


@dataclasses.dataclass(frozen=True, slots=True)
class VmFlow:
    """One flow of a coflow between two VMs whose hosts are known."""

    src_vm: str
    src_host: str
    src_ips: tuple[str, ...]
    dst_host: str
    dst_ips: tuple[str, ...]


# Source VM, its address, the destination's, destination port or None.
EntryKey = tuple[str, str, str, int | None]
Entries = dict[EntryKey, edge_policy.FlowEntry]


@dataclasses.dataclass(frozen=True, slots=True)
class TableCoflow:
    """A coflow as the table sees it.

    :ivar flows: by source host, those to other hosts; also finished ones.
    :ivar peers: by source host, the hosts it sends to.
    """

    coflow_id: str
    name: str
    flows: Mapping[str, tuple[VmFlow, ...]]
    peers: Mapping[str, tuple[str, ...]]
    dst_port: int | None = None
    # By source host: minors of its peers, and the entries made with them.
    _made: dict[str, tuple[Mapping[str, int], Entries]] = dataclasses.field(
        default_factory=dict, compare=False, repr=False)

    @classmethod
    def from_flows(cls, coflow_id: str, name: str, flows: Iterable[VmFlow],
                   dst_port: int | None = None) -> 'TableCoflow':
        by_host: dict[str, list[VmFlow]] = {}
        for flow in flows:
            if flow.src_host != flow.dst_host:
                by_host.setdefault(flow.src_host, []).append(flow)
        return cls(
            coflow_id, name,
            {host: tuple(some) for host, some in by_host.items()},
            {host: tuple(dict.fromkeys(flow.dst_host for flow in some))
             for host, some in by_host.items()}, dst_port)

    def entries(self, host: str, minors: Mapping[str, int]) -> Entries:
        """The entries of a source host; addresses of one family meet.

        They are made once: minors hardly change, and a policy that says the
        same as the last is found out by identity.

        :param minors: by destination host; flows to others get no entry.
        """
        made = self._made.get(host)
        if made is None or made[0] != minors:
            made = self._made[host] = minors, self._make(host, minors)
        return made[1]

    def _make(self, host: str, minors: Mapping[str, int]) -> Entries:
        entries: Entries = {}
        for flow in self.flows[host]:
            if flow.dst_host not in minors:
                continue
            for src_ip, dst_ip in itertools.product(flow.src_ips,
                                                    flow.dst_ips):
                if (':' in src_ip) == (':' in dst_ip):
                    entries.setdefault(
                        (flow.src_vm, src_ip, dst_ip, self.dst_port),
                        edge_policy.FlowEntry(
                            coflow_id=self.coflow_id, src_vm=flow.src_vm,
                            src_ip=src_ip, dst_ip=dst_ip,
                            minor=minors[flow.dst_host],
                            dst_port=self.dst_port))
        return entries


# Bytes left per (source host, destination host).
Remaining = Mapping[tuple[str, str], float]


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """How a schedule becomes classes.

    :ivar work_conserving: ceil is the link instead of the allocated rate.
    :ivar min_rate_fraction: share of the link that is there for the classes
        to which the schedule gives nothing, all of them together.
    :ivar protect_receivers: tell receivers which pairs are coflows.
    """

    work_conserving: bool = False
    min_rate_fraction: float = 0.01
    ttl_s: float = 60.0
    protect_receivers: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Minors:
    """HTB minors of one host: key -> minor, and when a key was last needed.

    A key is a coflow's id, or its id and a destination host.
    """

    taken: Mapping[str, int] = dataclasses.field(default_factory=dict)
    needed_s: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def assign(self, keys: Iterable[str], now_s: float,
               grace_s: float) -> 'Minors':
        """Keep what the keys have, give the new ones the lowest free minors.

        A minor is free once nobody needed it for ``grace_s``. Keys beyond the
        last minor get none: their flows stay in the default class.
        """
        keys = list(keys)
        needed = dict(self.needed_s) | dict.fromkeys(keys, now_s)
        taken = {key: minor for key, minor in self.taken.items()
                 if now_s - needed.get(key, now_s) <= grace_s}
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
        return Minors(taken, {key: needed[key] for key in taken})


def destination_key(coflow_id: str, host: str) -> str:
    return f'{coflow_id}/{host}'


def wanted_keys(coflows: Sequence[TableCoflow],
                ranks: Mapping[str, int]) -> dict[str, list[str]]:
    """Keys of the classes each host needs, the first coflows first."""
    wanted: dict[str, dict[str, None]] = {}
    for coflow in sorted(coflows, key=lambda c: ranks[c.coflow_id]):
        for host, peers in coflow.peers.items():
            keys = wanted.setdefault(host, {})
            keys[coflow.coflow_id] = None
            for peer in peers:
                keys[destination_key(coflow.coflow_id, peer)] = None
    return {host: list(keys) for host, keys in wanted.items()}


def build_policies(schedule: live.Schedule, coflows: Sequence[TableCoflow],
                   remaining: Mapping[str, Remaining],
                   links: Sequence[Link], minors: Mapping[str, Minors],
                   options: Options = Options()
                   ) -> dict[str, edge_policy.EdgePolicy]:
    """One policy per link, generation 0; the publisher numbers them.

    :param schedule: ranks and rates; a coflow it does not hold gets no class.
    :param remaining: per coflow; what it lacks counts as nothing left.
    :param minors: of each host, holding all of :func:`wanted_keys`.
    """
    known = {c.coflow_id: c for c in coflows}
    senders: dict[str, list[tuple[TableCoflow, live.CoflowSchedule]]] = {}
    for planned in schedule.coflows:
        coflow = known.get(planned.coflow_id)
        for host in coflow.flows if coflow is not None else ():
            senders.setdefault(host, []).append((known[planned.coflow_id],
                                                 planned))
    rates = {(c.coflow_id, r.src_host, r.dst_host): r.rate_bps
             for c in schedule.coflows for r in c.flow_rates}
    received = (_received(schedule, known) if options.protect_receivers
                else {})
    return {link.host: _host_policy(
        link, senders.get(link.host, ()), remaining, rates,
        minors.get(link.host, Minors()).taken,
        tuple(received.get(link.host, ())), options) for link in links}


def counting_policies(coflows: Sequence[TableCoflow], links: Sequence[Link],
                      ttl_s: float) -> dict[str, edge_policy.EdgePolicy]:
    """Policies without classes, by which the edges count and no more.

    Every flow stays in the default class, where TCP shares; its entry makes
    its bytes known. One policy per link, generation 0.
    """
    found = {}
    for link in links:
        entries: Entries = {}
        for coflow in coflows:
            if link.host in coflow.peers:
                _add_entries(entries, coflow, link.host, dict.fromkeys(
                    coflow.peers[link.host], edge_policy.DEFAULT_MINOR))
        found[link.host] = edge_policy.EdgePolicy(
            host=link.host, generation=0, ttl_s=ttl_s,
            egress_bps=link.egress_bps, ingress_bps=link.ingress_bps,
            default_rate_bps=link.default_rate_bps,
            flows=tuple(entries.values()))
    return found


def _received(schedule: live.Schedule, known: Mapping[str, TableCoflow]
              ) -> dict[str, dict[edge_policy.ReceivedPair, None]]:
    """Per receiving host the pairs of its coflows, the first coflows first."""
    found: dict[str, dict[edge_policy.ReceivedPair, None]] = {}
    for planned in schedule.coflows:
        coflow = known.get(planned.coflow_id)
        for flows in coflow.flows.values() if coflow is not None else ():
            for flow in flows:
                pairs = found.setdefault(flow.dst_host, {})
                for src_ip, dst_ip in itertools.product(flow.src_ips,
                                                        flow.dst_ips):
                    if (':' in src_ip) == (':' in dst_ip):
                        pairs[edge_policy.ReceivedPair(
                            src_ip, dst_ip, known[
                                planned.coflow_id].dst_port)] = None
    return found


def _host_policy(
        link: Link,
        senders: Sequence[tuple[TableCoflow, live.CoflowSchedule]],
        remaining: Mapping[str, Remaining],
        rates: Mapping[tuple[str, str, str], float],
        minors: Mapping[str, int],
        received: tuple[edge_policy.ReceivedPair, ...],
        options: Options) -> edge_policy.EdgePolicy:
    left: dict[str, dict[str, float]] = {}
    entries: Entries = {}
    for coflow, _planned in senders:
        coflow_id = coflow.coflow_id
        children = {
            peer: minors[key] for peer in coflow.peers[link.host]
            if (key := destination_key(coflow_id, peer)) in minors}
        if not children or coflow_id not in minors:
            continue
        known = remaining.get(coflow_id, {})
        left[coflow_id] = {peer: known.get((link.host, peer), 0.0)
                           for peer in children}
        _add_entries(entries, coflow, link.host, children)
    rate_bps = _fitted_rates(link, left, rates, options)
    return edge_policy.EdgePolicy(
        host=link.host, generation=0, ttl_s=options.ttl_s,
        egress_bps=link.egress_bps, ingress_bps=link.ingress_bps,
        default_rate_bps=link.default_rate_bps,
        classes=tuple(_coflow_class(
            link, coflow, planned.rank, left[coflow.coflow_id],
            rate_bps[coflow.coflow_id], minors, options)
            for coflow, planned in senders if coflow.coflow_id in left),
        flows=tuple(entries.values()), received=received)


def _fitted_rates(link: Link, left: Mapping[str, Mapping[str, float]],
                  rates: Mapping[tuple[str, str, str], float],
                  options: Options) -> dict[str, dict[str, float]]:
    """Rate per coflow and destination: the schedule's, or a little where it
    gives nothing; scaled down together when that is more than the link has.
    """
    floor_bps = (link.egress_bps * options.min_rate_fraction
                 / max(1, len(left)))
    found = {coflow_id: {host: max(floor_bps / len(hosts), rates.get(
        (coflow_id, link.host, host), 0.0)) for host in hosts}
        for coflow_id, hosts in left.items()}
    total_bps = sum(sum(hosts.values()) for hosts in found.values())
    limit_bps = link.egress_bps - link.default_rate_bps
    if total_bps <= limit_bps:
        return found
    factor = limit_bps / total_bps
    return {coflow_id: {host: rate_bps * factor
                        for host, rate_bps in hosts.items()}
            for coflow_id, hosts in found.items()}


def _add_entries(entries: Entries, coflow: TableCoflow, host: str,
                 minors: Mapping[str, int]) -> None:
    """A pair of VMs belongs to its first coflow."""
    for key, entry in coflow.entries(host, minors).items():
        entries.setdefault(key, entry)


def _coflow_class(link: Link, coflow: TableCoflow, rank: int,
                  left: Mapping[str, float], rates: Mapping[str, float],
                  minors: Mapping[str, int],
                  options: Options) -> edge_policy.CoflowClass:
    total_bytes = sum(left.values())
    destinations = tuple(edge_policy.Destination(
        host=host, minor=minors[destination_key(coflow.coflow_id, host)],
        weight=(size_bytes / total_bytes if total_bytes > 0
                else 1 / len(left)),
        rate_bps=rates[host],
        ceil_bps=link.egress_bps if options.work_conserving
        else rates[host]) for host, size_bytes in sorted(left.items()))
    rate_bps = sum(d.rate_bps for d in destinations)
    return edge_policy.CoflowClass(
        coflow_id=coflow.coflow_id, name=coflow.name,
        minor=minors[coflow.coflow_id], rate_bps=rate_bps,
        ceil_bps=link.egress_bps if options.work_conserving else rate_bps,
        prio=min(rank, LAST_PRIO), destinations=destinations)


def is_close(old: edge_policy.EdgePolicy, new: edge_policy.EdgePolicy,
             tolerance: float) -> bool:
    """Whether the new policy says the same, up to small changes of rates."""
    if (old.flows != new.flows or old.received != new.received
            or len(old.classes) != len(new.classes)
            or old.ttl_s != new.ttl_s):
        return False
    if not all(_near(getattr(old, name), getattr(new, name), tolerance)
               for name in ('egress_bps', 'ingress_bps',
                            'default_rate_bps')):
        return False
    return all(_class_close(a, b, tolerance) for a, b in
               zip(old.classes, new.classes, strict=True))


def _class_close(old: edge_policy.CoflowClass, new: edge_policy.CoflowClass,
                 tolerance: float) -> bool:
    if ((old.coflow_id, old.minor, old.prio, old.name)
            != (new.coflow_id, new.minor, new.prio, new.name)
            or [d.minor for d in old.destinations]
            != [d.minor for d in new.destinations]):
        return False
    pairs = [(old.rate_bps, new.rate_bps), (old.ceil_bps, new.ceil_bps)]
    for a, b in zip(old.destinations, new.destinations, strict=True):
        # A small child may move by much of itself and matter to no one.
        scale = new.rate_bps
        if not (_near(a.rate_bps, b.rate_bps, tolerance, scale)
                and _near(a.ceil_bps, b.ceil_bps, tolerance, scale)):
            return False
    # Whether a class may borrow is no matter of a few per cent.
    return (_may_borrow(old) == _may_borrow(new)
            and all(_near(a, b, tolerance) for a, b in pairs))


def _may_borrow(coflow: edge_policy.CoflowClass) -> bool:
    return coflow.ceil_bps > coflow.rate_bps


def _near(old: float, new: float, tolerance: float,
          scale: float | None = None) -> bool:
    return abs(old - new) <= tolerance * (
        max(abs(old), abs(new)) if scale is None else scale)
