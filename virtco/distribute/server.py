# SPDX-License-Identifier: Apache-2.0

"""The distributor: one connection to every edge module, on one event loop."""

import asyncio
import collections
from collections.abc import Callable
from collections.abc import Iterable
import contextlib
import dataclasses
import logging
import random
import resource
import socket
import ssl
import threading
import time
from typing import Any
from typing import Protocol

from oslo_config import cfg

from virtco import metrics
from virtco.distribute import connection
from virtco.distribute import frames
from virtco.distribute import intake
from virtco.distribute import messages
from virtco.distribute import session
from virtco.distribute import tickets
from virtco.wire import reports

try:
    import uvloop
except ImportError:  # there is no wheel for every platform
    uvloop = None  # type: ignore[assignment]

LOG = logging.getLogger(__name__)

BACKLOG = 4096
#: Policies that are sent before the loop looks at what arrived.
AT_ONCE = 128
#: Heartbeats that may fail to come.
MISSED = 3
LOG_INTERVAL_S = 10.0
TURN_S = 1.0


class Policy(Protocol):
    @property
    def generation(self) -> int:
        raise NotImplementedError

    def frame(self) -> bytes:
        """As it goes to the edge module."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, slots=True)
class Doors:
    """What the distributor needs of the rest.

    :ivar epoch: the newest that is known.
    :ivar policy: of a host, None without one.
    :ivar came: takes a host that connected, and the generation that it has.
    :ivar left: takes a host whose connection ended.
    :ivar n_hosts: how many may connect.
    :ivar report: takes a host and its report.
    :ivar heard: takes hosts whose last report still holds.
    :ivar measured: takes a measurement.
    :ivar trains: of these hosts those that are to measure now, and what.
    """

    epoch: Callable[[], int]
    policy: Callable[[str], Policy | None]
    came: Callable[[str, int], None]
    left: Callable[[str], None]
    n_hosts: Callable[[], int]
    report: Callable[[str, reports.Report], None]
    heard: Callable[[set[str]], None]
    measured: Callable[[reports.Measurement], None]
    trains: Callable[[Iterable[str]], dict[str, dict[str, Any]]]


class Distributor:
    """
    :param tls: None for plain connections.
    :param tickets: by which edge modules are told apart; None where
        certificates do that, or nobody does.
    :raises OSError: for an address that cannot be listened on.
    """

    def __init__(self, conf: cfg.ConfigOpts, doors: Doors,
                 counts: metrics.Metrics,
                 tls: ssl.SSLContext | None = None,
                 tickets: tickets.Tickets | None = None):
        options = conf.distributor
        self._options = options
        self.hello_s: float = options.hello_timeout_s
        self.most_bytes: int = options.max_frame_bytes
        self.heartbeat_s = min(options.heartbeat_s,
                               conf.scheduler.policy_ttl_s / 2)
        self.clock = time.monotonic
        self.tickets = tickets
        self._doors = doors
        self._counts = counts
        self._ordered = asyncio.Event()
        self._intake = intake.Intake(doors.report, doors.heard, doors.measured,
                                     counts.intake_failures.inc)
        self._open: dict[str, connection.Connection] = {}
        self._all: set[connection.Connection] = set()
        self._per_address: collections.Counter[str] = collections.Counter()
        self._heard: set[str] = set()
        self._due: dict[str, None] = {}
        self._is_sending = False
        self._last_log_s = -LOG_INTERVAL_S
        self._tls = tls
        _raise_file_limit(options.max_connections)
        self._listener = socket.create_server(
            (options.host or conf.api.host, options.port), backlog=BACKLOG,
            family=_family(options.host or conf.api.host))
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._loop = (uvloop.new_event_loop() if uvloop is not None
                      else asyncio.new_event_loop())
        self._thread = threading.Thread(target=self._run, name='distributor',
                                        daemon=True)

    @property
    def epoch(self) -> int:
        return self._doors.epoch()

    @property
    def is_tls(self) -> bool:
        return self._tls is not None

    def start(self) -> None:
        self._intake.start()
        self._thread.start()

    def stop(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._intake.stop()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def published(self, hosts: Iterable[str]) -> None:
        """Another thread says that these have a new policy."""
        with contextlib.suppress(RuntimeError):  # it was stopped
            self._loop.call_soon_threadsafe(self._changed, list(hosts))

    def published_all(self) -> None:
        """Another thread says that anybody may have a new policy."""
        self.published(list(self._open))

    def trains_ordered(self) -> None:
        """Another thread says that there are some to hand out at once."""
        with contextlib.suppress(RuntimeError):  # it was stopped
            self._loop.call_soon_threadsafe(self._ordered.set)

    def hand_out(self, host: str, train: dict[str, Any]) -> None:
        """Another thread says what this host is to measure."""
        with contextlib.suppress(RuntimeError):  # it was stopped
            self._loop.call_soon_threadsafe(self._hand_out, {host: train})

    def last_reports(self) -> dict[str, reports.Report]:
        """The last of each host that is connected."""
        return {host: report for host, found in list(self._open.items())
                if (report := found.session.report) is not None}

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        tasks = [self._loop.create_task(work()) for work in
                 (self._accept, self._watch, self._turn)]
        try:
            self._loop.run_forever()
        finally:
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(
                asyncio.gather(*tasks, return_exceptions=True))
            # First, or those that come back at once would be let go again.
            self._listener.close()
            for found in list(self._all):
                found.close()
            self._loop.run_until_complete(asyncio.sleep(0))
            self._loop.close()

    # Connections.

    async def _accept(self) -> None:
        while True:
            try:
                sock, address = await self._loop.sock_accept(self._listener)
            except OSError as error:
                self._log('Cannot accept a connection: %s', error)
                await asyncio.sleep(0.1)
                continue
            self._welcome(sock, address[0])

    def _welcome(self, sock: socket.socket, address: str) -> None:
        """Counted from here on, also before it says anything."""
        if (len(self._all) >= self._options.max_connections
                or self._per_address[address]
                >= self._options.max_connections_per_address):
            self._counts.refused_connections.labels('limit').inc()
            self._log('Too many connections, the last one from %s.', address)
            sock.close()
            return
        self._per_address[address] += 1
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop.create_task(self._connect(sock, address))

    async def _connect(self, sock: socket.socket, address: str) -> None:
        made = connection.Connection(self, address)
        self._all.add(made)
        try:
            await self._loop.connect_accepted_socket(
                lambda: made, sock, ssl=self._tls,
                ssl_handshake_timeout=self.hello_s if self._tls else None)
        except OSError as error:
            self._counts.refused_connections.labels('handshake').inc()
            self._log('No connection from %s: %s', address, error)
            sock.close()
            self.closed(made)

    def closed(self, connection: connection.Connection) -> None:
        if connection not in self._all:
            return
        self._all.discard(connection)
        self._per_address[connection.address] -= 1
        if not self._per_address[connection.address]:
            del self._per_address[connection.address]
        if connection.host is not None and (
                self._open.get(connection.host) is connection):
            del self._open[connection.host]
            self._doors.left(connection.host)
        self._counts.connections.set(len(self._open))

    def opened(self, connection: connection.Connection,
               generation: int) -> None:
        host = connection.host
        assert host is not None
        before = self._open.get(host)
        self._open[host] = connection
        if before is not None:
            before.refuse('another connection of this host')
        self._counts.connections.set(len(self._open))
        connection.welcome(self.heartbeat_s, self._spread_s())
        self._doors.came(host, generation)
        self._changed([host])

    def _spread_s(self) -> float:
        """In which time all are to come back when they lose this one."""
        n_hosts = max(self._doors.n_hosts(), len(self._open))
        return float(min(self._options.max_spread_s,
                         n_hosts / self._options.resync_rate))

    def refused(self, connection: connection.Connection, why: str) -> None:
        self._counts.refused_connections.labels('protocol').inc()
        self._log('Closing the connection of %s: %s',
                  connection.host or connection.address, why)

    def _log(self, text: str, *args: object) -> None:
        """What anyone could fill the log with, in a few lines."""
        if self.clock() - self._last_log_s >= LOG_INTERVAL_S:
            self._last_log_s = self.clock()
            LOG.warning(text, *args)

    async def _watch(self) -> None:
        """Let go of those that are silent for too long."""
        while True:
            await asyncio.sleep(self.heartbeat_s / 2)
            limit_s = self.clock() - MISSED * self.heartbeat_s
            for host, found in list(self._open.items()):
                if found.heard_s < limit_s:
                    found.refuse(f'{host} is silent')

    # Policies.

    def _changed(self, hosts: Iterable[str]) -> None:
        self._due.update(dict.fromkeys(hosts))
        if not self._is_sending:
            self._is_sending = True
            self._send_some()

    def _send_some(self) -> None:
        """In turns with reading, so that nobody is kept waiting."""
        for _ in range(AT_ONCE):
            if not self._due:
                self._is_sending = False
                return
            host = next(iter(self._due))
            del self._due[host]
            found = self._open.get(host)
            if found is not None:
                self._send(host, found)
        self._loop.call_soon(self._send_some)

    def _send(self, host: str, to: connection.Connection) -> None:
        """The newest policy; one that does not read gets it when it does."""
        if not to.is_writable:
            return
        policy = self._doors.policy(host)
        if policy is not None and policy.generation != to.session.sent:
            to.write(policy.frame())
            to.session.sent = policy.generation
            self._counts.policies_sent.inc()

    def resumed(self, connection: connection.Connection) -> None:
        if connection.host is not None:
            self._changed([connection.host])

    # What edges say.

    def heard(self, connection: connection.Connection,
              event: session.Event) -> None:
        host = connection.host
        assert host is not None
        match event:
            case session.Report(report=None):
                pass
            case session.Report(report=reports.Report() as report,
                                is_new=True):
                self._intake.add_report(host, report)
            case session.Report():
                self.rests(connection)
            case messages.Nack():
                self._counts.policies_refused.inc()
                self._log('%s refuses policy %d: %s', host, event.generation,
                          event.error)
            case messages.Measured():
                self._intake.add_measurement(event.measurement)

    def rests(self, connection: connection.Connection) -> None:
        """What it reported last still holds."""
        if connection.host is not None:
            self._heard.add(connection.host)

    async def _turn(self) -> None:
        """Rounds begin by time, so somebody has to look; and heartbeats are
        told all at once.
        """
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ordered.wait(),
                                       TURN_S * random.uniform(0.9, 1.1))
            self._ordered.clear()
            if self._heard:
                heard, self._heard = self._heard, set()
                self._intake.add_heard(heard)
            if not self._open:
                continue
            trains = await self._loop.run_in_executor(
                None, self._doors.trains, list(self._open))
            self._hand_out(trains)

    def _hand_out(self, trains: dict[str, dict[str, Any]]) -> None:
        for host, train in trains.items():
            found = self._open.get(host)
            if found is not None:
                found.write(frames.pack('probe', train=train))


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ':' in host else socket.AF_INET


def tls_context(options: Any) -> ssl.SSLContext | None:
    """:raises OSError: for a file that cannot be used."""
    if not options.cert_file:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(options.cert_file, options.key_file or None)
    if options.client_ca_file:
        context.load_verify_locations(options.client_ca_file)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _raise_file_limit(n_connections: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = n_connections + 1024
    if soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (
                wanted if hard == resource.RLIM_INFINITY
                else min(wanted, hard), hard))
