# SPDX-License-Identifier: Apache-2.0

"""``measure check``, ``measure matrix`` and ``rate list``."""

from collections.abc import Sequence
import csv
import time
import typing
from typing import Any

import msgspec
from osc_lib import exceptions as osc_exceptions

from virtco.client import v1
from virtco.osc import command_base as base
from virtco.wire import check as check_wire
from virtco.wire import rate as rate_wire

POLL_S = 0.5


def ended(client: v1.Client, found: check_wire.Check, timeout_s: float
          ) -> check_wire.Check:
    """Wait until a check is over.

    :raises osc_lib.exceptions.CommandError: where it fails or takes longer.
    """
    until_s = time.monotonic() + timeout_s
    while found.state in ('waiting', 'running'):
        if time.monotonic() > until_s:
            raise osc_exceptions.CommandError(
                f'Check {found.check_id} is not over after '
                f'{timeout_s:g} s; virtco measure check --list shows it.')
        time.sleep(POLL_S)
        found = client.call(check_wire.SHOW, found.check_id)
    if found.state == 'failed':
        raise osc_exceptions.CommandError(
            f'The check failed: {found.why or "see the log of the controller"}'
            '.')
    return found


def effort(found: check_wire.Check) -> str:
    """Format the hosts, rounds, time and bytes that a check took."""
    return (f'{len(found.hosts)} hosts, {found.n_rounds} rounds in '
            f'{found.seconds or 0.0:.1f} s, {found.sent_bytes / 1e6:.1f} MB, '
            f'{found.n_failed} trains failed')


class _Checked(check_wire.Check, frozen=True, kw_only=True):
    subjects: str


class Check(base.Lister):
    """Check hypervisors before they are used, or list the latest checks

    Rounds of packet trains between disjoint pairs find hosts and leaf uplinks
    with a low rate. Placements use the findings.
    """

    row, shown = base.row_of(
        'kind subject rate_bps expected_bps n_readings')
    example = '--hosts compute-11,compute-12,compute-13'

    arguments = (
        base.OneOf((
            base.argument('--hosts', metavar='<host>,…',
                          help='Hosts to check, at least two'),
            base.argument('--group', metavar='<group>', help=(
                'The hosts of this group\'s VMs; name or id')),
            base.argument('--list', action='store_true',
                          help='List the latest checks'))),
        base.argument('--timeout', type=float, default=300.0,
                      metavar='<seconds>',
                      help='Longest wait for the result (default 300)'))

    def entries(self, args: Any) -> Sequence[msgspec.Struct]:
        client = self.client
        if args.list:
            self.row = _Checked
            self.shown = ['check_id', 'purpose', 'state', 'trigger',
                          'n_hosts', 'n_findings']
            return [_Checked(**msgspec.structs.asdict(one), subjects=', '.join(
                f'{found.kind} {found.subject}' for found in one.findings))
                    for one in client.call(check_wire.LIST).checks]
        found = client.call(
            check_wire.ORDER,
            None if args.hosts is None else args.hosts.split(','),
            args.group)
        found = ended(client, found, args.timeout)
        self.tell(
            f'{effort(found)}: {len(found.findings) or "nothing"} found.')
        return [self.row(one.kind, one.subject, one.rate_bps,
                         one.expected_bps, len(one.evidence or ()))
                for one in found.findings]


class ListRates(base.Lister):
    """List measured rates of pairs of hypervisors, or poor hypervisors"""

    asks = rate_wire.LIST
    shown = ['src', 'dst', 'rate_bps', 'age_s', 'confidence', 'rtt_s']
    example = '--sort-column rate'

    arguments = (
        base.argument('--hosts', action='store_true',
                      help='List hypervisors with poor rates or latencies, '
                           'and the reasons, instead of pairs'),
        base.argument('--all', action='store_true',
                      help='With --hosts: list the others, too'))

    def entries(self, args: Any) -> Sequence[msgspec.Struct]:
        if not args.hosts:
            return super().entries(args)
        self.row = rate_wire.Performer
        self.shown = ['host', 'egress_bps', 'ingress_bps', 'rtt_s', 'reasons']
        found = self.client.call(rate_wire.PERFORMERS)
        if found.estimator is not None:
            self.tell(
                f'Long-term rates by {found.estimator}, Norm(N_E) '
                f'{found.noise:.2f}: {found.trust}.')
        return [one for one in found.hosts if one.reasons or args.all]


class Matrix(base.Command):
    """Write the matrix of rates or latencies between hypervisors"""

    example = 'rate --statistic median > rates.csv'
    arguments = (
        base.argument('kind', choices=typing.get_args(rate_wire.Kind),
                      help='Quantity of the matrix'),
        base.argument(
            '--statistic', metavar='<name>', help=(
                'constant (default of rates), latest, median (default of '
                'latencies), least, most or range of the readings kept')),
        base.argument('--at', type=float, metavar='<seconds>', help=(
            'State at this time, in seconds since 1970')),
        base.argument('--hosts', metavar='<host>,…',
                      help='Only these hosts'),
        base.argument('--format', choices=['csv', 'json'],
                      default='csv', help='Default csv'),
        base.argument('--plot', metavar='<file>',
                      help='Draw a heat map: PNG, SVG or PDF'))

    def take_action(self, args: Any) -> None:
        found = self.client.call(
            rate_wire.MATRIX,
            args.kind, args.statistic, args.at, hosts=args.hosts or None)
        if args.plot is not None:
            if not found.hosts:
                raise osc_exceptions.CommandError('There is nothing to draw.')
            base.save_plot('virtco.measure.heatmap', found, args.plot)
        elif args.format == 'json':
            self.write(msgspec.json.encode(found).decode())
        else:
            writer = csv.writer(self.app.stdout, lineterminator='\n')
            writer.writerow([f'{found.kind} {found.unit}',
                             *found.hosts])
            for host, row in zip(found.hosts, found.values):
                writer.writerow([host, *('' if value is None else repr(value)
                                         for value in row)])
