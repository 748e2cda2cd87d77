# SPDX-License-Identifier: Apache-2.0

"""Trees out of lists of switches that name their children. Pure."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

from virtco.topology import hostlist
from virtco.topology import laws
from virtco.topology import tree
from virtco.topology.formats import document


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


def grown(plane: str, switches: Sequence[Switch]) -> tuple[tree.Node, ...]:
    """Build the roots, with all that hangs below them.

    :raises virtco.exception.TopologyInvalid:
    """
    by_name: dict[str, Switch] = {}
    parent_of: dict[str, str] = {}
    for switch in switches:
        if switch.name in by_name:
            raise laws.Wrong(switch.path, f'plane {plane}, switch',
                             switch.name, 'a name that no other switch has')
        by_name[switch.name] = switch
    for switch in switches:
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
    census = laws.Census(plane)
    grown_up: set[str] = set()

    def node(switch: Switch, depth: int) -> tree.Node:
        grown_up.add(switch.name)
        census.node(switch.name, depth, switch.path)
        census.hosts(switch.hosts, switch.name, switch.path)
        return tree.Node(switch.name, switch.hosts,
                         tuple(node(by_name[child], depth + 1)
                               for child in switch.children), switch.uplink)

    roots = tuple(node(switch, 0) for switch in switches
                  if switch.name not in parent_of)
    for switch in switches:
        if switch.name not in grown_up:
            raise laws.Wrong(switch.path, f'plane {plane}, switch',
                             switch.name,
                             'a switch that is not below itself')
    return roots


class Branches:
    """Collects paths from hosts to roots as switches."""

    def __init__(self, plane: str):
        self._plane = plane
        self._hosts: dict[str, list[str]] = {}
        self._children: dict[str, list[str]] = {}
        self._parent: dict[str, str] = {}
        self._path: dict[str, document.Path] = {}

    def __bool__(self) -> bool:
        return bool(self._hosts)

    def add(self, host: str, layers: Sequence[str],
            path: document.Path) -> None:
        """Add a host and the switches above it.

        :param layers: the switches above the host, the nearest first.
        :raises virtco.exception.TopologyInvalid: for a second parent.
        """
        for switch in layers:
            self._hosts.setdefault(switch, [])
            self._children.setdefault(switch, [])
            self._path.setdefault(switch, path)
        self._hosts[layers[0]].append(host)
        for child, parent in zip(layers, layers[1:], strict=False):
            before = self._parent.get(child)
            if before is None:
                self._parent[child] = parent
                self._children[parent].append(child)
            elif before != parent:
                raise laws.Wrong(
                    path, f'host {host}, switch {child}', parent,
                    f'one parent per switch ({child} is below {before} '
                    'already)')

    def plane(self, levels: tuple[tree.Level, ...] = (),
              uplinks: Mapping[str, tree.Uplink] | None = None
              ) -> tree.Plane:
        """Build the plane of the switches.

        :raises virtco.exception.TopologyInvalid:
        """
        uplinks = uplinks or {}
        return tree.Plane(self._plane, levels, grown(
            self._plane,
            [Switch(name, tuple(hosts), tuple(self._children[name]),
                    self._path[name], uplinks.get(name, tree.NOT_GIVEN))
             for name, hosts in self._hosts.items()]))
