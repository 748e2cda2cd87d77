# SPDX-License-Identifier: Apache-2.0

"""Who is connected and what each is sent, without a loop that runs."""

import asyncio
import dataclasses
import resource
import socket
import types

import pytest

from tests.unit import made
from tests.unit.distribute import test_server
from virtco.distribute import edge_session as session
from virtco.distribute import server
from virtco.distribute import token_bucket
from virtco.distribute import upstream
from virtco.wire import frames
from virtco.wire import messages

REPORT = made.report()


class Writes:
    """Keeps what it is told, as messages."""

    def __init__(self):
        self.is_writable = True
        self.told = []
        self.refused = []

    def write(self, frame):
        (payload,) = frames.Reader().feed(frame)
        self.told.append(frames.unpack(payload))

    def refuse(self, *why):
        self.refused.append(why)

    def take(self):
        """What it was told since it was last asked."""
        told, self.told = self.told, []
        return told


class Seat(Writes):
    def __init__(self, host, peer=None, sent=0, report=None):
        super().__init__()
        self.host, self.peer = host, peer
        self.session = types.SimpleNamespace(sent=sent, report=report)


class Peer(Writes):
    def __init__(self, name):
        super().__init__()
        self.name, self.seats = name, {}
        self.connection = None

    @property
    def heard_s(self):
        return self.connection.heard_s

    def refuse_all(self, why):
        self.connection.refuse(why)


class Connection(Writes):
    def __init__(self, address='10.0.0.1', seat=None, peer=None):
        super().__init__()
        self.address, self.seat, self.peer = address, seat, peer
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

    def __call__(self, host):
        found = self.generations.get(host)
        return None if found is None else types.SimpleNamespace(
            generation=found,
            frame=lambda: frames.pack('policy', generation=found))


class Site(test_server.Site):
    """A server whose loop does not run.

    :ivar notes: what its doors were told.
    """

    def __init__(self, policies, n_hosts, **options):
        super().__init__(**options)
        self.notes = []
        self.n_hosts, self.leader, self.leads = n_hosts, None, True
        self.policies = policies
        self.server._doors = server.Doors(
            epoch=lambda: 9, is_led=lambda: self.leads,
            elsewhere=lambda: self.leader, policy=policies,
            ticket_key=lambda: 'tickets', peer_key=lambda: 'peers',
            n_hosts=lambda: self.n_hosts, peers=self._note_peers,
            **{kind: self._note(kind)
               for kind in ('came', 'left', 'said', 'heard', 'told')},
            trains=lambda hosts: {})

    def _note(self, kind):
        return lambda *args: self.notes.append((kind, *args))

    def _note_peers(self, names):
        self.notes.append(('peers', set(names)))

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
        found = Connection(peer=Peer(name))
        found.peer.connection, found.heard_s = found, self.server.clock()
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


@pytest.fixture
def make():
    made = []

    def call(policies=None, n_hosts=0, **options):
        made.append(Site(policies or Policies(), n_hosts, **options))
        return made[-1]

    yield call
    for one in made:
        one.server._listener.close()
        one.server.loop.close()


def kinds(told):
    return [message['type'] for message in told]


def test_a_host_is_welcomed_and_told_its_policy(make):
    site = make(Policies(h1=5), heartbeat_s=20)
    one = site.join('h1').seat
    welcome, policy = one.take()
    assert welcome == {
        'type': 'welcome', 'epoch': 9, 'alive_s': 2.5, 'heartbeat_s': 20.0,
        'spread_s': 0.001, 'most_bytes': frames.MOST_BYTES}
    assert policy == {'type': 'policy', 'generation': 5}
    assert one.session.sent == 5
    assert site.take() == [('came', 'h1', hello('h1'))]
    assert site.counted('virtco_edge_connections') == 1
    assert site.counted('virtco_policies_sent_total') == 1
    assert site.server.seats() == {'h1': one}
    # Of the same generation nothing is sent again.
    site.server.changed(['h1'])
    assert one.take() == []
    # Any other one is sent, whichever is larger.
    site.policies.generations['h1'] = 4
    site.server.changed(['h1'])
    assert kinds(one.take()) == ['policy'] and one.session.sent == 4


def test_who_comes_while_nobody_leads_is_told_so(make):
    site = make()
    site.leads = False
    assert site.join('h1').seat.take()[0]['epoch'] == 0


def test_a_host_of_a_relay_is_welcomed_by_the_relay(make):
    site = make(Policies(h1=5))
    relay = site.join_peer(hosts=['h1'])
    assert kinds(relay.peer.seats['h1'].take()) == ['policy']
    assert site.take() == [('peers', {'p1'}), ('came', 'h1', hello('h1'))]
    assert site.counted('virtco_edge_connections') == 1


def test_the_doors_are_asked(make):
    site = make()
    site.leader = 'a:1'
    one = site.server
    assert (one.epoch, one.elsewhere, one.ticket_key, one.peer_key) == (
        9, 'a:1', 'tickets', 'peers')
    assert not one.is_tls and not one._listener.getblocking()


def test_without_more_doors_all_edge_modules_are_served():
    doors = server.Doors(epoch=int, is_led=bool, policy=str, n_hosts=int,
                         said=print)
    assert doors.elsewhere() is None and doors.ticket_key() is None
    assert doors.peer_key() == '' and doors.trains(['h1']) == {}
    assert doors.came('h1', hello('h1')) is doors.left('h1') is None
    assert doors.spent_s('h1') == 0
    assert doors.heard({'h1'}) is doors.peers({'p1'}) is None
    assert doors.told('p1', messages.Here(True)) is None


def test_a_heartbeat_comes_while_a_policy_holds(make):
    # Half of a policy's minute.
    assert make(heartbeat_s=300).server.heartbeat_s == 30.0


@pytest.mark.parametrize(('n_open', 'alive_s'), [
    (0, 2.5), (5000, 2.5), (5001, 2.5005)])
def test_how_often_a_server_says_that_it_is_there(make, n_open, alive_s):
    site = make()
    site.server._open = dict.fromkeys(range(n_open))
    assert site.server.alive_s == alive_s


@pytest.mark.parametrize(('n_hosts', 'n_open', 'is_tls', 'spread_s'), [
    (0, 6, False, 0.006), (600, 6, False, 0.6), (600, 6, True, 2.0),
    (30_001, 6, False, 30.0), (9001, 6, True, 30.0)])
def test_in_which_time_all_come_back(make, n_hosts, n_open, is_tls,
                                     spread_s):
    site = make(n_hosts=n_hosts)
    site.server._tls = is_tls or None
    for number in range(n_open):
        site.join(f'h{number}', address=str(number))
    assert site.server._spread_s() == spread_s


def test_a_host_has_one_connection(make):
    site = make()
    first = site.join('h1')
    second = site.join('h1', address='10.0.0.2')
    assert first.seat.refused == [('another connection of this host',)]
    assert second.seat.refused == []
    site.take()
    # The first one's end is not the host's.
    site.server.closed(first)
    assert site.take() == []
    assert site.counted('virtco_edge_connections') == 1
    site.server.closed(second)
    site.server.closed(second)
    assert site.take() == [('left', 'h1')]
    assert site.counted('virtco_edge_connections') == 0
    assert site.server._per_address == {} and not site.server._all


def test_one_host_of_a_relay_leaves(make):
    site = make()
    relay = site.join_peer(hosts=['h1', 'h2'])
    site.take()
    site.server.left(relay.peer.seats['h1'])
    site.server.left(relay.peer.seats.pop('h1'))
    assert site.take() == [('left', 'h1')]
    assert list(site.server.seats()) == ['h2']
    site.server.closed(relay)
    assert site.take() == [('left', 'h2'), ('peers', set())]
    site.server.left(Seat(None))
    assert site.take() == []


def test_addresses_are_counted(make):
    site = make()
    first, second = site.join(), site.join()
    site.server.closed(first)
    assert site.server._per_address == {'10.0.0.1': 1}
    assert site.take() == []
    site.server.closed(second)
    assert site.server._per_address == {}


@pytest.mark.parametrize(('limits', 'n', 'is_taken'), [
    ({}, 3, True),
    ({'max_connections_per_address': 3}, 2, True),
    ({'max_connections_per_address': 3}, 3, False)])
def test_connections_are_bounded(make, limits, n, is_taken, caplog):
    site = make(**limits)
    for _ in range(n):
        site.join()
    tasks = []
    site.server._connect = lambda sock, address: tasks.append(address)
    site.server.loop = types.SimpleNamespace(
        create_task=lambda _task: None, close=site.server.loop.close)
    with socket.socket() as sock:
        site.server._welcome(sock, '10.0.0.1')
        assert (sock.fileno() >= 0) is is_taken
        if is_taken:
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert tasks == ['10.0.0.1'] * is_taken
    assert site.server._per_address['10.0.0.1'] == n + is_taken
    assert site.n_refused('limit') == (not is_taken)
    assert caplog.messages == [
        'Too many connections, the last one from 10.0.0.1.'] * (not is_taken)


@pytest.mark.parametrize('is_tls, handshake_s', [(False, None), (True, 5.0)])
@pytest.mark.parametrize('fails', [False, True])
def test_a_handshake_that_fails_is_counted(make, is_tls, handshake_s, fails,
                                           caplog):
    site = make()
    site.server._tls = is_tls and types.SimpleNamespace(
        context=lambda: 'tls') or None
    assert site.server.is_tls is is_tls
    asked = []

    async def connect(factory, sock, **values):
        asked.append((factory().address, values))
        if fails:
            raise OSError('no cipher')

    loop, site.server.loop = site.server.loop, types.SimpleNamespace(
        connect_accepted_socket=connect)
    site.server._per_address['10.0.0.9'] = 1
    with socket.socket() as sock:
        loop.run_until_complete(site.server._connect(sock, '10.0.0.9'))
        assert (sock.fileno() < 0) is fails
    site.server.loop = loop
    assert asked == [('10.0.0.9', {'ssl': 'tls' if is_tls else None,
                                   'ssl_handshake_timeout': handshake_s})]
    assert site.n_refused('handshake') == fails
    assert len(site.server._all) == (not fails)
    assert site.server._per_address == ({} if fails else {'10.0.0.9': 1})
    assert ('from 10.0.0.9: no cipher' in caplog.text) is fails


def test_a_listener_that_fails_is_asked_again(make, caplog):
    site, came = make(), []
    waits = iter([OSError('too many open files'), ('sock', ('10.0.0.9', 7))])

    async def accept(listener):
        assert listener is site.server._listener
        found = next(waits, Over())
        if isinstance(found, Exception):
            raise found
        return found

    site.server._welcome = lambda *args: came.append(args)
    loop, site.server.loop = site.server.loop, types.SimpleNamespace(
        sock_accept=accept)
    assert site.run(site.server._accept) == [0.1]
    site.server.loop = loop
    assert came == [('sock', '10.0.0.9')]
    assert 'too many open files' in caplog.text


def test_one_that_does_not_read_gets_its_policy_when_it_does(make):
    site = make(Policies(h1=5))
    one = site.join('h1', sent=5)
    one.seat.is_writable = False
    site.policies.generations['h1'] = 6
    site.server.changed(['h1'])
    assert one.seat.session.sent == 5
    one.seat.is_writable = True
    site.server.resumed(one)
    assert one.seat.session.sent == 6
    site.server.resumed(Connection())  # No hello yet.
    assert site.counted('virtco_policies_sent_total') == 1


def test_a_relay_that_reads_again_gets_the_policies_of_all(make):
    site = make(Policies(h1=5, h2=5))
    relay = site.join_peer(hosts=['h1', 'h2'])
    site.policies.generations.update(h1=6, h2=7)
    site.server.resumed(relay)
    assert [seat.session.sent for seat in relay.seats] == [6, 7]


def test_others_are_heard_while_many_are_told(make, monkeypatch):
    monkeypatch.setattr(server, 'AT_ONCE', 2)
    hosts = [f'h{number}' for number in range(5)]
    site = make(Policies(**dict.fromkeys(hosts, 7)))
    found = [site.join(host, address=host, sent=7).seat for host in hosts]
    site.turn()
    for one in found:
        one.session.sent = 0

    def n_told():
        return sum(one.session.sent == 7 for one in found)

    site.server.changed([*hosts, 'unknown'])
    assert n_told() == 2
    # Who changes meanwhile is sent in turn.
    site.server.changed(['h0'])
    assert n_told() == 2
    for _ in range(4):
        site.turn()
    assert n_told() == 5 and not site.server._is_sending
    # The next change is sent at once again.
    found[4].session.sent = 0
    site.server.changed(['h4'])
    assert n_told() == 5 and not site.server._is_sending


def test_what_edges_say_is_handed_on(make):
    site = make()
    one = site.join('h1').seat
    site.take()

    def hear(event):
        site.server.heard(one, event, b'payload')

    hear(session.Report(None, False))
    assert site.take() == []
    for event in (session.Report(REPORT, True), messages.Ack(4),
                  messages.Measured(made.measurement('h1', 'h2', 1e9))):
        hear(event)
        assert site.take() == [('said', 'h1', event, b'payload')]
    assert site.server._heard == set()
    hear(session.Report(REPORT, False))
    assert site.take() == [] and site.server._heard == {'h1'}
    assert site.counted('virtco_policies_refused_total') == 0


def test_a_policy_that_is_refused_is_counted(make, caplog):
    site = make()
    one = site.join('h1').seat
    site.take()
    site.server.heard(one, messages.Nack(4, 'no'), b'payload')
    assert site.counted('virtco_policies_refused_total') == 1
    assert 'h1 refuses policy 4: no' in caplog.text
    assert site.take() == [('said', 'h1', messages.Nack(4, 'no'),
                            b'payload')]


def test_one_whose_report_holds_is_noted(make):
    site = make()
    site.server.rests(Seat(None))  # No hello yet.
    assert site.server._heard == set()
    site.server.rests(Seat('h1'))
    assert site.server._heard == {'h1'}


def test_one_host_is_told_if_it_is_here(make):
    site = make()
    one = site.join('h1').seat
    one.take()
    for host in ('gone', 'h1'):
        site.server.pass_on(host, frames.pack('probe', train=host))
    assert one.take() == [{'type': 'probe', 'train': 'h1'}]


# Peers.


def test_peers_come_and_go(make, caplog):
    caplog.set_level('INFO')
    site = make()
    first = site.join_peer('p1')
    second = site.join_peer('p2')
    assert first.peer.take() == [{
        'type': 'welcome', 'epoch': 9, 'alive_s': 0.5, 'heartbeat_s': 0.0,
        'spread_s': 0.0, 'most_bytes': 0}]
    assert site.take() == [('peers', {'p1'}), ('peers', {'p1', 'p2'})]
    site.server.closed(first)
    site.server.closed(first)
    assert site.take() == [('peers', {'p2'})]
    assert caplog.messages == ['Peer p1 joined.', 'Peer p2 joined.',
                               'Peer p1 left.']
    # One that came back meanwhile is still here.
    again = site.join_peer('p2')
    site.take()
    site.server.closed(second)
    assert site.take() == []
    site.server.closed(again)
    assert site.take() == [('peers', set())]


def test_what_peers_say_is_handed_on(make):
    site = make()
    site.server.told(Peer('p1'), messages.Here(True))
    assert site.take() == [('told', 'p1', messages.Here(True))]


def test_a_peer_is_answered_if_it_is_here(make):
    site = make()
    one = site.join_peer('p1').peer
    one.take()
    for name in ('p2', 'p1'):
        site.server.answer(name, messages.Asked(
            name, upstream.NO_POLICY))
        assert one.take() == []  # Another thread may have asked for it.
        site.turn()
    assert one.take() == [{'type': 'asked', 'host': 'p1', 'policy': None}]


def test_other_threads_tell_of_policies_and_trains(make):
    site = make(Policies(h1=5))
    one = site.join('h1', sent=5).seat
    site.policies.generations['h1'] = 6
    site.server.published(iter(['h1']))
    site.server.trains_ordered()
    assert one.session.sent == 5 and not site.server._ordered.is_set()
    site.turn()
    assert one.session.sent == 6 and site.server._ordered.is_set()


def test_a_server_that_ended_is_told_nothing(make):
    site = make()
    site.server.loop.close()
    site.server.published(['h1'])
    site.server.stop()
    assert not site.server.is_alive()


# What is done again and again.


def test_silent_edge_modules_are_let_go(make):
    site = make(heartbeat_s=2)
    old, new, unknown = site.join('h1'), site.join('h2'), site.join()
    site.server.clock = lambda: 106.0
    old.heard_s, new.heard_s = 99.9, 100.0
    assert site.run(site.server._watch) == [1.0]
    assert old.refused == [('h1 is silent',)]
    assert new.refused == unknown.refused == []


def test_who_is_not_read_is_not_silent(make):
    site = make(heartbeat_s=2)
    edge = site.join('h1')
    site.server.clock = lambda: 106.1
    edge.is_paused = True
    site.run(site.server._watch)
    assert edge.refused == []


def test_a_host_pays_from_one_budget_whatever_costs(make, caplog):
    site = make()
    site.server.clock = lambda: 100.0
    spent_s = {'h1': 0.5 * token_bucket.BURST_CPU_S}
    site.server._doors = dataclasses.replace(
        site.server._doors, spent_s=lambda host: spent_s.pop(host, 0.0))

    def charge(host, bursts, cpu_bursts):
        return site.server.charge(
            host, bursts * token_bucket.BURST_BYTES,
            cpu_bursts * token_bucket.BURST_CPU_S)

    assert charge('h1', 0, 0.5) == charge('h2', 1, 1) == 0
    assert caplog.messages == []
    assert site.counted('virtco_edge_throttled_total') == 0
    assert charge('h1', 0, 0.1) == pytest.approx(
        0.1 * token_bucket.BURST_CPU_S / token_bucket.CPU_PER_S)
    assert charge('h2', 0.5, 0) == pytest.approx(
        0.5 * token_bucket.BURST_BYTES / token_bucket.BYTES_PER_S)
    assert caplog.messages == [
        'h1 says more than its budget allows, and is read again in 1.0 s.']
    assert site.counted('virtco_edge_throttled_total') == 2


def test_who_comes_back_owes_what_it_owed(make):
    site = make()
    edge, other = site.join('h1'), site.join('h2')
    site.server.clock = lambda: 100.0
    for host in ('h1', 'h2', 'h3'):
        site.server.charge(host, 2 * token_bucket.BURST_BYTES, 0)
    site.server.closed(edge)
    site.run(site.server._watch)
    wait_s = site.server.charge('h1', 0, 0)
    assert wait_s > 0
    # A host that is gone is forgotten when its budget is full again.
    site.server.clock = lambda: 1000.0
    other.heard_s = 1000.0
    site.run(site.server._watch)
    assert site.server._budgets.keys() == {'h2'}


def test_silent_peers_are_let_go(make):
    site = make(heartbeat_s=20)
    old, new = site.join_peer('p1'), site.join_peer('p2')
    site.server.clock = lambda: 102.5
    old.heard_s, new.heard_s = 99.9, 100.0
    assert site.run(site.server._say_alive_to_peers) == [0.5]
    assert old.refused == [('it is silent',)] and new.refused == []


@pytest.mark.parametrize('leads, epoch', [(True, 9), (False, 0)])
def test_each_edge_module_hears_in_turn(make, leads, epoch):
    site = make()
    site.leads = leads
    found = [site.join(f'h{number}', address=str(number)).seat
             for number in range(12)]
    relayed = site.join_peer(hosts=['h12']).peer.seats['h12']
    for one in (*found, relayed):
        one.take()
    assert site.run(site.server._say_alive) == [0.25]
    assert [bool(one.told) for one in found] == [
        number in (1, 11) for number in range(12)]
    assert found[1].take() == [
        {'type': 'alive', 'epoch': epoch, 'n_hosts': 0}]
    found[11].take()
    assert site.run(site.server._say_alive, 10) == [0.25] * 10
    assert all(len(one.take()) == 1 for one in found)
    # The relay says so to those behind it.
    assert relayed.take() == []


def test_peers_hear_how_many_hosts_there_are(make):
    site = make(n_hosts=70)
    relay = site.join_peer(hosts=['h1', 'h2'])
    edge = site.join('h3')
    relay.peer.take()
    edge.seat.take()
    relay.peer.seats['h1'].session.report = REPORT
    assert site.run(site.server._say_alive_to_peers) == [0.5]
    assert relay.peer.take() == [{'type': 'alive', 'epoch': 9, 'n_hosts': 70}]
    assert edge.seat.take() == []
    # The heartbeats of its hosts end at the relay.
    assert site.server._heard == {'h1'}
    assert relay.refused == edge.refused == []


@pytest.mark.parametrize('leader', ['a:1', ''])
def test_a_process_that_does_not_lead_any_more_lets_all_go(make, leader):
    site = make()
    relay, edge, unknown = site.join_peer(), site.join('h1'), site.join()
    relay.peer.take()
    site.leader = leader
    site.run(site.server._say_alive_to_peers)
    assert relay.refused == edge.refused == [
        ('this process does not lead any more', leader)]
    # It is told when it says who it is.
    assert unknown.refused == [] and relay.peer.take() == []


def ordered(site, trains, done):
    """One round of trains, with a loop that runs."""
    async def work():
        site.server._doors = dataclasses.replace(
            site.server._doors, trains=trains)
        task = asyncio.create_task(site.server._turn())
        while not done():
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    site.server.loop.run_until_complete(work())


def test_trains_are_handed_out_when_they_are_ordered(make, monkeypatch):
    monkeypatch.setattr(server, 'TURN_S', 60.0)
    site, asked = make(), []
    one = site.join('h1').seat
    one.take()
    site.take()
    site.server._heard = {'h1', 'h2'}
    site.server._ordered.set()

    def trains(hosts):
        asked.append(hosts)
        return {'gone': {}, 'h1': {'probe_id': 'p'}}

    ordered(site, trains, lambda: one.told)
    assert one.take() == [{'type': 'probe', 'train': {'probe_id': 'p'}}]
    assert asked == [['h1']] and not site.server._ordered.is_set()
    assert site.take() == [('heard', {'h1', 'h2'})]
    assert site.server._heard == set()


def test_rounds_of_trains_begin_by_time(make, monkeypatch):
    monkeypatch.setattr(server, 'TURN_S', 0.0)
    site, asked = make(), []
    site.join('h1')
    site.take()
    ordered(site, lambda hosts: asked.append(hosts) or {},
            lambda: len(asked) > 1)
    # Nobody was heard, so nothing is told.
    assert site.take() == []


def test_without_edge_modules_no_trains_are_asked_for(make, monkeypatch):
    monkeypatch.setattr(server, 'TURN_S', 0.0)
    site, asked = make(), []
    site.server._heard = {'h1'}
    ordered(site, asked.append, lambda: site.notes)
    assert site.take() == [('heard', {'h1'})] and asked == []


def test_the_log_has_one_line_in_a_while(make, caplog):
    site = make()
    # The first line comes at once, though the machine has just started.
    now = [0.0]
    site.server.clock = lambda: now[0]
    for step_s in (0, 1, 8.9, 0.1, 9.9):
        now[0] += step_s
        site.server._log('Something of %s', now[0])
    assert [record.getMessage() for record in caplog.records] == [
        'Something of 0.0', 'Something of 10.0']


def test_who_is_refused_is_counted(make, caplog):
    site = make()
    site.server.refused('h1', 'why')
    assert site.n_refused('protocol') == 1
    assert 'h1: why' in caplog.text


def test_addresses_of_both_families():
    assert server._family('::') is socket.AF_INET6
    assert server._family('0.0.0.0') is socket.AF_INET


@pytest.mark.parametrize(('limits', 'most'), [
    ((10, 5000), 1100), ((10, 1050), 1050), ((1099, 5000), 1100),
    ((1100, 5000), None), ((4000, 5000), None),
    ((10, resource.RLIM_INFINITY), 1100)])
def test_files_for_all_connections(monkeypatch, limits, most):
    told = []
    monkeypatch.setattr(resource, 'getrlimit', lambda _kind: limits)
    monkeypatch.setattr(resource, 'setrlimit',
                        lambda _kind, values: told.append(values))
    server._raise_file_limit(76)
    assert told == ([] if most is None else [(most, limits[1])])
