# SPDX-License-Identifier: Apache-2.0

"""Sender of a packet train, which gets the result from the peer."""

import dataclasses
import errno
import logging
import select
import socket
import time
from typing import Any

from edge_module.probe import netdev
from edge_module.probe import train_protocol as protocol
from edge_module.probe import trains

LOG = logging.getLogger(__name__)

# Of <linux/udp.h>: not in the socket module.
_UDP_SEGMENT = 103
#: HTB sends packets with this priority directly, past its classes.
HTB_DIRECT = 0x10000
_MAX_SEGMENTS = 44
_MAX_SUPER_PACKET_BYTES = 65000
#: Least number of super-packets per burst: the receiver sees one arrival time
#: for each of them.
_MIN_SUPER_PACKETS = 12
#: Round trips per measurement, and the longest that they may take.
_PINGS = 100
_PINGING_S = 0.3
#: How much longer the bursts get when a token bucket bent the first train.
_LONGER = 8
_PAUSE_S = 0.001


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Limits and options of a measurement.

    :ivar timeout_s: after which it is given up.
    :ivar max_sending_s: no burst begins later; slow paths get fewer.
    :ivar max_bytes: of all trains, longer second ones included.
    :ivar bypass_classes: send trains past the classes of the uplink's HTB, so
        that they measure the link and not the policy; without CAP_NET_ADMIN
        they are sent in the default class.
    :ivar foreign_share: share of other traffic in the uplink's bytes, at
        either end, above which the rate is only a lower bound.
    :ivar repeats: False to take the train as it is, whether its bursts are
        long enough or not: for calibration.
    """

    timeout_s: float = protocol.TIMEOUT_S
    max_sending_s: float = 2.5
    max_bytes: int = 2 ** 24
    max_bulk_bytes: int = protocol.MAX_BULK_BYTES
    bypass_classes: bool = True
    foreign_share: float = 0.05
    repeats: bool = True
    uplink_dev: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Measurement:
    """Result of a train about the path to the peer.

    :ivar rate_bps: see :class:`edge_module.probe.trains.TrainRate`.
    :ivar throughput_bps: expected throughput of a bulk TCP connection.
    :ivar rtt: round trips between the two processes before the train.
    :ivar lower_bound: whether the path may be faster than measured.
    :ivar sent_bytes: payload of all packets, also of a longer second train.
    :ivar agrees: see :class:`edge_module.probe.trains.TrainRate`; always True
        in the result of :func:`measure` unless it is a lower bound.
    """

    rate_bps: float
    throughput_bps: float
    lower_bound: bool
    agrees: bool
    loss: float
    rtt: trains.RoundTrips
    bursts: int
    sent_bytes: int = 0


def measure(address: str, port: int, train: protocol.Train,
            settings: Settings, key: protocol.Key) -> Measurement:
    """Measure the path to a peer, with longer bursts if the first mislead.

    :param key: as the controller gave it to both ends.
    :raises protocol.ProbeError: when there is no result, with the reason.
    """
    deadline_s = time.monotonic() + settings.timeout_s
    control, nonces = protocol.connect(address, port, deadline_s, key)
    with control.sock:
        return _Session(control, settings, key, nonces).run(train)


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
            train = self._fitting(train, protocol.mtu(sock))
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
                                HTB_DIRECT)
            except PermissionError:
                LOG.debug('No CAP_NET_ADMIN: the train is sent in the '
                          'default class of the uplink.')
        sock.setblocking(False)
        sock.connect(peer)
        return sock

    def _fitting(self, train: protocol.Train, mtu: int) -> protocol.Train:
        """Return the train, reduced to the path's MTU and bytes left."""
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

    def _round_trips(self) -> trains.RoundTrips:
        """Measure round trips, before any packet of a train is in flight."""
        stop_s = time.monotonic() + _PINGING_S
        found = [self._ping_s()]
        while len(found) < _PINGS and time.monotonic() < stop_s:
            found.append(self._ping_s())
        return trains.round_trips(found)

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
        """Return whether to go on, in single packets, after an error.

        True if the device could not cut super-packets.
        """
        if self._segments > 1 and error.errno in (errno.EIO, errno.EINVAL,
                                                  errno.EMSGSIZE):
            self._sock.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, 0)
            self._segments = 1
            return True
        return False


def _read_result(result: dict[str, Any], rtt: trains.RoundTrips
                 ) -> tuple[Measurement, float]:
    """Read the measurement and the receiver's share of other traffic."""
    try:
        return Measurement(
            rate_bps=float(result['rate_bps']), rtt=rtt,
            throughput_bps=float(result['throughput_bps']),
            lower_bound=bool(result['lower_bound']),
            agrees=bool(result['agrees']), loss=float(result['loss']),
            bursts=int(result['bursts'])), float(result['foreign_share'])
    except (KeyError, TypeError, ValueError):
        raise protocol.ProbeError(f'no valid result: {result}') from None
