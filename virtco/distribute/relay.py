# SPDX-License-Identifier: Apache-2.0

"""A relay: a stream server between many edge modules and the leader.

It checks what edge modules say and passes it on as it is, and keeps the
newest policy of each until the edge module reads it. While nobody leads its
edge modules stay; the next leader is told their last reports.
"""

from typing import Any

import msgspec
from oslo_config import cfg

from virtco import exception
from virtco import metrics
from virtco.db import session as db_session
from virtco.distribute import certificates
from virtco.distribute import distribute
from virtco.distribute import edge_session as session
from virtco.distribute import server
from virtco.distribute import upstream
from virtco.leadership import elector
from virtco.wire import frames
from virtco.wire import messages

#: Part of a lease for which a leader that writes its beat may be silent: edge
#: modules find another way in the rest. A leader that died was last seen to
#: beat within two thirds.
_SILENT_PART = 0.8


class _Kind(msgspec.Struct, frozen=True):
    """Part of a leader's message that a relay reads."""

    type: str
    generation: int = 0
    why: str = ''
    wait_s: float = 0.0


_KIND = msgspec.json.Decoder(_Kind)


class Relay:
    """Stream server for edge modules that has its policies from the leader."""

    def __init__(self, conf: cfg.ConfigOpts):
        self.metrics = metrics.Metrics()
        self._conf = conf
        self._database = db_session.Database.from_conf(conf)
        self._leader = elector.Elector(self._database, None,
                                       conf.leadership.lease_s)
        self._asks_for_tickets = distribute.asks_for_tickets(conf)
        self._policies: dict[str, server.Numbered] = {}
        self._server: server.Server
        self._upstream: upstream.Upstream

    def start(self) -> None:
        """Listen for edge modules, and connect to the leader.

        :raises virtco.exception.ConfigInvalid: when it cannot listen.
        """
        found = distribute.open_server(self._conf, self._doors(), self.metrics)
        if found is None:
            raise exception.ConfigInvalid(
                why='nobody could connect, see the line before')
        self._server = found
        self._leader.start()
        self._upstream = upstream.Upstream(
            self._leader, certificates.of(
                self._conf.distributor, 'client', self.metrics),
            upstream.Doors(self._replay, found.seats, self._took),
            found.loop)
        found.beside.append(self._upstream.keep_connected)
        found.start()

    def stop(self) -> None:
        self._server.stop()
        self._leader.stop()
        self._database.dispose()

    def _doors(self) -> server.Doors:
        """Return the functions by which the server reaches the leader."""
        return server.Doors(
            epoch=lambda: self._upstream.epoch,
            is_led=lambda: self._upstream.is_connected,
            elsewhere=self._elsewhere, ticket_key=self._ticket_key,
            policy=self._policy, n_hosts=lambda: self._upstream.n_hosts,
            came=self._came, left=self._left, said=self._said)

    def _elsewhere(self) -> str | None:
        """Send edge modules away, with '', when a process leads that was not
        heard for almost a lease: they may reach it in another way.
        """
        return '' if self._upstream.is_cut_off(
            _SILENT_PART * self._conf.leadership.lease_s) else None

    def _ticket_key(self) -> str | None:
        seen = self._leader.seen
        if not self._asks_for_tickets:
            return None
        return seen.ticket_key if seen is not None else ''

    def _policy(self, host: str, known: int) -> server.Numbered | None:
        found = self._policies.get(host)
        return None if found is None or found[0] == known else found

    def _came(self, host: str, hello: messages.Hello) -> None:
        self._upstream.forward(host, messages.pack(hello))

    def _left(self, host: str) -> None:
        self._policies.pop(host, None)
        self._upstream.gone(host)

    def _said(self, host: str, _event: session.Event, payload: bytes
              ) -> None:
        self._upstream.forward(host, payload)

    def _replay(self, host: str) -> list[bytes]:
        """Return the messages that introduce a host to a new leader."""
        seat = self._server.seats().get(host)
        if seat is None:
            return []
        found = [messages.pack(messages.Hello(
            frames.VERSION, host, self._upstream.epoch, seat.session.sent))]
        if seat.session.report is not None:
            found += messages.pack_report(seat.session.report)
        found += map(messages.pack, seat.session.parts)
        if max(map(len, found)) > frames.MOST_BYTES:
            # Such a frame would cost all hosts their connection. The leader
            # asks this one for its report.
            return found[:1]
        return found

    def _took(self, host: str, payload: bytes) -> None:
        """Take a message of the leader to an edge module."""
        if host not in self._server.seats():
            return
        kind = _KIND.decode(payload)
        if kind.type == 'policy':
            self._policies[host] = kind.generation, frames.frame(payload)
            self._server.changed([host])
        elif kind.type == 'refused':
            self._server.seats()[host].refuse(kind.why)
        elif kind.type == 'pause':
            self._server.seats()[host].connection.pause(kind.wait_s)
        else:
            self._server.pass_on(host, frames.frame(payload))

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Report the state of the parts; a missing leader is no failure."""
        parts = {'distributor': self._server.is_alive(),
                 'database': self._leader.is_answered()}
        return all(parts.values()), {
            'status': 'ok' if all(parts.values()) else 'failing',
            'parts': parts, 'hosts': self._upstream.n_hosts,
            'leader': {'epoch': self._upstream.epoch, 'here': False,
                       'reached': self._upstream.is_connected}}

    def gauge(self) -> None:
        """Do nothing: all is counted as it happens."""
