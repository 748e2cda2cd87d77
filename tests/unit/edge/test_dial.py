# SPDX-License-Identifier: Apache-2.0

"""A dead address costs little, and a slow server no more than its time."""

import contextlib
import json
import socket
import ssl
import threading
import time

from oslo_config import cfg
import pytest

from edge_module import dial
from edge_module import edge_options as edge_conf
from edge_module import talk
from tests import openssl
from tests import patience
from virtco import exception
from virtco.wire import frames

ANSWER = json.dumps({'version': frames.VERSION, 'servers': [
    {'host': None, 'port': 7, 'tls': False}]}).encode()


@pytest.fixture
def dead():
    """Port of a server whose full queue drops what comes, as happens on the
    way to a host that is off.
    """
    with (socket.create_server(('127.0.0.1', 0), backlog=0) as found,
          socket.create_connection(found.getsockname())):
        yield found.getsockname()[1]


@pytest.fixture
def served():
    """Serve one connection on a thread; return the port."""
    servers, threads = [], []

    def serve(talk_to):
        def run():
            sock, _ = server.accept()
            with sock:
                talk_to(sock)

        server = socket.create_server(('127.0.0.1', 0))
        servers.append(server)
        threads.append(threading.Thread(target=run))
        threads[-1].start()
        return server.getsockname()[1]

    yield serve
    for server, thread in zip(servers, threads):
        server.shutdown(socket.SHUT_RDWR)
        thread.join(20)
        server.close()


def answer(sock):
    sock.recv(1 << 16)
    sock.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b' % (
        len(ANSWER), ANSWER))


def name(monkeypatch, *ports):
    """Give every name the addresses of these ports."""
    monkeypatch.setattr(socket, 'getaddrinfo', lambda *_args, **_named: [
        (socket.AF_INET, socket.SOCK_STREAM, 6, '', ('127.0.0.1', port))
        for port in ports])


def made(url, **auth):
    conf = cfg.ConfigOpts()
    edge_conf.register_opts(conf)
    conf([], project='virtco')
    conf.set_override('controller_url', url, 'edge')
    conf.set_override('host', 'h1', 'edge')
    for option, value in auth.items():
        conf.set_override(option, value, edge_conf.AUTH)
    return conf


@pytest.mark.parametrize('scheme', ['http', 'https'])
def test_a_question_by_a_name_with_a_dead_address(
        monkeypatch, tmp_path, dead, served, scheme):
    authority = openssl.Authority(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*authority.sign('controllers'))

    def behind_tls(sock):
        with server.wrap_socket(sock, server_side=True) as inner:
            answer(inner)

    name(monkeypatch, dead, served(
        answer if scheme == 'http' else behind_tls))
    edge = talk.EdgeClient(made(f'{scheme}://controllers:1',
                                cafile=str(authority.path)))
    watch = patience.Stopwatch()
    assert edge.find() == [talk.Address('controllers', 7, False)]
    assert dial.NEXT_S <= watch.seconds() < talk.TIMEOUT_S / 2


def test_a_stream_by_a_name_with_a_dead_address(monkeypatch, dead, served):
    name(monkeypatch, dead, served(lambda sock: sock.recv(1)))
    watch = patience.Stopwatch()
    talk.connect(made('http://x'), talk.Address('d', 1, False)).close()
    assert dial.NEXT_S <= watch.seconds() < talk.TIMEOUT_S / 2


def test_a_handshake_has_the_time_that_the_connection_left(
        monkeypatch, dead, served):
    def drip(sock):
        hello = iter(b'\x16\x03\x03\x40\x00' + bytes(1000))
        while not over.wait(0.05):
            sock.sendall(bytes([next(hello)]))

    over = threading.Event()
    monkeypatch.setattr(talk, 'TIMEOUT_S', 1.0)
    name(monkeypatch, dead, served(drip))
    watch = patience.Stopwatch()
    try:
        with pytest.raises(TimeoutError):
            talk.connect(made('http://x'), talk.Address('d', 1, True))
        assert watch.seconds() < 1.5
    finally:
        over.set()


@pytest.mark.parametrize('begin', [
    b'HTTP/1.1 200 OK\r\nX-Long: ',
    b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n'])
def test_an_answer_that_drips_has_an_end(monkeypatch, served, begin):
    def drip(sock):
        sock.recv(1 << 16)
        sock.sendall(begin)
        with contextlib.suppress(OSError):
            for _ in range(100):
                sock.sendall(b'x')
                time.sleep(0.05)

    monkeypatch.setattr(talk, 'TIMEOUT_S', 0.4)
    edge = talk.EdgeClient(made(f'http://127.0.0.1:{served(drip)}'))
    watch = patience.Stopwatch()
    with pytest.raises(exception.ControllerUnavailable):
        edge.find()
    assert watch.seconds() < 3


def test_an_answer_that_nobody_gives(monkeypatch, dead):
    name(monkeypatch, dead)
    monkeypatch.setattr(talk, 'TIMEOUT_S', 0.4)
    with pytest.raises(exception.ControllerUnavailable, match='timed out'):
        talk.EdgeClient(made('http://controllers:1')).find()
    with pytest.raises(TimeoutError):
        dial.dial('d', 1, 0.1)


def test_why_there_is_no_connection(monkeypatch, dead):
    with socket.create_server(('127.0.0.1', 0)) as server:
        closed = server.getsockname()[1]
    with pytest.raises(ConnectionRefusedError) as refused:
        dial.dial('127.0.0.1', closed, 5.0)
    assert exception.reason(refused.value) == 'connection refused'
    with pytest.raises(exception.ControllerUnavailable,
                       match='connection refused'):
        talk.EdgeClient(made(f'http://127.0.0.1:{closed}')).find()
    monkeypatch.setattr(socket, 'getaddrinfo', _unknown)
    with pytest.raises(socket.gaierror, match='not known'):
        dial.dial('controllers', 1, 5.0)


def _unknown(*_args, **_named):
    raise socket.gaierror(socket.EAI_NONAME, 'Name or service not known')
