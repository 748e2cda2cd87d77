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
import dataclasses
import json
import logging
import socket
from typing import Any
from typing import Literal

from edge_module.classify import classified as base
from edge_module.classify import nft_listing
from edge_module.classify import nft_text
from edge_module.privileged import helper_protocol as protocol
from edge_module.privileged import operations
from edge_module.tcplan import minors
from virtco import exception
from virtco.wire import edge_policy

LOG = logging.getLogger(__name__)

_SmallMap = Literal['control', 'to', 'others']


@dataclasses.dataclass(frozen=True, slots=True)
class _Standing:
    """Contents of virtco's nftables table, as read or as last written.

    :ivar hooks: (device, ifindex) of each attached port.
    :ivar own: minor of the own class of each, where it is known.
    :ivar entries: minor of the class of each flow entry.
    :ivar maps: minors by key, for each of the small maps.
    :ivar rules: names of the rules of the chain ``classify``.
    :ivar follows: whether destinations of unmanaged packets are followed.
    :ivar strays: names of sets that belong to no attached port.
    """

    hooks: frozenset[tuple[str, int]] = frozenset()
    own: Mapping[tuple[str, int], int] = dataclasses.field(
        default_factory=dict)
    entries: Mapping[nft_text.Entry, int] = dataclasses.field(
        default_factory=dict)
    maps: Mapping[_SmallMap, Mapping[nft_text.MapKey, int]] = (
        dataclasses.field(default_factory=dict))
    rules: tuple[str, ...] = ()
    follows: bool = False
    strays: tuple[str, ...] = ()


def _maps(table: base.Table
          ) -> dict[_SmallMap, dict[nft_text.MapKey, int]]:
    """Return the contents that the small maps should have for a table."""
    ifindexes = dict(table.hooks)
    return {
        'control': {nft_text.MapKey(minor): control
                    for minor, control in table.control.items()},
        'to': {nft_text.MapKey(ifindexes[dev], mac): minor
               for (dev, mac), minor in table.limits.items()},
        'others': {nft_text.MapKey(ifindexes[dev]): minor
                   for dev, minor in table.others.items()}}


def _from_maps(maps: Mapping[_SmallMap, Mapping[nft_text.MapKey, int]],
               names: Mapping[int, str]
               ) -> tuple[dict[int, int], dict[tuple[str, str], int],
                          dict[str, int]]:
    def dev(ifindex: int) -> str:
        return names.get(ifindex, f'({ifindex})')

    return ({key.number: minor
             for key, minor in maps.get('control', {}).items()},
            {(dev(key.number), key.mac): minor
             for key, minor in maps.get('to', {}).items()},
            {dev(key.number): minor
             for key, minor in maps.get('others', {}).items()})


def _names() -> dict[int, str]:
    """Return the device name of each ifindex.

    Index 0, of entries that name no port, maps to an empty name.
    """
    return {0: '', **dict(socket.if_nameindex())}


def _key(entry: nft_text.Entry, names: Mapping[int, str]) -> base.Key:
    # An entry of a device that is gone belongs to no port.
    return base.Key(names.get(entry.ifindex, f'({entry.ifindex})'),
                    *entry[1:])


class NftClassifier:
    """Keeps virtco's nftables table equal to a classification.

    :meth:`replace` changes only the differences from the contents that it
    last wrote or read.

    :cvar limits: whether :attr:`Table.limits` have an effect.
    :ivar refused: reason by port, as (device, ifindex), that the kernel or
        the helper refused to attach; tried again after :meth:`forget`.
    """

    name = 'nft'
    hook = nft_text.INGRESS
    limits = True

    def __init__(self, kernel: protocol.Kernel):
        self.kernel = kernel
        self.known: _Standing | None = None
        self.has_table = False
        self.has_skeleton = False
        self.refused: dict[tuple[str, int], str] = {}

    def build_table(self, flows: Iterable[edge_policy.FlowEntry],
                    ports: Iterable[base.VmPort],
                    control: Mapping[int, int] | None = None) -> base.Table:
        """Build the table for :meth:`replace` from flows and ports.

        :param control: see :class:`base.Table`.
        """
        return base.build_table(flows, ports, control)

    def replace(self, table: base.Table) -> int:
        """Make the kernel hold exactly this table, in one transaction.

        Entries that are right stay untouched, with their counters.

        :returns: number of entries and ports that were changed.
        :raises virtco.exception.KernelRefused: the next call reads what
            stands, and goes on.
        """
        ifindexes = dict(table.hooks) if self.hook.with_dev else {'': 0}
        entries = {nft_text.Entry(ifindexes[key.dev], key.src_ip, key.dst_ip,
                                  key.dst_port): minor
                   for key, minor in table.entries.items()}
        if self.known is None:
            self.known, _ = self._read()
        have = self.known
        rules = self.hook.rules(entries)
        stale = [entry for entry, minor in have.entries.items()
                 if entries.get(entry) != minor]
        fresh = [(entry, minor) for entry, minor in entries.items()
                 if have.entries.get(entry) != minor]
        of_ports = minors.of_ports(ifindex for _, ifindex in table.hooks)
        own = {hook: of_ports[hook[1]] for hook in table.hooks}
        kept = {hook for hook in have.hooks if not self.hook.with_dev
                or own.get(hook) == have.own.get(hook)} & table.hooks
        gone = have.hooks - kept
        self.refused = {port: why for port, why in self.refused.items()
                        if port in table.hooks}
        new = table.hooks - kept - self.refused.keys()
        maps, follows = _maps(table), bool(table.others)
        changes: list[operations.NftOperation] = []
        for kind, wanted in maps.items():
            old = have.maps.get(kind, {})
            if old != wanted:
                changes.append(operations.ChangeMap(
                    kind, [key for key, minor in old.items()
                           if wanted.get(key) != minor],
                    [(key, minor) for key, minor in wanted.items()
                     if old.get(key) != minor]))
        if stale or fresh:
            changes.append(operations.ChangeEntries(stale, fresh))
        if rules != have.rules:
            changes.append(operations.SetRules([*rules]))
        if follows != have.follows:
            changes.append(operations.SetUnmanaged(follows))
        changes += [operations.DetachPort(*port) for port in sorted(gone)]
        changes += map(operations.DeleteSet, have.strays)
        if not self.has_skeleton:
            changes[:0] = self._new_table()
        if not changes and not new:
            return 0
        try:
            self._change_and_attach(changes, [
                operations.AttachPort(*hook, own[hook])
                for hook in sorted(new)])
        except exception.KernelRefused:
            self.known = None
            raise
        self.has_table = self.has_skeleton = True
        self.known = _Standing(table.hooks - self.refused.keys(), own,
                               entries, maps, rules, follows)
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

    def _new_table(self) -> list[operations.NftOperation]:
        """Return operations that create the table.

        A table that stands, damaged or of another version, is deleted first.
        """
        return [*([operations.DeleteTable()] if self.has_table else ()),
                operations.AddTable()]

    def _read(self) -> tuple[_Standing, dict[nft_text.Entry, base.Counted]]:
        output, = self.kernel.nft_read([operations.Listing('table')])
        self.has_table = output is not None
        self.has_skeleton = False
        if output is not None:
            reader = nft_listing.Reader(self.hook,
                                        json.loads(output)['nftables'])
            self.has_skeleton = reader.is_whole
            if self.has_skeleton:
                return _Standing(
                    frozenset(reader.hooks), reader.own, reader.entries,
                    reader.values,
                    tuple(reader.rules), reader.follows,
                    tuple(reader.stray_sets())), reader.counted
        return _Standing(), {}

    def dump(self) -> tuple[base.Table, dict[base.Key, base.Counted]]:
        found, counted = self._read()
        names = _names()
        return base.Table(
            found.hooks,
            {_key(entry, names): minor
             for entry, minor in found.entries.items()},
            *_from_maps(found.maps, names)), {
            _key(entry, names): seen for entry, seen in counted.items()}

    def counted(self) -> dict[base.Key, base.Counted]:
        """Read the counters of the entries; empty if the table was lost.

        Only the maps are listed: nftables 1.0.6 cannot list our rules without
        complaint.
        """
        if self.known is None:
            return self.dump()[1]
        objects: list[Any] = []
        for output in self.kernel.nft_read(
                [operations.Listing('map', self.hook.map_name(kind))
                 for kind in nft_text.kinds(self.known.rules)]):
            if output is None:  # lost; the audit puts it right
                return {}
            objects += json.loads(output)['nftables']
        names = _names()
        return {_key(entry, names): seen for entry, seen
                in nft_listing.Reader(self.hook, objects).counted.items()}

    def destinations(self) -> frozenset[tuple[str, str]]:
        """Read (device, Ethernet address) of recent unmanaged packets."""
        if self.known is None or not self.known.follows:
            return frozenset()
        output, = self.kernel.nft_read(
            [operations.Listing('set', self.hook.map_name('reached'))])
        return (frozenset() if output is None
                else nft_listing.elements(output))

    def ports(self) -> Collection[int]:
        """Return the ifindex of each attached port; none at the uplink."""
        if self.known is None or not self.hook.with_dev:
            return ()
        return [ifindex for _, ifindex in self.known.hooks]

    def peers(self, ifindexes: Collection[int] | None = None
              ) -> dict[tuple[str, str], base.Counted]:
        """Read the counters of packets that matched no entry.

        :param ifindexes: ports to read, of :meth:`ports`; None: all of them.
        :returns: counters by (device, destination IP address).
        """
        if self.known is None or not self.hook.with_dev:
            return {}
        devices = {name: dev for dev, ifindex in self.known.hooks
                   if ifindexes is None or ifindex in ifindexes
                   for name in nft_text.peers_names(ifindex)}
        if not devices:
            return {}
        listings = ([operations.Listing('sets table')] if ifindexes is None
                    else [operations.Listing('set', name)
                          for name in devices])
        return {(devices[name], address): seen
                for output in self.kernel.nft_read(listings)
                # One that was lost is put right by the audit.
                if output is not None
                for name, found in nft_listing.counted_sets(output).items()
                if name in devices for address, seen in found.items()}

    def remove(self) -> bool:
        """Delete the table; False when there was none."""
        errors = self.kernel.nft_change(self.hook.name,
                                        [operations.DeleteTable()])
        self.known = None
        self.has_table = self.has_skeleton = False
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
    limits = False

    def __init__(self, kernel: protocol.Kernel, uplink_dev: str):
        super().__init__(kernel)
        self.uplink_dev = uplink_dev

    def build_table(self, flows: Iterable[edge_policy.FlowEntry],
                    ports: Iterable[base.VmPort],
                    control: Mapping[int, int] | None = None) -> base.Table:
        try:
            hooks = {(self.uplink_dev,
                      socket.if_nametoindex(self.uplink_dev))}
        except OSError as error:
            raise exception.NotFound(what='uplink device',
                                     id=self.uplink_dev) from error
        here = {port.vm for port in ports}
        entries: dict[base.Key, int] = {}
        for flow in flows:
            if flow.src_vm in here:
                entries.setdefault(base.Key(
                    '', flow.src_ip, flow.dst_ip, flow.dst_port or 0),
                    flow.minor)
        return base.Table(frozenset(hooks), entries,
                          base.used(control, entries))
