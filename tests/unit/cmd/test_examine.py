# SPDX-License-Identifier: Apache-2.0

"""``virtco doctor --config-file`` on this machine."""

import http.server
import logging
import socket
import threading

import pytest

from virtco import selftest
from virtco.cmd import examine


@pytest.fixture
def answering():
    """Serve a text on loopback, and return the port."""
    started = []

    def serve(text, host='127.0.0.1'):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(503)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_):
                """Say nothing."""

        class Server(http.server.HTTPServer):
            address_family = (socket.AF_INET6 if ':' in host
                              else socket.AF_INET)

        found = Server((host, 0), Handler)
        threading.Thread(target=found.serve_forever, args=(0.01,)).start()
        started.append(found)
        return found.server_port

    yield serve
    for one in started:
        one.shutdown()
        one.server_close()


@pytest.mark.parametrize('host', ['127.0.0.1', '::1'])
@pytest.mark.parametrize('text, is_served', [
    ('{"status": "failing"}', True), ('{"state": "ok"}', False),
    ('no JSON', False)])
def test_a_controller_tells_its_status(answering, host, text, is_served):
    assert examine._is_served(host, answering(text, host)) is is_served


def test_where_nothing_listens_no_controller_serves():
    with socket.create_server(('127.0.0.1', 0)) as taken:
        port = taken.getsockname()[1]
    assert not examine._is_served('127.0.0.1', port)


def test_a_file_that_cannot_be_read_is_the_only_problem(tmp_path):
    path = tmp_path / 'virtco.conf'
    path.write_text('[placement]\nbudget_s = soon\n')
    found, = examine.examine(str(path))
    assert found.code and '[placement] budget_s' in found.finding


def test_one_port_that_is_served_is_enough(tmp_path, monkeypatch, answering):
    asked = []
    monkeypatch.setattr(selftest, 'before_start', lambda _conf, found: iter(
        asked.append(found) or []))
    with socket.create_server(('127.0.0.1', 0)) as unused:
        free = unused.getsockname()[1]
    served = answering('{"status": "ok"}')
    path = tmp_path / 'virtco.conf'
    path.write_text(
        f'[api]\nhost = 127.0.0.1\nport = {free}\n[monitoring]\n'
        f'host = 127.0.0.1\nport = {served}\n')
    for library in ('alembic', 'oslo_service', 'stevedore'):
        monkeypatch.setattr(logging.getLogger(library), 'level', 0)
    assert examine.examine(str(path)) == [] and asked == [[]]
    # What libraries tell of their loading is no finding.
    assert {logging.getLogger(library).level for library in (
        'alembic', 'oslo_service', 'stevedore')} == {logging.ERROR}


@pytest.mark.parametrize('host, addresses', [
    ('127.0.0.3', {'127.0.0.1', '127.0.0.3'}), ('', {'127.0.0.1'})])
def test_ports_are_tested_unless_a_controller_serves_there(
        tmp_path, monkeypatch, answering, host, addresses):
    asked = []
    monkeypatch.setattr(selftest, 'before_start', lambda conf, found: iter(
        asked.append((conf.distributor.host, found)) or ['a problem']))
    path = tmp_path / 'virtco.conf'
    with socket.create_server(('127.0.0.1', 0)) as unused:
        free = unused.getsockname()[1]
    for port, tested in ((answering('{"status": "ok"}'), set()),
                         (free, {free, 8792}), (0, {0, 8792})):
        path.write_text(f'[api]\nhost = 127.0.0.1\nport = {port}\n'
                        '[distributor]\nport = 8792\n'
                        + (f'host = {host}\n' if host else ''))
        assert examine.examine(str(path)) == ['a problem']
        _, found = asked.pop()
        assert {port for _, port in found} == tested
        assert {host for host, _ in found} == (addresses if tested else set())
        assert all(type(port) is int for _, port in found)
