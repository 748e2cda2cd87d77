# SPDX-License-Identifier: Apache-2.0

"""Nova's compute API: pages, absence, and answers that are none."""

from http import server
import json
import threading
import urllib.parse

from oslo_config import cfg
import pytest

from virtco import exception
from virtco.conf import nova_options as nova_conf
from virtco.follow import nova

SERVERS = [{'id': f'u{i}', 'status': 'ACTIVE',
            'OS-EXT-SRV-ATTR:host': f'h{i}', 'OS-EXT-STS:task_state': None}
           for i in range(7)]


class Handler(server.BaseHTTPRequestHandler):
    """Three servers a page, whatever is asked for, unless the server has a
    ``page`` of its own; ``answers`` come first.
    """

    def log_message(self, *_args):
        """Quiet."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers['Content-Length']))
        self.server.posted.append((self.path, json.loads(body)))
        self.do_GET()

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        self.server.asked.append(url.path)
        make = self.server.page or type(self).page
        status, body = self.server.answers.get(url.path) or make(
            self, dict(urllib.parse.parse_qsl(url.query)))
        content = body if isinstance(body, bytes) else json.dumps(
            body).encode()
        self.send_response(status)
        self.send_header('Content-Length', str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def page(self, query):
        assert query['all_tenants'] == '1', query
        ids = [found['id'] for found in SERVERS]
        start = ids.index(query['marker']) + 1 if 'marker' in query else 0
        body = {'servers': SERVERS[start:start + 3]}
        if start + 3 < len(SERVERS):
            body['servers_links'] = [{'rel': 'next', 'href': 'x'}]
        return 200, body


@pytest.fixture
def api():
    with server.ThreadingHTTPServer(('127.0.0.1', 0), Handler) as found:
        found.answers, found.asked, found.posted = {}, [], []
        found.page = None
        threading.Thread(target=found.serve_forever, args=(0.02,),
                         daemon=True).start()
        yield found
        found.shutdown()


def made_conf(**options):
    conf = cfg.ConfigOpts()
    conf.register_opts(nova_conf.OPTS, group='nova')
    conf([])
    for name, value in options.items():
        conf.set_override(name, value, 'nova')
    return conf


def conf_of(api):
    url = f'http://127.0.0.1:{api.server_port}'
    return made_conf(auth_type='none', endpoint_override=url,
                     placement_endpoint_override=url)


def client(**options):
    return nova.Nova(made_conf(**options))


@pytest.fixture
def ask(api):
    return nova.Nova(conf_of(api))


def test_all_pages_are_read_although_nova_shortens_them(api, ask):
    assert [s.uuid for s in ask.servers('p')] == [
        f'u{i}' for i in range(7)]
    assert len(api.asked) == 3


def test_what_is_read_of_a_server(api, ask):
    api.answers['/servers/u'] = 200, {'server': {
        'id': 'u', 'status': 'ERROR', 'OS-EXT-SRV-ATTR:host': '',
        'OS-EXT-STS:task_state': 'spawning', 'fault': {'message': 'full'}}}
    assert ask.server('u') == nova.Server('u', 'ERROR', None, True,
                                                'full')
    api.answers['/servers/u'][1]['server'] |= {
        'OS-EXT-SRV-ATTR:host': 'h', 'OS-EXT-STS:task_state': None,
        'fault': None}
    assert ask.server('u') == nova.Server('u', 'ERROR', 'h', False, '')
    # A server of another release may lack them.
    api.answers['/servers/u'] = 200, {'server': {'id': 'u', 'status': 'X'}}
    assert ask.server('u') == nova.Server('u', 'X', None, False, '')


def test_only_novas_own_word_makes_a_server_absent(api, ask):
    api.answers['/servers/u'] = 404, {'itemNotFound': {'code': 404}}
    assert ask.server('u') is None
    api.answers['/servers/u'] = 404, b'<html>no such page</html>'
    with pytest.raises(exception.NovaUnavailable):
        ask.server('u')
    # A failure that looks like a server is none, either.
    api.answers['/servers/u'] = 500, {'server': {'id': 'u', 'status': 'X'}}
    with pytest.raises(exception.NovaUnavailable):
        ask.server('u')


@pytest.mark.parametrize('answer', [
    (403, {'forbidden': {}}), (404, {'itemNotFound': {}}), (500, b''),
    (200, b'<html>'), (200, b'[]'), (200, {'servers': [{}]}),
    (200, {'servers': None}), (200, {}), (500, {'servers': []})])
def test_what_is_no_list_is_no_absence(api, ask, answer):
    api.answers['/servers/detail'] = answer
    with pytest.raises(exception.NovaUnavailable):
        list(ask.servers('p'))


def test_what_failed_is_told_in_short():
    with pytest.raises(exception.NovaUnavailable) as caught, (
            nova.translated()):
        raise LookupError('x' * 201)
    assert str(caught.value) == (
        'Nova did not answer: LookupError: ' + 'x' * 200 + '.')


def test_a_request_may_hang_for_half_a_minute(ask):
    assert ask.session.timeout == 30


def test_nobody_there():
    with pytest.raises(exception.NovaUnavailable):
        list(client(auth_type='none', endpoint_override='http://127.0.0.1:1'
                    ).servers('p'))


@pytest.mark.parametrize('options', [
    {'auth_type': 'magic'}, {'auth_type': 'password'}])
def test_credentials_that_cannot_be_are_named(options):
    with pytest.raises(exception.Invalid, match=r'\[nova\] auth_type: '):
        client(**options)


@pytest.mark.parametrize('status, is_told', [
    (200, True), (404, True), (409, False)])
def test_metadata_of_a_server(api, ask, status, is_told):
    """Told, gone, and not ready for it."""
    api.answers['/servers/u/metadata'] = status, {}
    assert ask.set_metadata('u', {'virtco.row': '0'}) is is_told
    assert api.posted == [
        ('/servers/u/metadata', {'metadata': {'virtco.row': '0'}})]


def test_metadata_that_nova_refuses(api, ask):
    api.answers['/servers/u/metadata'] = 403, {}
    with pytest.raises(exception.NovaUnavailable):
        ask.set_metadata('u', {'virtco.row': '0'})


def test_a_live_migration_and_its_refusal(api, ask):
    api.answers['/servers/u/action'] = 202, b''
    ask.live_migrate('u', 'h1')
    assert api.posted == [('/servers/u/action', {'os-migrateLive': {
        'host': 'h1', 'block_migration': 'auto'}})]
    api.answers['/servers/u/action'] = 409, {}
    with pytest.raises(exception.NovaUnavailable):
        ask.live_migrate('u', 'h1')


def test_addresses_of_ports_are_read_without_floating_ones(api):
    server = dict(SERVERS[0], addresses={
        'b': [{'addr': '10.0.0.7', 'OS-EXT-IPS:type': 'fixed'},
              {'addr': '192.0.2.7', 'OS-EXT-IPS:type': 'floating'}],
        'a': [{'addr': 'fd00::7'}]})
    assert nova.fixed_ips(server) == ('10.0.0.7', 'fd00::7')
    assert nova.fixed_ips({'addresses': None}) == ()
    api.answers['/servers/u0'] = (200, {'server': server})
    assert nova.Nova(conf_of(api)).server('u0').addresses == (
        '10.0.0.7', 'fd00::7')
