# SPDX-License-Identifier: Apache-2.0

"""Brings the HTB of an uplink to the tree that is wanted, step by step.

What it read or made it remembers, until somebody says that it was changed by
others, or the kernel refuses: ten thousand classes take as long to read as
thousands of them to change.
"""

import logging
import math

from edge_module.qdisc import htb
from edge_module.qdisc import wire
from edge_module.tcplan import model
from edge_module.tcplan import steps
from virtco import exception

LOG = logging.getLogger(__name__)

# How long a class is kept beyond its time while something is queued in it.
_PATIENCE_S = 30.0
# Seconds until a deletion that was refused is tried again.
_RETRY_S = 5.0


class TreeKeeper:
    """The tree of one uplink."""

    def __init__(self, uplink: htb.Uplink):
        self.uplink = uplink
        # With the index of the device it was read from.
        self._known: tuple[int, model.Tree] | None = None
        # When classes without use are deleted.
        self._leaving: dict[int, float] = {}
        # Leaves that are held up, and the bytes after which they need not be.
        self._draining: dict[int, float] = {}

    @property
    def is_known(self) -> bool:
        """Whether the next change reads nothing first."""
        return self._known is not None

    @property
    def is_draining(self) -> bool:
        """Whether leaves are held up until their queues are empty."""
        return bool(self._draining)

    @property
    def is_waiting(self) -> bool:
        """Whether something is left to do, now or later."""
        return bool(self._draining or self._leaving)

    def forget(self) -> None:
        """Read the kernel before the next change."""
        self._known = None

    def change(self, wanted: model.Tree, settings: model.TreeSettings,
               due_s: float) -> steps.Update:
        """Make it this tree, but for classes that leave; note each step.

        :param due_s: time at which :meth:`delete` deletes those that do not
            leave already.
        :raises virtco.exception.QdiscConflict: when somebody else shapes the
            uplink; nothing is changed.
        :raises virtco.exception.VirtcoException: when the kernel refuses.
        """
        tree = self.current()
        self._draining = self._held_up(wanted, tree)
        update = steps.plan_update(tree, steps.hold(
            wanted, tree, self._draining, settings))
        try:
            for classes in (update.lower, update.rise):
                if classes:
                    self.uplink.set_classes(classes, tree)
                    tree.update((item.minor, item) for item in classes)
        except exception.VirtcoException:
            self.forget()
            raise
        self._leaving = {minor: self._leaving.get(minor, due_s)
                         for minor in update.leave}
        return update

    def current(self) -> model.Tree:
        """Return the kernel's tree, which is read unless it is known.

        :raises virtco.exception.VirtcoException: as :meth:`change`.
        """
        ifindex = self.uplink.ifindex()
        if self._known is None or self._known[0] != ifindex:
            self._known = ifindex, self._read()
        return self._known[1]

    def _read(self) -> model.Tree:
        snapshot = self.uplink.snapshot()
        if snapshot.foreign is not None:
            raise exception.QdiscConflict(dev=self.uplink.dev,
                                          qdisc=snapshot.foreign)
        if not snapshot.present or (
                self.uplink.is_shared and not snapshot.is_inside):
            LOG.info('Uplink %s is shaped by htb', self.uplink.dev)
            self.uplink.ensure_root(snapshot)
            snapshot = self.uplink.snapshot()
        self.uplink.is_inside = snapshot.is_inside
        self.uplink.others = snapshot.others
        return snapshot.tree

    def _held_up(self, desired: model.Tree, tree: model.Tree
                 ) -> dict[int, float]:
        """Return the leaves whose rate is held until their queue is sent.

        They leave or slow down. At a very low rate a super-packet would block
        the class for seconds, even if its rate rises again meanwhile.

        :returns: by minor, the sent bytes until which the rate is held.
        """
        asked = [have for minor, have in tree.items()
                 if have.limit_bytes is not None
                 and desired.get(minor) is not have and model.is_data(minor)
                 and self._may_hold(have, desired.get(minor))]
        if not asked:
            return {}
        stats = self.uplink.class_stats()
        found = {}
        for have in asked:
            seen = stats.get(have.minor, wire.NO_STATS)
            until = self._held_until(have, desired.get(have.minor), seen)
            if seen.sent_bytes < until:
                found[have.minor] = until
        return found

    def _may_hold(self, have: model.HtbClass, wanted: model.HtbClass | None
                  ) -> bool:
        """Return whether a leaf leaves, or begins to cut super-packets of
        which some may be queued whole.
        """
        return wanted is None or (
            wanted.packet_bytes not in (None, model.WHOLE_BYTES)
            and (have.packet_bytes == model.WHOLE_BYTES
                 or have.minor in self._draining))

    def _held_until(self, have: model.HtbClass,
                    wanted: model.HtbClass | None, stats: wire.ClassStats
                    ) -> float:
        """Return the sent bytes until which a leaf's rate is held.

        Infinity: not known yet. A leaf that leaves may get packets until the
        classification changes; a leaf that slows down may get whole
        super-packets until it cuts them.
        """
        before = self._draining.get(have.minor, 0.0)
        if wanted is None:
            may_send = (stats.backlog_bytes > 0 if before
                        else have.minor not in self._leaving)
            # A leaf at the idle rate has no guarantee left to hold.
            return (math.inf if may_send
                    and have.rate_bps > model.IDLE_RATE_BPS else 0.0)
        if have.packet_bytes == model.WHOLE_BYTES:
            return math.inf if stats.backlog_bytes else 0.0
        if math.isinf(before):
            return stats.sent_bytes + stats.backlog_bytes
        return before

    def stay(self) -> None:
        """Have no class leave before the next change."""
        self._leaving = {}

    def is_due(self, now_s: float) -> bool:
        """Return whether :meth:`delete` has something to do."""
        return any(now_s >= due_s for due_s in self._leaving.values())

    def delete(self, wanted: model.Tree, now_s: float) -> list[int]:
        """Delete the classes whose time is over; which these were."""
        tree = self.current()
        update = steps.plan_update(tree, wanted)
        due = {minor for minor in update.leave
               if now_s >= self._leaving.get(minor, math.inf)}
        # A leaf would drop its queue; it is waited for _PATIENCE_S at most.
        stats = self.uplink.class_stats()
        due -= {minor for minor in due
                if stats.get(minor, wire.NO_STATS).backlog_bytes
                and now_s < self._leaving[minor] + _PATIENCE_S}
        # A parent stays until all of its children go.
        staying = {item.parent for item in tree.values()
                   if item.minor not in due}
        ready = [minor for minor in update.leave
                 if minor in due and minor not in staying]
        try:
            self.uplink.delete_classes(ready)
        except exception.VirtcoException:
            # The kernel keeps a class that a filter of others names.
            self._leaving |= dict.fromkeys(ready, now_s + _RETRY_S)
            self.forget()
            raise
        for minor in ready:
            del self._leaving[minor]
            del tree[minor]
        return ready
