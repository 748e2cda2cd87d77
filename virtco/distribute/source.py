# SPDX-License-Identifier: Apache-2.0

"""The leading scheduler's end of the connections to its peers."""

import asyncio
from collections.abc import Callable
from collections.abc import Iterable
import contextlib
import dataclasses
import logging
import socket
import ssl
import threading
import typing
from typing import Any

import msgspec

from virtco import exception
from virtco import metrics
from virtco.distribute import frames
from virtco.distribute import intake
from virtco.distribute import peers
from virtco.wire import reports

LOG = logging.getLogger(__name__)

#: Policies that are sent before the loop looks at what arrived.
AT_ONCE = 128
TURN_S = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class Doors:
    """What peers may ask of the leader.

    :ivar policy: generation and document of a host, None without one.
    :ivar overtake: numbers a host's policy above the generation it has.
    :ivar n_hosts: how many have a policy.
    :ivar report: takes a host and its report.
    :ivar heard: takes hosts whose last report still holds.
    :ivar measured: takes a measurement.
    :ivar trains: of these hosts those that are to measure now, and what.
    :ivar changed: takes ids of groups, None: anything may have changed.
    :ivar forgiven: takes the id of a project.
    """

    policy: Callable[[str], tuple[int, bytes] | None]
    overtake: Callable[[str, int], None]
    n_hosts: Callable[[], int]
    report: Callable[[str, reports.Report], None]
    heard: Callable[[set[str]], None]
    measured: Callable[[reports.Measurement], None]
    trains: Callable[[Iterable[str]], dict[str, dict[str, Any]]]
    changed: Callable[[list[str] | None], None]
    forgiven: Callable[[str], None]


class Source:
    """
    :raises OSError: for an address that cannot be listened on.
    :ivar epoch: None until this process leads; peers are not served before.
    """

    def __init__(self, host: str, port: int, doors: Doors,
                 counts: metrics.Metrics, tls: ssl.SSLContext | None = None):
        self.epoch: int | None = None
        self.doors = doors
        self.has_had_peers = False
        self._tls = tls
        self._peers: set[_Peer] = set()
        self._ordered = asyncio.Event()
        self.intake = intake.Intake(doors.report, doors.heard,
                                    doors.measured,
                                    counts.intake_failures.inc)
        self._listener = socket.create_server(
            (host, port), backlog=128,
            family=socket.AF_INET6 if ':' in host else socket.AF_INET)
        self.port: int = self._listener.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name='source',
                                        daemon=True)

    def start(self) -> None:
        self.intake.start()
        self._thread.start()

    def stop(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        if self._thread.is_alive():
            self._thread.join(5)
            self.intake.stop()
        self._listener.close()

    def lead(self, epoch: int) -> None:
        self.epoch = epoch

    def published(self, hosts: Iterable[str]) -> None:
        """Another thread says that these have a new policy."""
        if self._peers:
            with contextlib.suppress(RuntimeError):  # it was stopped
                self._loop.call_soon_threadsafe(self._published, list(hosts))

    def trains_ordered(self) -> None:
        """Another thread says that there are some to hand out at once."""
        with contextlib.suppress(RuntimeError):  # it was stopped
            self._loop.call_soon_threadsafe(self._ordered.set)

    def _published(self, hosts: list[str]) -> None:
        for peer in self._peers:
            peer.changed(hosts)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        serving = self._loop.run_until_complete(self._loop.create_server(
            lambda: _Peer(self, self._loop), sock=self._listener,
            ssl=self._tls, ssl_handshake_timeout=(
                peers.SILENT_S if self._tls else None)))
        turns = [self._loop.create_task(self._say_alive()),
                 self._loop.create_task(self._hand_out_trains())]
        try:
            self._loop.run_forever()
        finally:
            serving.close()
            for turn in turns:
                turn.cancel()
            for peer in list(self._peers):
                peer.close()
            self._loop.run_until_complete(
                asyncio.gather(*turns, return_exceptions=True))
            self._loop.close()

    def joined(self, peer: '_Peer') -> None:
        self.has_had_peers = True
        self._peers.add(peer)

    def left(self, peer: '_Peer') -> None:
        self._peers.discard(peer)

    async def _say_alive(self) -> None:
        while True:
            await asyncio.sleep(peers.ALIVE_S)
            if self._peers:
                alive = peers.pack(peers.Alive(self.doors.n_hosts()))
                for peer in self._peers:
                    peer.write(alive)

    async def _hand_out_trains(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ordered.wait(), TURN_S)
            self._ordered.clear()
            for peer in list(self._peers):
                if peer.sent:
                    trains = await self._loop.run_in_executor(
                        None, self.doors.trains, list(peer.sent))
                    for host, train in trains.items():
                        peer.write(peers.pack(peers.Train(host, train)))


class _Peer(asyncio.Protocol):
    """:ivar sent: hosts it follows, with the generation it has of each."""

    def __init__(self, source: Source, loop: asyncio.AbstractEventLoop):
        self.sent: dict[str, int] = {}
        self._source = source
        self._loop = loop
        self._name = ''
        self._reader = frames.Reader(peers.MOST_BYTES)
        self._transport: asyncio.Transport | None = None
        self._is_writable = False
        self._is_sending = False
        self._due: dict[str, None] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = typing.cast(asyncio.Transport, transport)
        self._is_writable = True
        self._loop.call_later(peers.SILENT_S, self._must_have_said_hello)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._is_writable = False
        self._source.left(self)
        if self._name:
            LOG.info('Peer %s left.', self._name)

    def pause_writing(self) -> None:
        self._is_writable = False

    def resume_writing(self) -> None:
        self._is_writable = self._transport is not None
        self._send()

    def data_received(self, data: bytes) -> None:
        try:
            for payload in self._reader.feed(data):
                self._take(peers.SAID.decode(payload))
        except (exception.VirtcoException, msgspec.MsgspecError) as error:
            LOG.warning('Closing the connection of peer %s: %s',
                        self._name or 'without a name', error)
            self.close()

    def _must_have_said_hello(self) -> None:
        if not self._name:
            self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def write(self, frame: bytes) -> None:
        if self._is_writable and self._transport is not None:
            self._transport.write(frame)

    def _take(self, message: peers.Said) -> None:
        doors = self._source.doors
        if isinstance(message, peers.Hello):
            self._greet(message)
            return
        if not self._name:
            raise exception.Invalid(field='type', value=repr(message)[:40],
                                    limit='a hello first')
        match message:
            case peers.Follow():
                for host, generation in message.hosts.items():
                    if generation:
                        doors.overtake(host, generation)
                self.sent |= message.hosts
                self.changed(message.hosts)
            case peers.Leave():
                for host in message.hosts:
                    self.sent.pop(host, None)
            case peers.Reports():
                for host, report in message.reports.items():
                    self._source.intake.add_report(host, report)
                if message.heard:
                    self._source.intake.add_heard(message.heard)
            case peers.Measured():
                self._source.intake.add_measurement(message.measurement)
            case peers.Changed():
                doors.changed(message.groups)
            case peers.Forgiven():
                doors.forgiven(message.project_id)

    def _greet(self, hello: peers.Hello) -> None:
        epoch = self._source.epoch
        if epoch is None or hello.epoch > epoch:
            self.close()
            return
        self._name = hello.name
        LOG.info('Peer %s joined.', hello.name)
        self.write(peers.pack(peers.Welcome(epoch)))
        self._source.joined(self)

    def changed(self, hosts: Iterable[str]) -> None:
        self._due.update((host, None) for host in hosts if host in self.sent)
        self._send()

    def _send(self) -> None:
        if not self._is_sending:
            self._is_sending = True
            self._send_some()

    def _send_some(self) -> None:
        """In turns with the others; what is not read yet waits."""
        for _ in range(AT_ONCE):
            if not (self._due and self._is_writable):
                self._is_sending = False
                return
            host = next(iter(self._due))
            del self._due[host]
            self._send_policy(host)
        self._loop.call_soon(self._send_some)

    def _send_policy(self, host: str) -> None:
        found = self._source.doors.policy(host)
        if found is None or host not in self.sent:
            return
        generation, document = found
        if generation != self.sent[host]:
            self.sent[host] = generation
            self.write(peers.pack(peers.Policy(
                host, self._source.epoch or 0, generation,
                msgspec.Raw(document))))
