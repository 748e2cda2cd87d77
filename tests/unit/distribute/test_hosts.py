# SPDX-License-Identifier: Apache-2.0

"""Who is connected and what each is sent, without a loop that runs."""

import dataclasses
import socket
import types

import msgspec
import pytest

from tests.unit import made
from tests.unit.distribute import sites
from virtco.distribute import edge_session as session
from virtco.distribute import server
from virtco.wire import frames
from virtco.wire import messages

REPORT = made.report()


def test_a_host_is_welcomed_and_told_its_policy(make):
    site = make(sites.Policies(h1=5), heartbeat_s=20)
    one = site.join('h1').seat
    welcome, policy = one.take()
    assert welcome == {
        'type': 'welcome', 'epoch': 9, 'alive_s': 2.5, 'heartbeat_s': 20.0,
        'spread_s': 0.001, 'most_bytes': frames.MOST_BYTES}
    assert policy == {'type': 'policy', 'generation': 5}
    assert one.session.sent == 5
    assert site.take() == [('came', 'h1', sites.hello('h1'))]
    assert site.counted('virtco_edge_connections') == 1
    assert site.counted('virtco_policies_sent_total') == 1
    assert site.server.seats() == {'h1': one}
    # Of the same generation nothing is sent again.
    site.server.changed(['h1'])
    assert one.take() == []
    # Any other one is sent, whichever is larger.
    site.policies.generations['h1'] = 4
    site.server.changed(['h1'])
    assert sites.kinds(one.take()) == ['policy'] and one.session.sent == 4


def test_who_comes_while_nobody_leads_is_told_so(make):
    site = make()
    site.leads = False
    assert site.join('h1').seat.take()[0]['epoch'] == 0


def test_a_host_of_a_relay_is_welcomed_by_the_relay(make):
    site = make(sites.Policies(h1=5))
    relay = site.join_peer(hosts=['h1'])
    assert sites.kinds(relay.peer.seats['h1'].take()) == ['policy']
    assert site.take() == [('peers', {'p1'}),
                           ('came', 'h1', sites.hello('h1'))]
    assert site.counted('virtco_edge_connections') == 1


def test_its_listener_keeps_no_loop_waiting(make):
    assert not make().server._listener.getblocking()


def test_without_more_doors_all_edge_modules_are_served():
    doors = server.Doors(epoch=int, is_led=bool, policy=str, n_hosts=int,
                         said=print)
    assert doors.elsewhere() is None and doors.ticket_key() is None
    assert doors.peer_key() == '' and doors.trains(['h1']) == {}
    assert doors.came('h1', sites.hello('h1')) is doors.left('h1') is None
    assert doors.spent_s('h1') == 0
    assert doors.heard({'h1'}) is doors.peers({'p1'}) is None
    assert doors.told('p1', messages.Here(True)) is None


def test_a_heartbeat_comes_while_a_policy_holds(make):
    # Half of a policy's minute.
    assert make(heartbeat_s=300).server.heartbeat_s == 30.0


@pytest.mark.parametrize(('n_open', 'alive_s'), [
    (0, 2.5), (5000, 2.5), (5001, 2.5005), (100_000, 30.0)])
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


def test_an_address_that_comes_again_and_again_is_refused(make):
    site, now_s = make(max_connections_per_address=2), [5.0]
    site.server.clock = lambda: now_s[0]
    site.server._connect = lambda sock, address: None
    loop, site.server.loop = site.server.loop, types.SimpleNamespace(
        create_task=lambda _task: None)

    def come(address='10.0.0.1'):
        with socket.socket() as sock:
            site.server._welcome(sock, address)
            is_taken = sock.fileno() >= 0
        site.server._per_address.clear()  # it went away
        return is_taken

    assert [come() for _ in range(12)] == [True] * 9 + [False] * 3
    assert come('10.0.0.2')
    now_s[0] += 2.0
    assert [come() for _ in range(3)] == [True, False, False]
    site.server.loop = loop


def test_others_have_their_turn_between_two_that_come(make):
    """A queue of them is accepted without a wait."""
    site, came = make(), []

    async def accept(_listener):
        return 'sock', ('10.0.0.9', 7)

    site.server._welcome = lambda *args: came.append(args)
    loop, site.server.loop = site.server.loop, types.SimpleNamespace(
        sock_accept=accept)
    assert site.run(site.server._accept, 2) == [0, 0]
    site.server.loop = loop
    assert len(came) == 3


@pytest.mark.parametrize('is_tls, handshake_s', [(False, None), (True, 5.0)])
@pytest.mark.parametrize('fails', [False, True])
def test_a_handshake_that_fails_is_counted(make, is_tls, handshake_s, fails,
                                           caplog):
    site = make()
    site.server._tls = is_tls and types.SimpleNamespace(
        context=lambda: 'tls') or None
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
        found = next(waits, sites.Over())
        if isinstance(found, Exception):
            raise found
        return found

    site.server._welcome = lambda *args: came.append(args)
    loop, site.server.loop = site.server.loop, types.SimpleNamespace(
        sock_accept=accept)
    assert site.run(site.server._accept, 2) == [0.1, 0]
    site.server.loop = loop
    assert came == [('sock', '10.0.0.9')]
    assert 'too many open files' in caplog.text


def test_one_that_does_not_read_gets_its_policy_when_it_does(make):
    site = make(sites.Policies(h1=5))
    one = site.join('h1', sent=5)
    one.seat.is_writable = False
    site.policies.generations['h1'] = 6
    site.server.changed(['h1'])
    assert one.seat.session.sent == 5
    one.seat.is_writable = True
    site.server.resumed(one)
    assert one.seat.session.sent == 6
    site.server.resumed(sites.Connection())  # No hello yet.
    assert site.counted('virtco_policies_sent_total') == 1


def test_a_relay_that_reads_again_gets_the_policies_of_all(make):
    site = make(sites.Policies(h1=5, h2=5))
    relay = site.join_peer(hosts=['h1', 'h2'])
    site.policies.generations.update(h1=6, h2=7)
    site.server.resumed(relay)
    assert [seat.session.sent for seat in relay.seats] == [6, 7]


def test_others_are_heard_while_many_are_told(make, monkeypatch):
    monkeypatch.setattr(server, 'AT_ONCE', 2)
    hosts = [f'h{number}' for number in range(5)]
    site = make(sites.Policies(**dict.fromkeys(hosts, 7)))
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


def test_a_policy_that_cannot_be_made_keeps_no_other_back(make):
    site = make(sites.Policies(h0=7, h1=7))
    seats = [site.join(host, address=host, sent=7).seat
             for host in ('h0', 'h1')]
    site.turn()
    for one in seats:
        one.session.sent = 0

    def failing(host, known):
        if host == 'h0':
            raise MemoryError
        return site.policies(host, known)

    site.server.doors = dataclasses.replace(site.server.doors, policy=failing)
    with pytest.raises(MemoryError):
        site.server.changed(['h0', 'h1'])
    site.turn()
    assert [one.session.sent for one in seats] == [0, 7]
    assert not site.server._is_sending


def test_what_edges_say_is_handed_on(make):
    site = make()
    one = site.join('h1').seat
    site.take()

    def hear(event):
        site.server.heard(one, event, b'payload')

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
    refusal = messages.Nack(4, 'no\nNo line of its own')
    site.server.heard(one, refusal, b'payload')
    assert site.counted('virtco_policies_refused_total') == 1
    assert r"h1 refuses policy 4: 'no\nNo line" in caplog.text
    assert site.take() == [('said', 'h1', refusal, b'payload')]


def test_one_whose_report_holds_is_noted(make):
    site = make()
    site.server.rests(sites.Seat('h1'))
    assert site.server._heard == {'h1'}
    assert site.server.has_rested('h1') and not site.server.has_rested('h2')


def test_one_host_is_told_if_it_is_here(make):
    site = make()
    one = site.join('h1').seat
    one.take()
    for host in ('gone', 'h1'):
        site.server.pass_on(host, made.frame('probe', order=host))
    assert one.take() == [{'type': 'probe', 'order': 'h1'}]


# Peers.


def test_peers_come_and_go(make, caplog):
    caplog.set_level('INFO')
    site = make()
    first = site.join_peer('p1')
    second = site.join_peer('p2')
    assert first.take() == [{
        'type': 'welcome', 'epoch': 9, 'alive_s': 0.5, 'heartbeat_s': 0.0,
        'spread_s': 0.0, 'most_bytes': 0}]
    assert site.take() == [('peers', {'p1'}), ('peers', {'p1', 'p2'})]
    site.server.closed(first)
    site.server.closed(first)
    assert site.take() == [('peers', {'p2'})]
    assert caplog.messages == ['Peer p1 joined.', 'Peer p2 joined.',
                               'Peer p1 left.']
    # One that came back meanwhile is still here, and once.
    again = site.join_peer('p2')
    assert second.refused == [('another connection of this process',)]
    assert again.refused == []
    site.take()
    site.server.closed(second)
    assert site.take() == []
    site.server.closed(again)
    assert site.take() == [('peers', set())]


def test_a_peer_is_answered_if_it_is_here(make):
    site = make()
    one = site.join_peer('p1')
    one.take()
    for name in ('p2', 'p1'):
        site.server.answer(name, messages.Asked(
            name, msgspec.Raw(b'null')))
        assert one.take() == []  # Another thread may have asked for it.
        site.turn()
    assert one.take() == [{'type': 'asked', 'host': 'p1', 'policy': None}]


def test_other_threads_tell_of_policies_and_trains(make):
    site = make(sites.Policies(h1=5))
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
