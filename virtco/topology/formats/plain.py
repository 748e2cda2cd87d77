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

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
from typing import Annotated
from typing import Any

import msgspec

from virtco import decoding
from virtco import units
from virtco.topology import hostlist
from virtco.topology import laws
from virtco.topology import tree
from virtco.topology.formats import document
from virtco.topology.formats import switch_lists as switches
from virtco.wire import topology as wire

#: Units in which a rate is written, where that loses nothing.
_UNITS = (('Tbit', 1e12), ('Gbit', 1e9), ('Mbit', 1e6))


class _Planes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole document."""

    planes: Annotated[list[wire.Plane], msgspec.Meta(
        max_length=laws.MAX_PLANES)] = []


_PLANES: decoding.Decoder[_Planes] = decoding.Decoder(_Planes, 'document')


def read(value: Any) -> tree.Topology:
    """Build a topology from the values of its document.

    :raises virtco.exception.TopologyInvalid: with the path of the value.
    """
    return load(document.typed(document.given(value), _PLANES).planes)


def load(planes: Sequence[wire.Plane]) -> tree.Topology:
    """Build a topology from its planes.

    :raises virtco.exception.TopologyInvalid: with the path of the value.
    """
    result: list[tree.Plane] = []
    for i, item in enumerate(planes):
        plane = load_plane(item, ('planes', i))
        if any(plane.name == other.name for other in result):
            raise laws.Wrong(('planes', i), 'plane', plane.name,
                             'a name that no other plane has')
        result.append(plane)
    return tree.Topology(tuple(result))


def load_plane(found: wire.Plane, path: document.Path = ()) -> tree.Plane:
    """Build a plane.

    :raises virtco.exception.TopologyInvalid: with the path of the value.
    """
    name = laws.name(found.name, (*path, 'name'), 'plane')
    plane = tree.Plane(
        name,
        tuple(_level(item, (*path, 'levels', i), name)
              for i, item in enumerate(found.levels)),
        switches.grown(name, _switches(found, path)))
    laws.check_levels(plane, (*path, 'levels'))
    return plane


def _level(found: wire.Level, path: document.Path, plane: str) -> tree.Level:
    name = laws.name(found.name, (*path, 'name'), f'plane {plane}: level')
    return tree.Level(name, uplink(found, path,
                                   f'plane {plane}, level {name}'))


def _switches(above: wire.Plane | wire.Node, path: document.Path
              ) -> Iterator[switches.Switch]:
    """Yield all switches below a plane or node, parents before children."""
    for i, found in enumerate(above.nodes or ()):
        at = (*path, 'nodes', i)
        name = laws.name(found.name, (*at, 'name'), 'node')
        yield switches.Switch(
            name, _hosts(found.hosts, (*at, 'hosts'), f'node {name}'),
            tuple(child.name for child in found.nodes or ()), at,
            uplink(found, at, f'node {name}'))
        yield from _switches(found, at)


def _hosts(value: str | list[str] | None, path: document.Path, where: str
           ) -> tuple[str, ...]:
    """Read a host list, or a list of names and host lists."""
    hosts: list[str] = []
    for at, text in ([((*path, i), text) for i, text in enumerate(value)]
                     if isinstance(value, list) else [(path, value)]):
        hosts += switches.expanded(text, at, f'{where}: hosts',
                                   laws.MAX_HOSTS - len(hosts))
    return tuple(hosts)


def uplink(found: wire.Level | wire.Node, path: document.Path,
           where: str) -> tree.Uplink:
    """Read the uplink of a level or of a node.

    :raises virtco.exception.TopologyInvalid:
    """
    value, at = found.uplink, (*path, 'uplink')
    if isinstance(value, wire.Ways):
        up = _rate(value.up, (*at, 'up'), f'{where}: uplink up')
        down = _rate(value.down, (*at, 'down'), f'{where}: uplink down')
    else:
        up = down = _rate(value, at, f'{where}: uplink')
    return tree.Uplink(up, down, _number(
        found.oversubscription, (*path, 'oversubscription'),
        f'{where}: oversubscription', laws.MAX_OVERSUBSCRIPTION))


def _rate(value: wire.Rate | None, path: document.Path, field: str
          ) -> float | None:
    if isinstance(value, str):
        try:
            value = units.parse_rate_bps(value[:40])
        except units.NotAnAmount as error:
            raise laws.Wrong(path, field, value, error.limit) from None
    return _number(value, path, field, laws.MAX_RATE_BPS)


def _number(value: wire.Ratio | None, path: document.Path, field: str,
            most: float) -> float | None:
    if value is None:
        return None
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = float(value[:40].removesuffix(':1'))
    if isinstance(value, str) or not 0 < value <= most:
        raise laws.Wrong(path, field, value,
                         f'a number above 0 and at most {most:g}')
    return float(value)


def dump(topology: tree.Topology) -> list[wire.Plane]:
    """Write the planes of a topology, as in a file."""
    return [dump_plane(plane) for plane in topology.planes]


def dump_plane(plane: tree.Plane) -> wire.Plane:
    """Write a plane, as in a file."""
    return wire.Plane(
        plane.name, [wire.Level(level.name, *_dump_uplink(level.uplink))
                     for level in plane.levels],
        [_dump_node(node) for node in plane.roots])


def _dump_node(node: tree.Node) -> wire.Node:
    return wire.Node(
        node.name, *_dump_uplink(node.uplink),
        hostlist.compress(node.hosts) or None,
        [_dump_node(child) for child in node.children] or None)


def _dump_uplink(uplink: tree.Uplink
                 ) -> tuple[wire.Rate | wire.Ways | None, float | None]:
    """Write the rate and the oversubscription of an uplink."""
    up, down = (None if rate_bps is None else written_rate(rate_bps)
                for rate_bps in (uplink.up_bps, uplink.down_bps))
    return up if up == down else wire.Ways(up, down), uplink.oversubscription


def written_rate(rate_bps: float) -> str | float:
    """Format a rate as text that reads as exactly this rate."""
    for unit, size in _UNITS:
        if rate_bps >= size and rate_bps % size == 0:
            return f'{rate_bps / size:.0f}{unit}'
    return rate_bps
