# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""The distributor's side of one connection, as a state machine. Pure.

It begins with a ``hello`` and is open from then on. Whatever breaks the
protocol raises, and the connection is closed.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
from typing import Any

from virtco.distribute import deltas
from virtco.distribute import frames
from virtco import exception

Message = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Hello:
    """:ivar generation: of the policy that the edge has, 0 without one."""

    generation: int


@dataclasses.dataclass(frozen=True, slots=True)
class Ack:
    """The edge has taken the policy over, or says in its report why not."""

    generation: int


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """:ivar report: whole; None while the edge is to send all of it.
    :ivar is_new: False when it says what the one before said.
    """

    report: Message | None
    is_new: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Measured:
    measurement: Message


Event = Hello | Ack | Report | Measured


class Session:
    """
    :param check: raises for a message that does not keep to its schema.
    :param may_speak_for: whether the certificate is that of this host.
    :ivar host: None until it said hello.
    :ivar sent: generation of the newest policy that it has or was sent.
    """

    def __init__(self, check: Callable[[Message], None],
                 may_speak_for: Callable[[str], bool], epoch: int = 0):
        self.host: str | None = None
        self.version = 0
        self.sent = 0
        self.acked = 0
        self._epoch = epoch
        self._report: Message | None = None
        self._check = check
        self._may_speak_for = may_speak_for

    @property
    def report(self) -> Message | None:
        """The last one, whole."""
        return self._report

    def take(self, message: Message) -> Event:
        """:raises virtco.exception.Invalid:
        :raises virtco.exception.Forbidden: to speak for this host.
        """
        kind = message['type']
        known = _OPEN if self.host is not None else _NEW
        if kind not in known:
            raise exception.Invalid(field='type', value=kind[:40],
                                    limit=f'one of {", ".join(known)}')
        self._check(message)
        return known[kind](self, message)

    def _hello(self, message: Message) -> Event:
        oldest, newest = message['versions']
        self.version = min(newest, frames.NEWEST)
        if self.version < max(oldest, frames.OLDEST):
            raise exception.Invalid(
                field='versions', value=message['versions'],
                limit=f'from {frames.OLDEST} to {frames.NEWEST}')
        host = message['host']
        if not self._may_speak_for(host):
            raise exception.Forbidden(
                what=f'to speak for {host} with this certificate')
        if message.get('epoch', 0) > self._epoch:
            raise exception.Invalid(
                field='epoch', value=message['epoch'],
                limit=f'at most {self._epoch}, that of this controller '
                f'("virtco-manage epoch raise {message["epoch"]}" if its '
                'database is new or was restored)')
        self.host = host
        self.sent = self.acked = message.get('generation', 0)
        return Hello(self.sent)

    def _ack(self, message: Message) -> Event:
        self.acked = message['generation']
        return Ack(self.acked)

    def _full(self, message: Message) -> Event:
        self._report = message['report']
        return Report(self._report, True)

    def _delta(self, message: Message) -> Event:
        if self._report is None:
            return Report(None, False)
        try:
            self._report = deltas.patch(self._report, message)
        except exception.Invalid:
            # What it tells belongs to another report than this one.
            self._report = None
        return Report(self._report, True)

    def _heartbeat(self, message: Message) -> Event:
        return Report(self._report, False)

    def _measurement(self, message: Message) -> Event:
        measurement = message['measurement']
        if measurement['src'] != self.host:
            raise exception.Forbidden(
                what=f'to measure for {measurement["src"]}')
        return Measured(measurement)


_Handlers = Mapping[str, Callable[[Session, Message], Event]]
_NEW: _Handlers = {'hello': Session._hello}
_OPEN: _Handlers = {
    'ack': Session._ack, 'report': Session._full, 'delta': Session._delta,
    'heartbeat': Session._heartbeat, 'measurement': Session._measurement}
