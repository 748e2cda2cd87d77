# SPDX-License-Identifier: Apache-2.0

"""One edge's connection, over a transport that keeps what is written."""

import asyncio
import ssl
import types

import pytest

from tests.unit import made
from virtco.distribute import connection
from virtco.distribute import frames
from virtco.distribute import messages
from virtco.distribute import session


class Transport:
    def __init__(self, tls=None):
        self.written = []
        self.end = None
        self.limits = None
        self._tls = tls

    def set_write_buffer_limits(self, high):
        self.limits = high

    def get_extra_info(self, name):
        assert name == 'ssl_object'
        return self._tls

    def is_closing(self):
        return self.end is not None

    def write(self, frame):
        (payload,) = frames.Reader().feed(frame)
        self.written.append(frames.unpack(payload))

    def close(self):
        self.end = 'closed'

    def abort(self):
        self.end = 'aborted'


class Tls:
    """Of an edge whose certificate is for h1."""

    def __init__(self, asks=True, certificate=True):
        self.context = self
        self.verify_mode = ssl.CERT_REQUIRED if asks else ssl.CERT_NONE
        self._found = {'subjectAltName': [('DNS', 'h1')]
                       } if certificate else None

    def getpeercert(self):
        return self._found


class Hub:
    """Notes what it is told."""

    hello_s = 60.0
    most_bytes = 10_000
    epoch = 4
    tickets = None

    def __init__(self):
        self.now_s = 5.0
        self.told = []

    def clock(self):
        return self.now_s

    def __getattr__(self, name):
        if name not in ('opened', 'closed', 'resumed', 'heard', 'rests',
                        'refused'):
            raise AttributeError(name)
        return lambda _connection, *args: self.told.append((name, *args))


class Edge:
    """A connection and both its ends."""

    def __init__(self, tls=None, is_made=True):
        self.hub = Hub()
        self.transport = Transport(tls)
        self.connection = connection.Connection(self.hub, '10.0.0.1')
        if is_made:
            self.connection.connection_made(self.transport)

    def say(self, kind, **values):
        self.connection.data_received(frames.pack(kind, **values))

    def hello(self, host='h1', **values):
        self.say('hello', **{'version': 2, 'host': host,
                             'generation': 3} | values)
        return self

    def heard(self):
        """Kinds of what it was told since it was last asked."""
        found = [message['type'] for message in self.transport.written]
        self.transport.written.clear()
        return found


@pytest.fixture
def run():
    """Connections take the running loop."""
    loop = asyncio.new_event_loop()

    def call(function, *args, **values):
        async def work():
            return function(*args, **values)
        return loop.run_until_complete(work())

    yield call
    loop.close()


@pytest.fixture
def edge(run):
    return run(lambda: Edge().hello())


def test_a_hello_opens(run):
    edge = run(Edge)
    assert (edge.connection.host, edge.transport.limits) == (None, 0)
    assert edge.connection.is_writable
    edge.hub.now_s = 7.0
    edge.hello()
    assert edge.connection.host == 'h1'
    assert edge.connection.heard_s == 7.0
    assert edge.hub.told == [('opened', 3)]
    assert edge.heard() == []
    edge.connection.welcome(30.0, 5.0)
    (found,) = edge.transport.written
    assert found == {
        'type': 'welcome', 'epoch': 4, 'heartbeat_s': 30.0,
        'spread_s': 5.0, 'most_bytes': 10_000}


def test_who_says_no_hello_in_time_is_refused():
    async def work(greets):
        Hub.hello_s = 0.0
        try:
            edge = Edge()
        finally:
            Hub.hello_s = 60.0
        if greets:
            edge.hello()
        await asyncio.sleep(0.001)
        return edge

    for greets in (False, True):
        edge = asyncio.run(work(greets))
        assert ('refused', 'no hello in time') in edge.hub.told or greets
        assert (edge.transport.end is None) is greets


def test_one_that_is_gone_gets_nothing(edge):
    edge.connection.connection_lost(None)
    assert edge.hub.told[1:] == [('closed',)]
    assert not edge.connection.is_writable
    assert not edge.connection.write(frames.pack('resend'))
    edge.connection.resume_writing()
    assert not edge.connection.is_writable
    edge.connection.close()
    assert edge.transport.end is None and edge.heard() == []


def test_one_that_does_not_read_is_left_alone(edge):
    assert edge.connection.write(frames.pack('resend'))
    edge.connection.pause_writing()
    assert not edge.connection.write(frames.pack('resend'))
    assert edge.heard() == ['resend']
    edge.connection.resume_writing()
    assert edge.hub.told[1:] == [('resumed',)]
    assert edge.connection.write(frames.pack('resend'))


def test_how_a_connection_is_closed(edge, run):
    """What waits to be read would keep one that does not read."""
    edge.connection.close()
    assert edge.transport.end == 'closed'
    other = run(Edge)
    other.connection.pause_writing()
    other.connection.close()
    assert other.transport.end == 'aborted'


def test_reports_and_heartbeats(edge):
    report = made.report()
    edge.say('report', report=report)
    assert edge.hub.told[1:] == [('heard', session.Report(report, True))]
    assert edge.heard() == []
    edge.say('heartbeat')
    assert edge.hub.told[2:] == [('rests',)]
    assert edge.heard() == ['alive']
    # Spelled otherwise it is decoded, and means the same.
    edge.say('heartbeat', spelling='other')
    assert edge.hub.told[3:] == [('heard', session.Report(report, False))]
    assert edge.heard() == ['alive']
    # In pieces as well.
    whole = frames.pack('heartbeat')
    for part in (whole[:5], whole[5:], whole + whole):
        edge.connection.data_received(part)
    assert edge.heard() == ['alive'] * 3
    edge.say('ack', generation=3)
    assert edge.heard() == []
    assert edge.hub.told[-1] == ('heard', messages.Ack(3))


def test_a_heartbeat_that_says_nothing_asks_for_the_report(edge):
    edge.say('heartbeat')
    assert edge.heard() == ['resend', 'alive']
    assert edge.hub.told[1:] == [('heard', session.Report(None, False))]


def test_what_is_no_message_closes(edge):
    edge.say('hello', version=2, host='h1')
    ((kind, why),) = edge.hub.told[1:]
    assert kind == 'refused' and 'one hello' in why
    assert edge.heard() == ['refused'] and edge.transport.end == 'closed'
    # Nothing of it is taken any more.
    edge.say('heartbeat')
    edge.say('ack', generation=1)
    assert len(edge.hub.told) == 2 and edge.heard() == []


def test_a_frame_is_bounded(edge):
    edge.connection.data_received(frames.pack('x', text='x' * 10_001))
    assert edge.transport.end == 'closed'


def test_a_heartbeat_of_a_closed_connection_is_not_answered(edge):
    edge.say('report', report=made.report())
    edge.transport.end = 'closed'
    edge.say('heartbeat')
    assert edge.heard() == [] and edge.hub.told[-1][0] != 'rests'


@pytest.mark.parametrize(('tls', 'host', 'is_open'), [
    (None, 'h2', True), (Tls(asks=False), 'h2', True), (Tls(), 'h1', True),
    (Tls(), 'h2', False), (Tls(certificate=False), 'h1', False)])
def test_a_certificate_names_its_host(run, tls, host, is_open):
    edge = run(lambda: Edge(tls).hello(host))
    assert (edge.connection.host == host) is is_open
    assert [one[0] for one in edge.hub.told] == [
        'opened' if is_open else 'refused']


@pytest.mark.parametrize('ticket, is_open', [
    ('h2', True), ('h1', False), ('', False)])
def test_a_ticket_names_its_host(run, ticket, is_open):
    def work():
        edge = Edge(None)
        edge.hub.tickets = types.SimpleNamespace(
            is_of=lambda host, ticket: host == ticket)
        return edge.hello('h2', ticket=ticket)

    edge = run(work)
    assert (edge.connection.host == 'h2') is is_open


def test_the_names_of_a_certificate():
    assert connection.names_of({
        'subjectAltName': [('DNS', 'h1'), ('IP Address', '10.0.0.1'),
                           ('DNS', 'h2')],
        'subject': [[('countryName', 'CH'), ('commonName', 'h3')],
                    [('organizationName', 'h4')]]}) == {'h1', 'h2', 'h3'}
    assert connection.names_of({}) == set()
