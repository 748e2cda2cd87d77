# SPDX-License-Identifier: Apache-2.0

"""Where distributors are, and what goes wrong has a name."""

import http.server
import json
import threading

from keystoneauth1 import http_basic
from keystoneauth1 import loading
from keystoneauth1 import noauth
from oslo_config import cfg
import pytest

from edge_module import edge_options as edge_conf
from edge_module import talk
from virtco import exception
from virtco.wire import frames


class _Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        """Stay quiet."""

    def do_GET(self):
        code, body = self.server.answer
        self.server.seen.append(self.path)
        self.send_response(code)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def server_at(host=None, port=7, tls=False):
    return {'host': host, 'port': port, 'tls': tls}


def answer(**values):
    return json.dumps({'version': frames.VERSION,
                       'servers': [server_at()]} | values).encode()


@pytest.fixture
def server(monkeypatch):
    for name in ('http_proxy', 'HTTP_PROXY', 'all_proxy', 'ALL_PROXY'):
        monkeypatch.delenv(name, raising=False)
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), _Handler)
    server.daemon_threads = True
    server.seen, server.answer = [], (200, answer())
    thread = threading.Thread(target=server.serve_forever, args=(0.01,),
                              daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def _client(server, **auth):
    conf = cfg.ConfigOpts()
    edge_conf.register_opts(conf)
    conf([], project='virtco')
    conf.set_override('controller_url', 'http://127.0.0.1:'
                      f'{server.server_address[1]}/virtco/', 'edge')
    conf.set_override('host', 'h:1', 'edge')
    if auth:
        conf.register_opts(loading.get_auth_plugin_conf_options(
            auth['auth_type']), group=edge_conf.AUTH)
    for name, value in auth.items():
        conf.set_override(name, value, edge_conf.AUTH)
    return talk.EdgeClient(conf)


def test_it_shows_what_is_configured_and_else_nothing(server):
    alone = _client(server)
    assert isinstance(alone._adapter.session.auth, noauth.NoAuth)
    assert alone._adapter.session.auth.endpoint == alone.url
    # Who asks tries again by itself, each time after a longer pause.
    assert alone._adapter.connect_retries == 0
    known = _client(server, auth_type='http_basic', username='edge',
                    password='secret')
    assert isinstance(known._adapter.session.auth, http_basic.HTTPBasicAuth)


def test_it_asks_for_its_host(server):
    assert _client(server).find() == [talk.Address('127.0.0.1', 7, False)]
    assert server.seen == ['/virtco/v1/distributor?host=h%3A1']


@pytest.mark.parametrize('code, body, why', [
    (404, b'{}', 'it has no distributor'), (403, b'{}', '403'),
    (503, b'{}', '503'), (200, b'{"a": ', 'Expecting'),
    (200, b'[' * 100_000, 'deep'), (200, answer(servers=7), 'servers'),
    (200, answer(servers=[server_at(port=None)]), r'servers\[0\].port'),
    (200, answer(version=frames.VERSION + 1),
     f'speaks version {frames.VERSION + 1} of the protocol'),
    (200, answer(version=frames.VERSION - 1),
     f'speaks version {frames.VERSION - 1} of the protocol')])
def test_what_is_no_answer_ends_nothing(server, code, body, why):
    server.answer = code, body
    with pytest.raises(exception.ControllerUnavailable, match=why):
        _client(server).find()


@pytest.mark.parametrize(('values', 'found'), [
    ({}, [('127.0.0.1', 7, False)]),
    ({'servers': [server_at('b', 1, True), server_at('a', 2),
                  server_at('fd00::1', 3)]},
     [('b', 1, True), ('a', 2, False), ('fd00::1', 3, False)]),
    ({'ticket': 'mine', 'later': 1}, [('127.0.0.1', 7, False, 'mine')])])
def test_where_distributors_are(server, values, found):
    server.answer = 200, answer(**values)
    assert _client(server).find() == [talk.Address(*one) for one in found]


def test_nobody_there(server):
    edge = _client(server)
    server.shutdown()
    server.server_close()
    with pytest.raises(exception.ControllerUnavailable):
        edge.find()
