# SPDX-License-Identifier: Apache-2.0

"""Topology from Nova's aggregates and zones, and placement's traits. Pure.

An aggregate's metadata ``virtco:rack=r1`` puts its hosts below the rack r1,
likewise for every level that is asked for; ``virtco:rack_uplink=100Gbit``
tells the rack's uplink. A provider trait ``CUSTOM_RACK_R1`` does the same for
one host. The availability zone stands for the level ``zone``.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

from virtco.topology import laws
from virtco.topology import tree
from virtco.topology.formats import plain
from virtco.topology.formats import result
from virtco.topology.formats import switch_lists as switches
from virtco.wire import topology as wire

PREFIX = 'virtco:'
UPLINK = '_uplink'
ZONE = 'zone'
#: Availability zone that Nova gives hosts in no zone of their own.
DEFAULT_ZONE = 'nova'


@dataclasses.dataclass(frozen=True, slots=True)
class Aggregate:
    """Host aggregate of Nova, with its metadata and availability zone."""

    name: str
    hosts: tuple[str, ...]
    metadata: Mapping[str, str]
    zone: str | None = None


def trait_prefix(level: str) -> str:
    """Return the prefix of traits that name a node of this level."""
    return 'CUSTOM_' + ''.join(
        c if c.isascii() and c.isalnum() else '_'
        for c in level.upper()) + '_'


def read(aggregates: Iterable[Aggregate],
         traits: Mapping[str, Iterable[str]], levels: tuple[str, ...],
         plane: str = tree.FRONT_END) -> result.Read:
    """Build a plane from Nova's aggregates and the traits of hosts.

    :param traits: host -> traits of its provider.
    :param levels: levels from the hosts upwards.
    :raises virtco.exception.TopologyInvalid: naming aggregate and host.
    """
    aggregates = list(aggregates)
    # Nodes by host and level, each with its source for errors.
    node_of: dict[str, dict[str, tuple[str, str]]] = {}
    for host, level, node, who in _said(aggregates, traits, levels):
        laws.name(host, (), f'{who}: host')
        laws.name(node, (), f'{who}: {level}')
        before, said = node_of.setdefault(host, {}).setdefault(
            level, (node, who))
        if before != node:
            raise laws.Wrong(
                (), f'{who}: host {host}: {level}', node,
                f'one {level} per host ({said} says {before})')
    chains: list[switches.Chain] = []
    for host, nodes in sorted(node_of.items()):
        layers = [nodes[level][0] for level in levels if level in nodes]
        if len(set(layers)) < len(layers):
            raise laws.Wrong((), f'host {host}', ', '.join(layers),
                             'a name of its own for each level')
        chains.append((host, layers, ()))
    if not chains:
        return result.Read(tree.Topology(), (
            f'no aggregate and no trait names any of {", ".join(levels)}',))
    return result.Read(tree.Topology((switches.plane_above(
        plane, chains, tuple(map(tree.Level, levels)),
        _uplinks(aggregates, levels)),)))


def _said(aggregates: Iterable[Aggregate],
          traits: Mapping[str, Iterable[str]], levels: Sequence[str]
          ) -> Iterator[tuple[str, str, str, str]]:
    """Yield a host, a level and the host's node on it, with the source."""
    for aggregate in aggregates:
        for level in levels:
            if node := _node(aggregate, level):
                for host in aggregate.hosts:
                    yield host, level, node, f'aggregate {aggregate.name}'
    for host, names in traits.items():
        for level in levels:
            prefix = trait_prefix(level)
            for name in names:
                if name.startswith(prefix) and name != prefix:
                    yield host, level, name[len(prefix):], f'trait {name}'


def _node(aggregate: Aggregate, level: str) -> str | None:
    """Return the node of an aggregate's hosts on a level; empty for none."""
    node = aggregate.metadata.get(PREFIX + level)
    if not node and level == ZONE and aggregate.zone != DEFAULT_ZONE:
        return aggregate.zone
    return node


def _uplinks(aggregates: Iterable[Aggregate], levels: Sequence[str]
             ) -> dict[str, tree.Uplink]:
    """Read the uplinks of the nodes that aggregates name."""
    return {
        node: plain.uplink(wire.Level(level, text), (),
                           f'aggregate {aggregate.name}')
        for aggregate in aggregates for level in levels
        if (node := _node(aggregate, level)) and (
            text := aggregate.metadata.get(PREFIX + level + UPLINK))
        is not None}
