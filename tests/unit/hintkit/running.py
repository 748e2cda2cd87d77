# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Runs the commands in this process, as the program ``virtco`` would."""

import contextlib
import io
import types

from cliff import app as cliff_app
from cliff import commandmanager

from virtco.hintkit import commands

COMMANDS = {
    'check': commands.Check, 'from-pattern': commands.FromPattern,
    'from-mpi': commands.FromMpi, 'from-spark-eventlog': commands.FromSpark,
    'from-nccl': commands.FromNccl, 'from-torch': commands.FromTorch,
    'from-aicb': commands.FromAicb,
    'from-observed': commands.FromObserved}


def hint(name, *argv, client=None):
    """What ``virtco hint NAME ARGV`` prints; its errors are raised."""
    out = io.StringIO()
    app = cliff_app.App('', '1', commandmanager.CommandManager('none'),
                        stdout=out)
    app.client_manager = types.SimpleNamespace(at=lambda url: client)
    command = COMMANDS[name](app, None)
    args = command.get_parser(f'virtco hint {name}').parse_args(list(argv))
    with contextlib.redirect_stdout(out):
        command.take_action(args)
    return out.getvalue()
