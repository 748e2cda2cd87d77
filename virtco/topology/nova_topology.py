# SPDX-License-Identifier: Apache-2.0

"""Topology from Nova's aggregates and zones, and placement's traits. Pure.

An aggregate's metadata ``virtco:rack=r1`` puts its hosts below the rack r1,
likewise for every level that is asked for; ``virtco:rack_uplink=100Gbit``
tells the rack's uplink. A provider trait ``CUSTOM_RACK_R1`` does the same for
one host. The availability zone stands for the level ``zone``.
"""

from collections.abc import Iterable
from collections.abc import Mapping
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
    found = _Facts(levels)
    for aggregate in aggregates:
        found.add_aggregate(aggregate)
    for host, names in traits.items():
        found.add_traits(host, names)
    return found.read(plane)


class _Facts:
    def __init__(self, levels: tuple[str, ...]):
        self._levels = levels
        #: Nodes by host and level, each with its source for errors.
        self._node_of: dict[str, dict[str, tuple[str, str]]] = {}
        self._uplinks: dict[str, tree.Uplink] = {}

    def _add(self, host: str, level: str, node: str, who: str) -> None:
        """Note a host's node on a level; refuse a second one."""
        levels = self._node_of.setdefault(
            laws.name(host, (), f'{who}: host'), {})
        laws.name(node, (), f'{who}: {level}')
        before, said = levels.setdefault(level, (node, who))
        if before != node:
            raise laws.Wrong(
                (), f'{who}: host {host}: {level}', node,
                f'one {level} per host ({said} says {before})')

    def add_aggregate(self, aggregate: Aggregate) -> None:
        who = f'aggregate {aggregate.name}'
        nodes = {level: aggregate.metadata.get(PREFIX + level)
                 for level in self._levels}
        if ZONE in nodes and aggregate.zone not in (None, DEFAULT_ZONE):
            nodes[ZONE] = nodes[ZONE] or aggregate.zone
        for level, node in nodes.items():
            if not node:
                continue
            for host in aggregate.hosts:
                self._add(host, level, node, who)
            text = aggregate.metadata.get(PREFIX + level + UPLINK)
            if text is not None:
                self._uplinks[node] = plain.uplink(
                    wire.Level(level, text), (), who)

    def add_traits(self, host: str, names: Iterable[str]) -> None:
        for level in self._levels:
            prefix = trait_prefix(level)
            for name in names:
                if name.startswith(prefix) and name != prefix:
                    self._add(host, level, name[len(prefix):],
                              f'trait {name}')

    def read(self, plane: str) -> result.Read:
        branches = switches.Branches(plane)
        for host, levels in sorted(self._node_of.items()):
            layers = [levels[level][0] for level in self._levels
                      if level in levels]
            if len(set(layers)) < len(layers):
                raise laws.Wrong((), f'host {host}', ', '.join(layers),
                                 'a name of its own for each level')
            branches.add(host, layers, ())
        if not branches:
            return result.Read(tree.Topology(), (
                'no aggregate and no trait names any of '
                + ', '.join(self._levels),))
        return result.Read(tree.Topology((branches.plane(
            tuple(map(tree.Level, self._levels)), self._uplinks),)))
