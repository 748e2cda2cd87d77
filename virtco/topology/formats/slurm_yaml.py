# SPDX-License-Identifier: Apache-2.0

"""Slurm's topology.yaml(5): a plane per topology of type tree. Pure.

It knows neither rates nor names of levels. A block topology becomes leaves
without anything above them; a flat one says nothing and is left out.
"""

from typing import Any

from virtco.topology import laws
from virtco.topology import tree
from virtco.topology.formats import document
from virtco.topology.formats import result
from virtco.topology.formats import switch_lists as switches

KEYS = ('topology', 'cluster_default', 'tree', 'block', 'flat')
# Names per kind: its list, an entry, an entry's keys, other keys.
_KINDS = {
    'tree': ('switches', 'switch', ('switch', 'children', 'nodes'), ()),
    'block': ('blocks', 'block', ('block', 'nodes'), ('block_sizes',))}


def load(value: Any) -> result.Read:
    """Build a topology from the values of Slurm's topology.yaml.

    :raises virtco.exception.TopologyInvalid: with the path of the value.
    """
    if not isinstance(value, list):
        raise laws.Wrong((), 'document', value, 'a list of topologies')
    if len(value) > laws.MAX_PLANES:
        raise laws.Wrong((), 'topologies', len(value),
                         f'at most {laws.MAX_PLANES} topologies')
    planes: dict[str, tree.Plane] = {}
    notices = []
    for i, item in enumerate(value):
        found = document.mapping(item, (i,), 'topology', KEYS)
        name = laws.name(found.get('topology'), (i, 'topology'), 'topology')
        if name in planes:
            raise laws.Wrong((i, 'topology'), 'topology', name,
                             'a name that no other topology has')
        kinds = [kind for kind in KEYS[2:] if kind in found]
        if len(kinds) != 1:
            raise laws.Wrong((i,), f'topology {name}',
                             ', '.join(kinds) or None,
                             'exactly one of tree, block and flat')
        if kinds == ['flat']:
            notices.append(f'topology {name} is flat and was left out')
            continue
        (kind,) = kinds
        planes[name] = tree.Plane(name, (), _roots(
            kind, found[kind], (i, kind), name))
    return result.Read(tree.Topology(tuple(planes.values())), tuple(notices))


def _roots(kind: str, value: Any, path: document.Path, name: str
           ) -> tuple[tree.Node, ...]:
    """Read the switches of a topology; return those at the top."""
    plural, switch, keys, others = _KINDS[kind]
    found = document.mapping(value, path, f'topology {name}: {kind}',
                             (*others, plural))
    return switches.grown(name, [
        _switch(item, (*path, plural, i), switch, keys)
        for i, item in enumerate(document.sequence(
            found.get(plural), (*path, plural),
            f'topology {name}: {plural}'))])


def _switch(value: Any, path: document.Path, kind: str,
            keys: tuple[str, ...]) -> switches.Switch:
    found = document.mapping(value, path, kind, keys)
    name = laws.name(found.get(kind), (*path, kind), kind)
    return switches.Switch(
        name,
        switches.expanded(found.get('nodes'), (*path, 'nodes'),
                          f'{kind} {name}: nodes'),
        switches.expanded(found.get('children'), (*path, 'children'),
                          f'{kind} {name}: children'), path)


def write(topology: tree.Topology) -> result.Written:
    """Write each plane as a tree of Slurm's ``topology.yaml``."""
    return result.Written(document.to_yaml([
        {'topology': plane.name, 'cluster_default': i == 0,
         'tree': {'switches': [
             {'switch': node.name,
              **switches.lists_below(node, 'children', 'nodes')}
             for node in plane.walk()]}}
        for i, plane in enumerate(topology.planes)]),
        result.lost(topology, 'topology.yaml', rates=True, levels=True))
