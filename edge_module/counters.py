# SPDX-License-Identifier: Apache-2.0

"""Cumulative counters from the kernel's, which restart with their class.

Pure: takes readings, returns totals. Bytes are on the wire, as the qdisc
counts them; bytes of VM pairs are counted at the VM's port.
"""

import collections
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Set
import contextlib
import dataclasses
import heapq
import operator
from typing import Any
from typing import get_args
from typing import Literal
from typing import NamedTuple

import msgspec

from edge_module.classify import classified as classify
from edge_module.qdisc import wire
from edge_module.tcplan import minors
from edge_module.tcplan import model
from virtco.wire import edge_policy
from virtco.wire import reports

#: Kinds of counters: ``shared`` is a part of the uplink's traffic as a whole,
#: ``leaf`` one of its leaf classes.
Kind = Literal['uplink', 'shared', 'leaf', 'coflow', 'destination', 'limited',
               'pair', 'peer', 'received']
# Kinds of classes that change hands, and go on counting.
_OF_OWNERS: tuple[Kind, ...] = ('coflow', 'destination', 'limited')
#: A part of the uplink's traffic other than the data of coflows.
Part = Literal['host', 'unmanaged', 'control']
#: Most peers in one report; those with the most bytes are kept.
MOST_PEERS = 1000


_PARENTS: dict[int, Part] = {minors.UNMANAGED: 'unmanaged',
                             minors.CONTROL: 'control'}


class Name(NamedTuple):
    """Key of a counter.

    :ivar subject: coflow, part of the uplink's traffic or source address.
    :ivar target: host or destination address.
    :ivar where: minor of the class or device of the port; it distinguishes
        successive classes or ports of one subject. Empty for the sum of leaf
        classes that were deleted.
    """

    kind: Kind
    subject: str = ''
    target: str = ''
    where: str = ''


@dataclasses.dataclass(slots=True)
class Total:
    """Sums of kernel counters over their restarts."""

    base: model.Counts = model.Counts()
    last: model.Counts = model.Counts()

    def update(self, raw: model.Counts) -> None:
        last = self.last
        if any(map(operator.lt, raw, last)):
            self.base = model.Counts(*(  # of those that restarted
                base + (before if now < before else 0)
                for base, before, now in zip(self.base, last, raw)))
        self.last = raw

    @property
    def value(self) -> model.Counts:
        """Sums since the first reading, across restarts of the kernel's."""
        return self.base.plus(self.last)


_RDMA = Name('uplink', 'rdma')
_RDMA_RECEIVED = Name('received', 'rdma')


def _minor_of(name: Name) -> int:
    """Return the minor of a class; 0 for the sum of deleted leaves."""
    return int(name.where or 0)


def _is_known(name: Name) -> bool:
    """Return whether this version has counters of such a name."""
    if name.kind in ('pair', 'peer'):
        return True
    has_minor = name.where.removeprefix('-').isdecimal()
    return (has_minor or not name.where and name.kind not in _OF_OWNERS) and (
        name.kind not in ('shared', 'leaf') or name.subject in get_args(Part))


_Row = tuple[Name, model.Counts, model.Counts]


class Counters:
    """Totals of coflows, their destinations, the uplink and VM pairs."""

    def __init__(self, saved: Iterable[Any] = ()):
        self._totals: dict[Kind, dict[Name, Total]] = (
            collections.defaultdict(dict))
        self._stats: Mapping[int, wire.ClassStats] = {}
        # Limited hosts by slot; coflow and host by minor.
        self._limits = {0: ''}
        self._classes: dict[int, tuple[str, str]] = {}
        #: Minors of the policy's coflows and destinations.
        self.coflow_minors: Set[int] = set()
        self._of_class: dict[int, list[Total]] | None = None
        for row in saved:
            # A row of another version is left out.
            with contextlib.suppress(msgspec.ValidationError):
                name, base, last = msgspec.convert(row, _Row)
                if _is_known(name):
                    self._totals[name.kind][name] = Total(base, last)

    def to_rows(self) -> list[_Row]:
        """Return all totals as JSON rows, for the constructor to read."""
        return [(name, total.base, total.last)
                for totals in self._totals.values()
                for name, total in totals.items()]

    def name_limits(self, unmanaged: edge_policy.Unmanaged | None) -> None:
        """Set the limited host of each slot; see :meth:`limited`."""
        limits = unmanaged.limits if unmanaged is not None else ()
        named = {0: '', **{limit.slot: limit.host for limit in limits}}
        if named != self._limits:
            self._limits, self._of_class = named, None

    def name_classes(self, classes: Iterable[edge_policy.CoflowClass]
                     ) -> None:
        """Set the coflow and host of each minor.

        Classes that left the policy keep their names while the kernel has
        them. On each uplink they have these minors.
        """
        named = {}
        for coflow in classes:
            named[coflow.minor] = coflow.coflow_id, ''
            for child in coflow.destinations:
                named[child.minor] = coflow.coflow_id, child.host
        if named.keys() != self.coflow_minors or not (
                named.items() <= self._classes.items()):
            self._classes.update(named)
            self.coflow_minors = set(named)
            self._of_class = None

    def add_stats(self, stats: Mapping[int, wire.ClassStats]) -> None:
        """Take in one dump of the classes.

        What was counted for a coflow is dropped once it is neither in the
        policy nor in the kernel, or its class is another's.
        """
        self._stats = stats
        if self._of_class is None or stats.keys() != self._of_class.keys():
            self._of_class = self._follow(stats.keys())
        for minor, totals in self._of_class.items():
            for total in totals:
                total.update(stats[minor].counts)

    def _follow(self, classes: Set[int]) -> dict[int, list[Total]]:
        """Return the totals of the kernel's classes; delete those without."""
        self._classes = {minor: of for minor, of in self._classes.items()
                         if minor in classes or minor in self.coflow_minors}
        left: dict[int, Total] = {}
        for kind in _OF_OWNERS:
            for name in [*self._totals[kind]]:
                if name != self._name_of(int(name.where)):
                    left[int(name.where)] = self._totals[kind].pop(name)
        for minor in left.keys() & classes:
            owner = self._name_of(minor)
            if owner is not None:
                # Bytes so far were the other owner's, and are not counted.
                last = left[minor].last
                self._totals[owner.kind][owner] = Total(
                    model.Counts().since(last), last)
        # Leaves that are gone are added up for each part, and so are classes
        # of further uplinks.
        for name in (*self._totals['leaf'], *self._totals['uplink']):
            if name.where and name.subject != 'queue' and (
                    int(name.where) not in classes
                    and int(name.where) % minors.FURTHER not in self._classes):
                into = self._total(name._replace(where=''))
                into.base = into.base.plus(
                    self._totals[name.kind].pop(name).value)
        return {minor: list(map(self._total, self._names_of(minor)))
                for minor in classes}

    def _names_of(self, minor: int) -> Iterator[Name]:
        """Yield the names of the counters that count a class."""
        name = self._name_of(minor)
        if name is not None:
            yield name
            if name.kind == 'coflow' and minor >= minors.FURTHER:
                # Bytes of others are the uplink's less those of coflows.
                yield Name('uplink', 'further', '', name.where)

    def _name_of(self, minor: int) -> Name | None:
        """Return the name of a class's counter; None counts nothing."""
        where = str(minor)
        if minor < 0:
            return Name('uplink', 'queue', '', where)
        further, minor = divmod(minor, minors.FURTHER)
        if further and minor not in self._classes:
            return None
        if minor == minors.LINK:
            return Name('uplink')
        if minor in _PARENTS:
            return Name('shared', _PARENTS[minor])
        if minor == minors.HOST:
            return Name('leaf', 'host', '', where)
        if minors.has_turns(minor):
            return Name('leaf', 'unmanaged', '', where)
        if minors.is_control(minor):
            return Name('leaf', 'control', '', where)
        if (slot := minors.limit_of(minor)) is not None:
            # A class whose host is not limited any more counts for nobody.
            host = self._limits.get(slot)
            return None if host is None else Name('limited', '', host, where)
        if minor not in self._classes:
            return None
        coflow_id, host = self._classes[minor]
        return Name('destination' if host else 'coflow', coflow_id, host,
                    where)

    def _total(self, name: Name) -> Total:
        return self._totals[name.kind].setdefault(name, Total())

    def add_pairs(self, counted: Mapping[tuple[str, classify.Entry],
                                         model.Counts]) -> None:
        """Take in one reading of the classifier's counters."""
        self._count('pair', {
            Name('pair', entry.src_ip, entry.dst_ip,
                 f'{dev}:{entry.dst_port}'): seen
            for (dev, entry), seen in counted.items()})

    def add_peers(self, counted: Mapping[tuple[str, str], model.Counts],
                  is_part: bool = False) -> None:
        """Take in one reading of packets that matched no entry.

        :param counted: counters by (device, destination address).
        :param is_part: whether the reading covers some ports only.
        """
        self._count('peer', {
            Name('peer', '', dst_ip, dev): seen
            for (dev, dst_ip), seen in counted.items()}, is_part)

    def _count(self, kind: Kind, counted: Mapping[Name, model.Counts],
               is_part: bool = False) -> None:
        """Update the totals of a kind.

        :param is_part: keep totals that are not in ``counted``; otherwise
            they are deleted.
        """
        for name, seen in counted.items():
            self._total(name).update(seen)
        for name in () if is_part else (
                self._totals[kind].keys() - counted.keys()):
            del self._totals[kind][name]

    def _of_kind(self, kind: Kind) -> list[tuple[Name, model.Counts]]:
        return [(name, total.value)
                for name, total in self._totals[kind].items()]

    def _backlog_bytes(self, name: Name) -> int:
        return self._stats.get(_minor_of(name), wire.NO_STATS).backlog_bytes

    def peers(self) -> tuple[reports.PeerCounter, ...]:
        """Return the ``peers`` of a report."""
        return tuple(heapq.nlargest(MOST_PEERS, (reports.PeerCounter(
            dev=name.where, dst_ip=name.target, sent_bytes=seen.sent_bytes,
            sent_packets=seen.sent_packets)
            for name, seen in self._of_kind('peer')),
            key=lambda one: one.sent_bytes))

    def add_rdma(self, sent_bytes: int, received_bytes: int) -> None:
        """Take in the bytes of RDMA that the uplink's card counted."""
        for name, total_bytes in ((_RDMA, sent_bytes),
                                  (_RDMA_RECEIVED, received_bytes)):
            # A counter that could not be read goes on where it was.
            if total_bytes:
                self._total(name).update(model.Counts(total_bytes))

    def sums(self) -> dict[str, Any]:
        """Return the fields of a report about the whole uplink."""
        sent: collections.Counter[str] = collections.Counter()
        for name, seen in self._of_kind('uplink'):
            sent[name.subject] += seen.sent_bytes
        shared = self.shared()
        return {
            'shared': shared, 'uplink_sent_bytes': sent.total(),
            'default_sent_bytes': sent['rdma'] + sum(
                shared[part].sent_bytes for part in ('host', 'unmanaged')),
            'unshaped_sent_bytes': sent['queue'] + sent['rdma'],
            'rdma_received_bytes': sum(
                seen.sent_bytes for _, seen in self._of_kind('received'))}

    def shared(self) -> dict[str, reports.PartCounters]:
        """Return the ``shared`` of a report: all but the coflows' data."""
        sums: dict[str, collections.Counter[str]] = {
            part: collections.Counter(sent_bytes=0)
            for part in get_args(Part)}
        for name, seen in self._of_kind('leaf'):
            found = sums[name.subject]
            found['drops'] += seen.drops
            found['backlog_bytes'] += self._backlog_bytes(name)
            if name.subject == 'host':  # the only leaf without a parent
                found['sent_bytes'] += seen.sent_bytes
        for name, seen in self._of_kind('shared'):
            sums[name.subject]['sent_bytes'] = seen.sent_bytes
        return {part: reports.PartCounters(**found)
                for part, found in sums.items()}

    def limited(self) -> tuple[reports.LimitCounter, ...]:
        """Return the counters of unmanaged traffic by limited host.

        The host is None for the class of all other destinations.
        """
        backlog_bytes: collections.Counter[int | None] = collections.Counter()
        for name, _ in self._of_kind('leaf'):
            backlog_bytes[minors.limit_of(_minor_of(name))] += (
                self._backlog_bytes(name))
        return tuple(reports.LimitCounter(
            host=name.target or None, sent_bytes=seen.sent_bytes,
            backlog_bytes=backlog_bytes[minors.limit_of(int(name.where))])
            for name, seen in self._of_kind('limited'))

    def limited_drops(self) -> dict[str, int]:
        """Return packets dropped by limited host, summed over present ports.

        The key is empty for the class of all other destinations.
        """
        found: collections.Counter[str] = collections.Counter()
        for name, seen in self._of_kind('leaf'):
            if (slot := minors.limit_of(_minor_of(name))) is not None:
                found[self._limits.get(slot, '')] += seen.drops
        return found

    def coflows(self) -> tuple[reports.CoflowCounters, ...]:
        """Return the ``coflows`` of a report."""
        def sums() -> dict[str, int]:
            return collections.defaultdict(int, sent_bytes=0)

        found: dict[str, dict[str, int]] = collections.defaultdict(sums)
        children: dict[str, dict[str, dict[str, int]]] = (
            collections.defaultdict(lambda: collections.defaultdict(sums)))
        for name, seen in (*self._of_kind('coflow'),
                           *self._of_kind('destination')):
            own, backlog = found[name.subject], self._backlog_bytes(name)
            own['drops'] += seen.drops
            own['backlog_bytes'] += backlog
            if name.kind == 'coflow':
                own['sent_packets'] += seen.sent_packets
            else:
                # An uplink each.
                own = children[name.subject][name.target]
                own['backlog_bytes'] += backlog
            own['sent_bytes'] += seen.sent_bytes
        return tuple(reports.CoflowCounters(
            coflow_id, **own, destinations=tuple(
                reports.DestinationCounter(host, **sent)
                for host, sent in children[coflow_id].items()))
            for coflow_id, own in found.items())

    def pairs(self) -> tuple[reports.PairCounter, ...]:
        """Return the ``pairs`` of a report, one per flow entry.

        ``dev`` is None for a classifier at the uplink's egress, which does
        not see the port.
        """
        shown = []
        for name, seen in self._of_kind('pair'):
            dev, _, port = name.where.rpartition(':')
            shown.append(reports.PairCounter(
                dev=dev or None, src_ip=name.subject, dst_ip=name.target,
                dst_port=int(port) or None, sent_bytes=seen.sent_bytes,
                sent_packets=seen.sent_packets))
        return tuple(shown)
