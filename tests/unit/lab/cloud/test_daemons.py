# SPDX-License-Identifier: Apache-2.0

"""Processes of the cloud, with a server of a few lines."""

import http.server
import socket
import subprocess
import threading

import pytest

from tests.unit.lab.cloud import made
from virtco_lab.cloud import daemons
from virtco_lab.emulation import process
from virtco_lab.services import service


@pytest.fixture(name='layout')
def _layout(tmp_path):
    return made.layout(tmp_path)


def test_a_daemon_is_up_while_it_runs(layout):
    one = daemons.Daemon(layout, 'edge-h0', ['sh', '-c', 'read word'],
                         {'NAME': 'value'})
    assert not one.is_up()
    one.process = subprocess.Popen([one.command, *one.arguments()],
                                   stdin=subprocess.PIPE)
    assert one.is_up()
    one.process.communicate(b'word\n')
    assert not one.is_up()
    assert one.home == layout.home / 'process' / 'edge-h0'
    with pytest.raises(AttributeError):
        print(one.url)


def test_a_daemon_has_our_environment_and_its_own(layout, monkeypatch):
    monkeypatch.setenv('OURS', 'inherited')
    plain = daemons.Daemon(layout, 'a', ['sh']).environment()
    own = daemons.Daemon(layout, 'a', ['sh'], {'NAME': 'value'}).environment()
    assert own == {**plain, 'NAME': 'value'}
    assert (plain['OURS'], plain['NO_PROXY']) == ('inherited', '*')


def test_what_a_daemon_logs_itself_is_more_telling(layout):
    one = daemons.Daemon(layout, 'nova-h0', ['sh', '-c', 'echo out; exit 1'])
    assert one.logs() == [layout.home / 'nova-h0.log', one.log]
    with pytest.raises(service.ServiceFailed, match='ends with:\nout'):
        one.launch()
        one.process.wait()
        raise one._error('ended')
    (layout.home / 'nova-h0.log').write_text('why\n')
    assert 'ends with:\nwhy' in str(one._error('ended'))


def test_a_server_is_up_once_it_answers_without_an_error_of_its_own(layout):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(int(self.path.partition('/')[2]))
            self.end_headers()

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler) as server:
        port = server.server_port
        threading.Thread(target=server.serve_forever, daemon=True,
                         args=(0.01,)).start()
        for status in (200, 300, 401, 499, 500, 503):
            one = daemons.Http(layout, 'api', ['sh'], port, f'/{status}')
            assert one.is_up() is (status < 500)
        server.shutdown()
    assert one.is_up() is False


def test_a_server_that_answers_no_http_is_not_up(layout):
    def serve():
        with listening.accept()[0] as client:
            client.recv(4096)
            client.sendall(b'no HTTP\r\n\r\n')

    with socket.create_server(('127.0.0.1', 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        assert daemons.Http(layout, 'api', ['sh'],
                            listening.getsockname()[1]).is_up() is False
        thread.join()


def test_an_application_listens_where_its_clients_look(layout):
    one = daemons.wsgi(layout, 'glance', 'glance.wsgi.api', {'A': 'b'})
    assert (one.port, one.environment()['A']) == (9292, 'b')
    words = one.arguments()
    assert one.command == process.script('uwsgi')
    assert words[words.index('--http-socket') + 1] == '127.0.0.1:9292'
    assert words[words.index('--module') + 1] == 'glance.wsgi.api:application'
