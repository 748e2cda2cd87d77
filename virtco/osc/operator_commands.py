# SPDX-License-Identifier: Apache-2.0

"""``host …``, ``placement explain``, ``advice list``, ``settings …``."""

from collections.abc import Sequence
import typing
from typing import Any

import msgspec

from virtco import units
from virtco.osc import command_base as base
from virtco.osc import table_columns as columns
from virtco.wire import host as host_wire
from virtco.wire import placement as placement_wire
from virtco.wire import plan as plan_wire
from virtco.wire import setting as setting_wire


class ListHosts(base.Lister):
    """List hypervisors and their uplinks, or the classes of one"""

    asks = host_wire.LIST
    shown = ['host', 'egress_bps', 'ingress_bps', 'rate_source', 'n_coflows',
             'health']
    example = '--sort-column health'
    arguments = (
        base.argument('--classes', metavar='<host>',
                      help='List the classes of this hypervisor instead, '
                           'with their allocated and observed rates'),)

    def entries(self, args: Any) -> Sequence[msgspec.Struct]:
        if args.classes is None:
            return super().entries(args)
        self.row = host_wire.Class
        self.shown = ['name', 'prio', 'rate_bps', 'observed_bps',
                      'backlog_bytes']
        return self.client.call(host_wire.SHOW, args.classes).classes or []


class SetHost(base.ShowOne):
    """Plan no new group for a hypervisor, or use it again (operators)

    VMs stay where they are, with their rates; the state is "drained" once no
    VM of a group is left.
    """

    example = "compute-11 --drain --reason 'new fans'"
    arguments = (
        base.HOST,
        base.argument('--reason', default='',
                      help='Reason of --drain, shown by host show'),
        base.OneOf((
            base.argument('--drain', action='store_true',
                          help='Plan no new group for it'),
            base.argument('--undrain', action='store_true',
                          help='Use it again'))))

    def entry(self, args: Any) -> host_wire.Drained:
        if args.drain:
            return self.client.call(host_wire.DRAIN, args.host, args.reason)
        self.client.call(host_wire.UNDRAIN, args.host)
        return host_wire.Drained(host=args.host, drain=None,
                                 drain_reason=None, drain_since=None)


DeleteHost = base.declared(
    base.Command, host_wire.FORGET, base.HOST,
    told="""Delete all that is known of a hypervisor (operators)

    One with VMs of groups stays. One whose edge module still reports is known
    again with its next report.
    """, example='compute-11')
ShowSettings = base.declared(base.ShowOne, setting_wire.SHOW,
                             example='-f json')


class ShowHost(base.ShowOne):
    """Show a hypervisor"""

    asks = host_wire.SHOW
    example = 'compute-11'
    arguments = (base.HOST,)

    def entry(self, args: Any) -> msgspec.Struct:
        return msgspec.structs.replace(super().entry(args),
                                       classes=msgspec.UNSET)


class ExplainPlacement(base.Lister):
    """Explain why an instance was placed on its host"""

    row: Any = placement_wire.RankedHost
    shown = ['rank', 'host', 'cct_s', 'why']
    example = 'sort-2 --reasons'

    arguments = (
        base.argument('instance', help='Id or name of the server'),
        base.argument('--reasons', action='store_true',
                      help='List the reasons instead of the hosts'),
        base.argument('--budget', type=float, metavar='<seconds>',
                      help='Time of the search for reasons'))

    def entries(self, args: Any) -> Sequence[msgspec.Struct]:
        instance = base.find_instance(self.client, args.instance)
        found = self.client.call(placement_wire.SHOW, instance)
        explained = self.client.call(placement_wire.EXPLAIN, instance,
                                     args.budget)
        self.tell(*_summary(found, explained))
        if not args.reasons:
            return found.hosts
        self.row = placement_wire.Reason
        self.shown = ['kind', 'subject', 'host', 'cct_s', 'instead_of_s']
        return explained.reasons


def _summary(found: placement_wire.Kept,
             explained: placement_wire.Explanation) -> list[str]:
    """Summarize a placement, line by line."""
    lines = [f'Instance {found.instance_uuid}: {found.status}']
    if found.host is not None:
        lines[0] += f' on {found.host}'
    if found.host_now not in (None, found.host):
        lines.append(f'It is on {found.host_now} now.')
    lines.append(f'Why: {found.why}')
    if found.cct_s is not None:
        lines.append(
            f'Group {found.group_name}, row {found.row}: '
            f'{columns.bounds(found)}, by {found.method}')
        if found.bottleneck:
            lines.append(f'Limiting: {found.bottleneck}')
    if explained.phases_s:
        lines.append('Time of the plan: ' + ', '.join(
            f'{phase} {units.format_time(spent_s)}' for phase, spent_s
            in explained.phases_s.items() if spent_s >= 1e-4))
    lines += [f'- {reason.text}' for reason in explained.reasons]
    lines += [f'Check: {one.kind} of {one.subject} has '
              f'{units.format_rate(one.rate_bps)} instead of '
              f'{units.format_rate(one.expected_bps)}'
              for one in explained.findings]
    if explained.why_not and found.status == 'planned':
        lines.append(f'What decided is unknown: {explained.why_not}')
    elif not explained.is_complete and found.status == 'planned':
        lines.append('There was no time for every question; give --budget.')
    return lines


class ListAdvice(base.Lister):
    """List moves of running VMs that would pay (operators)

    The moves are those of the last re-evaluation. --now searches now, as a dry
    run: nothing is stored or moved.
    """

    row = plan_wire.Move
    shown = ['group_name', 'row', 'host', 'to_host', 'saved_s', 'cost_s',
             'state']
    example = '--now --budget 5'

    arguments = (
        base.argument('--now', action='store_true',
                      help='Search now, as a dry run'),
        base.argument('--budget', type=float, metavar='<seconds>',
                      help='Time of the search, with --now'))

    def entries(self, args: Any) -> list[plan_wire.Move]:
        found = (self.client.call(plan_wire.LOOK, args.budget) if args.now
                 else self.client.call(plan_wire.MOVES))
        return found.moves


class SetSettings(base.Change):
    """Change run-time settings"""

    asks = setting_wire.CHANGE
    example = '--order sebf'
    arguments = tuple(
        base.argument(f'--{field.name}', metavar=f'<{field.name}>',
                      help=f'One of {", ".join(typing.get_args(field.type))}')
        for field in msgspec.structs.fields(setting_wire.Settings))
