# SPDX-License-Identifier: Apache-2.0

"""Who is served on which port, and who cannot stop the others."""

import contextlib
import re
import socket

import pytest
import requests

from tests import patience


@pytest.fixture
def ports(make):
    """The controller, and its ports for services and for monitoring."""
    controller = make({'api': {
        'service_port': 0, 'max_connections_per_address': 400},
        'monitoring': {'port': 0}},
        constants={'virtco.api.listeners.SILENCE_S': 1})
    line, = re.findall('Listening on (.*)', controller.log_text())
    monitoring, service, _ = re.findall(r'port (\d+)', line)
    return controller, service, monitoring


def get(port, path, method='GET', **kwargs):
    return requests.request(method, f'http://127.0.0.1:{port}{path}',
                            **{'timeout': 60} | kwargs)


def test_each_port_serves_its_own(ports):
    controller, service, monitoring = ports
    api = controller.url.rpartition(':')[2]
    uuid = '00000000-0000-0000-0000-000000000001'
    of_services = [('PUT', f'/v1/placements/{uuid}'),
                   ('DELETE', f'/v1/placements/{uuid}'),
                   ('GET', '/v1/hosts/h1/policy'), ('GET', '/v1/distributor'),
                   ('POST', '/v1/notifications')]
    for method, path in of_services:
        answer = get(api, path, method)
        assert (answer.status_code, 'not served on this port'
                in answer.text) == (404, True), path
        assert 'not served' not in get(service, path, method).text, path
    for path in ('/v1/coflows', '/v1/settings', '/v1/hosts', '/metrics'):
        assert 'not served' in get(service, path).text
        assert 'not served' in get(monitoring, path).text or (
            path == '/metrics')
    assert get(api, '/v1/coflows').ok and get(api, '/v1/hosts').ok
    assert 'not served' in get(api, '/metrics').text
    assert b'virtco_report_age' in get(monitoring, '/metrics').content
    assert get(api, '/health').json() == {'status': 'ok'}
    assert get(service, '/health').json() == {'status': 'ok'}
    assert get(monitoring, '/health').json()['leader']['here']


def test_half_open_connections_change_nothing(ports):
    """They are closed after a while, and nobody has all connections."""
    controller, service, _ = ports
    with contextlib.ExitStack() as stack:
        halves = [stack.enter_context(socket.create_connection(
            ('127.0.0.1', int(service)), 60)) for _ in range(300)]
        halves[0].sendall(b'PUT /v1/placements/x HTTP/1.1\r\nContent-')
        halves[1].sendall(b'POST /v1/notifications HTTP/1.1\r\n'
                          b'Content-Length: 90\r\n\r\n{')
        assert controller.call('GET', '/health')['status'] == 'ok'
        assert get(service, '/v1/distributor').ok
        more = [stack.enter_context(socket.create_connection(
            ('127.0.0.1', int(service)), 60)) for _ in range(150)]
        assert more[-1].recv(1) == b''
        for half in halves:
            with contextlib.suppress(ConnectionResetError):
                while half.recv(4096):
                    pass
    assert controller.call('GET', '/health')['status'] == 'ok'


@pytest.mark.parametrize('begin', [
    b'GET /health HTTP/1.1\r\nX-Long: ',
    b'POST /v1/notifications HTTP/1.1\r\nContent-Length: 90000\r\n\r\n'])
def test_a_request_that_drips_holds_no_connection(ports, begin):
    _, service, _ = ports
    watch = patience.Stopwatch()
    with socket.create_connection(('127.0.0.1', int(service)), 60) as sock:
        sock.sendall(begin)
        sock.settimeout(0.1)
        with contextlib.suppress(ConnectionError):
            while watch.seconds() < 20:
                sock.sendall(b'x')
                with contextlib.suppress(TimeoutError):
                    assert not sock.recv(4096)
                    break
    assert watch.seconds() < 15


def test_tenants_hold_no_connection_of_the_services(make):
    """Not even from as many addresses as they like."""
    controller = make({'api': {'service_port': 0}}, constants={
        'virtco.api.listeners.MAX_CONNECTIONS': 50})
    line, = re.findall('Listening on (.*)', controller.log_text())
    service, api = map(int, re.findall(r'port (\d+)', line))
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.create_connection(
            ('127.0.0.1', api), 60)) for _ in range(200)]
        assert get(service, '/v1/distributor', timeout=20).ok
        assert held[-1].recv(1) == b''
