# SPDX-License-Identifier: Apache-2.0

"""The project's own document: planes, levels, nodes, rates. Pure.

As YAML for people, as JSON on the wire and in the database::

    planes:
    - name: front-end
      levels:
      - {name: rack, oversubscription: 4}
      - {name: pod, uplink: 400Gbit}
      nodes:
      - name: pod1
        nodes:
        - {name: rack1, hosts: "compute[01-16]", uplink: 100Gbit}
        - {name: rack2, hosts: [compute17, compute18]}

``uplink`` is a rate, or ``{up: RATE, down: RATE}``.
"""

import contextlib
import math
from typing import Any

from virtco import units
from virtco.topology import hostlist
from virtco.topology import laws
from virtco.topology import tree
from virtco.topology.formats import document
from virtco.topology.formats import switch_lists as switches

NODE_KEYS = ('name', 'hosts', 'nodes', 'uplink', 'oversubscription')
LEVEL_KEYS = ('name', 'uplink', 'oversubscription')
PLANE_KEYS = ('name', 'levels', 'nodes')
#: Units in which a rate is written, where that loses nothing.
_UNITS = (('Tbit', 1e12), ('Gbit', 1e9), ('Mbit', 1e6))


def load(value: Any) -> tree.Topology:
    """Build a topology from the values of its document.

    :raises virtco.exception.TopologyInvalid: with the path of the value.
    """
    found = document.mapping(value, (), 'document', ('planes',))
    planes = document.sequence(found.get('planes'), ('planes',), 'planes')
    if len(planes) > laws.MAX_PLANES:
        raise laws.Wrong(('planes',), 'planes', len(planes),
                         f'at most {laws.MAX_PLANES} planes')
    result: list[tree.Plane] = []
    for i, item in enumerate(planes):
        plane = load_plane(item, ('planes', i))
        if any(plane.name == other.name for other in result):
            raise laws.Wrong(('planes', i), 'plane', plane.name,
                             'a name that no other plane has')
        result.append(plane)
    return tree.Topology(tuple(result))


def load_plane(value: Any, path: document.Path = ()) -> tree.Plane:
    """Build a plane from the values of its document.

    :raises virtco.exception.TopologyInvalid: with the path of the value.
    """
    found = document.mapping(value, path, 'plane', PLANE_KEYS)
    name = laws.name(found.get('name'), (*path, 'name'), 'plane')
    census = laws.Census(name)
    levels = document.sequence(found.get('levels'), (*path, 'levels'),
                               f'plane {name}: levels')
    nodes = document.sequence(found.get('nodes'), (*path, 'nodes'),
                              f'plane {name}: nodes')
    plane = tree.Plane(
        name,
        tuple(_level(item, (*path, 'levels', i), name)
              for i, item in enumerate(levels)),
        tuple(_node(item, (*path, 'nodes', i), 0, census)
              for i, item in enumerate(nodes)))
    laws.check_levels(plane, (*path, 'levels'))
    return plane


def _level(value: Any, path: document.Path, plane: str) -> tree.Level:
    found = document.mapping(value, path, f'plane {plane}: level', LEVEL_KEYS)
    name = laws.name(found.get('name'), (*path, 'name'),
                     f'plane {plane}: level')
    return tree.Level(name, uplink(found, path,
                                   f'plane {plane}, level {name}'))


def _node(value: Any, path: document.Path, depth: int,
          census: laws.Census) -> tree.Node:
    found = document.mapping(value, path, 'node', NODE_KEYS)
    name = laws.name(found.get('name'), (*path, 'name'), 'node')
    where = f'node {name}'
    census.node(name, depth, path)
    hosts = _hosts(found.get('hosts'), (*path, 'hosts'), where)
    census.hosts(hosts, name, (*path, 'hosts'))
    children = document.sequence(found.get('nodes'), (*path, 'nodes'),
                                 f'{where}: nodes')
    return tree.Node(
        name, hosts,
        tuple(_node(item, (*path, 'nodes', i), depth + 1, census)
              for i, item in enumerate(children)),
        uplink(found, path, where))


def _hosts(value: Any, path: document.Path, where: str) -> tuple[str, ...]:
    """Read a host list, or a list of names and host lists."""
    if value is None:
        return ()
    hosts: list[str] = []
    for at, text in ([((*path, i), text) for i, text in enumerate(value)]
                     if isinstance(value, list) else [(path, value)]):
        hosts += switches.expanded(text, at, f'{where}: hosts',
                                   laws.MAX_HOSTS - len(hosts))
    return tuple(hosts)


def uplink(found: dict[str, Any], path: document.Path,
           where: str) -> tree.Uplink:
    """Read the uplink of a level or of a node.

    :param found: object with ``uplink`` or ``oversubscription``, or neither.
    :raises virtco.exception.TopologyInvalid:
    """
    value = found.get('uplink')
    at = (*path, 'uplink')
    up = down = None
    if isinstance(value, dict):
        document.mapping(value, at, f'{where}: uplink', ('up', 'down'))
        up = _rate(value.get('up'), (*at, 'up'), f'{where}: uplink up')
        down = _rate(value.get('down'), (*at, 'down'),
                     f'{where}: uplink down')
    else:
        up = down = _rate(value, at, f'{where}: uplink')
    return tree.Uplink(up, down, _number(
        found.get('oversubscription'), (*path, 'oversubscription'),
        f'{where}: oversubscription', laws.MAX_OVERSUBSCRIPTION))


def _rate(value: Any, path: document.Path, field: str) -> float | None:
    if isinstance(value, str):
        try:
            value = units.parse_rate_bps(value[:40])
        except units.NotAnAmount as error:
            raise laws.Wrong(path, field, value, error.limit) from None
    return _number(value, path, field, laws.MAX_RATE_BPS)


def _number(value: Any, path: document.Path, field: str,
            most: float) -> float | None:
    if value is None:
        return None
    limit = f'a number above 0 and at most {most:g}'
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = float(value[:40].removesuffix(':1'))
    if (isinstance(value, bool) or not isinstance(value, (int, float))
            or not (math.isfinite(value) and 0 < value <= most)):
        raise laws.Wrong(path, field, value, limit)
    return float(value)


def dump(topology: tree.Topology) -> dict[str, Any]:
    return {'planes': [dump_plane(plane) for plane in topology.planes]}


def dump_plane(plane: tree.Plane) -> dict[str, Any]:
    """Return a plane as lists and mappings, as in a file."""
    return {'name': plane.name,
            'levels': [{'name': level.name, **_dump_uplink(level.uplink)}
                       for level in plane.levels],
            'nodes': [_dump_node(node) for node in plane.roots]}


def _dump_node(node: tree.Node) -> dict[str, Any]:
    found: dict[str, Any] = {'name': node.name, **_dump_uplink(node.uplink)}
    if node.hosts:
        found['hosts'] = hostlist.compress(node.hosts)
    if node.children:
        found['nodes'] = [_dump_node(child) for child in node.children]
    return found


def _dump_uplink(uplink: tree.Uplink) -> dict[str, Any]:
    found: dict[str, Any] = {}
    rates = {'up': uplink.up_bps, 'down': uplink.down_bps}
    if rates['up'] is not None and rates['up'] == rates['down']:
        found['uplink'] = written_rate(rates['up'])
    elif given := {way: written_rate(rate) for way, rate in rates.items()
                   if rate is not None}:
        found['uplink'] = given
    if uplink.oversubscription is not None:
        found['oversubscription'] = uplink.oversubscription
    return found


def written_rate(rate_bps: float) -> str | float:
    """Format a rate as text that reads as exactly this rate."""
    for unit, size in _UNITS:
        if rate_bps >= size and rate_bps % size == 0:
            return f'{rate_bps / size:.0f}{unit}'
    return rate_bps
