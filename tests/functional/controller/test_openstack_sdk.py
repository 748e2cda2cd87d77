# SPDX-License-Identifier: Apache-2.0

"""``connection.coflow`` of openstacksdk on a real controller."""

import inspect

from openstack import connection
from openstack import exceptions
import pytest

from tests.functional.controller import harness
from virtco.client import openstack_sdk
from virtco.wire import operations


@pytest.fixture(params=['coflow_endpoint_override: {url}',
                        'auth: {{endpoint: "{url}"}}'],
                ids=['override', 'catalogue'])
def coflow(shared, monkeypatch, tmp_path, request):
    """As clouds.yaml makes it, with the hook that the page names."""
    clouds = tmp_path / 'clouds.yaml'
    clouds.write_text(f'''
clouds:
  here:
    auth_type: none
    {request.param.format(url=shared.url)}
    vendor_hook: virtco.client.openstack_sdk:add
''')
    monkeypatch.setenv('OS_CLIENT_CONFIG_FILE', str(clouds))
    return connection.from_config(cloud='here').coflow


def test_a_coflow_is_registered_changed_listed_and_deleted(coflow, tenant):
    made = coflow.register_coflow('sort', [[0, 1e9], [0, 0]], tenant.project)
    assert (made.name, made.state, made.n_vms) == ('sort', 'registered', 2)
    assert made.to_dict()['size_bytes'] == 1e9
    tenant.place(0)
    found = {one.name: one for one in coflow.coflows(
        project_id=tenant.project)}
    assert found.keys() == {'sort', 'a'}
    changed = coflow.update_coflow(found['a'].id, weight=2.0)
    assert coflow.get_coflow(found['a'].id).weight == changed.weight == 2.0
    assert coflow.delete_coflow(made.id) is None
    with pytest.raises(exceptions.NotFoundException, match=made.id):
        coflow.get_coflow(made.id)


def test_hosts_have_their_name_as_id(coflow, tenant):
    hosts = tenant.launch(2, matrix='[[0, 1e9], [0, 0]]')
    tenant.edges(hosts)
    harness.wait_for(lambda: tenant.coflow()['state'] != 'planned')
    name = tenant.host(hosts[0])
    assert coflow.get_host(name).id == name
    assert name in {one.host for one in coflow.hosts()}
    assert coflow.drain_host(name, 'fans').drain == 'draining'
    coflow.undrain_host(name)
    assert coflow.get_host(name).drain is None


def test_other_answers(coflow, tenant):
    assert coflow.get_health().status == 'ok'
    assert 'virtco_coflows' in coflow.get_metrics()
    assert coflow.get_matrix('rate').values_ == coflow.get_matrix(
        kind='rate', statistic='constant').values_
    assert list(coflow.versions())[0].status == 'CURRENT'


def test_errors_tell_field_value_and_limit(coflow, tenant):
    with pytest.raises(exceptions.BadRequestException, match='weight'):
        coflow.update_project(tenant.project, weight=0)
    for wrong in (lambda: coflow.get_host('a', 'b'),
                  lambda: coflow.get_host(name='a'),
                  lambda: coflow.get_host('a', host='a')):
        with pytest.raises(TypeError, match='showHost'):
            wrong()


def test_each_operation_is_a_method_with_its_summary():
    for one in operations.OPERATIONS:
        method = getattr(openstack_sdk.Proxy, openstack_sdk.name_method(one))
        assert inspect.getdoc(method) == one.summary
