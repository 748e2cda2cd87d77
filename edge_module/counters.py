# SPDX-License-Identifier: Apache-2.0

"""Cumulative counters from the kernel's, which restart with their class.

Pure: takes readings, returns totals. Bytes are on the wire, as the qdisc
counts them; bytes of VM pairs are counted at the VM's port.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Set
import dataclasses
import enum
import heapq
from typing import Any
from typing import NamedTuple

from edge_module.classify import classified as classify
from edge_module.qdisc import wire
from edge_module.tcplan import minors
from virtco.wire import edge_policy
from virtco.wire import reports


class Kind(enum.StrEnum):
    UPLINK = 'uplink'
    SHARED = 'shared'
    SHARED_DROPS = 'shared drops'
    COFLOW = 'coflow'
    DESTINATION = 'destination'
    PACKETS = 'packets'
    DROPS = 'drops'
    CONTROL = 'control'
    LIMITED = 'limited'
    PAIR = 'pair'
    PAIR_PACKETS = 'pair packets'
    PEER = 'peer'
    PEER_PACKETS = 'peer packets'


# Kinds that belong to a coflow, by their place in its report.
_OF_COFLOWS = {Kind.COFLOW: 'sent_bytes', Kind.PACKETS: 'sent_packets',
               Kind.DROPS: 'drops', Kind.DESTINATION: '',
               Kind.CONTROL: 'control_bytes'}


_KINDS = frozenset(Kind)
#: Most peers in one report; those with the most bytes are kept.
MOST_PEERS = 1000


class Part(enum.StrEnum):
    """A part of the uplink's traffic other than the data of coflows."""

    HOST = 'host'
    UNMANAGED = 'unmanaged'
    CONTROL = 'control'


_PARTS = {minors.HOST: Part.HOST, minors.UNMANAGED: Part.UNMANAGED,
          minors.CONTROL: Part.CONTROL}


def _part_of(minor: int) -> Part | None:
    """Return the part of a leaf class by its minor; None for other classes."""
    if minor == minors.HOST:
        return Part.HOST
    if minors.is_port(minor) or minors.is_limited_port(minor):
        return Part.UNMANAGED
    return (Part.CONTROL if minors.controlled_by(minor)
            or minors.is_port_control(minor) else None)


class Name(NamedTuple):
    """Key of a counter.

    :ivar subject: coflow, part of the uplink's traffic or source address.
    :ivar target: host or destination address.
    :ivar where: minor of the class or device of the port; it distinguishes
        successive classes or ports of one subject.
    """

    kind: Kind
    subject: str = ''
    target: str = ''
    where: str = ''


@dataclasses.dataclass(slots=True)
class Total:
    """Sum of a kernel counter over its restarts."""

    base: int = 0
    last: int = 0

    def update(self, raw: int) -> None:
        if raw < self.last:  # the counter restarted
            self.base += self.last
        self.last = raw

    @property
    def value(self) -> int:
        return self.base + self.last


class Counters:
    """Totals of coflows, their destinations, the uplink and VM pairs."""

    def __init__(self, saved: Iterable[Any] = ()):
        self.totals: dict[Name, Total] = {}
        self.backlog_bytes: dict[str, int] = {}
        # Of a child class, by Name.where.
        self._child_backlog_bytes: dict[str, int] = {}
        self.shared_backlog_bytes: dict[Part, int] = {}
        self._limits: dict[int, str] = {}
        self.limited_backlog_bytes: dict[int, int] = {}
        self._classes: dict[int, tuple[str, str | None]] = {}
        self._in_policy: set[int] = set()
        # Per class its bytes, its packets if it is a coflow's, its drops.
        self._of_class: dict[
            int, tuple[Total, Total | None, Total]] | None = None
        for kind, subject, target, where, base, last in saved:
            if kind not in _KINDS:  # of another version
                continue
            self.totals[Name(Kind(kind), subject, target, where)] = Total(
                int(base), int(last))

    def to_rows(self) -> list[list[Any]]:
        """Return all totals as JSON rows, for the constructor to read."""
        return [[*name, total.base, total.last]
                for name, total in self.totals.items()]

    def name_limits(self, unmanaged: edge_policy.Unmanaged | None) -> None:
        """Set the limited host of each slot; see :meth:`limited`."""
        limits = unmanaged.limits if unmanaged is not None else ()
        self._limits = {limit.slot: limit.host for limit in limits}
        self._of_class = None

    def name_classes(self, classes: Iterable[edge_policy.CoflowClass]
                     ) -> None:
        """Set the coflow and host of each minor.

        Classes that left the policy keep their names while the kernel has
        them.
        """
        self._in_policy = set()
        self._of_class = None
        for coflow in classes:
            self._classes[coflow.minor] = (coflow.coflow_id, None)
            self._in_policy.add(coflow.minor)
            for child in coflow.destinations:
                self._classes[child.minor] = (coflow.coflow_id, child.host)
                self._in_policy.add(child.minor)

    def add_stats(self, stats: Mapping[int, wire.ClassStats]) -> None:
        """Take in one dump of the classes.

        What was counted for a coflow is dropped once it is neither in the
        policy nor in the kernel.
        """
        self.backlog_bytes = {}
        self._child_backlog_bytes = {}
        self.shared_backlog_bytes = dict.fromkeys(Part, 0)
        self.limited_backlog_bytes = {}
        if self._of_class is None or stats.keys() != self._of_class.keys():
            self._of_class = self._follow(stats.keys())
        for minor, seen in stats.items():
            sent_bytes, sent_packets, drops = self._of_class[minor]
            sent_bytes.update(seen.sent_bytes)
            if sent_packets is not None:
                sent_packets.update(seen.sent_packets)
            drops.update(seen.drops)
            part = _part_of(minor)
            if part is not None:
                self.shared_backlog_bytes[part] += seen.backlog_bytes
            slot = minors.limit_of(minor)
            if slot is not None and minors.is_limited_port(minor):
                self.limited_backlog_bytes[slot] = (
                    self.limited_backlog_bytes.get(slot, 0)
                    + seen.backlog_bytes)
            if minor in self._classes:
                coflow_id, host = self._classes[minor]
                self.backlog_bytes[coflow_id] = (
                    self.backlog_bytes.get(coflow_id, 0)
                    + seen.backlog_bytes)
                if host is not None and seen.backlog_bytes:
                    self._child_backlog_bytes[str(minor)] = seen.backlog_bytes

    def _follow(self, classes: Set[int]
                ) -> dict[int, tuple[Total, Total | None, Total]]:
        """Return the (bytes, packets, drops) totals of the kernel's classes.

        Totals of coflows that are neither in the policy nor in the kernel are
        deleted.
        """
        for minor in [minor for minor in self._classes
                      if minor not in classes
                      and minor not in self._in_policy]:
            del self._classes[minor]
        known = {str(minor) for minor in self._classes} | {
            str(minors.of_control(minor)) for minor in self._classes}
        for name in [name for name in self.totals if name.where not in known
                     and name.kind in _OF_COFLOWS]:
            del self.totals[name]
        self._fold(classes)
        hosts = {str(minors.of_limit(slot)): host
                 for slot, host in self._limits.items()}
        for name in [name for name in self.totals
                     if name.kind is Kind.LIMITED and name.target
                     and hosts.get(name.where) != name.target]:
            del self.totals[name]
        return {minor: self._totals_of(minor) for minor in classes}

    def _fold(self, classes: Set[int]) -> None:
        """Add the drops of deleted leaves to the total of their part."""
        here = {str(minor) for minor in classes}
        for name in [name for name in self.totals
                     if name.kind is Kind.SHARED_DROPS and name.where
                     and name.where not in here]:
            self._total(name._replace(where='')).base += self.totals.pop(
                name).value

    def _totals_of(self, minor: int) -> tuple[Total, Total | None, Total]:
        if minor == minors.LINK:
            return self._total(Name(Kind.UPLINK)), None, Total()
        where, part = str(minor), _part_of(minor)
        slot = minors.limit_of(minor)
        if slot is not None and part is None:
            # Slots change hands, and their classes go on counting.
            return (self._total(Name(Kind.LIMITED, '', self._limits.get(
                slot, ''), where)), None, Total())
        if part is not None:
            coflow_id, _ = self._classes.get(
                minors.controlled_by(minor) or 0, ('', None))
            return (self._total(Name(Kind.CONTROL, coflow_id, '', where))
                    if coflow_id else self._total(Name(Kind.SHARED, part))
                    if minor == minors.HOST else Total(), None,
                    self._total(Name(Kind.SHARED_DROPS, part, '', where)))
        if minor in _PARTS:
            return (self._total(Name(Kind.SHARED, _PARTS[minor])), None,
                    Total())
        if minor not in self._classes:
            return Total(), None, Total()
        coflow_id, host = self._classes[minor]
        drops = self._total(Name(Kind.DROPS, coflow_id, '', where))
        if host is not None:
            return self._total(Name(Kind.DESTINATION, coflow_id, host,
                                    where)), None, drops
        return (self._total(Name(Kind.COFLOW, coflow_id, '', where)),
                self._total(Name(Kind.PACKETS, coflow_id, '', where)), drops)

    def _total(self, name: Name) -> Total:
        return self.totals.setdefault(name, Total())

    def add_pairs(self, counted: Mapping[tuple[str, classify.Entry],
                                         classify.Counted]) -> None:
        """Take in one reading of the classifier's counters."""
        self._count(Kind.PAIR, Kind.PAIR_PACKETS, {
            (entry.src_ip, entry.dst_ip, f'{dev}:{entry.dst_port}'): seen
            for (dev, entry), seen in counted.items()})

    def add_peers(self, counted: Mapping[tuple[str, str], classify.Counted],
                  is_part: bool = False) -> None:
        """Take in one reading of packets that matched no entry.

        :param counted: counters by (device, destination address).
        :param is_part: whether the reading covers some ports only.
        """
        self._count(Kind.PEER, Kind.PEER_PACKETS, {
            ('', dst_ip, dev): seen
            for (dev, dst_ip), seen in counted.items()}, is_part)

    def _count(self, kind: Kind, packets: Kind,
               counted: Mapping[tuple[str, str, str], classify.Counted],
               is_part: bool = False) -> None:
        """Update the totals of two kinds, of bytes and of packets.

        :param is_part: keep totals that are not in ``counted``; otherwise
            they are deleted.
        """
        live = set()
        for rest, seen in counted.items():
            for each, raw in ((kind, seen.sent_bytes),
                              (packets, seen.sent_packets)):
                name = Name(each, *rest)
                self._total(name).update(raw)
                live.add(name)
        if is_part:
            return
        for name in [name for name in self.totals if name not in live
                     and name.kind in (kind, packets)]:
            del self.totals[name]

    def peers(self) -> tuple[reports.PeerCounter, ...]:
        """Return the ``peers`` of a report."""
        shown = [reports.PeerCounter(
            dev=name.where, dst_ip=name.target, sent_bytes=total.value,
            sent_packets=self._value(name._replace(kind=Kind.PEER_PACKETS)))
            for name, total in self.totals.items() if name.kind is Kind.PEER]
        return tuple(heapq.nlargest(MOST_PEERS, shown,
                                    key=lambda one: one.sent_bytes))

    def uplink_bytes(self) -> int:
        return self._value(Name(Kind.UPLINK))

    def _value(self, name: Name) -> int:
        total = self.totals.get(name)
        return total.value if total is not None else 0

    def shared(self) -> dict[str, reports.PartCounters]:
        """Return the ``shared`` of a report: all but the coflows' data."""
        drops = dict.fromkeys(map(str, Part), 0)
        for name, total in self.totals.items():
            if name.kind is Kind.SHARED_DROPS:
                drops[name.subject] += total.value
        return {str(part): reports.PartCounters(
            sent_bytes=self._value(Name(Kind.SHARED, part)),
            drops=drops[part],
            backlog_bytes=self.shared_backlog_bytes.get(part, 0))
            for part in map(Part, drops)}

    def limited(self) -> tuple[reports.LimitCounter, ...]:
        """Return the counters of unmanaged traffic by limited host.

        The host is None for the class of all other destinations.
        """
        return tuple(reports.LimitCounter(
            host=name.target or None, sent_bytes=total.value,
            backlog_bytes=self.limited_backlog_bytes.get(
                minors.limit_of(int(name.where)) or 0, 0))
            for name, total in self.totals.items()
            if name.kind is Kind.LIMITED)

    def limited_drops(self) -> dict[str, int]:
        """Return packets dropped by limited host, summed over present ports.

        The key is empty for the class of all other destinations.
        """
        found: dict[str, int] = {}
        # The metrics' thread asks while another one counts.
        for name, total in list(self.totals.items()):
            slot = (minors.limit_of(int(name.where))
                    if name.kind is Kind.SHARED_DROPS and name.where else None)
            if slot is not None:
                host = self._limits.get(slot, '')
                found[host] = found.get(host, 0) + total.value
        return found

    def coflows(self) -> tuple[reports.CoflowCounters, ...]:
        """Return the ``coflows`` of a report."""
        sums: dict[str, dict[str, int]] = {}
        children: dict[str, list[reports.DestinationCounter]] = {}
        for (kind, coflow_id, host, where), total in self.totals.items():
            if kind not in _OF_COFLOWS:
                continue
            found = sums.setdefault(coflow_id, {'sent_bytes': 0})
            if kind is Kind.DESTINATION:
                children.setdefault(coflow_id, []).append(
                    reports.DestinationCounter(
                        host, total.value,
                        self._child_backlog_bytes.get(where, 0)))
            else:
                field = _OF_COFLOWS[kind]
                found[field] = found.get(field, 0) + total.value
        return tuple(reports.CoflowCounters(
            coflow_id, **found,
            backlog_bytes=self.backlog_bytes.get(coflow_id, 0),
            destinations=tuple(children.get(coflow_id, ())))
            for coflow_id, found in sums.items())

    def pairs(self) -> tuple[reports.PairCounter, ...]:
        """Return the ``pairs`` of a report, one per flow entry.

        ``dev`` is None for a classifier at the uplink's egress, which does
        not see the port.
        """
        shown = []
        for name, total in self.totals.items():
            if name.kind is Kind.PAIR:
                dev, _, port = name.where.rpartition(':')
                packets = self.totals.get(
                    name._replace(kind=Kind.PAIR_PACKETS), Total())
                shown.append(reports.PairCounter(
                    dev=dev or None, src_ip=name.subject, dst_ip=name.target,
                    dst_port=int(port) or None, sent_bytes=total.value,
                    sent_packets=packets.value))
        return tuple(shown)
