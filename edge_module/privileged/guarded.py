# SPDX-License-Identifier: Apache-2.0

"""Calls of ``edge_module.privileged.kernel_calls``, made in a helper process.

The helper has a user of its own and keeps CAP_NET_ADMIN alone; the agent that
asks it has no privileges at all. What the helper does for it stands in one
table, with what each call is held against.
"""

from collections.abc import Callable
from collections.abc import Sequence
import ctypes
import functools
import importlib.abc
import os
import pwd
import sys
import threading
import time
from typing import Annotated
from typing import Any
from typing import NoReturn

import msgspec
from oslo_config import cfg
from oslo_privsep import capabilities
from oslo_privsep import priv_context

from edge_module.privileged import helper_limits as limits
from edge_module.privileged import kernel_calls as kernel
from edge_module.privileged import operations
from edge_module.privileged import owned
from virtco import exception

_SECTION = 'edge_privileged'
_PR_SET_NO_NEW_PRIVS = 38
_GONE = 'the helper is gone'

context = priv_context.PrivContext(
    'edge_module.privileged', cfg_section=_SECTION,
    pypath=__name__ + '.context', capabilities=[capabilities.CAP_NET_ADMIN])

# More operations than the largest policy needs in one call.
_MOST_OPERATIONS = 500_000
_TC = msgspec.msgpack.Decoder(Annotated[
    list[operations.TcOperation], msgspec.Meta(max_length=_MOST_OPERATIONS)])


def _tc_change(data: bytes) -> list[tuple[int, int]]:
    try:
        changes = _TC.decode(data)
    except msgspec.DecodeError as error:
        raise owned.Refused(f'tc_change: {error}') from error
    owned.configured().check_tc(changes)
    return kernel.tc_change(changes)


_CALLS: dict[str, tuple[Callable[..., None], Callable[..., Any]]] = {
    'tc_change': (lambda held_against, data: None, _tc_change),
    'nft_run': (limits.Limits.check_nft, kernel.nft_run),
    'cpu_s': (lambda held_against: None, time.process_time),
}


@context.entrypoint
def call(name: str, *arguments: Any) -> Any:
    """Make one of the calls; the only thing that the helper is asked for.

    :raises owned.Refused: for another one.
    """
    if name not in _CALLS:
        raise owned.Refused(f'call {name[:80]!r}')
    check, make = _CALLS[name]
    check(limits.configured(), *arguments)
    return make(*arguments)


@context.entrypoint
def seal() -> None:
    """Have the helper load nothing more, whatever it is asked for."""
    limits.configured()
    owned.configured()
    sys.meta_path.insert(0, _NoImport())


def _ask(name: str, *arguments: Any) -> Any:
    """:raises virtco.exception.KernelRefused: also without a helper."""
    try:
        if not alive():
            raise ConnectionResetError(_GONE)
        return call(name, *arguments)
    except OSError as error:
        raise exception.KernelRefused(what=f'make the call {name}', count=1,
                                      why=str(error)) from error


nft_run, cpu_s = (
    functools.partial(_ask, name) for name in ('nft_run', 'cpu_s'))
# Reading needs no privilege.
tc_dump = kernel.tc_dump


def tc_change(changes: Sequence[operations.TcOperation]
              ) -> list[tuple[int, int]]:
    """Have the helper change queues; as the call in process."""
    made: list[tuple[int, int]] = _ask(
        'tc_change', msgspec.msgpack.encode(changes))
    return made


class _NoImport(importlib.abc.MetaPathFinder):
    """The library would import the module of any function that is named."""

    def find_spec(self, fullname: str, path: Sequence[str] | None,
                  target: Any = None) -> NoReturn:
        raise ModuleNotFoundError(f'{fullname} is not loaded by the helper',
                                  name=fullname)


def _tell_of_end() -> None:
    """Wait for the helper's end, and end all waiting for its answers.

    The library waits for ever for one that is killed with a question unread.
    """
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    channel = context.channel
    assert channel is not None
    with channel.lock:
        channel.running = False
        for answer in channel.outstanding_msgs.values():
            answer.set_exception(ConnectionResetError(_GONE))


def alive() -> bool:
    """Whether the helper still answers."""
    return context.channel is not None and context.channel.running


def start_and_drop(user: str, helper_user: str) -> None:
    """Fork the helper, then become a user without privileges.

    Call it as root and before any thread is started.

    :raises KeyError: when there is no such user.
    """
    entry = pwd.getpwnam(user)
    helper = pwd.getpwnam(helper_user)
    # Neither gets more than it has, by any program that it starts.
    ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    cfg.CONF.set_override('user', str(helper.pw_uid), _SECTION)
    cfg.CONF.set_override('group', str(helper.pw_gid), _SECTION)
    # The library would start another one by sudo.
    cfg.CONF.set_override('helper_command', 'false', _SECTION)
    context.start(priv_context.Method.FORK)
    seal()
    threading.Thread(target=_tell_of_end, name='helper', daemon=True).start()
    os.initgroups(user, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)
