# SPDX-License-Identifier: Apache-2.0

"""Calls of ``edge_module.privileged.kernel_calls``, made in a helper process.

The helper has a user of its own and keeps two capabilities; the agent that
asks it has no privileges at all. It sends typed operations, which the helper
decodes, holds against the devices of virtco, and builds by itself.
"""

from collections.abc import Callable
from collections.abc import Sequence
import contextlib
import ctypes
import functools
import os
import pwd
import sys
import threading
import time
from typing import Annotated
from typing import Any

import msgspec
from oslo_config import cfg
from oslo_privsep import capabilities
from oslo_privsep import priv_context

from edge_module.privileged import kernel_calls as kernel
from edge_module.privileged import operations
from edge_module.privileged import owned
from edge_module.privileged import pinned
from virtco import exception

_SECTION = 'edge_privileged'
_PR_SET_NO_NEW_PRIVS = 38
# Older releases of the library do not name it.
_CAP_BPF = 39
# Kind of a process's clock, as in linux/posix-timers.h.
_CPUCLOCK_SCHED = 2
_helper_pid = 0
_GONE = 'the helper is gone'

context = priv_context.PrivContext(
    'edge_module.privileged', cfg_section=_SECTION,
    pypath=__name__ + '.context', capabilities=[
        capabilities.CAP_NET_ADMIN, _CAP_BPF])

# More than the largest policy needs in one call.
_MOST = msgspec.Meta(max_length=500_000)
_Tc = Annotated[list[operations.TcOperation], _MOST]
_Classify = tuple[operations.HookName,
                  Annotated[list[operations.ClassifyOperation], _MOST]]
_Listings = Annotated[list[operations.Listing], _MOST]
_MapListings = Annotated[list[operations.MapListing], _MOST]


def _tc_change(changes: _Tc) -> list[int]:
    owned.configured().check_tc(changes)
    return kernel.tc_change(changes)


def _classify(make: Callable[..., str | None], change: _Classify
              ) -> str | None:
    owned.configured().check_hooks(*change)
    return make(*change)


_CALLS: dict[str, tuple[msgspec.msgpack.Decoder[Any], Callable[[Any], Any]]]
_CALLS = {name: (msgspec.msgpack.Decoder(asked), make)
          for name, asked, make in (
              ('tc_change', _Tc, _tc_change),
              ('nft_change', _Classify, functools.partial(
                  _classify, kernel.nft_change)),
              ('nft_read', _Listings, kernel.nft_read),
              ('bpf_change', _Classify, functools.partial(
                  _classify, kernel.bpf_change)),
              ('bpf_read', _MapListings, kernel.bpf_read),
              ('bpf_missing', type(None), lambda _: kernel.bpf_missing()))}


@context.entrypoint
def call(name: str, data: bytes) -> Any:
    """Have the helper :func:`perform`; the only thing it is asked for."""
    return perform(name, data)


def perform(name: str, data: bytes) -> Any:
    """Make one of the calls.

    :param data: its argument, encoded by msgpack.
    :raises operations.Refused: for another call, or another type of argument.
    """
    if name not in _CALLS:
        raise operations.Refused(f'call {name[:80]!r}')
    decoder, make = _CALLS[name]
    try:
        return make(decoder.decode(data))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise operations.Refused(f'{name}: {error}') from error


@context.entrypoint
def seal() -> int:
    """Have the helper load nothing more; its process id."""
    owned.configured()
    # The library would import the module of any function that is named.
    sys.meta_path.clear()
    return os.getpid()


def _ask(name: str, argument: Any) -> Any:
    """Have the helper make a call; return its result.

    :raises virtco.exception.KernelRefused: also without a helper.
    """
    try:
        if not alive():
            raise ConnectionResetError(_GONE)
        return call(name, msgspec.msgpack.encode(argument))
    except OSError as error:
        raise exception.KernelRefused(what=f'make the call {name}', count=1,
                                      why=str(error)) from error


tc_change, nft_read, bpf_read = (
    functools.partial(_ask, name)
    for name in ('tc_change', 'nft_read', 'bpf_read'))
bpf_missing = functools.partial(_ask, 'bpf_missing', None)
# Reading needs no privilege.
tc_dump = kernel.tc_dump


def _change(name: str, hook: operations.HookName,
            changes: Sequence[operations.ClassifyOperation]) -> str | None:
    """Have the helper change a classification; as the call in process."""
    errors: str | None = _ask(name, (hook, changes))
    return errors


nft_change, bpf_change = (functools.partial(_change, name)
                          for name in ('nft_change', 'bpf_change'))


def cpu_s() -> float:
    """Return CPU seconds of the helper; anybody may read this clock."""
    return time.clock_gettime(~_helper_pid << 3 | _CPUCLOCK_SCHED)


def _tell_of_end(pid: int) -> None:
    """Wait for the helper's end, and end all waiting for its answers.

    The library waits for ever for one that is killed with a question unread.
    """
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    channel = context.channel
    assert channel is not None
    with channel.lock:
        channel.running = False
        for answer in channel.outstanding_msgs.values():
            answer.set_exception(ConnectionResetError(_GONE))


def alive() -> bool:
    """Return whether the helper still answers."""
    return context.channel is not None and context.channel.running


def start_and_drop(user: str, helper_user: str) -> None:
    """Fork the helper, then become a user without privileges.

    Call it as root and before any thread is started.

    :raises KeyError: when there is no such user.
    """
    entry = pwd.getpwnam(user)
    helper = pwd.getpwnam(helper_user)
    # If there is none, nftables classifies.
    with contextlib.suppress(OSError):
        pinned.open_directory(helper.pw_uid)
    # Neither gets more than it has, by any program that it starts.
    ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    cfg.CONF.set_override('user', str(helper.pw_uid), _SECTION)
    cfg.CONF.set_override('group', str(helper.pw_gid), _SECTION)
    # A unit of an earlier version does not grant it.
    if _CAP_BPF not in capabilities.get_caps()[1]:
        cfg.CONF.set_override('capabilities', [capabilities.CAP_NET_ADMIN],
                              _SECTION)
    # The library would start another one by sudo.
    cfg.CONF.set_override('helper_command', 'false', _SECTION)
    context.start(priv_context.Method.FORK)
    global _helper_pid
    _helper_pid = seal()
    threading.Thread(target=_tell_of_end, args=(_helper_pid,), name='helper',
                     daemon=True).start()
    os.initgroups(user, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)
