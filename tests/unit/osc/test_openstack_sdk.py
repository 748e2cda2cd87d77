# SPDX-License-Identifier: Apache-2.0

"""Methods and resources of openstacksdk that are made from operations."""

import inspect
import json

from openstack import connection
from openstack import exceptions
from openstack import proxy
from openstack import resource
import pytest

from tests.unit.osc import test_client
from virtco.client import openstack_sdk
from virtco.wire import coflow_bodies
from virtco.wire import group
from virtco.wire import operations

api = test_client.api
answer = test_client.answer


def proxy_of(answer):
    return connection.Connection(
        session=test_client.session_of(answer),
        vendor_hook='virtco.client.openstack_sdk:add').coflow


@pytest.fixture
def coflow(answer):
    return proxy_of(answer)


def test_each_operation_is_a_method():
    assert {one.name for one in operations.OPERATIONS} == {
        one.name for one in operations.OPERATIONS}
    names = {openstack_sdk.name_method(one)
             for one in operations.OPERATIONS}
    assert len(names) == len(operations.OPERATIONS)
    assert {'coflows', 'get_coflow', 'update_coflow', 'delete_coflow',
            'register_coflow', 'place', 'plan', 'order_probes'} < names
    assert not [name for name in names if hasattr(proxy.Proxy, name)]
    for one in operations.OPERATIONS:
        method = getattr(openstack_sdk.Proxy, openstack_sdk.name_method(one))
        assert inspect.getdoc(method) == one.summary


def test_arguments_have_names():
    assert str(inspect.signature(openstack_sdk.Proxy.announce_coflow)) == (
        '(self, group, name=None, tm=None, expires_s=None, project_id=None)')


def test_a_list_is_an_iterator_of_resources(coflow):
    one, = found = list(coflow.coflows(project_id='p'))
    assert type(one) is type(coflow.get_coflow(one.id))
    assert type(one).__name__ == 'Coflow'
    assert type(one).__doc__ == coflow_bodies.Coflow.__doc__
    assert isinstance(found[0], resource.Resource)
    assert one.group_name == 'a'
    assert inspect.isgenerator(coflow.hosts())


def test_answers_without_fields(coflow):
    made = coflow.register_coflow('m', test_client.PAIR, 'q')
    assert made.to_dict()['project_id'] == 'q'
    assert coflow.delete_coflow(made.id) is None


def test_the_path_names_the_id(coflow):
    assert coflow.get_host('h1').id == coflow.get_host('h1').host == 'h1'
    assert coflow.get_project('p').id == 'p'
    matrix = coflow.get_matrix('rate')
    assert matrix.values_ == [] and callable(matrix.values)


@pytest.mark.parametrize(('kind', 'item'), [
    (coflow_bodies.Coflows, coflow_bodies.Coflow),
    (coflow_bodies.Coflow, None), (group.Tree, None), (str, None),
    (type(None), None)])
def test_a_list_of_structs_is_found(kind, item):
    assert openstack_sdk._item(kind) is item


def test_an_error_has_the_status_and_the_detail(coflow):
    with pytest.raises(exceptions.NotFoundException,
                       match='Host h7 was not found'):
        coflow.get_host('h7')
    with pytest.raises(exceptions.BadRequestException, match='weight'):
        coflow.update_project('p', weight=0)


@pytest.mark.parametrize('body', [b'no JSON', b'[]', b'{}', b'{"error": 1}'])
def test_an_error_of_others_has_its_status(body):
    with pytest.raises(exceptions.HttpException) as caught:
        proxy_of(lambda *_request: (502, body)).get_host('h')
    assert caught.value.status_code == 502


@pytest.mark.parametrize('status', [200, 503])
def test_a_process_that_fails_answers_as_well(status):
    found = proxy_of(lambda *_request: (
        status, json.dumps({'status': 'x'}).encode())).get_health()
    assert found.status == 'x'


def test_text_is_text():
    assert proxy_of(lambda *_request: (200, b'a 1')).get_metrics() == 'a 1'


def test_a_request_has_the_arguments():
    asked = []

    def answer(request, _options):
        asked.append((request.method, request.path_url,
                      json.loads(request.body or 'null')))
        return 200, b'{"coflows": []}'

    coflow = proxy_of(answer)
    assert list(coflow.coflows('p', state=None)) == []
    assert list(coflow.announce_coflow('a b', 'n', [[0]],
                                       project_id='p')) == []
    assert asked == [
        ('GET', '/v1/coflows?project_id=p', None),
        ('POST', '/v1/groups/a%20b/coflows?project_id=p',
         {'name': 'n', 'tm': [[0]]})]
