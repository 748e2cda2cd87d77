# SPDX-License-Identifier: Apache-2.0

"""YAML of NVIDIA topograph's models: switches, and blocks of nodes. Pure."""

from collections.abc import Iterator
from typing import Any

from virtco.topology import laws
from virtco.topology import tree
from virtco.topology.formats import document
from virtco.topology.formats import result
from virtco.topology.formats import switch_lists as switches

_KEYS = ('switches:', 'blocks:')


def begins(line: str) -> bool:
    """Tell whether a line is the first of such a file."""
    return line.rstrip() in _KEYS


def load(value: Any, plane: str) -> result.Read:
    """Build a plane from the values of topograph's model of a cluster.

    :raises virtco.exception.TopologyInvalid: with the path of the value.
    """
    if not isinstance(value, dict):
        raise laws.Wrong((), 'document', value,
                         'an object with switches and blocks')
    hosts: dict[str, tuple[str, ...]] = {}
    path_of: dict[str, document.Path] = {}
    for i, block in enumerate(document.sequence(
            value.get('blocks'), ('blocks',), 'blocks')):
        path = ('blocks', i)
        if not isinstance(block, dict):
            raise laws.Wrong(path, f'block {i + 1}', block, 'an object')
        name = laws.name(block.get('switch'), path, f'block {i + 1}: switch')
        hosts[name] = hosts.get(name, ()) + tuple(_nodes(block, path, name))
        path_of[name] = path
    above = value.get('switches') or {}
    if not isinstance(above, dict):
        raise laws.Wrong(('switches',), 'switches', above, 'an object')
    children: dict[str, tuple[str, ...]] = {}
    for name, given in above.items():
        path = ('switches', name)
        laws.name(name, path, 'switch')
        below = given.get('switches') if isinstance(given, dict) else None
        children[name] = tuple(
            laws.name(child, path, f'switch {name}: switches')
            for child in document.sequence(
                below or [], path, f'switch {name}: switches'))
        path_of[name] = path
    # A rack without nodes is named by its parent only.
    for name in list(children):
        for child in children[name]:
            path_of.setdefault(child, path_of[name])
    return result.Read(tree.Topology((tree.Plane(plane, (), switches.grown(
        plane, [
        switches.Switch(name, hosts.get(name, ()), children.get(name, ()),
                        path) for name, path in path_of.items()])),)))


def _nodes(block: dict[str, Any], path: document.Path, name: str
           ) -> Iterator[str]:
    field = f'switch {name}: nodes'
    for text in document.sequence(block.get('nodes') or [], path, field):
        yield from switches.expanded(text, path, field)
