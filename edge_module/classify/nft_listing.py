# SPDX-License-Identifier: Apache-2.0

"""Parsing of nft's JSON listings of virtco's table and of its sets."""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import functools
from typing import Any
from typing import get_args

from edge_module.classify import classified as base
from edge_module.classify import nft_text
from edge_module.privileged import devices
from edge_module.tcplan import model

#: Objects of a listing, each by its kind, and the maps in one by name.
Objects = Iterable[Mapping[str, Any]]
_Maps = Mapping[str, Mapping[str, Any]]


def elements(objects: Objects) -> frozenset[tuple[str, str]]:
    """Return (device, Ethernet address) of each element of a listed set."""
    pairs = (item['elem']['val']['concat']
             for shown in objects
             for item in shown.get('set', {}).get('elem', ()))
    return frozenset((str(dev), mac) for dev, mac in pairs)


def counted_sets(objects: Objects) -> dict[str, dict[str, model.Counts]]:
    """Return counters by element, by name of the set that was listed."""
    return {shown['set']['name']: {
        item['elem']['val']: model.Counts(
            item['elem']['counter']['bytes'],
            item['elem']['counter']['packets'])
        for item in shown['set'].get('elem', ())
        if 'counter' in item['elem']}
        for shown in objects if 'set' in shown}


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


def standing(hook: nft_text.Hook, objects: Objects) -> base.Standing:
    """Return the table of a listing; an empty one unless it is whole."""
    maps, sets, chains = (_named(objects, kind)
                          for kind in ('map', 'set', 'chain'))
    rules: dict[str, list[str]] = {}
    for rule in (item['rule'] for item in objects if 'rule' in item):
        rules.setdefault(rule['chain'], []).append(rule.get('comment', ''))
    hooks, towards, uplinks, learning = (
        frozenset(_port(name, prefix) for name in chains
                  if name.startswith(prefix))
        for prefix in (nft_text.PORT_CHAIN, nft_text.TOWARDS_CHAIN,
                       nft_text.UPLINK_CHAIN, nft_text.FROM_CHAIN))
    of_ports = {name for name in sets if name.partition('_')[0] in (
        *nft_text.PEERS, nft_text.NEAR, nft_text.OWED)}
    of_hooks = {name for _, ifindex in hooks if hook.is_at_ports
                for name in nft_text.set_names(ifindex)} | {
        f'{nft_text.NEAR}_{ifindex}' for _, ifindex in learning}
    unmanaged = {chain: tuple(rules.get(chain, ()))
                 for chain in nft_text.UNMANAGED[False] if chain in chains}
    if not ({name: _types(item['type']) for name, item in maps.items()}
            == hook.maps()
            and sets.keys() - of_ports == {
                hook.map_name(name) for name in nft_text.SETS}
            and of_hooks <= of_ports
            and unmanaged in nft_text.UNMANAGED.values()
            and learning <= uplinks
            and (towards == hooks or not hook.is_at_ports)
            and all(rules.get(chain) == [*names]
                    for chain, names in hook.fixed().items())):
        return base.Standing()
    return base.Standing(
        hooks, {entry: minor for entry, minor, _ in _entries(hook, maps)},
        _small_maps(hook, maps), frozenset(
            base.Exit(*one, one in learning) for one in uplinks),
        {_port(name, nft_text.PORT_CHAIN): nft_text.minor(comment)
         for name, comments in rules.items()
         if name.startswith(nft_text.PORT_CHAIN)
         for comment in comments if comment},
        tuple(rules.get('classify', ())),
        unmanaged == nft_text.UNMANAGED[True],
        # The kernel deletes the chains of a device that goes, not the sets.
        tuple(sorted(of_ports - of_hooks)), True)


def counted(hook: nft_text.Hook, objects: Objects
            ) -> dict[base.Entry, model.Counts]:
    """Return the counters of the flow entries in listed maps."""
    found: dict[base.Entry, model.Counts] = {}
    for entry, _, seen in _entries(hook, _named(objects, 'map')):
        before = found.get(entry, model.Counts())
        found[entry] = model.Counts(
            before.sent_bytes + seen.get('bytes', 0),
            before.sent_packets + seen.get('packets', 0))
    return found


def _named(objects: Objects, kind: str) -> _Maps:
    return {item[kind]['name']: item[kind] for item in objects
            if kind in item}


def _ifindex(dev: str) -> int:
    """Return the index of a device, -1 for an unknown name.

    A device that is gone is listed by its ifindex instead of its name.
    """
    return devices.ifindex(dev) or int(dev if dev.isdecimal() else -1)


def _entries(hook: nft_text.Hook, maps: _Maps
             ) -> Iterator[tuple[base.Entry, int, Mapping[str, int]]]:
    """Yield entry, minor and counter of each element of the maps of flows.

    An entry with a port has an element for TCP and one for UDP. An element is
    listed twice where the hash table grew meanwhile.
    """
    seen, ifindex = set(), functools.cache(_ifindex)
    for element, value in (pair for kind in nft_text.KINDS.values()
                           for pair in _elements(hook, maps, kind)):
        inner = element.get('elem', element)
        parts = tuple(inner.get('val', inner)['concat'])
        if parts in seen:
            continue
        seen.add(parts)
        dev, source, target, *port = parts
        # nft writes an IPv6 address as it likes best; compare in one form.
        yield base.Entry(ifindex(dev), base.address(source), base.address(
            target), port[1] if port else 0), nft_text.minor(
                value), inner.get('counter', {})


def _small_maps(hook: nft_text.Hook, maps: _Maps
                ) -> dict[base.SmallMap, dict[base.MapKey, int]]:
    """Return the contents of the small maps that have any."""
    ifindex = functools.cache(_ifindex)
    found: dict[base.SmallMap, dict[base.MapKey, int]] = {}
    for kind in get_args(base.SmallMap):
        for element, value in _elements(hook, maps, kind):
            dev, *mac = (element['concat'] if kind in ('to', 'home')
                         else [element])
            found.setdefault(kind, {})[base.MapKey(
                ifindex(dev), *mac)] = nft_text.minor(value)
    return found


def _elements(hook: nft_text.Hook, maps: _Maps, kind: str) -> Any:
    return maps.get(hook.map_name(kind), {}).get('elem', ())


def _port(chain: str, prefix: str) -> tuple[str, int]:
    """Return the (device, ifindex) that a chain's name has."""
    ifindex, _, dev = chain.removeprefix(prefix).partition('_')
    return dev, int(ifindex)
