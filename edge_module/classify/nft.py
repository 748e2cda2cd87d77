# SPDX-License-Identifier: Apache-2.0

"""Classification by nftables, one chain per port."""

from collections.abc import Collection
from collections.abc import Iterable
import dataclasses
import itertools
import json
from typing import Any

from edge_module.classify import classified as base
from edge_module.classify import classifier
from edge_module.classify import nft_listing
from edge_module.classify import nft_text
from edge_module.privileged import operations
from edge_module.tcplan import minors
from edge_module.tcplan import model
from virtco.wire import edge_policy


class NftClassifier(classifier.Classifier):
    """Keeps virtco's nftables table equal to a classification."""

    how = 'nft'

    def build_table(self, policy: edge_policy.EdgePolicy,
                    ports: Iterable[base.VmPort], home: base.Home
                    ) -> base.Table:
        """Build a table in which each device has a class of its own for a
        destination with a limit: its seat in the class of the others tells.
        Receivers are not told apart.
        """
        table = super().build_table(policy, ports, home)
        limits, others = table.maps.get('to'), table.maps.get('others')
        if limits is None or others is None:
            return table
        maps = {**table.maps, 'to': {
            base.MapKey(device.number, key.mac): minor | minors.seat_of(other)
            for device, other in others.items()
            for key, minor in limits.items()}}
        maps.pop('peer', None)
        return dataclasses.replace(table, maps=maps)

    def dump(self) -> base.Standing:
        objects, = self._read(operations.Listing('table'))
        return nft_listing.standing(self.hook, objects)

    def _read(self, *listings: operations.Listing) -> list[list[Any]]:
        """Read the objects of listings; a missing one has none."""
        return [[] if output is None else json.loads(output)['nftables']
                for output in self.kernel.nft_read([*listings])]

    def _counted(self, known: base.Standing
                 ) -> Iterable[tuple[base.Entry, model.Counts]]:
        # Only the maps are listed: nftables 1.0.6 cannot list our rules
        # without complaint.
        listed = self._read(*(
            operations.Listing('map', self.hook.map_name(kind))
            for kind in known.rules if kind in nft_text.KINDS.values()))
        if not all(listed):  # lost; the audit puts it right
            return ()
        return nft_listing.counted(self.hook, itertools.chain(*listed))

    def destinations(self) -> frozenset[tuple[str, str]]:
        if self.known is None or not self.known.follows:
            return frozenset()
        objects, = self._read(
            operations.Listing('set', self.hook.map_name(nft_text.REACHED)))
        return nft_listing.elements(objects)

    def received(self) -> dict[str, model.Counts]:
        if not self._ports:
            return {}
        name = self.hook.map_name(nft_text.RECEIVED)
        objects, = self._read(operations.Listing('set', name))
        return nft_listing.counted_sets(objects).get(name, {})

    def peers(self, ifindexes: Collection[int] | None = None
              ) -> dict[tuple[str, str], model.Counts]:
        devices = {name: dev for dev, ifindex in self._ports
                   if ifindexes is None or ifindex in ifindexes
                   for name in nft_text.peers_names(ifindex)}
        if not devices:
            return {}
        return {(devices[name], address): seen
                # A set that was lost is put right by the audit. All sets at
                # once would include those that others fill for a VM.
                for objects in self._read(*(
                    operations.Listing('set', name) for name in devices))
                for name, found in nft_listing.counted_sets(objects).items()
                for address, seen in found.items()}
