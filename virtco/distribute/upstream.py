# SPDX-License-Identifier: Apache-2.0

"""A peer's connection to the leader's stream server.

Where the leader is stands in the database. A process that does not lead tells
the leader here what it changed; a relay passes on what its edge modules say.
"""

import asyncio
from collections.abc import Callable
from collections.abc import Iterable
import concurrent.futures
import dataclasses
import logging
import urllib.parse

import msgspec

from virtco import exception
from virtco.db import leader
from virtco.distribute import certificates
from virtco.distribute import server
from virtco.distribute import tickets
from virtco.leadership import elector
from virtco.leadership import lock
from virtco.wire import edge_policy
from virtco.wire import frames
from virtco.wire import messages

LOG = logging.getLogger(__name__)

RETRY_S = 0.5
CONNECT_S = 2.0
#: A policy of a million flows takes less than 200 bytes each.
MOST_BYTES = 256 * 1024 * 1024
#: Bytes that may wait to be sent. Above that a host's messages are left out,
#: and its last report follows when there is room again.
MOST_WAITING_BYTES = 8 * 1024 * 1024
#: Messages that wait while there is no connection.
MOST_SAID = 1000
#: Time after which the leader has heard all that was sent, or its silence was
#: noticed.
KEPT_S = 2 * server.PEERS_SILENT_S

#: Document of a policy to come, null without one.
Answer = concurrent.futures.Future[msgspec.Raw]


@dataclasses.dataclass(frozen=True, slots=True)
class Doors:
    """Callables that a relay adds to an upstream connection.

    :ivar replay: payloads that introduce a host and say its last report.
    :ivar hosts: hosts that are here.
    :ivar took: takes a host and the payload that the leader has for it.
    """

    replay: Callable[[str], list[bytes]] = lambda host: []
    hosts: Callable[[], Iterable[str]] = lambda: ()
    took: Callable[[str, bytes], None] = lambda host, payload: None


class Upstream(server.LoopThread):
    """Connection of a relay to the leader.

    :param looks: function that tells who leads.
    :param tls: None for plain connections.
    :param loop: loop of :meth:`keep_connected`; None: one of its own, see
        :meth:`start`.
    :ivar epoch: the newest that was heard of.
    :ivar n_hosts: hosts that have a policy of the leader.
    :ivar is_connected: whether the leader is told.
    """

    def __init__(self, looks: elector.Elector,
                 tls: certificates.Renewed | None, doors: Doors = Doors(),
                 loop: asyncio.AbstractEventLoop | None = None):
        self.n_hosts = 0
        self.is_connected = False
        self._epoch = 0
        self._looks = looks
        self._doors = doors
        self._tls = tls
        # Messages with their times.
        self._said: list[tuple[float, messages.PeerSaid]] = []
        self._asked: dict[str, list[Answer]] = {}
        self._behind: set[str] = set()
        self._writer: asyncio.StreamWriter | None = None
        # Epoch of a leader, and since when it says nothing.
        self._silent: tuple[int, float] | None = None
        super().__init__('upstream', loop or asyncio.new_event_loop())
        self.beside.append(self.keep_connected)

    @property
    def epoch(self) -> int:
        """Newest epoch that the leader or the database told; 0 before any."""
        seen = self._looks.seen
        return max(self._epoch, seen.epoch if seen is not None else 0)

    def is_cut_off(self, limit_s: float) -> bool:
        """Return whether a process leads, or may as the database does not
        tell, but was silent for this time.
        """
        return (self._silent is not None and self._silent[0] == self.epoch
                and self._looks.may_be_led()
                and self.loop.time() - self._silent[1] >= limit_s)

    # Messages and questions of this process, on any thread.

    def tell(self, message: messages.PeerSaid) -> None:
        """Tell the leader of a change that this process made."""
        self._soon(self._say, message)

    def policy(self, host: str, wait_s: float
               ) -> edge_policy.EdgePolicy | None:
        """Return the policy of a host as the leader has it, None without one.

        :raises virtco.exception.Starting: when the leader does not answer.
        """
        found: Answer = concurrent.futures.Future()
        self._soon(self._ask, host, found)
        try:
            document = msgspec.json.decode(found.result(wait_s))
        except TimeoutError:
            self._soon(self._forget, host, found)
            raise exception.Starting(
                why='the process that leads does not answer') from None
        return (None if document is None
                else edge_policy.EdgePolicy.from_dict(document))

    # On its loop.

    def forward(self, host: str, payload: bytes) -> None:
        """Pass on an edge module's message, or note that it is behind."""
        writer = self._writer
        if writer is None:
            return  # All is told once there is a connection.
        if host in self._behind or _waiting_bytes(writer) > MOST_WAITING_BYTES:
            self._behind.add(host)
        else:
            writer.write(frames.enveloped(host, payload))

    def gone(self, host: str) -> None:
        """Tell the leader that a host has left."""
        self._behind.discard(host)
        if self._writer is not None:
            self._writer.write(frames.enveloped(host, b''))

    def _catch_up(self) -> None:
        """Tell the last reports of hosts whose messages were left out."""
        writer = self._writer
        while (writer is not None and self._behind
               and _waiting_bytes(writer) <= MOST_WAITING_BYTES):
            self._replay(self._behind.pop(), writer)

    def _replay(self, host: str, writer: asyncio.StreamWriter) -> None:
        for payload in self._doors.replay(host):
            writer.write(frames.enveloped(host, payload))

    def _say(self, message: messages.PeerSaid) -> None:
        """Send a message to the leader, or keep it until there is one.

        A connection may be over before anybody notices. What operators do is
        kept for so long: the leader does not read that in the database.
        """
        if self._writer is not None:
            self._writer.write(messages.frame(message))
        if self._writer is None or isinstance(message, (
                messages.Forgiven, messages.Forgotten)):
            self._said = [*self._said[1 - MOST_SAID:],
                          (self.loop.time(), message)]

    def _forget_said(self) -> None:
        """Drop messages that the leader has heard by now."""
        if self._writer is not None:
            since_s = self.loop.time() - KEPT_S
            self._said = [one for one in self._said if one[0] >= since_s]

    def _ask(self, host: str, answer: Answer) -> None:
        self._asked.setdefault(host, []).append(answer)
        if self._writer is not None:
            self._say(messages.Ask(host))

    def _forget(self, host: str, answer: Answer) -> None:
        """Expect no answer any more that nobody waits for."""
        waiting = self._asked.get(host, [])
        if answer in waiting:
            waiting.remove(answer)
            if not waiting:
                del self._asked[host]

    async def keep_connected(self) -> None:
        """Connect to the leader again whenever the connection ends."""
        why = ''
        while True:
            try:
                seen = self._looks.seen
                if seen is not None and seen.address and (
                        seen.epoch >= self._epoch):
                    await self._converse(seen)
            except (OSError, EOFError, TimeoutError, msgspec.MsgspecError,
                    exception.VirtcoException) as error:
                said = str(error) or type(error).__name__
                if said != why:
                    why = said
                    LOG.warning('The process that leads cannot be reached: '
                                '%s', why)
            except Exception:
                LOG.exception('The process that leads cannot be reached.')
            self._expect()
            await asyncio.sleep(RETRY_S)

    def _expect(self) -> None:
        """Begin to wait for a word of the leader where another one leads, or
        nobody did until now as far as the database tells.
        """
        if (self._silent is None or self._silent[0] != self.epoch
                or not self._looks.may_be_led()):
            self._silent = self.epoch, self.loop.time()

    async def _converse(self, seen: leader.Seen) -> None:
        """Talk with the leader until the connection breaks or another one
        leads.
        """
        parts = urllib.parse.urlsplit(f'//{seen.address}')
        reader, writer = await asyncio.wait_for(asyncio.open_connection(
            parts.hostname, parts.port,
            ssl=self._tls.context() if self._tls else None), CONNECT_S)
        watch = asyncio.create_task(self._watch(seen.epoch, writer))
        try:
            name = lock.name_of_process()
            writer.write(messages.frame(messages.Peer(
                frames.VERSION, name, self._epoch,
                tickets.of_peer(seen.ticket_key, name),
                self._looks.may_lead)))
            cut = frames.Reader(MOST_BYTES)
            while True:
                data = await asyncio.wait_for(reader.read(1 << 18),
                                              server.PEERS_SILENT_S)
                if not data:
                    raise ConnectionResetError('it closed the connection')
                for payload in cut.feed(data):
                    self._hear(payload, writer)
                # A refusal, which raises, is no word of one who leads.
                self._silent = self.epoch, self.loop.time()
        finally:
            watch.cancel()
            if self.is_connected:
                LOG.warning('Lost the process that leads.')
            self.is_connected = False
            self._writer = None
            self._behind.clear()
            writer.transport.abort()

    async def _watch(self, epoch: int, writer: asyncio.StreamWriter) -> None:
        """Say that this process is here, and leave one that was deposed."""
        while True:
            seen = self._looks.seen
            if seen is not None and seen.epoch > epoch:
                writer.transport.abort()
                return
            self._expect()
            self._catch_up()
            self._forget_said()
            writer.write(messages.frame(
                messages.Here(self._looks.is_in_touch())))
            await asyncio.sleep(server.PEERS_ALIVE_S)

    def _hear(self, payload: bytes, writer: asyncio.StreamWriter) -> None:
        """Act on one frame of the leader."""
        if frames.is_enveloped(payload):
            self._doors.took(*frames.opened(payload))
            return
        match messages.PEER_TOLD.decode(payload):
            case messages.Welcome(epoch=epoch):
                self._welcomed(epoch, writer)
            case messages.Alive(n_hosts=n_hosts):
                self.n_hosts = n_hosts
            case messages.Asked(host=host, policy=policy):
                for answer in self._asked.pop(host, ()):
                    answer.set_result(policy)
            case messages.Refused(why=why):
                raise ConnectionRefusedError(why)

    def _welcomed(self, epoch: int, writer: asyncio.StreamWriter) -> None:
        """Repeat messages that the leader before may have lost."""
        if epoch < self._epoch:
            raise exception.Deposed(epoch=epoch)
        LOG.info('Connected to the process that leads, epoch %d.', epoch)
        self._epoch, self._writer, self.is_connected = epoch, writer, True
        for host in self._doors.hosts():
            self._replay(host, writer)
        self._say(messages.Changed(None))
        said, self._said = self._said, []
        for message in (*(one for _, one in said),
                        *map(messages.Ask, self._asked)):
            self._say(message)


def _waiting_bytes(writer: asyncio.StreamWriter) -> int:
    return writer.transport.get_write_buffer_size()
