# SPDX-License-Identifier: Apache-2.0

"""``profile …`` and ``app …``: what groups sent, and what was learned."""

import json
from typing import Any

from osc_lib.command import command

from virtco.osc import base
from virtco.osc import columns


class _Parser(command.Command):
    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.add_argument('--project', metavar='<project>',
                            help='Project id, default your own')
        return parser


class ListProfiles(_Parser, base.Lister):
    """List the groups of which is known what they sent"""

    shown = ['group_name', 'app', 'n_vms', 'n_hours', 'last_hour']
    more = ['group_id', 'project_id', 'first_hour']

    def entries(self, args: Any) -> list[dict[str, Any]]:
        return base.client_of(self.app).profiles(args.project)


class ShowProfile(_Parser, base.Lister):
    """Show what each pair of VMs of a group sent, and will send next hour

    The error is that of the same prediction on the hours before.
    """

    shown = ['src', 'dst', 'size_bytes', 'next_bytes', 'error', 'method']
    more = ['hours', 'is_seen']

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.add_argument('group', help='Name or id; the latest of a name')
        return parser

    def entries(self, args: Any) -> list[dict[str, Any]]:
        found = base.client_of(self.app).profile(args.group, args.project)
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


class ListApps(_Parser, base.Lister):
    """List the applications of which something was learned"""

    shown = ['app', 'n_launches', 'last_hour']
    more = ['project_id']

    def entries(self, args: Any) -> list[dict[str, Any]]:
        return base.client_of(self.app).apps(args.project)


class _App(_Parser):
    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.add_argument('app', help='Value of virtco:app')
        return parser


class ShowApp(_App, base.ShowOne):
    """Show the matrix that an application's next launch would get"""

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.add_argument('--vms', type=int, metavar='<n>',
                            help='VMs of that launch, default as the last')
        return parser

    def entry(self, args: Any) -> dict[str, Any]:
        found = base.client_of(self.app).app(args.app, args.vms,
                                             args.project)
        return found | {'launches': len(found['launches']),
                        'tm': json.dumps(found['tm'],
                                         separators=(',', ':'))}


class ForgetApp(_App):
    """Forget what was learned of an application"""

    def take_action(self, args: Any) -> None:
        base.client_of(self.app).forget_app(args.app, args.project)
