# SPDX-License-Identifier: Apache-2.0

"""``profile …`` and ``app …``: what groups sent, and what was learned."""

import json
from typing import Any

from virtco.osc import command_base as base
from virtco.osc import table_columns as columns


class ListProfiles(base.Lister):
    """List the groups of which is known what they sent"""

    shown = ['group_name', 'app', 'n_vms', 'n_hours', 'last_hour']
    more = ['group_id', 'project_id', 'first_hour']
    arguments = (base.PROJECT,)

    def entries(self, args: Any) -> list[dict[str, Any]]:
        return self.client.profiles(args.project)


class ShowProfile(base.Lister):
    """Show what each pair of VMs of a group sent, and will send next hour

    The error is that of the same prediction on the hours before.
    """

    shown = ['src', 'dst', 'size_bytes', 'next_bytes', 'error', 'method']
    more = ['hours', 'is_seen']

    arguments = (
        base.PROJECT,
        base.argument('group', help='Name or id; the latest of a name'))

    def entries(self, args: Any) -> list[dict[str, Any]]:
        found = self.client.profile(args.group, args.project)
        self.app.stderr.write(_summary(found))
        return [pair | _next(pair['next_hour']) for pair in found['pairs']]


def _next(predicted: dict[str, Any] | None) -> dict[str, Any]:
    """None: only the largest pairs are predicted."""
    found = predicted or {}
    return {'next_bytes': found.get('size_bytes'),
            'error': found.get('error_fraction'),
            'method': found.get('method')}


def _summary(found: dict[str, Any]) -> str:
    """For people; it goes to the error stream, so JSON stays JSON."""
    coming = found['next_hour']
    size, after = (columns.cell('size_bytes', value).human_readable()
                   for value in (found['size_bytes'], coming['size_bytes']))
    error = coming['error_fraction']
    told = 'unknown yet' if error is None else f'{error:.0%}'
    lines = [f'Group {found["group_name"]} of {found["n_vms"]} VMs: {size} in '
             f'{found["n_hours"]} hours',
             f'Next hour: {after} by {coming["method"]}, error {told}']
    if found['pattern']:
        lines.append(f'Matrix: {found["pattern"]}')
    unseen = sum(not pair['is_seen'] for pair in found['pairs'])
    if unseen:
        lines.append(f'{unseen} pairs share a host: nobody counts them')
    return '\n'.join(lines) + '\n'


class ListApps(base.Lister):
    """List the applications of which something was learned"""

    shown = ['app', 'n_launches', 'last_hour']
    more = ['project_id']
    arguments = (base.PROJECT,)

    def entries(self, args: Any) -> list[dict[str, Any]]:
        return self.client.apps(args.project)


APP = base.argument('app', help='Value of virtco:app')


class ShowApp(base.ShowOne):
    """Show the matrix that an application's next launch would get"""

    arguments = (
        base.PROJECT, APP,
        base.argument('--vms', type=int, metavar='<n>',
                      help='VMs of that launch, default as the last'))

    def entry(self, args: Any) -> dict[str, Any]:
        found = self.client.app(args.app, args.vms, args.project)
        return found | {'launches': len(found['launches']),
                        'tm': json.dumps(found['tm'],
                                         separators=(',', ':'))}


class ForgetApp(base.Command):
    """Forget what was learned of an application"""

    arguments = (base.PROJECT, APP)

    def take_action(self, args: Any) -> None:
        self.client.forget_app(args.app, args.project)
