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
"""Classification by nftables, at the VM's port or at the uplink.

A packet's priority becomes the classid of its HTB class (HTB needs no filter
for that), and it keeps it through the bridge, Open vSwitch's kernel datapath
and VLAN, VXLAN or Geneve encapsulation to the uplink's qdisc. One chain per
port; a tenant is recognised by the port, so equal addresses do not meet.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import json
import socket
from typing import Any
from typing import NamedTuple

from edge_module.classify import base
from edge_module.privileged import protocol
from edge_module.qdisc import wire
from virtco import exception
from virtco.table import edge_policy

TABLE = 'netdev virtco'
_PORT_CHAIN = 'dev_'

# The four kinds of entry, (IP version, with a destination port), in the order
# in which they are asked.
_KINDS = {(False, True): 'port4', (False, False): 'pair4',
          (True, True): 'port6', (True, False): 'pair6'}
_REST = 'rest'
_PROTOCOLS = ('tcp', 'udp')


class _Entry(NamedTuple):
    """What is classified; at the uplink ``ifindex`` is 0."""

    ifindex: int
    src_ip: str
    dst_ip: str
    dst_port: int

    @property
    def kind(self) -> str:
        return _KINDS[':' in self.src_ip, bool(self.dst_port)]

    def element(self, protocol_name: str) -> str:
        """As the key of a map's element."""
        dev = f'{self.ifindex} . ' if self.ifindex else ''
        port = f' . {protocol_name} . {self.dst_port}' if self.dst_port else ''
        return f'{dev}{self.src_ip} . {self.dst_ip}{port}'


@dataclasses.dataclass(frozen=True, slots=True)
class Hook:
    """Where the chains stand, and whether a key names the port."""

    name: str
    with_dev: bool

    def map_name(self, kind: str) -> str:
        return f'{self.name}_{kind}'

    def maps(self) -> dict[str, tuple[str, ...]]:
        """Types of the key of every map."""
        dev = ('iface_index',) if self.with_dev else ()
        return {self.map_name(kind): (
            *dev, *(('ipv6_addr',) if is_ipv6 else ('ipv4_addr',)) * 2,
            *(('inet_proto', 'inet_service') if with_port else ()))
            for (is_ipv6, with_port), kind in _KINDS.items()}

    def skeleton(self) -> str:
        """The table without ports, rules and entries."""
        # Without a size the kernel takes a hash table that grows; for a
        # million entries it would walk two million buckets per map and
        # reading.
        return '\n'.join([f'add table {TABLE}', *(
            f'add map {TABLE} {name} {{ type {" . ".join(types)} : classid; '
            f'counter; }}' for name, types in self.maps().items()),
            f'add chain {TABLE} classify']) + '\n'

    def rules(self, entries: Iterable[_Entry]) -> tuple[str, ...]:
        """Names of the rules: only maps that hold something are asked."""
        used = {entry.kind for entry in entries}
        return (*(kind for kind in _KINDS.values() if kind in used),
                *((_REST,) if self.with_dev else ()))

    def set_rules(self, names: Iterable[str]) -> str:
        """Replace the rules; a packet that hits is done."""
        lines = [f'flush chain {TABLE} classify']
        for name in names:
            # A packet that is in no map must not keep a priority that it
            # brought along.
            what = ('meta priority set 0' if name == _REST else
                    self._rule(name))
            lines.append(f'add rule {TABLE} classify {what} '
                         f'comment "{name}"')
        return '\n'.join(lines) + '\n'

    def _rule(self, kind: str) -> str:
        dev = 'iif . ' if self.with_dev else ''
        ip = 'ip6' if kind.endswith('6') else 'ip'
        port = condition = ''
        if kind.startswith('port'):
            port = ' . meta l4proto . th dport'
            if ip == 'ip':
                # Not every kernel keeps later fragments, which have no ports,
                # from being asked for one.
                condition = 'ip frag-off & 0x1fff 0 '
        return (f'{condition}meta priority set {dev}{ip} saddr . {ip} daddr'
                f'{port} map @{self.map_name(kind)} accept')


INGRESS = Hook('ingress', True)
EGRESS = Hook('egress', False)


@dataclasses.dataclass(frozen=True, slots=True)
class _Standing:
    """What the table holds."""

    hooks: frozenset[tuple[str, int]] = frozenset()
    entries: Mapping[_Entry, int] = dataclasses.field(default_factory=dict)
    rules: tuple[str, ...] = ()


def _commands(hook: Hook, verb: str,
              items: Iterable[tuple[_Entry, int | None]]) -> Iterator[str]:
    """One add or delete command per map that is concerned."""
    by_map: dict[str, list[str]] = {}
    for entry, minor in items:
        value = ('' if minor is None
                 else f' : {wire.ROOT_MAJOR:x}:{minor:x}')
        for protocol_name in _PROTOCOLS if entry.dst_port else ('',):
            by_map.setdefault(hook.map_name(entry.kind), []).append(
                entry.element(protocol_name) + value)
    for name, elements in by_map.items():
        yield (f'{verb} element {TABLE} {name} '
               f'{{ {", ".join(elements)} }}\n')


class NftClassifier(base.Classifier):
    """See the module. ``replace`` works from what it last knew or read."""

    name = 'nft'
    hook = INGRESS

    def __init__(self, kernel: protocol.Kernel):
        self.kernel = kernel
        self.known: _Standing | None = None
        self.has_table = False
        self.has_skeleton = False

    def replace(self, table: base.Table) -> int:
        ifindexes = dict(table.hooks) if self.hook.with_dev else {'': 0}
        entries = {_Entry(ifindexes[key.dev], key.src_ip, key.dst_ip,
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
        if not (stale or fresh or gone or new) and self.has_skeleton and (
                rules == have.rules):
            return 0
        text = '' if self.has_skeleton else self._new_table()
        text += ''.join(_commands(self.hook, 'delete', stale))
        text += ''.join(_commands(self.hook, 'add', fresh))
        if rules != have.rules:
            text += self.hook.set_rules(rules)
        text += ''.join(f'delete chain {TABLE} {_chain_name(*port)}\n'
                        for port in sorted(gone))
        text += ''.join(_port_chain(self.hook, *port)
                        for port in sorted(new))
        try:
            self._run(text)
        except exception.KernelRefused:
            self.known = None
            raise
        self.has_table = self.has_skeleton = True
        self.known = _Standing(table.hooks, entries, rules)
        return len(stale) + len(fresh) + len(gone) + len(new)

    def forget(self) -> None:
        self.known = None

    def _new_table(self) -> str:
        """In place of one that is damaged or of another make, if any."""
        old = f'delete table {TABLE}\n' if self.has_table else ''
        return old + self.hook.skeleton()

    def _read(self) -> tuple[_Standing, dict[_Entry, base.Counted]]:
        code, output, _ = self.kernel.nft_run(f'list table {TABLE}')
        self.has_table = code == 0
        self.has_skeleton = False
        if self.has_table:
            reader = _Reader(self.hook, json.loads(output)['nftables'])
            self.has_skeleton = reader.maps == self.hook.maps()
            if self.has_skeleton:
                return _Standing(frozenset(reader.hooks), reader.entries,
                                 tuple(reader.rules)), reader.counted
        return _Standing(), {}

    def dump(self) -> tuple[base.Table, dict[base.Key, base.Counted]]:
        found, counted = self._read()
        names = {0: '', **dict(socket.if_nameindex())}

        def key(entry: _Entry) -> base.Key:
            # An entry of a device that is gone belongs to no port.
            return base.Key(names.get(entry.ifindex, f'({entry.ifindex})'),
                            *entry[1:])

        return base.Table(found.hooks, {
            key(entry): minor for entry, minor in found.entries.items()}), {
            key(entry): seen for entry, seen in counted.items()}

    def remove(self) -> bool:
        code, _, _ = self.kernel.nft_run(f'delete table {TABLE}')
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
    hook = EGRESS

    def __init__(self, kernel: protocol.Kernel, uplink_dev: str):
        super().__init__(kernel)
        self.uplink_dev = uplink_dev

    def build_table(self, flows: Iterable[edge_policy.FlowEntry],
                    ports: Iterable[base.VmPort]) -> base.Table:
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
        return base.Table(frozenset(hooks), entries)


def _chain_name(dev: str, ifindex: int) -> str:
    # With the ifindex, a device that came back under its old name is new, and
    # is hooked again.
    return f'{_PORT_CHAIN}{ifindex}_{dev}'


def _port_chain(hook: Hook, dev: str, ifindex: int) -> str:
    chain = f'{TABLE} {_chain_name(dev, ifindex)}'
    return (f'add chain {chain} {{ type filter hook {hook.name} device '
            f'"{dev}" priority 0; }}\nadd rule {chain} goto classify\n')


class _Reader:
    """Reads the JSON listing of the table."""

    def __init__(self, hook: Hook, objects: list[dict[str, Any]]):
        self.with_dev = hook.with_dev
        self.hooks: set[tuple[str, int]] = set()
        self.entries: dict[_Entry, int] = {}
        self.counted: dict[_Entry, base.Counted] = {}
        self.maps: dict[str, tuple[str, ...]] = {}
        self.rules: list[str] = []
        self._ifindexes = {name: ifindex
                           for ifindex, name in socket.if_nameindex()}
        self._seen: set[tuple[Any, ...]] = set()
        for item in objects:
            if 'map' in item:
                self.maps[item['map']['name']] = tuple(item['map']['type'])
        for item in objects:
            if 'map' in item and self.maps == hook.maps():
                for element, value in item['map'].get('elem', ()):
                    self._read_element(element, value)
            elif 'chain' in item:
                name = item['chain']['name']
                if name.startswith(_PORT_CHAIN):
                    ifindex, _, dev = name[len(_PORT_CHAIN):].partition('_')
                    self.hooks.add((dev, int(ifindex)))
            elif 'rule' in item and item['rule']['chain'] == 'classify':
                self.rules.append(item['rule'].get('comment', ''))

    def _read_element(self, element: Any, value: str) -> None:
        inner = element.get('elem', element)
        parts = (inner.get('val', inner))['concat']
        if tuple(parts) in self._seen:  # the hash table grew meanwhile
            return
        self._seen.add(tuple(parts))
        ifindex = 0
        if self.with_dev:
            dev, *parts = parts
            # The number of a device that is gone.
            ifindex = self._ifindexes.get(dev) or int(
                dev if dev.isdecimal() else -1)
        source, target, *port = parts
        # nft writes an IPv6 address as it likes best; compare in one form.
        entry = _Entry(ifindex, base.address(source), base.address(target),
                       port[1] if port else 0)
        self.entries[entry] = int(value.partition(':')[2], 16)
        counter = inner.get('counter', {'bytes': 0, 'packets': 0})
        before = self.counted.get(entry, base.Counted(0, 0))
        self.counted[entry] = base.Counted(
            before.sent_bytes + counter['bytes'],
            before.sent_packets + counter['packets'])
