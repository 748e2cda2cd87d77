# SPDX-License-Identifier: Apache-2.0

"""With keystone: a tenant reads its own, an operator everything."""

import json
import socket
import sys
import threading
from wsgiref import simple_server

import falcon.testing
from keystonemiddleware import fixture as middleware_fixture
import msgspec
import pytest

from tests.functional.controller import harness
from tests.unit import made
from virtco import app
from virtco.api import deploy
from virtco.api import pace
from virtco.cmd import controller as controller_cmd
from virtco.osc import shell
from virtco.wire import frames

PROJECT = 'p1'


@pytest.fixture(scope='module')
def application(tmp_path_factory):
    home = tmp_path_factory.mktemp('auth')
    config = home / 'virtco.conf'
    config.write_text(
        f'[controller]\nstate_dir = {home}\n'
        '[api]\nauth_strategy = keystone\n'
        '[keystone_authtoken]\nwww_authenticate_uri = http://127.0.0.1:1\n'
        'auth_type = none\n[placement]\ndeadline_s = 50\n'
        '[limits]\nmax_registered_per_project = 2\n[distributor]\nport = 0\n')
    conf = controller_cmd.make_conf(['--config-file', str(config)])
    controller = app.App(conf)
    controller.start()
    controller.place.load_planner(is_used=False)
    # falcon's test client inspects the signature, webob's hide theirs.
    def call(environ, start_response):
        return wsgi(environ, start_response)

    call.controller = controller
    with pytest.MonkeyPatch.context() as patch:
        # As if each request took a second of the processor.
        patch.setattr(pace, 'TOKEN_CPU_S', 1.0)
        patch.setattr(pace, 'BURST_CPU_S', 59.5)
        patch.setattr(pace, 'CPU_PER_S', 0.01)
        wsgi = deploy.application(conf, controller)
        yield call
    controller.stop()


@pytest.fixture
def send(application):
    tokens = middleware_fixture.AuthTokenFixture()
    tokens.setUp()

    def send(method, path, role=None, project=PROJECT, body=None, user='u',
             text=None):
        headers = {} if text is None else {'Content-Type': 'application/json'}
        if role is not None:
            token = f'{role}-{project}-{user}'
            tokens.add_token_data(
                token_id=token, user_id=user, user_name=user,
                role_list=[role], project_id=project)
            headers['X-Auth-Token'] = token
        return falcon.testing.TestClient(application).simulate_request(
            method, path, headers=headers, json=body, body=text)

    yield send
    tokens.cleanUp()


@pytest.fixture
def client(send):
    """The status of a request."""
    return lambda *args, **kwargs: send(*args, **kwargs).status_code


def test_without_a_token_only_health_and_metrics(client):
    assert client('GET', '/v1/coflows') == 401
    assert client('GET', '/v1/hosts/h/policy') == 401
    assert client('GET', '/health') == 200
    assert client('GET', '/metrics') == 200


def test_nova_and_the_edges_have_the_service_role(client):
    body = harness.placement(0, project_id=PROJECT)
    assert client('PUT', '/v1/placements/i1', 'member', body=body) == 403
    assert client('PUT', '/v1/placements/i1', 'service', body=body) == 200
    assert client('GET', '/v1/hosts/h/policy', 'member') == 403
    assert client('GET', '/v1/hosts/h/policy', 'service', user='h') == 404
    notification = {'event_type': 'instance.delete.end', 'payload': {}}
    assert client('POST', '/v1/notifications', 'reader',
                  body=notification) == 403
    assert client('POST', '/v1/notifications', 'service',
                  body=notification) == 202


@pytest.mark.parametrize(('role', 'project', 'status'), [
    ('reader', PROJECT, 200), ('reader', 'p2', 403), ('admin', 'p2', 200)])
def test_a_tenant_reads_its_own(client, role, project, status):
    body = harness.placement(0, project_id=PROJECT)
    assert client('PUT', '/v1/placements/i1', 'service', body=body) == 200
    for path in (f'/v1/coflows?project_id={PROJECT}', '/v1/placements/i1'):
        assert client('GET', path, role, project) == status
    # Without a project its own is meant.
    assert client('GET', '/v1/coflows', role, project) == 200
    assert client('GET', '/v1/events', role, project) == 200


def test_a_tenant_sees_no_hypervisors(send):
    body = harness.placement(0, 'secret', project_id=PROJECT)
    found = send('PUT', '/v1/placements/i2', 'service', body=body).json
    for number in (1, 2, 3):
        other = harness.placement(number, 'secret', project_id=PROJECT)
        assert send('PUT', f'/v1/placements/i2-{number}', 'service',
                    body=other).status_code == 200
    assert found['host']
    coflow = f'/v1/coflows/{coflow_id(send, "secret")}'
    tree = '/v1/groups/secret/tree'
    for path in ('/v1/coflows', coflow, '/v1/placements/i2', '/v1/events',
                 tree):
        assert found['host'] not in send('GET', path, 'reader').text
    for path in ('/v1/coflows', coflow, '/v1/placements/i2', tree):
        assert found['host'] in send('GET', path, 'admin').text
    assert send('GET', tree, 'reader', 'p2').status_code == 404
    clusters = '/v1/groups/secret/clusters'
    told = send('GET', clusters, 'reader')
    assert told.status_code == 200 and found['host'] not in told.text
    assert send('GET', clusters, 'reader', 'p2').status_code == 404
    mapping = '/v1/groups/secret/mapping'
    told = send('POST', mapping, 'reader', body={})
    assert told.status_code == 200 and found['host'] not in told.text
    assert send('POST', mapping, 'reader', 'p2',
                body={}).status_code == 404


def test_a_tenant_is_told_of_no_fault_but_that(application, send, capsys,
                                               monkeypatch):
    """Of a chain in which all works."""
    for number in range(4):
        body = harness.placement(number, 'mine', project_id='p9')
        assert send('PUT', f'/v1/placements/i9-{number}', 'service',
                    body=body).status_code == 200
    # A busy machine answers without a plan, and writes that down later.
    harness.wait_for(lambda: any(
        send('GET', f'/v1/{what}', 'reader', 'p9').json[what]
        for what in ('coflows', 'events')))
    assert send('GET', '/v1/hosts', 'reader', 'p9').status_code == 403
    with simple_server.make_server('127.0.0.1', 0, application,
                                   handler_class=_Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f'http://127.0.0.1:{server.server_port}'
        monkeypatch.setattr(sys, 'argv', [
            'virtco', '--os-auth-type', 'admin_token', '--os-endpoint', url,
            '--os-token', 'reader-p9-u', '--controller-url', url, 'doctor',
            '-f', 'json'])
        code = shell.main()
        server.shutdown()
    rows = json.loads(capsys.readouterr().out)
    assert code == 0
    assert [row['code'] for row in rows if row['state'] != 'ok'] == ['VC-064']


class _Quiet(simple_server.WSGIRequestHandler):
    def log_message(self, *_args):
        """Say nothing."""


@pytest.mark.parametrize(('role', 'project', 'status'), [
    ('reader', PROJECT, 200), ('reader', 'p2', 403), ('service', 'p2', 403),
    ('admin', 'p2', 200)])
def test_what_vms_sent_is_their_tenants(application, client, send, role,
                                        project, status):
    name = f'{role}-{project}'
    body = harness.placement(7, name, project_id=PROJECT,
                             hosts={f'{name}-h': 4},
                             hints={'virtco:app': name})
    group = send('PUT', f'/v1/placements/{name}', 'service',
                 body=body).json['group']
    rooms = application.controller
    rooms.state.live.give_back_profiles({group: {(0, 1): 5e6}})
    rooms.objects.profiles.flush()
    for path in ('/v1/profiles', f'/v1/profiles/{name}', '/v1/apps',
                 f'/v1/apps/{name}'):
        assert client('GET', f'{path}?project_id={PROJECT}', role,
                      project) == status, path
    # Without a project its own is meant, and that has none.
    assert client('GET', f'/v1/profiles/{group}', 'reader', 'p2') == 404
    assert client('GET', f'/v1/apps/{name}', 'reader', 'p2') == 404
    assert send('GET', '/v1/profiles', 'reader', 'p2').json == {
        'profiles': []}
    assert client('DELETE', f'/v1/apps/{name}', 'reader') == 403
    assert client('DELETE', f'/v1/apps/{name}', 'member', 'p2') == 404
    assert client('DELETE', f'/v1/apps/{name}', 'member') == 204
    assert client('GET', f'/v1/apps/{name}', 'reader') == 404


def coflow_id(send, name):
    return next(c['id'] for c in send(
        'GET', '/v1/coflows', 'reader').json['coflows'] if c['name'] == name)


def test_a_tenant_changes_its_own_but_no_priorities(client, send):
    matrix = {'name': 'm', 'tm': [[0]]}
    assert client('POST', '/v1/coflows', 'reader', body=matrix) == 403
    assert client('POST', '/v1/coflows', 'member',
                  body=matrix | {'project_id': 'p2'}) == 403
    found = send('POST', '/v1/coflows', 'member', body=matrix)
    assert found.status_code == 201
    assert found.json['project_id'] == PROJECT
    path = f'/v1/coflows/{found.json["id"]}'
    weight = {'weight': 2}
    assert client('PATCH', path, 'member', body=weight) == 403
    assert client('PATCH', path, 'admin', 'p2', body=weight) == 200
    assert client('DELETE', path, 'member', 'p2') == 403
    assert client('DELETE', path, 'member') == 204


def test_a_tenant_cannot_prioritize_its_project(client):
    path, body = f'/v1/projects/{PROJECT}', {'priority_class': -9}
    for role in ('reader', 'member', 'service'):
        assert client('PATCH', path, role, body=body) == 403
        assert client('GET', path, role) == 403
        assert client('GET', '/v1/projects', role) == 403
    assert client('PATCH', path, 'admin', 'p2', body=body) == 200


def test_operations_are_the_operators(client):
    for method, path, body in (
            ('GET', '/v1/hosts', None), ('GET', '/v1/rates', None),
            ('GET', '/v1/settings', None),
            ('PATCH', '/v1/settings', {'ceil': 'rate'})):
        assert client(method, path, 'member', body=body) == 403
        assert client(method, path, 'service', body=body) == 403
        assert client(method, path, 'admin', body=body) == 200


def test_an_edge_module_asks_for_its_own_host_only(client):
    path = '/v1/hosts/h1/policy'
    assert client('GET', path, 'service', user='h1') == 404
    assert client('GET', path, 'service', user='virtco') == 403
    # An account of services with the role admin is nobody's host either.
    assert client('GET', path, 'admin', user='virtco') == 403


def test_a_ticket_is_for_its_own_host_only(application, send):
    where = '/v1/distributor?host=h1'
    found = send('GET', where, 'service', user='h1')
    assert found.status_code == 200
    connected = application.controller.distribute
    assert found.json['ticket'] == connected.ticket_of('h1')
    assert send('GET', where, 'service', user='h2').status_code == 403
    assert send('GET', where, 'member', user='h1').status_code == 403
    anybody = send('GET', '/v1/distributor', 'service', user='h2')
    assert 'ticket' not in anybody.json
    for host, kind in (('h1', 'welcome'), ('h2', 'refused')):
        with socket.create_connection(
                ('127.0.0.1', found.json['servers'][0]['port']),
                timeout=harness.DEADLINE_S) as sock:
            sock.sendall(made.frame(
                'hello', version=frames.VERSION, host=host,
                ticket=found.json['ticket']))
            (payload,) = frames.Reader().feed(sock.recv(1 << 16))
            assert msgspec.json.decode(payload)['type'] == kind


def test_quotas_and_rates_are_a_projects(send):
    def register(project):
        return send('POST', '/v1/coflows', 'member', project,
                    {'name': 'm', 'tm': [[0]]})

    found = [register('busy') for _ in range(60)]
    assert [one.status_code for one in found] == [201] * 2 + [403] * 58
    assert found[-1].json['error']['code'] == 'virtco.quota_exceeded'
    assert found[-1].json['error']['limit'] == 'at most 2 per project'
    limited = register('busy')
    assert limited.status_code == 429
    assert 50 <= int(limited.headers['Retry-After']) <= 101
    assert 'project busy' in limited.json['error']['detail']
    assert register('quiet').status_code == 201
    for role in ('admin', 'service'):
        assert send('GET', '/v1/coflows', role, 'busy').status_code != 429


def test_a_flood_without_tokens_spends_no_projects_budget(
        application, send, monkeypatch):
    flooder = falcon.testing.TestClient(application)
    # Refused at once, where others are held.
    monkeypatch.setattr(pace, 'HELD_S', 0.0)

    def is_served_during_a_flood(victim):
        headers = {'X-Project-Id': victim, 'X-Roles': 'member'}
        for path, token, status in (('/v1', None, 200),
                                    ('/v1/coflows', None, 401),
                                    ('/v1/coflows', 'invalid', 401)):
            for _ in range(100):
                told = flooder.simulate_get(path, headers=headers | (
                    {'X-Auth-Token': token} if token else {}))
                assert told.status_code in (status, 429)
        return send('GET', '/v1/coflows', 'reader',
                    victim).status_code == 200

    assert is_served_during_a_flood('victim')
    # The attack works where headers that nobody checked are believed.
    monkeypatch.setattr(pace, 'TOKEN', 'HTTP_X_PROJECT_ID')
    assert not is_served_during_a_flood('other victim')


@pytest.mark.parametrize('levels', [400, 990, 100_000])
@pytest.mark.parametrize(('path', 'text'), [
    ('/v1/coflows', '{}'), ('/v1/coflows', '{{"tm": {}}}'),
    ('/v1/groups/g/coflows', '{{"name": "g", "tm": {}}}'),
    ('/v1/topology', '{{"planes": {}}}')])
def test_deep_bodies_are_refused(send, path, text, levels):
    """By what they are not, or by Python's limit of recursion."""
    found = send('PUT' if path == '/v1/topology' else 'POST', path, 'admin',
                 text=text.format('[' * levels + ']' * levels))
    assert found.status_code == 400
    assert len(found.text) < 1000
    assert found.json['error']['limit']
