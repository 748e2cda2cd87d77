# SPDX-License-Identifier: Apache-2.0

"""Hosts that hold TCP connections to each other, with a rate for each pair.

As MPI holds them: every host sends to every other one over a connection that
stands before the first message. The rate of any pair can be changed under
traffic.
"""

from collections.abc import Iterator
from collections.abc import Mapping
import concurrent.futures
import contextlib
import itertools
import socket
import threading
import time

import numpy as np
from numpy import typing as npt

from virtco import units
from virtco.advise import trees
from virtco_lab.emulation import bed
from virtco_lab.emulation import fabric as fabric_module
from virtco_lab.emulation import namespaces

Matrix = npt.NDArray[np.float64]

_CHUNK = bytes(1 << 16)
_TIMEOUT_S = 120.0
_DONE = b'.'


class Mesh:
    """Hosts whose pairs have rates of their own.

    :param rate_bps: rate of every host's cable; no pair has more.
    """

    def __init__(self, n_hosts: int, rate_bps: float):
        self.names = list(bed.host_names(n_hosts))
        self.rate_bps = rate_bps
        self._out: dict[tuple[int, int], socket.socket] = {}
        self._in: dict[tuple[int, int], socket.socket] = {}

    @contextlib.contextmanager
    def built(self) -> Iterator['Mesh']:
        """Build the hosts with one rate for all pairs; remove them at last."""
        n_hosts = len(self.names)
        with (fabric_module.built(bed.Bed(
                  dict.fromkeys(self.names, self.rate_bps),
                  pairs_bps=dict.fromkeys(itertools.permutations(
                      self.names, 2), self.rate_bps))) as self._fabric,
              contextlib.ExitStack() as stack,
              concurrent.futures.ThreadPoolExecutor(
                  2 * n_hosts) as self._pool):
            self.run = self._fabric.run
            for pair in itertools.permutations(range(n_hosts), 2):
                self._connect(*pair, stack)
            yield self

    @property
    def addresses(self) -> list[str]:
        """IPv4 address of each host in the data network, in order of names."""
        return [self._fabric.hypervisors[name].address for name in self.names]

    def set_rates(self, rates_bps: Matrix) -> None:
        """Give every pair its rate; open connections go on with it."""
        self._fabric.set_pair_rates({
            (self.names[src], self.names[dst]): float(rates_bps[src, dst])
            for src, dst in itertools.permutations(range(len(self.names)), 2)})

    def _connect(self, src: int, dst: int, stack: contextlib.ExitStack
                 ) -> None:
        """Connect two hosts by TCP; keep both ends."""
        here, there = (self._fabric.hypervisors[self.names[host]]
                       for host in (src, dst))
        ends = namespaces.connect(here.namespace, there.namespace,
                                  there.address, _TIMEOUT_S)
        for one in ends:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one.settimeout(_TIMEOUT_S)
            stack.callback(one.close)
        self._out[src, dst], self._in[src, dst] = ends

    def measure(self, pairs: Mapping[tuple[int, int], int]
                ) -> dict[tuple[int, int], float]:
        """Measure the rates of pairs by messages sent at the same time.

        :param pairs: bytes of the message of each (sender, receiver).
        :returns: bits of payload per second, from the first part that the
            receiver sees to the last.
        """
        begun = {}
        for pair, size in pairs.items():
            begun[pair] = self._pool.submit(self._receive, pair, size)
            self._pool.submit(self._send, pair, size)
        return {pair: future.result() for pair, future in begun.items()}

    def broadcast(self, edges: trees.Edges, size: int, n_segments: int = 1
                  ) -> float:
        """Broadcast a message; return the seconds until every host has it.

        A host passes on each segment that it has whole, to one after the
        other; a segment is sent when the receiver says so.
        """
        children: dict[int, list[int]] = {}
        for sender, receiver in edges:
            children.setdefault(sender, []).append(receiver)
        parts = [size // n_segments] * n_segments
        parts[-1] += size - sum(parts)
        arrived = [threading.Semaphore(0) for _ in self.names]

        def receive(pair: tuple[int, int]) -> float:
            for part in parts:
                self._receive(pair, part)
                arrived[pair[1]].release()
            return time.monotonic()

        def serve(host: int) -> None:
            for part in parts:
                if not arrived[host].acquire(timeout=_TIMEOUT_S):
                    raise ConnectionError(f'{host} gets no segment')
                for child in children[host]:
                    self._send((host, child), part)

        receiving = [self._pool.submit(receive, edge) for edge in edges]
        began_s = time.monotonic()
        arrived[edges[0][0]].release(n_segments)
        serving = [self._pool.submit(serve, host) for host in children]
        took_s = max(future.result() for future in receiving) - began_s
        for future in serving:
            future.result()
        return took_s

    def _send(self, pair: tuple[int, int], size: int) -> None:
        sender = self._out[pair]
        for begin in range(0, size, len(_CHUNK)):
            sender.sendall(_CHUNK[:size - begin])
        if sender.recv(1) != _DONE:
            raise ConnectionError(f'{pair}: the receiver is gone')

    def _receive(self, pair: tuple[int, int], size: int) -> float:
        """Receive a message; return its rate in bit/s.

        The first part starts the clock and does not count.
        """
        receiver = self._in[pair]
        left = size - len(receiver.recv(len(_CHUNK)))
        timed, began_s = left, time.monotonic()
        while left:
            got = len(receiver.recv(len(_CHUNK)))
            if not got:
                raise ConnectionError(f'{pair}: the sender is gone')
            left -= got
        took_s = time.monotonic() - began_s
        receiver.sendall(_DONE)
        return units.bytes_per_s_to_bps(timed / max(took_s, 1e-9))
