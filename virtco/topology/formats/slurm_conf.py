# SPDX-License-Identifier: Apache-2.0

"""Slurm's topology.conf(5): lines of SwitchName, Switches, Nodes. Pure.

``LinkSpeed`` has no unit in Slurm; it counts as a rate where it has one, such
as ``LinkSpeed=100Gbit``. BlockName lines become leaves.
"""

import re

from virtco import units
from virtco.topology import laws
from virtco.topology import tree
from virtco.topology.formats import document
from virtco.topology.formats import plain
from virtco.topology.formats import result
from virtco.topology.formats import switch_lists as switches

_PAIR = re.compile(r'\s*([A-Za-z]+)=(\S+)\s*', re.ASCII)
_KEYS = {'switchname': 'SwitchName', 'switches': 'Switches',
         'nodes': 'Nodes', 'linkspeed': 'LinkSpeed',
         'blockname': 'BlockName', 'blocksizes': 'BlockSizes'}


def load(text: str, plane: str) -> result.Read:
    """Build a plane from the text of Slurm's topology.conf.

    :raises virtco.exception.TopologyInvalid: with the line as its path.
    """
    found, notices = [], []
    for number, line in enumerate(text.splitlines(), 1):
        pairs = _pairs(line.partition('#')[0], (number,))
        if not pairs or set(pairs) == {'BlockSizes'}:
            continue
        switch, notice = _switch(pairs, (number,))
        found.append(switch)
        notices += notice
    return result.Read(tree.Topology((tree.Plane(
        plane, (), switches.grown(plane, found)),)), tuple(notices))


def _pairs(line: str, path: document.Path) -> dict[str, str]:
    found: dict[str, str] = {}
    end = 0
    for match in _PAIR.finditer(line):
        key = _KEYS.get(match[1].lower())
        if match.start() != end or key is None or key in found:
            break
        found[key] = match[2]
        end = match.end()
    if line[end:].strip():
        raise laws.Wrong(path, 'line', line[end:].strip(),
                         'one of ' + ', '.join(_KEYS.values())
                         + ', each once and with =')
    return found


def _switch(pairs: dict[str, str], path: document.Path
            ) -> tuple[switches.Switch, list[str]]:
    name = laws.name(pairs.get('SwitchName') or pairs.get('BlockName'),
                     path, 'SwitchName')
    speed = pairs.get('LinkSpeed')
    uplink, notices = tree.NOT_GIVEN, []
    if speed is not None:
        try:
            if speed.isdecimal():
                raise ValueError(speed)
            rate_bps = units.parse_rate_bps(speed[:40])
            if not 0 < rate_bps <= laws.MAX_RATE_BPS:
                raise ValueError(speed)
            uplink = tree.Uplink(rate_bps, rate_bps)
        except ValueError:
            notices.append(f'switch {name}: LinkSpeed={speed[:40]} is no '
                           'rate with a unit and was left out')
    return switches.Switch(
        name,
        switches.expanded(pairs.get('Nodes'), path,
                          f'switch {name}: Nodes'),
        switches.expanded(pairs.get('Switches'), path,
                          f'switch {name}: Switches'), path, uplink), notices


def write(topology: tree.Topology) -> result.Written:
    """Write a plane as Slurm's topology.conf.

    :raises virtco.exception.TopologyInvalid: for several planes.
    """
    if len(topology.planes) != 1:
        raise laws.Wrong((), 'planes', len(topology.planes),
                         'one plane for a topology.conf')
    plane, = topology.planes
    lines = []
    left_out = False
    for node in plane.walk():
        words = [f'SwitchName={node.name}', *map('='.join, (
            switches.lists_below(node, 'Switches', 'Nodes').items()))]
        if _has_speed(node.uplink):
            assert node.uplink.up_bps is not None
            written = plain.written_rate(node.uplink.up_bps)
            words.append('LinkSpeed=' + (
                written if isinstance(written, str) else f'{written!r}bit'))
        left_out |= node.uplink.is_given() and not _has_speed(node.uplink)
        lines.append(' '.join(words) + '\n')
    return result.Written(
        ''.join(lines),
        result.lost(topology, 'topology.conf', levels=True,
                    rates=left_out or any(level.uplink.is_given()
                                          for level in plane.levels)))


def _has_speed(uplink: tree.Uplink) -> bool:
    return (uplink.up_bps is not None and uplink.up_bps == uplink.down_bps
            and uplink.oversubscription is None)
