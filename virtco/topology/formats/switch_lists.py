# SPDX-License-Identifier: Apache-2.0

"""Trees out of lists of switches that name their children. Pure."""

import collections
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools

from virtco.topology import hostlist
from virtco.topology import laws
from virtco.topology import tree
from virtco.topology.formats import document

#: A host, the switches above it, the nearest first, and its place in the file.
Chain = tuple[str, Sequence[str], document.Path]


@dataclasses.dataclass(frozen=True, slots=True)
class Switch:
    """Switch of a list.

    :ivar path: place in the file, for errors.
    """

    name: str
    hosts: tuple[str, ...]
    children: tuple[str, ...]
    path: document.Path
    uplink: tree.Uplink = tree.NOT_GIVEN


def expanded(text: str | None, path: document.Path, field: str,
             most: int = laws.MAX_HOSTS) -> tuple[str, ...]:
    """Expand a host list and check its names.

    :raises virtco.exception.TopologyInvalid:
    """
    if text is None:
        return ()
    try:
        found = hostlist.expand(text, most)
    except ValueError as error:
        raise laws.Wrong(path, field, text, f'a host list ({error})'
                         ) from None
    return tuple(laws.name(name, path, field) for name in found)


def lists_below(node: tree.Node, children: str, hosts: str
                ) -> dict[str, str]:
    """Write the lists of a switch's children and hosts that are not empty.

    :param children: key of the list of children.
    :param hosts: key of the list of hosts.
    """
    lists = {children: hostlist.compress(child.name for child
                                         in node.children),
             hosts: hostlist.compress(node.hosts)}
    return {key: text for key, text in lists.items() if text}


def grown(plane: str, switches: Iterable[Switch]) -> tuple[tree.Node, ...]:
    """Build the roots, with all that hangs below them.

    :raises virtco.exception.TopologyInvalid:
    """
    by_name: dict[str, Switch] = {}
    leaf_of: dict[str, str] = {}
    for switch in switches:
        if switch.name in by_name:
            raise laws.Wrong(switch.path, f'plane {plane}, node', switch.name,
                             'a name that no other node of the plane has')
        by_name[switch.name] = switch
        _check_hosts(plane, switch, leaf_of)
        for field, many, most in (('nodes', by_name, laws.MAX_NODES),
                                  ('hosts', leaf_of, laws.MAX_HOSTS)):
            if len(many) > most:
                raise laws.Wrong(
                    switch.path, f'plane {plane}, node {switch.name}: {field}',
                    'one more', f'at most {most} per plane')
    parent_of: dict[str, str] = {}
    for switch in by_name.values():
        field = f'plane {plane}, switch {switch.name}: children'
        for child in switch.children:
            if child not in by_name:
                raise laws.Wrong(switch.path, field, child,
                                 'a switch that the file describes')
            if child in parent_of:
                raise laws.Wrong(switch.path, field, child,
                                 'a switch without another parent (it is '
                                 f'below {parent_of[child]} already)')
            parent_of[child] = switch.name
    left = dict(by_name)

    def node(name: str, depth: int) -> tree.Node:
        switch = left.pop(name)
        if depth > laws.MAX_DEPTH:
            raise laws.Wrong(switch.path, f'plane {plane}, node {name}',
                             f'depth {depth}',
                             f'at most {laws.MAX_DEPTH} levels')
        return tree.Node(name, switch.hosts, tuple(
            node(child, depth + 1) for child in switch.children),
            switch.uplink)

    roots = tuple(node(name, 1) for name in by_name if name not in parent_of)
    for switch in left.values():
        raise laws.Wrong(switch.path, f'plane {plane}, node', switch.name,
                         'a switch that is not below itself')
    return roots


def _check_hosts(plane: str, switch: Switch, leaf_of: dict[str, str]) -> None:
    """Add the hosts of a switch, each of which no other switch has."""
    for host in switch.hosts:
        before = leaf_of.get(host)
        if before is not None:
            raise laws.Wrong(
                (*switch.path, 'hosts'),
                f'plane {plane}, node {switch.name}: hosts', host,
                'each host once' if before == switch.name else
                f'a host that no other node has ({before} has it)')
        leaf_of[host] = switch.name


def plane_above(name: str, chains: Iterable[Chain],
                levels: tuple[tree.Level, ...] = (),
                uplinks: Mapping[str, tree.Uplink] | None = None
                ) -> tree.Plane:
    """Build a plane from the switches above each host.

    :raises virtco.exception.TopologyInvalid: for a second parent, too.
    """
    hosts: dict[str, list[str]] = {}
    parent_of: dict[str, str] = {}
    path_of: dict[str, document.Path] = {}
    for host, layers, path in chains:
        for switch in layers:
            hosts.setdefault(switch, [])
            path_of.setdefault(switch, path)
        hosts[layers[0]].append(host)
        for child, parent in itertools.pairwise(layers):
            before = parent_of.setdefault(child, parent)
            if before != parent:
                raise laws.Wrong(
                    path, f'host {host}, switch {child}', parent,
                    f'one parent per switch ({child} is below {before} '
                    'already)')
    children: dict[str, list[str]] = collections.defaultdict(list)
    for child, parent in parent_of.items():
        children[parent].append(child)
    return tree.Plane(name, levels, grown(name, [
        Switch(switch, tuple(below), tuple(children[switch]), path_of[switch],
               (uplinks or {}).get(switch, tree.NOT_GIVEN))
        for switch, below in hosts.items()]))
