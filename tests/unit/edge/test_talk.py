# SPDX-License-Identifier: Apache-2.0

"""Where distributors are, and what is said to one."""

import os
import socket
import ssl
import threading
import types

import msgspec
import pytest

from edge_module import talk
from tests import openssl
from tests import patience
from tests.unit import made
from virtco.wire import frames
from virtco.wire import messages

CONF = types.SimpleNamespace(edge=types.SimpleNamespace(
    controller_url='http://controller:8080/v1', host='h1'))


ALIVE = made.frame('alive', epoch=4, alive_s=2.0)
HERE = talk.Address('d1', 1, True, 'mine')


@pytest.fixture
def ends():
    """A talk, the distributor's end, and one that wakes."""
    here, there = socket.socketpair()
    wake, waker = socket.socketpair()
    yield talk.Talk(here), there, wake, waker
    for one in (here, there, wake, waker):
        one.close()


def said(there):
    (payload,) = frames.Reader().feed(there.recv(1 << 16))
    return msgspec.json.decode(payload)


def test_a_greeting(ends):
    one, there, _wake, _waker = ends
    there.sendall(made.frame('welcome', epoch=4, alive_s=2.0)
                  + made.frame('probe', order=made.order()) + ALIVE)
    assert one.greet('h1', 3, 7, HERE) == messages.Welcome(4, 2.0)
    assert said(there) == {
        'type': 'hello', 'version': frames.VERSION, 'host': 'h1',
        'epoch': 3, 'generation': 7, 'ticket': 'mine'}
    # What came with the welcome is read next, and once.
    assert one.read(None, 0) == [messages.Probe(made.order()),
                                 messages.Alive(4, 2.0)]
    assert one.read(None, 0) == []


@pytest.mark.parametrize('says, why', [
    (made.frame('refused', why='too many'), 'too many'),
    (made.frame('resend'), 'does not welcome')])
def test_one_that_does_not_welcome(ends, says, why):
    one, there, _wake, _waker = ends
    there.sendall(says)
    with pytest.raises(ConnectionRefusedError, match=why):
        one.greet('h1', 3, 7, HERE)
    assert said(there)['version'] == frames.VERSION


@pytest.mark.parametrize(('leader', 'host', 'port'), [
    ('d2:7', 'd2', 7), ('[fd00::1]:8', 'fd00::1', 8), ('d2', 'd2', 0)])
def test_another_one_leads(ends, leader, host, port):
    """There the ticket is good as well."""
    one, there, _wake, _waker = ends
    there.sendall(made.frame('refused', why='moved', leader=leader))
    with pytest.raises(talk.Moved, match=f'{host}, port {port}, leads'
                       ) as moved:
        one.greet('h1', 3, 7, HERE)
    assert moved.value.address == talk.Address(host, port, True, 'mine')
    assert isinstance(moved.value, OSError)


def test_no_address_of_the_one_that_leads(ends):
    one, there, _wake, _waker = ends
    for leader, why in (('d2:x', "'d2:x' leads"), ('', 'nobody leads')):
        there.sendall(made.frame('refused', why='nobody leads',
                                  leader=leader))
        with pytest.raises(ConnectionRefusedError, match=why):
            one.greet('h1', 3, 7, HERE)


def test_one_that_closes_the_connection(ends):
    """Such as for a certificate that has expired, which only its log says."""
    one, there, _wake, _waker = ends
    there.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionResetError, match='its log tells why'):
        one.greet('h1', 3, 7, HERE)


def test_one_that_says_nothing(ends, monkeypatch):
    one, _there, _wake, _waker = ends
    monkeypatch.setattr(talk, 'TIMEOUT_S', 0.001)
    with pytest.raises(TimeoutError, match='does not answer'):
        one.greet('h1', 3, 7, HERE)


def test_reading_ends_by_a_wake_or_the_end(ends):
    one, there, wake, waker = ends
    waker.send(b'x')
    assert one.read(wake, 60) == []
    # The wake was taken: only what arrives ends the next.
    wake.setblocking(False)
    with pytest.raises(BlockingIOError):
        wake.recv(1)
    there.sendall(ALIVE[:5])
    assert one.read(wake, 60) == []
    there.sendall(ALIVE[5:])
    waker.send(b'x')
    assert one.read(wake, 60) == [messages.Alive(4, 2.0)]
    assert one.read(wake, 0) == []
    there.close()
    with pytest.raises(ConnectionResetError):
        one.read(wake, 60)


def test_part_of_a_tls_record_is_not_waited_for(tmp_path, ends):
    """It would keep an edge module from leaving one that is silent."""
    _one, there, wake, waker = ends
    here = _one._sock
    authority = openssl.Authority(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*authority.sign('d1'))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    far = server.wrap_bio(incoming, outgoing, server_side=True)
    client = ssl.create_default_context(cafile=str(authority.path))

    def shake_hands():
        while True:
            try:
                far.do_handshake()
                return
            except ssl.SSLWantReadError:
                there.sendall(outgoing.read())
                incoming.write(there.recv(1 << 16))
            finally:
                there.sendall(outgoing.read())

    thread = threading.Thread(target=shake_hands)
    thread.start()
    here.settimeout(20)
    with client.wrap_socket(here, server_hostname='d1') as sock:
        thread.join(20)
        one = talk.Talk(sock)
        far.write(ALIVE)
        record = outgoing.read()
        there.sendall(record[:-1])
        watch = patience.Stopwatch()
        while watch.seconds() < 0.3:
            assert one.read(wake, 0.1) == []
        assert watch.seconds() < 5
        there.sendall(record[-1:])
        assert one.read(wake, 60) == [messages.Alive(4, 2.0)]


def test_a_common_name_is_no_name_of_the_distributor(tmp_path):
    authority = openssl.Authority(tmp_path)
    conf = {'controller_auth': types.SimpleNamespace(
        cafile=str(authority.path), insecure=False, certfile=None)}
    for alternatives, found in (('', 'Hostname mismatch'),
                                ('DNS:localhost', None)):
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(*authority.sign('localhost', alternatives))
        assert openssl.refusal(talk._tls(conf), server, 'localhost') == found


def test_a_certificate_of_its_own_is_shown(tmp_path):
    authority = openssl.Authority(tmp_path)
    certificate, key = authority.sign('h1')
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*authority.sign('d1'))
    server.load_verify_locations(authority.path)
    server.verify_mode = ssl.CERT_REQUIRED
    client = talk._tls({'controller_auth': types.SimpleNamespace(
        cafile=str(authority.path), insecure=False,
        certfile=str(certificate), keyfile=str(key))})
    near, far = socket.socketpair()
    shown = []

    def serve():
        with server.wrap_socket(far, server_side=True) as sock:
            shown.append(sock.getpeercert()['subject'])

    thread = threading.Thread(target=serve)
    thread.start()
    with client.wrap_socket(near, server_hostname='d1'):
        thread.join(20)
    assert shown == [((('commonName', 'h1'),),)]


def test_a_connection_waits_for_no_full_packet():
    with socket.create_server(('127.0.0.1', 0)) as server:
        port = server.getsockname()[1]
        with talk.connect(CONF, talk.Address('127.0.0.1', port, False,
                                             was_silent=True)) as sock:
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert 0 < sock.gettimeout() < talk.AGAIN_S
            assert not os.get_inheritable(sock.fileno())


def test_a_connection_that_is_not_trusted_is_closed(monkeypatch):
    def refuse(sock, server_hostname):
        assert server_hostname == '127.0.0.1'
        seen.append(sock)
        raise ssl.SSLError

    seen = []
    monkeypatch.setattr(talk, '_tls', lambda conf: types.SimpleNamespace(
        wrap_socket=refuse))
    with socket.create_server(('127.0.0.1', 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ssl.SSLError):
            talk.connect(CONF, talk.Address('127.0.0.1', port, True))
    assert seen[0].fileno() == -1


@pytest.mark.parametrize('insecure', [False, True])
def test_whom_an_edge_module_trusts(insecure):
    context = talk._tls({'controller_auth': types.SimpleNamespace(
        cafile=None, insecure=insecure, certfile=None, keyfile=None)})
    assert context.check_hostname == (not insecure)
    assert context.verify_mode == (
        ssl.CERT_NONE if insecure else ssl.CERT_REQUIRED)
    # A name in the subject alone names nobody.
    assert not context.hostname_checks_common_name
