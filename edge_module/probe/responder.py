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

from edge_module.probe import netdev
from edge_module.probe import train_protocol as protocol
from edge_module.probe import trains
from virtco.wire import probe_order

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
#: Seconds for which a peer may occupy the responder that named no expected
#: measurement, which it does with its first segment, and that has no key.
_HELLO_S, _PROOF_S = 0.05, 1.0
#: Peers that wait meanwhile, for 1.6 s at most.
_MOST_WAITING = 32
_MOST_EXPECTED = 64
_MOST_WINDOWS = 1500
#: Packets that are read without a look at the time: somebody may send more
#: than can be read.
_MOST_AT_ONCE = 4096


class Responder:
    """Receiver of packet trains and bulk connections, one at a time.

    Its thread answers only peers with the key of a measurement that the
    controller announced; it closes every other connection without an answer.
    It never sends UDP, and over TCP a few hundred bytes per burst.

    :ivar port: the port in use, also when a free one was asked for.
    """

    def __init__(self, address: str, port: int, settings: protocol.Settings):
        self._settings = settings
        self._stop = threading.Event()
        self._pace = protocol.Pace(settings.max_trains_per_minute)
        self._expected: dict[str, _Expected] = {}
        family = socket.AF_INET6 if ':' in address else socket.AF_INET
        with contextlib.ExitStack() as opened:
            self._listener = opened.enter_context(socket.create_server(
                (address, port), family=family, backlog=_MOST_WAITING))
            # A peer is accepted when it says something, or after a second.
            self._listener.setsockopt(socket.IPPROTO_TCP,
                                      socket.TCP_DEFER_ACCEPT, 1)
            self.port: int = self._listener.getsockname()[1]
            self._packets = opened.enter_context(
                socket.socket(family, socket.SOCK_DGRAM))
            _set_options(self._packets.setsockopt)
            self._packets.bind((address, self.port))
            self._packets.setblocking(False)
            opened.pop_all()
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
        start_s, cookies = self._authenticate(control)
        control.deadline_s = time.monotonic() + self._settings.timeout_s
        try:
            self._receive(control, start_s, cookies)
        except protocol.ProbeError as error:
            with contextlib.suppress(protocol.ProbeError):
                control.send(protocol.Refuse(str(error)))
            raise

    def _authenticate(self, control: protocol.Control
                      ) -> tuple[float | None, Iterator[bytes]]:
        """Have the peer prove the key of a measurement that is expected.

        Nothing is sent to a peer that names no expected measurement.

        :returns: its start, see :meth:`expect`, and the cookies of its trains.
        """
        hello = control.receive(protocol.Hello)
        expected = self._awaited().get(hello.probe_id)
        if expected is None:
            raise protocol.ProbeError('nobody is expected by that name')
        control.deadline_s = time.monotonic() + _PROOF_S
        key = expected.key
        nonces = hello.nonce, os.urandom(protocol.NONCE_BYTES).hex()
        control.send(protocol.Challenge(nonces[1],
                                        key.sign('receiver', *nonces)))
        key.check(control.receive(protocol.Proof).proof, 'sender', *nonces)
        return expected.start_s, key.cookies(*nonces)

    def _receive(self, control: protocol.Control, start_s: float | None,
                 cookies: Iterator[bytes]) -> None:
        """Receive trains within the limits, or a bulk connection."""
        left_bytes = self._settings.max_bytes
        for cookie in cookies:
            traffic = control.receive(probe_order.Train, probe_order.Bulk)
            if isinstance(traffic, probe_order.Bulk):
                self._receive_bulk(control, traffic, start_s)
                return
            assert isinstance(traffic, probe_order.Train)
            if traffic.size_bytes > left_bytes:
                raise protocol.ProbeError(
                    f'{traffic.size_bytes} bytes are more than {left_bytes}')
            self._pace.admit()
            left_bytes -= self._receive_train(control, traffic, cookie)

    def _receive_bulk(self, control: protocol.Control,
                      bulk: probe_order.Bulk, start_s: float | None) -> None:
        """Count the bytes of a TCP connection by window, and send them."""
        self._pace.admit()
        now_s = time.monotonic()
        control.deadline_s = (max(now_s, start_s or now_s) + bulk.lasts_s
                              + self._settings.timeout_s)
        control.send(protocol.Go())
        control.send(protocol.Counted(_count(control, bulk, start_s)))

    def _receive_train(self, control: protocol.Control,
                       train: probe_order.Train, cookie: bytes) -> int:
        """Receive a train and send its result.

        :returns: payload bytes that the sender sent.
        """
        frame_bytes = protocol.frame_bytes(control.sock.family,
                                           train.packet_bytes)
        dev = self._settings.uplink_dev
        before_bytes = netdev.read_bytes(dev, netdev.RECEIVED)
        control.send(protocol.Go())
        bursts: list[trains.Burst] = []
        while (burst := _receive_burst(self._packets, control, train, cookie,
                                       len(bursts))) is not None:
            bursts.append(burst)
            control.send(protocol.Got(len(burst.arrivals)))
        own_bytes = frame_bytes * sum(len(b.arrivals) for b in bursts)
        foreign = netdev.foreign_share(
            before_bytes, netdev.read_bytes(dev, netdev.RECEIVED), own_bytes)
        rate = trains.estimate(bursts, frame_bytes=frame_bytes,
                               packet_bytes=train.packet_bytes)
        if rate is None:
            raise protocol.ProbeError('too few packets arrived')
        control.send(protocol.Result(rate, foreign))
        return sum(burst.sent for burst in bursts) * train.packet_bytes


@dataclasses.dataclass(frozen=True, slots=True)
class _Expected:
    """A measurement that is accepted; see :meth:`Responder.expect`."""

    key: protocol.Key
    until_s: float
    start_s: float | None


def _count(control: protocol.Control, bulk: probe_order.Bulk,
           start_s: float | None) -> tuple[int, ...]:
    """Count the bytes of each window until the stream ends.

    :param start_s: start of the first window; None to start it at the first
        byte. Earlier bytes count in the first window; with a start, windows
        beyond _MOST_WINDOWS are not counted.
    """
    buffer = bytearray(2 ** 18)
    left_bytes = bulk.size_bytes
    windows: list[int] = []
    begin_s = start_s
    while size_bytes := control.receive_into(buffer):
        now_s = time.monotonic()
        begin_s = now_s if begin_s is None else begin_s
        window = max(0, int((now_s - begin_s) / bulk.window_s))
        if window < _MOST_WINDOWS:
            windows += [0] * (window + 1 - len(windows))
            windows[window] += size_bytes
        elif start_s is None:
            raise protocol.ProbeError('the stream does not end')
        left_bytes -= size_bytes
        if left_bytes < 0:
            raise protocol.ProbeError('the stream is too long')
    return tuple(windows)


def _receive_burst(packets: socket.socket, control: protocol.Control,
                   train: probe_order.Train, cookie: bytes, index: int
                   ) -> trains.Burst | None:
    """Receive the next burst of a train; None when the sender ends the train.

    Its arrivals are in seconds from the second in which it is waited for:
    seconds since the epoch would leave a float no nanoseconds.
    """
    origin_s = int(time.time())
    arrivals: dict[int, float] = {}
    told: protocol.Sent | None = None
    quiet_s = _QUIET_S
    last_s = time.monotonic()
    while told is None or len(arrivals) < told.packets:
        wanted, left_s = [packets], control.left_s()
        if told is None:
            wanted.append(control.sock)
        readable, _, _ = select.select(
            wanted, [], [], min(left_s, quiet_s) if told else left_s)
        now_s = time.monotonic()
        arrived = packets in readable and [*_arrived(packets, cookie, index)]
        if arrived:
            if arrivals:
                quiet_s = min(_MAX_QUIET_S, max(quiet_s, 3 * (now_s - last_s)))
            for seq, seconds, nanoseconds in arrived:
                arrivals.setdefault(
                    seq, seconds - origin_s + nanoseconds * 1e-9)
            last_s = now_s
        elif told is not None and now_s - last_s >= quiet_s:
            break
        if told is None and control.has_message():
            message: protocol.Message = control.receive(
                protocol.Sent, protocol.End, protocol.Ping)
            if isinstance(message, protocol.End):
                return None
            if isinstance(message, protocol.Sent):
                if (index >= train.bursts
                        or message.packets > train.packets):
                    raise protocol.ProbeError(
                        f'the burst is not valid: {message}')
                told, last_s = message, now_s
            else:
                control.send(protocol.Pong())
    return trains.Burst(told.packets, tuple(arrivals.items()), told.sending_s)


def _set_options(setsockopt: Callable[[int, int, int], None]) -> None:
    # UDP_GRO stays off: merged packets would have one timestamp.
    setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    try:
        setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
    except PermissionError:
        setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)


def _arrived(sock: socket.socket, cookie: bytes, index: int
             ) -> Iterator[tuple[int, int, int]]:
    """Yield (sequence number, s, ns) of each packet of a burst that waits, of
    some thousands at once.
    """
    buffer = bytearray(protocol.HEADER.size)
    ancillary_bytes = socket.CMSG_SPACE(_TIMESPEC.size)
    for _ in range(_MOST_AT_ONCE):
        try:
            size, ancillary, _, _ = sock.recvmsg_into([buffer],
                                                      ancillary_bytes)
        except BlockingIOError:
            return
        if size < protocol.HEADER.size or not ancillary:
            continue
        *of, seq = protocol.HEADER.unpack(buffer)
        if of == [cookie, index]:
            yield (seq, *_TIMESPEC.unpack(ancillary[0][2]))
