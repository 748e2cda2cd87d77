# SPDX-License-Identifier: Apache-2.0

"""Parsing of nft's JSON listings of virtco's table and of its sets."""

from collections.abc import Mapping
import dataclasses
import json
import socket
from typing import Any

from edge_module.classify import classified as base
from edge_module.classify import nft_text
from edge_module.tcplan import model


def elements(listing: str) -> frozenset[tuple[str, str]]:
    """Return (device, Ethernet address) of each element of a listed set."""
    pairs = (item['elem']['val']['concat']
             for shown in json.loads(listing)['nftables']
             for item in shown.get('set', {}).get('elem', ()))
    return frozenset((str(dev), mac) for dev, mac in pairs)


def counted_sets(listing: str) -> dict[str, dict[str, model.Counts]]:
    """Return counters by element, by name of the set that was listed."""
    return {shown['set']['name']: {
        item['elem']['val']: model.Counts(
            item['elem']['counter']['bytes'],
            item['elem']['counter']['packets'])
        for item in shown['set'].get('elem', ())
        if 'counter' in item['elem']}
        for shown in json.loads(listing)['nftables'] if 'set' in shown}


#: Types of fields that a key is said to be made of; the others are integers.
_TYPES = {'iif': 'iface_index', 'oif': 'iface_index', 'saddr': 'ipv4_addr',
          'daddr': 'ipv4_addr'}


def _types(shown: str | list[str] | dict[str, Any]) -> tuple[str, ...]:
    """Return the types of a map's key.

    Of a map declared by ``typeof`` nftables shows the types up to 1.0.6, and
    the fields in 1.1.3.
    """
    if isinstance(shown, dict):
        fields = (next(iter(field.values()))
                  for field in shown['typeof'].get('concat', ()))
        return tuple(_TYPES.get(field.get('key', field.get('field')),
                                'integer') for field in fields)
    return (shown,) if isinstance(shown, str) else tuple(shown)


@dataclasses.dataclass(frozen=True, slots=True)
class Standing(base.Table):
    """Contents of virtco's nftables table, as read or as last written.

    :ivar own: minor of the own class of each attached port, where it is known.
    :ivar rules: names of the rules of the chain ``classify``.
    :ivar follows: whether destinations of unmanaged packets are followed.
    :ivar strays: names of sets that belong to no attached port.
    :ivar is_whole: whether all maps and fixed rules are as they should be;
        otherwise the table is made anew.
    """

    own: Mapping[tuple[str, int], int] = dataclasses.field(
        default_factory=dict)
    rules: tuple[str, ...] = ()
    follows: bool = False
    strays: tuple[str, ...] = ()
    is_whole: bool = False


class Reader:
    """Parser of the JSON listing of virtco's table, or of maps of it.

    :ivar counted: counters of each flow entry.
    """

    def __init__(self, hook: nft_text.Hook, objects: list[dict[str, Any]]):
        self._hook = hook
        self._hooks: set[tuple[str, int]] = set()
        self._own: dict[tuple[str, int], int] = {}
        # As the hooks, of each chain of packets to a port.
        self._towards: set[tuple[str, int]] = set()
        self._entries: dict[base.Entry, int] = {}
        self.counted: dict[base.Entry, model.Counts] = {}
        # Key types by name of the map.
        self._types: dict[str, tuple[str, ...]] = {}
        self._sets: list[str] = []
        self._maps: dict[base.SmallMap, dict[base.MapKey, int]] = {}
        self._unmanaged: list[str] = []
        self._rules: list[str] = []
        self._fixed_rules: dict[str, list[str]] = {}
        self._ifindexes = {name: ifindex
                           for ifindex, name in socket.if_nameindex()}
        self._seen: set[tuple[Any, ...]] = set()
        for item in objects:
            if 'map' in item:
                self._types[item['map']['name']] = _types(item['map']['type'])
        for item in objects:
            if 'map' in item and self._types.items() <= hook.maps().items():
                kind = item['map']['name'].removeprefix(hook.map_name(''))
                if kind in nft_text.FRAGMENTS:
                    continue
                for element, value in item['map'].get('elem', ()):
                    if kind in ('control', 'to', 'others'):
                        self._read_value(kind, element, value)
                    else:
                        self._read_element(element, value)
            elif 'set' in item:
                self._sets.append(item['set']['name'])
            elif 'chain' in item:
                name = item['chain']['name']
                for prefix, found in ((nft_text.PORT_CHAIN, self._hooks),
                                      (nft_text.TOWARDS_CHAIN, self._towards)):
                    if name.startswith(prefix):
                        found.add(_port(name, prefix))
            elif 'rule' in item:
                name = item['rule']['chain']
                comment = item['rule'].get('comment', '')
                if name == 'classify':
                    self._rules.append(comment)
                elif name == 'unmanaged':
                    self._unmanaged.append(comment)
                elif name.startswith(nft_text.PORT_CHAIN) and comment:
                    self._own[_port(name, nft_text.PORT_CHAIN)] = (
                        nft_text.minor(comment))
                elif name in nft_text.FIXED:
                    self._fixed_rules.setdefault(name, []).append(comment)

    def standing(self) -> Standing:
        """Return the table; an empty one unless it is whole."""
        hook = self._hook
        is_whole = (
            self._types == hook.maps()
            and {name for name in self._sets if not _is_of_port(name)}
            == {hook.seen}
            and self._own_sets() <= {*self._sets}
            and tuple(self._unmanaged) in nft_text.UNMANAGED.values()
            and (self._towards == self._hooks or not hook.is_at_ports)
            and self._fixed_rules == {name: [name]
                                      for name in nft_text.FIXED})
        return Standing(
            frozenset(self._hooks), self._entries, self._maps, self._own,
            tuple(self._rules), 'to' in self._unmanaged, self._stray_sets(),
            True) if is_whole else Standing()

    def _own_sets(self) -> set[str]:
        """Return the names of the sets of attached ports."""
        return {name for _, ifindex in self._hooks if self._hook.is_at_ports
                for name in nft_text.set_names(ifindex)}

    def _stray_sets(self) -> tuple[str, ...]:
        """Return the names of sets whose port has no chain any more.

        The kernel deletes the chains of a device that goes, not the sets.
        """
        return tuple(sorted({name for name in self._sets if _is_of_port(name)}
                            - self._own_sets()))

    def _ifindex(self, dev: str) -> int:
        """Return the ifindex of a device, -1 for an unknown name.

        A device that is gone is listed by its ifindex instead of its name.
        """
        return self._ifindexes.get(dev) or int(
            dev if dev.isdecimal() else -1)

    def _read_value(self, kind: base.SmallMap, element: Any, value: str
                    ) -> None:
        if kind == 'to':
            dev, mac = element['concat']
            key = base.MapKey(self._ifindex(dev), mac)
        else:
            key = base.MapKey(self._ifindex(element))
        self._maps.setdefault(kind, {})[key] = nft_text.minor(value)

    def _read_element(self, element: Any, value: str) -> None:
        """Take the minor and the counter of one map element."""
        inner = element.get('elem', element)
        parts = (inner.get('val', inner))['concat']
        if tuple(parts) in self._seen:  # the hash table grew meanwhile
            return
        self._seen.add(tuple(parts))
        dev, source, target, *port = parts
        # nft writes an IPv6 address as it likes best; compare in one form.
        entry = base.Entry(self._ifindex(dev), base.address(source),
                           base.address(target), port[1] if port else 0)
        self._entries[entry] = nft_text.minor(value)
        counter = inner.get('counter', {'bytes': 0, 'packets': 0})
        before = self.counted.get(entry, model.Counts())
        self.counted[entry] = model.Counts(
            before.sent_bytes + counter['bytes'],
            before.sent_packets + counter['packets'])


def _port(chain: str, prefix: str) -> tuple[str, int]:
    """Return the (device, ifindex) that a chain's name has."""
    ifindex, _, dev = chain.removeprefix(prefix).partition('_')
    return dev, int(ifindex)


def _is_of_port(name: str) -> bool:
    return name.partition('_')[0] in (
        *nft_text.PEERS, nft_text.NEAR, nft_text.OWED)
