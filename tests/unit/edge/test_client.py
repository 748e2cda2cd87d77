# SPDX-License-Identifier: Apache-2.0

"""Reports reach the controller, and what goes wrong has a name."""

import http.server
import json
import threading

from oslo_config import cfg
import pytest

from edge_module import client
from edge_module import conf as edge_conf
from tests.unit import made
from virtco import exception


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *args):
        """Stay quiet."""

    def do_GET(self):
        body = self.server.codes.pop(0)
        self.send_response(200 if body else 304)
        self.send_header('ETag', '"7"')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.server.seen.append(self.client_address)
        self.wfile.write(body)

    def do_PUT(self):
        body = self.rfile.read(int(self.headers['Content-Length']))
        self.server.seen.append(
            (self.client_address, self.path, self.headers, json.loads(body)))
        self.send_response(self.server.codes.pop(0))
        self.send_header('Content-Length', '0')
        self.end_headers()


@pytest.fixture
def server(monkeypatch):
    for name in ('http_proxy', 'HTTP_PROXY', 'all_proxy', 'ALL_PROXY'):
        monkeypatch.delenv(name, raising=False)
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), _Handler)
    server.daemon_threads = True
    server.seen, server.codes = [], []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,),
                              daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def _client(server):
    conf = cfg.ConfigOpts()
    edge_conf.register_opts(conf)
    conf([], project='virtco')
    conf.set_override('host', 'h/1', 'edge')
    conf.set_override('http_timeout_s', 2, 'edge')
    conf.set_override('controller_url', 'http://127.0.0.1:'
                      f'{server.server_address[1]}/virtco/', 'edge')
    return client.EdgeClient(conf)


def test_reports_go_over_one_connection(server):
    server.codes = [204, 204]
    edge = _client(server)
    for number in (1, 2):
        edge.put_report(made.report(applied_generation=number))
    first, second = server.seen
    assert first[0] == second[0]
    assert first[1] == '/virtco/v1/hosts/h%2F1/report'
    assert first[2]['Content-Type'] == 'application/json'
    assert [item[3]['applied_generation'] for item in server.seen] == [1, 2]
    # By which the controller knows their order.
    times_ms = [item[3]['boot_ms'] for item in server.seen]
    assert times_ms == sorted(times_ms)


@pytest.mark.parametrize('code, error', [
    (404, exception.NotFound), (503, exception.ControllerUnavailable)])
def test_refusals_are_told_apart(server, code, error):
    server.codes = [code] * 4
    edge = _client(server)
    with pytest.raises(error):
        edge.put_report(made.report())
    server.codes = [204]
    edge.put_report(made.report())


def test_a_refusal_that_passes_is_none(server):
    """As an expired token, which the second attempt renews."""
    server.codes = [401, 204]
    _client(server).put_report(made.report(applied_generation=1))
    assert [item[3]['applied_generation'] for item in server.seen] == [1, 1]


def test_nobody_there(server):
    edge = _client(server)
    server.shutdown()
    server.server_close()
    with pytest.raises(exception.ControllerUnavailable):
        edge.put_report(made.report())


def test_behind_a_proxy_everything_goes_to_the_proxy(server, monkeypatch):
    monkeypatch.setenv('http_proxy', 'http://127.0.0.1:'
                       f'{server.server_address[1]}')
    monkeypatch.setenv('no_proxy', '')
    server.codes = [204]
    _client(server).put_report(made.report())
    assert server.seen[0][1].startswith('http://')


def test_policies_come_over_one_connection(server):
    server.codes = [b'{"generation": 7}', b'', b'{}']
    edge = _client(server)
    assert edge.get_policy(None, 0) == ('"7"', {'generation': 7})
    assert edge.get_policy('"7"', 0) is None
    assert edge.get_policy('"6"', 0) == ('"7"', {})
    assert len(set(server.seen)) == 1


@pytest.mark.parametrize('body, why', [
    (b'[' * 100_000, 'deep'), (b'{"a": ', 'JSON'),
    (b'"' + b'x' * 2000 + b'"', '1000 bytes')])
def test_documents_that_are_no_policy_end_nothing(server, monkeypatch, body,
                                                  why):
    monkeypatch.setattr(client, 'MOST_BYTES', 1000 if b'x' in body else 10**6)
    server.codes = [body, b'{}']
    edge = _client(server)
    with pytest.raises(exception.ControllerUnavailable, match=why):
        edge.get_policy(None, 0)
    assert edge.get_policy(None, 0) == ('"7"', {})
