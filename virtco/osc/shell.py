# SPDX-License-Identifier: Apache-2.0

"""``virtco``: the operator's command line."""

from collections.abc import Iterator
from importlib import metadata
import os
import sys
from typing import Any

from cliff import app
from cliff import commandmanager
from keystoneauth1 import loading
from keystoneauth1 import noauth
from keystoneauth1 import session as ks_session

from virtco import version
from virtco.client import v1
from virtco.cmd import entry


class ClientManager:
    """Where the commands find the client; made when first asked for."""

    def __init__(self, options: Any):
        self._options = options
        self._client: v1.Client | None = None

    @property
    def coflow(self) -> v1.Client:
        """Client of the controller, at the URL that was given or else where
        the catalogue says.

        :raises virtco.exception.NotFound: where the catalogue has none.
        """
        if self._client is None:
            url, session = self._options.controller_url, self.session
            if not url and session is not None:
                url = v1.url_in_catalogue(
                    session, interface=os.environ.get('OS_INTERFACE',
                                                      'public'),
                    region_name=os.environ.get('OS_REGION_NAME'))
            self._client = self.at(url or v1.DEFAULT_URL)
        return self._client

    def at(self, url: str) -> v1.Client:
        """Make a client of the controller at ``url``."""
        return v1.Client(url, self.session or self._load(noauth.NoAuth()),
                         self._options.http_timeout)

    @property
    def session(self) -> ks_session.Session | None:
        """Session of the cloud's user; None without authentication."""
        if self._options.os_auth_type in (None, 'none'):
            return None
        return self._load(loading.load_auth_from_argparse_arguments(
            self._options))

    def _load(self, auth: Any) -> ks_session.Session:
        """Load a session with the certificates of the options."""
        found: ks_session.Session = (
            loading.load_session_from_argparse_arguments(
                self._options, auth=auth))
        return found


#: Commands of the openstack client, declared in setup.cfg.
SHARED = 'openstack.coflow.v1'


def own_name(name: str) -> str:
    """Return the name in ``virtco`` of a command of ``openstack``.

    A noun after "coflow" stands alone: coflow host list is host list, and
    coflow check is check.
    """
    first, _, rest = name.partition(' ')
    is_alone = first == 'coflow' and (' ' in rest
                                      or rest in ('check', 'doctor'))
    return rest if is_alone else name


class Commands(commandmanager.CommandManager):
    """The commands of ``openstack coflow`` and those of a group of its own.

    A command is imported when it runs, so that others need not its packages.
    """

    def load_commands(self, namespace: str) -> None:
        """Find the commands of a group, and those of ``openstack coflow``."""
        declared = metadata.entry_points()
        for group in (namespace, SHARED):
            self.commands |= {own_name(found.name.replace('_', ' ')): found
                              for found in declared.select(group=group)}

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Yield names with commands that can be imported, for help."""
        for name, found in self.commands.items():
            try:
                found.load()
            except ModuleNotFoundError:
                continue
            yield name, found


class Shell(app.App):
    """The program ``virtco``."""

    #: Only warnings of libraries are shown; -v shows their progress.
    DEFAULT_VERBOSE_LEVEL = 0

    def __init__(self) -> None:
        super().__init__(
            description='Coflows, their placement and their enforcement.',
            version=version.version_string(),
            command_manager=Commands('virtco.cli'),
            deferred_help=True)

    def build_option_parser(self, description: str | None,
                            version: str | None,
                            argparse_kwargs: Any = None) -> Any:
        """Add options for the controller's address and the login."""
        # Or hint check --controller would be --controller-url cut short.
        parser = super().build_option_parser(
            description, version,
            {**(argparse_kwargs or {}), 'allow_abbrev': False})
        parser.add_argument(
            '--controller-url', metavar='<url>',
            default=os.environ.get('VIRTCO_URL'),
            help='The controller (env: VIRTCO_URL), default with a login '
                 'where the catalogue says, else ' + v1.DEFAULT_URL)
        parser.add_argument(
            '--http-timeout', metavar='<seconds>', type=float,
            default=v1.DEFAULT_TIMEOUT_S,
            help='Longest wait for an answer of the controller')
        # An openrc says where to log in, and how only if not by password.
        loading.register_auth_argparse_arguments(
            parser, sys.argv[1:], default=os.environ.get('OS_AUTH_TYPE') or (
                'password' if os.environ.get('OS_AUTH_URL') else 'none'))
        loading.register_session_argparse_arguments(parser)
        return parser

    def initialize_app(self, argv: list[str]) -> None:
        """Make the client manager of the commands from the parsed options."""
        self.client_manager = ClientManager(self.options)

    def run_subcommand(self, argv: list[str]) -> int:
        """Name the extra to install for a command that cannot be imported.

        Errors of a command end in one line and exit code 1, by cliff.
        """
        try:
            return super().run_subcommand(argv)
        except ModuleNotFoundError as error:
            self.stderr.write(
                f'virtco {" ".join(argv)}: {entry.missing(error, "osc")}\n')
            return 1


def main(argv: list[str] | None = None) -> int:
    """Run a command of ``virtco`` and return its exit code.

    :param argv: arguments after the program's name; None: the process's.
    """
    return Shell().run(sys.argv[1:] if argv is None else argv)


if __name__ == '__main__':
    sys.exit(main())
