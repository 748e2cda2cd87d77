# SPDX-License-Identifier: Apache-2.0

"""Connections to servers whose names may have several addresses.

An address that is dead costs a quarter of a second, whichever comes first.
"""

import asyncio
import contextlib
import errno
import os
import socket
import threading
import time
from typing import Any
from typing import cast

from keystoneauth1 import session
import urllib3
from urllib3 import connection
from urllib3 import exceptions

#: Time after which the next address is tried as well.
NEXT_S = 0.25
#: Timeouts after which a connection of HTTP ends, whatever it is about.
LIFE_TIMEOUTS = 2


def dial(host: str, port: int, timeout_s: float) -> socket.socket:
    """Connect to the first address of a host that answers (RFC 8305).

    :returns: a socket with the rest of this timeout, which bounds a handshake
        as a whole.
    :raises OSError: when no address answers in time.
    """
    until_s = time.monotonic() + timeout_s
    try:
        sock = asyncio.run(asyncio.wait_for(_raced(host, port), timeout_s))
    except OSError as error:
        if error.errno is None or error.errno not in errno.errorcode:
            raise
        # asyncio does not say in words which error it was.
        raise OSError(error.errno, os.strerror(error.errno)) from None
    sock.settimeout(max(0.001, until_s - time.monotonic()))
    return sock


async def _raced(host: str, port: int) -> socket.socket:
    transport, _ = await asyncio.get_running_loop().create_connection(
        asyncio.Protocol, host, port, happy_eyeballs_delay=NEXT_S)
    sock: socket.socket = transport.get_extra_info('socket').dup()
    transport.abort()
    return sock


class _Dialled:
    """Mixin of urllib3's connections: they are made by :func:`dial`."""

    timeout: Any
    port: int
    _dns_host: str

    def _new_conn(self) -> socket.socket:
        try:
            sock = dial(self._dns_host, self.port, self.timeout)
        except OSError as error:
            raise exceptions.NewConnectionError(
                cast(connection.HTTPConnection, self), str(error)) from error
        # Timeouts of sockets do not bound an answer that drips in.
        end = threading.Timer(LIFE_TIMEOUTS * self.timeout, _end,
                              (sock.dup(),))
        end.daemon = True
        end.start()
        return sock


def _end(sock: socket.socket) -> None:
    with sock, contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


class _Http(_Dialled, connection.HTTPConnection):
    """A connection without TLS."""


class _Https(_Dialled, connection.HTTPSConnection):
    """A connection with TLS."""


class _HttpPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Http


class _HttpsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _Https


class Adapter(session.TCPKeepAliveAdapter):
    """HTTP over connections that are made by :func:`dial`."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Let urllib3 make such connections."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {
            'http': _HttpPool, 'https': _HttpsPool}
