# SPDX-License-Identifier: Apache-2.0

"""Answers the packet trains of other edge modules."""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import dataclasses
import logging
import os
import select
import socket
import struct
import threading
import time
from typing import Annotated
from typing import Any

import msgspec

from edge_module.probe import netdev
from edge_module.probe import train_protocol as protocol
from edge_module.probe import trains

LOG = logging.getLogger(__name__)

# Options in <asm-generic/socket.h> that the socket module lacks.
_SO_TIMESTAMPNS = 35
_SO_RCVBUFFORCE = 33
_TIMESPEC = struct.Struct('@qq')
#: Room for the longest burst, with the kernel's overhead of each packet.
_BUFFER_BYTES = 16 * 2 ** 20
_QUIET_S = 0.05
_MAX_QUIET_S = 0.5
_STOP_S = 1.2
#: Seconds for which an unauthenticated peer may occupy the responder.
_HELLO_S = 1.0
_MOST_EXPECTED = 64
_MOST_WINDOWS = 1500


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Address and limits of a responder.

    :ivar timeout_s: after which a train is given up, as by the controller.
    :ivar max_bytes: payload of one connection's trains: the first, and a
        second one with longer bursts if a token bucket bent the first.
    :ivar max_bulk_bytes: payload of one bulk TCP connection.
    :ivar uplink_dev: device whose other traffic is measured; None for none.
    """

    address: str
    port: int
    timeout_s: float = protocol.TIMEOUT_S
    max_bytes: int = 16 * 2 ** 20
    max_trains_per_minute: int = protocol.TRAINS_PER_MINUTE
    max_bulk_bytes: int = protocol.MAX_BULK_BYTES
    uplink_dev: str | None = None


class Responder:
    """Receiver of packet trains and bulk connections, one at a time.

    Its thread answers only peers with the key of a measurement that the
    controller announced; it closes every other connection without an answer.
    It never sends UDP, and over TCP a few hundred bytes per burst.

    :ivar port: the port in use, also when a free one was asked for.
    """

    def __init__(self, settings: Settings):
        self._settings = settings
        self._stop = threading.Event()
        self._pace = protocol.Pace(settings.max_trains_per_minute)
        self._expected: dict[str, _Expected] = {}
        family = (socket.AF_INET6 if ':' in settings.address
                  else socket.AF_INET)
        self._listener = socket.create_server(
            (settings.address, settings.port), family=family, backlog=8)
        self.port: int = self._listener.getsockname()[1]
        try:
            self._packets = _packet_socket(family, settings.address,
                                           self.port)
        except OSError:
            self._listener.close()
            raise
        self._thread = threading.Thread(target=self._run, daemon=True,
                                        name='virtco-probe-responder')

    def start(self) -> None:
        self._thread.start()

    def expect(self, key: protocol.Key, lasts_s: float,
               start_s: float | None = None) -> None:
        """Accept a measurement with this key for ``lasts_s`` seconds.

        :param start_s: time at which its bulk connection is to begin, on the
            clock of time.monotonic; None for no certain time.
        """
        expected = list(self._awaited().items())
        self._expected = dict([
            *expected[-_MOST_EXPECTED + 1:], (key.probe_id, _Expected(
                key, time.monotonic() + lasts_s, start_s))])

    def _awaited(self) -> dict[str, '_Expected']:
        """Return the measurements whose time is not over, by probe_id."""
        now_s = time.monotonic()
        return {name: found for name, found in self._expected.items()
                if found.until_s >= now_s}

    def _who(self, probe_id: object) -> '_Expected':
        found = self._awaited().get(str(probe_id))
        if found is None:
            raise protocol.ProbeError('nobody is expected by that name')
        return found

    def stop(self) -> None:
        self._stop.set()
        self._listener.shutdown(socket.SHUT_RDWR)  # ends the wait
        self._thread.join(_STOP_S)
        self._listener.close()
        self._packets.close()

    def _run(self) -> None:
        """Accept senders of packet trains, one at a time."""
        while not self._stop.is_set():
            try:
                sock, peer = self._listener.accept()
            except OSError as error:
                if not self._stop.is_set():
                    LOG.warning('Cannot accept packet trains: %s', error)
                    self._stop.wait(1.0)
                continue
            with sock:
                if not self._awaited():
                    continue
                try:
                    self._serve(sock)
                except protocol.ProbeError as error:
                    LOG.debug('Packet train of %s: %s', peer[0], error)
                except Exception:
                    LOG.exception('Packet train of %s failed', peer[0])

    def _serve(self, sock: socket.socket) -> None:
        """Receive an authenticated sender's trains or its transfer."""
        control = protocol.Control(sock, time.monotonic() + _HELLO_S)
        expected, nonces = self._authenticate(control)
        control.deadline_s = time.monotonic() + self._settings.timeout_s
        left_bytes = self._settings.max_bytes
        index = 0
        while not self._stop.is_set():
            message = control.receive('train', 'bulk')
            if message['op'] == 'bulk':
                self._receive_bulk(control, message, expected.start_s)
                return
            with _refusing(control):
                train = protocol.read_train(message)
                if train.size_bytes > left_bytes:
                    raise protocol.ProbeError(
                        f'{train.size_bytes} bytes are more than '
                        f'{left_bytes}')
                self._pace.admit()
            left_bytes -= self._receive(control, train,
                                        expected.key.cookie(index, *nonces))
            index += 1

    def _authenticate(self, control: protocol.Control
                      ) -> tuple['_Expected', tuple[str, str]]:
        """Have the peer prove the key of a measurement that is expected.

        Nothing is sent to a peer that names no expected measurement.

        :returns: the measurement, and the nonces of sender and receiver.
        """
        hello = control.receive('hello')
        expected = self._who(hello.get('probe_id'))
        key = expected.key
        nonces = (protocol.nonce_of(hello),
                  os.urandom(protocol.NONCE_BYTES).hex())
        control.send('challenge', nonce=nonces[1],
                     proof=key.sign('receiver', *nonces))
        key.check(control.receive('proof').get('proof'), 'sender', *nonces)
        return expected, nonces

    def _receive_bulk(self, control: protocol.Control,
                      message: dict[str, Any], start_s: float | None
                      ) -> None:
        """Count the bytes of a TCP connection by window, and send them."""
        with _refusing(control):
            bulk = protocol.read_bulk(message)
            self._pace.admit()
        now_s = time.monotonic()
        control.deadline_s = (max(now_s, start_s or now_s) + bulk.lasts_s
                              + self._settings.timeout_s)
        control.send('go')
        control.send('flow', windows_bytes=_count(
            control, self._settings.max_bulk_bytes, bulk.window_s, start_s))

    def _receive(self, control: protocol.Control, train: protocol.Train,
                 cookie: bytes) -> int:
        """Receive a train and send its result.

        :returns: payload bytes that the sender sent.
        """
        frame_bytes = protocol.frame_bytes(control.sock.family,
                                           train.packet_bytes)
        dev = self._settings.uplink_dev
        before_bytes = netdev.read_bytes(dev, netdev.RECEIVED)
        control.send('go')
        bursts: list[trains.Burst] = []
        receiver = _BurstReceiver(self._packets, control, train, cookie)
        while (burst := receiver.next(len(bursts))) is not None:
            bursts.append(burst)
            control.send('got', index=len(bursts) - 1,
                         received=len(burst.arrivals))
        own_bytes = frame_bytes * sum(len(b.arrivals) for b in bursts)
        foreign = netdev.foreign_share(
            before_bytes, netdev.read_bytes(dev, netdev.RECEIVED), own_bytes)
        rate = trains.estimate(bursts, frame_bytes=frame_bytes,
                               packet_bytes=train.packet_bytes)
        with _refusing(control):
            if rate is None:
                raise protocol.ProbeError('too few packets arrived')
        control.send('result', foreign_share=foreign,
                     **dataclasses.asdict(rate))
        return sum(burst.sent for burst in bursts) * train.packet_bytes


@dataclasses.dataclass(frozen=True, slots=True)
class _Expected:
    """A measurement that is accepted; see :meth:`Responder.expect`."""

    key: protocol.Key
    until_s: float
    start_s: float | None


@contextlib.contextmanager
def _refusing(control: protocol.Control) -> Iterator[None]:
    """Tell the peer why its request is refused."""
    try:
        yield
    except protocol.ProbeError as error:
        control.send('refuse', why=str(error))
        raise


class _Sent(msgspec.Struct, frozen=True):
    """Message of the sender about the burst that it just sent."""

    index: int
    sent: Annotated[int, msgspec.Meta(ge=1)]
    sending_s: float


_read_sent = protocol.Reader(_Sent)


def _count(control: protocol.Control, most_bytes: int, window_s: float,
           start_s: float | None) -> list[int]:
    """Count the bytes of each window until the stream ends.

    :param start_s: start of the first window; None to start it at the first
        byte. Earlier bytes count in the first window; with a start, windows
        beyond _MOST_WINDOWS are not counted.
    """
    buffer = bytearray(2 ** 18)
    windows: list[int] = []
    begin_s = start_s
    while size_bytes := control.receive_into(buffer):
        now_s = time.monotonic()
        begin_s = now_s if begin_s is None else begin_s
        window = max(0, int((now_s - begin_s) / window_s))
        if window < _MOST_WINDOWS:
            windows += [0] * (window + 1 - len(windows))
            windows[window] += size_bytes
        elif start_s is None:
            raise protocol.ProbeError('the stream does not end')
        most_bytes -= size_bytes
        if most_bytes < 0:
            raise protocol.ProbeError('the stream is too long')
    return windows


class _BurstReceiver:
    """Collects the arrivals of the bursts of one train."""

    def __init__(self, packets: socket.socket, control: protocol.Control,
                 train: protocol.Train, cookie: bytes):
        self._packets = packets
        self._control = control
        self._train = train
        self._cookie = cookie
        # Seconds since the epoch would leave a float no nanoseconds.
        self._origin_s = int(time.time())

    def next(self, index: int) -> trains.Burst | None:
        """Receive the next burst; None when the sender ends the train."""
        arrivals: dict[int, float] = {}
        told: _Sent | None = None
        quiet_s = _QUIET_S
        last_s = time.monotonic()
        while told is None or len(arrivals) < told.sent:
            readable = self._wait(quiet_s if told else None)
            now_s = time.monotonic()
            if self._packets in readable:
                if arrivals:
                    quiet_s = min(_MAX_QUIET_S,
                                  max(quiet_s, 3 * (now_s - last_s)))
                self._drain(index, arrivals)
                last_s = now_s
            elif told is not None and now_s - last_s >= quiet_s:
                break
            if told is None and self._control.has_message():
                message = self._control.receive('burst', 'end', 'ping')
                if message['op'] == 'end':
                    return None
                if message['op'] == 'ping':
                    self._control.send('pong')
                else:
                    told, last_s = self._checked(message, index), now_s
        return trains.Burst(told.sent, tuple(arrivals.items()),
                            told.sending_s)

    def _wait(self, quiet_s: float | None) -> list[socket.socket]:
        left_s = self._control.deadline_s - time.monotonic()
        if left_s <= 0:
            raise protocol.ProbeError('the time is up')
        wanted = [self._packets]
        if quiet_s is None:
            wanted.append(self._control.sock)
        return select.select(wanted, [], [],
                             min(left_s, quiet_s or left_s))[0]

    def _checked(self, message: dict[str, Any], index: int) -> _Sent:
        """Check the sender's message about the burst that it just sent.

        :raises protocol.ProbeError: for invalid fields.
        """
        told = _read_sent(message)
        if (told.index != index or index >= self._train.bursts
                or told.sent > self._train.packets):
            raise protocol.ProbeError(f'the burst is not valid: {message}')
        return told

    def _drain(self, index: int, arrivals: dict[int, float]) -> None:
        for cookie, burst, seq, seconds, nanoseconds in _arrived(
                self._packets):
            if cookie == self._cookie and burst == index:
                arrivals.setdefault(
                    seq, seconds - self._origin_s + nanoseconds * 1e-9)


def _packet_socket(family: int, address: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        # UDP_GRO stays off: merged packets would have one timestamp.
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        _enlarge(sock.setsockopt)
        sock.bind((address, port))
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def _enlarge(setsockopt: Callable[[int, int, int], None]) -> None:
    try:
        setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
    except PermissionError:
        setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)


def _arrived(sock: socket.socket) -> Iterator[tuple[bytes, int, int, int,
                                                    int]]:
    """Yield header fields and (s, ns) timestamp of each waiting packet."""
    buffer = bytearray(protocol.HEADER.size)
    ancillary_bytes = socket.CMSG_SPACE(_TIMESPEC.size)
    while True:
        try:
            size, ancillary, _, _ = sock.recvmsg_into([buffer],
                                                      ancillary_bytes)
        except BlockingIOError:
            return
        if size < protocol.HEADER.size or not ancillary:
            continue
        yield (*protocol.HEADER.unpack(buffer),
               *_TIMESPEC.unpack(ancillary[0][2]))
