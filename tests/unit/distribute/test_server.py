# SPDX-License-Identifier: Apache-2.0

"""Edge modules and peers over loopback, with policies of the test."""

import asyncio
import contextlib
import dataclasses
import itertools
import socket
import threading
import time
import types

import msgspec
from msgspec import structs
import pytest

from tests import patience
from tests.unit import made
from tests.unit import stored
from virtco import metrics
from virtco.distribute import edge_session as session
from virtco.distribute import server
from virtco.distribute import tickets
from virtco.wire import edge_policy
from virtco.wire import frames

LARGE = edge_policy.EdgePolicy(
    'h1', 1, 60.0, 1e9, 1e9, 1e7, flows=tuple(
        edge_policy.FlowEntry('c' * 36, 'v' * 36, '10.0.0.1', '10.0.0.2', 2,
                              port) for port in range(1, 20_001)))


class Site:
    """A stream server, and what it asks and tells."""

    def __init__(self, **options):
        conf = stored.conf(distributor={'port': 0} | options)
        self.policy = LARGE
        self.said = []
        self.told = []
        self.heard = set()
        self.leader, self.peer_key = None, 'key'
        self.counts = metrics.Metrics()
        self.server = server.Server(conf, server.Doors(
            epoch=lambda: 4, is_led=lambda: True,
            elsewhere=lambda: self.leader, peer_key=lambda: self.peer_key,
            policy=self._policy,
            n_hosts=lambda: 5000,
            said=lambda host, event, payload: self.said.append((host, event)),
            heard=self.heard.update,
            told=lambda *args: self.told.append(args),
            trains=lambda hosts: {host: {'probe_id': host}
                                  for host in hosts}), self.counts)

    def _policy(self, host, known):
        generation = self.policy.generation
        return None if host != 'h1' or generation == known else (
            generation, made.frame('policy', epoch=4, generation=generation,
                                    policy=self.policy))

    def publish(self, generation):
        self.policy = structs.replace(LARGE, generation=generation)
        self.server.published(['h1'])

    def counted(self, name):
        return self.counts.registry.get_sample_value(name)


@pytest.fixture
def start():
    started = []

    def make(**options):
        started.append(Site(**options))
        started[-1].server.start()
        return started[-1]

    yield make
    for one in started:
        one.server.stop()


def test_files_may_be_open_for_as_many_as_may_connect(start, monkeypatch):
    told = []
    monkeypatch.setattr(server, '_raise_file_limit', told.append)
    start()
    assert told == [server.MAX_CONNECTIONS]


def dial(site, received_bytes=None):
    sock = socket.socket()
    if received_bytes:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, received_bytes)
    sock.settimeout(60)
    sock.connect(('127.0.0.1', site.server.port))
    return sock


def connect(site, host='h1', generation=0, received_bytes=None):
    sock = dial(site, received_bytes)
    sock.sendall(made.frame('hello', version=frames.VERSION, host=host,
                             generation=generation))
    return sock


def payloads(sock):
    reader = frames.Reader(1 << 28)
    while data := sock.recv(1 << 20):
        yield from reader.feed(data)


def messages(sock):
    return map(msgspec.json.decode, payloads(sock))


def next_of(found, kind):
    return next(message for message in found if message['type'] == kind)


def test_it_sends_what_the_edge_does_not_have(start):
    site = start()
    with connect(site, generation=0) as sock:
        found = messages(sock)
        assert next(found) == {
            'type': 'welcome', 'epoch': 4, 'alive_s': 2.5,
            'heartbeat_s': 30.0, 'spread_s': 5.0,
            'most_bytes': frames.MOST_BYTES}
        message = next_of(found, 'policy')
        assert message['epoch'] == 4
        assert edge_policy.EdgePolicy.from_dict(message['policy']) == LARGE
    with connect(site, generation=1) as sock:
        found = messages(sock)
        next_of(found, 'welcome')
        site.publish(2)
        assert next_of(found, 'policy')['generation'] == 2


@pytest.mark.parametrize('busy_s', [0.0, 0.2, 2.0, 3600.0])
def test_a_busy_loop_says_no_later_that_it_is_alive(busy_s, monkeypatch):
    """Many reports keep it busy after a takeover, and who hears nothing for
    two intervals goes away, comes back and reports all again.
    """
    site, now_s, heard_s, waits = Site(), [100.0], {}, [0.0] * 100

    async def sleep(wait_s):
        if not waits:
            raise asyncio.CancelledError
        waits.pop()
        now_s[0] += wait_s + busy_s

    def write(host):
        heard_s.setdefault(host, [100.0]).append(now_s[0])

    monkeypatch.setattr(server.asyncio, 'sleep', sleep)
    site.server.clock = lambda: now_s[0]
    site.server._open = {number: types.SimpleNamespace(
        peer=None, write=lambda _frame, number=number: write(number))
        for number in range(20)}
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(site.server._say_alive())
    site.server._open = {}
    site.server._listener.close()
    every_s = site.server.alive_s
    for times_s in heard_s.values():
        gaps_s = [late - soon for soon, late
                  in itertools.pairwise(times_s)]
        assert max(gaps_s) <= every_s * 1.1 + busy_s
        # Nor more often.
        assert len(gaps_s) <= (now_s[0] - 100) / every_s + 1
    assert len(heard_s) == 20


def test_long_reports_of_many_come_by_turns(start):
    """After a takeover all hosts report at once; others are told all the
    while that the server is alive.
    """
    site, may_begin = start(), threading.Event()

    def said(_host, _event, _payload):
        may_begin.wait(60)
        time.sleep(0.01)
        site.said.append(time.monotonic())

    site.server.doors = dataclasses.replace(site.server.doors, said=said)
    site.server._lease_s = 0.2
    ack = made.frame('ack', generation=1, epoch=4)
    with contextlib.ExitStack() as stack:
        heard = messages(stack.enter_context(connect(site, 'idle')))
        next_of(heard, 'welcome')
        busy = [stack.enter_context(connect(site, f'busy{number}'))
                for number in range(20)]
        for sock in busy:
            next_of(messages(sock), 'welcome')
        for sock in busy:
            sock.sendall(10 * ack)
        alive_s = [time.monotonic()]
        may_begin.set()
        while len(site.said) < 200:
            next_of(heard, 'alive')
            alive_s.append(time.monotonic())
    # They take 2 s in all.
    assert max(late - soon for soon, late in
               itertools.pairwise(alive_s)) < 1


def test_a_stranger_has_nothing_long_decoded(start):
    """A frame of 256 KiB takes 4 ms, in which nobody else is served."""
    site = start()
    with dial(site) as sock:
        sock.sendall((17_000).to_bytes(4, 'big'))
        (told,) = messages(sock)
        assert told['type'] == 'refused'
        assert 'at most 16384 bytes' in told['why']
    with connect(site) as sock:
        sock.sendall(frames.frame(
            b'{"type":"heartbeat"}'.ljust(frames.MOST_BYTES)))
        next_of(messages(sock), 'resend')


def test_who_does_not_read_gets_the_newest_only(start):
    site = start()
    with connect(site, received_bytes=4096) as sock:
        patience.wait_for(lambda: site.counted('virtco_policies_sent_total'),
                          'the first policy')
        for generation in range(2, 30):
            site.publish(generation)
        seen = []
        for message in messages(sock):
            if message['type'] == 'policy':
                seen.append(message['generation'])
                if seen[-1] == 29:
                    break
        assert seen == sorted(set(seen))
        # What was begun is finished, and what came meanwhile is left out.
        assert len(seen) < 10


def test_reports_are_handed_on_and_trains_handed_out(start):
    site = start()
    report = made.report(applied_generation=3)
    with connect(site, 'h2') as sock:
        sock.sendall(made.frame('report', report=report))
        patience.wait_for(lambda: site.said, 'the report')
        sock.sendall(made.frame('delta', set={'uplink_sent_bytes': 7}))
        patience.wait_for(lambda: len(site.said) > 1, 'the delta')
        sock.sendall(made.frame('heartbeat'))
        patience.wait_for(lambda: site.heard == {'h2'}, 'the heartbeat')
        sock.sendall(made.frame('delta', rows={'coflows': {
            'gone': [['nothing']]}}))
        found = messages(sock)
        next_of(found, 'resend')
        assert next_of(found, 'probe')['order'] == {'probe_id': 'h2'}
    assert site.said == [
        ('h2', session.Report(report, True)),
        ('h2', session.Report(made.replaced(report, uplink_sent_bytes=7),
                              True))]


def test_it_says_that_it_is_there(start, monkeypatch):
    monkeypatch.setattr(server, 'ALIVE_PER_LEASE', 1000)
    with connect(start(), 'h2') as sock:
        assert next_of(messages(sock), 'alive') == {
            'type': 'alive', 'epoch': 4, 'alive_s': 0.005, 'n_hosts': 0}


def test_who_is_silent_is_let_go(start):
    site = start(heartbeat_s=0.2)
    with connect(site, 'h2') as sock:
        assert 'silent' in next_of(messages(sock), 'refused')['why']
    patience.wait_for(lambda: site.counted('virtco_edge_connections') == 0,
                      'the end')


def join(sock, name):
    sock.sendall(made.frame(
        'peer', version=frames.VERSION, name=name, epoch=4,
        ticket=tickets.of_peer('key', name)))


def test_a_relay_speaks_for_many(start, monkeypatch):
    # This one says nothing for as long as a busy machine takes.
    monkeypatch.setattr(server, 'PEERS_SILENT_S', 600.0)
    site = start()
    with dial(site) as sock:
        join(sock, 'p1')
        for host in ('h1', 'h2'):
            sock.sendall(frames.enveloped(host, made.frame(
                'hello', version=frames.VERSION, host=host)[4:]))
        sock.sendall(made.frame('here', has_database=True))
        found = payloads(sock)
        assert msgspec.json.decode(next(found))['type'] == 'welcome'
        host, payload = frames.opened(next(found))
        assert host == 'h1'
        assert msgspec.json.decode(payload)['policy']['generation'] == 1
        alive = next(payload for payload in found
                     if not frames.is_enveloped(payload))
        assert msgspec.json.decode(alive) == {
            'type': 'alive', 'epoch': 4, 'alive_s': 0.5, 'n_hosts': 5000}
        patience.wait_for(lambda: site.told, 'a peer')
        assert site.counted('virtco_edge_connections') == 2
        # Another process leads from here on.
        site.leader = 'a:1'
        *_, last = found
        assert msgspec.json.decode(last) == {
            'type': 'refused', 'leader': 'a:1',
            'why': 'another process leads'}
    patience.wait_for(lambda: site.counted('virtco_edge_connections') == 0,
                      'the end')


def test_a_leader_that_may_be_deposed_goes_on_with_its_peers(
        start, monkeypatch):
    """A peer stays, or joins without a welcome, and tells whether the
    database is there; hosts are told again once all peers said it is not.
    """
    monkeypatch.setattr(server, 'PEERS_ALIVE_S', 0.01)
    monkeypatch.setattr(server, 'PEERS_SILENT_S', 600.0)
    site = start()
    with (dial(site) as first, dial(site) as second,
          connect(site, 'h2') as edge):
        join(first, 'p1')
        assert next_of(messages(first), 'welcome')['epoch'] == 4
        site.leader = ''
        assert 'not known' in next_of(messages(edge), 'refused')['why']
        join(second, 'p2')
        for sock in (first, second):
            sock.sendall(made.frame('here', has_database=False))
        patience.wait_for(lambda: {name for name, _ in site.told} == {
            'p1', 'p2'}, 'both peers')
        site.leader = None
        assert next(messages(second))['type'] == 'welcome'
        assert next_of(messages(first), 'alive')['epoch'] == 4


@pytest.mark.parametrize('is_fast', [True, False])
def test_a_faster_loop_is_taken_where_there_is_one(monkeypatch, is_fast):
    made = []

    def new_event_loop():
        made.append(asyncio.new_event_loop())
        return made[-1]

    monkeypatch.setattr(server, 'uvloop', types.SimpleNamespace(
        new_event_loop=new_event_loop) if is_fast else None)
    site = Site()
    site.server.start()
    site.server.stop()
    assert made == [site.server.loop] * is_fast


def test_what_fails_beside_it_begins_again(monkeypatch, caplog):
    monkeypatch.setattr(server, 'FAILED_S', 0.01)
    asked = []

    def trains(hosts):
        asked.append(sorted(hosts))
        raise KeyError('h1')

    monkeypatch.setattr(server, 'TURN_S', 0.01)
    site = Site()
    site.server.doors = dataclasses.replace(site.server.doors, trains=trains)
    site.server.start()
    try:
        with connect(site, 'h1') as sock:
            next_of(messages(sock), 'welcome')
            patience.wait_for(lambda: len(asked) > 2, 'it to go on')
    finally:
        site.server.stop()
    assert not site.server.is_alive()
    assert 'A part of the stream server failed.' in caplog.text


def test_at_its_end_all_are_let_go_and_what_runs_beside_it_ends():
    site, ended = Site(), []

    async def beside():
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    site.server.beside.append(beside)
    site.server.start()
    # It does not keep the process from ending.
    assert site.server.daemon
    with connect(site, 'h2') as sock:
        found = messages(sock)
        next_of(found, 'welcome')
        assert site.server.is_alive()
        site.server.stop()
        assert not site.server.is_alive() and ended == [True]
        assert site.server.loop.is_closed()
        assert site.server.seats() == {}
        assert site.counted('virtco_edge_connections') == 0
        assert list(found) == []
    with pytest.raises(OSError):
        dial(site).close()
