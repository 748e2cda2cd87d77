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
from collections.abc import Set
import dataclasses
import json
import socket
from typing import Any
from typing import NamedTuple

from edge_module.classify import base
from edge_module import minors
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
_PROTOCOLS = ('tcp', 'udp')
# Chains with one rule each, commented alike, that tells control packets.
_CONTROL = ('control4', 'control6')
# Of a TCP packet without data, with all options and a frame's header. Who
# writes a short length into a long packet gets no long packet past the data.
_CONTROL_BYTES = 140


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
            for (is_ipv6, with_port), kind in _KINDS.items()} | {
                self.map_name('control'): ('classid',)}

    def skeleton(self) -> str:
        """The table without ports, rules and entries."""
        # Without a size the kernel takes a hash table that grows; for a
        # million entries it would walk two million buckets per map and
        # reading.
        return '\n'.join([f'add table {TABLE}', *(
            f'add map {TABLE} {name} {{ type {" . ".join(types)} : classid; '
            f'{"counter; " if len(types) > 1 else ""}}}'
            for name, types in self.maps().items()),
            *(f'add chain {TABLE} {name}\nadd rule {TABLE} {name} '
              f'meta length <= {_CONTROL_BYTES} {condition} '
              'meta priority set meta priority map '
              f'@{self.map_name("control")} comment "{name}"'
              for name, condition in zip(_CONTROL, (
                  _without_data4(), _without_data6()), strict=True)),
            f'add chain {TABLE} classify']) + '\n'

    def rules(self, entries: Iterable[_Entry]) -> tuple[str, ...]:
        """Names of the rules: only maps that hold something are asked."""
        used = {entry.kind for entry in entries}
        return tuple(kind for kind in _KINDS.values() if kind in used)

    def set_rules(self, names: Iterable[str]) -> str:
        """Replace the rules; a packet that hits meets no other of them."""
        return '\n'.join([f'flush chain {TABLE} classify', *(
            f'add rule {TABLE} classify {self._rule(name)} comment "{name}"'
            for name in names)]) + '\n'

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
                f'{port} map @{self.map_name(kind)} '
                f'goto control{kind[-1]}')


def _without_data4() -> str:
    """Matches TCP over IPv4 whose headers are all there is.

    nftables does not calculate: every length of both headers is listed. The
    header length of TCP shares its byte with a flag.
    """
    lengths = ', '.join(
        f'{0x40 | words:#x} . {4 * (words + tcp)} . {tcp << 4 | flag:#x}'
        for words in range(5, 16) for tcp in range(5, 16) for flag in (0, 1))
    # In a later fragment data would stand in the header's place.
    return ('ip protocol tcp ip frag-off & 0x1fff 0 '
            f'@nh,0,8 . ip length . @th,96,8 {{ {lengths} }}')


def _without_data6() -> str:
    """The same over IPv6, without extension headers."""
    lengths = ', '.join(f'{4 * tcp} . {tcp << 4 | flag:#x}'
                        for tcp in range(5, 16) for flag in (0, 1))
    return f'ip6 nexthdr tcp ip6 length . @th,96,8 {{ {lengths} }}'


INGRESS = Hook('ingress', True)
EGRESS = Hook('egress', False)


@dataclasses.dataclass(frozen=True, slots=True)
class _Standing:
    """What the table holds."""

    hooks: frozenset[tuple[str, int]] = frozenset()
    entries: Mapping[_Entry, int] = dataclasses.field(default_factory=dict)
    control: Mapping[int, int] = dataclasses.field(default_factory=dict)
    rules: tuple[str, ...] = ()


def _classid(minor: int) -> str:
    return f'{wire.ROOT_MAJOR:x}:{minor:x}'


def _control_commands(hook: Hook, have: Mapping[int, int],
                      wanted: Mapping[int, int]) -> Iterator[str]:
    name = f'{TABLE} {hook.map_name("control")}'
    stale = [_classid(minor) for minor, control in have.items()
             if wanted.get(minor) != control]
    fresh = [f'{_classid(minor)} : {_classid(control)}'
             for minor, control in wanted.items()
             if have.get(minor) != control]
    for verb, elements in (('delete', stale), ('add', fresh)):
        if elements:
            yield f'{verb} element {name} {{ {", ".join(elements)} }}\n'


def _commands(hook: Hook, verb: str,
              items: Iterable[tuple[_Entry, int | None]]) -> Iterator[str]:
    """One add or delete command per map that is concerned."""
    by_map: dict[str, list[str]] = {}
    for entry, minor in items:
        value = '' if minor is None else f' : {_classid(minor)}'
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
        control = list(_control_commands(self.hook, have.control,
                                         table.control))
        if not (stale or fresh or gone or new or control) and (
                self.has_skeleton and rules == have.rules):
            return 0
        text = '' if self.has_skeleton else self._new_table()
        text += ''.join(control)
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
        self.known = _Standing(table.hooks, entries, dict(table.control),
                               rules)
        return len(stale) + len(fresh) + len(gone) + len(new)

    def forget(self) -> None:
        self.known = None

    def was_lost(self, devices: Set[int], tables: bool) -> bool:
        return tables

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
            self.has_skeleton = (reader.maps == self.hook.maps()
                                 and reader.control_rules == {
                                     name: [name] for name in _CONTROL})
            if self.has_skeleton:
                return _Standing(
                    frozenset(reader.hooks), reader.entries, reader.control,
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
            key(entry): minor for entry, minor in found.entries.items()},
            found.control), {
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


def _chain_name(dev: str, ifindex: int) -> str:
    # With the ifindex, a device that came back under its old name is new, and
    # is hooked again.
    return f'{_PORT_CHAIN}{ifindex}_{dev}'


def _port_chain(hook: Hook, dev: str, ifindex: int) -> str:
    chain = f'{TABLE} {_chain_name(dev, ifindex)}'
    # A packet that is in no map must not keep a priority that it brought.
    rest = (f'meta priority set {_classid(minors.of_port(ifindex))} '
            if hook.with_dev else '')
    return (f'add chain {chain} {{ type filter hook {hook.name} device '
            f'"{dev}" priority 0; }}\nadd rule {chain} {rest}goto classify\n')


def _minor(classid: str) -> int:
    return int(classid.partition(':')[2], 16)


class _Reader:
    """Reads the JSON listing of the table."""

    def __init__(self, hook: Hook, objects: list[dict[str, Any]]):
        self.with_dev = hook.with_dev
        self.hooks: set[tuple[str, int]] = set()
        self.entries: dict[_Entry, int] = {}
        self.counted: dict[_Entry, base.Counted] = {}
        self.maps: dict[str, tuple[str, ...]] = {}
        self.control: dict[int, int] = {}
        self.rules: list[str] = []
        self.control_rules: dict[str, list[str]] = {}
        self._ifindexes = {name: ifindex
                           for ifindex, name in socket.if_nameindex()}
        self._seen: set[tuple[Any, ...]] = set()
        for item in objects:
            if 'map' in item:
                types = item['map']['type']
                self.maps[item['map']['name']] = (
                    (types,) if isinstance(types, str) else tuple(types))
        for item in objects:
            if 'map' in item and self.maps == hook.maps():
                read = (self._read_control if item['map']['name']
                        == hook.map_name('control') else self._read_element)
                for element, value in item['map'].get('elem', ()):
                    read(element, value)
            elif 'chain' in item:
                name = item['chain']['name']
                if name.startswith(_PORT_CHAIN):
                    ifindex, _, dev = name[len(_PORT_CHAIN):].partition('_')
                    self.hooks.add((dev, int(ifindex)))
            elif 'rule' in item:
                name = item['rule']['chain']
                comment = item['rule'].get('comment', '')
                if name == 'classify':
                    self.rules.append(comment)
                elif name in _CONTROL:
                    self.control_rules.setdefault(name, []).append(comment)

    def _read_control(self, element: str, value: str) -> None:
        self.control[_minor(element)] = _minor(value)

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
        self.entries[entry] = _minor(value)
        counter = inner.get('counter', {'bytes': 0, 'packets': 0})
        before = self.counted.get(entry, base.Counted(0, 0))
        self.counted[entry] = base.Counted(
            before.sent_bytes + counter['bytes'],
            before.sent_packets + counter['packets'])
