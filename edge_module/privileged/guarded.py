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
"""The functions of ``kernel``, run by a helper process that may.

The helper keeps CAP_NET_ADMIN and CAP_NET_RAW and nothing else of
root; the agent that asks it has no privileges at all.
Each call is held against ``limits`` in the helper.
"""

import os
import pwd
import time

from oslo_privsep import capabilities
from oslo_privsep import priv_context

from edge_module.privileged import kernel
from edge_module.privileged import limits

context = priv_context.PrivContext(
    'edge_module.privileged', cfg_section='edge_privileged',
    pypath=__name__ + '.context', capabilities=[
        capabilities.CAP_NET_ADMIN, capabilities.CAP_NET_RAW])

# Reading needs no privilege.
tc_dump = kernel.tc_dump


@context.entrypoint
def tc_send(messages: list[tuple[int, int, bytes]]
            ) -> list[tuple[int, int]]:
    limits.configured().check_tc(messages)
    return kernel.tc_send(messages)


@context.entrypoint
def nft_run(commands: str) -> tuple[int, str, str]:
    limits.configured().check_nft(commands)
    return kernel.nft_run(commands)


@context.entrypoint
def ofctl_run(arguments: list[str], text: str) -> tuple[int, str, str]:
    limits.configured().check_ofctl(arguments, text)
    return kernel.ofctl_run(arguments, text)


@context.entrypoint
def cpu_s() -> float:
    """Processor time of the helper."""
    return time.process_time()


def alive() -> bool:
    """Whether the helper still answers."""
    return context.channel is not None and context.channel.running


def start_and_drop(user: str) -> None:
    """Fork the helper, then become a user without privileges.

    Call it as root and before any thread is started.

    :raises KeyError: when there is no such user.
    """
    entry = pwd.getpwnam(user)
    context.start(priv_context.Method.FORK)
    os.initgroups(user, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)


def start_by_helper() -> None:
    """Have the helper started by the configured command (sudo)."""
    context.start(priv_context.Method.ROOTWRAP)
