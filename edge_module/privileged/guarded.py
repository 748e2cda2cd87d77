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
from typing import Any
from typing import NoReturn

from oslo_config import cfg
from oslo_privsep import capabilities
from oslo_privsep import priv_context

from edge_module.privileged import helper_limits as limits
from edge_module.privileged import kernel_calls as kernel
from virtco import exception

_SECTION = 'edge_privileged'
_PR_SET_NO_NEW_PRIVS = 38
_GONE = 'the helper is gone'

context = priv_context.PrivContext(
    'edge_module.privileged', cfg_section=_SECTION,
    pypath=__name__ + '.context', capabilities=[capabilities.CAP_NET_ADMIN])

_CALLS: dict[str, tuple[Callable[..., None], Callable[..., Any]]] = {
    'tc_send': (limits.Limits.check_tc, kernel.tc_send),
    'nft_run': (limits.Limits.check_nft, kernel.nft_run),
    'cpu_s': (lambda held_against: None, time.process_time),
}


@context.entrypoint
def call(name: str, *arguments: Any) -> Any:
    """Make one of the calls; the only thing that the helper is asked for.

    :raises limits.Refused: for another one.
    """
    if name not in _CALLS:
        raise limits.Refused(f'call {name[:80]!r}')
    check, make = _CALLS[name]
    check(limits.configured(), *arguments)
    return make(*arguments)


@context.entrypoint
def seal() -> None:
    """Have the helper load nothing more, whatever it is asked for."""
    limits.configured()
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


tc_send, nft_run, cpu_s = (
    functools.partial(_ask, name) for name in _CALLS)
# Reading needs no privilege.
tc_dump = kernel.tc_dump


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
