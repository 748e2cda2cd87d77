# SPDX-License-Identifier: Apache-2.0

"""Notices changes of the kernel's state by other programs, over netlink.

The kernel announces changes of qdiscs, classes and filters, of devices, and of
nftables, including changes by this module. A socket filter drops the latter:
this module's netlink sockets have ports of their own range, and nftables names
the process. Noticed are, for example, ovs-vswitchd replacing a port's ingress
qdisc or the root qdisc, ``nft flush ruleset``, ``tc class change``, and a
device that goes, comes back or has another MTU.
"""

import ctypes
import dataclasses
import logging
import os
import pathlib
import select
import socket
import struct

from edge_module.privileged import kernel_calls as kernel
from edge_module.qdisc import wire

LOG = logging.getLogger(__name__)

_RTMGRP_LINK, _RTMGRP_TC = 1, 8
_QDISCS = (wire.RTM_NEWQDISC, wire.RTM_DELQDISC)
_SO_ATTACH_FILTER = 26
_SO_RCVBUFFORCE = 33
_SOL_NETLINK, _ADD_MEMBERSHIP = 270, 1
_NETLINK_NETFILTER, _NFNLGRP_NFTABLES = 12, 7
_NFT_NEWGEN, _GEN_PROC_PID, _TABLE_NAME = 0x0A0F, 2, 1
_GENMSG_BYTES = 4
_BUFFER_BYTES = 4 * 1024 * 1024
# Classic BPF: load a byte, compare, accept or drop.
_LOAD_BYTE, _JUMP_IF_EQUAL, _RETURN = 0x30, 0x15, 0x06
_INSTRUCTION = struct.Struct('HBBI')
_PROGRAM = struct.Struct('HP')
_PORT_TOP_BYTE = 15 if struct.pack('=H', 1)[0] else 12


@dataclasses.dataclass(frozen=True, slots=True)
class Changes:
    """Changes by other programs since the last call of ``changes``.

    :ivar devices: ifindexes of devices with a changed qdisc, class or filter;
        None when announcements were lost.
    :ivar links: whether any device came, went or was changed.
    :ivar gone: ifindexes of devices that went, of which some may be back.
    :ivar tables: whether any table of nftables was changed.
    """

    devices: frozenset[int] | None = frozenset()
    links: bool = False
    tables: bool = False
    gone: frozenset[int] = frozenset()


class KernelWatch:
    """Listener to announcements in the caller's network namespace.

    Create it before privileges are given up: nftables announces to
    CAP_NET_ADMIN only. Without that capability, changes of nftables are found
    by the next audit.
    """

    def __init__(self) -> None:
        self._route = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
        _drop_own(self._route)
        self._route.bind((0, _RTMGRP_TC | _RTMGRP_LINK))
        self._route.setblocking(False)
        self._tables = _listen_to_tables()
        self._in_transaction = False
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)

    def close(self) -> None:
        self._route.close()
        if self._tables is not None:
            self._tables.close()

    def wait(self, timeout_s: float, deaf_s: float = 0.0) -> None:
        """Return when something was announced, after :meth:`wake`, or when
        the time is over.

        :param deaf_s: seconds in which no announcement is waited for.
        """
        announcing = [sock.fileno() for sock in (self._route, self._tables)
                      if sock is not None]
        deaf_s = min(deaf_s, timeout_s)
        for heard, wait_s in ([], deaf_s), (announcing, timeout_s - deaf_s):
            ready, _, _ = select.select([self._wake, *heard], [], [], wait_s)
            if self._wake in ready:
                os.eventfd_read(self._wake)
                return

    def wake(self) -> None:
        """End the :meth:`wait` of another thread, or the next one."""
        os.eventfd_write(self._wake, 1)

    def changes(self) -> Changes:
        """Read the announcements since the last call, without waiting."""
        devices: set[int] | None = set()
        gone: set[int] = set()
        links = False
        try:
            for kind, body in _messages(self._route):
                if kind in (wire.RTM_NEWLINK, wire.RTM_DELLINK):
                    links = True
                    if kind == wire.RTM_DELLINK:
                        gone.add(wire.IFINFOMSG.unpack_from(body)[2])
                    continue
                _, ifindex, handle, _, _ = wire.TCMSG.unpack_from(body)
                # A device's default qdisc, which gives way, has no handle.
                if devices is not None and (handle or kind not in _QDISCS):
                    devices.add(ifindex)
        except OSError:  # ENOBUFS
            devices, links = None, True
        return Changes(None if devices is None else frozenset(devices),
                       links, self._tables_changed(), frozenset(gone))

    def _tables_changed(self) -> bool:
        """Return whether another program changed our table since last asked.
        """
        if self._tables is None:
            return False
        changed = False
        try:
            for kind, body in _messages(self._tables):
                if kind == _NFT_NEWGEN:
                    # Ends a transaction, and says whose it was.
                    changed |= self._in_transaction and not _is_own(body)
                    self._in_transaction = False
                else:
                    self._in_transaction |= _is_of_our_table(body)
        except OSError:  # ENOBUFS
            return True
        return changed


def _messages(sock: socket.socket) -> list[tuple[int, bytes]]:
    """Read (type, body) of all messages that wait on a socket.

    :raises OSError: when announcements were lost.
    """
    found: list[tuple[int, bytes]] = []
    while True:
        try:
            found += [(kind, body) for kind, _, _, body
                      in kernel.receive(sock)]
        except BlockingIOError:
            return found


def _listen_to_tables() -> socket.socket | None:
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW,
                         _NETLINK_NETFILTER)
    try:
        # Room for announcements of our own changes, too, entry by entry.
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        sock.bind((0, 0))
        sock.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, _NFNLGRP_NFTABLES)
        sock.setblocking(False)
    except OSError as error:
        LOG.warning('No announcements of nftables, what others change there '
                    'is found by the next comparison: %s', error)
        sock.close()
        return None
    return sock


def _is_of_our_table(body: bytes) -> bool:
    """Return whether a message is about an object of virtco's table."""
    return (_TABLE_NAME, b'virtco\0') in wire.attrs(body, _GENMSG_BYTES)


def _is_own(body: bytes) -> bool:
    """Return whether this process or a child of it made a transaction."""
    thread = dict(wire.attrs(body, _GENMSG_BYTES)).get(_GEN_PROC_PID, b'')
    try:
        status = pathlib.Path(
            f'/proc/{int.from_bytes(thread, "big")}/status').read_text()
    except OSError:
        return False
    fields = dict(line.split(':', 1) for line in status.splitlines())
    return os.getpid() in (int(fields['Tgid']), int(fields['PPid']))


def _drop_own(sock: socket.socket) -> None:
    program = (
        (_LOAD_BYTE, 0, 0, _PORT_TOP_BYTE),
        (_JUMP_IF_EQUAL, 0, 1, kernel.PORTS >> 24),
        (_RETURN, 0, 0, 0), (_RETURN, 0, 0, 0xFFFFFFFF))
    code = ctypes.create_string_buffer(
        b''.join(_INSTRUCTION.pack(*one) for one in program))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, _PROGRAM.pack(
        len(program), ctypes.addressof(code)))
