# SPDX-License-Identifier: Apache-2.0

"""Files of topologies, by the name of their format. Pure."""

import dataclasses

from virtco import exception
from virtco.topology import laws
from virtco.topology import tree
from virtco.topology.formats import document
from virtco.topology.formats import plain
from virtco.topology.formats import result
from virtco.topology.formats import slurm_conf
from virtco.topology.formats import slurm_yaml
from virtco.topology.formats import table
from virtco.topology.formats import topograph
from virtco.topology.formats import topograph_model

YAML = 'yaml'
SLURM_YAML = 'slurm-yaml'
SLURM_CONF = 'slurm-conf'
TOPOGRAPH = 'topograph'
NAMES = (YAML, SLURM_YAML, SLURM_CONF, TOPOGRAPH)
TABLE = 'csv'
TOPOGRAPH_MODEL = 'topograph-model'
#: Those that are read; the first ones are written as well.
READ = (*NAMES, TABLE, TOPOGRAPH_MODEL)


def detect(text: str) -> str:
    """The format that a text looks like."""
    start = text.lstrip()
    if start[:1] == '{' and '"instances"' in start:
        return TOPOGRAPH
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and line[0] != '#']
    if lines and table.begins(lines[0]):
        return TABLE
    if lines and topograph_model.begins(lines[0]):
        return TOPOGRAPH_MODEL
    if any(line.lower().startswith(('switchname=', 'blockname='))
           for line in lines[:100]):
        return SLURM_CONF
    if any(line.startswith(('- topology:', '-topology:'))
           for line in lines[:2]):
        return SLURM_YAML
    return YAML


def read(text: str, where: str, name: str | None = None,
         plane: str | None = None) -> result.Read:
    """The topology of a file.

    :param where: the file, for errors.
    :param name: the format; found out by the text when not given.
    :param plane: name of the plane, where the file describes one.
    :raises virtco.exception.InputInvalid: naming line, node and limit.
    """
    name = name or detect(text)
    try:
        if plane is not None:
            laws.name(plane, (), 'plane')
        if name == SLURM_YAML:
            return _named(slurm_yaml.read(text), plane)
        if name == SLURM_CONF:
            return slurm_conf.read(text, plane or tree.FRONT_END)
        if name == TOPOGRAPH:
            return topograph.read(text, plane or tree.FRONT_END)
        if name == TABLE:
            return table.read(text, plane or tree.FRONT_END)
        if name == TOPOGRAPH_MODEL:
            return topograph_model.read(text, plane or tree.FRONT_END)
        found = document.from_yaml(text)
        return _named(result.at_lines(
            found, lambda: (plain.load(found.value), ())), plane)
    except laws.Wrong as error:
        line = '' if error.line is None else f', line {error.line}'
        raise exception.InputInvalid(where=f'{where}{line}',
                                     **error.kwargs) from None


def _named(read: result.Read, plane: str | None) -> result.Read:
    """With the only plane called so."""
    if plane is None:
        return read
    if len(read.topology.planes) != 1:
        raise laws.Wrong((), 'plane', plane,
                         f'left out, the file names '
                         f'{len(read.topology.planes)}')
    return dataclasses.replace(read, topology=tree.Topology(
        (dataclasses.replace(read.topology.planes[0], name=plane),)))


def write(topology: tree.Topology, name: str) -> result.Written:
    """:raises virtco.exception.TopologyInvalid:"""
    if name == SLURM_YAML:
        return slurm_yaml.write(topology)
    if name == SLURM_CONF:
        return slurm_conf.write(topology)
    if name == TOPOGRAPH:
        return topograph.write(topology)
    return result.Written(document.to_yaml(plain.dump(topology)))


def renamed(topology: tree.Topology, levels: tuple[str, ...]
            ) -> tree.Topology:
    """With these names of levels, from the hosts upwards, in every plane.

    :raises virtco.exception.TopologyInvalid:
    """
    for level in levels:
        laws.name(level, (), 'level')
    return laws.check(tree.Topology(tuple(
        dataclasses.replace(plane, levels=tuple(
            tree.Level(name, plane.level(height).uplink)
            for height, name in enumerate(levels))
            + plane.levels[len(levels):])
        for plane in topology.planes)))
