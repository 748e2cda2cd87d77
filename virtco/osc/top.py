# SPDX-License-Identifier: Apache-2.0

"""``virtco top``: coflows in serving order, and hosts with their rates."""

import time
from typing import Any

from osc_lib import exceptions as osc_exceptions
from rich import console
from rich import live

from virtco import exception
from virtco import screenshot
from virtco.client import v1
from virtco.osc import command_base as base
from virtco.osc import overview
from virtco.wire import host as host_wire

#: Hosts whose classes are asked for, one call each.
MOST_HOSTS = 64


class Top(base.Command):
    """Watch coflows in serving order, and hosts

    Ctrl-C ends it.
    """

    example = '--state active --sort order'
    arguments = (
        base.argument('--once', action='store_true',
                      help='Print it once'),
        base.argument('--svg', metavar='<file>',
                      help='Print it once, and as a picture to a file'),
        base.argument('--interval', type=float, default=2.0,
                      metavar='<seconds>',
                      help='Time between two updates, at least 0.5; default '
                           '2'),
        base.only_of_project('coflows'),
        base.argument('--state', metavar='<state>',
                      help='Only coflows in this state'),
        base.argument('--filter', default='', metavar='<text>',
                      help='Only rows with this text in the name of the '
                           'coflow, its group, project or hosts'),
        base.argument('--sort', choices=list(overview.SORTS),
                      default='order',
                      help='Order of the rows; order: as they are served '
                           '(default)'),
        base.argument('--rows', type=int, default=20, metavar='<n>',
                      help='Most rows of each table, default 20'))

    def take_action(self, args: Any) -> None:
        for field, value, least in (('--interval', args.interval, 0.5),
                                    ('--rows', args.rows, 1)):
            if not value >= least:  # nor NaN
                raise exception.Invalid(field=field, value=value,
                                        limit=f'at least {least}')
        client = self.client
        screen = console.Console(file=self.app.stdout, highlight=False,
                                 markup=False, record=args.svg is not None)
        if args.once or args.svg:
            screen.print(_look(client, args))
            if args.svg:
                _draw(screen, args.svg)
            return
        with live.Live(_look(client, args), console=screen, screen=True,
                       auto_refresh=False) as shown:
            try:
                while True:
                    time.sleep(args.interval)
                    shown.update(_again(client, args), refresh=True)
            except KeyboardInterrupt:
                return


def _draw(screen: console.Console, path: str) -> None:
    try:
        screenshot.save(screen, path, 'virtco top')
    except OSError as error:
        raise osc_exceptions.CommandError(
            f'--svg {path}: {error.strerror}') from error


def _again(client: v1.Client, args: Any) -> console.RenderableType:
    """Look again; show an outage as a line until the next answer."""
    try:
        return _look(client, args)
    except exception.VirtcoException as error:
        return console.Group(f'{error}', '', f'Next look in '
                             f'{args.interval:g} s.')


def _look(client: v1.Client, args: Any) -> console.Group:
    return overview.screen(
        ask(client, args.project_id, args.state == 'retired'),
        sort=args.sort, words=args.filter, state=args.state,
        n_rows=args.rows)


def ask(client: v1.Client, project_id: str | None, retired: bool = False
        ) -> overview.Seen:
    """Ask a controller for its coflows and, if allowed, its hosts.

    :param retired: whether to ask for retired coflows, too, which are nearly
        all.
    """
    coflows = base.coflows_of(client, project_id, retired=retired)
    hosts = base.hosts_of(client)
    if hosts is not None and len(hosts) <= MOST_HOSTS:
        hosts = [client.call(host_wire.SHOW, host.host) for host in hosts]
    return overview.Seen(coflows, hosts, time.time(), client.url)
