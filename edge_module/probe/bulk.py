# SPDX-License-Identifier: Apache-2.0

"""Bulk TCP connection to a peer, which counts the bytes that arrive."""

import contextlib
import dataclasses
import socket
import time

from edge_module.probe import train_protocol as protocol
from edge_module.probe import train_sender as sender
from virtco import units
from virtco.wire import probe_order
from virtco.wire import reports


@dataclasses.dataclass(frozen=True, slots=True)
class Flow:
    """Throughput of one bulk TCP connection, measured at the receiver.

    A connection with a start belongs to a round that is to fill a link, which
    counts whole frames; of others the payload counts.

    :ivar rate_bps: steady rate of payload, without the first quarter; in a
        round the mean rate of frames.
    :ivar windows_bytes: payload or frames received in each window; the first
        window starts at the first byte, or at the common start of a round.
    """

    rate_bps: float
    windows_bytes: tuple[int, ...]


def transfer(address: str, port: int, asked: probe_order.Bulk,
             settings: protocol.Settings, key: protocol.Key,
             start_s: float | None = None) -> Flow:
    """Send as much as one TCP connection can, within bounds.

    :param start_s: time to begin, on the clock of time.monotonic; None for at
        once. A connection with a start bypasses the uplink's classes as trains
        do.
    :raises protocol.ProbeError: when there is no result, with the reason.
    """
    begin_s = max(time.monotonic(), start_s or 0.0)
    control, _ = protocol.connect(address, port, begin_s + settings.timeout_s
                          + asked.lasts_s, key)
    with control.sock:
        control.ask(asked, protocol.Go)
        if start_s is not None:
            _prepare(control.sock, settings)
            time.sleep(max(0.0, start_s - time.monotonic()))
        control.sock.settimeout(settings.timeout_s + asked.lasts_s)
        try:
            _fill(control.sock, time.monotonic() + asked.lasts_s,
                  asked.size_bytes)
            control.sock.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise protocol.ProbeError(f'cannot send: {error}') from None
        windows = control.receive(protocol.Counted).windows_bytes
        if start_s is None:
            return Flow(_steady_bps(windows), windows)
        frame_bytes = protocol.mtu(control.sock) + protocol.ETHERNET_BYTES
        overhead = frame_bytes / control.sock.getsockopt(
            socket.IPPROTO_TCP, socket.TCP_MAXSEG)
        windows = tuple(round(one * overhead) for one in windows)
        return Flow(units.bytes_per_s_to_bps(sum(windows) / (
            asked.window_s * max(1, len(windows)))), windows)


def _prepare(sock: socket.socket, settings: protocol.Settings) -> None:
    """Set a socket to bypass the uplink's classes, and to use CUBIC, which
    fills queues.
    """
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b'cubic')
    sender.bypass_classes(sock, settings)


def _fill(sock: socket.socket, stop_s: float, left_bytes: int) -> None:
    chunk = memoryview(bytes(2 ** 16))
    while left_bytes > 0 and time.monotonic() < stop_s:
        size_bytes = min(left_bytes, len(chunk))
        sock.sendall(chunk[:size_bytes])
        left_bytes -= size_bytes


def _steady_bps(windows_bytes: tuple[int, ...]) -> float:
    """Return the rate of a connection over its steady windows.

    The first quarter is left out for slow start and the burst of a token
    bucket, the last window because the stream ends within it.
    """
    steady = windows_bytes[len(windows_bytes) // 4:-1]
    return units.bytes_per_s_to_bps(
        sum(steady) / (max(1, len(steady)) * reports.WINDOW_S))
