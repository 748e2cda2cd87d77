# SPDX-License-Identifier: Apache-2.0

"""Connections at a stream server: of an edge module, or of a peer.

A seat is an edge module at the server. It has a connection of its own, or one
of many seats behind a relay's connection.
"""

import asyncio
from collections.abc import Iterator
import ssl
import typing
from typing import Any
from typing import TYPE_CHECKING

from virtco import exception
from virtco.distribute import edge_session as session
from virtco.distribute import tickets
from virtco.wire import frames
from virtco.wire import messages

if TYPE_CHECKING:
    from virtco.distribute import server

#: As edge modules pack it; any other spelling is decoded like all else.
_HEARTBEAT = messages.frame(messages.Heartbeat())
_RESEND = messages.frame(messages.Resend())
#: Limit of the first frame, which anybody may send: a hello has two texts.
HELLO_BYTES = 16 * 1024
#: An envelope adds no more.
ENVELOPE_BYTES = 512
#: Price of a byte that is no data: a record that only changes the key has 22
#: of them and takes 8 us. An arrival counts as some more, as a byte may come
#: alone. They are paid for once there are more than in a record that is not
#: whole yet.
IDLE_BYTE_CPU_S, ARRIVAL_BYTES, RECORD_BYTES = 3.5e-7, 30, 17_000
#: A pause is no shorter: to end one and begin the next has a price, too.
PAUSE_S = 0.1
#: A pause ends while no call of Nova is answered, which decoding would keep
#: waiting for so long, but is not longer by more; and how often it looks.
TAKES_S, GIVE_WAY_S, LOOK_S = 0.05, 1.0, 0.01


class Seat:
    """An edge module's place at this server.

    :ivar session: session of the host.
    :ivar connection: connection of the host's own, or of the relay that speaks
        for it.
    :ivar peer: relay of the host; None for a host with a connection of its
        own.
    """

    def __init__(self, hub: 'server.Server', connection: 'Connection',
                 hello: messages.Hello, peer: 'Peer | None' = None):
        self.host = hello.host
        self.session = session.Session(hello)
        self.connection = connection
        self.peer = peer
        self._hub = hub

    def take(self, message: messages.Said, payload: bytes) -> None:
        """Take a message of the host and pass on its event.

        :param payload: the message as it was received.
        :raises virtco.exception.VirtcoException: for what it must not say.
        """
        event = self.session.take(message, len(payload))
        if isinstance(event, session.Report) and event.report is None:
            self.write(_RESEND)
        else:
            self._hub.heard(self, event, payload)

    def write(self, frame: bytes) -> None:
        """Write a frame, unless the other end does not read at the moment."""
        if self.peer is not None:
            frame = frames.enveloped(self.host, frame[frames.HEADER_BYTES:])
        self.connection.write(frame)

    def refuse(self, why: str) -> None:
        """Say why, and let it go."""
        if self.peer is None:
            self.connection.refuse(why)
        else:
            self.peer.refuse(self.host, why)


def why_not_here(leader: str) -> str:
    """Say why a process sends others away.

    :param leader: its address; empty where it is not known or not reached.
    """
    return ('another process leads' if leader else
            'the leader is not known, or not reached, from here')


class Peer:
    """Another process of the controller, perhaps a relay.

    :ivar connection: connection of this process.
    :ivar seats: seats of the hosts that it speaks for.
    :ivar is_welcome: whether it was told that this process leads.
    """

    def __init__(self, hub: 'server.Server', connection: 'Connection',
                 name: str, may_lead: bool = True):
        self.name = name
        self.may_lead = may_lead
        self.connection = connection
        self.seats: dict[str, Seat] = {}
        self.is_welcome = False
        self._hub = hub

    def take(self, payload: bytes) -> None:
        """Take a message of the process itself or of a host it speaks for.

        A host that owes is paused by its relay, which the others share.

        :raises virtco.exception.VirtcoException: for an invalid message.
        """
        if not frames.is_enveloped(payload):
            message = messages.decode_peer(payload)
            if self.seats and isinstance(message, (
                    messages.Forgiven, messages.Forgotten)):
                raise exception.Forbidden(
                    what='a relay to say what operators do')
            self._hub.doors.told(self.name, message)
            return
        host, inner = frames.opened(payload)
        if not inner:
            self.drop(host)
            return
        began_s = self._hub.cpu_clock()
        try:
            said = messages.decode(inner)
            if isinstance(said, messages.Hello):
                # The host came back, or its messages were left out for a
                # while.
                self.drop(host)
            seat = self.seats.get(host)
            if seat is None:
                self._seat(host, said)
            else:
                seat.take(said, inner)
        except exception.VirtcoException as error:
            self.refuse(host, str(error))
        wait_s = self._hub.charge(host, len(inner),
                                  self._hub.cpu_clock() - began_s)
        if wait_s > 0:
            self.connection.write(frames.enveloped(
                host, messages.pack(messages.Pause(wait_s))))

    def _seat(self, host: str, message: messages.Said) -> None:
        """Open a seat for a relay's edge module, by its hello."""
        hello = session.greeted(message, self._hub.doors.epoch(),
                                lambda hello: hello.host == host)
        self.seats[host] = Seat(self._hub, self.connection, hello, self)
        self._hub.opened(self.seats[host], hello)

    def refuse(self, host: str, why: str) -> None:
        """Let go of one of its hosts."""
        self._hub.refused(host, why)
        self.connection.write(frames.enveloped(host, messages.pack(
            messages.Refused(why))))
        self.drop(host)

    def drop(self, host: str) -> None:
        """Remove a host that this peer does not speak for any more."""
        seat = self.seats.pop(host, None)
        if seat is not None:
            self._hub.left(seat)


class Connection(asyncio.BufferedProtocol):
    """Connection of an edge module or of another controller process.

    :ivar address: address of the other end.
    :ivar heard_s: time of the last message, on the loop's clock.
    :ivar is_writable: False while the other end does not read.
    :ivar is_paused: whether nothing is read, since the edge module said more
        than its budget allows. What it sends waits at its end, where the
        newest report takes the place of the one before.
    :ivar seat: the edge module whose connection this is.
    :ivar peer: the process whose connection this is.
    """

    def __init__(self, hub: 'server.Server', address: str):
        self.address = address
        self.heard_s: float = hub.clock()
        self.is_writable = self.is_paused = False
        self.peer: Peer | None = None
        self.seat: Seat | None = None
        self._hub = hub
        self._reader = frames.Reader(min(HELLO_BYTES, hub.most_bytes))
        self._transport: asyncio.Transport | None = None
        self._hello_timer: asyncio.TimerHandle | None = None
        self._pause_timer: asyncio.TimerHandle | None = None
        self._is_tls = False
        self._began_s = 0.0
        self._idle_bytes = 0

    @property
    def seats(self) -> list[Seat]:
        """Edge modules that this connection serves."""
        if self.peer is not None:
            return list(self.peer.seats.values())
        return [self.seat] if self.seat is not None else []

    # Calls by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, and limit the time until the hello."""
        made = typing.cast(asyncio.Transport, transport)
        self._transport = made
        self._is_tls = made.get_extra_info('ssl_object') is not None
        if self._is_tls:
            # After a pause all records that came are decrypted in one go.
            typing.cast(Any, made).set_read_buffer_limits(high=RECORD_BYTES)
        # Whatever the edge does not read yet pauses: nothing queues up. With
        # 0, uvloop's TLS pauses also when nothing waits.
        made.set_write_buffer_limits(high=1, low=0)
        self.is_writable = True
        self._hello_timer = asyncio.get_running_loop().call_later(
            self._hub.hello_s, self.refuse, 'no hello in time')

    def connection_lost(self, error: Exception | None) -> None:
        """Cancel the timers, and leave the server."""
        self._end_hello()
        if self._pause_timer is not None:
            self._pause_timer.cancel()
        self._transport = None
        self.is_writable = False
        self._hub.closed(self)

    def pause_writing(self) -> None:
        """Stop :meth:`write` from sending: the other end does not read."""
        self.is_writable = False

    def resume_writing(self) -> None:
        """Write again, and have the server send the newest policies."""
        self.is_writable = self._transport is not None
        self._hub.resumed(self)

    def get_buffer(self, size_bytes: int) -> memoryview:
        """Return the memory for the next bytes, which are decrypted from now
        on; that takes long where they come in many records.

        :param size_bytes: number of bytes that came by TLS, data or not.
        """
        self._began_s = self._hub.cpu_clock()
        if self._idle_bytes > RECORD_BYTES:
            idle_s = IDLE_BYTE_CPU_S * self._idle_bytes
            self._idle_bytes = 0
            self._charge(0, self._began_s - idle_s)
        self._idle_bytes += ARRIVAL_BYTES + self._is_tls * size_bytes
        return self._hub.arriving

    def buffer_updated(self, n_bytes: int) -> None:
        """Handle whole frames; an idle heartbeat takes a shorter way, and no
        second one before the next turn.
        """
        data = self._hub.arriving[:n_bytes]
        self._idle_bytes -= self._is_tls * n_bytes
        self.heard_s = self._hub.clock()
        if data == _HEARTBEAT and (seat := self._resting()) is not None:
            # All that thousands of idle edges ever say.
            self._hub.rests(seat)
            return
        payloads = self._reader.feed(data)
        if not self.is_paused and not self._take_all(payloads,
                                                     self._began_s):
            self._charge(0, self._began_s)

    def _take_all(self, payloads: Iterator[bytes], began_s: float) -> bool:
        """Take payloads until none is left or the budget is used up; return
        whether there were any.

        :param began_s: processor time at which the work on them began.
        """
        is_any = False
        try:
            for payload in payloads:
                is_any = True
                if self._is_closing():
                    break
                try:
                    self._take(payload)
                finally:  # a refused message was decoded, too
                    wait_s = self._charge(len(payload), began_s)
                if wait_s > 0:
                    break
                began_s = self._hub.cpu_clock()
        except exception.VirtcoException as error:
            self.refuse(str(error))
            return True
        return is_any

    def _charge(self, size_bytes: int, began_s: float) -> float:
        """Charge an edge module, or before its hello the address, for a
        message or a part of one; pause it, and return for how long.
        """
        if self.peer is not None:
            return 0.0
        wait_s = self._hub.charge(
            self.address if self.seat is None else self.seat.host,
            size_bytes, self._hub.cpu_clock() - began_s)
        if wait_s > 0:
            self.pause(wait_s)
        return wait_s

    def _is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def pause(self, wait_s: float) -> None:
        """Read nothing for so long, unless a pause is under way."""
        if (self._transport is None or self._transport.is_closing()
                or self.is_paused):
            return
        self._transport.pause_reading()
        self.is_paused = True
        wait_s = max(PAUSE_S, wait_s)
        self._wake(wait_s, self._hub.clock() + wait_s + GIVE_WAY_S)

    def _wake(self, wait_s: float, latest_s: float) -> None:
        self._pause_timer = asyncio.get_running_loop().call_later(
            wait_s, self._read_on, latest_s)

    def _read_on(self, latest_s: float = 0.0) -> None:
        """Take the messages that came before the pause.

        :param latest_s: time until which it gives way to placements.
        """
        if (self._hub.doors.is_answering(TAKES_S)
                and self._hub.clock() < latest_s):
            self._wake(LOOK_S, latest_s)
            return
        self.heard_s = self._hub.clock()
        self.is_paused = False
        self._take_all(self._reader.feed(b''), self._hub.cpu_clock())
        if self._transport is not None and not (
                self.is_paused or self._transport.is_closing()):
            self._transport.resume_reading()

    def _resting(self) -> Seat | None:
        """Find the seat for which these bytes are a whole heartbeat frame."""
        seat = self.seat
        if (seat is None or seat.session.report is None
                or not self._reader.is_empty() or self._is_closing()
                or self._hub.has_rested(seat.host)):
            return None
        return seat

    def _take(self, payload: bytes) -> None:
        """Pass a message to the peer or the seat; the first one is a hello."""
        if self.peer is not None:
            self.peer.take(payload)
        elif self.seat is not None:
            self.seat.take(messages.decode(payload), payload)
        else:
            self._greet(payload)

    def _greet(self, payload: bytes) -> None:
        """Check the first message, and seat its edge module or peer.

        A process that does not lead refuses it and names the leader. One
        that led last hears peers all the same: they tell whether it goes on.
        """
        leader = self._hub.doors.elsewhere()
        message = messages.decode(payload)
        if isinstance(message, messages.Peer) and (
                not leader and self._hub.doors.epoch()):
            self._join(message)
            return
        if leader is not None:
            self.refuse(why_not_here(leader), leader)
            return
        hello = session.greeted(message, self._hub.doors.epoch(),
                                self._may_speak_for)
        self._end_hello()
        self._reader.most_bytes = self._hub.most_bytes
        self.seat = Seat(self._hub, self, hello)
        self._hub.opened(self.seat, hello)

    def _join(self, hello: messages.Peer) -> None:
        """Admit a relay or another process by its ticket."""
        session.check(hello, self._hub.doors.epoch())
        key = self._hub.doors.peer_key()
        if not key or not tickets.is_same(tickets.of_peer(key, hello.name),
                                          hello.ticket):
            raise exception.Forbidden(
                what=f'to join as {hello.name} with this ticket')
        self._end_hello()
        self.peer = Peer(self._hub, self, hello.name, hello.may_lead)
        assert self._transport is not None
        # All its hosts are told in one go.
        self._transport.set_write_buffer_limits(high=self._hub.most_bytes)
        self._reader.most_bytes = self._hub.most_bytes + ENVELOPE_BYTES
        self._hub.joined(self.peer)

    def _end_hello(self) -> None:
        if self._hello_timer is not None:
            self._hello_timer.cancel()
            self._hello_timer = None

    def _may_speak_for(self, hello: messages.Hello) -> bool:
        """Tell whether ticket or certificate names the host of a hello."""
        key = self._hub.doors.ticket_key()
        if key is not None:
            # Anybody can sign with an empty key.
            return bool(key) and tickets.is_same(
                tickets.of_host(key, hello.host), hello.ticket)
        assert self._transport is not None
        tls: ssl.SSLObject | None = self._transport.get_extra_info(
            'ssl_object')
        if tls is None or tls.context.verify_mode != ssl.CERT_REQUIRED:
            return True
        names = names_of(tls.getpeercert() or {})
        if hello.host not in names:
            raise exception.Forbidden(
                what=f'to speak for {hello.host} with a certificate of DNS '
                f'names {sorted(names)}')
        return True

    # Calls by the server.

    def write(self, frame: bytes) -> None:
        """Write a frame, unless the other end does not read at the moment."""
        if self._transport is not None and self.is_writable:
            self._transport.write(frame)

    def refuse(self, why: str, leader: str = '') -> None:
        """Say why, and close."""
        who = (self.peer.name if self.peer is not None else
               self.seat.host if self.seat is not None else None)
        self._hub.refused(who or self.address, why)
        self.write(messages.frame(
            messages.Refused(why, leader)))
        self.close()

    def close(self) -> None:
        if self._transport is None:
            return
        if self.is_writable:
            self._transport.close()
        else:
            self._transport.abort()


def names_of(certificate: Any) -> set[str]:
    """List the DNS names of a certificate; a common name is none."""
    return {value for kind, value in certificate.get('subjectAltName', ())
            if kind == 'DNS'}
