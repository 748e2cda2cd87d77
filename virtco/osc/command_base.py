# SPDX-License-Identifier: Apache-2.0

"""Base classes and arguments of the commands.

They run in two programs: ``virtco`` and, as a plug-in, ``openstack``. Both
have the client at ``client_manager.coflow``.
"""

import argparse
from collections.abc import Sequence
import importlib
import shutil
import textwrap
import typing
from typing import Any
from typing import NamedTuple
import uuid

import msgspec
from osc_lib import exceptions as osc_exceptions
from osc_lib.command import command

from virtco import decoding
from virtco import exception
from virtco.client import projects
from virtco.client import v1
from virtco.cmd import entry
from virtco.osc import table_columns as columns
from virtco.wire import coflow_bodies as coflow_wire
from virtco.wire import host as host_wire
from virtco.wire import operation

#: Longest text of a file, but of a topology.
MOST_TEXT_CHARS = 4 << 20
#: Coflows that a command lists; a project may have a million.
MOST_COFLOWS = 5000

Argument = tuple[tuple[str, ...], dict[str, Any]]


def argument(*names: str, **options: Any) -> Argument:
    """Declare an argument by its names and options in argparse."""
    return names, options


class OneOf(NamedTuple):
    """Arguments of which a call has one, or one at most."""

    arguments: tuple[Argument, ...]
    is_required: bool = True


COFLOW = argument('coflow_id', metavar='coflow', help='Id or name')
HOST = argument('host', help='Name of the hypervisor')
GROUP = argument('group', help='Id or name')
#: Help of each argument that :meth:`Command.text_of` reads.
MATRIX = ('Matrix as in the hint virtco:tm, as JSON text or @FILE; - is '
          'standard input')
TM = argument('tm', help=MATRIX)
PROJECT = argument('--project', dest='project_id', metavar='<project>',
                   help='Name or id, default your own')
PLANE = argument('--plane', metavar='<name>', help='Only this plane')


def only_of_project(what: str) -> Argument:
    """Declare the option that selects the things of one project."""
    return argument('--project', dest='project_id', metavar='<project>',
                    help=f'Only {what} of this project, by name or id')


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Formatter that keeps the lines of the description and the example."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return super()._fill_text(
            text.replace('::\n\n', ':\n'), width, indent)


class Command(command.Command):
    """A command with its arguments declared, and the controller's client.

    :ivar example: arguments of a call, shown at the end of the help.
    :ivar asks: operation that the command asks for.
    """

    arguments: tuple[Argument | OneOf, ...] = ()
    example: str
    asks: operation.Operation[Any]

    def get_parser(self, prog_name: str) -> Any:
        """Declare the arguments, and the example at the end of the help."""
        parser: Any = super().get_parser(prog_name)
        parser.formatter_class = _Formatter
        # Text in reStructuredText, of which the reference is made, too.
        parser.epilog = '\n\n'.join(filter(None, (
            f'Example::\n\n  {prog_name} {self.example}', parser.epilog)))
        parser.set_defaults(fit_width=True, long=False)
        for declared in self.arguments:
            if isinstance(declared, OneOf):
                group = parser.add_mutually_exclusive_group(
                    required=declared.is_required)
                for names, options in declared.arguments:
                    group.add_argument(*names, **options)
            else:
                names, options = declared
                parser.add_argument(*names, **options)
        return parser

    @property
    def client(self) -> v1.Client:
        """Client of the controller."""
        app: Any = self.app
        client: v1.Client = app.client_manager.coflow
        return client

    def ask(self, args: Any) -> Any:
        """Ask for the operation; arguments are called as its parameters."""
        known = self.asks.parameters
        given = {name: value for name, value in vars(args).items()
                 if name in known}
        if 'coflow_id' in given:
            given['coflow_id'] = find_coflow(self.client, given['coflow_id'])
        if isinstance(given.get('tm'), str):
            given['tm'] = self.text_of(given['tm'])
        return self.client.call(self.asks, **given)

    def run(self, parsed_args: Any) -> int:
        app: Any = self.app
        if getattr(parsed_args, 'project_id', None) is not None:
            parsed_args.project_id = projects.find(
                app.client_manager.session, parsed_args.project_id)
        code: int = super().run(parsed_args)
        return code

    def take_action(self, args: Any) -> Any:
        """Ask for the operation, and show its answer."""
        self.ask(args)

    def tell(self, *lines: str) -> None:
        """Write lines to the error stream, so that JSON stays JSON; wrap them
        to the terminal's width.
        """
        width = shutil.get_terminal_size().columns
        for line in columns.harmless('\n'.join(lines)).splitlines():
            self.app.stderr.write(textwrap.fill(
                line, width, subsequent_indent='  ', break_long_words=False,
                break_on_hyphens=False) + '\n')

    def write(self, *lines: str) -> None:
        """Write lines to the output stream."""
        self.app.stdout.writelines(f'{line}\n' for line in lines)

    def text_of(self, value: str) -> str:
        """Return JSON text itself, or that of FILE, @FILE or -."""
        return (value if value.lstrip()[:1] in ('[', '{')
                else self.read('tm', value.removeprefix('@')))

    def read(self, field: str, path: str,
             most_chars: int = MOST_TEXT_CHARS) -> str:
        """Read a text file; - is standard input. It may begin with a mark of
        its byte order.

        :raises virtco.exception.Invalid: naming the field.
        """
        try:
            if path == '-':
                stdin: Any = self.app.stdin
                if hasattr(stdin, 'reconfigure'):
                    stdin.reconfigure(encoding='utf-8-sig')
                text: str = stdin.read(most_chars + 1)
            else:
                with open(path, encoding='utf-8-sig') as file:
                    text = file.read(most_chars + 1)
        except (OSError, UnicodeDecodeError) as error:
            raise exception.Invalid(
                field=field, value=path, limit='text in UTF-8 that can be '
                f'read ({exception.reason(error)})') from error
        if len(text) > most_chars:
            raise exception.Invalid(
                field=field, value=path,
                limit=f'a text of at most {most_chars} bytes')
        return text

    def read_json(self, field: str, path: str) -> Any:
        """Read a file of JSON text; - is standard input.

        :raises virtco.exception.Invalid: naming the field.
        """
        return decode_json(field, path, self.read(field, path))


class Lister(Command, command.Lister):
    """Shows ``shown`` of each row; ``--long`` adds the others of its type.

    The columns of ``shown`` fit a terminal of 80 columns. :meth:`entries` may
    set both for rows of another type.

    :ivar row: type of the rows, that of the list in the answer by default.
    """

    row: Any
    shown: list[str]

    def __init_subclass__(cls) -> None:
        if 'asks' in vars(cls) and 'row' not in vars(cls):
            cls.row = typing.get_args(_list_in(cls.asks.answer).type)[0]

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        if len(columns.fields(self.row)) > len(self.shown):
            parser.add_argument('--long', action='store_true',
                                help='Show more columns')
        return parser

    def entries(self, args: Any) -> Sequence[msgspec.Struct]:
        """Ask for the rows."""
        found: Sequence[msgspec.Struct] = getattr(
            self.ask(args), _list_in(self.asks.answer).name)
        return found

    def take_action(self, args: Any) -> tuple[list[str], list[Any]]:
        entries = self.entries(args)
        # Programs get all, and so does who names columns.
        is_long = args.formatter != 'table' or args.columns or args.long
        names = [*self.shown, *(
            name for name in columns.fields(self.row)
            if is_long and name not in self.shown)]
        return _heads(args, names), [columns.cells(names, entry)
                                     for entry in entries]


class ShowOne(Command, command.ShowOne):
    """Shows every field of one thing."""

    def entry(self, args: Any) -> msgspec.Struct:
        """Ask for the thing."""
        found: msgspec.Struct = self.ask(args)
        return found

    def take_action(self, args: Any) -> tuple[list[str], tuple[Any, ...]]:
        entry = self.entry(args)
        names = columns.fields(entry)
        return _heads(args, names), columns.cells(names, entry)


class Change(ShowOne):
    """Changes at least one field of a thing, and shows it."""

    arguments: tuple[Argument, ...] = ()

    def entry(self, args: Any) -> msgspec.Struct:
        if all(getattr(args, name, None) is None
               for name in self.asks.body.__struct_fields__):
            *first, last = (flag for (flag, *_), _options in self.arguments
                            if flag.startswith('--'))
            raise osc_exceptions.CommandError(
                f'Give {", ".join(first)} or {last}.')
        return super().entry(args)


def declared(kind: type[Command], asks: operation.Operation[Any],
             *arguments: Argument, example: str, told: str = '',
             shown: str = '') -> Any:
    """Declare a command that shows the answer of an operation.

    :param example: arguments of a call.
    :param told: help, by default the summary of the operation.
    :param shown: columns of a :class:`Lister`.
    """
    return type(asks.name, (kind,), {
        '__doc__': told or asks.summary.rstrip('.'), '__module__': __name__,
        'asks': asks, 'arguments': arguments, 'example': example,
        'shown': shown.split()})


def row_of(shown: str, long: str = '') -> tuple[Any, list[str]]:
    """Make ``row`` and ``shown`` of a :class:`Lister` whose rows no answer
    has.

    :param shown: fields of a row in their order.
    :param long: fields after them, which ``--long`` adds.
    """
    names = shown.split()
    row = msgspec.defstruct('Row', [*names, *long.split()], frozen=True)
    return row, names


def _list_in(answer: Any) -> msgspec.structs.FieldInfo:
    """Find the list of things in an answer."""
    return next(field for field in msgspec.structs.fields(answer)
                if typing.get_origin(field.type) is list)


def decode_json(field: str, given: str, text: str) -> Any:
    """Decode JSON text.

    :param given: argument that gave the text.
    :raises virtco.exception.Invalid: naming the field.
    """
    try:
        return decoding.loads(text)
    except (exception.Invalid, ValueError) as error:
        raise exception.Invalid(field=field, value=given[:100],
                                limit='JSON text') from error


def hosts_of(client: v1.Client) -> list[host_wire.Host] | None:
    """List the hosts; None where the caller may not know of them."""
    try:
        return client.call(host_wire.LIST).hosts
    except exception.Forbidden:
        return None


class NoSuchCoflow(osc_exceptions.CommandError):
    """No coflow has the name or id that was asked for."""


def coflows_of(client: v1.Client, project_id: str | None = None, *,
               limit: int | None = None, marker: str | None = None,
               **query: Any) -> list[coflow_wire.Coflow]:
    """List the newest coflows in order of age, answer by answer.

    :param limit: most coflows; None: :data:`MOST_COFLOWS`.
    :param marker: id of a coflow; only older ones are listed.
    :param query: further parameters of the query.
    """
    found: list[coflow_wire.Coflow] = []
    left = MOST_COFLOWS if limit is None else limit
    while True:
        most = min(left, coflow_wire.MOST_LISTED)
        part = client.call(coflow_wire.LIST, project_id, limit=most,
                           marker=marker, **query).coflows
        found = [*part, *found]
        left -= most
        if len(part) < most or not left:
            return found
        marker = part[0].id


def find_coflow(client: v1.Client, name_or_id: str) -> str:
    """Find the id of a coflow by its id or its unique name.

    Among several of a name the one that is not over is meant. The list is of
    the newest coflows, so an id that is not in it may still be one.

    :raises NoSuchCoflow:
    """
    found: list[coflow_wire.Coflow] = []
    # Nearly all are retired, and one of them may have the id that another is
    # called.
    for retired in (True,) if _is_id(name_or_id) else (False, True):
        found = [c for c in coflows_of(client, retired=retired)
                 if name_or_id in (c.id, c.name, c.group_name)]
        if found:
            break
    exact = [c for c in found if c.id == name_or_id]
    live = [c for c in found if c.state not in ('done', 'retired')]
    for choice in (exact, live, found):
        if len(choice) == 1:
            return choice[0].id
    if not found:
        if _is_id(name_or_id):
            return name_or_id
        raise NoSuchCoflow(f'There is no coflow {name_or_id!r}.')
    raise osc_exceptions.CommandError(
        f'{len(found)} coflows are called {name_or_id!r}; give an id of '
        + ', '.join(c.id for c in found))


def find_instance(client: v1.Client, name_or_id: str) -> str:
    """Find the id of a VM of a group by its id or its server's unique name."""
    if _is_id(name_or_id):
        return str(uuid.UUID(name_or_id))
    of_groups = {one.group: one.id
                 for one in coflows_of(client, server=name_or_id)}
    found = {member.instance_uuid for coflow_id in of_groups.values()
             for member in client.call(
                 coflow_wire.SHOW, coflow_id).members or ()
             if member.display_name == name_or_id
             and member.instance_uuid is not None}
    if not found:
        raise osc_exceptions.CommandError(
            f'There is no VM of a group called {name_or_id!r}.')
    if len(found) > 1:
        raise osc_exceptions.CommandError(
            f'{len(found)} VMs of groups are called {name_or_id!r}; give an '
            f'id of {", ".join(sorted(found))}.')
    return found.pop()


def _is_id(text: str) -> bool:
    """Tell whether a text is the id of a coflow or server."""
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


def _heads(args: Any, names: list[str]) -> list[str]:
    """Return titles in tables, elsewhere the API's names.

    ``--column`` and ``--sort-column`` take either.
    """
    heads = {name: columns.title(name) if args.formatter == 'table' else name
             for name in names}
    either = {columns.title(name).lower(): head
              for name, head in heads.items()} | heads
    for option in {'columns', 'sort_columns'} & vars(args).keys():
        setattr(args, option, [
            either.get(wanted, either.get(wanted.lower(), wanted))
            for wanted in getattr(args, option)])
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
            where=path, field='file', value=str(error),
            limit='a writable file *.png, *.svg or *.pdf'
        ) from None
