# SPDX-License-Identifier: Apache-2.0

"""Sender of a packet train, which gets the result from the peer."""

from collections.abc import Iterator
import dataclasses
import errno
import logging
import select
import socket
import time

from edge_module.probe import netdev
from edge_module.probe import train_protocol as protocol
from edge_module.probe import trains
from virtco.wire import edge_policy
from virtco.wire import probe_order

LOG = logging.getLogger(__name__)

# Option in <linux/udp.h> that the socket module lacks.
_UDP_SEGMENT = 103
#: The edge module's HTB sends packets with its own handle as their priority
#: directly, past its classes.
HTB_DIRECT = edge_policy.CLASS_MAJOR << 16
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
#: Share of other traffic in the uplink's bytes, at either end, above which the
#: rate is only a lower bound.
_FOREIGN_SHARE = 0.05
#: Errors of a device that cannot cut super-packets.
_UNCUT = (errno.EIO, errno.EINVAL, errno.EMSGSIZE)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measurement(trains.TrainRate):
    """Result of a train about the path to the peer.

    ``lower_bound`` also tells of other traffic; ``agrees`` is always True in
    the result of :func:`measure` unless it is a lower bound.

    :ivar rtt: round trips between the two processes before the train.
    :ivar sent_bytes: payload of all packets, also of a longer second train.
    """

    rtt: trains.RoundTrips
    sent_bytes: int = 0


def measure(address: str, port: int, train: probe_order.Train,
            settings: protocol.Settings, key: protocol.Key) -> Measurement:
    """Measure the path to a peer, with longer bursts if the first mislead.

    :param key: key that the controller gave to both ends.
    :raises protocol.ProbeError: when there is no result, with the reason.
    """
    deadline_s = time.monotonic() + settings.timeout_s
    control, cookies = protocol.connect(address, port, deadline_s, key)
    with control.sock:
        return _Session(control, settings, cookies).run(train)


class _Session:
    """Trains over one control connection."""

    def __init__(self, control: protocol.Control, settings: protocol.Settings,
                 cookies: Iterator[bytes]):
        self._control = control
        self._cookies = cookies
        self._settings = settings
        self._stop_s = time.monotonic() + settings.max_sending_s
        self._left_bytes = settings.max_bytes
        self._is_shared = False

    def run(self, train: probe_order.Train) -> Measurement:
        with socket.socket(self._control.sock.family,
                           socket.SOCK_DGRAM) as sock:
            bypass_classes(sock, self._settings)
            sock.setblocking(False)
            sock.connect(self._control.sock.getpeername())
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

    def _fitting(self, train: probe_order.Train, mtu: int
                 ) -> probe_order.Train:
        """Return the train, reduced to the path's MTU and bytes left."""
        packet_bytes = min(train.packet_bytes, mtu - protocol.HEADERS_BYTES[
            self._control.sock.family])
        packets = min(train.packets, self._left_bytes // packet_bytes)
        bursts = min(train.bursts,
                     self._left_bytes // (packets * packet_bytes))
        return probe_order.Train(bursts, packets, packet_bytes)

    def _longer(self, train: probe_order.Train) -> probe_order.Train | None:
        packets = min(train.packets * _LONGER, probe_order.MAX_PACKETS,
                      self._left_bytes // train.packet_bytes)
        if packets < 2 * train.packets or time.monotonic() >= self._stop_s:
            return None
        bursts = self._left_bytes // (packets * train.packet_bytes)
        return probe_order.Train(min(train.bursts, bursts), packets,
                                 train.packet_bytes)

    def _send(self, sock: socket.socket,
              train: probe_order.Train) -> Measurement:
        control = self._control
        control.ask(train, protocol.Go)
        rtt = self._round_trips()
        sender = BurstSender(sock, train, next(self._cookies))
        dev = self._settings.uplink_dev
        before_bytes = netdev.read_bytes(dev, netdev.SENT)
        n_sent = self._send_bursts(sender, train)
        foreign = netdev.foreign_share(
            before_bytes, netdev.read_bytes(dev, netdev.SENT),
            n_sent * protocol.frame_bytes(sock.family, train.packet_bytes))
        result = control.ask(protocol.End(), protocol.Result)
        self._is_shared = max(foreign, result.foreign_share) > _FOREIGN_SHARE
        return Measurement(**dataclasses.asdict(result.rate), rtt=rtt)

    def _send_bursts(self, sender: 'BurstSender',
                     train: probe_order.Train) -> int:
        """Send the bursts, each when the one before it has arrived."""
        n_sent = 0
        for index in range(train.bursts):
            if index and time.monotonic() >= self._stop_s:
                break
            sending_s = sender.send(index, self._control.deadline_s)
            n_sent += sender.n_packets
            self._left_bytes -= sender.n_packets * train.packet_bytes
            got = self._control.ask(protocol.Sent(
                sender.n_packets, sending_s), protocol.Got)
            if not index and not got.packets:
                raise protocol.ProbeError('no packet arrived: is UDP let '
                                          'through?')
            time.sleep(_PAUSE_S)
        return n_sent

    def _round_trips(self) -> trains.RoundTrips:
        """Measure round trips, before any packet of a train is in flight."""
        stop_s = time.monotonic() + _PINGING_S
        found: list[float] = []
        while not found or (len(found) < _PINGS
                            and time.monotonic() < stop_s):
            begin_s = time.perf_counter()
            self._control.ask(protocol.Ping(), protocol.Pong)
            found.append(time.perf_counter() - begin_s)
        return trains.round_trips(found)


def bypass_classes(sock: socket.socket, settings: protocol.Settings) -> None:
    """Have a socket's packets pass the uplink's classes, if it may."""
    if settings.bypass_classes:
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, HTB_DIRECT)
        except PermissionError:
            LOG.debug('No CAP_NET_ADMIN: packets are sent in the default '
                      'class of the uplink.')


class BurstSender:
    """Sends bursts of one train as fast as the sender can.

    In super-packets that the kernel or the device cuts (UDP_SEGMENT), all of
    the same size, or one by one where that is not possible.

    :ivar n_packets: packets per burst: those asked for, without the rest
        that would not fill a super-packet.
    """

    def __init__(self, sock: socket.socket, train: probe_order.Train,
                 cookie: bytes):
        self._sock = sock
        self._cookie = cookie
        self._packet_bytes = train.packet_bytes
        self._segments = max(1, min(
            train.packets // _MIN_SUPER_PACKETS, _MAX_SEGMENTS,
            _MAX_SUPER_PACKET_BYTES // train.packet_bytes))
        self.n_packets = train.packets // self._segments * self._segments
        self._buffer = bytearray(self.n_packets * train.packet_bytes)
        if self._segments > 1:
            try:
                sock.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT,
                                train.packet_bytes)
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
                if self._segments == 1 or error.errno not in _UNCUT:
                    raise protocol.ProbeError(
                        f'cannot send: {error}') from None
                # Go on in single packets.
                self._sock.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, 0)
                self._segments = 1
                continue
            sent_bytes += size_bytes
        return max(0.0, time.perf_counter() - begin_s - waited_s)

    def _wait(self, deadline_s: float) -> float:
        begin_s = time.perf_counter()
        left_s = deadline_s - time.monotonic()
        if left_s <= 0 or not select.select([], [self._sock], [], left_s)[1]:
            raise protocol.ProbeError('the uplink does not send')
        return time.perf_counter() - begin_s
