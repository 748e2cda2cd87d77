# SPDX-License-Identifier: Apache-2.0

"""``topology capacity``: how many groups of a flavor fit where."""

import argparse
from collections.abc import Iterator
from typing import Any

import msgspec

from virtco import decoding
from virtco import exception
from virtco.osc import command_base as base
from virtco.osc import nova_facts
from virtco.topology import drawing
from virtco.wire import fields
from virtco.wire import topology as wire


def _sizes(text: str) -> list[int]:
    try:
        found = [int(part) for part in text.split(',')]
    except ValueError:
        found = []
    if not found or not all(0 < size <= 1_000_000 for size in found):
        raise argparse.ArgumentTypeError(exception.expected(
            'numbers of VMs such as 4 or 4,8,16', repr(text)))
    return found


class _Left(msgspec.Struct, frozen=True):
    vcpus: fields.Amount
    memory_mb: fields.Amount
    disk_gb: fields.Amount


_FREE: decoding.Decoder[dict[str, Any]] = decoding.Decoder(
    dict[str, _Left], 'document')


_SHOWN, _LONG = 'switch hosts_n slots limiting', 'most_per_host'


class Capacity(base.Lister):
    """Count how many groups of VMs fit below each switch of a level

    The free resources of the hosts come from placement or from a file; room
    that the controller holds for planned groups is subtracted.
    """

    row, shown = base.row_of(_SHOWN, _LONG)
    example = '--flavor m1.large --level rack --vms 4,8'

    arguments = (
        base.argument(
            '--flavor', required=True, metavar='<flavor>',
            help=nova_facts.FLAVOR),
        base.argument('--level', default='rack', metavar='<level>',
                      help='Level of the switches, default rack'),
        base.argument(
            '--vms', type=_sizes, default=[], metavar='<n>,…',
            help='VMs of a group, default 2,4,8,16,32'),
        base.argument('--plane', metavar='<name>',
                      help='Plane of the switches'),
        base.argument(
            '--free', metavar='<file>',
            help='JSON {host: {"vcpus", "memory_mb", "disk_gb"}} instead of '
                 'asking placement; - is standard input'))

    def _free(self, path: str) -> dict[str, Any]:
        """Read the free resources of each host from a JSON file.

        :raises virtco.exception.InputInvalid: naming host and resource.
        """
        try:
            return _FREE.convert(self.read_json('document', path),
                                 strict=False)
        except exception.Invalid as error:
            raise exception.InputInvalid(where=path,
                                         **error.kwargs) from None

    def entries(self, args: Any) -> list[msgspec.Struct]:
        session = self.app.client_manager.session
        demand = nova_facts.flavor(session, args.flavor)
        free = (nova_facts.free(session, demand) if args.free is None
                else self._free(args.free))
        found = self.client.call(
            wire.CAPACITY, flavor=demand, level=args.level, plane=args.plane,
            vms=args.vms or None, hosts=[{'host': name, 'free': left}
                                         for name, left in free.items()])
        domains = found.domains
        sizes = list(domains[0].groups) if domains else []
        self.row, self.shown = base.row_of(
            ' of_'.join([_SHOWN, *sizes]), _LONG)
        self.tell(*_summary(found, sizes))
        return [self.row(one.name, one.n_hosts, one.slots, one.limiting,
                         *(one.groups[size] for size in sizes),
                         one.most_per_host)
                for one in sorted(domains, key=lambda one: (
                    -one.slots, one.name))]


def _summary(found: wire.Capacity, sizes: list[str]) -> Iterator[str]:
    """Summarize the groups of all switches, line by line."""
    for size in sizes:
        counts = [one.groups[size] for one in found.domains]
        yield (f'{sum(counts)} groups of {size} VMs, in '
               f'{sum(map(bool, counts))} of {len(counts)} switches of level '
               f'{found.level}')
    yield from drawing.without_leaf(found.plane, found.hosts_without_leaf)
