# SPDX-License-Identifier: Apache-2.0

"""Makes the kernel of one hypervisor equal its policy, step by step.

Every step leaves a state in which managed flows are shaped and the port is
not over-committed, so that the module may die between any two of them: the
next start reads the kernel and goes on from there.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import functools
from typing import TYPE_CHECKING

from edge_module import kernel_events
from edge_module import shaper
from edge_module import virtual_functions
from edge_module.classify import classified as classify
from edge_module.classify import classifier as classifiers
from edge_module.privileged import devices
from edge_module.qdisc import htb
from edge_module.qdisc import receiver as edge_receiver
from edge_module.qdisc import wire
from edge_module.tcplan import acknowledging
from edge_module.tcplan import minors
from edge_module.tcplan import model
from virtco import exception
from virtco import units
from virtco.wire import edge_policy

if TYPE_CHECKING:
    from edge_module.ports import ovsdb


class Enforcer(shaper.Shaper):
    """Applies policies to a host's uplinks and its VM ports.

    :param uplink: uplink that the controller knows.
    :param further: other uplinks, by which some networks send.
    :param sets_functions: whether rates of their virtual functions are set.
    """

    def __init__(self, uplink: htb.Uplink, classifier: classifiers.Classifier,
                 speed_bps: Callable[[], float], *,
                 settings: model.TreeSettings = model.TreeSettings(),
                 guard: 'ovsdb.OvsGuard | None' = None,
                 receiver: edge_receiver.Receiver | None = None,
                 further: Sequence[shaper.Shaper] = (),
                 sets_functions: bool = False):
        super().__init__(uplink, speed_bps, settings=settings, guard=guard)
        self._host: devices.OfHost | None = None
        self._acknowledgements = acknowledging.Acknowledging()
        self.classifier = classifier
        self.receiver = receiver
        self.further = further
        self.functions = virtual_functions.VirtualFunctions(uplink.kernel, [
            one.uplink.dev for one in self.uplinks] if sets_functions else ())

    @property
    def uplinks(self) -> Sequence[shaper.Shaper]:
        return self, *self.further

    @property
    def note(self) -> str | None:
        """Device, program and limits of the other shapers of the uplink and of
        the ports.
        """
        limits = [f'{port.dev} to {way} {units.format_rate(cap_bps)}'
                  for port in self.ports or ()
                  for way, cap_bps in zip(('send', 'receive'), port.caps_bps)
                  if cap_bps is not None]
        of_ports = f'libvirt or Neutron limits ports: {shaper.some(limits)}'
        return '; '.join(filter(None, (
            super().note, of_ports if limits else None))) or None

    def desired_table(self) -> classify.Table:
        """Return the classification that the policy asks for."""
        if self.policy is None:
            return classify.Table()
        # Packets that are redirected to the receiver's IFB show nobody. By
        # Geneve OVN knows whom it reaches, without being told by packets.
        return self.classifier.build_table(self.policy, self.ports or (), {
            classify.Exit(one.uplink.dev, ifindex,
                            one is not self or self.receiver is None):
            self.host.macs for one in self.uplinks
            if (ifindex := devices.ifindex(one.uplink.dev))} | {
            classify.Exit(dev, ifindex, kind != 'geneve'): ()
            for dev, ifindex, kind in self.host.tunnels
            if classify.may_name(dev)})

    def sync(self, policy: edge_policy.EdgePolicy | None, n_past: int,
             ports: tuple[classify.VmPort, ...] | None, now_s: float) -> bool:
        """Make the kernel match a policy; see :meth:`shaper.Shaper.sync`.

        An uplink that cannot be shaped keeps no other from being so.
        """
        was_due, failed = False, None
        # Their classes before packets are put into them.
        for one in self.further:
            try:
                was_due |= one.sync(policy, n_past, ports, now_s)
            except exception.VirtcoException as error:
                failed = error
        was_due |= super().sync(policy, n_past, ports, now_s)
        if failed is not None:
            raise failed
        return was_due

    def _make_so(self, now_s: float) -> None:
        """Bring the kernel's classes, tables and functions to the policy."""
        super()._make_so(now_s)
        if self.policy is not None and self.ports is not None:
            table, ports = self.desired_table(), self.ifindexes()
            try:
                self.classifier.replace(table)
            except Exception:
                # Packets still come to classes that would leave.
                for one in self.uplinks:
                    one.tree.stay()
                raise
            if self._early.find(self.policy, table.entries, ports,
                                self.uplink.class_stats, now_s):
                super()._make_so(now_s)
            self.functions.ensure(self.desired_tree, self.policy,
                                  table.entries, self.ports)
        if self.policy is not None and self.receiver is not None:
            self.receiver.ensure(self.policy)

    def was_lost(self, changes: kernel_events.Changes) -> bool:
        return (super().was_lost(changes)
                or changes.links and (
                    self.host != devices.of_host() or
                    self.receiver is not None and self.receiver.is_down)
                or any(one.was_lost(changes) for one in self.further))

    def forget(self) -> None:
        with self.lock:
            super().forget()
            self.classifier.forget()
            self.functions.forget()
            self._host = None
            if self.receiver is not None:
                self.receiver.follow(self.link_bps)
        for one in self.further:
            one.forget()

    @property
    def host(self) -> devices.OfHost:
        """The host's own devices."""
        host = self._host  # another thread may forget it
        if host is None:
            host = self._host = devices.of_host()
        return host

    def noted_ports(self) -> tuple[classify.VmPort, ...]:
        """Return the ports, with a note where one could not be attached, or
        its virtual function got no rate.
        """
        refused, rates = self.classifier.refused, self.functions.notes
        if not (refused or rates):
            return self.ports or ()
        return tuple(dataclasses.replace(port, notes=(*port.notes, *filter(
            None, (refused.get((port.dev, port.ifindex)),
                   rates.get(port.ifindex), rates.get(port.mac.lower())))))
            for port in self.ports or ())

    def stats(self, with_drops: bool = True) -> dict[int, wire.ClassStats]:
        """Read the counters of the classes, by minor; those of the n-th
        further uplink by the minor and n times :data:`minors.FURTHER`.

        :param with_drops: whether to count drops of the leaves, too.
        """
        found = self.uplink.stats(with_drops)
        for place, one in enumerate(self.further, 1):
            with contextlib.suppress(exception.NotFound):
                found |= {place * minors.FURTHER + minor: seen for minor, seen
                          in one.uplink.stats(with_drops).items()
                          if minor >= 0}
        return found

    def observe(self, stats: Mapping[int, wire.ClassStats], now_s: float
                ) -> None:
        """Adapt the classes to the traffic; call it with each reading.

        :param stats: result of :meth:`stats`.
        :raises virtco.exception.VirtcoException: when the kernel refuses.
        """
        do_wait = self._acknowledgements.do_wait(sum(
            seen.backlog_bytes for minor, seen in stats.items()
            if minor >= 0 and minors.is_control(minor % minors.FURTHER)),
            now_s)
        self._acknowledgements.update(
            self._received() if do_wait else {}, self.link_bps, now_s)
        for place, one in enumerate(self.uplinks):
            one.adapt({minor - place * minors.FURTHER: seen
                       for minor, seen in stats.items()
                       if minor // minors.FURTHER == place},
                      self._acknowledgements.turns, now_s)

    def _received(self) -> dict[int, model.Counts]:
        """Read the data from other hosts, by minor of the class that
        acknowledges them.
        """
        own = minors.of_ports(self.ifindexes())
        seen = self.classifier.received()
        return {minors.of_control(own[port.ifindex]): seen[port.dev]
                for port in self.ports or ()
                if port.is_here and port.dev in seen}

    @property
    def is_waiting(self) -> bool:
        return super().is_waiting or any(one.is_waiting
                                         for one in self.further)

    def cleanup(self) -> list[str]:
        """Remove all that this module made in the kernel.

        :returns: a description of each thing removed.
        """
        dev = self.uplink.dev
        # Classification first: a packet whose class is gone would still be
        # shaped, by the default class.
        parts: dict[str, Callable[[], bool]] = {
            f'{self.classifier.name} classification': self.classifier.remove,
            **{f'htb of {one.uplink.dev}': one.uplink.delete_root
               for one in self.uplinks},
            f'redirection of what {dev} receives': functools.partial(
                edge_receiver.remove, dev),
            **{f'agreement about {one.uplink.dev}': one.guard.remove
               for one in self.uplinks if one.guard is not None},
            # At last, as a card may refuse.
            'rates of virtual functions': self.functions.remove}
        removed = []
        with self.lock:
            for what, remove in parts.items():
                # A device that is gone has nothing left.
                with contextlib.suppress(exception.NotFound):
                    if remove():
                        removed.append(what)
        return removed
