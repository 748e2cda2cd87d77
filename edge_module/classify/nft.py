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
import dataclasses
import json
import socket
from typing import Any

from edge_module.classify import base
from edge_module.privileged import protocol
from edge_module.qdisc import wire
from virtco import exception
from virtco.table import edge_policy

TABLE = 'netdev virtco'
MAP_SIZE = 1_000_000
_PORT_CHAIN = 'dev_'

# The four kinds of entry, (IP version, with a destination port), in the order
# in which they are asked.
_KINDS = {(False, True): 'port4', (True, True): 'port6',
          (False, False): 'pair4', (True, False): 'pair6'}
_PROTOCOLS = ('tcp', 'udp')


@dataclasses.dataclass(frozen=True, slots=True)
class Hook:
    """Where the chains stand, and whether a key names the port."""

    name: str
    with_dev: bool

    def map_name(self, is_ipv6: bool, with_port: bool) -> str:
        return f'{self.name}_{_KINDS[is_ipv6, with_port]}'

    def skeleton(self) -> str:
        """The table without ports; a packet hits, and counts, once."""
        lines = [f'add table {TABLE}']
        rules = []
        for is_ipv6, with_port in _KINDS:
            name = self.map_name(is_ipv6, with_port)
            dev = ('ifname . ', 'iifname . ') if self.with_dev else ('', '')
            address = 'ipv6_addr' if is_ipv6 else 'ipv4_addr'
            ip = 'ip6' if is_ipv6 else 'ip'
            port = ((' . inet_proto . inet_service',
                     ' . meta l4proto . th dport') if with_port else ('', ''))
            lines.append(
                f'add map {TABLE} {name} {{ type {dev[0]}{address} . '
                f'{address}{port[0]} : classid; size {MAP_SIZE}; counter; }}')
            # Not every kernel keeps later fragments, which have no ports,
            # from being asked for one.
            whole = '' if is_ipv6 else 'ip frag-off & 0x1fff 0 '
            condition = whole if with_port else 'meta priority 0 '
            rules.append(
                f'add rule {TABLE} classify {condition}'
                f'meta priority set {dev[1]}'
                f'{ip} saddr . {ip} daddr{port[1]} map @{name}')
        lines.append(f'add chain {TABLE} classify')
        if self.with_dev:
            # A packet that is in no map must not keep a priority that it
            # brought along.
            lines.append(f'add rule {TABLE} classify meta priority set 0')
        return '\n'.join(lines + rules) + '\n'

    @property
    def rules(self) -> int:
        return len(_KINDS) + self.with_dev


INGRESS = Hook('ingress', True)
EGRESS = Hook('egress', False)


def _element(key: base.Key, protocol_name: str, minor: int | None) -> str:
    dev = f'"{key.dev}" . ' if key.dev else ''
    parts = f'{dev}{key.src_ip} . {key.dst_ip}'
    if key.dst_port:
        parts += f' . {protocol_name} . {key.dst_port}'
    return parts if minor is None else (
        f'{parts} : {wire.ROOT_MAJOR:x}:{minor:x}')


def _commands(hook: Hook, verb: str,
              items: Iterable[tuple[base.Key, int | None]]) -> Iterator[str]:
    """One add or delete command per map that is concerned."""
    by_map: dict[str, list[str]] = {}
    for key, minor in items:
        name = hook.map_name(key.is_ipv6, bool(key.dst_port))
        for protocol_name in _PROTOCOLS if key.dst_port else ('',):
            by_map.setdefault(name, []).append(
                _element(key, protocol_name, minor))
    for name, elements in by_map.items():
        yield (f'{verb} element {TABLE} {name} '
               f'{{ {", ".join(elements)} }}\n')


class NftClassifier(base.Classifier):
    """See the module. ``replace`` works from what it last knew or read."""

    name = 'nft'
    hook = INGRESS

    def __init__(self, kernel: protocol.Kernel):
        self.kernel = kernel
        self.known: base.Table | None = None
        self.has_table = False
        self.has_skeleton = False

    def replace(self, table: base.Table) -> int:
        if self.known is None:
            self.known, _ = self.dump()
        have = self.known
        stale = [(key, None) for key, minor in have.entries.items()
                 if table.entries.get(key) != minor]
        fresh = [(key, minor) for key, minor in table.entries.items()
                 if have.entries.get(key) != minor]
        gone = have.hooks - table.hooks
        new = table.hooks - have.hooks
        if not (stale or fresh or gone or new) and self.has_skeleton:
            return 0
        text = '' if self.has_skeleton else self._new_table()
        text += ''.join(_commands(self.hook, 'delete', stale))
        text += ''.join(_commands(self.hook, 'add', fresh))
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
        self.known = dataclasses.replace(table, entries=dict(table.entries))
        return len(stale) + len(fresh) + len(gone) + len(new)

    def forget(self) -> None:
        self.known = None

    def _new_table(self) -> str:
        """In place of one that is damaged or of another make, if any."""
        old = f'delete table {TABLE}\n' if self.has_table else ''
        return old + self.hook.skeleton()

    def dump(self) -> tuple[base.Table, dict[base.Key, base.Counted]]:
        code, output, _ = self.kernel.nft_run(f'list table {TABLE}')
        self.has_table = code == 0
        self.has_skeleton = False
        if self.has_table:
            reader = _Reader(self.hook, json.loads(output)['nftables'])
            self.has_skeleton = reader.has_skeleton
            if self.has_skeleton:
                return (base.Table(frozenset(reader.hooks), reader.entries),
                        reader.counted)
        return base.Table(), {}

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
            f'"{dev}" priority 0; }}\nadd rule {chain} jump classify\n')


class _Reader:
    """Reads the JSON listing of the table."""

    def __init__(self, hook: Hook, objects: list[dict[str, Any]]):
        self.first = 1 if hook.with_dev else 0
        self.hooks: set[tuple[str, int]] = set()
        self.entries: dict[base.Key, int] = {}
        self.counted: dict[base.Key, base.Counted] = {}
        maps = set()
        rules = 0
        for item in objects:
            if 'map' in item:
                maps.add(item['map']['name'])
                for element, value in item['map'].get('elem', ()):
                    self._read_element(element, value)
            elif 'chain' in item:
                name = item['chain']['name']
                if name.startswith(_PORT_CHAIN):
                    ifindex, _, dev = name[len(_PORT_CHAIN):].partition('_')
                    self.hooks.add((dev, int(ifindex)))
            elif 'rule' in item and item['rule']['chain'] == 'classify':
                rules += 1
        self.has_skeleton = rules == hook.rules and maps == {
            hook.map_name(*kind) for kind in _KINDS}

    def _read_element(self, element: Any, value: str) -> None:
        inner = element.get('elem', element)
        parts = (inner.get('val', inner))['concat']
        dev = parts[0] if self.first else ''
        source, target, *port = parts[self.first:]
        # nft writes an IPv6 address as it likes best; compare in one form.
        key = base.Key(dev, base.address(source), base.address(target),
                       port[1] if port else 0)
        self.entries[key] = int(value.partition(':')[2], 16)
        counter = inner.get('counter', {'bytes': 0, 'packets': 0})
        before = self.counted.get(key, base.Counted(0, 0))
        self.counted[key] = base.Counted(
            before.sent_bytes + counter['bytes'],
            before.sent_packets + counter['packets'])
