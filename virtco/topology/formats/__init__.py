# SPDX-License-Identifier: Apache-2.0

"""Files of topologies, by the name of their format. Pure."""

import dataclasses

import msgspec

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
#: Formats that are read; those of NAMES are written as well.
READ = (*NAMES, TABLE, TOPOGRAPH_MODEL)
_OF_ONE_PLANE = {
    SLURM_CONF: (document.from_lines, slurm_conf.load),
    TOPOGRAPH: (document.from_json, topograph.load),
    TABLE: (document.from_lines, table.load),
    TOPOGRAPH_MODEL: (document.from_yaml, topograph_model.load)}
_WRITE = {SLURM_YAML: slurm_yaml.write, SLURM_CONF: slurm_conf.write,
          TOPOGRAPH: topograph.write}


def detect(text: str) -> str:
    """Guess the format of a text."""
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
    """Read the topology of a file.

    :param where: the file, for errors.
    :param name: the format; found out by the text when not given.
    :param plane: name of the plane, where the file describes one.
    :raises virtco.exception.InputInvalid: naming line, node and limit.
    """
    name = name or detect(text)
    try:
        if plane is not None:
            laws.name(plane, (), 'plane')
        if name in _OF_ONE_PLANE:
            parse, load = _OF_ONE_PLANE[name]
            found = parse(text)
            with document.lines(found.line):
                return load(found.value, plane or tree.FRONT_END)
        found = document.from_yaml(text)
        with document.lines(found.line):
            return _named(slurm_yaml.load(found.value) if name == SLURM_YAML
                          else result.Read(plain.read(found.value)), plane)
    except laws.Wrong as error:
        line = '' if error.line is None else f', line {error.line}'
        raise exception.InputInvalid(where=f'{where}{line}',
                                     **error.kwargs) from None


def _named(read: result.Read, plane: str | None) -> result.Read:
    """Rename the only plane."""
    if plane is None:
        return read
    if len(read.topology.planes) != 1:
        raise laws.Wrong((), 'plane', plane,
                         f'nothing for a file with '
                         f'{len(read.topology.planes)} planes')
    return dataclasses.replace(read, topology=tree.Topology(
        (dataclasses.replace(read.topology.planes[0], name=plane),)))


def write(topology: tree.Topology, name: str) -> result.Written:
    """Write a topology in the format of this name.

    :raises virtco.exception.TopologyInvalid:
    """
    if name in _WRITE:
        return _WRITE[name](topology)
    return result.Written(document.to_yaml(msgspec.to_builtins(
        {'planes': plain.dump(topology)})))


def renamed(topology: tree.Topology, levels: tuple[str, ...]
            ) -> tree.Topology:
    """Rename the levels, from the hosts upwards, in every plane.

    :raises virtco.exception.TopologyInvalid:
    """
    for level in levels:
        laws.name(level, (), 'level')
    planes = tuple(
        dataclasses.replace(plane, levels=tuple(
            tree.Level(name, plane.level(height).uplink)
            for height, name in enumerate(levels))
            + plane.levels[len(levels):])
        for plane in topology.planes)
    for plane in planes:
        laws.check_levels(plane, ())
    return tree.Topology(planes)
