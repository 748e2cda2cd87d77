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
"""Hears when a qdisc disappears, whoever took it away.

ovs-vswitchd takes the plain ingress qdisc of a port, with every filter on it,
when it starts and when it configures a port whose device has changed; it takes
the root qdisc when another QoS is set at the port, or when it starts and finds
none. The kernel announces it, to listeners without privileges too.
"""

import ctypes
import os
import select
import socket
import struct

from edge_module.qdisc import wire

_RTMGRP_TC = 8
_SO_ATTACH_FILTER = 26
_HEADER_BYTES = 16
_TYPE_OFFSET = 4
# Classic BPF: load a half word (big-endian), compare, accept or drop.
_LOAD_HALF, _JUMP_IF_EQUAL, _RETURN = 0x28, 0x15, 0x06
_INSTRUCTION = struct.Struct('=HBBI')
_PROGRAM = struct.Struct('HP')


class QdiscWatch:
    """Announcements of deleted qdiscs in the caller's network namespace."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
        # Every change of a class is announced too; it wakes nobody up.
        _accept_only(self._socket, wire.RTM_DELQDISC)
        self._socket.bind((0, _RTMGRP_TC))
        self._socket.setblocking(False)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)

    def close(self) -> None:
        self._socket.close()

    def wait(self, timeout_s: float) -> None:
        """Return when something was announced, after :meth:`wake`, or when
        the time is over.
        """
        ready, _, _ = select.select(
            [self._socket.fileno(), self._wake], [], [], timeout_s)
        if self._wake in ready:
            os.eventfd_read(self._wake)

    def wake(self) -> None:
        """End the :meth:`wait` of another thread, or the next one."""
        os.eventfd_write(self._wake, 1)

    def lost(self) -> set[int] | None:
        """Indexes of the devices that lost a qdisc since the last call.

        None when there were more announcements than the kernel keeps.
        """
        found: set[int] = set()
        while True:
            try:
                data = self._socket.recv(1 << 16)
            except BlockingIOError:
                return found
            except OSError:  # ENOBUFS
                return None
            _, ifindex, handle, _, _ = wire.TCMSG.unpack_from(
                data, _HEADER_BYTES)
            if handle:  # a device's default qdisc, which gives way, has none
                found.add(ifindex)


def _accept_only(sock: socket.socket, message_type: int) -> None:
    program = b''.join((
        _INSTRUCTION.pack(_LOAD_HALF, 0, 0, _TYPE_OFFSET),
        _INSTRUCTION.pack(_JUMP_IF_EQUAL, 0, 1, socket.htons(message_type)),
        _INSTRUCTION.pack(_RETURN, 0, 0, 0xFFFFFFFF),
        _INSTRUCTION.pack(_RETURN, 0, 0, 0)))
    code = ctypes.create_string_buffer(program, len(program))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, _PROGRAM.pack(
        len(program) // _INSTRUCTION.size, ctypes.addressof(code)))
