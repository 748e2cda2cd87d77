# SPDX-License-Identifier: Apache-2.0

"""Traffic of the VMs: one TCP connection per flow, exact payload bytes.

One process moves the bytes of all VMs, on sockets that it made inside their
namespaces: a socket keeps the namespace it was made in, and a process per VM
would cost more than the traffic itself. Run as a module it reads a job, one
JSON line, opens all connections and prints its first :class:`Progress`; at
the line ``go`` the coflows start, and it reports as JSON lines.

A coflow's completion time is from its start to the last byte of its last
flow at the receiver.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterable
import dataclasses
import os
import resource
import select
import socket
import struct
import sys
import time

import msgspec

from virtco import units
from virtco_lab.emulation import namespaces

_CHUNK_BYTES = 512 * 1024
# Bytes a sender may hand to the kernel beyond those in flight.
_NOTSENT_BYTES = 128 * 1024
#: Largest receive window. It fills 50 Mbit/s also when acknowledgements come
#: 10 ms late.
MAX_WINDOW_BYTES = 64 * 1024
# Smallest one: enough segments to repair a loss without a timeout.
_MIN_WINDOW_BYTES = 16 * 1024
# Window of flows inside of a host, where nothing queues.
_LOCAL_WINDOW_BYTES = 1024 * 1024
# Longest queueing delay that the windows of all flows of a link may cause.
_QUEUE_S = 0.08
# Share of its window at which a receiver is woken.
_WAKE_SHARE = 0.25
_CONNECT_STALL_S = 60.0
_PROGRESS_S = 0.25
_SO_MAX_PACING_RATE = 47
_TOTAL_RETRANS_OFFSET = 100  # of struct tcp_info


@dataclasses.dataclass(frozen=True, slots=True)
class FlowSpec:
    """A flow between two VM namespaces.

    :ivar coflow: index of its coflow in the job.
    :ivar local_host: the hypervisor when both VMs are on it; the timeline
        leaves such flows out.
    """

    coflow: int
    src_namespace: str
    dst_namespace: str
    dst_address: str
    dst_port: int
    size_bytes: int
    local_host: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """Traffic to send.

    :ivar starts_s: start of each coflow after ``go``.
    :ivar stall_s: seconds without a byte after which it gives up.
    :ivar window_bytes: receive window of every flow, see :func:`window_bytes`.
    :ivar local_bps: payload that the flows inside of one hypervisor send
        together, in equal shares; None is no limit.
    :ivar bin_s: width of the timeline's bins.
    """

    starts_s: tuple[float, ...]
    flows: tuple[FlowSpec, ...]
    stall_s: float = 60.0
    window_bytes: int = MAX_WINDOW_BYTES
    local_bps: float | None = None
    bin_s: float = 0.1


class Progress(msgspec.Struct, frozen=True, tag='progress'):
    """Report of a job under way.

    :ivar received: bytes received so far of each coflow.
    """

    received: tuple[int, ...]


class Outcome(msgspec.Struct, frozen=True, tag='done'):
    """Result of a job.

    :ivar ccts_s: time of each coflow from its start to its last byte.
    :ivar timeline: bytes received per coflow, per bin of ``bin_s``, those
        within one hypervisor left out.
    """

    ccts_s: tuple[float, ...]
    wall_s: float
    retransmits: int
    bin_s: float
    timeline: tuple[tuple[int, ...], ...]


def window_bytes(ends: Iterable[tuple[str, str]], rate_bps: float) -> int:
    """Return a receive window with which flows queue for _QUEUE_S at most.

    Then nothing is lost, no timer expires, and flows with equal windows share
    a link equally. With losses the shares would be random, and so would the
    end of the last flow, which is the coflow's end.

    :param ends: hypervisors of each flow's sender and receiver.
    :param rate_bps: rate of an uplink.
    """
    links = collections.Counter(
        link for src, dst in ends if src != dst
        for link in ((src, 'out'), (dst, 'in')))
    return shared_window_bytes(max(links.values(), default=1), rate_bps)


def shared_window_bytes(n_flows: int, rate_bps: float) -> int:
    """Return the receive window of each flow of a link, in bytes."""
    fitting = int(units.bps_to_bytes_per_s(rate_bps) * _QUEUE_S / n_flows)
    return max(_MIN_WINDOW_BYTES, min(MAX_WINDOW_BYTES, fitting))


class _Flow:
    """A flow's two sockets, and the bytes left to send and to receive."""

    def __init__(self, spec: FlowSpec, sender: socket.socket,
                 receiver: socket.socket, wake_bytes: int):
        self.spec = spec
        self.sender = sender
        self.receiver = receiver
        self._max_wake_bytes = wake_bytes
        self._wake_bytes = 1
        self.to_send = spec.size_bytes
        self.to_receive = spec.size_bytes

    def send(self, payload_fd: int) -> bool:
        """Hand over a chunk, uncopied; True when all is handed over."""
        try:
            self.to_send -= os.sendfile(
                self.sender.fileno(), payload_fd, 0,
                min(self.to_send, _CHUNK_BYTES))
        except BlockingIOError:
            return False
        return self.to_send == 0

    def wake_late(self) -> None:
        """Have the kernel wake the receiver for many bytes, or the last.

        With thousands of flows, a wake-up per segment would be the limit.
        """
        wake_bytes = min(self.to_receive, self._max_wake_bytes)
        if wake_bytes not in (self._wake_bytes, 0):
            self.receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT,
                                     wake_bytes)
            self._wake_bytes = wake_bytes

    def pace(self, rate_bps: float) -> None:
        """Limit the sender's rate; TCP itself spaces the segments."""
        self.sender.setsockopt(
            socket.SOL_SOCKET, _SO_MAX_PACING_RATE,
            struct.pack('=Q', int(units.bps_to_bytes_per_s(rate_bps))))

    def receive(self) -> int:
        """Receive and return the number of bytes; payload is not copied."""
        try:
            got = self.receiver.recv_into(_SINK, 0, socket.MSG_TRUNC)
        except BlockingIOError:
            return 0
        if got == 0:
            raise ConnectionError(
                f'the flow to {self.spec.dst_address}:{self.spec.dst_port} '
                f'ended {self.to_receive} bytes early')
        self.to_receive -= got
        self.wake_late()
        return got

    def retransmits(self) -> int:
        info = self.sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO,
                                      _TOTAL_RETRANS_OFFSET + 4)
        return int(struct.unpack_from('=I', info, _TOTAL_RETRANS_OFFSET)[0])


_SINK = bytearray(1 << 20)


def connect(specs: Iterable[FlowSpec], window_bytes: int = MAX_WINDOW_BYTES
            ) -> list[_Flow]:
    """Open every connection; returns the flows in the order given."""
    return [_connected(spec, window_bytes if spec.local_host is None
                       else _LOCAL_WINDOW_BYTES) for spec in specs]


def _connected(spec: FlowSpec, window_bytes: int) -> _Flow:
    def prepare(listener: socket.socket, sender: socket.socket) -> None:
        # Set before the connection is made: the kernel chooses the window
        # scale by it, and set later it would drop bytes that it has advertised
        # room for. The kernel doubles the value.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window_bytes)
        # The machine's default may be bbr, which hides the effect of shaping.
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b'cubic')
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT,
                          _NOTSENT_BYTES)

    ends = namespaces.connect(
        spec.src_namespace, spec.dst_namespace, spec.dst_address,
        _CONNECT_STALL_S, spec.dst_port, prepare)
    for one in ends:
        one.setblocking(False)
    return _Flow(spec, *ends, int(_WAKE_SHARE * window_bytes))


class Transfer:
    """Moves a job's bytes and counts them."""

    def __init__(self, job: Job, flows: list[_Flow],
                 emit: Callable[[Progress], object]):
        self._job = job
        self._emit = emit
        self._epoll = select.epoll()
        self._payload_fd = os.memfd_create('payload')
        os.ftruncate(self._payload_fd, _CHUNK_BYTES)
        self._senders = {flow.sender.fileno(): flow for flow in flows}
        self._receivers = {flow.receiver.fileno(): flow for flow in flows}
        self._flows = flows
        n_coflows = len(job.starts_s)
        self._open = [0] * n_coflows
        for flow in flows:
            self._open[flow.spec.coflow] += 1
        self._received = [0] * n_coflows
        self._ccts_s = [0.0] * n_coflows
        self._timeline: list[list[int]] = []
        self._paced: dict[str, set[_Flow]] = collections.defaultdict(set)
        self._arrived_s: float  # of the last start or byte

    def run(self) -> Outcome:
        """Send everything.

        :raises TimeoutError: when nothing arrives for the job's ``stall_s``.
        """
        started_s = time.monotonic()
        waiting = sorted(range(len(self._job.starts_s)),
                         key=lambda i: self._job.starts_s[i], reverse=True)
        for fd, flow in self._receivers.items():
            flow.wake_late()
            self._epoll.register(fd, select.EPOLLIN)
        next_progress_s = 0.0
        while any(self._open):
            now_s = time.monotonic() - started_s
            while waiting and self._job.starts_s[waiting[-1]] <= now_s:
                self._start(waiting.pop())
                self._arrived_s = now_s
            if now_s >= next_progress_s:
                self._emit(Progress(tuple(self._received)))
                next_progress_s = now_s + _PROGRESS_S
            if not waiting and now_s > self._arrived_s + self._job.stall_s:
                raise TimeoutError(
                    f'no byte of {sum(self._open)} unfinished flows arrived '
                    f'for {self._job.stall_s:g} s')
            self._serve(started_s)
        return Outcome(
            tuple(self._ccts_s), time.monotonic() - started_s,
            sum(flow.retransmits() for flow in self._flows), self._job.bin_s,
            tuple(map(tuple, self._timeline)))

    def _start(self, coflow: int) -> None:
        hosts = set()
        for fd, flow in self._senders.items():
            if flow.spec.coflow == coflow:
                self._epoll.register(fd, select.EPOLLOUT)
                if flow.spec.local_host is not None:
                    self._paced[flow.spec.local_host].add(flow)
                    hosts.add(flow.spec.local_host)
        for host in hosts:
            self._pace(host)

    def _pace(self, host: str) -> None:
        """Give the flows inside of a host their shares."""
        flows = self._paced[host]
        if self._job.local_bps is not None:
            for flow in flows:
                flow.pace(self._job.local_bps / len(flows))

    def _serve(self, started_s: float) -> None:
        for fd, _ in self._epoll.poll(0.02):
            if fd in self._receivers:
                self._receive(fd, started_s)
            elif self._senders[fd].send(self._payload_fd):
                self._epoll.unregister(fd)

    def _receive(self, fd: int, started_s: float) -> None:
        flow = self._receivers[fd]
        got = flow.receive()
        now_s = time.monotonic() - started_s
        coflow = flow.spec.coflow
        self._received[coflow] += got
        self._arrived_s = now_s
        if flow.spec.local_host is None:
            self._bin(now_s)[coflow] += got
        if flow.to_receive == 0:
            if flow.spec.local_host is not None:
                self._paced[flow.spec.local_host].remove(flow)
                self._pace(flow.spec.local_host)
            self._open[coflow] -= 1
            if self._open[coflow] == 0:
                self._ccts_s[coflow] = now_s - self._job.starts_s[coflow]

    def _bin(self, now_s: float) -> list[int]:
        index = int(now_s / self._job.bin_s)
        while len(self._timeline) <= index:
            self._timeline.append([0] * len(self._open))
        return self._timeline[index]


def _print(event: Progress | Outcome) -> None:
    print(msgspec.json.encode(event).decode(), flush=True)


def main() -> int:
    """Send the flows that standard input names, and print their progress."""
    job = msgspec.json.decode(sys.stdin.readline(), type=Job)
    n_files = len(job.flows) * 3 + 64
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE,
                       (n_files, max(n_files, hard)))
    flows = connect(job.flows, job.window_bytes)
    _print(Progress((0,) * len(job.starts_s)))
    if sys.stdin.readline().strip() != 'go':
        return 1
    _print(Transfer(job, flows, _print).run())
    return 0


if __name__ == '__main__':
    sys.exit(main())
