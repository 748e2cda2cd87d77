# SPDX-License-Identifier: Apache-2.0

"""Classification by nftables, at the VM's port or at the uplink.

A packet's priority becomes the classid of its HTB class (HTB needs no filter
for that), and it keeps it through the bridge, Open vSwitch's kernel datapath
and VLAN, VXLAN or Geneve encapsulation to the uplink's qdisc. One chain per
port; a tenant is recognised by the port, so equal addresses do not meet.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import json
import socket
from typing import Any

from edge_module.classify import classified as base
from edge_module.classify import nft_listing
from edge_module.classify import nft_text
from edge_module.privileged import helper_protocol as protocol
from virtco import exception
from virtco.wire import edge_policy


@dataclasses.dataclass(frozen=True, slots=True)
class _Standing:
    """What the table holds."""

    hooks: frozenset[tuple[str, int]] = frozenset()
    entries: Mapping[nft_text.Entry, int] = dataclasses.field(
        default_factory=dict)
    maps: Mapping[str, Mapping[str, int]] = dataclasses.field(
        default_factory=dict)
    rules: tuple[str, ...] = ()
    follows: bool = False
    strays: tuple[str, ...] = ()


def _maps(table: base.Table) -> dict[str, dict[str, int]]:
    """The small maps, with keys as nft writes them."""
    ifindexes = dict(table.hooks)
    return {
        'control': {nft_text.classid(minor): control
                    for minor, control in table.control.items()},
        'to': {f'{ifindexes[dev]} . {mac}': minor
               for (dev, mac), minor in table.limits.items()},
        'others': {str(ifindexes[dev]): minor
                   for dev, minor in table.others.items()}}


def _from_maps(maps: Mapping[str, Mapping[str, int]],
               names: Mapping[int, str]
               ) -> tuple[dict[int, int], dict[tuple[str, str], int],
                          dict[str, int]]:
    def dev(ifindex: str) -> str:
        return names.get(int(ifindex), f'({ifindex})')

    to = {tuple(key.split(' . ')): minor
          for key, minor in maps.get('to', {}).items()}
    return ({nft_text.minor(key): control
             for key, control in maps.get('control', {}).items()},
            {(dev(ifindex), mac): minor
             for (ifindex, mac), minor in to.items()},
            {dev(key): minor for key, minor in maps.get('others', {}).items()})


def _names() -> dict[int, str]:
    """Of devices by index; 0 where a key names no port."""
    return {0: '', **dict(socket.if_nameindex())}


def _key(entry: nft_text.Entry, names: Mapping[int, str]) -> base.Key:
    # An entry of a device that is gone belongs to no port.
    return base.Key(names.get(entry.ifindex, f'({entry.ifindex})'),
                    *entry[1:])


class NftClassifier:
    """See the module. ``replace`` works from what it last knew or read.

    :cvar limits: whether :attr:`Table.limits` have an effect.
    """

    name = 'nft'
    hook = nft_text.INGRESS
    limits = True

    def __init__(self, kernel: protocol.Kernel):
        self.kernel = kernel
        self.known: _Standing | None = None
        self.has_table = False
        self.has_skeleton = False

    def build_table(self, flows: Iterable[edge_policy.FlowEntry],
                    ports: Iterable[base.VmPort],
                    control: Mapping[int, int] | None = None) -> base.Table:
        """What :meth:`replace` is to be given for a policy and ports.

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
        stale = [(entry, None) for entry, minor in have.entries.items()
                 if entries.get(entry) != minor]
        fresh = [(entry, minor) for entry, minor in entries.items()
                 if have.entries.get(entry) != minor]
        gone = have.hooks - table.hooks
        new = table.hooks - have.hooks
        maps, follows = _maps(table), bool(table.others)
        changed = [command for kind, wanted in maps.items()
                   for command in nft_text.map_commands(
                       self.hook, kind, have.maps.get(kind, {}), wanted)]
        if not (stale or fresh or gone or new or changed
                or have.strays) and (
                self.has_skeleton and rules == have.rules
                and follows == have.follows):
            return 0
        text = '' if self.has_skeleton else self._new_table()
        text += ''.join(changed)
        text += ''.join(nft_text.element_commands(self.hook, 'delete', stale))
        text += ''.join(nft_text.element_commands(self.hook, 'add', fresh))
        if rules != have.rules:
            text += self.hook.set_rules(rules)
        if follows != have.follows:
            text += self.hook.set_unmanaged(follows)
        text += ''.join(nft_text.delete_port_chain(self.hook, *port)
                        for port in sorted(gone))
        text += nft_text.delete_sets(have.strays)
        text += ''.join(nft_text.port_chain(self.hook, *port)
                        for port in sorted(new))
        try:
            self._run(text)
        except exception.KernelRefused:
            self.known = None
            raise
        self.has_table = self.has_skeleton = True
        self.known = _Standing(table.hooks, entries, maps, rules, follows)
        return len(stale) + len(fresh) + len(gone) + len(new)

    def forget(self) -> None:
        """Read what is there before the next replace."""
        self.known = None

    def _new_table(self) -> str:
        """In place of one that is damaged or of another make, if any."""
        old = f'delete table {nft_text.TABLE}\n' if self.has_table else ''
        return old + self.hook.skeleton()

    def _read(self) -> tuple[_Standing, dict[nft_text.Entry, base.Counted]]:
        code, output, _ = self.kernel.nft_run(f'list table {nft_text.TABLE}')
        self.has_table = code == 0
        self.has_skeleton = False
        if self.has_table:
            reader = nft_listing.Reader(self.hook,
                                        json.loads(output)['nftables'])
            self.has_skeleton = reader.is_whole
            if self.has_skeleton:
                return _Standing(
                    frozenset(reader.hooks), reader.entries, reader.values,
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
        """From the maps alone: nftables 1.0.6 complains about our rules."""
        if self.known is None:
            return self.dump()[1]
        objects: list[Any] = []
        for kind in nft_text.kinds(self.known.rules):
            code, output, _ = self.kernel.nft_run(
                f'list map {nft_text.TABLE} {self.hook.map_name(kind)}')
            if code:  # lost; the audit puts it right
                return {}
            objects += json.loads(output)['nftables']
        names = _names()
        return {_key(entry, names): seen for entry, seen
                in nft_listing.Reader(self.hook, objects).counted.items()}

    def destinations(self) -> frozenset[str]:
        """Ethernet addresses to which unmanaged packets went of late."""
        if self.known is None or not self.known.follows:
            return frozenset()
        code, output, _ = self.kernel.nft_run(
            f'list set {nft_text.TABLE} {self.hook.seen}')
        return nft_listing.elements(output) if code == 0 else frozenset()

    def peers(self) -> dict[tuple[str, str], base.Counted]:
        """What no entry matches: by device and the address it went to."""
        if self.known is None or not self.hook.with_dev:
            return {}
        devices = {name: dev for dev, ifindex in self.known.hooks
                   for name in nft_text.peers_names(ifindex)}
        if not devices:
            return {}
        # nftables 1.0.6 finds only the last of several sets that are named.
        code, output, _ = self.kernel.nft_run(
            f'list sets table {nft_text.TABLE}')
        if code:  # lost; the audit puts it right
            return {}
        return {(devices[name], address): seen for name, found
                in nft_listing.counted_sets(output).items()
                if name in devices for address, seen in found.items()}

    def remove(self) -> bool:
        """Take away every trace; False when there was none."""
        code, _, _ = self.kernel.nft_run(f'delete table {nft_text.TABLE}')
        self.known = None
        self.has_table = self.has_skeleton = False
        return code == 0

    def _run(self, commands: str) -> None:
        code, _, errors = self.kernel.nft_run(commands)
        if code:
            raise exception.KernelRefused(
                what='change the classification', count=1,
                why=errors.strip()[:400])


class NftEgressClassifier(NftClassifier):
    """At the uplink, for Open vSwitch's userspace datapath.

    Sees the outermost addresses: for networks without encapsulation, and for
    tenants whose addresses differ.
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
