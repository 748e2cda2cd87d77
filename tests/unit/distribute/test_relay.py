# SPDX-License-Identifier: Apache-2.0

"""A relay: what it passes on, what it keeps, and its health."""

import socket
import types

import msgspec
import pytest

from tests import patience
from tests.unit import made
from tests.unit import stored
from tests.unit.distribute import test_server
from virtco import exception
from virtco import metrics
from virtco import periodic
from virtco.db import leader
from virtco.db import migration
from virtco.db import session as db_session
from virtco.distribute import connection
from virtco.distribute import edge_session as session
from virtco.distribute import relay
from virtco.distribute import server
from virtco.distribute import tickets
from virtco.wire import frames
from virtco.wire import messages
from virtco.wire import reports

REPORT = made.report()
SEEN = leader.Seen(4, 7, 'x', '127.0.0.1:1', 'secret')


class Upstream:
    """A connection to a leader that answers nothing.

    :ivar sent: hosts and payloads, b'' of one that is gone.
    """

    epoch, n_hosts, is_connected = 4, 70, True

    def __init__(self):
        self.sent, self.in_vain_s = [], 0.0

    def is_cut_off(self, limit_s):
        return self.in_vain_s >= limit_s

    def forward(self, host, payload):
        self.sent.append((host, payload))

    def gone(self, host):
        self.sent.append((host, b''))

    def take(self):
        sent, self.sent = self.sent, []
        return sent


class Link:
    """A connection of an edge module, as its seat and the server see it."""

    def __init__(self, address='10.0.0.1'):
        self.address, self.is_writable = address, True
        self.peer, self.seats, self.told, self.why = None, [], [], None
        self.paused_s = None

    def write(self, frame):
        (payload,) = frames.Reader().feed(frame)
        self.told.append(msgspec.json.decode(payload))

    def refuse(self, why):
        self.why = why

    def pause(self, wait_s):
        self.paused_s = wait_s

    def take(self):
        told, self.told = self.told, []
        return told


class Site:
    """A relay without threads, and edge modules that speak to it."""

    def __init__(self, **api):
        self.relay = one = relay.Relay(stored.conf(
            distributor={'port': 0}, api={'auth_strategy': 'noauth'} | api,
            database={'connection': 'sqlite://'}))
        one._leader.seen = SEEN
        self.leader = one._upstream = Upstream()
        self.counts = metrics.Metrics()
        self.server = one._server = server.Server(
            one._conf, one._doors(), self.counts)

    def connect(self, host, generation=0):
        link = Link()
        message = hello(host, generation)
        seat = connection.Seat(self.server, link, message)
        link.seats = [seat]
        self.server._all.add(link)
        self.server._per_address[link.address] += 1
        self.server.opened(seat, message)
        return link

    @staticmethod
    def say(link, message):
        link.seats[0].take(message, messages.pack(message))

    def hear(self, host, kind, **values):
        """The leader tells an edge module something."""
        self.relay._took(host, made.frame(kind, **values)[
            frames.HEADER_BYTES:])


def hello(host, generation=0, epoch=0):
    return messages.Hello(frames.VERSION, host, epoch, generation)


@pytest.fixture
def make():
    made = []

    def call(**api):
        made.append(Site(**api))
        return made[-1]

    yield call
    for one in made:
        one.server._listener.close()
        one.server.loop.close()


@pytest.fixture
def site(make):
    return make()


def kinds(told):
    return [message['type'] for message in told]


def test_what_edge_modules_say_is_passed_on_as_it_is(site):
    link = site.connect('h1', 3)
    assert kinds(link.take()) == ['welcome']
    said = [messages.Whole(REPORT), messages.Ack(3), messages.Nack(3, 'no'),
            messages.Measured(made.measurement('h1', 'h2', 1e9))]
    for message in said:
        site.say(link, message)
    assert site.leader.take() == [
        ('h1', messages.pack(message)) for message in (hello('h1', 3), *said)]
    # The leader counts the heartbeats of all hosts that are here itself.
    site.say(link, messages.Heartbeat())
    assert site.leader.take() == link.take() == []
    site.server.closed(link)
    assert site.leader.take() == [('h1', b'')]


def test_what_no_report_was_made_of_is_not_passed_on(site):
    link = site.connect('h1')
    site.leader.take()
    site.say(link, messages.Heartbeat())
    assert site.leader.take() == []
    assert kinds(link.take()) == ['welcome', 'resend']


def test_the_newest_policy_is_kept_until_it_is_read(site):
    link = site.connect('h1', 3)
    link.take()
    site.hear('h1', 'policy', generation=4, epoch=4, policy={'a': 1})
    assert link.take() == [{'type': 'policy', 'generation': 4, 'epoch': 4,
                            'policy': {'a': 1}}]
    link.is_writable = False
    for generation in (5, 6):
        site.hear('h1', 'policy', generation=generation)
    assert link.take() == []
    link.is_writable = True
    site.server.resumed(link)
    assert link.take() == [{'type': 'policy', 'generation': 6}]
    site.server.resumed(link)
    assert link.take() == []
    # Those of a host that left are forgotten.
    site.server.closed(link)
    assert site.relay._policies == {}
    site.hear('h1', 'policy', generation=7)
    assert site.relay._policies == {}


def test_what_else_the_leader_says_is_passed_on(site):
    link = site.connect('h1')
    link.take()
    site.hear('h1', 'resend')
    site.hear('h1', 'probe', order={'probe_id': 'p'})
    site.hear('h2', 'resend')
    assert link.take() == [{'type': 'resend'},
                           {'type': 'probe', 'order': {'probe_id': 'p'}}]


def test_one_that_the_leader_refuses_is_let_go(site):
    link, other = site.connect('h1'), site.connect('h2')
    site.hear('h2', 'refused', why='too old', leader='')
    assert other.why == 'too old' and link.why is None
    site.hear('h3', 'refused', why='too old', leader='')


def test_one_that_owes_the_leader_is_not_read(site):
    link, other = site.connect('h1'), site.connect('h2')
    link.take()
    site.hear('h1', 'pause', wait_s=7.5)
    site.hear('h3', 'pause', wait_s=8.0)
    assert (link.paused_s, other.paused_s, link.take()) == (7.5, None, [])


def test_one_that_comes_back_begins_again(site):
    first = site.connect('h1', 3)
    site.hear('h1', 'policy', generation=4)
    second = site.connect('h1', 3)
    assert first.why == 'another connection of this host'
    site.server.closed(first)
    assert site.leader.take() == [
        ('h1', messages.pack(hello('h1', 3)))] * 2
    assert kinds(second.take()) == ['welcome', 'policy']


def test_the_next_leader_is_told_what_each_said_last(site):
    link = site.connect('h1', 3)
    assert site.relay._replay('h1') == [messages.pack(hello('h1', 3, 4))]
    site.say(link, messages.Whole(REPORT))
    site.hear('h1', 'policy', generation=5)
    site.leader.epoch = 6
    assert site.relay._replay('h1') == [
        messages.pack(hello('h1', 5, 6)), messages.pack(
            messages.Whole(REPORT))]
    assert site.relay._replay('h2') == []


def test_the_next_leader_is_told_long_reports_in_parts(site):
    link = site.connect('h1', 3)
    site.leader.take()
    report = msgspec.structs.replace(REPORT, ports=tuple(
        reports.Port(f'vm{number}', notes=('x' * 1000,))
        for number in range(600)))
    payloads = messages.pack_report(messages.decode(messages.pack(
        messages.Whole(report))).report)
    assert len(payloads) == 4
    for payload in payloads:
        link.seats[0].take(messages.decode(payload), payload)
    assert [said for _, said in site.leader.take()] == payloads
    _, *replayed = site.relay._replay('h1')
    assert replayed == payloads
    # Those of the next report, which is not whole yet.
    site.say(link, messages.decode(payloads[1]))
    _, *replayed = site.relay._replay('h1')
    assert replayed == [*payloads, payloads[1]]


def test_a_part_that_grows_beyond_a_frame_ends_no_connection(site):
    """Defaults that an edge module left out are packed as well."""
    link = site.connect('h1', 3)
    site.say(link, messages.Whole(REPORT))
    for n_rows, n_told in ((1000, 3), (7000, 1)):
        payload = msgspec.json.encode({'type': 'part', 'coflows': [
            {'coflow_id': f'{n}', 'sent_bytes': 6} for n in range(n_rows)]})
        assert len(payload) <= frames.MOST_BYTES
        link.seats[0].take(messages.decode(payload), payload)
        assert len(site.relay._replay('h1')) == n_told


def test_edge_modules_hear_whether_there_is_a_leader(site):
    doors = site.relay._doors()
    assert (doors.epoch(), doors.is_led(), doors.n_hosts()) == (4, True, 70)
    site.leader.is_connected = False
    assert not doors.is_led()
    # They are served anyway.
    assert doors.elsewhere() is None and doors.trains(['h1']) == {}
    assert doors.peer_key() == ''


def test_edge_modules_are_sent_away_from_one_that_is_cut_off(site):
    site.relay._conf.set_override('lease_s', 5.0, 'leadership')
    doors = site.relay._doors()
    site.leader.in_vain_s = 3.9
    assert doors.elsewhere() is None
    site.leader.in_vain_s = 4.0
    assert doors.elsewhere() == ''


def test_tickets_are_of_the_leader_that_was_seen(make):
    assert make().relay._doors().ticket_key() is None
    one = make(auth_strategy='keystone').relay
    assert one._doors().ticket_key() == '4 secret'
    one._leader.seen = None
    assert one._doors().ticket_key() == ''


def test_its_health(site):
    one = site.relay
    alive = {'server': True, 'database': True}
    one._server = types.SimpleNamespace(is_alive=lambda: alive['server'])
    one._leader = types.SimpleNamespace(
        is_answered=lambda: alive['database'])
    assert one.health() == (True, {
        'status': 'ok', 'parts': {'distributor': True, 'database': True},
        'hosts': 70, 'leader': {'epoch': 4, 'here': False, 'reached': True}})
    site.leader.is_connected = False
    is_well, found = one.health()
    assert is_well and found['leader']['reached'] is False
    for part, named in (('server', 'distributor'), ('database', 'database')):
        alive[part] = False
        is_well, found = one.health()
        assert not is_well and found['status'] == 'failing'
        assert [name for name, is_alive in found['parts'].items()
                if not is_alive] == [named]
        alive[part] = True
    assert one.gauge() is None
    one._server = site.server


def test_where_nobody_could_connect_it_does_not_start(site):
    site.relay._conf.set_override('port', site.server.port, 'distributor')
    with pytest.raises(exception.ConfigInvalid, match='nobody could connect'):
        site.relay.start()
    assert not site.relay._leader._thread.is_alive()


def test_it_serves_between_edge_modules_and_the_leader(tmp_path):
    """Two servers over loopback, and a database that says who leads."""
    first = test_server.Site()
    database = db_session.Database(f'sqlite:///{tmp_path / "db"}')
    migration.upgrade(database)
    with database.writer() as opened:
        leader.raise_epoch(opened, 3)
        leader.take_over(opened, leader.current(opened), 'x',
                         f'127.0.0.1:{first.server.port}')
        first.peer_key = key = leader.current(opened).ticket_key
    database.dispose()
    first.server.start()
    one = relay.Relay(stored.conf(
        distributor={'port': 0}, api={'auth_strategy': 'keystone'},
        database={'connection': f'sqlite:///{tmp_path / "db"}'}))
    one.start()
    try:
        with test_server.dial(types.SimpleNamespace(
                server=one._server)) as sock:
            patience.wait_for(lambda: one._upstream.is_connected, 'a leader')
            sock.sendall(messages.frame(messages.Hello(
                frames.VERSION, 'h1', ticket=tickets.of_host(key, 'h1'))))
            found = test_server.messages(sock)
            assert test_server.next_of(found, 'welcome')['epoch'] == 4
            policy = test_server.next_of(found, 'policy')
            assert policy['generation'] == test_server.LARGE.generation
            sock.sendall(messages.frame(messages.Whole(REPORT)))
            patience.wait_for(lambda: first.said == [
                ('h1', session.Report(REPORT, True))], 'a report')
            assert test_server.next_of(found, 'probe')['order'] == {
                'probe_id': 'h1'}
            # One that owes the leader is not read; its sibling is.
            first.server.charge = lambda host, *_spent: (
                1.0 if host == 'h1' else 0.0)
            sock.sendall(messages.frame(messages.Whole(REPORT)))
            seats = one._server.seats()
            patience.wait_for(lambda: seats['h1'].connection.is_paused,
                              'a pause')
            with test_server.dial(types.SimpleNamespace(
                    server=one._server)) as sibling:
                sibling.sendall(messages.frame(messages.Hello(
                    frames.VERSION, 'h2', ticket=tickets.of_host(key, 'h2')))
                    + messages.frame(messages.Whole(REPORT)))
                patience.wait_for(lambda: first.said[-1][0] == 'h2',
                                  'its report')
                assert not seats['h2'].connection.is_paused
        patience.wait_for(lambda: not one._upstream._doors.hosts(), 'the end')
        patience.wait_for(lambda: not first.server.seats(), 'the news of it')
        assert one.health()[0]
    finally:
        one.stop()
        first.server.stop()
    assert not one._server.is_alive() and not one._leader._thread.is_alive()


def test_edge_modules_leave_one_that_does_not_reach_the_leader(tmp_path):
    """The leader writes its beat, and its port refuses connections."""
    database = db_session.Database(f'sqlite:///{tmp_path / "db"}')
    migration.upgrade(database)
    with socket.socket() as closed, database.writer() as opened:
        closed.bind(('127.0.0.1', 0))
        leader.take_over(opened, leader.current(opened), 'x',
                         f'127.0.0.1:{closed.getsockname()[1]}')

    def beat():
        with database.writer() as opened:
            leader.beat(opened, 1)

    one = relay.Relay(stored.conf(
        distributor={'port': 0}, api={'auth_strategy': 'noauth'},
        leadership={'lease_s': 1.0},
        database={'connection': f'sqlite:///{tmp_path / "db"}'}))
    beats = periodic.Turns(metrics.Metrics())
    beats.every(0.1, 'beat', beat)
    one.start()
    try:
        with test_server.dial(types.SimpleNamespace(
                server=one._server)) as sock:
            sock.sendall(messages.frame(hello('h1')))
            found = test_server.messages(sock)
            assert test_server.next_of(found, 'welcome')['epoch'] == 0
            # While nobody leads it keeps them.
            patience.wait_for(lambda: one._upstream._silent is not None
                              and not one._leader.sees_leader(), 'silence')
            assert one._server.seats()
            beats.start()
            refused = test_server.next_of(found, 'refused')
            assert 'not reached' in refused['why']
        with test_server.dial(types.SimpleNamespace(
                server=one._server)) as sock:
            sock.sendall(messages.frame(hello('h1')))
            assert 'not reached' in test_server.next_of(
                test_server.messages(sock), 'refused')['why']
    finally:
        beats.stop()
        one.stop()
        database.dispose()
