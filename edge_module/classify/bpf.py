# SPDX-License-Identifier: Apache-2.0

"""Classification by the programs of ``classify.c``, at tcx of each device.

They stand where no qdisc is needed, so that Open vSwitch and others may have
that of a port.
"""

from collections.abc import Collection
from collections.abc import Iterable
import dataclasses
import functools
import socket
from typing import Literal

from edge_module.classify import bpf_maps
from edge_module.classify import classified as base
from edge_module.classify import classifier
from edge_module.privileged import operations
from edge_module.tcplan import minors
from edge_module.tcplan import model
from virtco.wire import edge_policy


class BpfClassifier(classifier.Classifier):
    """Keeps maps and programs equal to a classification."""

    how = 'bpf'

    def _ask(self, changes: list[operations.ClassifyOperation]
             ) -> str | None:
        return self.kernel.bpf_change(self.hook.name, changes)

    def build_table(self, policy: edge_policy.EdgePolicy,
                    ports: Iterable[base.VmPort], home: base.Home
                    ) -> base.Table:
        """Build a table with one limit of a destination for all devices, each
        of which has its seat in its class of the others.
        """
        table = super().build_table(policy, ports, home)
        limits = table.maps.get('to')
        if not limits:
            return table
        return dataclasses.replace(table, maps={**table.maps, 'to': {
            base.MapKey(0, key.mac): minor - minors.seat_of(minor)
            for key, minor in limits.items()}})

    def dump(self) -> base.Standing:
        links, devices, flows, macs, settings = self._read(
            'links', 'devices', 'flows', 'macs', 'settings')
        if links is None or settings is None:
            return base.Standing()
        at = bpf_maps.links(links)
        # Programs of the other place would go on.
        if (at['by_address'] if self.uplink_dev is None
                else at['from_vm'] | at['to_wire']):
            return base.Standing()
        known = bpf_maps.devices(devices or b'')
        named = {ifindex: dev for ifindex in {*at['to_wire'], *at['from_vm'],
                                              *at['by_address']}
                 if (dev := _name(ifindex))}
        hooks = (at['from_vm'] & at['to_vm'] if self.uplink_dev is None
                 else at['by_address']) & named.keys() & known.keys()
        exits = at['to_wire'] & named.keys()
        entries, follows = bpf_maps.SETTINGS.unpack_from(
            settings, bpf_maps.IFINDEX.size)
        found = {entry: minor for entry, minor, _ in bpf_maps.flows(
            flows or b'')}
        return base.Standing(
            frozenset((named[ifindex], ifindex) for ifindex in hooks), found,
            _maps(known, macs or b''), frozenset(
                base.Exit(named[ifindex], ifindex, ifindex in at['from_wire'])
                for ifindex in exits),
            {(named[ifindex], ifindex): bpf_maps.minor(known[ifindex].own)
             for ifindex in hooks},
            # The programs do not tell the versions of IP apart.
            self.hook.rules(found) if entries == bpf_maps.kinds(
                self.hook.rules(found)) else (),
            bool(follows), tuple(f'near_{ifindex}' for ifindex in sorted(
                known.keys() - hooks - exits)), is_whole=True)

    def counted(self) -> dict[tuple[str, base.Entry], model.Counts]:
        flows, = self._read('flows')
        found: dict[tuple[str, base.Entry], model.Counts] = {}
        known = self.known if self.known is not None else self.dump()
        names = {ifindex: dev if self.uplink_dev is None else ''
                 for dev, ifindex in known.hooks}
        for entry, _, seen in bpf_maps.flows(flows or b''):
            key = names.get(entry.ifindex, f'({entry.ifindex})'), entry
            before = found.get(key, model.Counts())
            found[key] = model.Counts(
                before.sent_bytes + seen.sent_bytes,
                before.sent_packets + seen.sent_packets)
        return found

    def destinations(self) -> frozenset[tuple[str, str]]:
        if self.known is None or not self.known.follows:
            return frozenset()
        reached, = self._read('reached')
        name = functools.cache(_name)
        return frozenset(
            (name(key.number) or str(key.number), key.mac)
            for _, key, _ in bpf_maps.macs(reached or b''))

    def received(self) -> dict[str, model.Counts]:
        if not self._ports:
            return {}
        devices, = self._read('devices')
        known = bpf_maps.devices(devices or b'')
        return {dev: model.Counts(known[ifindex].received_bytes,
                                  known[ifindex].received_packets)
                for dev, ifindex in self._ports
                if ifindex in known and known[ifindex].received_packets}

    def peers(self, ifindexes: Collection[int] | None = None
              ) -> dict[tuple[str, str], model.Counts]:
        asked = [(dev, ifindex) for dev, ifindex in self._ports
                 if ifindexes is None or ifindex in ifindexes]
        found = self.kernel.bpf_read([
            operations.MapListing('cache', ifindex) for _, ifindex in asked])
        return {(dev, address): seen
                for (dev, _), packed in zip(asked, found)
                for address, seen in bpf_maps.peers(packed or b'').items()}

    def _read(self, *names: Literal['devices', 'flows', 'macs', 'reached',
                                    'settings', 'links']
              ) -> list[bytes | None]:
        return self.kernel.bpf_read([*map(operations.MapListing, names)])


def _name(ifindex: int) -> str:
    """Return the name of a device; '' when it is gone."""
    try:
        return socket.if_indextoname(ifindex)
    except OSError:
        return ''


def _maps(known: dict[int, bpf_maps.Device], macs: bytes
          ) -> dict[base.SmallMap, dict[base.MapKey, int]]:
    """Return the contents of the small maps that have any."""
    found: dict[base.SmallMap, dict[base.MapKey, int]] = {}
    for ifindex, device in known.items():
        if device.control:
            found.setdefault('control', {})[
                base.MapKey(ifindex)] = bpf_maps.minor(device.control)
        if device.others:
            found.setdefault('others', {})[
                base.MapKey(ifindex)] = bpf_maps.minor(device.others)
    for place, key, classid in bpf_maps.macs(macs):
        found.setdefault('home' if place == bpf_maps.HOME else 'to', {})[
            key] = bpf_maps.minor(classid)
    return found
