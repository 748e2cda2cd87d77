# SPDX-License-Identifier: Apache-2.0

"""``topology import``, ``topology show`` and ``topology delete``."""

import dataclasses
import itertools
from typing import Any

from osc_lib import exceptions as osc_exceptions

from virtco.osc import command_base as base
from virtco.osc import matrices
from virtco.osc import nova_facts
from virtco.topology import changes as comparison
from virtco.topology import drawing
from virtco.topology import formats
from virtco.topology import naming
from virtco.topology import nova_topology as nova
from virtco.topology import tree
from virtco.topology.formats import document
from virtco.topology.formats import plain
from virtco.topology.formats import result
from virtco.wire import check as check_wire
from virtco.wire import topology as wire

#: Changes and hosts beyond these are counted, not listed.
MAX_LISTED = 200


class Import(base.Command):
    """Replace planes of the topology by those of a file, Nova or probes

    Without --apply it only prints what would change. With --measure all
    hypervisors send at the same time by TCP, in rounds of different pairs:
    pairs that cross an oversubscribed uplink get a lower rate. It takes
    minutes and a part of the probes' budget.
    """

    example = 'topology.yaml --apply'

    arguments = (
        base.OneOf((
            base.argument('file', nargs='?', metavar='<file>',
                          help='The file; - is standard input'),
            base.argument('--from-nova', action='store_true',
                          help='Read metadata of aggregates '
                               '(virtco:rack=NAME), availability zones and '
                               'provider traits (CUSTOM_RACK_NAME)'),
            base.argument('--measure', action='store_true',
                          help='Find the tree above the hypervisors by '
                               'measuring'))),
        base.argument('--format', choices=formats.READ, metavar='<format>',
                      help=f'Format of the file: {", ".join(formats.READ)}; '
                           'default: recognised by its text'),
        base.argument('--plane', metavar='<name>',
                      help='Name of the plane where there is one, default '
                           + tree.FRONT_END),
        base.argument('--levels', metavar='<names>',
                      help='Names of the levels from the hosts upwards, such '
                           'as rack,pod,zone'),
        base.argument('--hosts', metavar='<host>,…',
                      help='Hosts that --measure uses; default: all that '
                           'report'),
        base.argument('--timeout', type=float, default=3600.0,
                      metavar='<seconds>',
                      help='Longest wait for --measure (default 3600)'),
        base.argument('--apply', action='store_true',
                      help='Change the topology'))

    def take_action(self, args: Any) -> None:
        read = self._measured(args) if args.measure else self._read(args)
        for notice in read.notices:
            self.tell(f'Notice: {notice}.')
        planes = plain.dump(read.topology)
        if planes:
            _change(self, planes, args.apply)
        elif args.measure:
            self.write("No uplink is oversubscribed: the hosts' links limit "
                       'all pairs alike.')
        else:
            raise osc_exceptions.CommandError('There is nothing to import.')

    def _read(self, args: Any) -> result.Read:
        levels = _names(args.levels)
        if args.from_nova:
            levels = levels or tree.LEVEL_NAMES
            facts = nova_facts.read(self.app.client_manager.session, levels)
            return nova.read(*facts, levels, args.plane or tree.FRONT_END)
        return _renamed(formats.read(
            self.read('file', args.file, document.MAX_BYTES), args.file,
            args.format, args.plane), levels)

    def _measured(self, args: Any) -> result.Read:
        """Measure a plane, with the names of the existing one."""
        client = self.client
        found = matrices.ended(client, client.call(
            check_wire.ORDER,
            args.hosts and args.hosts.split(','), purpose='discover'),
            args.timeout)
        self.tell(f'{matrices.effort(found)}.')
        if not found.planes:
            return result.Read(tree.Topology(()))
        (plane,) = plain.load(found.planes).planes
        name = args.plane or tree.FRONT_END
        old = plain.load(client.call(wire.SHOW).planes)
        return _renamed(result.Read(tree.Topology((dataclasses.replace(
            naming.renamed(plane, old.plane(name)), name=name),))),
            _names(args.levels))


def _renamed(read: result.Read, levels: tuple[str, ...]) -> result.Read:
    """Give other names to the levels, from the hosts upwards."""
    return read if not levels else result.Read(
        formats.renamed(read.topology, levels), read.notices)


def _change(asked: base.Command, planes: list[wire.Plane], applied: bool
            ) -> None:
    """Print the changes that these planes make, and apply them if wanted."""
    found = asked.client.call(wire.IMPORT, planes, dry_run=not applied)
    changes = found.changes
    for plane, of_plane in itertools.groupby(
            changes[:MAX_LISTED], lambda change: change.plane):
        asked.write(f'plane {plane}', *(
            f'  {comparison.written(change)}' for change in of_plane))
    if len(changes) > MAX_LISTED:
        asked.write(f'  … and {len(changes) - MAX_LISTED} more')
    for name, hosts in found.hosts_without_leaf.items():
        asked.write(*drawing.without_leaf(name, hosts))
    asked.write(f'{len(changes)} changes applied.' if applied else
                f'{len(changes)} changes; --apply makes them.' if changes else
                'Nothing would change.')


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(',')) if text else ()


def _chosen(found: wire.Topology, plane: str | None) -> tree.Topology:
    """Return the topology of an answer, or one plane of it."""
    topology = plain.load(found.planes)
    if plane is None:
        return topology
    one = topology.plane(plane)
    if one is None:
        raise osc_exceptions.CommandError(f'There is no plane {plane!r}.')
    return tree.Topology((one,))


TEXT = 'text'


class Show(base.Command):
    """Draw the topology as text or a picture, or write it in a format"""

    example = '--format yaml > topology.yaml'
    arguments = (
        base.PLANE,
        base.argument('--format', choices=(TEXT, *formats.NAMES),
                      default=TEXT, metavar='<format>',
                      help=f'Format: {TEXT}, {", ".join(formats.NAMES)}; '
                           'default %(default)s'),
        base.argument('--plot', metavar='<file>',
                      help='Draw one plane into a PNG, SVG or PDF'))

    def take_action(self, args: Any) -> None:
        found = self.client.call(wire.SHOW)
        topology = _chosen(found, args.plane)
        if args.plot is not None:
            _plot(topology, args.plot)
        elif args.format != TEXT:
            written = formats.write(topology, args.format)
            for notice in written.notices:
                self.tell(f'Notice: {notice}.')
            self.app.stdout.write(written.text)
        elif not topology.planes:
            self.write('There is no topology: every host is on one switch '
                       'that limits nothing.')
        else:
            for plane in topology.planes:
                self.write(*drawing.plane(plane), *drawing.without_leaf(
                    plane.name, found.hosts_without_leaf[plane.name]))


def _plot(topology: tree.Topology, path: str) -> None:
    if not topology.planes:
        raise osc_exceptions.CommandError('There is nothing to draw.')
    plane = topology.plane(tree.FRONT_END) or topology.planes[0]
    base.save_plot('virtco.topology.plot', plane, path)


Delete = base.declared(
    base.Command, wire.DELETE,
    base.argument('plane', help='Name of the plane'),
    told='Delete a plane of the topology', example='back-end')
