# SPDX-License-Identifier: Apache-2.0

"""The distributor's side of one connection, as a state machine. Pure.

It begins with a ``hello`` and is open from then on. Whatever breaks the
protocol raises, and the connection is closed.
"""

from collections.abc import Callable
import dataclasses

from virtco import exception
from virtco.wire import deltas
from virtco.wire import frames
from virtco.wire import messages
from virtco.wire import parts
from virtco.wire import reports


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """A report, put together from the frames of an edge module.

    :ivar report: whole; None while the edge is to send all of it.
    :ivar is_new: False when it says what the one before said.
    """

    report: reports.Report | None
    is_new: bool


Event = (messages.Hello | messages.Ack | messages.Nack | messages.Measured
         | parts.Part | Report)


class Session:
    """State of the exchange with one edge module.

    :ivar sent: generation of the newest policy that it has or was sent.
    :ivar report: the last one, whole.
    :ivar parts: parts of the next whole report, until it comes.
    """

    def __init__(self, hello: messages.Hello):
        self.host = hello.host
        self.sent = hello.generation
        self.report: reports.Report | None = None
        self.parts: list[parts.Part] = []
        self._parts_bytes = 0

    def take(self, message: messages.Said, size_bytes: int) -> Event:
        """Take the host's next message; return the event that it stands for.

        :param size_bytes: length of the encoded message.
        :raises virtco.exception.Invalid: for a message out of turn, and for a
            report that is too long.
        :raises virtco.exception.Forbidden: to measure for another host.
        """
        match message:
            case messages.Hello() | messages.Peer():
                raise _out_of_turn(message)
            case messages.Ack() | messages.Nack():
                return message
            case messages.Measured():
                if message.measurement.src != self.host:
                    raise exception.Forbidden(
                        what=f'to measure for {message.measurement.src}')
                return message
            case messages.Heartbeat():
                return Report(self.report, False)
            case parts.Part():
                self._keep(message, size_bytes)
                return message
            case messages.Whole():
                self.report = parts.joined(self.parts, message.report)
                self.parts, self._parts_bytes = [], 0
            case deltas.Delta():
                self._patch(message)
        return Report(self.report, self.report is not None)

    def _keep(self, part: parts.Part, size_bytes: int) -> None:
        """Keep a part until the report comes, which may never be."""
        self._parts_bytes += size_bytes
        if self._parts_bytes > reports.MOST_BYTES:
            raise exception.Invalid(
                field='report', value=f'{self._parts_bytes} bytes',
                limit=f'at most {reports.MOST_BYTES} bytes')
        self.parts.append(part)

    def _patch(self, delta: deltas.Delta) -> None:
        """Update the report by a delta; forget a report that does not match.
        """
        if self.report is None:
            return
        try:
            self.report = deltas.patch(self.report, delta)
        except exception.Invalid:
            # The delta belongs to another report than this one.
            self.report = None


def greeted(message: messages.Said, epoch: int,
            may_speak_for: Callable[[messages.Hello], bool]
            ) -> messages.Hello:
    """Check the first message of an edge module, its hello.

    :param epoch: epoch of the leader.
    :param may_speak_for: whether a hello is of its host, by the certificate
        or by the ticket.
    :raises virtco.exception.Invalid: for another message, or see
        :func:`check`.
    :raises virtco.exception.Forbidden: to speak for this host.
    """
    if not isinstance(message, messages.Hello):
        raise _out_of_turn(message)
    check(message, epoch)
    if not may_speak_for(message):
        raise exception.Forbidden(
            what=f'to speak for {message.host} with this certificate or '
            'ticket')
    return message


def _out_of_turn(message: messages.Said) -> exception.Invalid:
    return exception.Invalid(
        field='type', value=message.__struct_config__.tag,
        limit='one hello, before every other message')


def check(hello: messages.Hello | messages.Peer, epoch: int) -> None:
    """Check the version and the epoch of a greeting.

    :param epoch: epoch of the leader.
    :raises virtco.exception.Invalid: for another version of the protocol, and
        from one who heard of a later leader.
    """
    if hello.version != frames.VERSION:
        raise exception.Invalid(
            field='version', value=hello.version,
            limit=f'{frames.VERSION}, the version of this controller')
    if hello.epoch > epoch:
        raise exception.Invalid(
            field='epoch', value=hello.epoch,
            limit=f'at most {epoch}, the epoch of this controller '
            f'("virtco-manage epoch raise {hello.epoch}" if its '
            'database is new or was restored)')
