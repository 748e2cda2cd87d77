# SPDX-License-Identifier: Apache-2.0

"""Protocol between the sender and the responder of a packet train.

Packets of a train are UDP, everything else is JSON lines over one TCP
connection, so that a forged source address can make nobody send anything::

   hello {probe_id, nonce}                →  ←  challenge {nonce, proof}
   proof {proof}                          →
   train {bursts, packets, packet_bytes}  →  ←  go {} | refuse {why}
   ping                                   →  ←  pong
   (UDP burst) burst {index, sent, …}     →  ←  got {index, received}
   end                                    →  ←  result {rate_bps, …}

   bulk {lasts_s, size_bytes, window_s}   →  ←  go {} | refuse {why}
   (bytes, then the end of the stream)    →  ←  flow {windows_bytes}

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
import dataclasses
import hashlib
import hmac
import json
import os
import select
import socket
import struct
import time
from typing import Annotated
from typing import Any
from typing import Generic
from typing import TypeVar

import msgspec

from virtco import decoding
from virtco import exception
from virtco.wire import reports

VERSION = 2
#: Time after which either end gives a measurement up.
TIMEOUT_S = 5.0
COOKIE_BYTES = 8
KEY_BYTES = 32
NONCE_BYTES = 16
#: Cookie of the train, index of the burst, sequence number in the burst.
HEADER = struct.Struct(f'!{COOKIE_BYTES}sHI')
MAX_BURSTS = 1000
MAX_PACKETS = 5000
MAX_PACKET_BYTES = 8972
MAX_BULK_S = 10.0
MAX_BULK_BYTES = 2 ** 28
MAX_START_S = 10.0
#: Accepted from all peers together, and as many sent.
TRAINS_PER_MINUTE = 60
ETHERNET_BYTES = 14
_UDP_BYTES = 8
_IP_BYTES = {socket.AF_INET: 20, socket.AF_INET6: 40}
_MAX_LINE_BYTES = 16384
#: How much later than this end the peer may hear of the measurement.
_UNEXPECTED_S, _RETRY_S = 3.0, 0.2
# Options in <bits/in.h>, <linux/in6.h> that the socket module lacks.
_IP_MTU, _IPV6_MTU = 14, 24

_T = TypeVar('_T')


class ProbeError(Exception):
    """A train that did not come about, with the reason."""


class Reader(Generic[_T]):
    """Reader of the fields of a message or an order; others are ignored."""

    def __init__(self, kind: type[_T]):
        self._decoder: decoding.Decoder[_T] = decoding.Decoder(kind, 'message')

    def __call__(self, fields: dict[str, Any]) -> _T:
        """Read and check the fields.

        :raises ProbeError: for a value out of bounds, naming field and limit.
        """
        try:
            return self._decoder.convert(fields)
        except exception.Invalid as error:
            raise ProbeError(str(error)) from None


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Key:
    """Secret of one measurement, shared by the controller and both ends."""

    probe_id: str
    secret: bytes

    @classmethod
    def from_dict(cls, order: dict[str, Any]) -> 'Key':
        """Read ``probe_id`` and ``key`` of an order of the controller."""
        try:
            found = cls(str(order['probe_id']), bytes.fromhex(order['key']))
        except (KeyError, TypeError, ValueError):
            raise ProbeError('the order has no valid key') from None
        if len(found.secret) < KEY_BYTES:
            raise ProbeError(f'the key is shorter than {KEY_BYTES} bytes')
        return found

    def sign(self, what: str, *nonces: str) -> str:
        """Return the HMAC-SHA256 of purpose, measurement and nonces, in hex.

        :param what: purpose; the signature is valid for no other.
        """
        text = json.dumps([VERSION, what, self.probe_id, *nonces])
        return hmac.digest(self.secret, text.encode(),
                           hashlib.sha256).hex()

    def check(self, proof: object, what: str, *nonces: str) -> None:
        """Check a signature of the peer.

        :param what: purpose; see :meth:`sign`.
        :raises ProbeError: when the peer does not have the key.
        """
        if not isinstance(proof, str) or not hmac.compare_digest(
                proof.encode(), self.sign(what, *nonces).encode()):
            raise ProbeError('the peer does not have the key')

    def cookie(self, index: int, *nonces: str) -> bytes:
        """Return the cookie in the packets of a train, 8 bytes.

        :param index: number of the train within its connection, from 0.
        """
        return bytes.fromhex(self.sign(f'train {index}', *nonces)
                             )[:COOKIE_BYTES]


class Pace:
    """Rate limit on trains.

    :param most: trains per minute.
    """

    def __init__(self, most: int):
        self._most = most
        self._begun_s: collections.deque[float] = collections.deque()

    def admit(self) -> None:
        """Count a train.

        :raises ProbeError: when the limit is exceeded.
        """
        now_s = time.monotonic()
        while self._begun_s and self._begun_s[0] < now_s - 60.0:
            self._begun_s.popleft()
        if len(self._begun_s) >= self._most:
            raise ProbeError('too many trains within a minute')
        self._begun_s.append(now_s)


def nonce_of(message: dict[str, Any]) -> str:
    """Return the nonce of a message, in hexadecimal digits.

    :raises ProbeError:
    """
    nonce = message.get('nonce')
    if not isinstance(nonce, str) or len(nonce) != 2 * NONCE_BYTES:
        raise ProbeError('the nonce is not valid')
    return nonce


def header_bytes(family: int) -> int:
    """Return the length of a packet's IP and UDP headers."""
    return _IP_BYTES[socket.AddressFamily(family)] + _UDP_BYTES


def frame_bytes(family: int, packet_bytes: int) -> int:
    """Return the size of a packet as tc counts it, with Ethernet header."""
    return packet_bytes + header_bytes(family) + ETHERNET_BYTES


class Train(msgspec.Struct, frozen=True):
    """Size of a requested train: bursts, packets per burst, payload bytes
    per packet.
    """

    bursts: Annotated[int, msgspec.Meta(ge=1, le=MAX_BURSTS)]
    packets: Annotated[int, msgspec.Meta(ge=2, le=MAX_PACKETS)]
    packet_bytes: Annotated[int, msgspec.Meta(ge=HEADER.size,
                                              le=MAX_PACKET_BYTES)]

    @property
    def size_bytes(self) -> int:
        """Payload of all packets."""
        return self.bursts * self.packets * self.packet_bytes


class Bulk(msgspec.Struct, frozen=True):
    """A bulk TCP connection that is asked for.

    :ivar lasts_s: the sender stops after this time, or after ``size_bytes``.
    :ivar window_s: the receiver counts bytes in windows of this length.
    """

    lasts_s: Annotated[float, msgspec.Meta(gt=0, le=MAX_BULK_S)]
    size_bytes: Annotated[int, msgspec.Meta(
        ge=1, le=MAX_BULK_BYTES)] = MAX_BULK_BYTES
    window_s: Annotated[float, msgspec.Meta(
        ge=0.001, le=1.0)] = reports.WINDOW_S


class _Round(msgspec.Struct, frozen=True):
    start_in_s: Annotated[float, msgspec.Meta(
        ge=0, le=MAX_START_S)] | None = None


read_train, read_bulk, _read_round = Reader(Train), Reader(Bulk), Reader(
    _Round)


def start_of(order: dict[str, Any]) -> float | None:
    """Return when the connections of an order's round begin.

    :returns: on the clock of time.monotonic; None where the order gives no
        start.
    :raises ProbeError: for a time out of bounds.
    """
    start_in_s = _read_round(order).start_in_s
    return None if start_in_s is None else time.monotonic() + start_in_s


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

    def send(self, op: str, **fields: Any) -> None:
        line = json.dumps({'op': op, **fields}).encode() + b'\n'
        self.sock.settimeout(self._left_s())
        try:
            self.sock.sendall(line)
        except OSError as error:
            raise PeerGone(f'the peer went away: {error}') from None

    def has_message(self) -> bool:
        """Return whether :meth:`receive` would not wait for data."""
        return b'\n' in self._buffer or bool(
            select.select([self.sock], [], [], 0)[0])

    def receive(self, *wanted: str) -> dict[str, Any]:
        """Receive the next message.

        :param wanted: values of ``op`` that are accepted.
        :raises ProbeError: for another message, or none in time.
        """
        while b'\n' not in self._buffer:
            self.sock.settimeout(self._left_s())
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
            message = json.loads(line)
        except (ValueError, RecursionError):
            raise ProbeError('the message is not JSON') from None
        op = message.get('op') if isinstance(message, dict) else None
        if op == 'refuse':
            raise ProbeError(f'refused: {message.get("why")}')
        if op not in wanted:
            raise ProbeError('op: ' + exception.expected(
                ' or '.join(wanted), op))
        return dict(message)

    def receive_into(self, buffer: bytearray) -> int:
        """Read bulk data; return its bytes, 0 at the end of the stream."""
        self.sock.settimeout(self._left_s())
        try:
            return self.sock.recv_into(buffer)
        except OSError as error:
            raise ProbeError(f'no answer: {error}') from None

    def ask(self, op: str, wanted: str, **fields: Any) -> dict[str, Any]:
        self.send(op, **fields)
        return self.receive(wanted)

    def _left_s(self) -> float:
        left_s = self.deadline_s - time.monotonic()
        if left_s <= 0:
            raise ProbeError('the time is up')
        return left_s


def connect(address: str, port: int, deadline_s: float, key: Key
            ) -> tuple[Control, tuple[str, str]]:
    """Connect to a peer that has the key.

    It is retried for a while: the peer may hear of the measurement from the
    controller a little later than this end.

    :returns: the connection, and the nonces of sender and receiver.
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


def _authenticate(control: Control, key: Key) -> tuple[str, str]:
    mine = os.urandom(NONCE_BYTES).hex()
    answer = control.ask('hello', 'challenge', version=VERSION,
                         probe_id=key.probe_id, nonce=mine)
    nonces = mine, nonce_of(answer)
    key.check(answer.get('proof'), 'receiver', *nonces)
    control.send('proof', proof=key.sign('sender', *nonces))
    return nonces


def mtu(sock: socket.socket) -> int:
    """Return the MTU of the path of a connected socket, in bytes."""
    if sock.family == socket.AF_INET6:
        return sock.getsockopt(socket.IPPROTO_IPV6, _IPV6_MTU)
    return sock.getsockopt(socket.IPPROTO_IP, _IP_MTU)
