# SPDX-License-Identifier: Apache-2.0

"""The policy of one host as arrays; it becomes a document when it is fetched.

Most schedules change few numbers enough to be told, and an edge fetches its
document when it comes to it: only then :meth:`HostPolicy.policy` makes the
thousands of objects.
"""

from collections.abc import Mapping
import dataclasses
from typing import NamedTuple

import numpy as np

from virtco.table import coflow_table
from virtco.table import layout as layouts
from virtco.table import unmanaged as table_unmanaged
from virtco.wire import edge_policy

# Relative change of unmanaged rates that needs no new policy: the rates that
# senders want vary from report to report.
UNMANAGED_TOLERANCE = 0.1
LAST_PRIO = edge_policy.PRIOS - 1


class Numbers(NamedTuple):
    """Numbers of classes and their children, of one host or of all.

    :ivar prios: priority of each class, shape (n_classes,).
    :ivar class_bps: rate of each class, shape (n_classes,).
    :ivar child_bps: rate of each child, shape (n_children,).
    :ivar child_ceil_bps: rate up to which each child may borrow, shape
        (n_children,).
    :ivar left_bytes: bytes left of each child, shape (n_children,).
    """

    prios: np.ndarray
    class_bps: np.ndarray
    child_bps: np.ndarray
    child_ceil_bps: np.ndarray
    left_bytes: np.ndarray


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class HostPolicy:
    """The policy of one host by one schedule, as arrays.

    :ivar layout: layout of the classes.
    :ivar ranks: rank of each coflow; 0 is served first.
    :ivar borrows: whether classes may use the whole link.
    :ivar unmanaged: limits of unmanaged traffic, if any.
    """

    layout: layouts.Layout
    link: coflow_table.Link
    ttl_s: float
    ranks: Mapping[str, int]
    numbers: Numbers
    borrows: bool = False
    unmanaged: edge_policy.Unmanaged | None = None

    def winners(self) -> list[str]:
        """Return, per group of rivals, the coflow that owns their pairs."""
        return [min(some, key=self.ranks.__getitem__)
                for some in self.layout.rivals]

    def is_close(self, new: 'HostPolicy', tolerance: float) -> bool:
        """Return whether two policies of layouts that say the same are equal
        beside the numbers of their classes, up to small changes of rates.
        """
        return (self.ttl_s == new.ttl_s
                and table_unmanaged.near(self.link.speeds(),
                                         new.link.speeds(), tolerance)
                and self.winners() == new.winners()
                and table_unmanaged.is_close(
                    self.unmanaged, new.unmanaged, UNMANAGED_TOLERANCE))

    def policy(self, generation: int = 0) -> edge_policy.EdgePolicy:
        """Return the policy as a document."""
        order = sorted(self.layout.entries, key=self.ranks.__getitem__)
        entries: coflow_table.Entries = {}
        for coflow_id in order:
            for key, entry in self.layout.entries[coflow_id].items():
                entries.setdefault(key, entry)
        classes = {c.coflow_id: c for c in self._classes()}
        return edge_policy.EdgePolicy(
            host=self.layout.host, generation=generation, ttl_s=self.ttl_s,
            egress_bps=self.link.egress_bps,
            ingress_bps=self.link.ingress_bps,
            default_rate_bps=self.link.default_rate_bps,
            classes=tuple(classes[coflow_id] for coflow_id in order
                          if coflow_id in classes),
            flows=tuple(entries.values()),
            received=tuple(self.layout.received()), unmanaged=self.unmanaged)

    def _classes(self) -> list[edge_policy.CoflowClass]:
        """Build the coflows' classes with their children."""
        layout, numbers = self.layout, self.numbers
        left = np.bincount(layout.class_of, numbers.left_bytes,
                           len(layout.classes))[layout.class_of]
        # w = p/s of VirtCO Eq. (2).
        weights = np.divide(numbers.left_bytes, left, where=left > 0,
                            out=1 / layout.n_children[layout.class_of])
        children = tuple(map(
            edge_policy.Destination, layout.peers, layout.child_minors,
            weights.tolist(), numbers.child_bps.tolist(),
            numbers.child_ceil_bps.tolist(), layout.child_macs))
        ends = np.cumsum(layout.n_children).tolist()
        return [edge_policy.CoflowClass(
            coflow.coflow_id, coflow.name, minor, rate_bps,
            self.link.egress_bps if self.borrows else rate_bps, prio,
            children[start:end])
            for coflow, minor, rate_bps, prio, start, end in zip(
                layout.classes, layout.class_minors,
                numbers.class_bps.tolist(), numbers.prios.tolist(),
                [0, *ends], ends)]
