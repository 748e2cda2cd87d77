# SPDX-License-Identifier: Apache-2.0

"""Traffic that keeps to no agreement, and what the host sees beside it."""

import contextlib
import copy
import ctypes
import fcntl
import itertools
import multiprocessing
import multiprocessing.sharedctypes
import os
import select
import socket
import struct
import threading
import time

from tests.netns.edge import bed as beds
from tests.netns.edge import frames

_CLONE_NEWNET = 0x40000000
_UDP_SEGMENT = 103
_SO_TIMESTAMPNS = 35
_PING_ID = 4711
_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x2, 0x1000, 0x4000
_SUPER_PACKET_BYTES = 60_000
_ANSWER_BYTES = 4096
_REQUEST_PORT = 7200
_fork = multiprocessing.get_context('fork')


def _enter(netns):
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f'/run/netns/{netns}') as handle:
        if libc.setns(handle.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), 'setns')


def _send(netns, address, payload_bytes, rate_bps, waiting_bytes):
    """Datagrams in super-packets, as fast as the rate or as it can."""
    _enter(netns)
    count = min(60, _SUPER_PACKET_BYTES // payload_bytes)
    block = bytes(count * payload_bytes)
    wire_bits = 8 * count * (payload_bytes + 42)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, payload_bytes)
        if waiting_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF,
                            waiting_bytes)
        start_s, sent_bits = time.monotonic(), 0.0
        while True:
            ahead_s = sent_bits / rate_bps - (time.monotonic() - start_s)
            if ahead_s > 0:
                time.sleep(ahead_s)
            with contextlib.suppress(OSError):
                sock.sendto(block, address)
            sent_bits += wire_bits


def _send_frames(netns, packets, to_macs, rate_bps, from_macs):
    _enter(netns)
    made = [bytes.fromhex((to_mac + from_mac).replace(':', ''))
            + ethertype.to_bytes(2, 'big') + body
            for to_mac in to_macs for from_mac in from_macs
            for ethertype, body in packets]
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
        sock.bind(('eth0', 0))
        turns = itertools.cycle(made)
        start_s, sent_bits = time.monotonic(), 0.0
        while True:
            ahead_s = sent_bits / rate_bps - (time.monotonic() - start_s)
            if ahead_s > 0.001:
                time.sleep(ahead_s)
            # Some at a time: there may be thousands.
            for frame in itertools.islice(turns, 8):
                with contextlib.suppress(OSError):
                    sock.send(frame)
                sent_bits += 8 * max(84, len(frame) + 24)


@contextlib.contextmanager
def _meanwhile(send, *arguments):
    """Run a function in a process of its own, and end it."""
    process = _fork.Process(target=send, daemon=True, args=arguments)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def raw(vm, packets, to_macs, rate_bps, from_macs=('02:00:00:00:00:09',)):
    """Send packets in turn from a VM, as it likes to make them, meanwhile.

    :param to_macs: each packet goes to each of them.
    :param rate_bps: on the wire.
    :param from_macs: each packet comes from each of them.
    """
    return _meanwhile(_send_frames, vm.netns, packets, to_macs, rate_bps,
                      from_macs)


@contextlib.contextmanager
def udp(vm, target_ip, frame_bytes, rate_bps, whole=False,
        waiting_bytes=None):
    """Flood from a VM meanwhile.

    :param whole: let super-packets reach the uplink, instead of frames.
    :param waiting_bytes: most that may wait in queues; None: the usual.
    """
    beds.run('ethtool', '-K', 'eth0', 'tx-udp-segmentation',
             'on' if whole else 'off', netns=vm.netns)
    with at_a_rate(vm.netns, (target_ip, 9), max(1, frame_bytes - 42),
                   rate_bps, waiting_bytes):
        yield


def at_a_rate(netns, address, payload_bytes, rate_bps, waiting_bytes=None):
    """Send datagrams from a network namespace meanwhile.

    :param rate_bps: on the wire.
    """
    return _meanwhile(_send, netns, address, payload_bytes, rate_bps,
                      waiting_bytes)


@contextlib.contextmanager
def super_packets(bed, tap, target, segment_bytes, rate_bps):
    """Send TCP super-packets of short segments by a tap, as a VM does.

    :param tap: of :func:`plug_tap`.
    :param rate_bps: on the wire, of the segments.
    """
    count = 30000 // segment_bytes
    ethertype, body = frames.ipv4(
        tap.ip, target.ip, frames.TCP, frames.segment(count * segment_bytes))
    # struct virtio_net_hdr: checksum and segmentation are left to the host.
    packet = struct.pack('=BBHHHH', 1, 1, 54, segment_bytes, 34, 16) + (
        bytes.fromhex((target.mac + tap.mac).replace(':', ''))
        + ethertype.to_bytes(2, 'big') + body)
    bits = 8 * count * max(84, segment_bytes + 54 + 24)

    def send():
        start_s = time.monotonic()
        for number in itertools.count():
            time.sleep(max(0, number * bits / rate_bps
                           - (time.monotonic() - start_s)))
            os.write(tap.opened, packet)

    with _meanwhile(send):
        yield


def plug_tap(bed, host, like):
    """Give a VM of a bed a tap as a second port, whose segments are whole.

    :param like: the VM; what it was is another's.
    """
    def opened():
        found = os.open('/dev/net/tun', os.O_RDWR)
        fcntl.ioctl(found, _TUNSETIFF, struct.pack(
            '16sH22x', b'tapvm', _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR))
        return found

    tap = copy.copy(like)
    tap.dev, tap.mac = 'tapvm', '02:00:00:00:08:01'
    tap.opened = beds.in_netns(bed.ns(host), opened)
    beds.run('ip', 'link', 'set', 'dev', tap.dev, 'master', 'brv', 'up',
             netns=bed.ns(host))
    bed.vms[bed.vms.index(like)] = tap
    return tap


def count_like_ethernet(bed, host, rate_bps):
    """Limit what goes to a host as a real port does: frame by frame.

    Without back-pressure, as behind a bond.
    """
    for sender in bed.hosts:
        beds.run('ethtool', '-K', 'uplink0', 'tso', 'off', 'gso', 'off',
                 'tx-udp-segmentation', 'off', netns=bed.ns(sender))
    dev = f'c{host}'
    beds.run('tc', 'qdisc', 'replace', 'dev', dev, 'root', 'handle', '1:',
             'htb', 'default', '1', netns=bed.core)
    beds.run('tc', 'class', 'replace', 'dev', dev, 'parent', '1:', 'classid',
             '1:1', 'htb', 'rate', f'{rate_bps:.0f}bit', 'overhead', '24',
             'mpu', '84', 'burst', '16k', 'cburst', '16k', netns=bed.core)
    beds.run('tc', 'qdisc', 'replace', 'dev', dev, 'parent', '1:1', 'bfifo',
             'limit', '131072', netns=bed.core)


def address_hosts(bed):
    """Give each hypervisor an address of its own on its bridge."""
    found = {}
    for number, host in enumerate(bed.hosts, 1):
        found[host] = f'192.168.9.{number}'
        beds.run('ip', 'addr', 'replace', f'{found[host]}/24', 'dev', 'brv',
                 netns=bed.ns(host))
    return found


def ping_ms(bed, host, target_ip, count=200, interval_s=0.01):
    """Round-trip times, sorted; a lost one is infinite."""
    times = multiprocessing.sharedctypes.RawArray(
        ctypes.c_double, [float('inf')] * count)
    process = _fork.Process(target=_ping, daemon=True, args=(
        bed.ns(host), target_ip, times, interval_s))
    process.start()
    process.join(60 + count * interval_s)
    process.kill()
    return sorted(times)


def _ping(netns, target_ip, times, interval_s):
    """The kernel says when an answer came: this process may be late."""
    _enter(netns)
    sent_s = {}
    sock = socket.socket(socket.AF_INET, socket.SOCK_RAW,
                         socket.IPPROTO_ICMP)
    sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    start_s = time.monotonic()
    last_s = start_s + len(times) * interval_s + 2
    while len(sent_s) < len(times) or time.monotonic() < last_s:
        number = len(sent_s)
        due_s = start_s + number * interval_s
        if number < len(times) and time.monotonic() >= due_s:
            sent_s[number] = time.time()
            with contextlib.suppress(OSError):
                sock.sendto(_echo(number), (target_ip, 0))
            continue
        wait_s = (due_s if number < len(times) else last_s
                  ) - time.monotonic()
        if not select.select([sock], [], [], max(0.0, wait_s))[0]:
            continue
        data, control, _, _ = sock.recvmsg(256, 256)
        kind, _, _, ident, number = struct.unpack_from('!BBHHH', data, 20)
        if kind == 0 and ident == _PING_ID:
            seconds, nanoseconds = struct.unpack('qq', control[0][2][:16])
            times[number] = 1e3 * (seconds + nanoseconds * 1e-9
                                   - sent_s[number])
            if number == len(times) - 1:
                last_s = time.monotonic() + 0.3


def _echo(number):
    header = struct.pack('!BBHHH', 8, 0, 0, _PING_ID, number)
    total = sum(struct.unpack('!4H', header))
    checksum = ~(total + (total >> 16)) & 0xFFFF
    return struct.pack('!BBHHH', 8, 0, checksum, _PING_ID, number)


def percentile(values, share):
    return values[min(len(values) - 1, int(share * len(values)))]


class Requests:
    """Short requests to a server on a hypervisor, one after the other.

    :ivar took_s: of each; a lost one is infinite.
    """

    def __init__(self, bed, server, client, address):
        self.took_s = []
        self._address = address, _REQUEST_PORT
        self._client = bed.ns(client)
        self._stop = threading.Event()
        self._listener = beds.in_netns(bed.ns(server), self._listen)
        self._threads = [
            threading.Thread(target=self._serve, daemon=True),
            threading.Thread(target=beds.in_netns, daemon=True,
                             args=(self._client, self._ask))]

    def _listen(self):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(self._address)
        sock.listen(16)
        sock.settimeout(0.2)
        return sock

    def _serve(self):
        while not self._stop.is_set():
            with contextlib.suppress(OSError):
                connection, _ = self._listener.accept()
                with connection:
                    connection.settimeout(2)
                    connection.recv(100)
                    connection.sendall(bytes(_ANSWER_BYTES))

    def _ask(self):
        while not self._stop.wait(0.03):
            started_s = time.monotonic()
            try:
                with socket.create_connection(self._address, 2) as sock:
                    sock.sendall(b'?')
                    left = _ANSWER_BYTES
                    while left:
                        data = sock.recv(left)
                        if not data:
                            raise OSError('cut off')
                        left -= len(data)
            except OSError:
                self.took_s.append(float('inf'))
            else:
                self.took_s.append(time.monotonic() - started_s)

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def ok_share(self, within_s=0.05):
        return (sum(took_s <= within_s for took_s in self.took_s)
                / max(1, len(self.took_s)))
