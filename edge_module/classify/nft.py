# SPDX-License-Identifier: Apache-2.0

"""Classification by nftables, one chain per port."""

from collections.abc import Collection
import json
from typing import Any

from edge_module.classify import classified as base
from edge_module.classify import classifier
from edge_module.classify import nft_listing
from edge_module.classify import nft_text
from edge_module.privileged import operations
from edge_module.tcplan import model


class NftClassifier(classifier.Classifier):
    """Keeps virtco's nftables table equal to a classification."""

    how = 'nft'

    def _ask(self, changes: list[operations.ClassifyOperation]
             ) -> str | None:
        return self.kernel.nft_change(self.hook.name, changes)

    def dump(self) -> base.Standing:
        """Read the table from the kernel, whatever is known of it."""
        objects, = self._read(operations.Listing('table'))
        return nft_listing.standing(self.hook, objects)

    def _read(self, *listings: operations.Listing) -> list[list[Any]]:
        """Read the objects of listings; a missing one has none."""
        return [[] if output is None else json.loads(output)['nftables']
                for output in self.kernel.nft_read([*listings])]

    def counted(self) -> dict[tuple[str, base.Entry], model.Counts]:
        """Read the counters of the entries; empty if the table was lost.

        Only the maps are listed: nftables 1.0.6 cannot list our rules without
        complaint.

        :returns: counters by (device, entry); no device at the uplink.
        """
        known = self.known if self.known is not None else self.dump()
        objects: list[Any] = []
        for found in self._read(*(
                operations.Listing('map', self.hook.map_name(kind))
                for kind in known.rules
                if kind in nft_text.KINDS.values())):
            if not found:  # lost; the audit puts it right
                return {}
            objects += found
        names = {ifindex: dev if self.hook.is_at_ports else ''
                 for dev, ifindex in known.hooks}
        # An entry of a device that is gone belongs to no port.
        return {(names.get(entry.ifindex, f'({entry.ifindex})'), entry): seen
                for entry, seen in nft_listing.counted(
                    self.hook, objects).items()}

    def destinations(self) -> frozenset[tuple[str, str]]:
        """Read (device, Ethernet address) of recent unmanaged packets."""
        if self.known is None or not self.known.follows:
            return frozenset()
        objects, = self._read(
            operations.Listing('set', self.hook.map_name(nft_text.REACHED)))
        return nft_listing.elements(objects)

    def received(self) -> dict[str, model.Counts]:
        """Read the counters of TCP data from other hosts, by device."""
        if not self._ports:
            return {}
        name = self.hook.map_name(nft_text.RECEIVED)
        objects, = self._read(operations.Listing('set', name))
        return nft_listing.counted_sets(objects).get(name, {})

    def peers(self, ifindexes: Collection[int] | None = None
              ) -> dict[tuple[str, str], model.Counts]:
        """Read the counters of packets that matched no entry.

        :param ifindexes: ports to read, of :meth:`ports`; None: all of them.
        :returns: counters by (device, destination IP address).
        """
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
