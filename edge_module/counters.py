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
"""Cumulative counters out of the kernel's, which restart with their class.

Pure: fed with what was read, asked for totals. Bytes are those on the wire,
as the qdisc counts them; those of VM pairs are counted at the VM's port.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import enum
from typing import Any
from typing import NamedTuple

from edge_module.classify import base as classify
from edge_module.qdisc import wire
from edge_module import tcplan
from virtco.table import edge_policy


class Kind(enum.StrEnum):
    UPLINK = 'uplink'
    DEFAULT = 'default'
    COFLOW = 'coflow'
    DESTINATION = 'destination'
    PACKETS = 'packets'
    DROPS = 'drops'
    PAIR = 'pair'
    PAIR_PACKETS = 'pair packets'


class Name(NamedTuple):
    """Whose counter it is.

    ``subject`` is the coflow or the source address, ``target`` the host or
    the destination address, ``where`` the class's minor or the port's device:
    it keeps two lives of one subject apart.
    """

    kind: Kind
    subject: str = ''
    target: str = ''
    where: str = ''


@dataclasses.dataclass(slots=True)
class Total:
    """A sum over the lives of a kernel counter."""

    base: int = 0
    last: int = 0

    def update(self, raw: int) -> None:
        if raw < self.last:  # the counter began anew
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
        self._classes: dict[int, tuple[str, str | None]] = {}
        self._in_policy: set[int] = set()
        for kind, subject, target, where, base, last in saved:
            self.totals[Name(Kind(kind), subject, target, where)] = Total(
                int(base), int(last))

    def to_rows(self) -> list[list[Any]]:
        """For JSON; the constructor reads it back."""
        return [[*name, total.base, total.last]
                for name, total in self.totals.items()]

    def name_classes(self, classes: Iterable[edge_policy.CoflowClass]
                     ) -> None:
        """Learn whose the minors are; those that left keep their names."""
        self._in_policy = set()
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
        for minor in [minor for minor in self._classes
                      if minor not in stats and minor not in self._in_policy]:
            del self._classes[minor]
        known = {str(minor) for minor in self._classes}
        for name in [name for name in self.totals if name.where not in known
                     and name.kind in (Kind.COFLOW, Kind.DESTINATION,
                                       Kind.PACKETS, Kind.DROPS)]:
            del self.totals[name]
        for minor, seen in stats.items():
            if minor == tcplan.LINK_MINOR:
                self._add(Name(Kind.UPLINK), seen.sent_bytes)
            elif minor == tcplan.DEFAULT_MINOR:
                self._add(Name(Kind.DEFAULT), seen.sent_bytes)
            elif minor in self._classes:
                self._add_class(str(minor), *self._classes[minor], seen)

    def _add_class(self, where: str, coflow_id: str, host: str | None,
                   seen: wire.ClassStats) -> None:
        if host is None:
            self._add(Name(Kind.COFLOW, coflow_id, '', where),
                      seen.sent_bytes)
            self._add(Name(Kind.PACKETS, coflow_id, '', where),
                      seen.sent_packets)
        else:
            self._add(Name(Kind.DESTINATION, coflow_id, host, where),
                      seen.sent_bytes)
        self._add(Name(Kind.DROPS, coflow_id, '', where), seen.drops)
        self.backlog_bytes[coflow_id] = (
            self.backlog_bytes.get(coflow_id, 0) + seen.backlog_bytes)

    def _add(self, name: Name, raw: int) -> None:
        self.totals.setdefault(name, Total()).update(raw)

    def add_pairs(self, counted: Mapping[classify.Key, classify.Counted]
                  ) -> None:
        """Take in one reading of the classifier's counters."""
        live = set()
        for key, seen in counted.items():
            name = Name(Kind.PAIR, key.src_ip, key.dst_ip,
                        f'{key.dev}:{key.dst_port}')
            self._add(name, seen.sent_bytes)
            packets = name._replace(kind=Kind.PAIR_PACKETS)
            self._add(packets, seen.sent_packets)
            live |= {name, packets}
        for name in [name for name in self.totals if name not in live
                     and name.kind in (Kind.PAIR, Kind.PAIR_PACKETS)]:
            del self.totals[name]

    def value(self, kind: Kind) -> int:
        """Total of the uplink or of the default class."""
        total = self.totals.get(Name(kind))
        return total.value if total is not None else 0

    def coflows(self) -> list[dict[str, Any]]:
        """The ``coflows`` of a report."""
        shown: dict[str, dict[str, Any]] = {}
        for name, total in self.totals.items():
            if name.kind not in (Kind.COFLOW, Kind.DESTINATION, Kind.PACKETS,
                                 Kind.DROPS):
                continue
            entry = shown.setdefault(name.subject, {
                'coflow_id': name.subject, 'sent_bytes': 0,
                'sent_packets': 0, 'drops': 0,
                'backlog_bytes': self.backlog_bytes.get(name.subject, 0),
                'destinations': []})
            if name.kind is Kind.COFLOW:
                entry['sent_bytes'] += total.value
            elif name.kind is Kind.PACKETS:
                entry['sent_packets'] += total.value
            elif name.kind is Kind.DROPS:
                entry['drops'] += total.value
            else:
                entry['destinations'].append(
                    {'host': name.target, 'sent_bytes': total.value})
        return list(shown.values())

    def pairs(self) -> list[dict[str, Any]]:
        """The ``pairs`` of a report, one per entry of the classification."""
        shown = []
        for name, total in self.totals.items():
            if name.kind is Kind.PAIR:
                dev, _, port = name.where.rpartition(':')
                packets = self.totals.get(
                    name._replace(kind=Kind.PAIR_PACKETS), Total())
                shown.append({'dev': dev, 'src_ip': name.subject,
                              'dst_ip': name.target,
                              'dst_port': int(port) or None,
                              'sent_bytes': total.value,
                              'sent_packets': packets.value})
        return shown
