# SPDX-License-Identifier: Apache-2.0

"""A stream of numbered datagrams between two VMs, and how many are lost."""

import contextlib
import multiprocessing
import multiprocessing.sharedctypes
import socket
import struct
import time

from tests.netns.edge import bed as beds
from tests.netns.edge import floods

_PAYLOAD_BYTES = 408
# With the headers of Ethernet, IP and UDP, and what the wire adds.
_WIRE_BYTES = 500
_fork = multiprocessing.get_context('fork')


class Stream:
    """Sent and counted in processes of their own while the context lasts.

    :param rate_bps: on the wire.
    """

    def __init__(self, src, dst, rate_bps, port=7300):
        self._src, self._address = src, (dst.ip, port)
        self._each_s = 8 * _WIRE_BYTES / rate_bps
        self._counts = multiprocessing.sharedctypes.RawArray('q', 2)
        self._ends = _fork.Event()
        self._listener = beds.in_netns(dst.netns, self._listen)
        self._made = [_fork.Process(target=body, daemon=True)
                      for body in (self._send, self._receive)]

    def _listen(self):
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        sock.bind(self._address)
        sock.settimeout(1)
        return sock

    def _send(self):
        floods._enter(self._src.netns)
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        start_s = time.monotonic()
        while not self._ends.is_set():
            number = self._counts[0]
            due_s = start_s + number * self._each_s - time.monotonic()
            if due_s > 0:
                time.sleep(due_s)
            with contextlib.suppress(OSError):  # a device may be made anew
                sock.sendto(struct.pack('!Q', number)
                            + bytes(_PAYLOAD_BYTES - 8), self._address)
            self._counts[0] = number + 1

    def _receive(self):
        seen = set()
        while True:
            with contextlib.suppress(TimeoutError):
                seen.add(self._listener.recv(1000)[:8])
                self._counts[1] = len(seen)

    def __enter__(self):
        for made in self._made:
            made.start()
        return self

    def __exit__(self, *_):
        self._ends.set()
        self._made[0].join(5)
        last, still_s = -1, time.monotonic()
        while time.monotonic() < still_s + 0.5:
            if self._counts[1] != last:
                last, still_s = self._counts[1], time.monotonic()
            time.sleep(0.02)
        for made in self._made:
            made.kill()
            made.join()
        self._listener.close()

    @property
    def sent(self):
        return int(self._counts[0])

    @property
    def lost(self):
        """Once the context has ended."""
        return int(self._counts[0] - self._counts[1])
