# SPDX-License-Identifier: Apache-2.0

"""What is served on which port, and while the API is still being loaded."""

import contextlib
import functools
import io
import json
import socket
import types

from oslo_config import cfg
import pytest
import waitress
from waitress import adjustments
from waitress import wasyncore

from tests import patience
from virtco.api import front
from virtco.api import listeners
from virtco.conf import opts


def make(service=None, monitoring=None, **hosts):
    conf = cfg.ConfigOpts()
    opts.register_opts(conf)
    conf([])
    conf.set_override('host', '10.0.0.1', 'api')
    conf.set_override('port', 80, 'api')
    conf.set_override('service_port', service, 'api')
    conf.set_override('port', monitoring, 'monitoring')
    conf.set_override('host', '10.0.0.3', 'monitoring')
    for name, value in hosts.items():
        conf.set_override(name, value, 'api')
    return conf


def test_limits_of_connections():
    assert (listeners.MAX_CONNECTIONS, listeners.MAX_BODY_BYTES,
            listeners.SILENCE_S) == (4096, 4 << 20, 60)


@pytest.mark.parametrize('options, found', [
    ({}, [('10.0.0.1', 80)]),
    ({'service': 81}, [('10.0.0.1', 80), ('10.0.0.1', 81)]),
    ({'service': 81, 'service_host': '10.0.0.2'},
     [('10.0.0.1', 80), ('10.0.0.2', 81)]),
    ({'monitoring': 82}, [('10.0.0.1', 80), ('10.0.0.3', 82)]),
    ({'service': 81, 'monitoring': 82},
     [('10.0.0.1', 80), ('10.0.0.1', 81), ('10.0.0.3', 82)])])
def test_addresses(options, found):
    assert list(listeners.addresses(make(**options)).values()) == found


def ask(app, port, path, method='GET', body=b''):
    """Status and document."""
    started = []
    found = b''.join(app(
        {'SERVER_PORT': str(port), 'PATH_INFO': path,
         'REQUEST_METHOD': method, 'wsgi.input': io.BytesIO(body)},
        lambda status, headers: started.append((status, dict(headers)))))
    (status, headers), = started
    assert headers.get('Content-Length', str(len(found))) == str(len(found))
    return int(status[:3]), json.loads(found)


def application(environ, start_response):
    start_response('503 Bad' if environ['PATH_INFO'] == '/health'
                   else '200 OK', [])
    return [b'{"whole": 1}']


PUBLIC = ['/v1/coflows', '/v1/hosts/h1', '/v1/hosts/h1/policy/x']
SERVICE = ['/v1/hosts/h1/policy', '/v1/distributor', '/v1/notifications']
BOTH = ['/', '/v1']


@pytest.mark.parametrize('auth', ['noauth', 'keystone'])
@pytest.mark.parametrize('service, monitoring', [
    (None, None), (81, None), (None, 82), (81, 82)])
def test_each_path_has_its_port(service, monitoring, auth):
    bound = {purpose: port for purpose, port in (
        ('api', 80), ('service', service), ('monitoring', monitoring)) if port}
    ports = list(bound.values())
    found = listeners.Listeners(
        make(service, monitoring, auth_strategy=auth), application, bound)

    def served(path, method='GET'):
        return {port for port in ports
                if ask(found, port, path, method)[0] != 404}

    own = {service or 80}
    assert all(served(path) == {80} for path in PUBLIC)
    assert all(served(path) == own for path in SERVICE)
    assert all(served(path) == {80} | own for path in BOTH)
    assert served('/metrics') == ({monitoring} if monitoring
                                  else {80} if auth == 'noauth' else set())
    assert served('/health') == set(ports)
    for method, places in (('GET', {80}), ('POST', {80}), ('PUT', own),
                           ('DELETE', own)):
        assert served('/v1/placements/x', method) == places
    assert served('/v1/placements/x/explanation', 'PUT') == {80}
    # In full on the port for monitoring alone.
    for port in ports:
        assert ask(found, port, '/health') == (503, (
            {'status': 'failing'} if monitoring not in (None, port)
            else {'whole': 1}))


def test_a_balancer_hears_of_what_is_good():
    found = listeners.Listeners(make(monitoring=82), lambda environ, start: (
        start('200 OK', []), [b'{"whole": 1}'])[1],
        {'api': 80, 'monitoring': 82})
    assert ask(found, 80, '/health') == (200, {'status': 'ok'})


def test_so_many_connections_of_one_address():
    channels, server, kept = {7: object()}, types.SimpleNamespace(
        active_channels={}), []

    def is_open(address):
        here, there = socket.socketpair()
        kept.append(there)
        listeners.Channel(2, listeners.count_pieces(), server, here,
                          (address, 1),
                          adjustments.Adjustments(), channels)
        there.setblocking(False)
        try:
            return there.recv(1) != b''
        except BlockingIOError:
            return True

    assert list(map(is_open, 'aabab')) == [True, True, True, False, True]
    assert [one.addr[0] for one in server.active_channels.values()] == [
        'a', 'a', 'b', 'b']
    # One that ends makes room.
    next(iter(server.active_channels.values())).handle_close()
    assert is_open('a') and not is_open('a')
    for one in [*server.active_channels.values(), *kept]:
        one.close()


def test_requests_of_many_small_pieces_wait(monkeypatch):
    now_s, kept = [100.0], []
    monkeypatch.setattr(listeners.time, 'monotonic', lambda: now_s[0])
    server = types.SimpleNamespace(active_channels={}, add_task=kept.append)
    pieces = listeners.count_pieces()

    def connect(address):
        here, there = socket.socketpair()
        kept.append(there)
        return listeners.Channel(10, pieces, server, here, (address, 1),
                                 adjustments.Adjustments(), {})

    flood, *others = map(connect, 'aab')
    flood.received(b'POST / HTTP/1.1\r\nContent-Length: 4000000\r\n\r\n')
    n_read = 0
    while flood.readable():
        flood.received(b'x')
        n_read += 1
    assert n_read == listeners.PIECES_BURST + listeners.FEW_PIECES + 1
    # Others of its address have few pieces, or long ones.
    for other in others:
        other.received(b'POST / HTTP/1.1\r\nContent-Length: 2600000\r\n\r\n')
        for _ in range(2000):
            assert other.readable()
            other.received(b'x' * listeners.SMALL_BYTES)
        for _ in range(listeners.FEW_PIECES):
            other.received(b'x')
            assert other.readable()
        other.received(b'x')
    assert [one.readable() for one in others] == [False, True]
    now_s[0] += 1.0
    n_read = 0
    while flood.readable():
        flood.received(b'x')
        n_read += 1
    assert n_read == listeners.PIECES_PER_S - 1
    # The next request begins anew.
    flood.received(b'x' * 4_000_000)
    assert flood.requests and flood._n_pieces == 0
    for one in [flood, *others, kept[0], kept[1], kept[2]]:
        one.close()


@pytest.fixture
def early():
    start = types.SimpleNamespace(
        document=lambda: {'status': 'starting'}, reason='loading',
        why=lambda: start.reason)
    found = front.Front(start)
    found.start = start
    return found


def test_nova_is_answered_neutrally_while_it_starts(early):
    body = json.dumps({'hosts': [{'host': 'h1'}, {'host': 'h2'}]}).encode()
    status, answer = ask(early, 80, '/v1/placements/u1', 'PUT', body)
    assert status == 200 and 'h2' in json.dumps(answer)
    assert 'loading' in json.dumps(answer)


@pytest.mark.parametrize('path, method, body', [
    ('/v1/placements/u1', 'GET', b'{"hosts": []}'),
    ('/v1/placements/u1/x', 'PUT', b'{"hosts": []}'),
    ('/v1/coflows', 'PUT', b'{"hosts": []}'),
    ('/v1/placements/u1', 'PUT', b'{'),
    ('/v1/placements/u1', 'PUT', b'[' * 100_000),
    ('/v1/placements/u1', 'PUT', b'[]'),
    ('/v1/placements/u1', 'PUT', b'{"hosts": [{}]}')])
def test_all_else_is_told_to_come_back(early, path, method, body):
    assert ask(early, 80, path, method, body) == (503, {'error': {
        'code': 'virtco.starting', 'title': 'Starting', 'detail': 'loading'}})
    early.start.reason = None
    assert ask(early, 80, path, method, body)[1]['error']['detail'] == (
        'the controller is starting')


def test_it_hands_over(early):
    assert ask(early, 80, '/health') == (503, {'status': 'starting'})
    early.hand_over(application)
    assert ask(early, 80, '/v1/coflows') == (200, {'whole': 1})


@pytest.mark.parametrize('n_requests, silence_s', [(1, 0.1), (4, 60)])
def test_who_reads_no_answers_is_let_go(n_requests, silence_s, monkeypatch):
    """It keeps neither its connection nor a thread, though TCP would wait for
    ever; who sends more requests than it reads is not waited for.
    """
    monkeypatch.setattr(listeners, 'SILENCE_S', silence_s)

    def long(_environ, start_response):
        start_response('200 OK', [])
        return [bytes(20 << 20)]

    channels = {}
    server = waitress.create_server(
        long, channels, listen='127.0.0.1:0', threads=1,
        asyncore_use_poll=True)
    server.channel_class = functools.partial(
        listeners.Channel, 10, listeners.count_pieces())
    with socket.create_connection(server.socket.getsockname()) as client:
        client.sendall(b'GET / HTTP/1.1\r\nHost: x\r\n\r\n' * n_requests)

        def turn():
            wasyncore.loop(0.01, True, channels, 1)
            return server.active_channels

        patience.wait_for(turn, 'the connection')
        patience.wait_for(lambda: not turn(), 'its end')
        patience.wait_for(
            lambda: not server.task_dispatcher.active_count, 'a thread')
    server.close()
    server.task_dispatcher.shutdown()


@pytest.mark.parametrize('status, n_sent, n_asked', [
    ('200 OK', 3, 3), ('429 Too Many Requests', 3, 1),
    ('200 OK', listeners.MOST_WAITING + 2, listeners.MOST_WAITING)])
def test_who_asks_too_often_is_not_read_on(status, n_sent, n_asked):
    """Else each request that was sent after it would be refused, too."""
    asked = []

    def count(environ, start_response):
        asked.append(environ['PATH_INFO'])
        start_response(status, [('Content-Length', '2')])
        return [b'{}']

    channels = {}
    server = waitress.create_server(count, channels, listen='127.0.0.1:0',
                                    threads=1, asyncore_use_poll=True)
    server.channel_class = functools.partial(
        listeners.Channel, 10, listeners.count_pieces())
    with socket.create_connection(server.socket.getsockname()) as client:
        one = b'GET / HTTP/1.1\r\nHost: x\r\n'
        client.sendall((one + b'\r\n') * (n_sent - 1)
                       + one + b'Connection: close\r\n\r\n')
        client.setblocking(False)
        answers = b''

        def is_over():
            nonlocal answers
            wasyncore.loop(0.01, True, channels, 1)
            with contextlib.suppress(BlockingIOError):
                data = client.recv(1 << 16)
                answers += data
                return not data

        patience.wait_for(is_over, 'the end of the connection')
    server.close()
    server.task_dispatcher.shutdown()
    assert len(asked) == answers.count(status.encode()) == n_asked
    assert answers.count(b'400 Bad Request') == (n_sent > 3)
    assert answers.count(b'Connection: close') == 1
