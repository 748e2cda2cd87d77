# SPDX-License-Identifier: Apache-2.0

"""Classification by the programs of ``classify.c``, at tcx of each device.

They stand where no qdisc is needed, so that Open vSwitch and others may have
that of a port.
"""

from collections.abc import Collection
from collections.abc import Iterable
import functools
from typing import Literal

from edge_module.classify import bpf_maps
from edge_module.classify import classified as base
from edge_module.classify import classifier
from edge_module.privileged import devices
from edge_module.privileged import operations
from edge_module.tcplan import model


class BpfClassifier(classifier.Classifier):
    """Keeps maps and programs equal to a classification."""

    how = 'bpf'

    def dump(self) -> base.Standing:
        links, ports, flows, macs, settings = self._read(
            'links', 'devices', 'flows', 'macs', 'settings')
        if links is None or settings is None:
            return base.Standing()
        at = bpf_maps.links(links)
        # Programs of the other place would go on.
        if (at['by_address'] if self.uplink_dev is None
                else at['from_vm'] | at['to_wire']):
            return base.Standing()
        known = bpf_maps.devices(ports or b'')
        hooks = (at['from_vm'] & at['to_vm'] if self.uplink_dev is None
                 else at['by_address'])
        # An uplink that is gone is detached like a port.
        exits = at['to_wire']
        entries, follows = bpf_maps.SETTINGS.unpack_from(
            settings, bpf_maps.IFINDEX.size)
        found = {entry: minor for entry, minor, _ in bpf_maps.flows(
            flows or b'')}
        return base.Standing(
            frozenset((
                devices.name(ifindex) if ifindex in hooks else '', ifindex)
                for ifindex in known.keys() - exits), found,
            _maps(known, macs or b''), frozenset(
                base.Exit(devices.name(ifindex), ifindex,
                          ifindex in at['from_wire']) for ifindex in exits),
            {ifindex: bpf_maps.minor(device.own)
             for ifindex, device in known.items()},
            # The programs do not tell the versions of IP apart.
            self.hook.rules(found) if entries == bpf_maps.kinds(
                self.hook.rules(found)) else (),
            bool(follows), is_whole=True)

    def _counted(self, known: base.Standing
                 ) -> Iterable[tuple[base.Entry, model.Counts]]:
        flows, = self._read('flows')
        return ((entry, seen)
                for entry, _, seen in bpf_maps.flows(flows or b''))

    def destinations(self) -> frozenset[tuple[str, str]]:
        if self.known is None or not self.known.follows:
            return frozenset()
        reached, = self._read('reached')
        name = functools.cache(devices.name)
        return frozenset(
            (name(key.number) or str(key.number), key.mac)
            for _, key, _ in bpf_maps.macs(reached or b''))

    def received(self) -> dict[str, model.Counts]:
        if not self._ports:
            return {}
        ports, = self._read('devices')
        known = bpf_maps.devices(ports or b'')
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


_NAMES = {kind: name for name, kind in bpf_maps.KINDS.items()}


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
        found.setdefault(_NAMES[place], {})[key] = bpf_maps.minor(classid)
    return found
