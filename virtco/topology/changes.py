# SPDX-License-Identifier: Apache-2.0

"""Differences that an import would make. Pure."""

from collections.abc import Iterator

from virtco.topology import drawing
from virtco.topology import tree
from virtco.wire import topology as wire


def written(change: wire.TopologyChange) -> str:
    """Return a change as a line for people."""
    thing = f'{change.kind} {change.name}'
    if change.before is None:
        return f'+ {thing}: {change.after}'
    if change.after is None:
        return f'- {thing}: {change.before}'
    return f'~ {thing}: {change.before} -> {change.after}'


def changes(before: tree.Topology, after: tree.Topology
            ) -> list[wire.TopologyChange]:
    """List the changes in planes of the new topology."""
    found: list[wire.TopologyChange] = []
    for plane in after.planes:
        old = before.plane(plane.name)
        if old is None:
            found.append(wire.TopologyChange(
                plane.name, 'plane', plane.name, None, described(plane)))
            old = tree.Plane(plane.name)
        found += _of_plane(old, plane)
    return found


def described(plane: tree.Plane) -> str:
    """Describe a plane by its numbers of nodes, levels and hosts."""
    n_nodes = sum(1 for _node in plane.walk())
    n_hosts = sum(1 for _host in plane.hosts())
    return (f'{n_nodes} nodes of {plane.depth()} levels, {n_hosts} hosts')


def _of_plane(old: tree.Plane, new: tree.Plane
              ) -> Iterator[wire.TopologyChange]:
    def compared(kind: wire.ChangeKind, before: dict[str, str],
                 after: dict[str, str]) -> Iterator[wire.TopologyChange]:
        for name in sorted({**before, **after}):
            if before.get(name) != after.get(name):
                yield wire.TopologyChange(new.name, kind, name,
                                          before.get(name), after.get(name))

    yield from compared('level', _levels(old), _levels(new))
    yield from compared('node', _places(old), _places(new))
    yield from compared('uplink', _uplinks(old), _uplinks(new))
    yield from compared('host', _leaves(old), _leaves(new))


def _levels(plane: tree.Plane) -> dict[str, str]:
    return {level.name: f'{height + 1} above the hosts, uplinks '
                        + (drawing.uplink(level.uplink) or 'not given')
            for height, level in enumerate(plane.levels)}


def _places(plane: tree.Plane) -> dict[str, str]:
    """Describe the place of each node by its parent."""
    parents = plane.parents()
    return {node.name: f'below {parents.get(node.name, "the top")}'
            for node in plane.walk()}


def _uplinks(plane: tree.Plane) -> dict[str, str]:
    return {node.name: drawing.uplink(node.uplink) for node in plane.walk()
            if node.uplink.is_given()}


def _leaves(plane: tree.Plane) -> dict[str, str]:
    return {host: f'below {node.name}' for node in plane.walk()
            for host in node.hosts}
