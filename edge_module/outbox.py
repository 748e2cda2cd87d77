# SPDX-License-Identifier: Apache-2.0

"""Messages that wait to be sent from the edge module to the distributor."""

import contextlib
import heapq
import socket
import threading
import time

import msgspec

from virtco import exception
from virtco.wire import deltas
from virtco.wire import frames
from virtco.wire import messages
from virtco.wire import reports

_MOST_MEASUREMENTS = 64
_LONGEST_ERROR = 1000
#: Length of a pair in a report, by which most reports need no closer look.
_PAIR_BYTES = 200
HEARTBEAT = messages.frame(messages.Heartbeat())
#: Parts of the heartbeats' interval: a sign of life of the controller is
#: answered by a heartbeat from the first on, since many at once cost it a
#: third; without one it goes at the second.
EARLY, LATE = 0.9, 1.1


class Outbox:
    """Unsent messages: the newest report and acknowledgement, measurements.

    A newer report or acknowledgement replaces an unsent one, so none queue up
    behind a slow connection. At most 64 measurements are kept.

    :ivar heartbeat_s: seconds between heartbeats.
    :ivar wake_end: socket that becomes readable when there is a message.
    """

    def __init__(self) -> None:
        self.heartbeat_s = 1.0
        self.wake_end, self._wake = socket.socketpair()
        self.wake_end.setblocking(False)
        self._wake.setblocking(False)
        self._lock = threading.Lock()
        self._report: reports.Report | None = None
        self._told: reports.Report | None = None
        self._told_s = 0.0
        self._was_moving = False
        self._due_s = 0.0
        self._ack: messages.Ack | messages.Nack | None = None
        self._measurements: list[reports.Measurement] = []
        self._most_bytes = frames.MOST_BYTES

    def restart(self, welcome: messages.Welcome) -> None:
        """Send a whole report next, as on a new connection."""
        with self._lock:
            self.heartbeat_s = max(0.1, welcome.heartbeat_s)
            self._most_bytes = welcome.most_bytes
            self._told = None
            self._ack = None
            self._due_s = time.monotonic() + LATE * self.heartbeat_s

    def resend(self) -> None:
        """Send the next report in full rather than its changes."""
        with self._lock:
            self._told = None

    def put_report(self, report: reports.Report) -> None:
        """Replace the report that waits.

        Tenants choose how many pairs there are. Where a report would be too
        long, the pairs that sent least are left out.
        """
        while (2 * _PAIR_BYTES * len(report.pairs) > reports.MOST_BYTES
               and sum(map(len, messages.pack_report(report, self._most_bytes)
                           )) > reports.MOST_BYTES):
            report = msgspec.structs.replace(
                report, pairs=tuple(heapq.nlargest(
                    len(report.pairs) // 2, report.pairs,
                    key=lambda pair: pair.sent_bytes)))
        with self._lock:
            self._report = report
        self._rouse()

    def put_ack(self, epoch: int, generation: int,
                error: str | None = None) -> None:
        """Acknowledge or refuse a policy.

        :param error: why the policy is refused; None to acknowledge it.
        """
        with self._lock:
            self._ack = (
                messages.Ack(generation, epoch) if error is None else
                messages.Nack(generation, error[:_LONGEST_ERROR], epoch))
        self._rouse()

    def put_measurement(self, measurement: reports.Measurement) -> None:
        """Queue a measurement; the oldest are dropped."""
        with self._lock:
            self._measurements = [*self._measurements[1 - _MOST_MEASUREMENTS:],
                                  measurement]
        self._rouse()

    def _rouse(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake.send(b'.')

    def pause_s(self) -> float:
        """Return seconds until the next heartbeat is due, 1 at most."""
        return max(0.0, min(1.0, self._due_s - time.monotonic()))

    def answer_alive(self) -> None:
        """Send a heartbeat now if it is almost due."""
        early_s = (LATE - EARLY) * self.heartbeat_s
        with self._lock:
            if self._due_s - time.monotonic() <= early_s:
                self._due_s = 0.0

    def take(self) -> list[bytes]:
        """Return the frames to send now.

        :raises virtco.exception.Invalid: for a frame that is too long.
        """
        now_s = time.monotonic()
        found = []
        with self._lock:
            if self._ack is not None:
                found.append(messages.frame(self._ack))
                self._ack = None
            found += [messages.frame(messages.Measured(one))
                      for one in self._measurements]
            self._measurements = []
            is_due = now_s >= self._due_s
            found += self._news(is_due, now_s)
            if is_due:
                found.append(HEARTBEAT)
                self._due_s = now_s + LATE * self.heartbeat_s
        for frame in found:
            if len(frame) > self._most_bytes + frames.HEADER_BYTES:
                raise exception.Invalid(
                    field='report', value=f'{len(frame)} bytes',
                    limit=f'at most {self._most_bytes} bytes')
        return found

    def _news(self, is_due: bool, now_s: float) -> list[bytes]:
        """Return the frames that bring the controller's report up to date.

        The first report is sent in full, later ones as changes from the last
        where those fit into a frame. There are none when there is nothing to
        send yet: changes that are not urgent wait for the next heartbeat.

        :param is_due: whether a heartbeat is due.
        """
        report, told = self._report, self._told
        if report is None:
            return []
        if told is None:
            self._told, self._told_s, self._was_moving = report, now_s, False
            return self._whole(report)
        delta = deltas.diff(told, report)
        is_moving = bool(delta) and deltas.is_urgent(
            told, delta, now_s - self._told_s)
        # The end of urgent changes is sent at once as well.
        if report is told or not (
                is_due or is_moving or self._was_moving):
            return []
        self._told, self._told_s, self._was_moving = report, now_s, is_moving
        if delta:
            payload = messages.pack(delta)
            return ([frames.frame(payload)]
                    if len(payload) <= self._most_bytes
                    else self._whole(report))
        return [] if is_due else [HEARTBEAT]

    def _whole(self, report: reports.Report) -> list[bytes]:
        return list(map(frames.frame, messages.pack_report(
            report, self._most_bytes)))
