# SPDX-License-Identifier: Apache-2.0

"""Commands ``profile …`` and ``app …``: traffic of groups and applications."""

from collections.abc import Iterator
from typing import Any

import msgspec

from virtco.osc import command_base as base
from virtco.osc import table_columns as columns
from virtco.wire import profile as wire

ListProfiles = base.declared(
    base.Lister, wire.LIST, base.PROJECT, example='--long',
    shown='group_name app n_vms n_hours last_hour')


class ShowProfile(base.Lister):
    """Show the bytes of each pair of VMs of a group, and of the next hour

    The error is that of the same prediction on the hours before.
    """

    row, shown = base.row_of('src dst size_bytes next_bytes error method',
                             'hours is_seen')
    example = 'wordcount'

    arguments = (
        base.PROJECT,
        base.argument('group', help='Name or id; the latest of a name'))

    def entries(self, args: Any) -> list[msgspec.Struct]:
        found = self.client.call(wire.SHOW, args.group, args.project_id)
        self.tell(*_summary(found))
        # Only the largest pairs are predicted.
        return [self.row(pair.src, pair.dst, pair.size_bytes,
                         None if hour is None else hour.size_bytes,
                         None if hour is None else hour.error_fraction,
                         None if hour is None else hour.method,
                         pair.hours, pair.is_seen)
                for pair in found.pairs for hour in [pair.next_hour]]


def _summary(found: wire.Profile) -> Iterator[str]:
    """Summarize a profile, line by line."""
    coming = found.next_hour
    size, after = (columns.cell('size_bytes', value).human_readable()
                   for value in (found.size_bytes, coming.size_bytes))
    error = coming.error_fraction
    told = 'unknown yet' if error is None else f'{error:.0%}'
    yield (f'Group {found.group_name} of {found.n_vms} VMs: {size} in '
           f'{found.n_hours} hours')
    yield f'Next hour: {after} by {coming.method}, error {told}'
    if found.pattern:
        yield f'Matrix: {found.pattern}'
    unseen = sum(not pair.is_seen for pair in found.pairs)
    if unseen:
        yield f'{unseen} pairs share a host: nobody counts them'


APP = base.argument('name', metavar='app', help='Value of virtco:app')
ListApps = base.declared(base.Lister, wire.LIST_APPS, base.PROJECT,
                         example='--long', shown='app n_launches last_hour')
DeleteApp = base.declared(base.Command, wire.FORGET_APP, base.PROJECT, APP,
                          example='wordcount')


class ShowApp(base.ShowOne):
    """Show the matrix that an application's next launch would get"""

    asks = wire.SHOW_APP
    example = 'wordcount --vms 8'
    arguments = (
        APP, base.argument('--vms', dest='n_vms', type=int, metavar='<n>',
                           help='Number of VMs of that launch, default that '
                                'of the last one'),
        base.PROJECT)

    def entry(self, args: Any) -> msgspec.Struct:
        found: wire.App = self.ask(args)
        return msgspec.structs.replace(
            found, tm=msgspec.json.encode(found.tm).decode())
