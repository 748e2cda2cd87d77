# SPDX-License-Identifier: Apache-2.0

"""``virtco-hint``: the commands ``virtco hint …`` without cliff."""

import argparse
from collections.abc import Callable
import os
import sys
import types
from typing import Any

from keystoneauth1 import session as ks_session

from virtco import exception
from virtco.client import v1
from virtco.cmd import entry
from virtco_tenant import session
from virtco_tenant.hintkit import commands

COMMANDS: dict[str, Callable[[Any], Any]] = {
    'check': commands.Check, 'metadata': commands.Metadata,
    'from-pattern': commands.FromPattern, 'from-mpi': commands.FromMpi,
    'from-spark-eventlog': commands.FromSpark,
    'from-nccl': commands.FromNccl, 'from-torch': commands.FromTorch,
    'from-aicb': commands.FromAicb,
    'from-observed': commands.FromObserved}


class _Clients:
    """Clients of controllers; made when first asked for."""

    @property
    def session(self) -> ks_session.Session | None:
        return session.of_environment()

    @property
    def coflow(self) -> v1.Client:
        return self.at(os.environ.get('VIRTCO_URL', v1.DEFAULT_URL))

    def at(self, url: str) -> v1.Client:
        return v1.Client(url, self.session)


def main(argv: list[str] | None = None) -> int:
    """Run ``virtco-hint``; return its exit code."""
    words = sys.argv[1:] if argv is None else argv
    entry.bear_any_text()
    app = types.SimpleNamespace(stdout=sys.stdout, client_manager=_Clients())
    parser = argparse.ArgumentParser(
        prog='virtco-hint', description='Make and check hints; '
        '"virtco-hint COMMAND --help" lists the options of one.')
    parser.add_argument('command', choices=COMMANDS)
    command = COMMANDS[parser.parse_args(words[:1]).command](app)
    args = command.get_parser(f'virtco-hint {words[0]}').parse_args(words[1:])
    try:
        return int(command.run(args))
    except (exception.VirtcoException, OSError) as error:
        print(f'virtco-hint: {error}', file=sys.stderr)
        return 1


if __name__ == '__main__':
    sys.exit(main())
