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
from virtco.wire import check as check_wire
from virtco.wire import coflow_bodies as coflow_wire
from virtco.wire import group as group_wire
from virtco.wire import health as health_wire
from virtco.wire import host as host_wire
from virtco.wire import notification as notification_wire
from virtco.wire import placement as placement_wire
from virtco.wire import plan as plan_wire
from virtco.wire import probe as probe_wire
from virtco.wire import profile as profile_wire
from virtco.wire import project as project_wire
from virtco.wire import rate as rate_wire
from virtco.wire import setting as setting_wire
from virtco.wire import topology as topology_wire

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
def call(answer):
    return client_of(answer).call


def test_coflows(call):
    one, = call(coflow_wire.LIST, 'p', 'active').coflows
    for given in ({'project_id': 'q'}, {'state': 'done'}):
        assert call(coflow_wire.LIST, **given).coflows == []
    assert call(coflow_wire.SHOW, one.id).members
    made_ = call(coflow_wire.REGISTER, 'm', PAIR, 'q')
    assert (made_.name, made_.project_id) == ('m', 'q')
    assert call(coflow_wire.REGISTER, 'm', PAIR).project_id == 'p'
    assert call(coflow_wire.CHANGE, one.id, weight=2.5).weight == 2.5
    call(coflow_wire.DELETE, made_.id)
    with pytest.raises(exception.NotFound):
        call(coflow_wire.SHOW, made_.id)
    announced, = call(coflow_wire.ANNOUNCE, 'a', 'next', PAIR, 7,
                      'p').coflows
    assert (announced.name, announced.expires) == (
        'next', service.NOW_S + 7)
    later, = call(coflow_wire.ANNOUNCE, 'a', 'later', PAIR).coflows
    assert later.expires == service.NOW_S + 3600
    with pytest.raises(exception.NotFound):
        call(coflow_wire.ANNOUNCE, 'a', 'next', PAIR, project_id='q')
    assert call(coflow_wire.EVENTS).events == []
    assert call(coflow_wire.EVENTS, 'q').events == []


def test_projects_and_profiles(call):
    assert call(project_wire.CHANGE, 'p', weight=3).weight == 3
    one, = call(project_wire.LIST).projects
    assert one.project_id == 'p'
    assert call(profile_wire.LIST).profiles == []
    assert call(profile_wire.LIST_APPS, 'q').apps == []
    for ask in (lambda: call(profile_wire.SHOW, 'x', 'q'),
                lambda: call(profile_wire.SHOW_APP, 'x', n_vms=5),
                lambda: call(profile_wire.FORGET_APP, 'x')):
        with pytest.raises(exception.NotFound):
            ask()
    with pytest.raises(exception.VirtcoException, match='n_vms'):
        call(profile_wire.SHOW_APP, 'x', n_vms=1)


def test_hosts(call):
    assert {one.host for one in call(host_wire.LIST).hosts} == (
        service.EGRESS_BPS.keys())
    assert call(host_wire.SHOW, 'h1').classes
    assert call(host_wire.POLICY, 'h1').host == 'h1'
    assert call(host_wire.DRAIN, 'h1', 'fans').drain_reason == 'fans'
    call(host_wire.UNDRAIN, 'h1')
    assert call(host_wire.SHOW, 'h1').drain is None
    assert len(call(setting_wire.HISTORY).changes) == 2
    with pytest.raises(exception.Conflict, match='h1 has 1 VMs'):
        call(host_wire.FORGET, 'h1')
    with pytest.raises(exception.NotFound, match='a b%'):
        call(coflow_wire.SHOW, 'a b%')


def test_measurements(call, api, monkeypatch):
    monkeypatch.setattr(api.rooms.decide.orders, '_leads', False)
    for given, hosts in (({'hosts': ['h0', 'h2']}, ['h0', 'h2']),
                         ({'group': 'p-a'}, ['h0', 'h1', 'h2'])):
        check = call(check_wire.ORDER, **given)
        assert check.purpose == 'check'
        found = call(check_wire.SHOW, check.check_id)
        assert sorted(found.hosts) == hosts
    assert len(call(check_wire.LIST).checks) == 2
    api.rooms.state.report('h7', made.report())
    found = call(check_wire.ORDER, purpose='discover')
    assert found.purpose == 'discover'
    assert call(rate_wire.LIST).pairs == []
    assert call(rate_wire.PERFORMERS).hosts == []
    matrix = call(rate_wire.MATRIX, 'rate', 'latest', at=5)
    assert (matrix.kind, matrix.statistic, matrix.hosts) == (
        'rate', 'latest', [])
    with pytest.raises(exception.Invalid, match='h0'):
        call(rate_wire.MATRIX, 'latency', hosts='h0,h1')
    probe = call(probe_wire.ORDER, pairs=[['h0', 'h1']], kind='bulk').id
    assert call(probe_wire.SHOW, probe).done is False
    monkeypatch.setattr(api.rooms.decide.orders, '_leads', True)
    assert call(probe_wire.SCHEDULE).enabled


def test_placements(call):
    for row in range(2):
        found = call(placement_wire.PLACE, f'g{row}',
                     **service.placement(row))
        assert found.status == 'planned'
    assert call(placement_wire.SHOW, 'g1').row == 1
    assert call(placement_wire.EXPLAIN, 'g1', 0.001).findings == []
    for asked in ((plan_wire.MOVES,), (plan_wire.LOOK,),
                  (plan_wire.LOOK, 0.001)):
        assert call(*asked).moves == []
    plan = call(plan_wire.PLAN, groups=[
        {'name': 'n', 'tm': PAIR, 'flavor': {
            'vcpus': 1, 'memory_mb': 1, 'disk_gb': 1}}], hosts=[
            {'host': 'big', 'free': {'vcpus': 3, 'memory_mb': 9,
                                     'disk_gb': 9}}])
    assert len(plan.vms) == 3
    call(notification_wire.POST, 'instance.delete.end',
         {'nova_object.data': {'uuid': 'g1'}})
    assert call(placement_wire.SHOW, 'g1').host_now is None


def test_advice_for_a_group(call):
    tree = call(group_wire.TREE, 'a', 'p', 'reduce', 2, 5e6, 'median')
    assert (tree.root, tree.size_bytes, tree.operation,
            tree.matrix) == (2, 5e6, 'reduce', 'median')
    assert call(group_wire.TREE, 'a').root == 0
    mapping = call(group_wire.MAPPING, 'a', PAIR, matrix='median')
    assert (mapping.matrix, mapping.size_bytes) == ('median', 12)
    mapping = call(group_wire.MAPPING, 'a', all_reduce_bytes=8e6)
    assert mapping.size_bytes == 8e6
    assert call(group_wire.CLUSTERS, 'a', level='host').level == 'host'
    for one in (group_wire.TREE, group_wire.MAPPING, group_wire.CLUSTERS):
        with pytest.raises(exception.NotFound):
            call(one, 'a', project_id='q')


def test_settings_and_topology(call):
    changed = call(setting_wire.CHANGE, order='sebf')
    assert changed == call(setting_wire.SHOW)
    dry = call(topology_wire.IMPORT, [PLANE], dry_run=True)
    assert not dry.applied and call(topology_wire.SHOW).planes == []
    with pytest.raises(exception.Conflict):
        call(topology_wire.IMPORT, [PLANE], generation=9)
    assert call(topology_wire.IMPORT, [PLANE], generation=0).applied
    room = {'flavor': FLAVOR, 'level': 'leaf', 'hosts': [
        {'host': 'h0', 'free': {'vcpus': 4, 'memory_mb': 9, 'disk_gb': 9}}]}
    found = call(topology_wire.CAPACITY, **room, vms=[1],
                 plane='front-end')
    assert found.domains[0].groups == {'1': 2}
    found = call(topology_wire.CAPACITY, **room)
    assert len(found.domains[0].groups) == 5
    with pytest.raises(exception.NotFound):
        call(topology_wire.CAPACITY, **room, plane='back')
    call(topology_wire.DELETE, 'front-end')
    assert call(topology_wire.SHOW).planes == []
    # Of one that fails or starts, too.
    assert call(health_wire.SHOW).status == 'failing'


@pytest.mark.parametrize('code, kind', [
    ('virtco.invalid', exception.Invalid),
    ('virtco.hint_invalid', exception.HintInvalid),
    ('virtco.infeasible', exception.PlacementInfeasible),
    ('virtco.not_found', exception.NotFound),
    ('virtco.conflict', exception.Conflict),
    ('virtco.forbidden', exception.Forbidden),
    ('virtco.database_unavailable', exception.DatabaseUnavailable),
    ('virtco.starting', exception.Starting),
    ('virtco.quota_exceeded', exception.QuotaExceeded),
    ('virtco.deposed', exception.Deposed),
    ('virtco.of_later', exception.VirtcoException)])
def test_errors_come_back(code, kind):
    client = client_of(lambda *_: (400, (
        '{"error": {"code": "%s", "detail": "so", "field": "f", "x": 1}}'
        % code).encode()))
    with pytest.raises(kind) as caught:
        client.call(setting_wire.SHOW)
    assert type(caught.value) is kind and str(caught.value) == 'so'
    assert caught.value.kwargs == {'field': 'f'}


@pytest.mark.parametrize('status, content, why', [
    (200, b'<html>', 'HTTP 200 without JSON'), (502, b'{}', 'HTTP 502'),
    (400, b'[]', 'HTTP 400'), (400, b'{"error": 1}', 'HTTP 400'),
    (404, b'{"error": {}}', 'HTTP 404')])
def test_answers_of_somebody_else(status, content, why):
    with pytest.raises(exception.ControllerUnavailable, match=why):
        client_of(lambda *_: (status, content)).call(setting_wire.SHOW)


def test_an_answer_that_lacks_a_field_is_none_of_this_api():
    with pytest.raises(exception.ControllerUnavailable,
                       match='showSettings .*`planner`'):
        client_of(lambda *_: (200, b'{}')).call(setting_wire.SHOW)


def test_calls_are_bounded_in_time():
    seen = []

    def answer(request, options):
        seen.append(options['timeout'])
        raise ks_exceptions.ConnectFailure('away')

    for options in ({}, {'timeout_s': 0.5}):
        with pytest.raises(exception.ControllerUnavailable, match='away'):
            client_of(answer, **options).call(setting_wire.SHOW)
    assert set(seen) == {10.0, 0.5}


def test_an_answer_without_content_and_one_below_400():
    assert client_of(lambda *_: (204, b'')).call(host_wire.FORGET, 'h') is None
    assert client_of(lambda *_: (399, b'"x"')).call(
        health_wire.METRICS) == 'x'


def test_arguments_that_an_operation_does_not_have_are_refused():
    client = client_of(lambda *_: (200, b'{}'))
    for call in (lambda: client.call(host_wire.SHOW, 'h1', 'h2'),
                 lambda: client.call(host_wire.SHOW, 'h1', depth=3),
                 lambda: client.call(host_wire.SHOW, 'h1', host='h2'),
                 lambda: client.call(setting_wire.SHOW, 'all')):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(TypeError, match=r'^showHost takes \(host\)$'):
        client.call(host_wire.SHOW, 'h1', 'h2')


@pytest.mark.parametrize(('path', 'verify'), [
    (None, True), ('', True), ('/ca.pem', '/ca.pem')])
def test_the_authority_of_the_environment_counts(path, verify, monkeypatch):
    monkeypatch.delenv('OS_CACERT', raising=False)
    if path is not None:
        monkeypatch.setenv('OS_CACERT', path)
    assert v1.Client('https://c')._adapter.session.verify == verify


def test_where_the_controller_is(monkeypatch):
    monkeypatch.delenv('VIRTCO_URL', raising=False)
    assert v1.Client().url == v1.DEFAULT_URL
    monkeypatch.setenv('VIRTCO_URL', 'http://env/')
    assert v1.Client().url == 'http://env'
    assert v1.Client('http://given/').url == 'http://given'


class Instance:
    """What ``openstack`` hands to a plug-in, which is a session, too."""

    region_name, interface = 'r', 'internal'
    has_controller = True

    @property
    def session(self):
        return self

    def get_endpoint(self, service_type, region_name, interface):
        return (f'http://{service_type}.{region_name}.{interface}'
                if self.has_controller else None)


def test_the_plug_in_finds_the_controller_in_the_catalogue(monkeypatch):
    monkeypatch.delenv('VIRTCO_URL', raising=False)
    instance = Instance()
    assert plugin.make_client(instance).url == 'http://coflow.r.internal'
    instance.has_controller = False
    # Not the one of the same machine, of which nobody spoke.
    with pytest.raises(exception.NotFound, match='service type coflow'):
        plugin.make_client(instance)
    monkeypatch.setenv('VIRTCO_URL', 'http://env')
    assert plugin.make_client(instance).url == 'http://env'


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
