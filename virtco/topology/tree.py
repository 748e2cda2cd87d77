# SPDX-License-Identifier: Apache-2.0

"""The network as trees: planes of switches, their uplinks and hosts. Pure.

A plane is one network, such as the front-end, the storage or the RDMA
network. Its switches form a tree of any depth with unequal leaves. The level
of a switch is its height: 0 where it has hosts alone, else one more than the
highest switch below it. So the switch next to a host is of level 0 ("rack")
in short and in long branches alike.
"""

from collections.abc import Iterator
import dataclasses

#: Names of the lowest levels where a file tells none.
LEVEL_NAMES = ('rack', 'pod', 'zone')
#: The plane that carries the tenants' coflows, where a file tells none.
FRONT_END = 'front-end'


@dataclasses.dataclass(frozen=True, slots=True)
class Uplink:
    """Uplink of a switch to its parent, all its cables together.

    :ivar up_bps: towards the parent; None = not given.
    :ivar down_bps: rate from the parent; None = not given.
    :ivar oversubscription: ratio of the rate from below to ``up_bps``, where
        no rate is given: 4 for 4:1.
    """

    up_bps: float | None = None
    down_bps: float | None = None
    oversubscription: float | None = None

    def is_given(self) -> bool:
        """Tell whether a rate or an oversubscription is given."""
        return self != NOT_GIVEN


NOT_GIVEN = Uplink()


@dataclasses.dataclass(frozen=True, slots=True)
class Level:
    """Switches that are as far above the hosts.

    :ivar uplink: rate of the uplinks of the level's switches that tell none
        themselves.
    """

    name: str
    uplink: Uplink = NOT_GIVEN


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A switch, or several that act as one: a rack, a pod."""

    name: str
    hosts: tuple[str, ...] = ()
    children: tuple['Node', ...] = ()
    uplink: Uplink = NOT_GIVEN

    def height(self) -> int:
        """Count the levels of switches below this one, 0 with hosts alone."""
        return (1 + max(child.height() for child in self.children)
                if self.children else 0)

    def walk(self) -> Iterator['Node']:
        """Yield this node and all below, parents before children."""
        yield self
        for child in self.children:
            yield from child.walk()

    def chains(self, above: tuple['Node', ...] = ()
               ) -> Iterator[tuple[str, tuple['Node', ...]]]:
        """Yield each host with the switches above it, the nearest first."""
        chain = (self, *above)
        for host in self.hosts:
            yield host, chain
        for child in self.children:
            yield from child.chains(chain)

    def all_hosts(self) -> Iterator[str]:
        """Yield the names of the hosts at this node and all below."""
        for host, _above in self.chains():
            yield host


@dataclasses.dataclass(frozen=True, slots=True)
class Plane:
    """Tree of one network: levels and switches.

    :ivar levels: levels from the hosts upwards; levels above the last are
        named by default.
    :ivar roots: several are joined by a core that limits nothing.
    """

    name: str = FRONT_END
    levels: tuple[Level, ...] = ()
    roots: tuple[Node, ...] = ()

    def walk(self) -> Iterator[Node]:
        for root in self.roots:
            yield from root.walk()

    def chains(self) -> Iterator[tuple[str, tuple[Node, ...]]]:
        """Yield each host with the switches above it, the nearest first."""
        for root in self.roots:
            yield from root.chains()

    def hosts(self) -> Iterator[str]:
        for host, _above in self.chains():
            yield host

    def parents(self) -> dict[str, str]:
        """Name the parent of each switch that has one."""
        return {child.name: node.name for node in self.walk()
                for child in node.children}

    def depth(self) -> int:
        """Count the levels."""
        return max((1 + root.height() for root in self.roots), default=0)

    def level(self, height: int) -> Level:
        """Return the level of a height, a default one above the last given."""
        return (self.levels[height] if height < len(self.levels)
                else Level(default_level_name(height)))

    def level_names(self) -> tuple[str, ...]:
        """Names of the levels, from the hosts upwards."""
        return tuple(self.level(height).name
                     for height in range(max(self.depth(),
                                             len(self.levels))))


def default_level_name(height: int) -> str:
    """Return rack, pod or zone for heights 0 to 2, then tier-4 and so on."""
    return (LEVEL_NAMES[height] if height < len(LEVEL_NAMES)
            else f'tier-{height + 1}')


@dataclasses.dataclass(frozen=True, slots=True)
class Topology:
    """All planes of a cloud.

    :ivar planes: planes with different names.
    """

    planes: tuple[Plane, ...] = ()

    def plane(self, name: str) -> Plane | None:
        return next((plane for plane in self.planes if plane.name == name),
                    None)

    def replaced(self, planes: tuple[Plane, ...]) -> 'Topology':
        """Replace planes by name; those of other names stay."""
        new = {plane.name: plane for plane in planes}
        kept = tuple(new.pop(plane.name, plane) for plane in self.planes)
        return Topology(kept + tuple(new.values()))
