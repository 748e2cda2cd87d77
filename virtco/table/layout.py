# SPDX-License-Identifier: Apache-2.0

"""Layout of the policy of one host: classes, children and flows.

A layout stays while no coflow comes, goes or moves at the host;
:mod:`virtco.table.host_policy` adds the numbers of one schedule.
"""

from collections.abc import Mapping

import numpy as np

from virtco.table import coflow_table
from virtco.wire import edge_policy

Coflows = tuple[coflow_table.TableCoflow, ...]


class Layout:
    """Classes (one per coflow), their children and the flows of one host.

    :param senders: coflows that send from the host.
    :ivar receivers: coflows whose arriving pairs the host is told.
    :ivar minors: class numbers of the host; None = flows are counted in the
        default class.
    :ivar protects: whether the host is told the arriving pairs.
    :ivar is_whole: whether each class and child has a number.
    :ivar classes: coflow of each class.
    :ivar class_minors: number of each class.
    :ivar peers: destination host of each child; a class's children are in a
        row.
    :ivar child_minors: number of each child.
    :ivar child_macs: Ethernet addresses of each child's receivers.
    :ivar class_of: index of each child's class, shape (n_children,).
    :ivar places: index of each child among its coflow's pairs, shape
        (n_children,).
    :ivar n_children: number of children of each class, shape (n_classes,).
    :ivar entries: flow entries of each coflow that has any.
    :ivar rivals: ids of coflows that have the same pair of VMs, per such case;
        the pair belongs to the one that is served first.
    """

    def __init__(self, host: str, senders: Coflows, receivers: Coflows = (),
                 minors: coflow_table.Minors | None = None,
                 protects: bool = False):
        self.host = host
        self.receivers = receivers
        self.minors = minors
        self.protects = protects
        self.entries: dict[str, coflow_table.Entries] = {}
        classes: list[coflow_table.TableCoflow] = []
        rows: list[tuple[str, int, int, int]] = []
        taken = minors.taken if minors is not None else {}
        for coflow in senders:
            children = {
                peer: taken[key] for peer in coflow.places[host]
                if (key := coflow_table.destination_key(
                    coflow.coflow_id, peer)) in taken}
            if minors is None:
                self.entries[coflow.coflow_id] = coflow.entries(
                    host, dict.fromkeys(coflow.places[host],
                                        edge_policy.DEFAULT_MINOR))
            elif children and coflow.coflow_id in taken:
                rows += [(peer, minor, len(classes),
                          coflow.places[host][peer])
                         for peer, minor in sorted(children.items())]
                classes.append(coflow)
                self.entries[coflow.coflow_id] = coflow.entries(host,
                                                                children)
        self.is_whole = len(rows) == sum(len(c.places[host]) for c in senders)
        self.classes = tuple(classes)
        self.class_minors = tuple(taken[c.coflow_id] for c in classes)
        self.peers = tuple(row[0] for row in rows)
        self.child_minors = tuple(row[1] for row in rows)
        self.child_macs = tuple(classes[row[2]].macs.get(row[0], ())
                                for row in rows)
        self.class_of = np.array([row[2] for row in rows], np.int64)
        self.places = np.array([row[3] for row in rows], np.int64)
        self.n_children = np.bincount(self.class_of, minlength=len(classes))
        self.rivals = _rivals(self.entries)

    def says_same(self, other: 'Layout') -> bool:
        """Return whether documents made of both differ in numbers only."""
        return self is other or (
            [(c.coflow_id, c.name) for c in self.classes]
            == [(c.coflow_id, c.name) for c in other.classes]
            and self.class_minors == other.class_minors
            and self.peers == other.peers
            and self.child_minors == other.child_minors
            and self.child_macs == other.child_macs
            and self.entries == other.entries
            and self.received() == other.received())

    def received(self) -> coflow_table.Received:
        found: coflow_table.Received = {}
        for coflow in self.receivers:
            found |= coflow.received.get(self.host, {})
        return found


def _rivals(entries: Mapping[str, coflow_table.Entries]
            ) -> tuple[tuple[str, ...], ...]:
    """List the groups of coflows that claim the same flow."""
    claims: dict[coflow_table.EntryKey, tuple[str, ...]] = {}
    for coflow_id, some in entries.items():
        for key in some:
            claims[key] = *claims.get(key, ()), coflow_id
    return tuple(sorted({some for some in claims.values() if len(some) > 1}))
