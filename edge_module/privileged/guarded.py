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

The helper keeps CAP_NET_ADMIN and CAP_NET_RAW, CAP_BPF if it classifies by
BPF, and nothing else of root; the agent that asks it has no privileges at all.
Each call is held against ``limits`` in the helper.
"""

import os
import pwd
import time

from oslo_config import cfg
from oslo_privsep import capabilities
from oslo_privsep import priv_context

from edge_module.privileged import kernel
from edge_module.privileged import limits

_SECTION = 'edge_privileged'
_CAPABILITIES = [capabilities.CAP_NET_ADMIN, capabilities.CAP_NET_RAW]

context = priv_context.PrivContext(
    'edge_module.privileged', cfg_section=_SECTION,
    pypath=__name__ + '.context', capabilities=_CAPABILITIES)

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
def bpf_open(directory: str, program: bytes, key_bytes: int,
             value_bytes: int, most_entries: int) -> int:
    limits.configured().check_bpf(directory, program)
    return kernel.bpf_open(directory, program, key_bytes, value_bytes,
                           most_entries)


@context.entrypoint
def bpf_find(directory: str, program: bytes) -> int:
    limits.configured().check_bpf(directory, program)
    return kernel.bpf_find(directory, program)


@context.entrypoint
def bpf_update(directory: str, keys: bytes, values: bytes, count: int
               ) -> None:
    limits.configured().check_bpf(directory)
    kernel.bpf_update(directory, keys, values, count)


@context.entrypoint
def bpf_delete(directory: str, keys: list[bytes]) -> None:
    limits.configured().check_bpf(directory)
    kernel.bpf_delete(directory, keys)


@context.entrypoint
def bpf_read(directory: str, key_bytes: int, value_bytes: int
             ) -> tuple[bytes, bytes] | None:
    limits.configured().check_bpf(directory)
    return kernel.bpf_read(directory, key_bytes, value_bytes)


@context.entrypoint
def bpf_attach(directory: str, program: bytes,
               messages: list[tuple[int, int, bytes]]
               ) -> list[tuple[int, int]]:
    limits.configured().check_bpf(directory, program)
    limits.configured().check_tc(messages, attaches=True)
    return kernel.bpf_attach(directory, program, messages)


@context.entrypoint
def bpf_remove(directory: str) -> bool:
    limits.configured().check_bpf(directory)
    return kernel.bpf_remove(directory)


@context.entrypoint
def cpu_s() -> float:
    """Processor time of the helper."""
    return time.process_time()


def alive() -> bool:
    """Whether the helper still answers."""
    return context.channel is not None and context.channel.running


def start_and_drop(user: str, with_bpf: bool) -> None:
    """Fork the helper, then become a user without privileges.

    Call it as root and before any thread is started.

    :raises KeyError: when there is no such user.
    """
    entry = pwd.getpwnam(user)
    if with_bpf:
        cfg.CONF.set_default(
            'capabilities', [*_CAPABILITIES, capabilities.CAP_BPF],
            group=_SECTION)
    context.start(priv_context.Method.FORK)
    os.initgroups(user, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)


def start_by_helper() -> None:
    """Have the helper started by the configured command (sudo)."""
    context.start(priv_context.Method.ROOTWRAP)
