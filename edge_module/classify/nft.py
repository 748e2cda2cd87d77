# SPDX-License-Identifier: Apache-2.0

"""Classification by nftables, at the VM's port or at the uplink.

A packet's priority becomes the classid of its HTB class (HTB needs no filter
for that), and it keeps it through the bridge, Open vSwitch's kernel datapath
and VLAN, VXLAN or Geneve encapsulation to the uplink's qdisc. One chain per
port; a tenant is recognised by the port, so equal addresses do not meet.
"""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
import json
import logging
from typing import Any
from typing import TypeVar

from edge_module.classify import classified as base
from edge_module.classify import nft_listing
from edge_module.classify import nft_text
from edge_module.privileged import devices
from edge_module.privileged import helper_protocol as protocol
from edge_module.privileged import operations
from edge_module.tcplan import minors
from edge_module.tcplan import model
from virtco import exception
from virtco.wire import edge_policy

LOG = logging.getLogger(__name__)

_Key = TypeVar('_Key', base.Entry, base.MapKey)


def _difference(have: Mapping[_Key, int], wanted: Mapping[_Key, int]
                ) -> tuple[list[_Key], list[tuple[_Key, int]]]:
    """Return the keys to delete, and those to add with their minors."""
    return ([key for key, minor in have.items() if wanted.get(key) != minor],
            [(key, minor) for key, minor in wanted.items()
             if have.get(key) != minor])


class NftClassifier:
    """Keeps virtco's nftables table equal to a classification.

    :meth:`replace` changes only the differences from the contents that it
    last wrote or read.

    :ivar refused: reason by port, as (device, ifindex), that the kernel or
        the helper refused to attach; tried again after :meth:`forget`.
    """

    name = 'nft'
    hook = nft_text.INGRESS

    def __init__(self, kernel: protocol.Kernel):
        self.kernel = kernel
        self.known: nft_listing.Standing | None = None
        self.refused: dict[tuple[str, int], str] = {}

    def build_table(self, policy: edge_policy.EdgePolicy,
                    ports: Iterable[base.VmPort], home: base.Home
                    ) -> base.Table:
        """Build the table for :meth:`replace` from a policy, ports and the
        host's own addresses.
        """
        return base.build_table(policy, ports, home)

    def replace(self, table: base.Table) -> int:
        """Make the kernel hold exactly this table, in one transaction.

        Entries that are right stay untouched, with their counters.

        :returns: number of entries and ports that were changed.
        :raises virtco.exception.KernelRefused: the next call reads what
            stands, and goes on.
        """
        entries = table.entries
        if self.known is None:
            self.known = self.dump()
        have = self.known
        rules = self.hook.rules(entries)
        stale, fresh = _difference(have.entries, entries)
        of_ports = minors.of_ports(ifindex for _, ifindex in table.hooks)
        own = {hook: of_ports[hook[1]] for hook in table.hooks}
        kept = {hook for hook in table.hooks & have.hooks
                if own[hook] == have.own.get(hook)}
        gone = have.hooks - kept
        self.refused = {port: why for port, why in self.refused.items()
                        if port in table.hooks}
        new = table.hooks - kept - self.refused.keys()
        follows = bool(table.maps.get('others'))
        changes: list[operations.NftOperation] = []
        for kind in {**have.maps, **table.maps}:
            old, wanted = have.maps.get(kind, {}), table.maps.get(kind, {})
            if old != wanted:
                changes.append(operations.ChangeMap(
                    kind, *_difference(old, wanted)))
        if stale or fresh:
            changes.append(operations.ChangeEntries(stale, fresh))
        if rules != have.rules:
            changes.append(operations.SetRules([*rules]))
        if follows != have.follows:
            changes.append(operations.SetUnmanaged(follows))
        changes += [operations.DetachPort(*port) for port in sorted(gone)]
        changes += [operations.DetachUplink(*one)
                    for one in sorted(have.uplinks - table.uplinks)]
        changes += [operations.AttachUplink(*one)
                    for one in sorted(table.uplinks - have.uplinks)]
        changes += map(operations.DeleteSet, have.strays)
        if not have.is_whole:
            changes.insert(0, operations.AddTable())
        if not changes and not new:
            return 0
        try:
            self._change_and_attach(changes, [
                operations.AttachPort(*hook, own[hook])
                for hook in sorted(new)])
        except exception.KernelRefused:
            self.known = None
            raise
        self.known = nft_listing.Standing(
            table.hooks - self.refused.keys(), entries, table.maps,
            table.uplinks, own, rules, follows, is_whole=True)
        return len(stale) + len(fresh) + len(gone) + len(new)

    def _change_and_attach(self, changes: list[operations.NftOperation],
                           attach: list[operations.AttachPort]) -> None:
        """Change the table and attach ports, in one transaction if possible.

        Where the kernel refuses that, each port is attached alone, so that
        one that cannot be leaves the others classified.
        """
        try:
            self._change([*changes, *attach])
            return
        except exception.KernelRefused:
            if not attach:
                raise
        if changes:
            self._change(changes)
        for port in attach:
            try:
                self._change([port])
            except exception.KernelRefused as error:
                LOG.error('Port %s is not classified: %s', port.dev, error)
                self.refused[port.dev, port.ifindex] = str(error)

    def forget(self) -> None:
        """Have the next replace read the kernel and try all ports again."""
        self.known = None
        self.refused = {}

    def dump(self) -> nft_listing.Standing:
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

    @property
    def _ports(self) -> Collection[tuple[str, int]]:
        """Device and ifindex of each attached port; none at the uplink."""
        return (self.known.hooks if self.known is not None
                and self.hook.is_at_ports else ())

    def ports(self) -> Collection[int]:
        """Return the ifindex of each attached port; none at the uplink."""
        return [ifindex for _, ifindex in self._ports]

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

    def remove(self) -> bool:
        """Delete the table; False when there was none."""
        errors = self.kernel.nft_change(self.hook.name,
                                        [operations.DeleteTable()])
        self.known = None
        return errors is None

    def _change(self, changes: list[operations.NftOperation]) -> None:
        errors = self.kernel.nft_change(self.hook.name, changes)
        if errors is not None:
            raise exception.KernelRefused(
                what='change the classification', count=1,
                why=errors.strip()[:400])


class NftEgressClassifier(NftClassifier):
    """Classifier at the uplink, for Open vSwitch's userspace datapath.

    It sees the outermost addresses only, so it serves networks without
    encapsulation whose tenants have different addresses.
    """

    name = 'nft-egress'
    hook = nft_text.EGRESS

    def __init__(self, kernel: protocol.Kernel, uplink_dev: str):
        super().__init__(kernel)
        self.uplink_dev = uplink_dev

    def build_table(self, policy: edge_policy.EdgePolicy,
                    ports: Iterable[base.VmPort], home: base.Home
                    ) -> base.Table:
        ifindex = devices.ifindex(self.uplink_dev)
        if not ifindex:
            raise exception.NotFound(what='uplink device', id=self.uplink_dev)
        here = {port.vm for port in ports}
        entries: dict[base.Entry, int] = {}
        for flow in policy.flows:
            if flow.src_vm in here:
                entries.setdefault(base.Entry(
                    ifindex, flow.src_ip, flow.dst_ip, flow.dst_port or 0),
                    flow.minor)
        return base.Table(frozenset({(self.uplink_dev, ifindex)}), entries,
                          {'control': {base.MapKey(ifindex):
                                       minors.UPLINK_CONTROL}})
