# SPDX-License-Identifier: Apache-2.0

"""The device under a train: its counters and its address."""

import fcntl
import socket
import struct

from edge_module import rdma

_SIOCGIFADDR = 0x8915
#: Columns of ``/proc/net/dev``.
RECEIVED, SENT = 0, 8


def read_bytes(dev: str | None, column: int) -> int:
    """Read the bytes that a device received or sent, with those of RDMA; 0
    without it.
    """
    # thread-self, because threads may live in namespaces of their own.
    with open('/proc/thread-self/net/dev', encoding='ascii') as lines:
        for line in lines:
            name, _, numbers = line.partition(':')
            if name.strip() == dev:
                return (int(numbers.split()[column])
                        + rdma.read_bytes(dev, is_sent=column == SENT))
    return 0


def foreign_share(before_bytes: int, after_bytes: int, own_bytes: int
                  ) -> float:
    """Return the share of a device's traffic that was not the train's.

    It is 0 when the device is unknown, so that the train is accepted.
    """
    total_bytes = after_bytes - before_bytes
    if total_bytes <= own_bytes:
        return 0.0
    return 1 - own_bytes / total_bytes


def address_of(dev: str) -> str | None:
    """Return the first IPv4 address of a device, None if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack('256s', dev.encode())
        try:
            answer = fcntl.ioctl(sock, _SIOCGIFADDR, request)
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])


def address_towards(host: str) -> str | None:
    """Return the local IPv4 address of the route to a host, if any."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect((host, 9))
            return str(sock.getsockname()[0])
    except OSError:
        return None
