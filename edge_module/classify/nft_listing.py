# SPDX-License-Identifier: Apache-2.0

"""Parsing of nft's JSON listings of virtco's table and of its sets."""

import collections
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


def standing(hook: nft_text.Hook, objects: Objects) -> base.Standing:
    """Return the table of a listing; an empty one unless it is whole."""
    maps, sets, chains = (_named(objects, kind)
                          for kind in ('map', 'set', 'chain'))
    rules: dict[str, list[str]] = {}
    for rule in (item['rule'] for item in objects if 'rule' in item):
        rules.setdefault(rule['chain'], []).append(rule.get('comment', ''))
    at, of = _numbers(chains), _numbers(sets)
    towards = at[nft_text.TOWARDS_CHAIN]
    attached = at[nft_text.PORT_CHAIN]
    ports = attached.union(towards, *(of[kind] for kind in nft_text.PORT_SETS))
    if hook.is_at_ports:
        attached = attached & towards
    uplinks = at[nft_text.UPLINK_CHAIN]
    unmanaged = {chain: tuple(rules.get(chain, ()))
                 for chain in nft_text.UNMANAGED[False] if chain in chains}
    if not (maps.keys() == hook.maps().keys()
            and {name for name in sets if name.startswith(hook.name)} == {
                hook.map_name(name) for name in nft_text.SETS}
            and all(of[kind] == (ports if hook.is_at_ports else set())
                    for kind in nft_text.PORT_SETS)
            and unmanaged in nft_text.UNMANAGED.values()
            # Chains of an earlier version hold on to the sets of their ports.
            and all(name.partition('_')[2].isdecimal()
                    for name in chains if '_' in name)
            and all(rules.get(chain) == [*names]
                    for chain, names in hook.fixed().items())):
        return base.Standing()
    return base.Standing(
        frozenset((devices.name(ifindex) if ifindex in attached else '',
                   ifindex) for ifindex in ports),
        {entry: minor for entry, minor, _ in _entries(hook, maps)},
        _small_maps(hook, maps), frozenset(
            base.Exit(devices.name(ifindex) if ifindex in uplinks else '',
                      ifindex, ifindex in at[nft_text.FROM_CHAIN]
                      or ifindex not in uplinks)
            for ifindex in uplinks | of[nft_text.NEARBY]),
        {ifindex: nft_text.minor(own) for ifindex in ports
         for own, _, dev in (comment.partition(' ') for comment in rules.get(
             f'{nft_text.PORT_CHAIN}_{ifindex}', ()))
         if dev and dev == devices.name(ifindex)},
        tuple(rules.get('classify', ())),
        unmanaged == nft_text.UNMANAGED[True], True)


def _numbers(names: Iterable[str]) -> dict[str, set[int]]:
    """Return the numbers of devices by the first part of names."""
    found: dict[str, set[int]] = collections.defaultdict(set)
    for kind, _, number in (name.partition('_') for name in names):
        if number.isdecimal():
            found[kind].add(int(number))
    return found


def counted(hook: nft_text.Hook, objects: Objects
            ) -> Iterator[tuple[base.Entry, model.Counts]]:
    """Yield the counter of each element of the listed maps of flows."""
    for entry, _, seen in _entries(hook, _named(objects, 'map')):
        yield entry, model.Counts(seen.get('bytes', 0),
                                  seen.get('packets', 0))


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
