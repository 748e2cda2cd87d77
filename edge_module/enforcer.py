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
"""Makes the kernel of one hypervisor equal its policy, step by step.

Every step leaves a state in which managed flows are shaped and the port is
not over-committed, so that the module may die between any two of them: the
next start reads the kernel and goes on from there.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import math
import threading

from oslo_log import log as logging

from edge_module.classify import base as classify
from edge_module import kernel_events
from edge_module.qdisc import agreement
from edge_module.qdisc import htb
from edge_module.qdisc import receiver as edge_receiver
from edge_module.qdisc import wire
from edge_module.tcplan import holding
from edge_module.tcplan import minors
from edge_module.tcplan import model
from edge_module.tcplan import shape
from edge_module.tcplan import steps
from edge_module.tcplan import turns
from virtco import exception
from virtco.table import edge_policy

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Drift:
    """How the kernel differs from what it should hold."""

    classes: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()
    conflict: str | None = None

    def __bool__(self) -> bool:
        return bool(self.classes or self.entries or self.conflict)


class Enforcer:
    """Applies policies to one uplink and its VM ports.

    :param retired: classifiers that an earlier start may have used; their
        traces go when this one's classification stands.
    :param speed_bps: what ``link_bps`` is now, for a link that changes.
    :param step: called with the name of each step before it is made; tests
        break off there.
    """

    def __init__(self, uplink: htb.Uplink, classifier: classify.Classifier,
                 link_bps: float, default_rate_bps: float, *,
                 settings: model.TreeSettings = model.TreeSettings(),
                 guard: agreement.Guard = agreement.NoGuard(),
                 receiver: edge_receiver.Receiver | None = None,
                 retired: Iterable[classify.Classifier] = (),
                 grace_s: float = 5.0,
                 speed_bps: Callable[[], float] | None = None,
                 step: Callable[[str], None] = lambda name: None):
        self.uplink = uplink
        self.classifier = classifier
        self.link_bps = link_bps
        self.default_rate_bps = default_rate_bps
        self.settings = settings
        self.guard = guard
        self.receiver = receiver
        self.retired = list(retired)
        self.grace_s = grace_s
        self.speed_bps = speed_bps or (lambda: self.link_bps)
        self._seen_link: tuple[object, ...] = ()
        self.step = step
        self.policy: edge_policy.EdgePolicy | None = None
        self.fair = False
        self.ports: tuple[classify.VmPort, ...] | None = None
        self.lock = threading.RLock()
        self._leaving: dict[int, float] = {}
        # Leaves that are held up, and the bytes after which they need not be.
        self._draining: dict[int, float] = {}
        self._turns = turns.PortTurns(settings.overhead_bytes,
                                      settings.frame_min_bytes)

    def desired_tree(self) -> model.Tree:
        settings = dataclasses.replace(
            self.settings, frame_bytes=self._frame_bytes())
        if self.policy is None:
            return shape.base_tree(self.link_bps, self.default_rate_bps,
                                   settings)
        return shape.build_tree(
            self.policy, self.link_bps, settings, self.fair,
            [port.ifindex for port in self.ports or () if port.is_here],
            self._turns.turns)

    def _frame_bytes(self) -> int:
        """The longest frame that may come.

        A VM's port may be ahead of the uplink when their MTUs grow; what a
        leaf cannot cut, it would drop.
        """
        return max(self.uplink.frame_bytes(), *(
            htb.frame_bytes(port.dev) or 0 for port in self.ports or ()
            if port.is_here), 0)

    def desired_table(self) -> classify.Table:
        policy = self.policy
        if policy is None:
            return self.classifier.build_table((), self.ports or ())
        table = self.classifier.build_table(
            policy.flows, self.ports or (), classify.control_of(policy))
        if self.fair or not self.classifier.limits:
            return table
        return classify.limited(table, policy.unmanaged)

    def set_policy(self, policy: edge_policy.EdgePolicy, now_s: float,
                   fair: bool = False) -> None:
        """Take over a policy, or the same one decayed to fair sharing.

        :param now_s: any monotonic clock, the same for :meth:`collect`.
        :raises virtco.exception.VirtcoException: when the kernel refuses; the
            next call or :meth:`reconcile` goes on from where it stopped.
        """
        with self.lock:
            self.policy, self.fair = policy, fair
            self.reconcile(now_s)

    def set_ports(self, ports: Iterable[classify.VmPort], now_s: float
                  ) -> None:
        with self.lock:
            self.ports = tuple(ports)
            self.reconcile(now_s)

    def reconcile(self, now_s: float) -> None:
        """Bring the kernel from whatever it holds to what it should hold.

        What is not known yet after a start is left as it was: all that stands
        while there is no policy, the classification while there are no ports.

        :raises virtco.exception.QdiscConflict: when somebody else shapes the
            uplink; nothing is changed.
        """
        with self.lock:
            self.guard.ensure()
            update = self._shape()
            if self.policy is not None and self.ports is not None:
                self.step('classify')
                self.classifier.replace(self.desired_table())
                self._retire()
            if self.policy is not None and self.receiver is not None:
                self.step('receive')
                self.receiver.ensure(self.policy)
            self._let_leave(update.leave, now_s)

    def _let_leave(self, leave: Iterable[int], now_s: float) -> None:
        self._leaving = {minor: self._leaving.get(minor, now_s + self.grace_s)
                         for minor in leave}

    def _shape(self) -> steps.Update:
        wanted = self.desired_tree()
        snapshot = self._own_snapshot()
        desired = (wanted | snapshot.tree if self.policy is None
                   else self._held_up(wanted, snapshot))
        update = steps.plan_update(snapshot.tree, desired)
        tree = dict(snapshot.tree)
        for name, classes in (('create', update.create),
                              ('lower', update.lower),
                              ('raise', update.raise_)):
            if classes:
                self.step(name)
                self.uplink.set_classes(classes, tree)
                tree.update((item.minor, item) for item in classes)
        return update

    def _held_up(self, desired: model.Tree, snapshot: htb.Snapshot
                 ) -> model.Tree:
        """Let leaves that leave or slow down first send what they queued.

        At a trickle a super-packet would hold the class for seconds, also
        when it rises again meanwhile, or comes back.
        """
        draining = {}
        for minor, have in snapshot.tree.items():
            stats = snapshot.stats[minor]
            until = self._held_until(have, desired.get(minor), stats)
            if stats.sent_bytes < until:
                draining[minor] = until
        self._draining = draining
        return holding.hold(desired, snapshot.tree, draining, self.settings)

    def _held_until(self, have: model.HtbClass,
                    wanted: model.HtbClass | None, stats: wire.ClassStats
                    ) -> float:
        """Bytes that a leaf must have sent; infinity: that is not known yet.

        One that leaves may get packets until the classification is another
        one. One that slows down may get whole ones until it cuts them.
        """
        before = self._draining.get(have.minor, 0.0)
        if have.limit_bytes is None or not model.is_data(have.minor):
            return 0.0
        if wanted is None:
            may_send = (stats.backlog_bytes > 0 if before
                        else have.minor not in self._leaving)
            # One that is idle already can keep nothing.
            return (math.inf if may_send
                    and have.rate_bps > model.IDLE_RATE_BPS else 0.0)
        if wanted.packet_bytes in (None, model.WHOLE_BYTES):
            return 0.0
        if have.packet_bytes == model.WHOLE_BYTES:
            return math.inf if stats.backlog_bytes else 0.0
        if math.isinf(before):
            return stats.sent_bytes + stats.backlog_bytes
        return before

    def _retire(self) -> None:
        while self.retired:
            other = self.retired.pop()
            try:
                if other.remove():
                    LOG.info('The classification of %s is replaced by that '
                             'of %s', other.name, self.classifier.name)
            except exception.VirtcoException as error:
                LOG.warning('What %s may have left is not removed: %s',
                            other.name, error)

    def was_lost(self, changes: kernel_events.Changes) -> bool:
        """Whether somebody took away what this module relies on; cheap.

        :param changes: what others did since the last call.
        """
        with self.lock:
            devices = changes.devices
            return (devices is None
                    or bool(devices) and self.uplink.is_among(devices)
                    or changes.links and self._link() != self._seen_link
                    or self.classifier.was_lost(devices, changes.tables)
                    or self.guard.was_lost())

    def _link(self) -> tuple[object, ...]:
        """What says whether tree and limits still fit the devices."""
        try:
            return (self.uplink.ifindex(), self._frame_bytes(),
                    self.speed_bps())
        except exception.NotFound:
            return ()

    def forget(self) -> None:
        """Trust nothing remembered: the next reconcile reads it all."""
        with self.lock:
            self.classifier.forget()
            self._seen_link = self._link()
            if self._seen_link:
                link_bps = self.speed_bps()
                if link_bps != self.link_bps:
                    LOG.info('Uplink %s has %.0f Mbit/s now', self.uplink.dev,
                             link_bps / 1e6)
                self.default_rate_bps *= link_bps / self.link_bps
                self.link_bps = link_bps

    def observe(self, stats: Mapping[int, wire.ClassStats], now_s: float
                ) -> None:
        """Give ports that flood shorter turns; call it with each reading.

        :raises virtco.exception.VirtcoException: when the kernel refuses.
        """
        counted = {minor: turns.Sent(seen.sent_bytes, seen.sent_packets,
                                     seen.drops)
                   for minor, seen in stats.items() if minors.has_turns(minor)}
        with self.lock:
            if self._turns.update(counted, now_s) and self.policy is not None:
                self._let_leave(self._shape().leave, now_s)

    @property
    def is_waiting(self) -> bool:
        """Whether :meth:`collect` has something to do, now or later."""
        return bool(self._draining or self._leaving)

    def collect(self, now_s: float) -> None:
        """Do what had to wait; call it a few times a second.

        Classes whose time of grace is over are deleted, those that were held
        up until their queue was sent get their rate.
        """
        with self.lock:
            if self._draining:
                self._let_leave(self._shape().leave, now_s)
            if not any(now_s >= due for due in self._leaving.values()):
                return
            tree = self._own_snapshot().tree
            update = steps.plan_update(tree, self.desired_tree())
            due = {minor for minor in update.leave
                   if now_s >= self._leaving.get(minor, now_s + self.grace_s)}
            # A parent stays until all of its children go.
            ready = [minor for minor in update.leave if minor in due
                     and all(child.minor in due for child in tree.values()
                             if child.parent == minor)]
            self.step('delete')
            self.uplink.delete_classes(ready)
            for minor in ready:
                del self._leaving[minor]
            if any(minor in self.desired_tree() for minor in ready):
                self.reconcile(now_s)

    def _own_snapshot(self) -> htb.Snapshot:
        snapshot = self.uplink.snapshot()
        if snapshot.foreign is not None:
            raise exception.QdiscConflict(dev=self.uplink.dev,
                                          qdisc=snapshot.foreign)
        if not snapshot.present:
            self.step('root')
            LOG.info('Uplink %s gets its HTB', self.uplink.dev)
            self.uplink.ensure_root()
            snapshot = self.uplink.snapshot()
        return snapshot

    def drift(self) -> Drift:
        """Compare, and change nothing."""
        snapshot = self.uplink.snapshot()
        if snapshot.foreign is not None:
            return Drift(conflict=f'{self.uplink.dev} has {snapshot.foreign}')
        # How long turns are follows from counters, not from the policy.
        desired = {minor: dataclasses.replace(
            item, quantum_bytes=snapshot.tree[minor].quantum_bytes)
            if minors.has_turns(minor) and minor in snapshot.tree else item
            for minor, item in self.desired_tree().items()}
        update = steps.plan_update(snapshot.tree, desired)
        classes = [f'missing class {item.minor:#x}'
                   for item in update.create]
        created = {item.minor for item in update.create}
        classes += [f'class {item.minor:#x} should be {item}'
                    for item in update.lower + update.raise_
                    if item.minor not in created]
        classes += [f'surplus class {minor:#x}' for minor in update.leave]
        have, _ = self.classifier.dump()
        want = self.desired_table()
        entries = [f'port {dev} is not classified'
                   for dev, _ in sorted(want.hooks - have.hooks)]
        entries += [f'port {dev} is classified without need'
                    for dev, _ in sorted(have.hooks - want.hooks)]
        entries += [f'{key}: {have.entries.get(key)} instead of '
                    f'{want.entries.get(key)}'
                    for key in sorted({*have.entries, *want.entries})
                    if have.entries.get(key) != want.entries.get(key)]
        entries += [f'control packets of class {minor:#x}: '
                    f'{have.control.get(minor)} instead of '
                    f'{want.control.get(minor)}'
                    for minor in sorted({*have.control, *want.control})
                    if have.control.get(minor) != want.control.get(minor)]
        entries += [f'what {key} sends unmanaged is in another class'
                    for mine, other in ((have.limits, want.limits),
                                        (have.others, want.others))
                    for key in sorted({*mine, *other})
                    if mine.get(key) != other.get(key)]
        return Drift(tuple(classes), tuple(entries))

    def cleanup(self) -> list[str]:
        """Remove all that this module made; what was removed."""
        removed = []
        with self.lock:
            # Classification first: a packet whose class is gone would still
            # be shaped, by the default class.
            removed += [f'{item.name} classification' for item
                        in (self.classifier, *self.retired) if item.remove()]
            if self.uplink.delete_root():
                removed.append(f'HTB of {self.uplink.dev}')
            if edge_receiver.remove(self.uplink.kernel, self.uplink.dev):
                removed.append(f'redirection of what {self.uplink.dev} '
                               'receives')
            if self.guard.remove():
                removed.append(f'agreement about {self.uplink.dev}')
        return removed
