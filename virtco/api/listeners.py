# SPDX-License-Identifier: Apache-2.0

"""Ports of the API: one process listens on up to three, each with its routes.

Tenants and operators are served on ``[api]``; Nova and the edge modules on
``[api] service_port`` where that is set, and nowhere else then; ``/health`` in
full and ``/metrics`` on ``[monitoring] port`` where that is set. Where tenants
need a token, ``/metrics`` is served nowhere else.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import contextlib
import re
import socket
import time
from typing import Any

import msgspec
from oslo_config import cfg
from waitress import channel
from waitress import parser
from waitress import task
from waitress import utilities

from virtco.distribute import token_bucket
from virtco.wire import error
from virtco.wire import health


class _Problems(msgspec.Struct):
    """The problems of a process's health."""

    problems: list[health.Problem] = []


Wsgi = Callable[[dict[str, Any], Any], Iterable[bytes]]

LOOPBACK = ('127.0.0.1', '::1', 'localhost')

#: Paths that only services use; a placement's owner reads it, too.
_SERVICE = re.compile(
    r'/v1/(?:hosts/[^/]+/policy|distributor|notifications)')
_PLACEMENT = re.compile(r'/v1/placements/[^/]+')
_MONITORING = ('/health', '/metrics')
#: Threads that wait for requests from the start.
FEWEST_THREADS = 4

#: Connections to a port at the same time; edge modules have theirs to the
#: distributor.
MAX_CONNECTIONS = 4096
#: Most bytes in the body of a request; the longest are topologies.
MAX_BODY_BYTES = 4 * 1024 * 1024
#: Most bytes before the body of a request: a token, and the longest query.
#: waitress copies them for each byte that comes alone.
MAX_HEADER_BYTES = 32 * 1024
#: Bytes in a small piece of a request, and the number of small pieces that
#: each request may have: one takes 50 us. For each address the controller
#: reads further pieces at this rate in the long run, and this number at once.
SMALL_BYTES, FEW_PIECES, PIECES_PER_S, PIECES_BURST = 1024, 8, 500, 1000
#: Requests that a client may send before the first one is answered. 180 come
#: in one piece: 2 ms to read, and much more to answer one after another.
MOST_WAITING = 8
#: Time after which a connection is closed that sent half a request, however
#: slowly, or none, or reads no answer.
SILENCE_S = 60


def addresses(conf: cfg.ConfigOpts) -> dict[str, tuple[str, int]]:
    """Return the addresses of ``api``, ``service`` and ``monitoring``, as far
    as they are set.
    """
    api = conf.api
    found = {'api': (api.host, api.port),
             'service': (api.service_host or api.host, api.service_port),
             'monitoring': (conf.monitoring.host, conf.monitoring.port)}
    return {purpose: (str(host), int(port))
            for purpose, (host, port) in found.items() if port is not None}


class Listeners:
    """Sockets and threads that serve the API.

    :param application: WSGI application that answers.
    :param ports: ports to which the sockets of :func:`addresses` are bound.
    """

    def __init__(self, conf: cfg.ConfigOpts, application: Wsgi,
                 ports: Mapping[str, int]):
        self._application = application
        # As a request names its port.
        self._service, self._monitoring = (
            str(ports[purpose]) if purpose in ports else None
            for purpose in ('service', 'monitoring'))
        self._has_open_metrics = self._monitoring is None and (
            conf.api.auth_strategy == 'noauth')

    def __call__(self, environ: dict[str, Any],
                 start_response: Any) -> Iterable[bytes]:
        port, path = environ['SERVER_PORT'], environ.get('PATH_INFO', '')
        method = environ['REQUEST_METHOD']
        if not self._is_served(port, method, path):
            return answer(start_response, '404 Not Found', error.Failure(
                error.Error(code='virtco.not_found', title='Not found',
                            detail=f'{path[:80]} is not served on this '
                            'port.')))
        if (self._monitoring and port != self._monitoring
                and path == '/health'):
            return self._brief_health(environ, start_response)
        return self._application(environ, start_response)

    def _is_served(self, port: str, method: str, path: str) -> bool:
        if port == self._monitoring:
            return path in _MONITORING
        if path == '/metrics' and not self._has_open_metrics:
            return False
        is_service = bool(_SERVICE.fullmatch(path)) or (
            method in ('PUT', 'DELETE') and bool(_PLACEMENT.fullmatch(path)))
        if port == self._service:
            return is_service or path in ('/', '/v1', '/health')
        return not (self._service and is_service)

    def _brief_health(self, environ: dict[str, Any],
                      start_response: Any) -> Iterable[bytes]:
        """Answer a load balancer: the status, and codes without findings."""
        found: list[str] = []
        body = b''.join(self._application(
            environ, lambda status, headers, *_: found.append(status)))
        is_good = found[0].startswith('200')
        told = msgspec.json.decode(body, type=_Problems).problems
        return answer(start_response, found[0], health.Health(
            status='ok' if is_good else 'failing',
            problems=[health.Problem(one.code, '')
                      for one in told] or msgspec.UNSET))


def answer(start_response: Any, status: str, document: msgspec.Struct,
           *headers: tuple[str, str]) -> list[bytes]:
    """Answer a WSGI request with JSON."""
    body = msgspec.json.encode(document)
    start_response(status, [('Content-Type', 'application/json'),
                            ('Content-Length', str(len(body))), *headers])
    return [body]


def count_pieces() -> token_bucket.Buckets:
    """Make the counter of small pieces of all ports."""
    return token_bucket.Buckets(PIECES_PER_S, PIECES_BURST)


class Unread(parser.HTTPRequestParser):  # type: ignore[misc]
    """A request that is not read, as too many wait before it."""

    def received(self, data: bytes) -> int:
        """Drop the bytes; the answer ends the connection."""
        self.error = utilities.BadRequest('more requests than answers')
        self.completed = True
        return len(data)


class Task(task.WSGITask):  # type: ignore[misc]
    """A request, and its answer."""

    def build_response_header(self) -> bytes:
        """Build the head of the answer. One of too many requests ends the
        connection: what the client sent without waiting would cost as much
        again.
        """
        if self.status.startswith('429'):
            self.set_close_on_finish()
        return bytes(super().build_response_header())


class Channel(channel.HTTPChannel):  # type: ignore[misc]
    """A connection of waitress; one address has a limited number, and those
    of one port take none of another's.

    :param most: connections from one address; a further one is closed.
    :param pieces: counts the small pieces of each address.
    """

    task_class = Task
    last_activity: float

    def __init__(self, most: int, pieces: token_bucket.Buckets, server: Any,
                 sock: socket.socket, address: tuple[Any, ...], adj: Any,
                 map: dict[int, Any]):
        super().__init__(server, sock, address, adj, map=map)
        self._pieces = pieces
        self._n_pieces = 0
        self._began_s = self.last_activity
        others = [other for other in list(map.values())
                  if isinstance(other, Channel)]
        if (sum(other.addr[0] == address[0] for other in others) > most
                or sum(other.server is server for other in others)
                > MAX_CONNECTIONS):
            self.handle_close()

    def parser_class(self, adj: Any) -> Any:
        """Make the parser of the next request."""
        return (Unread if len(self.requests) >= MOST_WAITING
                else parser.HTTPRequestParser)(adj)

    def received(self, data: bytes) -> bool:
        """Take bytes. Those of a request that has begun do not count as
        activity: one that drips in would hold the connection.
        """
        half = self.request
        found = super().received(data)
        if half is not None and self.request is half:
            self.last_activity = self._began_s
            self._n_pieces += len(data) < SMALL_BYTES
            if self._n_pieces > FEW_PIECES:
                self._pieces.spend(self.addr[0], 1, time.monotonic())
        else:
            self._n_pieces = 0
        self._began_s = self.last_activity
        return bool(found)

    def readable(self) -> bool:
        """Tell whether to read: no further piece of a request that has many
        while the address owes.
        """
        return bool(super().readable()) and not (
            self._n_pieces > FEW_PIECES
            and self._pieces.wait_s(self.addr[0], time.monotonic()))

    def writable(self) -> bool:
        """Tell whether there is something to send, and end a connection whose
        client does not read: poll never reports it, and waitress would keep
        its answers and, for one that asks on, a thread.
        """
        is_flooded = (len(self.requests) > 1 and self.total_outbufs_len
                      > self.adj.outbuf_high_watermark)
        if is_flooded or (self.total_outbufs_len and time.time()
                          - self.last_activity > SILENCE_S):
            with contextlib.suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)
        return bool(super().writable())


class Dispatcher(task.ThreadedTaskDispatcher):  # type: ignore[misc]
    """Threads for requests: a few, and more while all of them are busy. While
    more than half are idle, one ends with each request.

    While as many as there may be wait for a database that hangs, monitoring
    has threads of its own.

    :param most: threads.
    """

    def __init__(self, most: int):
        super().__init__()
        self._most = most
        self._monitoring = task.ThreadedTaskDispatcher()
        self.set_thread_count(min(most, FEWEST_THREADS))

    def add_task(self, task: Any) -> None:
        """Queue a request; start a thread where none is free."""
        n_threads = len(self.threads)
        n_busy = self.active_count + len(self.queue)
        is_busy = n_busy >= n_threads
        if is_busy and n_threads < self._most:
            self.set_thread_count(n_threads + 1)
        # A request that is no HTTP has no path.
        elif is_busy and getattr(task.requests[0], 'path',
                                 '') in _MONITORING:
            self._monitoring.set_thread_count(len(_MONITORING))
            self._monitoring.add_task(task)
            return
        elif FEWEST_THREADS < n_threads and n_busy < n_threads // 2:
            self.set_thread_count(n_threads - 1)
        super().add_task(task)

    def shutdown(self, cancel_pending: bool = True, timeout: int = 5) -> bool:
        """End all threads."""
        self._monitoring.shutdown(cancel_pending, timeout)
        return bool(super().shutdown(cancel_pending, timeout))
