# SPDX-License-Identifier: Apache-2.0

"""Results of reading and writing a file. Pure."""

import dataclasses

from virtco.topology import tree


@dataclasses.dataclass(frozen=True, slots=True)
class Read:
    """Topology that was read from a file.

    :ivar notices: facts of the file that the topology does not hold.
    """

    topology: tree.Topology
    notices: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Written:
    """Text of a topology in a format.

    :ivar notices: facts of the topology that the file cannot hold.
    """

    text: str
    notices: tuple[str, ...] = ()


def lost(topology: tree.Topology, name: str, *, rates: bool = False,
         levels: bool = False) -> tuple[str, ...]:
    """List the parts of a topology that a format leaves out."""
    found = []
    uplinks = [node.uplink for plane in topology.planes
               for node in plane.walk()]
    uplinks += [level.uplink for plane in topology.planes
                for level in plane.levels]
    given = sum(uplink.is_given() for uplink in uplinks)
    if rates and given:
        found.append(f'{name} tells no rates: {given} uplinks are without')
    if levels and any(plane.levels for plane in topology.planes):
        found.append(f'{name} names no levels: their names are left out')
    return tuple(found)
