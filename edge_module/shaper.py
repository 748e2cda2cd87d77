# SPDX-License-Identifier: Apache-2.0

"""Makes the tree of one uplink equal the policy of its host."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import threading
from typing import TYPE_CHECKING

from oslo_log import log as logging

from edge_module import early_packets
from edge_module import kernel_events
from edge_module.classify import classified as classify
from edge_module.privileged import devices
from edge_module.qdisc import htb
from edge_module.qdisc import htb_tree as edge_tree
from edge_module.qdisc import wire
from edge_module.tcplan import minors
from edge_module.tcplan import model
from edge_module.tcplan import shape
from edge_module.tcplan import turns
from virtco import exception
from virtco import units
from virtco.wire import edge_policy

if TYPE_CHECKING:
    from edge_module.ports import ovsdb

LOG = logging.getLogger(__name__)

#: Seconds for which the class of an ended coflow stays for its last packets.
GRACE_S = 5.0
#: Share of the uplink that is guaranteed to all unmanaged traffic while there
#: is no policy; a policy brings its own.
DEFAULT_SHARE = 0.02

# As many limits of others as a note names.
_NAMED = 5


def some(items: Sequence[str]) -> str:
    """Join the first items, and say how many are left out."""
    more = len(items) - _NAMED
    return ', '.join(items[:_NAMED]) + (f' and {more} more' if more > 0
                                        else '')


class Shaper:
    """Applies policies to one uplink.

    :param speed_bps: returns the present speed of the link, which may change.
    :param guard: keeps Open vSwitch, if there is one, from the uplink's qdisc.
    :param is_further: whether the policy is about another uplink of the host:
        its rates hold in proportion to the speeds of both.
    :ivar conflict: message that names the other program that shapes the
        uplink, None without one. During a conflict the uplink has no classes
        of this module; counters and the receiver's side go on.
    """

    def __init__(self, uplink: htb.Uplink, speed_bps: Callable[[], float], *,
                 settings: model.TreeSettings = model.TreeSettings(),
                 guard: 'ovsdb.OvsGuard | None' = None,
                 is_further: bool = False):
        self.speed_bps = speed_bps
        self.link_bps = speed_bps()
        self.settings = settings
        self.guard = guard
        self.is_further = is_further
        self.grace_s = GRACE_S
        self._seen_link: tuple[int, int, float] | None = None
        self.tree = edge_tree.TreeKeeper(uplink)
        self._made: shape.Made = {}
        self._early = early_packets.EarlyPackets()
        self.policy: edge_policy.EdgePolicy | None = None
        self.n_past = 0
        self._is_stale = True
        self.ports: tuple[classify.VmPort, ...] | None = None
        self.conflict: str | None = None
        self.lock = threading.RLock()
        self._turns = turns.PortTurns(settings.overhead_bytes,
                                      settings.frame_min_bytes)
        self._control_turns: dict[int, float] = {}

    @property
    def uplink(self) -> htb.Uplink:
        """Device whose classes this shaper keeps."""
        return self.tree.uplink

    @property
    def note(self) -> str | None:
        """Device, program and limits of another shaper, while both hold."""
        if self.conflict is not None or not self.uplink.is_inside:
            return None
        who = self.guard and self.guard.sharer or 'another program'
        limits = [f'1:{minor:x} to {units.format_rate(queue.ceil_bps)}'
                  for minor, queue in sorted(self.uplink.others.items())
                  if queue.ceil_bps < self.link_bps]
        return (f'{who} limits classes of {self.uplink.dev}: '
                f'{some(limits) or "none now"}; packets of its queues are in '
                'no class of virtco')

    def desired_tree(self) -> model.Tree:
        settings = self._settings_now()
        if self.policy is None:
            return shape.base_tree(
                self.link_bps, DEFAULT_SHARE * self.link_bps, settings)
        policy = (shape.in_proportion(self.policy, self.link_bps)
                  if self.is_further else self.policy)
        return shape.build_tree(
            policy, self.link_bps, settings, self.n_past,
            self.ifindexes(), self._turns.turns | self._control_turns,
            self._early.rates_bps, self._made, self.uplink.queues_bps)

    def ifindexes(self) -> list[int]:
        """Return the ifindex of each port that is here."""
        return [port.ifindex for port in self.ports or () if port.is_here]

    def _settings_now(self) -> model.TreeSettings:
        # Frames as :meth:`was_lost` compares them: with an MTU that is set
        # back at once, the tree would otherwise keep the one in between.
        seen = self._seen_link
        return dataclasses.replace(
            self.settings, frame_bytes=seen[1] if seen else
            self._frame_bytes())

    def _frame_bytes(self) -> int:
        return self.uplink.frame_bytes(*(
            port.dev for port in self.ports or () if port.is_here))

    def sync(self, policy: edge_policy.EdgePolicy | None, n_past: int,
             ports: tuple[classify.VmPort, ...] | None, now_s: float) -> bool:
        """Make the kernel's classes and classification match a policy.

        Call it whenever policy or ports may have changed, after
        :meth:`forget`, and a few times a second while :attr:`is_waiting`.
        After a start nothing that stands is removed while the policy is
        unknown, and the classification stays while the ports are unknown.

        :param policy: None: not known yet.
        :param n_past: number of times that its time to live passed.
        :param ports: None: not known yet.
        :param now_s: any monotonic clock, always the same.
        :returns: whether there was something to compare.
        :raises virtco.exception.VirtcoException: when the kernel refuses;
            after :meth:`forget` it goes on from where it stopped.
        """
        with self.lock:
            wanted = policy, n_past, ports
            is_due = self._is_stale or wanted != (
                self.policy, self.n_past, self.ports)
            if is_due:
                self._is_stale = False
                self.policy, self.n_past, self.ports = wanted
                if self._seen_link is not None:  # frames of other ports
                    ifindex, _, speed_bps = self._seen_link
                    self._seen_link = ifindex, self._frame_bytes(), speed_bps
                self._follow(now_s)
            self._collect(now_s)
            return is_due

    def _follow(self, now_s: float) -> None:
        """Bring the kernel to the policy; read its tree again if it refuses.
        """
        is_known = self.tree.is_known
        try:
            self._make_so(now_s)
        except exception.KernelRefused:
            if not is_known:
                raise
            # Another program may have changed the tree, and its announcement
            # was not read yet.
            self.tree.forget()
            self._make_so(now_s)

    def _make_so(self, now_s: float) -> None:
        """Shape the uplink unless another program does; set
        :attr:`conflict`.
        """
        conflict: str | None = None
        try:
            if self.guard is not None:
                self.guard.ensure()
                is_shared = self.guard.sharer is not None
                if is_shared != self.uplink.is_shared:
                    self.uplink.is_shared = is_shared
                    self.tree.forget()
            self._shape(now_s)
            if self.guard is not None and self.uplink.is_around_new:
                self.guard.remind()
                self.uplink.is_around_new = False
        except exception.QdiscConflict as error:
            conflict = str(error)
            self.tree.forget()
        if conflict not in (None, self.conflict):
            LOG.warning('Coflows are counted and not shaped: %s', conflict)
        self.conflict = conflict

    def _shape(self, now_s: float) -> None:
        """Change the tree to the desired one; before the first policy, all
        that stands stays as it is.
        """
        current = self.tree.current()
        wanted = self.desired_tree()
        if self.policy is None:
            wanted |= current
        self.tree.change(wanted, self._settings_now(), now_s + self.grace_s)
        if self.ports is None:
            # The classification stays, and packets come to its classes.
            self.tree.stay()

    def was_lost(self, changes: kernel_events.Changes) -> bool:
        """Return whether others may have changed this module's state; cheap.

        :param changes: kernel changes of others since the last call.
        """
        with self.lock:
            others, seen = changes.devices, self._seen_link
            return (others is None
                    or seen is not None and seen[0] in others | changes.gone
                    or changes.links and self._link() != seen
                    or changes.tables
                    or self.guard is not None and self.guard.was_lost())

    def _link(self) -> tuple[int, int, float] | None:
        """Return the uplink's (ifindex, frame bytes, bit/s), if it is there.

        Tree and limits have to be read and built again when it changes.
        """
        try:
            return (self.uplink.ifindex(), self._frame_bytes(),
                    self.speed_bps())
        except exception.NotFound:
            return None

    def forget(self) -> None:
        """Discard all remembered kernel state: the next sync reads it."""
        with self.lock:
            self._is_stale = True
            self.tree.forget()
            self._seen_link = self._link()
            if self._seen_link and self._seen_link[2] != self.link_bps:
                self.link_bps = self._seen_link[2]
                LOG.info('Uplink %s has %.0f Mbit/s now', self.uplink.dev,
                         self.link_bps / 1e6)

    def adapt(self, stats: Mapping[int, wire.ClassStats],
              control_turns: dict[int, float], now_s: float) -> None:
        """Shorten the turns of ports that flood, cut super-packets of short
        frames, and set the turns of control packets.

        :param stats: counters of the classes, by minor.
        :param control_turns: see :mod:`edge_module.tcplan.acknowledging`.
        :raises virtco.exception.VirtcoException: when the kernel refuses.
        """
        counted = {minor: seen.counts for minor, seen in stats.items()
                   if minors.has_turns(minor) or model.is_data(minor)}
        frames = devices.sent_frames(self.uplink.dev)
        with self.lock:
            is_other = control_turns != self._control_turns
            self._control_turns = control_turns
            are_hidden = (
                minors.LINK in stats and not self.uplink.is_inside
                and self._turns.are_hidden(stats[minors.LINK].counts, frames))
            has_changed = self._turns.update(counted, now_s, are_hidden,
                                             self._answers(stats))
            if (has_changed or is_other) and (
                    self.policy is not None and self.conflict is None):
                self._shape(now_s)

    def _answers(self, stats: Mapping[int, wire.ClassStats]
                 ) -> dict[int, int]:
        """Return the packets that ports received, by their classes with a
        filled queue.
        """
        filled = [minor for minor, seen in stats.items()
                  if seen.backlog_bytes and minors.has_turns(minor)]
        if not filled:
            return {}
        ifindexes = self.ifindexes()
        own, seats = minors.of_ports(ifindexes), minors.seats(ifindexes)
        received = functools.cache(devices.sent_frames)
        return {minor: received(port.dev)
                for port in self.ports or () if port.is_here
                for minor in filled
                if own[port.ifindex] == minor
                or seats[port.ifindex] == minors.seat_of(minor)}

    @property
    def is_waiting(self) -> bool:
        """Whether :meth:`sync` has something to do later."""
        return self.conflict is None and (
            self.tree.is_waiting or bool(self._early.rates_bps))

    def _collect(self, now_s: float) -> None:
        """Make the steps that had to wait and are due now.

        Classes whose grace period is over are deleted; classes whose old rate
        was held until their queue was sent get their new rate.
        """
        if self.conflict is not None:
            return
        if (self._early.are_sent(self.uplink.class_stats, now_s)
                or self.tree.is_draining):
            self._shape(now_s)
        if self.tree.is_due(now_s):
            wanted = self.desired_tree()
            if wanted.keys() & self.tree.delete(wanted, now_s):
                # At once: they stood under other parents.
                self._make_so(now_s)
