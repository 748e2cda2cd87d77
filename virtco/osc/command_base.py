# SPDX-License-Identifier: Apache-2.0

"""Base classes and arguments of the commands.

They run in two programs: ``virtco`` and, as a plug-in, ``openstack``. Both
have the client at ``client_manager.coflow``.
"""

import abc
from collections.abc import Sequence
import importlib
from typing import Any

import msgspec
from osc_lib import exceptions as osc_exceptions
from osc_lib.command import command

from virtco import exception
from virtco.client import v1
from virtco.cmd import entry
from virtco.osc import table_columns as columns
from virtco.topology import tree
from virtco.topology.formats import plain
from virtco.wire import topology as wire

Argument = tuple[tuple[str, ...], dict[str, Any]]


def argument(*names: str, **options: Any) -> Argument:
    """Names and options of an argument, as argparse takes them."""
    return names, options


COFLOW = argument('coflow', help='Id or name')
GROUP = argument('group', help='Id or name')
TM = argument('tm', help='The matrix as in the hint virtco:tm, or @FILE')
PROJECT = argument('--project', metavar='<project>',
                   help='Project id, default your own')
PLANE = argument('--plane', metavar='<name>', help='Only this one')
APPLY = argument('--apply', action='store_true', help='Change the topology')


class Command(command.Command):
    """A command with its arguments declared, and the controller's client."""

    arguments: tuple[Argument, ...] = ()

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.set_defaults(fit_width=True, long=False)
        for names, options in self.arguments:
            parser.add_argument(*names, **options)
        return parser

    @property
    def client(self) -> v1.Client:
        app: Any = self.app
        client: v1.Client = app.client_manager.coflow
        return client

    def find_coflow(self, name_or_id: str) -> str:
        return find_coflow(self.client, name_or_id)


class Lister(Command, command.Lister):
    """Shows ``shown`` of each row; ``--long`` adds the others of its type.

    The columns of ``shown`` fit a terminal of 80 columns.

    :ivar row: type of the rows.
    """

    row: type[msgspec.Struct]
    shown: list[str]

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        if len(columns.fields(self.row)) > len(self.shown):
            parser.add_argument('--long', action='store_true',
                                help='Show more columns')
        return parser

    @abc.abstractmethod
    def entries(self, args: Any) -> Sequence[msgspec.Struct]:
        """Ask for the rows."""

    def take_action(self, args: Any) -> tuple[list[str], list[Any]]:
        # Programs get all, and so does who names columns.
        is_long = args.formatter != 'table' or args.columns or args.long
        names = [*self.shown, *(
            name for name in columns.fields(self.row)
            if is_long and name not in self.shown)]
        return _heads(args, names), [columns.cells(names, entry)
                                     for entry in self.entries(args)]


class ShowOne(Command, command.ShowOne):
    """Shows every field of one thing."""

    @abc.abstractmethod
    def entry(self, args: Any) -> msgspec.Struct:
        """Ask for the thing."""

    def take_action(self, args: Any) -> tuple[list[str], tuple[Any, ...]]:
        entry = self.entry(args)
        names = columns.fields(entry)
        return _heads(args, names), columns.cells(names, entry)


def topology_of(planes: Sequence[wire.Plane]) -> tree.Topology:
    """Return the topology of the planes of an answer."""
    return plain.load({'planes': msgspec.to_builtins(planes)})


def find_coflow(client: v1.Client, name_or_id: str) -> str:
    """The id of a coflow, given its id or its name if that is unique.

    Among several of a name the one that is not over is meant.
    """
    found = [c for c in client.coflows()
             if name_or_id in (c.id, c.name, c.group_name)]
    exact = [c for c in found if c.id == name_or_id]
    live = [c for c in found if c.state not in ('done', 'retired')]
    for choice in (exact, live, found):
        if len(choice) == 1:
            return choice[0].id
    if not found:
        raise osc_exceptions.CommandError(
            f'There is no coflow {name_or_id!r}.')
    raise osc_exceptions.CommandError(
        f'{len(found)} coflows are called {name_or_id!r}; give an id of '
        + ', '.join(c.id for c in found))


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


def save_plot(module: str, drawn: Any, path: str) -> None:
    """Let a module's ``save`` draw a picture, as the extra ``plot`` can.

    :raises virtco.exception.InputInvalid: when it cannot be written.
    """
    try:
        importlib.import_module(module).save(drawn, path)
    except ModuleNotFoundError as error:
        raise osc_exceptions.CommandError(
            entry.missing(error, 'plot')) from None
    except (OSError, ValueError) as error:
        raise exception.InputInvalid(
            where=path, field='file', value=str(error)[:80],
            limit='a file *.png, *.svg or *.pdf that can be written'
        ) from None
