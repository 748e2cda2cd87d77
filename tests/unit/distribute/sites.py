# SPDX-License-Identifier: Apache-2.0

"""A server whose loop does not run, and connections that keep what they are
told.
"""

import asyncio
import types

import msgspec
import pytest

from tests.unit import made
from tests.unit.distribute import test_server
from virtco.distribute import server
from virtco.wire import frames
from virtco.wire import messages


class Writes:
    """Keeps what it is told, as messages."""

    def __init__(self):
        self.is_writable = True
        self.told = []
        self.refused = []

    def write(self, frame):
        (payload,) = frames.Reader().feed(frame)
        self.told.append(msgspec.json.decode(payload))

    def refuse(self, *why):
        self.refused.append(why)

    def take(self):
        """What it was told since it was last asked."""
        told, self.told = self.told, []
        return told


class Seat(Writes):
    """An edge module with a connection that keeps what it is told."""

    def __init__(self, host, peer=None, sent=0, report=None):
        super().__init__()
        self.host, self.peer, self.connection = host, peer, self
        self.session = types.SimpleNamespace(sent=sent, report=report)


class Peer:
    def __init__(self, name, connection):
        self.name, self.seats, self.connection = name, {}, connection
        self.is_welcome, self.may_lead = False, True


class Connection(Writes):
    def __init__(self, address='10.0.0.1', seat=None):
        super().__init__()
        self.address, self.seat, self.peer = address, seat, None
        self.heard_s = 0.0
        self.is_paused = False

    @property
    def seats(self):
        return (list(self.peer.seats.values()) if self.peer is not None
                else [self.seat] if self.seat is not None else [])


class Policies:
    """Of each host the generation that the test says."""

    def __init__(self, **generations):
        self.generations = generations

    def __call__(self, host, known):
        found = self.generations.get(host)
        return None if found in (None, known) else (
            found, made.frame('policy', generation=found))


class Site(test_server.Site):
    """A server whose loop does not run.

    :ivar notes: what its doors were told.
    """

    def __init__(self, policies, n_hosts, **options):
        super().__init__(**options)
        self.notes = []
        self.n_hosts, self.leader, self.leads = n_hosts, None, True
        self.policies = policies
        self.server.doors = server.Doors(
            epoch=lambda: 9, is_led=lambda: self.leads,
            elsewhere=lambda: self.leader, policy=policies,
            ticket_key=lambda: 'tickets', peer_key=lambda: 'peers',
            n_hosts=lambda: self.n_hosts, peers=self._note_peers,
            **{kind: self._note(kind)
               for kind in ('came', 'left', 'said', 'heard', 'told')},
            trains=lambda hosts: {})

    def _note(self, kind):
        return lambda *args: self.notes.append((kind, *args))

    def _note_peers(self, may_lead):
        assert all(may_lead.values())
        self.notes.append(('peers', set(may_lead)))

    def take(self):
        notes, self.notes = self.notes, []
        return notes

    def join(self, host=None, address='10.0.0.1', sent=0):
        """A connection, of an edge module if a host is given."""
        found = Connection(address, None if host is None
                           else Seat(host, sent=sent))
        self._add(found)
        if host is not None:
            self.server.opened(found.seat, hello(host))
        return found

    def join_peer(self, name='p1', hosts=()):
        found = Connection()
        found.peer, found.heard_s = Peer(name, found), self.server.clock()
        self._add(found)
        self.server.joined(found.peer)
        for host in hosts:
            found.peer.seats[host] = seat = Seat(host, found.peer)
            self.server.opened(seat, hello(host))
        return found

    def _add(self, connection):
        self.server._all.add(connection)
        self.server._per_address[connection.address] += 1

    def turn(self):
        """One turn of the loop: what was asked for soon is done."""
        self.server.loop.call_soon(self.server.loop.stop)
        self.server.loop.run_forever()

    def run(self, work, n_sleeps=1):
        """Until it wants to sleep once more; how long it slept."""
        slept_s = []

        async def sleep(for_s):
            slept_s.append(for_s)
            if len(slept_s) > n_sleeps:
                raise Over

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio, 'sleep', sleep)
            with pytest.raises(Over):
                work().send(None)
        return slept_s[:n_sleeps]

    def n_refused(self, why):
        return self.counts.refused_connections.labels(why)._value.get()


class Over(Exception):
    """Ends a coroutine that never does."""


def hello(host, generation=3):
    return messages.Hello(frames.VERSION, host, generation=generation)


def kinds(told):
    return [message['type'] for message in told]
