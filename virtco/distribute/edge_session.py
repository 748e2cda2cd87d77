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
from virtco.wire import reports


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """:ivar report: whole; None while the edge is to send all of it.
    :ivar is_new: False when it says what the one before said.
    """

    report: reports.Report | None
    is_new: bool


Event = (messages.Hello | messages.Ack | messages.Nack | messages.Measured
         | Report)


class Session:
    """
    :param may_speak_for: whether a hello is of its host, by the certificate
        or by the ticket.
    :param epoch: of the leader.
    :ivar host: None until it said hello.
    :ivar sent: generation of the newest policy that it has or was sent.
    """

    def __init__(self, may_speak_for: Callable[[messages.Hello], bool],
                 epoch: int = 0):
        self.host: str | None = None
        self.sent = 0
        self._epoch = epoch
        self._report: reports.Report | None = None
        self._may_speak_for = may_speak_for

    @property
    def report(self) -> reports.Report | None:
        """The last one, whole."""
        return self._report

    def take(self, message: messages.Said) -> Event:
        """Take the host's next message; return the event that it stands for.

        :raises virtco.exception.Invalid: for a message out of turn.
        :raises virtco.exception.Forbidden: to speak for this host.
        """
        is_hello = isinstance(message, messages.Hello)
        if (isinstance(message, messages.Peer)
                or is_hello != (self.host is None)):
            raise exception.Invalid(
                field='type', value=message.__struct_config__.tag,
                limit='one hello, before every other message')
        match message:
            case messages.Hello():
                self._greet(message)
                return message
            case messages.Ack() | messages.Nack():
                return message
            case messages.Measured():
                if message.measurement.src != self.host:
                    raise exception.Forbidden(
                        what=f'to measure for {message.measurement.src}')
                return message
            case messages.Heartbeat():
                return Report(self._report, False)
            case messages.Whole():
                self._report = message.report
            case deltas.Delta():
                self._patch(message)
        return Report(self._report, self._report is not None)

    def _greet(self, hello: messages.Hello) -> None:
        check(hello, self._epoch)
        if not self._may_speak_for(hello):
            raise exception.Forbidden(
                what=f'to speak for {hello.host} with this certificate or '
                'ticket')
        self.host = hello.host
        self.sent = hello.generation

    def _patch(self, delta: deltas.Delta) -> None:
        if self._report is None:
            return
        try:
            self._report = deltas.patch(self._report, delta)
        except exception.Invalid:
            # What it tells belongs to another report than this one.
            self._report = None


def check(hello: messages.Hello | messages.Peer, epoch: int) -> None:
    """Check the version and the epoch of a greeting.

    :param epoch: of the leader.
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
