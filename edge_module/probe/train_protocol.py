# SPDX-License-Identifier: Apache-2.0

"""Protocol between the sender and the responder of a packet train.

Packets of a train are UDP, everything else is JSON lines over one TCP
connection, so that a forged source address can make nobody send anything::

   hello {probe_id, nonce}                →  ←  challenge {nonce, proof}
   proof {proof}                          →
   train {bursts, packets, packet_bytes}  →  ←  go {}
   ping {}                                →  ←  pong {}
   (UDP burst) sent {packets, sending_s}  →  ←  got {packets}
   end {}                                 →  ←  result {rate, foreign_share}

   bulk {lasts_s, size_bytes, window_s}   →  ←  go {}
   (bytes, then the end of the stream)    →  ←  counted {windows_bytes}

After the proof the receiver may end it at any time by ``refuse {why}``.
The next burst waits for ``got``: at most one burst is ever in flight.

The connections of a round begin at a common time, which the controller's order
gives in seconds from its arrival at each end. The sender waits for that time
after ``go``, and the receiver counts its windows from it, so windows of
different receivers differ only by the delay of the orders.

The controller gives both ends a key of its own for each measurement. Each end
proves that it has the key (HMAC-SHA256 over both nonces) before the other one
does anything for it: the receiver answers no other peer, and the sender sends
no packet to an address that did not prove to be the receiver. The cookie
is derived from the key and never sent over TCP.
"""

import collections
from collections.abc import Iterator
import dataclasses
import hmac
import itertools
import os
import select
import socket
import struct
import time
from typing import Annotated
from typing import TypeVar

import msgspec

from edge_module.probe import trains
from virtco import decoding
from virtco import exception
from virtco.wire import fields
from virtco.wire import probe_order

VERSION = 3
COOKIE_BYTES = 8
NONCE_BYTES = 16
#: Cookie of the train, index of the burst, sequence number in the burst.
HEADER = struct.Struct(f'!{COOKIE_BYTES}sHI')
ETHERNET_BYTES = 14
#: Length of a packet's IP and UDP headers by the family of its socket.
HEADERS_BYTES: dict[int, int] = {socket.AF_INET: 28, socket.AF_INET6: 48}
_MAX_LINE_BYTES = 16384
#: How much later than this end the peer may hear of the measurement.
_UNEXPECTED_S, _RETRY_S = 3.0, 0.2
# Options in <bits/in.h>, <linux/in6.h> that the socket module lacks.
_IP_MTU, _IPV6_MTU = 14, 24

_T = TypeVar('_T')
_Nonce = Annotated[str, msgspec.Meta(
    pattern=rf'^[0-9a-f]{{{2 * NONCE_BYTES}}}\Z')]
_Proof = Annotated[str, msgspec.Meta(pattern=r'^[0-9a-f]{64}\Z')]


class ProbeError(Exception):
    """A train that did not come about, with the reason."""


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Limits and options of the two ends of a measurement.

    :ivar uplink_dev: device whose other traffic is measured; None for none.
    :ivar timeout_s: time after which either end gives a measurement up, as the
        controller does.
    :ivar max_sending_s: no burst begins later; slow paths get fewer.
    :ivar max_bytes: payload of one connection's trains: the first, and a
        second one with longer bursts if a token bucket bent the first.
    :ivar max_trains_per_minute: accepted from all peers together, and as many
        sent.
    :ivar bypass_classes: send trains past the classes of the uplink's HTB, so
        that they measure the link and not the policy; without CAP_NET_ADMIN
        they are sent in the default class.
    :ivar repeats: False to take the train as it is, whether its bursts are
        long enough or not: for calibration.
    """

    uplink_dev: str | None = None
    timeout_s: float = 5.0
    max_sending_s: float = 2.5
    max_bytes: int = 2 ** 24
    max_trains_per_minute: int = 60
    bypass_classes: bool = True
    repeats: bool = True


class Message(msgspec.Struct, frozen=True, tag_field='op', tag=str.lower):
    """Message between the two ends; the traffic of an order is another."""


class Hello(Message, frozen=True):
    """Names the measurement."""

    probe_id: str
    nonce: _Nonce


class Challenge(Message, frozen=True):
    """Proves that the receiver has the key."""

    nonce: _Nonce
    proof: _Proof


class Proof(Message, frozen=True):
    """Proves that the sender has the key."""

    proof: _Proof


class Go(Message, frozen=True):
    """The sender may begin."""


class Refuse(Message, frozen=True):
    """The receiver ends the measurement."""

    why: str


class Ping(Message, frozen=True):
    """Asks for a pong, to measure a round trip."""


class Pong(Message, frozen=True):
    """Answers a ping."""


class Sent(Message, frozen=True):
    """A burst was sent.

    :ivar sending_s: time that the sender needed for it; see
        :class:`edge_module.probe.trains.Burst`.
    """

    packets: Annotated[int, msgspec.Meta(ge=1)]
    sending_s: float


class Got(Message, frozen=True):
    """Packets of a burst arrived."""

    packets: int


class End(Message, frozen=True):
    """The train has no more bursts."""


class Result(Message, frozen=True):
    """Result of a train.

    :ivar foreign_share: share of other traffic at the receiver's uplink.
    """

    rate: trains.TrainRate
    foreign_share: float


class Counted(Message, frozen=True):
    """Bytes of a connection that arrived in each window."""

    windows_bytes: tuple[fields.Count, ...]


_MESSAGES: 'decoding.Decoder[Message | probe_order.Traffic]' = (
    decoding.Decoder(
        Hello | Challenge | Proof | Go | Refuse | Ping | Pong | Sent | Got
        | End | Result | Counted | probe_order.Traffic, 'message'))


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Key:
    """Secret of one measurement, shared by the controller and both ends."""

    probe_id: str
    secret: bytes

    def sign(self, what: str, *nonces: str) -> str:
        """Return the HMAC-SHA256 of purpose, measurement and nonces, in hex.

        :param what: purpose; the signature is valid for no other.
        """
        return hmac.digest(self.secret, msgspec.json.encode(
            [VERSION, what, self.probe_id, *nonces]), 'sha256').hex()

    def check(self, proof: str, what: str, *nonces: str) -> None:
        """Check a signature of the peer.

        :param what: purpose; see :meth:`sign`.
        :raises ProbeError: when the peer does not have the key.
        """
        if not hmac.compare_digest(proof, self.sign(what, *nonces)):
            raise ProbeError('the peer does not have the key')

    def cookies(self, *nonces: str) -> Iterator[bytes]:
        """Yield the cookie in the packets of each train of a connection."""
        for index in itertools.count():
            yield bytes.fromhex(self.sign(f'train {index}', *nonces)
                                )[:COOKIE_BYTES]


class Pace:
    """Rate limit on trains.

    :param most: trains per minute.
    """

    def __init__(self, most: int):
        self._begun_s: collections.deque[float] = collections.deque(
            maxlen=most)

    def admit(self) -> None:
        """Count a train.

        :raises ProbeError: when the limit is exceeded.
        """
        now_s = time.monotonic()
        if (len(self._begun_s) == self._begun_s.maxlen
                and self._begun_s[0] >= now_s - 60.0):
            raise ProbeError('too many trains within a minute')
        self._begun_s.append(now_s)


def frame_bytes(family: int, packet_bytes: int) -> int:
    """Return the size of a packet as tc counts it, with Ethernet header."""
    return packet_bytes + HEADERS_BYTES[family] + ETHERNET_BYTES


class PeerGone(ProbeError):
    """The peer ended the connection."""


class Control:
    """JSON lines over a connected TCP socket, until a deadline.

    :ivar deadline_s: on the clock of time.monotonic; later reads and writes
        fail.
    """

    def __init__(self, sock: socket.socket, deadline_s: float):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.deadline_s = deadline_s
        self._buffer = b''

    def send(self, message: Message | probe_order.Traffic) -> None:
        line = msgspec.json.encode(message) + b'\n'
        self.sock.settimeout(self.left_s())
        try:
            self.sock.sendall(line)
        except OSError as error:
            raise PeerGone(f'the peer went away: {error}') from None

    def has_message(self) -> bool:
        """Return whether :meth:`receive` would not wait for data."""
        return b'\n' in self._buffer or bool(
            select.select([self.sock], [], [], 0)[0])

    def receive(self, *wanted: type[_T]) -> _T:
        """Receive the next message.

        :param wanted: types that are accepted.
        :raises ProbeError: for another message, or none in time.
        """
        while b'\n' not in self._buffer:
            self.sock.settimeout(self.left_s())
            try:
                data = self.sock.recv(_MAX_LINE_BYTES)
            except ConnectionError as error:
                raise PeerGone(f'the peer went away: {error}') from None
            except OSError as error:
                raise ProbeError(f'no answer: {error}') from None
            if not data:
                raise PeerGone('the peer closed the connection')
            self._buffer += data
            if len(self._buffer) > _MAX_LINE_BYTES:
                raise ProbeError('the message is too long')
        line, self._buffer = self._buffer.split(b'\n', 1)
        try:
            message = _MESSAGES.decode(line)
        except (exception.Invalid, ValueError) as error:
            raise ProbeError(f'the message is not valid: {error}') from None
        if isinstance(message, Refuse):
            raise ProbeError(f'refused: {message.why}')
        if not isinstance(message, wanted):
            raise ProbeError('message: ' + exception.expected(
                ' or '.join(kind.__name__ for kind in wanted),
                type(message).__name__))
        return message

    def receive_into(self, buffer: bytearray) -> int:
        """Read bulk data; return its bytes, 0 at the end of the stream."""
        self.sock.settimeout(self.left_s())
        try:
            return self.sock.recv_into(buffer)
        except OSError as error:
            raise ProbeError(f'no answer: {error}') from None

    def ask(self, message: Message | probe_order.Traffic,
            wanted: type[_T]) -> _T:
        self.send(message)
        return self.receive(wanted)

    def left_s(self) -> float:
        """Return the time until the deadline.

        :raises ProbeError: when it is over.
        """
        left_s = self.deadline_s - time.monotonic()
        if left_s <= 0:
            raise ProbeError('the time is up')
        return left_s


def connect(address: str, port: int, deadline_s: float, key: Key
            ) -> tuple[Control, Iterator[bytes]]:
    """Connect to a peer that has the key.

    It is retried for a while: the peer may hear of the measurement from the
    controller a little later than this end.

    :returns: the connection, and the cookies of its trains.
    """
    stop_s = min(deadline_s, time.monotonic() + _UNEXPECTED_S)
    while True:
        try:
            sock = socket.create_connection(
                (address, port), max(0.1, deadline_s - time.monotonic()))
        except OSError as error:
            raise ProbeError(
                f'{address} port {port} does not answer: {error}') from None
        control = Control(sock, deadline_s)
        try:
            return control, _authenticate(control, key)
        except PeerGone as error:
            sock.close()
            if time.monotonic() + _RETRY_S > stop_s:
                raise ProbeError(
                    f'{address} expects no train: {error}') from None
            time.sleep(_RETRY_S)
        except BaseException:
            sock.close()
            raise


def _authenticate(control: Control, key: Key) -> Iterator[bytes]:
    mine = os.urandom(NONCE_BYTES).hex()
    answer = control.ask(Hello(key.probe_id, mine), Challenge)
    nonces = mine, answer.nonce
    key.check(answer.proof, 'receiver', *nonces)
    control.send(Proof(key.sign('sender', *nonces)))
    return key.cookies(*nonces)


def mtu(sock: socket.socket) -> int:
    """Return the MTU of the path of a connected socket, in bytes."""
    if sock.family == socket.AF_INET6:
        return sock.getsockopt(socket.IPPROTO_IPV6, _IPV6_MTU)
    return sock.getsockopt(socket.IPPROTO_IP, _IP_MTU)
