# SPDX-License-Identifier: Apache-2.0

"""One edge's connection at the distributor."""

import asyncio
import ssl
import typing
from typing import Any
from typing import Protocol

from virtco import exception
from virtco.distribute import frames
from virtco.distribute import messages
from virtco.distribute import session
from virtco.distribute import tickets

#: As edge modules pack it; any other spelling is decoded like all else.
_HEARTBEAT = frames.pack('heartbeat')
_RESEND = frames.pack('resend')


class Hub(Protocol):
    """What the connections of one distributor share."""

    clock: Any
    hello_s: float
    most_bytes: int
    tickets: tickets.Tickets | None

    @property
    def epoch(self) -> int:
        raise NotImplementedError

    def opened(self, connection: 'Connection', generation: int) -> None:
        raise NotImplementedError

    def closed(self, connection: 'Connection') -> None:
        raise NotImplementedError

    def resumed(self, connection: 'Connection') -> None:
        raise NotImplementedError

    def heard(self, connection: 'Connection', event: session.Event) -> None:
        raise NotImplementedError

    def rests(self, connection: 'Connection') -> None:
        raise NotImplementedError

    def refused(self, connection: 'Connection', why: str) -> None:
        raise NotImplementedError


class Connection(asyncio.Protocol):
    """
    :ivar address: of the other end.
    :ivar heard_s: when something last came, on the loop's clock.
    :ivar is_writable: False while the edge does not read what it was sent.
    """

    def __init__(self, hub: Hub, address: str):
        self.address = address
        self.heard_s = hub.clock()
        self.is_writable = False
        self._hub = hub
        self._reader = frames.Reader(hub.most_bytes)
        self._transport: asyncio.Transport | None = None
        self._hello_timer: asyncio.TimerHandle | None = None
        self.session = session.Session(self._may_speak_for, hub.epoch)

    @property
    def host(self) -> str | None:
        return self.session.host

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = typing.cast(asyncio.Transport, transport)
        self._transport = made
        # Whatever the edge does not read yet pauses: nothing queues up.
        made.set_write_buffer_limits(high=0)
        self.is_writable = True
        self._hello_timer = asyncio.get_running_loop().call_later(
            self._hub.hello_s, self.refuse, 'no hello in time')

    def connection_lost(self, error: Exception | None) -> None:
        self._end_hello()
        self._transport = None
        self.is_writable = False
        self._hub.closed(self)

    def pause_writing(self) -> None:
        self.is_writable = False

    def resume_writing(self) -> None:
        self.is_writable = self._transport is not None
        self._hub.resumed(self)

    def data_received(self, data: bytes) -> None:
        self.heard_s = self._hub.clock()
        if data == _HEARTBEAT and self._may_rest():
            # All that thousands of idle edges ever say.
            self._answer()
            self._hub.rests(self)
            return
        try:
            for payload in self._reader.feed(data):
                if self._transport is None or self._transport.is_closing():
                    return
                self._take(payload)
        except exception.VirtcoException as error:
            self.refuse(str(error))

    # What the edge says.

    def _may_rest(self) -> bool:
        """Whether a heartbeat is what it looks like, and says something."""
        return (self._reader.is_empty() and self.session.report is not None
                and self._transport is not None
                and not self._transport.is_closing())

    def _take(self, payload: bytes) -> None:
        message = messages.decode(payload)
        event = self.session.take(message)
        match event:
            case messages.Hello():
                self._end_hello()
                self._hub.opened(self, event.generation)
                return
            case session.Report(report=None):
                self.write(_RESEND)
        if isinstance(message, messages.Heartbeat):
            self._answer()
        self._hub.heard(self, event)

    def _end_hello(self) -> None:
        if self._hello_timer is not None:
            self._hello_timer.cancel()
            self._hello_timer = None

    def _may_speak_for(self, hello: messages.Hello) -> bool:
        """Where certificates are asked for, one must name the host."""
        if self._hub.tickets is not None:
            return self._hub.tickets.is_of(hello.host, hello.ticket)
        assert self._transport is not None
        tls: ssl.SSLObject | None = self._transport.get_extra_info(
            'ssl_object')
        if tls is None or tls.context.verify_mode != ssl.CERT_REQUIRED:
            return True
        return hello.host in names_of(tls.getpeercert() or {})

    # What it is told.

    def _answer(self) -> None:
        """To a heartbeat."""
        self.write(frames.pack('alive'))

    def write(self, frame: bytes) -> bool:
        """False when the edge does not read at the moment."""
        if not self.is_writable or self._transport is None:
            return False
        self._transport.write(frame)
        return True

    def welcome(self, heartbeat_s: float, spread_s: float) -> None:
        self.write(frames.pack(
            'welcome', epoch=self._hub.epoch, heartbeat_s=heartbeat_s,
            spread_s=spread_s, most_bytes=self._hub.most_bytes))

    def refuse(self, why: str) -> None:
        """Say why, and close."""
        self._hub.refused(self, why)
        self.write(frames.pack('refused', why=why))
        self.close()

    def close(self) -> None:
        if self._transport is None:
            return
        if self.is_writable:
            self._transport.close()
        else:
            self._transport.abort()


def names_of(certificate: Any) -> set[str]:
    """The host names that a certificate is for, and its common name."""
    return ({value for kind, value in certificate.get('subjectAltName', ())
             if kind == 'DNS'}
            | {value for part in certificate.get('subject', ())
               for name, value in part if name == 'commonName'})
