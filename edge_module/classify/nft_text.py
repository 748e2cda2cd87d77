# SPDX-License-Identifier: Apache-2.0

"""Commands of nft that build virtco's table: maps, rules, elements. Pure."""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import itertools
from typing import Literal

from edge_module.classify import classified as base
from edge_module.qdisc import wire
from edge_module.tcplan import minors

TABLE = 'netdev virtco'
# Chains of a port or an uplink; its ifindex follows.
PORT_CHAIN, TOWARDS_CHAIN = 'dev', 'towards'
UPLINK_CHAIN, FROM_CHAIN = 'uplink', 'from'

# Kinds of entry, (is IPv6, has a destination port), in the order in which
# their maps are looked up.
RuleName = Literal['port4', 'pair4', 'port6', 'pair6', 'later4', 'first4',
                   'later6', 'first6']
KINDS: dict[tuple[bool, bool], RuleName] = {
    (False, True): 'port4', (False, False): 'pair4',
    (True, True): 'port6', (True, False): 'pair6'}
_PROTOCOLS = ('tcp', 'udp')
# Rules of three chains without and with limits by destination: of unmanaged
# packets, of those of them that may go to strangers, and of packets of unknown
# ports. Control packets to a limited host share its limit.
UNMANAGED: dict[bool, dict[str, tuple[str, ...]]] = {
    False: {'unmanaged': ('control',), 'further': (), 'unknown': ()},
    True: {'unmanaged': ('to', 'control', 'known'),
           'further': ('limited', 'seen', 'others'),
           'unknown': ('to', 'known', 'seen', 'others')}}
# Chain with one rule for broadcasts, and for packets to an address that has
# sent the VM nothing: switches may flood these, and the controller cannot know
# which hosts they reach.
STRANGERS = 'strangers'
# Set of (port, destination Ethernet address) of unmanaged packets to addresses
# that have sent the VM something (NEAR). It has room for the 512 that each of
# 256 ports adds meanwhile at the limit that it has in the other set.
REACHED, _MOST_REACHED, _REACHED_S = 'reached', 131072, 4
REACHING = 'reaching'
_REACHING_LIMIT = 'limit rate 96/second burst 128 packets'
# A host routes for all of its VMs.
_UNKNOWN_REACHING_LIMIT = 'limit rate 1024/second burst 1024 packets'
# Maps of the datagrams whose later fragments are awaited, with room for 85
# ports at the limit that each of them has in the set.
FRAGMENTS = ('frag4', 'frag6')
_MOST_FRAGMENTED, _FRAGMENTED_S = 262144, 2
FRAGMENTING = 'fragmenting'
_FRAGMENTING_LIMIT = 'limit rate 1024/second burst 1024 packets'
# Set of the ports with counters of the TCP data that came from other hosts.
RECEIVED, _RECEIVED_S = 'received', 60
SETS = (REACHED, REACHING, FRAGMENTING, RECEIVED)
# Sets of each port, by IP version: destination addresses of packets that
# match no entry. Packets of a VM to further addresses are not counted; other
# VMs have sets of their own.
PEERS = {'peers4': ('ipv4_addr', 'ip'), 'peers6': ('ipv6_addr', 'ip6')}
MOST_PEERS, _PEERS_S = 256, 300
# Set of each port: Ethernet addresses that sent the VM something recently.
# Each packet keeps its sender's in this set and in the next, also where
# somebody fills them with others.
NEAR, _MOST_NEAR, _NEAR_S = 'near', 1024, 300
# The same set of an uplink.
NEARBY, _MOST_NEARBY = 'nearby', 65536
# Source addresses of Neutron's distributed routers: they never hear of those
# that they send to, which Neutron tells them.
_IS_DVR = 'ether saddr & ff:ff:ff:00:00:00 == fa:16:3f:00:00:00'
# Open vSwitch watches its tunnels by short packets inside of them.
_BFD = 'udp dport 3784 meta length <= 80 limit rate 2000/second'
# Set of each port: Ethernet addresses that sent the VM TCP data, which it may
# acknowledge. It has room for those that are added meanwhile at the limit: who
# sends from ever other addresses leaves a place to a sender of many packets.
OWED, _MOST_OWED, _OWED_S = 'owed', 4096, 4
#: All sets of a port.
PORT_SETS = (*PEERS, NEAR, OWED)
_OWING_LIMIT = 'limit rate 768/second burst 1024 packets'
_IS_UNICAST = 'ether daddr & 01:00:00:00:00:00 == 00:00:00:00:00:00'
# Longest TCP packet without data, with all options and the frame's header. A
# long packet whose header claims a short length is longer than this, so it
# gets no priority over data.
_CONTROL_BYTES = 140
# The mask alone tells most packets apart, in a third of the comparison's time.
_IS_SMALL_TCP = ('meta l4proto tcp meta length & 0xffffff00 == 0 '
                 f'meta length <= {_CONTROL_BYTES}')
# Kinds of the class that a packet is in, by the range of the minor.
_IN_PORT, _IN_CONTROL, _IN_LIMITED = (
    f'meta priority & {mask:#x} == {first:#x}' for mask, first in (
        (0x10000 - minors.N_PORTS, minors.FIRST_PORT),
        (0x10000 - minors.N_PORTS, minors.UPLINK_CONTROL),
        (minors.of_limit(0), minors.of_limit(0))))


@dataclasses.dataclass(frozen=True, slots=True)
class Hook:
    """Hook of the chains: ingress of VM ports, or egress of the uplink.

    :ivar dev: key of the device whose packets the hook sees.
    """

    name: Literal['ingress', 'egress']
    dev: Literal['iif', 'oif']

    @property
    def is_at_ports(self) -> bool:
        """Whether packets are seen at VM ports, not at the uplink's egress."""
        return self.name == 'ingress'

    def map_name(self, kind: str) -> str:
        """Return the name of the map of a kind of entry, or a small map."""
        return f'{self.name}_{kind}'

    def maps(self) -> dict[str, tuple[str, ...]]:
        """Return the types of the fields of the key, by name of the map."""
        types = {kind: (
            'iface_index', *('ipv6_addr' if is_ipv6 else 'ipv4_addr',) * 2,
            *(('inet_proto', 'inet_service') if with_port else ()))
            for (is_ipv6, with_port), kind in KINDS.items()} | {
                'control': ('iface_index',), 'others': ('iface_index',),
                **dict.fromkeys(('to', 'home'), (
                    'iface_index', 'ether_addr')),
                **{kind: self._fragment(kind)[1] for kind in FRAGMENTS}}
        return {self.map_name(kind): key for kind, key in types.items()}

    def _fragment(self, kind: str) -> tuple[str, tuple[str, ...]]:
        """Return the key that identifies a fragmented datagram, with types.

        The key fits into four registers, the most that nftables 1.0.6 lets a
        rule add. Of an IPv6 address it therefore holds the last half only.
        """
        if kind == 'frag4':
            return (f'{self.dev} . ip saddr . ip daddr . ip id',
                    ('iface_index', 'ipv4_addr', 'ipv4_addr', 'integer'))
        return (f'{self.dev} . @nh,256,64 . @nh,352,32',
                ('iface_index', 'integer', 'integer'))

    def skeleton(self) -> str:
        """Return the commands that replace the table, if there is one, by one
        without ports, rules and entries.
        """
        # Maps have no size, so that the kernel takes a hash table that grows;
        # sized for a million entries it would walk two million buckets per map
        # and reading.
        return '\n'.join([f'add table {TABLE}', f'delete table {TABLE}',
                          f'add table {TABLE}', *(
            f'add map {TABLE} {name} {{ type {" . ".join(types)} : classid; '
            f'{"counter; " if len(types) > 2 else ""}}}'
            for name, types in self.maps().items()
            if name not in map(self.map_name, FRAGMENTS)),
            *(f'add map {TABLE} {self.map_name(kind)} {{ typeof '
              f'{self._fragment(kind)[0]} : meta priority; '
              f'size {_MOST_FRAGMENTED}; timeout {_FRAGMENTED_S}s; '
              'flags dynamic,timeout; }' for kind in FRAGMENTS),
            *(f'add set {TABLE} {self.map_name(name)} {{ type iface_index; '
              f'size {minors.N_PORTS}; timeout {kept_s}s; '
              f'flags dynamic,timeout; {counter}}}'
              for name, kept_s, counter in (
                  (FRAGMENTING, _FRAGMENTED_S, ''),
                  (REACHING, _REACHED_S, ''),
                  (RECEIVED, _RECEIVED_S, 'counter; '))),
            f'add set {TABLE} {self.map_name(REACHED)} {{ type iface_index . '
            f'ether_addr; size {_MOST_REACHED}; timeout {_REACHED_S}s; '
            'flags dynamic,timeout; }',
            *(f'add chain {TABLE} {name}' for name in (
                *self.fixed(), 'classify', *UNMANAGED[False])),
            *itertools.starmap(_replace_rules, self.fixed().items()),
            self.set_rules((), False)])

    def fixed(self) -> dict[str, dict[str, str]]:
        """Return the rules of the chains whose rules never change, by name.
        """
        control = (f'meta priority set {self.dev} map '
                   f'@{self.map_name("control")}')
        return {
            'control': {'control4': f'{_without_data4()} {control}',
                        'control6': f'{_without_data6()} {control}'},
            # Packets of an entry that only counts are unmanaged.
            'managed': {'counted': f'{_IN_PORT} return',
                        'control': f'{_IS_SMALL_TCP} jump control',
                        'managed': 'accept'},
            # Short TCP packets to somebody who sent data.
            'owed': {'control': 'jump control',
                     'owed': f'{_IN_CONTROL} accept'},
            STRANGERS: {STRANGERS: self.to_others(self.dev)}}

    def rules(self, entries: Iterable[base.Entry]) -> tuple[RuleName, ...]:
        """Return the names of the rules that the entries need, in order.

        Maps without an entry have no rule, so no packet is looked up there.
        """
        used = set(map(kind_of, entries))
        return tuple(name for kind in KINDS.values() if kind in used
                     for name in (*_FRAGMENT_RULES.get(kind, ()), kind))

    def set_rules(self, names: Iterable[str], follows: bool) -> str:
        """Return the commands that replace the rules of chain ``classify`` and
        those of unmanaged packets.

        The first rule that matches a packet is the last one it meets.

        :param follows: whether to limit by destination. Packets to a limited
            destination are counted by its class, other destinations are kept
            in the set; where a port is at its limit there, packets to further
            ones get the class of ``others``.
        """
        of_port = self._unmanaged(self.dev, _REACHING_LIMIT)
        rules = {'unmanaged': of_port, 'further': of_port,
                 'unknown': self._unmanaged('oif', _UNKNOWN_REACHING_LIMIT)}
        return _replace_rules(
            'classify', {name: self._rule(name) for name in names}) + ''.join(
                _replace_rules(chain, {name: rules[chain][name]
                                       for name in names})
                for chain, names in UNMANAGED[follows].items())

    def _unmanaged(self, dev: str, limit: str) -> dict[str, str]:
        """Return the rules of unmanaged packets by name.

        :param dev: key of the device by which the packets are known.
        :param limit: rate of new addresses of a device.
        """
        key = f'{dev} . ether daddr'
        reached = f'@{self.map_name(REACHED)}'
        return {
            'to': f'meta priority set {key} map @{self.map_name("to")} return',
            'control': f'{_IS_SMALL_TCP} jump control',
            # Only addresses that are no strangers become known.
            'known': f'{key} {reached} accept',
            'limited': f'{_IN_LIMITED} accept',
            'seen': f'{_IS_UNICAST} update @{self.map_name(REACHING)} '
                    f'{{ {dev} {limit} }} add {reached} {{ {key} }} accept',
            'others': self.to_others(dev)}

    def to_others(self, dev: str) -> str:
        """Return the statement that puts a packet into the class for all
        destinations that cannot be followed.
        """
        return f'meta priority set {dev} map @{self.map_name("others")}'

    def _rule(self, kind: str) -> str:
        """Return the rule that looks packets of a kind up in their map."""
        ip = 'ip6' if kind.endswith('6') else 'ip'
        port = condition = then = ''
        if kind.startswith('later'):
            name = f'frag{kind[-1]}'
            return (f'{_LATER[ip]} meta priority set {self._fragment(name)[0]}'
                    f' map @{self.map_name(name)} goto managed')
        if kind.startswith('first'):
            # Later fragments carry no port: they follow this one.
            name, kind = f'frag{kind[-1]}', f'port{kind[-1]}'
            condition = f'{_FIRST[ip]} '
            then = (f'update @{self.map_name(FRAGMENTING)} {{ {self.dev} '
                    f'{_FRAGMENTING_LIMIT} }} update @{self.map_name(name)} '
                    f'{{ {self._fragment(name)[0]} : meta priority }} ')
        if kind.startswith('port'):
            port = ' . meta l4proto . th dport'
            if ip == 'ip' and not condition:
                # Not every kernel keeps later fragments, which have no ports,
                # from being asked for one.
                condition = 'ip frag-off & 0x1fff 0 '
        return (f'{condition}meta priority set {self.dev} . {ip} saddr . '
                f'{ip} daddr{port} map @{self.map_name(kind)} {then}'
                'goto managed')


# Fragments are told apart where their header is the first one in IPv6.
_FIRST = {'ip': 'ip frag-off & 0x3fff 0x2000',
          'ip6': 'ip6 nexthdr 44 @nh,336,16 & 0xfff9 1'}
_LATER = {'ip': 'ip frag-off & 0x1fff != 0',
          'ip6': 'ip6 nexthdr 44 @nh,336,16 & 0xfff8 != 0'}
_FRAGMENT_RULES: dict[str, tuple[RuleName, ...]] = {
    'port4': ('later4', 'first4'), 'port6': ('later6', 'first6')}


def _replace_rules(chain: str, rules: Mapping[str, str]) -> str:
    """Return the commands that replace the rules of a chain.

    :param rules: rules by name, which a comment keeps for a later reading.
    """
    return ''.join((f'flush chain {TABLE} {chain}\n', *(
        f'add rule {TABLE} {chain} {rule} comment "{name}"\n'
        for name, rule in rules.items())))


def _without_data4() -> str:
    """Return the condition that matches TCP packets without data over IPv4.

    nftables cannot add lengths, so every combination of both header lengths
    is listed. TCP's header length shares its byte with a flag.
    """
    lengths = ', '.join(
        f'{0x40 | words:#x} . {4 * (words + tcp)} . {tcp << 4 | flag:#x}'
        for words in range(5, 16) for tcp in range(5, 16) for flag in (0, 1))
    # In a later fragment data would stand in the header's place.
    return ('ip protocol tcp ip frag-off & 0x1fff 0 '
            f'@nh,0,8 . ip length . @th,96,8 {{ {lengths} }}')


def _without_data6() -> str:
    """Return the condition for IPv6 packets without extension headers."""
    lengths = ', '.join(f'{4 * tcp} . {tcp << 4 | flag:#x}'
                        for tcp in range(5, 16) for flag in (0, 1))
    return f'ip6 nexthdr tcp ip6 length . @th,96,8 {{ {lengths} }}'


def kind_of(entry: base.Entry) -> RuleName:
    """Return the kind of an entry: its IP version, and whether it has a port.
    """
    return KINDS[entry.is_ipv6, bool(entry.dst_port)]


def _elements(entry: base.Entry) -> Iterator[str]:
    """Yield an entry as keys of map elements: with a port, one per protocol.
    """
    key = f'{entry.ifindex} . {entry.src_ip} . {entry.dst_ip}'
    if not entry.dst_port:
        yield key
    else:
        for name in _PROTOCOLS:
            yield f'{key} . {name} . {entry.dst_port}'


INGRESS = Hook('ingress', 'iif')
EGRESS = Hook('egress', 'oif')
HOOKS = {'ingress': INGRESS, 'egress': EGRESS}


def classid(minor: int) -> str:
    """Return the classid of a minor, both parts in hexadecimal."""
    return f'{wire.ROOT_MAJOR:x}:{minor:x}'


def minor(text: str) -> int:
    """Parse the minor of a classid, the inverse of :func:`classid`."""
    return int(text.partition(':')[2], 16)


def _map_key(key: base.MapKey) -> str:
    return f'{key.number} . {key.mac}' if key.mac else str(key.number)


def map_commands(hook: Hook, kind: str, stale: Iterable[base.MapKey],
                 fresh: Iterable[tuple[base.MapKey, int]]) -> str:
    """Return the commands that delete and add elements of a small map."""
    return _element_commands(
        hook, ((kind, _map_key(key)) for key in stale),
        ((kind, _map_key(key), minor) for key, minor in fresh))


def entry_commands(hook: Hook, stale: Iterable[base.Entry],
                   fresh: Iterable[tuple[base.Entry, int]]) -> str:
    """Return the commands that delete and add entries of flows."""
    return _element_commands(
        hook, ((kind_of(entry), key) for entry in stale
               for key in _elements(entry)),
        ((kind_of(entry), key, minor) for entry, minor in fresh
         for key in _elements(entry)))


def _element_commands(hook: Hook, stale: Iterable[tuple[str, str]],
                      fresh: Iterable[tuple[str, str, int]]) -> str:
    """Return the commands that delete and add elements: (kind of the map, key)
    and, of fresh ones, the minor of their class.
    """
    commands: dict[tuple[str, str], list[str]] = {}
    for kind, key in stale:
        commands.setdefault(('delete', kind), []).append(key)
    for kind, key, minor in fresh:
        commands.setdefault(('add', kind), []).append(
            f'{key} : {classid(minor)}')
    return ''.join(f'{verb} element {TABLE} {hook.map_name(kind)} '
                   f'{{ {", ".join(elements)} }}\n'
                   for (verb, kind), elements in commands.items())


def peers_names(ifindex: int) -> tuple[str, ...]:
    """Return the names of a port's counting sets, in the order of PEERS."""
    return tuple(f'{name}_{ifindex}' for name in PEERS)


def delete_table(hook: Hook) -> str:
    """Return the command that deletes the table, of whichever hook."""
    return f'delete table {TABLE}\n'


def _delete(ifindex: int, chains: Iterable[str], sets: Iterable[str]) -> str:
    """Return the commands that delete chains, if they are there, and sets.

    The kernel deletes the chains of a device that goes, not its sets.
    """
    return ''.join((
        *(f'{verb} chain {TABLE} {chain}_{ifindex}\n'
          for chain in chains for verb in ('add', 'delete')),
        *(f'delete set {TABLE} {name}_{ifindex}\n' for name in sets)))


def delete_port_chain(hook: Hook, ifindex: int) -> str:
    """Return the commands that delete the chains and sets of a port."""
    return (_delete(ifindex, (PORT_CHAIN, TOWARDS_CHAIN), PORT_SETS)
            if hook.is_at_ports else _delete(ifindex, (PORT_CHAIN,), ()))


def port_chain(hook: Hook, dev: str, ifindex: int, minor: int) -> str:
    """Return the commands that classify the packets of a port.

    :param minor: minor of its own class; a comment keeps it for a later
        reading, with the name: the kernel may let a device go that is renamed.
    """
    own, name = classid(minor), f'{PORT_CHAIN}_{ifindex}'
    if not hook.is_at_ports:
        return _hooked(name, hook.name, dev,
                       f'goto classify comment "{own} {dev}"')
    kinds = list(zip(peers_names(ifindex), PEERS.values()))
    near, owed = f'{NEAR}_{ifindex}', f'{OWED}_{ifindex}'
    data = f'meta l4proto tcp meta length > {_CONTROL_BYTES}'
    return ''.join((
        _near_set(near, _MOST_NEAR, _NEAR_S),
        _near_set(owed, _MOST_OWED, _OWED_S),
        *(f'add set {TABLE} {name} {{ type {kind}; size {MOST_PEERS}; timeout '
          f'{_PEERS_S}s; flags dynamic,timeout; counter; }}\n'
          for name, (kind, _) in kinds),
        _hooked(f'{TOWARDS_CHAIN}_{ifindex}', 'egress', dev,
                # Packets of VMs here are in a class, and answers to them leave
                # by no uplink.
                f'meta priority & 0xffff0000 == {wire.ROOT_HANDLE:#x} accept',
                f'update @{near} {{ ether saddr }}',
                f'{data} ether saddr @{owed} update @{owed} {{ ether saddr }} '
                f'update @{hook.map_name(RECEIVED)} {{ oif }} accept',
                f'{data} ether saddr != @{owed} {_OWING_LIMIT} '
                f'add @{owed} {{ ether saddr }}'),
        _hooked(name, hook.name, dev,
                'jump classify',
                # A packet must not keep a priority that it brought.
                f'meta priority set {own} comment "{own} {dev}"',
                *(f'update @{peers} {{ {ip} daddr }}'
                  for peers, (_, ip) in kinds),
                f'{_IS_SMALL_TCP} ether daddr @{owed} jump owed',
                'jump unmanaged', f'ether daddr != @{near} goto {STRANGERS}',
                'goto further')))


def uplink_chain(hook: Hook, dev: str, ifindex: int, learns: bool) -> str:
    """Return the commands that tell the host's packets at an uplink from those
    that came by unknown ports, which are limited by destination.

    Packets in a class, also in one of another program, stay there.

    :param learns: see :class:`edge_module.classify.classified.Exit`.
    """
    near = f'{NEARBY}_{ifindex}'
    return ''.join((
        _near_set(near, _MOST_NEARBY, _NEAR_S) + _hooked(
            f'{FROM_CHAIN}_{ifindex}', 'ingress', dev,
            f'update @{near} {{ ether saddr }}') if learns else '',
        _hooked(
            f'{UPLINK_CHAIN}_{ifindex}', 'egress', dev,
            'meta priority & 0xffff0000 != 0 accept',
            f'meta priority set oif . ether saddr map @{hook.map_name("home")}'
            ' accept', f'{_BFD} accept',
            f'meta priority set {classid(minors.UNKNOWN)}',
            *((f'ether daddr @{near} goto unknown',
               f'{_IS_UNICAST} {_IS_DVR} goto unknown') if learns else
              (f'{_IS_UNICAST} goto unknown',)),
            hook.to_others('oif'))))


def delete_uplink_chain(hook: Hook, ifindex: int, learns: bool) -> str:
    """Return the commands that delete the chains of an uplink, and its set."""
    return (_delete(ifindex, (UPLINK_CHAIN, FROM_CHAIN), (NEARBY,)) if learns
            else _delete(ifindex, (UPLINK_CHAIN,), ()))


def _near_set(name: str, most: int, kept_s: int) -> str:
    """Return the command that adds a set of Ethernet addresses seen lately."""
    return (f'add set {TABLE} {name} {{ type ether_addr; size {most}; timeout '
            f'{kept_s}s; flags dynamic,timeout; }}\n')


def _hooked(chain: str, hook: str, dev: str, *rules: str) -> str:
    """Return the commands that add a chain at a device, with its rules."""
    return ''.join((
        f'add chain {TABLE} {chain} {{ type filter hook {hook} device "{dev}" '
        'priority 0; }\n',
        *(f'add rule {TABLE} {chain} {rule}\n' for rule in rules)))
