# SPDX-License-Identifier: Apache-2.0

"""What the commands share.

They run in two programs: ``virtco`` and, as a plug-in, ``openstack``. Both
have the client at ``client_manager.coflow``.
"""

import abc
from typing import Any

from osc_lib import exceptions as osc_exceptions
from osc_lib.command import command

from virtco.client import v1
from virtco.osc import columns


def client_of(app: Any) -> v1.Client:
    client: v1.Client = app.client_manager.coflow
    return client


def _heads(args: Any, names: list[str]) -> list[str]:
    """Titles in tables, elsewhere the API's names.

    ``--column`` takes either.
    """
    heads = {name: columns.title(name) if args.formatter == 'table' else name
             for name in names}
    either = {columns.title(name).lower(): head
              for name, head in heads.items()} | heads
    args.columns = [either.get(wanted, either.get(wanted.lower(), wanted))
                    for wanted in args.columns]
    return list(heads.values())


class Lister(command.Lister):
    """Shows ``shown`` of each entry; ``--long`` adds ``more``.

    What is shown fits a terminal of 80 columns.
    """

    shown: list[str] = []
    more: list[str] = []

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.set_defaults(fit_width=True, long=False)
        if self.more:
            parser.add_argument('--long', action='store_true',
                                help='Show more columns')
        return parser

    @abc.abstractmethod
    def entries(self, args: Any) -> list[dict[str, Any]]:
        """Ask for what the rows show."""

    def take_action(self, args: Any) -> tuple[list[str], list[Any]]:
        # Programs get all, and so does who names columns.
        is_long = args.formatter != 'table' or args.columns or args.long
        names = self.shown + (self.more if is_long else [])
        return _heads(args, names), [columns.row(names, entry)
                                     for entry in self.entries(args)]


class ShowOne(command.ShowOne):
    """Shows every field of one thing."""

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.set_defaults(fit_width=True)
        return parser

    @abc.abstractmethod
    def entry(self, args: Any) -> dict[str, Any]:
        """Ask for what is shown."""

    def take_action(self, args: Any) -> tuple[list[str], tuple[Any, ...]]:
        entry = self.entry(args)
        names = list(entry)
        return _heads(args, names), columns.row(names, entry)


def find_coflow(client: v1.Client, name_or_id: str) -> str:
    """The id of a coflow, given its id or its name if that is unique.

    Among several of a name the one that is not over is meant.
    """
    found = [c for c in client.coflows()
             if name_or_id in (c['id'], c['name'], c['group_name'])]
    exact = [c for c in found if c['id'] == name_or_id]
    live = [c for c in found if c['state'] not in ('done', 'retired')]
    for choice in (exact, live, found):
        if len(choice) == 1:
            return str(choice[0]['id'])
    if not found:
        raise osc_exceptions.CommandError(
            f'There is no coflow {name_or_id!r}.')
    raise osc_exceptions.CommandError(
        f'{len(found)} coflows are called {name_or_id!r}; give an id of '
        + ', '.join(c['id'] for c in found))
