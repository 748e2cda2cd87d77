# SPDX-License-Identifier: Apache-2.0

"""YAML of NVIDIA topograph's models: switches, and blocks of nodes. Pure."""

from typing import Any

import msgspec

from virtco import decoding
from virtco.topology import laws
from virtco.topology import tree
from virtco.topology.formats import document
from virtco.topology.formats import result
from virtco.topology.formats import switch_lists as switches

_KEYS = ('switches:', 'blocks:')


def begins(line: str) -> bool:
    """Tell whether a line is the first of such a file."""
    return line.rstrip() in _KEYS


class _Block(msgspec.Struct, frozen=True):
    switch: str
    nodes: list[str] | None = None


class _Switch(msgspec.Struct, frozen=True):
    switches: list[str] | None = None


class _Model(msgspec.Struct, frozen=True):
    blocks: list[_Block] | None = None
    switches: dict[str, _Switch | None] | None = None


_MODEL: decoding.Decoder[_Model] = decoding.Decoder(_Model, 'document')


def load(value: Any, plane: str) -> result.Read:
    """Build a plane from the values of topograph's model of a cluster.

    :raises virtco.exception.TopologyInvalid: with the path of the value.
    """
    model = document.typed(value, _MODEL)
    hosts: dict[str, tuple[str, ...]] = {}
    path_of: dict[str, document.Path] = {}
    for i, block in enumerate(model.blocks or ()):
        path: document.Path = ('blocks', i)
        name = laws.name(block.switch, path, f'block {i + 1}: switch')
        hosts[name] = hosts.get(name, ()) + tuple(
            host for text in block.nodes or ()
            for host in switches.expanded(text, path, f'switch {name}: nodes'))
        path_of[name] = path
    children: dict[str, tuple[str, ...]] = {}
    for name, given in (model.switches or {}).items():
        path = ('switches', name)
        laws.name(name, path, 'switch')
        children[name] = tuple(
            laws.name(child, path, f'switch {name}: switches')
            for child in given and given.switches or ())
        path_of[name] = path
    # A rack without nodes is named by its parent only.
    for name in list(children):
        for child in children[name]:
            path_of.setdefault(child, path_of[name])
    return result.Read(tree.Topology((tree.Plane(plane, (), switches.grown(
        plane, [
        switches.Switch(name, hosts.get(name, ()), children.get(name, ()),
                        path) for name, path in path_of.items()])),)))
