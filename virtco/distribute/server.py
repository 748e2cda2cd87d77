# SPDX-License-Identifier: Apache-2.0

"""The stream server: connections of edge modules and peers, on one event loop.
"""

import asyncio
import collections
from collections.abc import Callable
from collections.abc import Coroutine
from collections.abc import Iterable
from collections.abc import Mapping
import contextlib
import dataclasses
import logging
import random
import resource
import socket
import threading
import time
from typing import Any

from oslo_config import cfg

from virtco import metrics
from virtco.distribute import certificates
from virtco.distribute import connection
from virtco.distribute import edge_session as session
from virtco.distribute import token_bucket
from virtco.wire import frames
from virtco.wire import messages
from virtco.wire import probe_order

try:
    import uvloop
except ImportError:  # there is no wheel for every platform
    uvloop = None  # type: ignore[assignment]

LOG = logging.getLogger(__name__)

BACKLOG = 4096
#: Policies sent in a row before the loop reads again.
AT_ONCE = 128
#: Heartbeats that may fail to come.
MISSED = 3
LOG_INTERVAL_S = 10.0
#: Time of a connection's TLS handshake, and then of its hello: edge modules
#: say it at once, and 300 handshakes a second take a third of a core.
HELLO_S = 5.0
#: Edge modules that come back per second after all lost their connection;
#: without and with TLS, whose handshake takes 1 ms. 10,000 came back within
#: 26 s and 28 s, and none was refused (benchmarks.distribution --resync).
RESYNC_PER_S = {False: 1000, True: 300}
#: Longest time over which their return is spread: half a policy's life.
SPREAD_S = 30.0
#: The limit of open files is raised to fit. 10,000 connections with TLS take
#: 621 MB.
MAX_CONNECTIONS = 65_536
#: New connections from one address per second in the long run, and at once,
#: per connection that it may have: a handshake takes 1 ms.
COMERS_PER_S, COMERS_BURST = 0.25, 4
TURN_S = 1.0
#: Time in which the loop takes messages before it does anything else: those
#: that said one after that rest. A frame of 256 KiB takes 4 ms, and 200 hosts
#: that report 2 MB at once, as after a takeover, 8 s.
TAKE_S, REST_S = 0.1, 0.5
#: Rest of work on the loop after an error that nobody expected.
FAILED_S = 1.0
#: Heartbeats of a server to each edge module per lease, and to all of them per
#: second at most, where 2,000 frames take 1.5 % of a core.
ALIVE_PER_LEASE = 2
ALIVE_RATE = 2000
#: Parts of the edge modules that get their heartbeats one after another.
ALIVE_PARTS = 10
#: Peers say so as well, and after which silence they are gone.
PEERS_ALIVE_S = 0.5
PEERS_SILENT_S = 2.5


#: Generation of a policy, and its frame for the edge module.
Numbered = tuple[int, bytes]


@dataclasses.dataclass(frozen=True, slots=True)
class Doors:
    """Callables by which a server asks and tells the rest of the process.

    :ivar epoch: the newest that is known.
    :ivar is_led: whether what is told here is of one who leads.
    :ivar elsewhere: address of the leader where this process does not lead,
        empty if it is unknown; None where edge modules are served.
    :ivar ticket_key: key that tells edge modules apart; None where
        certificates do that, or nothing does.
    :ivar peer_key: key by which peers prove who they are; empty: none may
        come.
    :ivar policy: function that returns a host's policy; None without one, and
        for a policy of the generation that the host has.
    :ivar n_hosts: how many may connect.
    :ivar came: takes a host and its hello.
    :ivar left: takes a host that is not here any more.
    :ivar said: takes a host, what it said and the payload that says it.
    :ivar heard: takes hosts whose last report still holds.
    :ivar spent_s: processor time that what a host said took elsewhere, since
        this was asked last.
    :ivar told: takes the name of a peer and what it says.
    :ivar peers: takes the names of the peers that are here, each with whether
        it may lead.
    :ivar trains: function that returns the trains that these hosts are to
        measure now.
    :ivar is_answering: see :func:`virtco.periodic.give_way`.
    """

    epoch: Callable[[], int]
    is_led: Callable[[], bool]
    policy: Callable[[str, int], Numbered | None]
    n_hosts: Callable[[], int]
    said: Callable[[str, session.Event, bytes], None]
    elsewhere: Callable[[], str | None] = lambda: None
    ticket_key: Callable[[], str | None] = lambda: None
    peer_key: Callable[[], str] = lambda: ''
    came: Callable[[str, messages.Hello], None] = lambda host, hello: None
    left: Callable[[str], None] = lambda host: None
    heard: Callable[[set[str]], None] = lambda hosts: None
    spent_s: Callable[[str], float] = lambda host: 0.0
    told: Callable[[str, messages.PeerSaid], None] = (
        lambda name, message: None)
    peers: Callable[[Mapping[str, bool]], None] = lambda may_lead: None
    trains: Callable[[Iterable[str]], Mapping[str, probe_order.Order]] = (
        lambda hosts: {})
    is_answering: Callable[[float], bool] = lambda within_s: False


class LoopThread(threading.Thread):
    """An event loop on a thread of its own.

    :ivar beside: coroutine functions that run on the loop until the end.
    """

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop):
        super().__init__(name=name, daemon=True)
        self.loop = loop
        self.beside: list[Callable[[], Coroutine[Any, Any, None]]] = []

    def stop(self) -> None:
        self._soon(self.loop.stop)
        if self.is_alive():
            self.join(5)

    def _soon(self, work: Callable[..., object], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # it was stopped
            self.loop.call_soon_threadsafe(work, *args)

    def run(self) -> None:
        tasks = [self.loop.create_task(_kept(work)) for work in self.beside]
        try:
            self.loop.run_forever()
        finally:
            for task in tasks:
                task.cancel()
            self.loop.run_until_complete(
                asyncio.gather(*tasks, return_exceptions=True))
            self._let_go()
            self.loop.close()

    def _let_go(self) -> None:
        """Close the sockets that the loop served."""


async def _kept(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Begin work again after an error: without it the server would be there
    and hand on no heartbeats, say.
    """
    while True:
        try:
            await work()
            return
        except Exception:
            LOG.exception('A part of the stream server failed.')
            await asyncio.sleep(FAILED_S)


class Server(LoopThread):
    """Stream server to which edge modules and relays connect.

    :param tls: None for plain connections.
    :raises OSError: for an address that cannot be listened on.
    """

    def __init__(self, conf: cfg.ConfigOpts, doors: Doors,
                 counts: metrics.Metrics,
                 tls: certificates.Renewed | None = None):
        options = conf.distributor
        self._options = options
        self.hello_s = HELLO_S
        self.most_bytes = frames.MOST_BYTES
        self.heartbeat_s = min(options.heartbeat_s,
                               conf.scheduler.policy_ttl_s / 2)
        self.clock = time.monotonic
        self.cpu_clock = time.thread_time
        self._lease_s: float = conf.leadership.lease_s
        self._ttl_s: float = conf.scheduler.policy_ttl_s
        self.doors = doors
        self._counts = counts
        self._ordered = asyncio.Event()
        self._open: dict[str, connection.Seat] = {}
        self._all: set[connection.Connection] = set()
        self._peers: dict[str, connection.Peer] = {}
        self._per_address: collections.Counter[str] = collections.Counter()
        self._heard: set[str] = set()
        #: Memory for the bytes that one connection reads.
        self.arriving = memoryview(bytearray(frames.MOST_BYTES))
        # Also of those that come back before theirs are full again.
        self._bytes = token_bucket.Buckets(token_bucket.BYTES_PER_S,
                                           token_bucket.BURST_BYTES)
        self._cpu = token_bucket.Buckets(token_bucket.CPU_PER_S,
                                         token_bucket.BURST_CPU_S)
        self._comers = token_bucket.Buckets(
            COMERS_PER_S * options.max_connections_per_address,
            COMERS_BURST * options.max_connections_per_address)
        self._due: dict[str, None] = {}
        self._is_sending = False
        # When the loop began to take messages in this turn.
        self._taking_s: float | None = None
        self._last_log_s = -LOG_INTERVAL_S
        self._tls = tls
        _raise_file_limit(MAX_CONNECTIONS)
        self._listener = socket.create_server(
            (options.host or conf.api.host, options.port), backlog=BACKLOG,
            family=_family(options.host or conf.api.host))
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        super().__init__('stream', uvloop.new_event_loop() if (
            uvloop is not None) else asyncio.new_event_loop())
        self.beside += [self._accept, self._watch, self._turn,
                        self._say_alive, self._say_alive_to_peers]

    @property
    def alive_s(self) -> float:
        """How often each edge module hears that the server is there."""
        return min(self._ttl_s / 2, max(self._lease_s / ALIVE_PER_LEASE,
                                        len(self._open) / ALIVE_RATE))

    def published(self, hosts: Iterable[str]) -> None:
        """Send new policies to these hosts; called by other threads."""
        self._soon(self.changed, list(hosts))

    def trains_ordered(self) -> None:
        """Hand out trains at once; called by other threads."""
        self._soon(self._ordered.set)

    def answer(self, name: str, message: messages.Asked) -> None:
        """Answer a peer; called by other threads."""
        self._soon(self._answer, name, message)

    def seats(self) -> dict[str, connection.Seat]:
        """Return the seat of each connected host."""
        return self._open

    def _let_go(self) -> None:
        """Close all connections, so that edge modules go elsewhere."""
        # First, or those that come back at once would be let go again.
        self._listener.close()
        for found in list(self._all):
            found.close()
        self.loop.run_until_complete(asyncio.sleep(0))

    # Connections.

    async def _accept(self) -> None:
        while True:
            try:
                sock, address = await self.loop.sock_accept(self._listener)
            except OSError as error:
                self._log('Cannot accept a connection: %s', error)
                await asyncio.sleep(0.1)
                continue
            self._welcome(sock, address[0])
            # The next one may be there already: others have their turn first.
            await asyncio.sleep(0)

    def _welcome(self, sock: socket.socket, address: str) -> None:
        """Count a connection, and begin its handshake."""
        now_s = self.clock()
        if (len(self._all) >= MAX_CONNECTIONS
                or self._per_address[address]
                >= self._options.max_connections_per_address
                or self._comers.wait_s(address, now_s)):
            self._counts.refused_connections.labels('limit').inc()
            self._log('Too many connections, the last one from %s.', address)
            sock.close()
            return
        self._comers.spend(address, 1, now_s)
        self._per_address[address] += 1
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        self.loop.create_task(self._connect(sock, address))

    async def _connect(self, sock: socket.socket, address: str) -> None:
        made = connection.Connection(self, address)
        self._all.add(made)
        try:
            await self.loop.connect_accepted_socket(
                lambda: made, sock,
                ssl=self._tls.context() if self._tls else None,
                ssl_handshake_timeout=self.hello_s if self._tls else None)
        except OSError as error:
            self._counts.refused_connections.labels('handshake').inc()
            self._log('No connection from %s: %s', address, error)
            sock.close()
            self.closed(made)

    def closed(self, connection: connection.Connection) -> None:
        """Forget a connection, and the hosts or the peer behind it."""
        if connection not in self._all:
            return
        self._all.discard(connection)
        self._per_address[connection.address] -= 1
        if not self._per_address[connection.address]:
            del self._per_address[connection.address]
        for seat in connection.seats:
            self.left(seat)
        peer = connection.peer
        if peer is not None and self._peers.get(peer.name) is peer:
            del self._peers[peer.name]
            LOG.info('Peer %s left.', peer.name)
            self._tell_peers()

    def left(self, seat: connection.Seat) -> None:
        if self._open.get(seat.host) is seat:
            del self._open[seat.host]
            self.doors.left(seat.host)
            self._counts.connections.set(len(self._open))

    def opened(self, seat: connection.Seat, hello: messages.Hello) -> None:
        """Welcome a host, end its earlier connection, and send its policy."""
        before = self._open.get(hello.host)
        self._open[hello.host] = seat
        if before is not None:
            before.refuse('another connection of this host')
        self._counts.connections.set(len(self._open))
        if seat.peer is None:
            seat.write(messages.frame(messages.Welcome(
                self._led_epoch(), self.alive_s, self.heartbeat_s,
                self._spread_s(), self.most_bytes)))
        self.doors.came(hello.host, hello)
        self.changed([hello.host])

    def joined(self, peer: connection.Peer) -> None:
        before = self._peers.get(peer.name)
        self._peers[peer.name] = peer
        if before is not None:
            before.connection.refuse('another connection of this process')
        LOG.info('Peer %s joined.', peer.name)
        if self.doors.elsewhere() is None:
            self._welcome_peer(peer)
        self._tell_peers()

    def _tell_peers(self) -> None:
        self.doors.peers({name: peer.may_lead
                          for name, peer in self._peers.items()})

    def _welcome_peer(self, peer: connection.Peer) -> None:
        peer.is_welcome = True
        peer.connection.write(messages.frame(messages.Welcome(
            self.doors.epoch(), PEERS_ALIVE_S)))

    def _answer(self, name: str, message: messages.Asked) -> None:
        peer = self._peers.get(name)
        if peer is not None:
            peer.connection.write(messages.frame(message))

    def _led_epoch(self) -> int:
        """Return the leader's epoch; 0 while a relay has no leader."""
        return self.doors.epoch() if self.doors.is_led() else 0

    def _spread_s(self) -> float:
        """Return the time over which all come back when they lose this server.
        """
        n_hosts = max(self.doors.n_hosts(), len(self._open))
        return min(SPREAD_S, n_hosts / RESYNC_PER_S[self._tls is not None])

    def refused(self, who: str, why: str) -> None:
        """Count a refused connection, and log the reason at a limited rate."""
        self._counts.refused_connections.labels('protocol').inc()
        self._log('Closing the connection of %s: %s', who, why)

    def _log(self, text: str, *args: object) -> None:
        """Log at most one such warning each :data:`LOG_INTERVAL_S`."""
        if self.clock() - self._last_log_s >= LOG_INTERVAL_S:
            self._last_log_s = self.clock()
            LOG.warning(text, *args)

    async def _watch(self) -> None:
        """Let go of edge modules that are silent for too long."""
        while True:
            await asyncio.sleep(self.heartbeat_s / 2)
            if self._tls is not None:
                self._tls.context()  # Broken files show at once.
            limit_s = self.clock() - MISSED * self.heartbeat_s
            for found in list(self._all):
                if (found.seat is not None and found.heard_s < limit_s
                        and not found.is_paused):
                    found.refuse(f'{found.seat.host} is silent')

    async def _say_alive(self) -> None:
        """Tell each edge module in turn that the server is alive; those whose
        turn came while the loop was busy at once.
        """
        part, due_s = 0, self.clock()
        while True:
            due_s = max(due_s + self.alive_s / ALIVE_PARTS,
                        self.clock() - self.alive_s)
            if (wait_s := due_s - self.clock()) > 0:
                await asyncio.sleep(wait_s)
            part = (part + 1) % ALIVE_PARTS
            alive = messages.frame(messages.Alive(
                self._led_epoch(), self.alive_s))
            for seat in list(self._open.values())[part::ALIVE_PARTS]:
                if seat.peer is None:
                    seat.write(alive)

    async def _say_alive_to_peers(self) -> None:
        """Tell peers that the server is alive; let go of all once it does not
        lead, but for peers without hosts while nobody else is known to lead.
        """
        while True:
            await asyncio.sleep(PEERS_ALIVE_S)
            leader = self.doors.elsewhere()
            if leader is not None:
                for found in list(self._all):
                    if found.seats or leader and found.peer is not None:
                        found.refuse(connection.why_not_here(leader),
                                     leader)
            elif self._peers:
                alive = messages.frame(messages.Alive(
                    self.doors.epoch(), PEERS_ALIVE_S,
                    self.doors.n_hosts()))
                limit_s = self.clock() - PEERS_SILENT_S
                for peer in list(self._peers.values()):
                    if peer.connection.heard_s < limit_s:
                        peer.connection.refuse('it is silent')
                        continue
                    if not peer.is_welcome:
                        self._welcome_peer(peer)
                    peer.connection.write(alive)
                    # A relay lets go of those that are silent.
                    self._heard.update(host for host, seat
                                       in peer.seats.items()
                                       if seat.session.report is not None)

    # Policies.

    def changed(self, hosts: Iterable[str]) -> None:
        self._due.update(dict.fromkeys(hosts))
        if not self._is_sending:
            self._is_sending = True
            self._send_some()

    def _send_some(self) -> None:
        """Send some policies, then let the loop read."""
        try:
            for _ in range(AT_ONCE):
                if not self._due:
                    self._is_sending = False
                    return
                host = next(iter(self._due))
                del self._due[host]
                found = self._open.get(host)
                if found is not None:
                    self._send(host, found)
        finally:
            # The others are due, too, where one policy cannot be made.
            if self._is_sending:
                self.loop.call_soon(self._send_some)

    def _send(self, host: str, to: connection.Seat) -> None:
        """Send the newest policy, unless the other end does not read."""
        if not to.connection.is_writable:
            return
        found = self.doors.policy(host, to.session.sent)
        if found is not None:
            to.session.sent, frame = found
            to.write(frame)
            self._counts.policies_sent.inc()

    def resumed(self, connection: connection.Connection) -> None:
        self.changed([seat.host for seat in connection.seats])

    # Messages of edge modules.

    def heard(self, seat: connection.Seat, event: session.Event,
              payload: bytes) -> None:
        match event:
            case session.Report(is_new=False):
                self.rests(seat)
                return
            case messages.Nack():
                self._counts.policies_refused.inc()
                self._log('%s refuses policy %d: %r', seat.host,
                          event.generation, event.error)
        self.doors.said(seat.host, event, payload)

    def charge(self, host: str, size_bytes: int, cpu_s: float) -> float:
        """Charge a host's budget; return the seconds until it owes nothing,
        or until those whose turn it is have had theirs.
        """
        now_s = self.clock()
        self._bytes.spend(host, size_bytes, now_s)
        self._cpu.spend(host, cpu_s + self.doors.spent_s(host), now_s)
        wait_s = max(self._bytes.wait_s(host, now_s),
                     self._cpu.wait_s(host, now_s))
        if wait_s > 0:
            self._counts.throttled.inc()
            self._log('%s says more than its budget allows, and is read '
                      'again in %.1f s.', host, wait_s)
            return wait_s
        if self._taking_s is None:
            self._taking_s = now_s
            self.loop.call_soon(self._took)
        # Many may report much at once.
        is_long = now_s - self._taking_s >= TAKE_S
        return random.uniform(0, REST_S) if is_long else 0.0

    def _took(self) -> None:
        """Forget when the loop began to take messages."""
        self._taking_s = None

    def rests(self, seat: connection.Seat) -> None:
        """Note that the last report of a seat still holds."""
        self._heard.add(seat.host)

    def has_rested(self, host: str) -> bool:
        """Tell whether a host rested since the last turn."""
        return host in self._heard

    async def _turn(self) -> None:
        """Hand out trains each turn, since rounds begin by time, and pass on
        heartbeats together.
        """
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ordered.wait(),
                                       TURN_S * random.uniform(0.9, 1.1))
            self._ordered.clear()
            if self._heard:
                heard, self._heard = self._heard, set()
                self.doors.heard(heard)
            if not self._open:
                continue
            trains = await self.loop.run_in_executor(
                None, self.doors.trains, list(self._open))
            for host, order in trains.items():
                self.pass_on(host, messages.frame(messages.Probe(order)))

    def pass_on(self, host: str, frame: bytes) -> None:
        """Tell one edge module, if it is here and reads."""
        found = self._open.get(host)
        if found is not None:
            found.write(frame)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ':' in host else socket.AF_INET


def _raise_file_limit(n_connections: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = n_connections + 1024
    if soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (
                wanted if hard == resource.RLIM_INFINITY
                else min(wanted, hard), hard))
