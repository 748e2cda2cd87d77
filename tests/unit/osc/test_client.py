# SPDX-License-Identifier: Apache-2.0

"""The client and the API that it is made for, without a network between."""

import argparse
import io

from keystoneauth1 import exceptions as ks_exceptions
from keystoneauth1 import noauth
from keystoneauth1 import session as ks_session
import pytest
import requests

from tests.unit import made
from tests.unit.api import service
from virtco import exception
from virtco.client import v1
from virtco.osc import plugin

URL = 'http://controller.test'
PAIR = [[0, 7, 0], [0, 0, 0], [5, 0, 0]]
FLAVOR = {'vcpus': 2, 'memory_mb': 0, 'disk_gb': 0}
PLANE = {'name': 'front-end', 'levels': [{'name': 'leaf'}], 'nodes': [
    {'name': 'l1', 'hosts': ['h0', 'h1', 'h2']}]}


class Wire(requests.adapters.BaseAdapter):
    """Hands requests to an answerer, and what it answers back."""

    def __init__(self, answer):
        super().__init__()
        self._answer = answer

    def send(self, request, **options):
        status, content = self._answer(request, options)
        response = requests.Response()
        response.status_code, response.url = status, request.url
        response.request, response.raw = request, io.BytesIO(content)
        return response

    def close(self):
        pass


def session_of(answer):
    http = requests.Session()
    http.mount('http://', Wire(answer))
    return ks_session.Session(auth=noauth.NoAuth(URL), session=http)


def client_of(answer, **options):
    return v1.Client(URL + '/', session_of(answer), **options)


@pytest.fixture
def api():
    found = service.Service()
    yield found
    found.rooms.database.dispose()


@pytest.fixture
def answer(api):
    def answer(request, _options):
        path, _, query = request.path_url.partition('?')
        found = api.wsgi.simulate_request(
            request.method, path, query_string=query,
            body=request.body or b'', headers={
                'X-Roles': 'admin,service', 'X-Project-Id': 'p',
                'X-User-Id': 'h1', 'X-User-Name': 'h1',
                'X-Identity-Status': 'Confirmed',
                'Content-Type': 'application/json'})
        return found.status_code, found.content

    return answer


@pytest.fixture
def client(answer):
    return client_of(answer)


def test_coflows(client):
    one, = client.coflows('p', 'active')
    assert client.coflows('q') == client.coflows(state='done') == []
    assert client.coflow(one.id).members
    made_ = client.register('m', PAIR, 'q')
    assert (made_.name, made_.project_id) == ('m', 'q')
    assert client.register('m', PAIR).project_id == 'p'
    assert client.change_coflow(one.id, weight=2.5).weight == 2.5
    client.delete_coflow(made_.id)
    with pytest.raises(exception.NotFound):
        client.coflow(made_.id)
    announced, = client.announce('a', 'next', PAIR, 7, 'p')
    assert (announced.name, announced.expires) == (
        'next', service.NOW_S + 7)
    later, = client.announce('a', 'later', PAIR)
    assert later.expires == service.NOW_S + 3600
    with pytest.raises(exception.NotFound):
        client.announce('a', 'next', PAIR, project_id='q')
    assert client.events() == client.events('q') == []


def test_projects_and_profiles(client):
    assert client.change_project('p', weight=3).weight == 3
    assert [one.project_id for one in client.projects()] == ['p']
    assert client.profiles() == client.apps('q') == []
    for ask in (lambda: client.profile('x', 'q'),
                lambda: client.app('x', n_vms=5),
                lambda: client.forget_app('x')):
        with pytest.raises(exception.NotFound):
            ask()
    with pytest.raises(exception.VirtcoException, match='n_vms'):
        client.app('x', n_vms=1)


def test_hosts(client):
    assert {one.host for one in client.hosts()} == (
        service.EGRESS_BPS.keys())
    assert client.host('h1').classes
    assert client.policy('h1').host == 'h1'
    assert client.drain('h1', 'fans').drain_reason == 'fans'
    client.undrain('h1')
    assert client.host('h1').drain is None
    assert len(client.history()) == 2
    with pytest.raises(exception.Conflict, match='h1 has 1 VMs'):
        client.forget_host('h1')
    with pytest.raises(exception.NotFound, match='a b%'):
        client.coflow('a b%')


def test_measurements(client, api, monkeypatch):
    monkeypatch.setattr(api.rooms.decide.orders, '_leads', False)
    for ask, hosts in ((lambda: client.check(['h0', 'h2']), ['h0', 'h2']),
                       (lambda: client.check(group='p-a'),
                        ['h0', 'h1', 'h2'])):
        check = ask()
        assert check.purpose == 'check'
        assert sorted(client.check_state(check.check_id).hosts) == hosts
    assert len(client.checks().checks) == 2
    api.rooms.state.report('h7', made.report())
    assert client.check(purpose='discover').purpose == 'discover'
    assert client.rates() == [] and client.performers().hosts == []
    matrix = client.matrix('rate', 'latest', at=5)
    assert (matrix.kind, matrix.statistic, matrix.hosts) == (
        'rate', 'latest', [])
    with pytest.raises(exception.Invalid, match='h0'):
        client.matrix('latency', hosts='h0,h1')
    probe = client.ask_probes(pairs=[['h0', 'h1']], kind='bulk')
    assert client.asked_probes(probe).done is False
    monkeypatch.setattr(api.rooms.decide.orders, '_leads', True)
    assert client.probes().enabled


def test_placements(client):
    for row in range(2):
        found = client.place(f'g{row}', **service.placement(row))
        assert found.status == 'planned'
    assert client.placement('g1').row == 1
    assert client.explanation('g1', 0.001).findings == []
    assert client.advice() == client.advise() == client.advise(0.001) == []
    plan = client.plan(groups=[{'name': 'n', 'tm': PAIR, 'flavor': {
        'vcpus': 1, 'memory_mb': 1, 'disk_gb': 1}}], hosts=[
            {'host': 'big', 'free': {'vcpus': 3, 'memory_mb': 9,
                                     'disk_gb': 9}}])
    assert len(plan.vms) == 3
    client.notify('instance.delete.end', {'nova_object.data': {'uuid': 'g1'}})
    assert client.placement('g1').host_now is None


def test_advice_for_a_group(client):
    tree = client.tree('a', 'p', 'reduce', 2, 5e6, 'median')
    assert (tree.root, tree.size_bytes, tree.operation,
            tree.matrix) == (2, 5e6, 'reduce', 'median')
    assert client.tree('a').root == 0
    mapping = client.mapping('a', PAIR, matrix='median')
    assert (mapping.matrix, mapping.size_bytes) == ('median', 12)
    assert client.mapping('a', all_reduce_bytes=8e6).size_bytes == 8e6
    assert client.clusters('a', level='host').level == 'host'
    for ask in (client.tree, client.mapping, client.clusters):
        with pytest.raises(exception.NotFound):
            ask('a', project_id='q')


def test_settings_and_topology(client):
    assert client.change_settings(order='sebf') == client.settings()
    dry = client.change_topology([PLANE], dry_run=True)
    assert not dry.applied and client.topology().planes == []
    with pytest.raises(exception.Conflict):
        client.change_topology([PLANE], generation=9)
    assert client.change_topology([PLANE], generation=0).applied
    room = {'flavor': FLAVOR, 'level': 'leaf', 'hosts': [
        {'host': 'h0', 'free': {'vcpus': 4, 'memory_mb': 9, 'disk_gb': 9}}]}
    found = client.capacity(**room, vms=[1], plane='front-end')
    assert found.domains[0].groups == {'1': 2}
    assert len(client.capacity(**room).domains[0].groups) == 5
    with pytest.raises(exception.NotFound):
        client.capacity(**room, plane='back')
    client.delete_plane('front-end')
    assert client.topology().planes == []
    # Of one that fails or starts, too.
    assert client.health().status == 'failing'


@pytest.mark.parametrize('code, kind', [
    ('virtco.invalid', exception.Invalid),
    ('virtco.hint_invalid', exception.HintInvalid),
    ('virtco.infeasible', exception.PlacementInfeasible),
    ('virtco.not_found', exception.NotFound),
    ('virtco.conflict', exception.Conflict),
    ('virtco.forbidden', exception.Forbidden),
    ('virtco.database_unavailable', exception.DatabaseUnavailable),
    ('virtco.starting', exception.Starting),
    ('virtco.of_later', exception.VirtcoException)])
def test_errors_come_back(code, kind):
    client = client_of(lambda *_: (400, (
        '{"error": {"code": "%s", "detail": "so", "field": "f", "x": 1}}'
        % code).encode()))
    with pytest.raises(kind) as caught:
        client.settings()
    assert type(caught.value) is kind and str(caught.value) == 'so'
    assert caught.value.kwargs == {'field': 'f'}


@pytest.mark.parametrize('status, content, why', [
    (200, b'<html>', 'HTTP 200 without JSON'), (502, b'{}', 'HTTP 502'),
    (400, b'[]', 'HTTP 400'), (400, b'{"error": 1}', 'HTTP 400'),
    (404, b'{"error": {}}', 'HTTP 404')])
def test_answers_of_somebody_else(status, content, why):
    with pytest.raises(exception.ControllerUnavailable, match=why):
        client_of(lambda *_: (status, content)).settings()


def test_an_answer_that_lacks_a_field_is_none_of_this_api():
    with pytest.raises(exception.ControllerUnavailable,
                       match='showSettings .*`planner`'):
        client_of(lambda *_: (200, b'{}')).settings()


def test_calls_are_bounded_in_time():
    seen = []

    def answer(request, options):
        seen.append(options['timeout'])
        raise ks_exceptions.ConnectFailure('away')

    for options in ({}, {'timeout_s': 0.5}):
        with pytest.raises(exception.ControllerUnavailable, match='away'):
            client_of(answer, **options).settings()
    assert set(seen) == {10.0, 0.5}
    assert client_of(lambda *_: (204, b'')).request('GET', '/x') is None
    assert client_of(lambda *_: (399, b'7')).request('GET', '/x') == 7


def test_arguments_that_an_operation_does_not_have_are_refused():
    client = client_of(lambda *_: (200, b'{}'))
    for call in (lambda: client.host('h1', 'h2'),
                 lambda: client.host('h1', depth=3),
                 lambda: client.host('h1', host='h2'),
                 lambda: client.settings('all')):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(TypeError, match=r'^showHost takes \(host\)$'):
        client.host('h1', 'h2')


def test_where_the_controller_is(monkeypatch):
    monkeypatch.delenv('VIRTCO_URL', raising=False)
    assert v1.Client().url == v1.DEFAULT_URL
    monkeypatch.setenv('VIRTCO_URL', 'http://env/')
    assert v1.Client().url == 'http://env'
    assert v1.Client('http://given/').url == 'http://given'


class Instance:
    """What ``openstack`` hands to a plug-in."""

    region_name, interface, session = 'r', 'internal', None

    def get_endpoint_for_service_type(self, kind, region_name, interface):
        return f'http://{kind}.{region_name}.{interface}'


def test_the_plug_in_finds_the_controller_in_the_catalogue(monkeypatch):
    monkeypatch.delenv('VIRTCO_URL', raising=False)
    assert plugin.make_client(Instance()).url == 'http://coflow.r.internal'
    monkeypatch.setenv('VIRTCO_URL', 'http://env')
    assert plugin.make_client(Instance()).url == 'http://env'


def test_the_plug_in_offers_the_version_of_its_api(monkeypatch):
    """python-openstackclient picks the class of the client by this option."""
    for value in None, '2':
        monkeypatch.delenv('OS_COFLOW_API_VERSION', raising=False)
        if value:
            monkeypatch.setenv('OS_COFLOW_API_VERSION', value)
        parser = plugin.build_option_parser(argparse.ArgumentParser())
        for argv, version in (([], value or '1'),
                              (['--os-coflow-api-version', '3'], '3')):
            assert getattr(parser.parse_args(argv),
                           plugin.API_VERSION_OPTION) == version
