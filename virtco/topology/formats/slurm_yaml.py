# SPDX-License-Identifier: Apache-2.0

"""Slurm's topology.yaml(5): a plane per topology of type tree. Pure.

It knows neither rates nor names of levels. A block topology becomes leaves
without anything above them; a flat one says nothing and is left out.
"""

from collections.abc import Iterator
from typing import Annotated
from typing import Any

import msgspec

from virtco import decoding
from virtco.topology import laws
from virtco.topology import tree
from virtco.topology.formats import document
from virtco.topology.formats import result
from virtco.topology.formats import switch_lists as switches


class _Switch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    switch: str
    children: str | None = None
    nodes: str | None = None


class _Tree(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    switches: list[_Switch] | None = None


class _Block(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    block: str
    nodes: str | None = None


class _Blocks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    blocks: list[_Block] | None = None
    block_sizes: Any = None


class _Topology(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topology: str
    cluster_default: Any = None
    tree: _Tree | None = None
    block: _Blocks | None = None
    flat: Any = None


_TOPOLOGIES: decoding.Decoder[list[_Topology]] = decoding.Decoder(
    Annotated[list[_Topology], msgspec.Meta(max_length=laws.MAX_PLANES)],
    'document')


def load(value: Any) -> result.Read:
    """Build a topology from the values of Slurm's topology.yaml.

    :raises virtco.exception.TopologyInvalid: with the path of the value.
    """
    planes: dict[str, tree.Plane] = {}
    notices = []
    given = document.typed(value, _TOPOLOGIES)
    for i, found in enumerate(given):
        name = laws.name(found.topology, (i, 'topology'), 'topology')
        if name in planes:
            raise laws.Wrong((i, 'topology'), 'topology', name,
                             'a name that no other topology has')
        kinds = [kind for kind in ('tree', 'block', 'flat')
                 if getattr(found, kind) is not None]
        if len(kinds) != 1:
            raise laws.Wrong((i,), f'topology {name}',
                             ', '.join(kinds) or None,
                             'exactly one of tree, block and flat')
        if kinds == ['flat']:
            notices.append(f'topology {name} is flat and was left out')
            continue
        planes[name] = tree.Plane(name, (), switches.grown(
            name, list(_switches(found, (i,)))))
    return result.Read(tree.Topology(tuple(planes.values())), tuple(notices))


def _switches(found: _Topology, path: document.Path
              ) -> Iterator[switches.Switch]:
    """Yield the switches of a tree, or each block as one."""
    for i, one in enumerate(found.tree and found.tree.switches or ()):
        yield _switch('switch', one.switch, one.nodes, one.children,
                      (*path, 'tree', 'switches', i))
    for i, block in enumerate(found.block and found.block.blocks or ()):
        yield _switch('block', block.block, block.nodes, None,
                      (*path, 'block', 'blocks', i))


def _switch(kind: str, name: str, nodes: str | None, children: str | None,
            path: document.Path) -> switches.Switch:
    laws.name(name, (*path, kind), kind)
    return switches.Switch(
        name,
        switches.expanded(nodes, (*path, 'nodes'), f'{kind} {name}: nodes'),
        switches.expanded(children, (*path, 'children'),
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
