# SPDX-License-Identifier: Apache-2.0

"""Differences that an import would make. Pure."""

from collections.abc import Iterable
from collections.abc import Iterator
import dataclasses

from virtco.topology import drawing
from virtco.topology import tree


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """:ivar kind: ``plane``, ``level``, ``node``, ``uplink`` or ``host``.
    :ivar before: where it was, or its value; None = it is new.
    :ivar after: None = it is gone.
    """

    plane: str
    kind: str
    name: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        what = f'{self.kind} {self.name}'
        if self.before is None:
            return f'+ {what}: {self.after}'
        if self.after is None:
            return f'- {what}: {self.before}'
        return f'~ {what}: {self.before} -> {self.after}'


def changes(before: tree.Topology, after: tree.Topology
            ) -> tuple[Change, ...]:
    """List the changes in planes of the new topology."""
    found: list[Change] = []
    for plane in after.planes:
        old = before.plane(plane.name)
        if old is None:
            found.append(Change(plane.name, 'plane', plane.name, None,
                                described(plane)))
            old = tree.Plane(plane.name)
        found += _of_plane(old, plane)
    return tuple(found)


def described(plane: tree.Plane) -> str:
    n_nodes = sum(1 for _node in plane.walk())
    n_hosts = sum(1 for _host in plane.hosts())
    return (f'{n_nodes} nodes of {plane.depth()} levels, {n_hosts} hosts')


def _of_plane(old: tree.Plane, new: tree.Plane) -> Iterator[Change]:
    def compared(kind: str, before: dict[str, str],
                 after: dict[str, str]) -> Iterator[Change]:
        for name in sorted({**before, **after}):
            if before.get(name) != after.get(name):
                yield Change(new.name, kind, name, before.get(name),
                             after.get(name))

    yield from compared('level', _levels(old), _levels(new))
    yield from compared('node', _parents(old.roots), _parents(new.roots))
    yield from compared('uplink', _uplinks(old), _uplinks(new))
    yield from compared('host', _leaves(old), _leaves(new))


def _levels(plane: tree.Plane) -> dict[str, str]:
    return {level.name: f'{height + 1} above the hosts, uplinks '
                        + (drawing.uplink(level.uplink) or 'not given')
            for height, level in enumerate(plane.levels)}


def _parents(nodes: Iterable[tree.Node], parent: str = 'the top'
             ) -> dict[str, str]:
    found = {}
    for node in nodes:
        found[node.name] = f'below {parent}'
        found |= _parents(node.children, node.name)
    return found


def _uplinks(plane: tree.Plane) -> dict[str, str]:
    return {node.name: drawing.uplink(node.uplink) for node in plane.walk()
            if node.uplink.is_given()}


def _leaves(plane: tree.Plane) -> dict[str, str]:
    return {host: f'below {node.name}' for node in plane.walk()
            for host in node.hosts}
