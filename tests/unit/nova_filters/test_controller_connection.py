# SPDX-License-Identifier: Apache-2.0

"""What counts as an answer of the controller, on both sides of each bound."""

import contextlib
import http.server
import io
import socket
import ssl
import threading
import types

from keystoneauth1 import exceptions as ks_exceptions
from oslo_config import cfg
import pytest

from nova_filters import controller_connection as connection
from nova_filters import plugin_options as virtco_conf
from tests import openssl
from tests import patience
from tests.unit.nova_filters import scripted_controller


class Response:
    def __init__(self, status_code, content):
        self.status_code = status_code
        self.raw = types.SimpleNamespace(
            read=lambda size, decode_content: self._read(size,
                                                         decode_content))
        self._content = io.BytesIO(content)

    def _read(self, size, decode_content):
        assert decode_content
        return self._content.read(size)

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self._content.close()


class Adapter:
    """Raises what it is given first, then answers."""

    def __init__(self, answer, *errors):
        self._answer, self._errors, self.asked = answer, list(errors), []

    def request(self, path, method, **kwargs):
        # A call that hangs does not keep nova-scheduler from ending.
        assert threading.current_thread().daemon
        self.asked.append((method, path, kwargs))
        if self._errors:
            raise self._errors.pop(0)
        return self._answer


def made(url):
    conf = cfg.ConfigOpts()
    virtco_conf.register_opts(conf)
    conf([])
    conf.set_override('controller_url', url, 'virtco')
    return connection.Connection(conf)


def link(status, content, *errors):
    found = made('http://h:1/')
    assert found.url == 'http://h:1'
    found._adapter = Adapter(Response(status, content), *errors)
    return found


def test_what_is_sent():
    found = link(200, b'{}')
    assert found.send('PUT', '/x', {'a': 1}, 6.0) == b'{}'
    ((method, path, kwargs),) = found._adapter.asked
    assert (method, path) == ('PUT', '/x')
    # Bodies are large, and are read within a limit.
    assert kwargs == {'json': {'a': 1}, 'timeout': (2.0, 6.0),
                      'stream': True, 'log': False}


@pytest.mark.parametrize(('status', 'is_taken'), [
    (199, False), (200, True), (299, True), (300, False), (500, False)])
def test_a_status_of_success(status, is_taken):
    found = link(status, b'x')
    if is_taken:
        assert found.send('PUT', '/x', {}, 1.0) == b'x'
        return
    with pytest.raises(connection.Refused, match=f'HTTP {status}') as caught:
        found.send('PUT', '/x', {}, 1.0)
    assert caught.value.kwargs['status'] == status


def test_an_answer_has_an_end(monkeypatch):
    assert (connection.MAX_ANSWER_BYTES, connection.MAX_CALLS) == (
        8 * 1024 * 1024, 64)
    monkeypatch.setattr(connection, 'MAX_ANSWER_BYTES', 3)
    assert link(200, b'abc').send('PUT', '/x', {}, 1.0) == b'abc'
    with pytest.raises(connection.Refused, match='more than 3 bytes'):
        link(200, b'abcd').send('PUT', '/x', {}, 1.0)


def test_an_address_that_is_dead_leaves_time_for_the_next(monkeypatch):
    """Of a name with the addresses of two controllers."""
    with (scripted_controller.ScriptedController() as controller,
          socket.create_server(('127.0.0.1', 0), backlog=0) as dead,
          socket.create_connection(dead.getsockname())):
        # What does not fit into its queue is dropped, as on the way to a
        # host that is off.
        monkeypatch.setattr(socket, 'getaddrinfo', lambda *_args: [
            (socket.AF_INET, socket.SOCK_STREAM, 0, '', ('127.0.0.1', port))
            for port in (dead.getsockname()[1], controller.port)])
        found = made('http://controllers:1')
        assert found.send('PUT', '/v1/placements/u', {}, 6.0)


def test_a_system_without_threads(monkeypatch):
    """Nothing stays taken by calls that could not be made."""
    found = link(200, b'x')

    def start(_thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, 'start', start)
        for _ in range(connection.MAX_CALLS):
            with pytest.raises(connection.Unanswered, match='new thread'):
                found.send('PUT', '/x', {}, 0.01)
    assert found.send('PUT', '/x', {}, 9.0) == b'x'


def test_so_many_calls_at_a_time():
    found = link(200, b'x')
    for _ in range(connection.MAX_CALLS):
        assert found._calls.acquire(blocking=False)
    with pytest.raises(connection.Unanswered, match='are under way'):
        found.send('PUT', '/x', {}, 0.0)


@pytest.mark.parametrize('errors', [(), (RuntimeError('a defect'),)])
def test_a_place_of_a_call_is_given_back(errors):
    found = link(200, b'x', *errors)
    with contextlib.suppress(connection.Unanswered):
        found.send('PUT', '/x', {}, 1.0)
    patience.wait_for(lambda: found._calls._value == connection.MAX_CALLS,
                      'the end of the call')


def test_a_connection_that_was_closed_is_made_once_more():
    closed = ks_exceptions.ConnectFailure('closed')
    found = link(200, b'x', closed)
    assert found.send('PUT', '/x', {}, 1.0) == b'x'
    assert found._adapter.asked[0] == found._adapter.asked[1]
    with pytest.raises(connection.Unanswered, match='closed'):
        link(200, b'x', closed, closed).send('PUT', '/x', {}, 1.0)


@pytest.mark.parametrize(('content', 'told'), [
    (b'{"error": {"code": "c", "detail": "d"}}', 'c: d'),
    (b'{"error": {"code": "c", "detail": "%s"}}' % (b'd' * 296),
     'c: ' + 'd' * 296),
    (b'{"error": {"code": "c", "detail": "%s"}}' % (b'd' * 298),
     'c: ' + 'd' * 297),
    (b'{"error": {}}', repr(b'{"error": {}}')),
    (b'x' * 79, repr(b'x' * 79)), (b'x' * 81, repr(b'x' * 80))])
def test_an_error_is_told_in_few_words(content, told):
    assert connection._detail(content) == told


def test_the_options_are_those_of_the_documents():
    assert {opt.dest: opt.default for opt in virtco_conf.OPTS} == {
        'controller_url': 'http://127.0.0.1:8791', 'timeout_ms': 800,
        'request_budget_ms': 950, 'breaker_reset_s': 10.0,
        'on_bad_hint': 'ignore', 'read_metadata': True,
        'weight_multiplier': 100_000.0}
    assert {opt.dest: opt.type.min for opt in virtco_conf.OPTS
            if getattr(opt.type, 'min', None) is not None} == {
        'timeout_ms': 1, 'request_budget_ms': 1, 'breaker_reset_s': 0.0,
        'weight_multiplier': 0.0}


class Https(http.server.BaseHTTPRequestHandler):
    """Answers with the serial number of the certificate that it is shown."""

    def log_message(self, *args):
        """Stay quiet."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(
            self.connection.getpeercert()['serialNumber'].encode())


def test_certificates_are_read_for_each_connection(tmp_path):
    authority = openssl.Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority.path)
    context.load_cert_chain(*authority.sign('127.0.0.1'))
    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), Https) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        try:
            paths = authority.sign('nova')
            conf = cfg.ConfigOpts()
            virtco_conf.register_opts(conf)
            conf([])
            for name, value in (
                    ('controller_url',
                     f'https://127.0.0.1:{server.server_port}'),
                    ('cafile', str(authority.path)),
                    ('certfile', str(paths[0])), ('keyfile', str(paths[1]))):
                conf.set_override(name, value, 'virtco')
            found = connection.Connection(conf)
            shown = set()
            for _ in range(2):
                shown.add(found.send('GET', '/', None, 60))
                authority.sign('nova')  # into the same files
            assert len(shown) == 2
        finally:
            server.shutdown()
