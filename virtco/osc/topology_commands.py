# SPDX-License-Identifier: Apache-2.0

"""``topology import``, ``discover``, ``export``, ``show`` and ``delete``."""

from collections.abc import Iterable
import dataclasses
import pathlib
from typing import Any

from osc_lib import exceptions as osc_exceptions

from virtco import exception
from virtco.osc import command_base as base
from virtco.osc import matrices
from virtco.osc import nova_facts
from virtco.topology import changes as comparison
from virtco.topology import drawing
from virtco.topology import formats
from virtco.topology import laws
from virtco.topology import naming
from virtco.topology import nova_topology as nova
from virtco.topology import tree
from virtco.topology.formats import document
from virtco.topology.formats import plain
from virtco.topology.formats import result
from virtco.wire import topology as wire

#: Changes and hosts beyond these are counted, not listed.
MAX_LISTED = 200


class Import(base.Command):
    """Replace planes of the topology by those of a file or of Nova

    Without --apply it only prints what would change.
    """

    example = 'topology.yaml --apply'

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        source = parser.add_mutually_exclusive_group(required=True)
        source.add_argument('file', nargs='?', metavar='<file>',
                            help='The file; - is standard input')
        source.add_argument(
            '--from-nova', action='store_true',
            help='Read metadata of aggregates (virtco:rack=NAME), '
                 'availability zones and provider traits '
                 '(CUSTOM_RACK_NAME)')
        parser.add_argument('--format', choices=formats.READ,
                            metavar='<format>',
                            help='Format of the file: '
                                 f'{", ".join(formats.READ)}; default: '
                                 'recognised by its text')
        parser.add_argument('--plane', metavar='<name>',
                            help='Name of the plane where there is one, '
                                 f'default {tree.FRONT_END}')
        parser.add_argument(
            '--levels', metavar='<names>',
            help='Names of the levels from the hosts upwards, such as '
                 'rack,pod,zone')
        parser.add_argument('--apply', action='store_true',
                            help='Change the topology')
        return parser

    def take_action(self, args: Any) -> None:
        read = self._read(args)
        for notice in read.notices:
            self.tell(f'Notice: {notice}.\n')
        planes = plain.dump(read.topology)['planes']
        if not planes:
            raise osc_exceptions.CommandError('There is nothing to import.')
        _change(self, planes, args.apply)

    def _read(self, args: Any) -> result.Read:
        levels = _names(args.levels)
        if args.from_nova:
            levels = levels or tree.LEVEL_NAMES
            facts = nova_facts.read(self.app.client_manager.session, levels)
            return nova.read(*facts, levels, args.plane or tree.FRONT_END)
        found = formats.read(
            self.read('file', args.file, document.MAX_BYTES), args.file,
            args.format, args.plane)
        if levels:
            found = result.Read(formats.renamed(found.topology, levels),
                                found.notices)
        return found


class Discover(base.Command):
    """Find the tree above the hypervisors by measuring

    All hypervisors send at the same time by TCP, in rounds of different pairs:
    pairs that cross an oversubscribed uplink get a lower rate. Takes minutes
    and a part of the probes' budget. Without --apply it only prints the
    changes.
    """

    example = '--levels rack,pod --apply'
    arguments = (
        base.argument('--hosts', metavar='<host>,…',
                      help='Hosts that take part; default: all that report'),
        base.argument('--plane', metavar='<name>',
                      default=tree.FRONT_END,
                      help='Name of the plane (default: %(default)s)'),
        base.argument(
            '--levels', metavar='<names>',
            help='Names of the levels from the hosts upwards; default: '
                 'those of the existing plane, or rack,pod,zone'),
        base.argument('--timeout', type=float, default=3600.0,
                      metavar='<seconds>',
                      help='Longest wait for the result (default 3600)'),
        base.APPLY)

    def take_action(self, args: Any) -> None:
        client = self.client
        found = matrices.ended(client, client.check(
            args.hosts and args.hosts.split(','), purpose='discover'),
            args.timeout)
        self.tell(f'{matrices.effort(found)}.\n')
        if not found.planes:
            self.app.stdout.write('No uplink is oversubscribed: the hosts\' '
                                  'links limit all pairs alike.\n')
            return
        (plane,) = base.topology_of(found.planes).planes
        old = base.topology_of(client.topology().planes)
        topology = tree.Topology((dataclasses.replace(
            naming.renamed(plane, old.plane(args.plane)),
            name=args.plane),))
        if levels := _names(args.levels):
            topology = formats.renamed(topology, levels)
        _change(self, plain.dump(topology)['planes'], args.apply)


def _change(asked: base.Command, planes: list[dict[str, Any]], applied: bool
            ) -> None:
    """Print the changes that these planes make, and apply them if wanted."""
    found = asked.client.change_topology(planes, dry_run=not applied)
    changes = found.changes
    out = asked.app.stdout.write
    plane = None
    for change in changes[:MAX_LISTED]:
        if change.plane != plane:
            plane = change.plane
            out(f'plane {plane}\n')
        out(f'  {comparison.written(change)}\n')
    if len(changes) > MAX_LISTED:
        out(f'  … and {len(changes) - MAX_LISTED} more\n')
    for name, hosts in found.hosts_without_leaf.items():
        _tell(out, drawing.without_leaf(name, hosts))
    if applied:
        out(f'{len(changes)} changes applied.\n')
    elif changes:
        out(f'{len(changes)} changes; --apply makes them.\n')
    else:
        out('Nothing would change.\n')


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(',')) if text else ()


def _tell(out: Any, lines: Iterable[str]) -> None:
    for line in lines:
        out(line + '\n')


def _chosen(found: wire.Topology, plane: str | None) -> tree.Topology:
    """Return the topology of an answer, or one plane of it."""
    topology = base.topology_of(found.planes)
    if plane is None:
        return topology
    one = topology.plane(plane)
    if one is None:
        raise osc_exceptions.CommandError(f'There is no plane {plane!r}.')
    return tree.Topology((one,))


class Export(base.Command):
    """Write the topology to a file or to standard output"""

    example = 'topology.yaml'
    arguments = (
        base.argument('file', nargs='?', default='-', metavar='<file>',
                      help='The file; default: standard output'),
        base.argument('--format', choices=formats.NAMES,
                      default=formats.YAML, metavar='<format>',
                      help=f'Format: {", ".join(formats.NAMES)}; default '
                           '%(default)s'),
        base.PLANE)

    def take_action(self, args: Any) -> None:
        topology = _chosen(self.client.topology(), args.plane)
        written = formats.write(topology, args.format)
        for notice in written.notices:
            self.tell(f'Notice: {notice}.\n')
        if args.file == '-':
            self.app.stdout.write(written.text)
            return
        try:
            pathlib.Path(args.file).write_text(written.text, encoding='utf-8')
        except OSError as error:
            raise exception.InputInvalid(
                where=args.file, field='file', value=error.strerror,
                limit='a writable file') from None


class Show(base.Command):
    """Draw the topology as text, or as a picture with --plot"""

    example = '--plane front-end'
    arguments = (
        base.PLANE,
        base.argument('--plot', metavar='<file>',
                      help='Draw one plane into a PNG, SVG or PDF'))

    def take_action(self, args: Any) -> None:
        found = self.client.topology()
        topology = _chosen(found, args.plane)
        if args.plot is not None:
            _plot(topology, args.plot)
            return
        out = self.app.stdout.write
        if not topology.planes:
            out('There is no topology: every host is on one switch that '
                'limits nothing.\n')
        for plane in topology.planes:
            _tell(out, drawing.plane(plane))
            _tell(out, drawing.without_leaf(
                plane.name, found.hosts_without_leaf[plane.name]))


def _plot(topology: tree.Topology, path: str) -> None:
    if not topology.planes:
        raise osc_exceptions.CommandError('There is nothing to draw.')
    plane = topology.plane(tree.FRONT_END) or topology.planes[0]
    base.save_plot('virtco.topology.plot', plane, path)


class Delete(base.Command):
    """Delete a plane of the topology"""

    asks = wire.DELETE
    example = 'back-end'
    arguments = (base.argument('plane', help='Name of the plane'),)

    def take_action(self, args: Any) -> None:
        laws.name(args.plane, (), 'plane')
        self.ask(args)
