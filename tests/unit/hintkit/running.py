# SPDX-License-Identifier: Apache-2.0

"""Runs the commands in this process, as the program ``virtco`` would."""

import contextlib
import io
import types

from cliff import app as cliff_app
from cliff import commandmanager

from virtco_tenant.hintkit import program


def hint(name, *argv, client=None):
    """What ``virtco hint NAME ARGV`` prints; its errors are raised."""
    out = io.StringIO()
    app = cliff_app.App('', '1', commandmanager.CommandManager('none'),
                        stdout=out)
    app.client_manager = types.SimpleNamespace(
        at=lambda url: client, coflow=client, session=None)
    command = program.COMMANDS[name](app, None)
    args = command.get_parser(f'virtco hint {name}').parse_args(list(argv))
    with contextlib.redirect_stdout(out):
        command.take_action(args)
    return out.getvalue()
