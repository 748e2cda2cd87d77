# SPDX-License-Identifier: Apache-2.0

"""Other tenants' traffic: TCP connections that send for a while and pause.

Run as a module it reads the connections as one JSON line and connects them,
on sockets that it made inside their namespaces. After ``ready`` they begin; it
ends when its standard input does. It is a process of its own, because a
measurement that waits for a processor reads a lower rate, as if there were
more traffic.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import json
import pathlib
import socket
import sys
import tempfile
import threading
import time

import msgspec
import numpy as np

from virtco_lab.emulation import namespaces
from virtco_lab.emulation import process

# The end of a period waits for one of them.
_CHUNK = bytes(16 * 1024)
# Bytes that a connection may still have to send when it pauses.
_NOTSENT_BYTES = 128 * 1024
_BUFFER_BYTES = 256 * 1024
_DELAY_S = 0.3
_READY_S = 30.0


@dataclasses.dataclass(frozen=True, slots=True)
class Connection:
    """A connection of background traffic.

    :ivar periods_s: (begin, end) of each time in which it sends as fast as
        it can, in order.
    """

    src_namespace: str
    dst_namespace: str
    dst_address: str
    periods_s: tuple[tuple[float, float], ...]

    def sends_at(self, at_s: float) -> bool:
        """Return whether the connection sends at a time.

        :param at_s: time since the begin of the traffic.
        """
        return any(begin_s <= at_s < end_s
                   for begin_s, end_s in self.periods_s)


def on_off(rng: np.random.Generator, lasts_s: float, mean_s: float,
           share: float) -> tuple[tuple[float, float], ...]:
    """Draw periods of exponential length (Choreo section 3.2 takes 5 s).

    :param mean_s: mean length of the periods that send.
    :param share: part of the time that they make up.
    """
    periods = []
    pause_s = mean_s * (1 - share) / share
    now_s = 0.0 if rng.random() < share else rng.exponential(pause_s)
    while now_s < lasts_s:
        end_s = now_s + rng.exponential(mean_s)
        periods.append((float(now_s), float(end_s)))
        now_s = end_s + rng.exponential(pause_s)
    return tuple(periods)


@contextlib.contextmanager
def running(connections: Sequence[Connection]) -> Iterator[float]:
    """Generate the connections' traffic while the block runs.

    Yields the time on CLOCK_MONOTONIC, in s, at which their periods begin.
    """
    with tempfile.TemporaryDirectory() as directory:
        child = process.Child('other traffic', [
            sys.executable, '-m', __name__], pathlib.Path(directory) / 'log',
            piped=True)
        try:
            child.write_line(json.dumps(
                [dataclasses.asdict(one) for one in connections]))
            process.wait_until(child.has_line, 'the other traffic', [child],
                               of=child, interval_s=0.02)
            yield float(child.read_line())
        finally:
            child.stop()


def _pair(one: Connection) -> tuple[socket.socket, socket.socket]:
    """Connect two hosts; return both ends."""
    src, dst = namespaces.connect(one.src_namespace, one.dst_namespace,
                                  one.dst_address, _READY_S)
    src.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT,
                   _NOTSENT_BYTES)
    src.settimeout(None)
    return src, dst


def _send(src: socket.socket, periods_s: Sequence[tuple[float, float]],
          begin_s: float) -> None:
    """Send in each period as fast as the connection takes bytes."""
    for from_s, until_s in periods_s:
        time.sleep(max(0.0, begin_s + from_s - time.monotonic()))
        while time.monotonic() < begin_s + until_s:
            src.send(_CHUNK)


def _receive(dst: socket.socket) -> None:
    """Receive until the other end is closed."""
    buffer = bytearray(_BUFFER_BYTES)
    while dst.recv_into(buffer):
        pass


def main() -> int:
    """Send background traffic as standard input says, until it ends."""
    connections = msgspec.json.decode(sys.stdin.readline(),
                                      type=list[Connection])
    ends = [_pair(one) for one in connections]
    begin_s = time.monotonic() + _DELAY_S
    for one, (src, dst) in zip(connections, ends):
        for function, given in ((_receive, (dst,)),
                                (_send, (src, one.periods_s, begin_s))):
            threading.Thread(target=function, args=given, daemon=True).start()
    print(begin_s, flush=True)
    sys.stdin.read()
    return 0


if __name__ == '__main__':
    sys.exit(main())
