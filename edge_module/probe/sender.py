# SPDX-License-Identifier: Apache-2.0

"""Sends one packet train and asks the peer what arrived."""

import contextlib
import dataclasses
import errno
import logging
import os
import select
import socket
import time
from typing import Any

from edge_module.probe import latency
from edge_module.probe import netdev
from edge_module.probe import protocol
from virtco import units
from virtco.wire import reports

LOG = logging.getLogger(__name__)

# Of <linux/udp.h>, <bits/in.h>, <linux/in6.h>: not in the socket module.
_UDP_SEGMENT = 103
_IP_MTU = 14
_IPV6_MTU = 24
#: HTB sends packets with this priority directly, past its classes.
_HTB_DIRECT = 0x10000
_MAX_SEGMENTS = 44
_MAX_SUPER_PACKET_BYTES = 65000
#: A burst goes out in at least so many super-packets: the receiver sees one
#: time for each of them.
_MIN_SUPER_PACKETS = 12
#: Round trips per measurement, and the longest that they may take.
_PINGS = 100
_PINGING_S = 0.3
#: How much longer the bursts get when a token bucket bent the first train.
_LONGER = 8
_PAUSE_S = 0.001
#: How long the peer may not yet know of the measurement.
_UNEXPECTED_S = 3.0
_RETRY_S = 0.2


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """How trains are sent; the bounds are those of a responder.

    :ivar max_sending_s: no new burst begins after this time; slow paths get
        fewer bursts.
    :ivar bypass_classes: send past the classes of the uplink's HTB, as direct
        packets, so that a train sees the link and not the policy. Without
        CAP_NET_ADMIN it goes in the default class.
    :ivar foreign_share: of the bytes on the uplink at either end; with more
        of other traffic a measurement is a lower bound.
    :ivar repeats: False to take the train as it is, whether its bursts are
        long enough or not: for calibration.
    """

    timeout_s: float = 5.0
    max_sending_s: float = 2.5
    max_bytes: int = 16 * 2 ** 20
    max_bulk_bytes: int = protocol.MAX_BULK_BYTES
    bypass_classes: bool = True
    foreign_share: float = 0.05
    repeats: bool = True
    uplink_dev: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Measurement:
    """What a train said about the path to the peer.

    :ivar throughput_bps: what a bulk TCP connection would get.
    :ivar rtt: round trips between the two processes before the train.
    :ivar lower_bound: the path is at least that fast.
    :ivar sent_bytes: payload of all packets, also of a longer second train.
    :ivar agrees: see :class:`edge_module.probe.trains.TrainRate`; always True
        in the result of :func:`measure` unless it is a lower bound.
    """

    rate_bps: float
    throughput_bps: float
    lower_bound: bool
    agrees: bool
    loss: float
    rtt: latency.RoundTrips
    bursts: int
    sent_bytes: int = 0


def measure(address: str, port: int, train: protocol.Train,
            settings: Settings, key: protocol.Key) -> Measurement:
    """Measure the path to a peer, with longer bursts if the first mislead.

    :param key: as the controller gave it to both ends.
    :raises protocol.ProbeError: when there is no result, with the reason.
    """
    deadline_s = time.monotonic() + settings.timeout_s
    control, nonces = _connect(address, port, deadline_s, key)
    with control.sock:
        return _Session(control, settings, key, nonces).run(train)


@dataclasses.dataclass(frozen=True, slots=True)
class Flow:
    """What one bulk TCP connection got.

    :ivar windows_bytes: payload at the receiver, in each window from its
        first byte, or from the common start, on.
    :ivar overhead: of a full frame to its payload.
    """

    rate_bps: float
    windows_bytes: tuple[int, ...]
    overhead: float = 1.0

    @property
    def sent_bytes(self) -> int:
        return sum(self.windows_bytes)

    def in_frames(self, window_s: float) -> 'Flow':
        """With the bytes of whole frames, and the rate over all windows."""
        windows = tuple(round(one * self.overhead)
                        for one in self.windows_bytes)
        return Flow(units.bytes_per_s_to_bps(
            sum(windows) / (len(windows) * window_s)), windows)


def bulk(address: str, port: int, lasts_s: float, settings: Settings,
         key: protocol.Key) -> Flow:
    """Send as much as one TCP connection can for some time.

    :raises protocol.ProbeError: when there is no result, with the reason.
    """
    return transfer(address, port, protocol.Bulk(lasts_s), settings, key)


def transfer(address: str, port: int, asked: protocol.Bulk,
             settings: Settings, key: protocol.Key,
             start_s: float | None = None) -> Flow:
    """Send as much as one TCP connection can, within bounds.

    :param start_s: when to begin, on the clock of time.monotonic; None for at
        once. Such a connection is one of a round that is to fill a link: it
        passes the uplink's classes as trains do.
    :raises protocol.ProbeError: when there is no result, with the reason.
    """
    begin_s = max(time.monotonic(), start_s or 0.0)
    control, _ = _connect(address, port, begin_s + settings.timeout_s
                          + asked.lasts_s, key)
    with control.sock:
        control.ask('bulk', 'go', **dataclasses.asdict(asked))
        if start_s is not None:
            _prepare(control.sock, settings)
            time.sleep(max(0.0, start_s - time.monotonic()))
        control.sock.settimeout(settings.timeout_s + asked.lasts_s)
        try:
            _fill(control.sock, time.monotonic() + asked.lasts_s,
                  min(asked.size_bytes, settings.max_bulk_bytes))
            control.sock.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise protocol.ProbeError(f'cannot send: {error}') from None
        return _read_flow(control.receive('flow'), _overhead(control.sock))


def _prepare(sock: socket.socket, settings: Settings) -> None:
    """Take the link past the classes, by a congestion control that fills
    queues.
    """
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b'cubic')
    if settings.bypass_classes:
        with contextlib.suppress(PermissionError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY,
                            _HTB_DIRECT)


def _fill(sock: socket.socket, stop_s: float, left_bytes: int) -> None:
    chunk = memoryview(bytes(2 ** 16))
    while left_bytes > 0 and time.monotonic() < stop_s:
        size_bytes = min(left_bytes, len(chunk))
        sock.sendall(chunk[:size_bytes])
        left_bytes -= size_bytes


def _overhead(sock: socket.socket) -> float:
    mss_bytes = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
    return (_mtu(sock) + protocol.ETHERNET_BYTES) / mss_bytes


def _read_flow(answer: dict[str, Any], overhead: float) -> Flow:
    windows = answer.get('windows_bytes')
    if (not isinstance(windows, list)
            or not all(type(one) is int and one >= 0 for one in windows)):
        raise protocol.ProbeError('no valid flow')
    return Flow(_steady_bps(windows), tuple(windows), overhead)


def _steady_bps(windows_bytes: list[int]) -> float:
    """Rate of a connection without its first quarter: slow start, and what a
    token bucket lets through; and without its last window, which ends early.
    """
    steady = windows_bytes[len(windows_bytes) // 4:-1]
    if not steady:
        return 0.0
    return units.bytes_per_s_to_bps(
        sum(steady) / (len(steady) * reports.WINDOW_S))


def _connect(address: str, port: int, deadline_s: float, key: protocol.Key
             ) -> tuple[protocol.Control, tuple[str, str]]:
    """A connection to a peer that has the key.

    The peer may hear of it from the controller a little later than this end.
    """
    stop_s = min(deadline_s, time.monotonic() + _UNEXPECTED_S)
    while True:
        try:
            sock = socket.create_connection(
                (address, port), max(0.1, deadline_s - time.monotonic()))
        except OSError as error:
            raise protocol.ProbeError(
                f'{address} port {port} does not answer: {error}') from None
        control = protocol.Control(sock, deadline_s)
        try:
            return control, _authenticate(control, key)
        except protocol.PeerGone as error:
            sock.close()
            if time.monotonic() + _RETRY_S > stop_s:
                raise protocol.ProbeError(
                    f'{address} expects no train: {error}') from None
            time.sleep(_RETRY_S)
        except BaseException:
            sock.close()
            raise


def _authenticate(control: protocol.Control, key: protocol.Key
                  ) -> tuple[str, str]:
    mine = os.urandom(protocol.NONCE_BYTES).hex()
    answer = control.ask('hello', 'challenge', version=protocol.VERSION,
                         probe_id=key.probe_id, nonce=mine)
    nonces = mine, protocol.nonce_of(answer)
    key.check(answer.get('proof'), 'receiver', *nonces)
    control.send('proof', proof=key.sign('sender', *nonces))
    return nonces


class _Session:
    """Trains over one control connection."""

    def __init__(self, control: protocol.Control, settings: Settings,
                 key: protocol.Key, nonces: tuple[str, str]):
        self._control = control
        self._key = key
        self._nonces = nonces
        self._n_trains = 0
        self._settings = settings
        self._stop_s = time.monotonic() + settings.max_sending_s
        self._left_bytes = settings.max_bytes
        self._is_shared = False

    def run(self, train: protocol.Train) -> Measurement:
        sock = self._packet_socket()
        with sock:
            train = self._fitting(train, _mtu(sock))
            found = self._send(sock, train)
            longer = self._longer(train)
            misleads = found.lower_bound or not found.agrees
            if (longer is not None and misleads and not self._is_shared
                    and self._settings.repeats):
                try:
                    found = self._send(sock, longer)
                except protocol.ProbeError as error:
                    LOG.debug('No second, longer train: %s', error)
        if (not found.agrees and not found.lower_bound
                and self._settings.repeats):
            raise protocol.ProbeError(
                'the segments of the bursts disagree: a token bucket larger '
                'than the burst, or other traffic')
        return dataclasses.replace(
            found, lower_bound=found.lower_bound or self._is_shared,
            sent_bytes=self._settings.max_bytes - self._left_bytes)

    def _packet_socket(self) -> socket.socket:
        peer = self._control.sock.getpeername()
        sock = socket.socket(self._control.sock.family, socket.SOCK_DGRAM)
        if self._settings.bypass_classes:
            try:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY,
                                _HTB_DIRECT)
            except PermissionError:
                LOG.debug('No CAP_NET_ADMIN: the train is sent in the '
                          'default class of the uplink.')
        sock.setblocking(False)
        sock.connect(peer)
        return sock

    def _fitting(self, train: protocol.Train, mtu: int) -> protocol.Train:
        """The train within the path's MTU and the budget of bytes."""
        packet_bytes = min(train.packet_bytes, mtu - protocol.header_bytes(
            self._control.sock.family))
        packets = min(train.packets, self._left_bytes // packet_bytes)
        bursts = min(train.bursts,
                     self._left_bytes // (packets * packet_bytes))
        return protocol.Train(bursts, packets, packet_bytes)

    def _longer(self, train: protocol.Train) -> protocol.Train | None:
        packets = min(train.packets * _LONGER, protocol.MAX_PACKETS,
                      self._left_bytes // train.packet_bytes)
        if packets < 2 * train.packets or time.monotonic() >= self._stop_s:
            return None
        bursts = self._left_bytes // (packets * train.packet_bytes)
        return protocol.Train(min(train.bursts, bursts), packets,
                              train.packet_bytes)

    def _send(self, sock: socket.socket,
              train: protocol.Train) -> Measurement:
        control = self._control
        control.ask('train', 'go', **dataclasses.asdict(train))
        cookie = self._key.cookie(self._n_trains, *self._nonces)
        self._n_trains += 1
        rtt = self._round_trips()
        sender = BurstSender(sock, train, cookie)
        dev = self._settings.uplink_dev
        before_bytes = netdev.sent_bytes(dev)
        n_sent = self._send_bursts(sender, train)
        foreign = netdev.foreign_share(
            before_bytes, netdev.sent_bytes(dev),
            n_sent * protocol.frame_bytes(sock.family, train.packet_bytes))
        found, foreign_there = _read_result(control.ask('end', 'result'),
                                            rtt)
        self._is_shared = (max(foreign, foreign_there)
                           > self._settings.foreign_share)
        return found

    def _send_bursts(self, sender: 'BurstSender',
                     train: protocol.Train) -> int:
        """Send the bursts, each when the one before it has arrived."""
        n_sent = 0
        for index in range(train.bursts):
            if index and time.monotonic() >= self._stop_s:
                break
            sending_s = sender.send(index, self._control.deadline_s)
            n_sent += sender.n_packets
            self._left_bytes -= sender.n_packets * train.packet_bytes
            got = self._control.ask('burst', 'got', index=index,
                                    sent=sender.n_packets,
                                    sending_s=sending_s)
            if not index and not got.get('received'):
                raise protocol.ProbeError('no packet arrived: is UDP let '
                                          'through?')
            time.sleep(_PAUSE_S)
        return n_sent

    def _round_trips(self) -> latency.RoundTrips:
        """Nothing else is in flight, so no train's queue is counted."""
        stop_s = time.monotonic() + _PINGING_S
        found = [self._ping_s()]
        while len(found) < _PINGS and time.monotonic() < stop_s:
            found.append(self._ping_s())
        return latency.of(found)

    def _ping_s(self) -> float:
        begin_s = time.perf_counter()
        self._control.ask('ping', 'pong')
        return time.perf_counter() - begin_s


class BurstSender:
    """Sends bursts of one train as fast as the sender can.

    In super-packets that the kernel or the device cuts (UDP_SEGMENT), all of
    the same size, or one by one where that is not possible.

    :ivar n_packets: packets per burst: those asked for, without the rest
        that would not fill a super-packet.
    """

    def __init__(self, sock: socket.socket, train: protocol.Train,
                 cookie: bytes):
        self._sock = sock
        self._cookie = cookie
        self._packet_bytes = train.packet_bytes
        self._segments = max(1, min(
            train.packets // _MIN_SUPER_PACKETS, _MAX_SEGMENTS,
            _MAX_SUPER_PACKET_BYTES // train.packet_bytes))
        self.n_packets = train.packets // self._segments * self._segments
        self._buffer = bytearray(self.n_packets * train.packet_bytes)
        self._use_segments()

    def _use_segments(self) -> None:
        if self._segments == 1:
            return
        try:
            self._sock.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT,
                                  self._packet_bytes)
        except OSError:
            self._segments = 1

    def send(self, index: int, deadline_s: float) -> float:
        """Send one burst.

        :returns: seconds spent on it without those in which the socket's
            queue was full: then the path, not the sender, was the limit.
        """
        for seq in range(self.n_packets):
            protocol.HEADER.pack_into(self._buffer, seq * self._packet_bytes,
                                      self._cookie, index, seq)
        view = memoryview(self._buffer)
        begin_s = time.perf_counter()
        waited_s = 0.0
        sent_bytes = 0
        while sent_bytes < len(view):
            size_bytes = self._segments * self._packet_bytes
            try:
                self._sock.send(view[sent_bytes:sent_bytes + size_bytes])
            except BlockingIOError:
                waited_s += self._wait(deadline_s)
                continue
            except OSError as error:
                if not self._can_go_on(error):
                    raise protocol.ProbeError(
                        f'cannot send: {error}') from None
                continue
            sent_bytes += size_bytes
        return max(0.0, time.perf_counter() - begin_s - waited_s)

    def _wait(self, deadline_s: float) -> float:
        begin_s = time.perf_counter()
        left_s = deadline_s - time.monotonic()
        if left_s <= 0 or not select.select([], [self._sock], [], left_s)[1]:
            raise protocol.ProbeError('the uplink does not send')
        return time.perf_counter() - begin_s

    def _can_go_on(self, error: OSError) -> bool:
        """Give super-packets up where the device cannot cut them."""
        if self._segments > 1 and error.errno in (errno.EIO, errno.EINVAL,
                                                  errno.EMSGSIZE):
            self._sock.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, 0)
            self._segments = 1
            return True
        return False


def _read_result(result: dict[str, Any], rtt: latency.RoundTrips
                 ) -> tuple[Measurement, float]:
    """The measurement and the share of foreign traffic at the receiver."""
    try:
        return Measurement(
            rate_bps=float(result['rate_bps']), rtt=rtt,
            throughput_bps=float(result['throughput_bps']),
            lower_bound=bool(result['lower_bound']),
            agrees=bool(result['agrees']), loss=float(result['loss']),
            bursts=int(result['bursts'])), float(result['foreign_share'])
    except (KeyError, TypeError, ValueError):
        raise protocol.ProbeError(f'no valid result: {result}') from None


def _mtu(sock: socket.socket) -> int:
    if sock.family == socket.AF_INET6:
        return sock.getsockopt(socket.IPPROTO_IPV6, _IPV6_MTU)
    return sock.getsockopt(socket.IPPROTO_IP, _IP_MTU)
