# SPDX-License-Identifier: Apache-2.0

"""Ethernet frames made by hand, also such as no kernel would send."""

import contextlib
import ipaddress
import socket
import struct
import threading
import time

from tests.netns.edge import bed as beds

UDP, TCP, HOP_BY_HOP, FRAGMENT = 17, 6, 0, 44
ROUTING, AUTHENTICATION, DESTINATION_OPTIONS = 43, 51, 60
IN_IPV4, IN_IPV6, GRE, ESP = 4, 41, 47, 50
PAYLOAD = bytes(400)


def udp(port):
    return struct.pack('!HHHH', 40000, port, 8 + len(PAYLOAD), 0) + PAYLOAD


def tcp(port):
    return struct.pack('!HHIIBBHHH', 40000, port, 1, 0, 0x50, 2, 1000, 0,
                       0) + PAYLOAD


def segment(data=0, options=0):
    """A TCP acknowledgement with so many bytes of data and of options."""
    return struct.pack('!HHIIBBHHH', 40000, 5001, 1, 1,
                       5 + options // 4 << 4, 0x10, 1000, 0, 0) + (
                           b'\x01' * options + bytes(data))


def ipv4(src, dst, protocol, body, fragment=0, options=b'', ident=7):
    """With the checksum of its header, without which a bridge drops it."""
    words = 5 + len(options) // 4

    def header(checksum):
        return struct.pack(
            '!BBHHHBBH4s4s', 0x40 | words, 0, 4 * words + len(body), ident,
            fragment, 64, protocol, checksum, ipaddress.ip_address(src).packed,
            ipaddress.ip_address(dst).packed) + options

    total = sum(struct.unpack(f'!{2 * words}H', header(0)))
    while total > 0xFFFF:
        total = (total >> 16) + (total & 0xFFFF)
    return 0x0800, header(~total & 0xFFFF) + body


def ipv6(src, dst, protocol, body):
    return 0x86DD, struct.pack(
        '!IHBB16s16s', 6 << 28, len(body), protocol, 64,
        ipaddress.ip_address(src).packed,
        ipaddress.ip_address(dst).packed) + body


def extended(headers, protocol, body):
    """(protocol, body) behind IPv6 extension headers of 8 bytes."""
    for header in reversed(headers):
        body = bytes([protocol, 0]) + bytes(6) + body
        protocol = header
    return protocol, body


def fragment6(body, offset, ident=7):
    """Of an IPv6 datagram, of which more is to come."""
    return struct.pack('!BBHI', UDP, 0, offset << 3 | 1, ident) + body


def tagged(packet, outer=0x8100):
    """In a VLAN."""
    ethertype, body = packet
    return outer, struct.pack('!HH', 5, ethertype) + body


@contextlib.contextmanager
def flood(vm, packets, rate_bps=8e6):
    """Broadcast packets in turn from a VM's interface meanwhile."""
    ends = threading.Event()

    def body_of_thread():
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
            sock.bind(('eth0', 0))
            made = [b'\xff' * 6 + b'\x02\0\0\0\0\x09'
                    + ethertype.to_bytes(2, 'big') + body
                    for ethertype, body in packets]
            bursts = rate_bps / 8 / sum(map(len, made)) / 200
            start_s, sent = time.monotonic(), 0.0
            while not ends.wait(0.005):
                due = (time.monotonic() - start_s) * 200 * bursts
                while sent < due:
                    sent += 1
                    for frame in made:
                        with contextlib.suppress(OSError):
                            sock.send(frame)

    thread = threading.Thread(
        target=beds.in_netns, args=(vm.netns, body_of_thread))
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def send(vm, packet, count):
    """Broadcast a packet from a VM's interface."""
    send_all(vm, count * [packet])


def send_all(vm, packets):
    """Broadcast packets from a VM's interface."""
    def body_of_thread():
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
            sock.bind(('eth0', 0))
            for ethertype, body in packets:
                sock.send(b'\xff' * 6 + b'\x02\0\0\0\0\x09'
                          + ethertype.to_bytes(2, 'big') + body)

    beds.in_netns(vm.netns, body_of_thread)


def sweep(vm, count, back_to=None, source=b'\x02\0\0\0\0\x09'):
    """One frame to each of so many addresses that nobody has.

    :param back_to: a VM to which a frame is sent from each of them instead.
    """
    def body_of_thread():
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
            sock.bind(('eth0', 0))
            for number in range(count):
                nobody = b'\x02\x01\0\0' + number.to_bytes(2, 'big')
                sock.send((nobody + source if back_to is None
                           else bytes.fromhex(back_to.mac.replace(':', ''))
                           + nobody) + b'\x88\xb5' + bytes(100))

    beds.in_netns(vm.netns, body_of_thread)
