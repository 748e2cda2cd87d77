# SPDX-License-Identifier: Apache-2.0

"""Bad input: 400 that names field, value and limit; nothing half-written."""

import json

import pytest
import requests

from tests.functional.controller import harness
from tests.functional.controller import stream

REPORT = {'epoch': 'e', 'applied_generation': 0,
          'link': {'egress_bps': 1e8, 'ingress_bps': 1e8},
          'ports': [], 'coflows': [], 'uplink_sent_bytes': 0}
MEASUREMENT = {'probe_id': 'p', 'src': 'a', 'dst': 'b', 'rate_bps': 1e8}


def placement(**changes):
    return harness.placement(0, project_id='p', **changes)


def host(**changes):
    return {'host': 'h', 'free': {'vcpus': 1, 'memory_mb': 1,
                                  'disk_gb': 1}} | changes


@pytest.mark.parametrize(('method', 'path', 'body', 'field'), [
    ('PUT', '/v1/placements/u', {}, 'project_id'),
    ('PUT', '/v1/placements/u', [], 'body'),
    ('PUT', '/v1/placements/u', placement(flavor={}), 'flavor.vcpus'),
    ('PUT', '/v1/placements/u', placement(hosts={}) | {'hosts': []},
     'hosts'),
    ('PUT', '/v1/placements/u', placement() | {'hosts': [host(host='a b')]},
     'hosts[0].host'),
    ('PUT', '/v1/placements/u', placement() | {'hosts': [host(free={
        'vcpus': -1, 'memory_mb': 1, 'disk_gb': 1})]},
     'hosts[0].free.vcpus'),
    ('PUT', '/v1/placements/u', placement(num_instances=0), 'num_instances'),
    ('PUT', '/v1/placements/u', placement(hints={'virtco:tm': 5}),
     'hints.virtco:tm'),
    ('PUT', '/v1/placements/' + 37 * 'u', placement(), 'instance_uuid'),
    ('PUT', '/v1/placements/%00', placement(), 'instance_uuid'),
    ('PUT', '/v1/placements/u%0A', placement(), 'instance_uuid'),
    ('PATCH', '/v1/projects/%00', {'weight': 1}, 'project_id'),
    ('GET', '/v1/coflows/%00', None, 'coflow_id'),
    ('GET', '/v1/profiles/a?project_id=%00', None, 'project_id'),
    ('POST', '/v1/coflows', {'name': 'a', 'tm': []}, 'project_id'),
    ('POST', '/v1/coflows', {'name': '', 'tm': []}, 'name'),
    ('POST', '/v1/coflows', {'project_id': 'p', 'name': 'a',
                             'tm': [[0, -1], [0, 0]]}, 'virtco:tm[0][1]'),
    ('GET', '/v1/coflows?state=new', None, 'state'),
    ('PATCH', '/v1/projects/p', {}, 'body'),
    ('PATCH', '/v1/projects/p', {'weight': 0}, 'weight'),
    ('PATCH', '/v1/projects/p', {'debt_bytes': 5}, 'debt_bytes'),
    ('PATCH', '/v1/projects/p', {'priority_class': 1.5}, 'priority_class'),
    ('PATCH', '/v1/projects/p', {'state': 'done'}, 'state'),
    ('PATCH', '/v1/projects/' + 256 * 'p', {'weight': 1}, 'project_id'),
    ('PATCH', '/v1/settings', {'order': 'mine'}, 'order'),
    ('PATCH', '/v1/settings', {'colour': 'red'}, 'colour'),
    ('PATCH', '/v1/settings', {}, 'body'),
    ('POST', '/v1/notifications', {'event_type': 'a'}, 'payload'),
    ('POST', '/v1/plans', {'groups': [], 'hosts': [host()]}, 'groups'),
])
def test_an_offence_names_its_field(shared, method, path, body, field):
    error = shared.call(method, path, body, 400)['error']
    assert error['field'] == field, error
    assert error['code'] in ('virtco.invalid', 'virtco.hint_invalid')
    assert error['limit']
    assert 'value' in error
    assert field in error['detail']


@pytest.mark.parametrize(('kind', 'body', 'field'), [
    ('report', REPORT | {'epoch': ''}, 'report.epoch'),
    ('report', REPORT | {'link': {'egress_bps': 0, 'ingress_bps': 1e8}},
     'report.link.egress_bps'),
    ('report', REPORT | {'coflows': [{'coflow_id': 'a', 'sent_bytes': -5}]},
     'report.coflows[0].sent_bytes'),
    ('measurement', MEASUREMENT | {'rate_bps': 0}, 'measurement.rate_bps'),
    ('measurement', MEASUREMENT | {'loss': 2}, 'measurement.loss'),
    ('hello', {'host': 'a b'}, 'host')])
def test_an_offence_over_the_stream_names_its_field(shared, kind, body,
                                                    field):
    port = shared.stream_port()
    found = stream.Stream(port, **{'host': 'h'} | (
        body if kind == 'hello' else {}))
    if kind != 'hello':
        found.say(kind, **{kind: body})
    why, _leader = found.wait_refused()
    found.close()
    assert field in why, why


@pytest.mark.parametrize(('text', 'status', 'code'), [
    (b'{', 400, 'virtco.malformed'),
    (b'', 400, 'virtco.no_body'),
    (b'\xff\xfe', 400, 'virtco.malformed'),
    (b'{"order": NaN}', 400, 'virtco.invalid'),
    (b'[' * 100_000, 400, 'virtco.invalid'),
    (b'{"order": "\\ud800"}', 400, 'virtco.invalid'),
    (b'{"order": "\\u0000"}', 400, 'virtco.invalid'),
    (b'{"order": ' + b'9' * 5000 + b'}', 400, None),
])
def test_text_that_is_no_json(shared, text, status, code):
    response = requests.patch(
        shared.url + '/v1/settings', data=text, timeout=10,
        headers={'Content-Type': 'application/json'})
    assert response.status_code == status, response.text
    if code is not None:
        assert response.json()['error']['code'] == code


def test_a_body_that_is_too_long(shared):
    response = requests.patch(shared.url + '/v1/settings', timeout=60,
                              data=b' ' * (5 * 1024 * 1024))
    assert response.status_code == 413


def test_what_is_not_there(shared):
    for method, path, status in (
            ('GET', '/v1/nothing', 404), ('GET', '/v1/coflows/no', 404),
            ('PATCH', '/v1/coflows/no', 404),
            ('DELETE', '/v1/coflows/no', 404),
            ('GET', '/v1/placements/no', 404),
            ('DELETE', '/v1/placements/no', 404),
            ('DELETE', '/v1/settings', 405)):
        body = {'state': 'done'} if method == 'PATCH' else None
        error = shared.call(method, path, body, status)['error']
        assert error['code'].startswith('virtco.')


def test_half_a_request_writes_nothing(tenant):
    body = harness.placement(0, project_id=tenant.project)
    body['hosts'].append({'host': 'late', 'free': {'vcpus': 'many'}})
    tenant.call('PUT', f'/v1/placements/{tenant.instance(0)}', body, 400)
    assert tenant.coflows() == []
    tenant.stored(0, 404)


def test_matrices_are_registered_shown_and_deleted(tenant):
    found = tenant.call('POST', '/v1/coflows', {
        'project_id': tenant.project, 'name': 'm',
        'tm': json.dumps([[0, '1MB'], [0, 0]])}, 201)
    assert (found['state'], found['n_vms'], found['size_bytes']) == (
        'registered', 2, 1e6)
    path = f'/v1/coflows/{found["id"]}'
    assert tenant.call('GET', path)['id'] == found['id']
    error = tenant.call('PATCH', path, {'state': 'done'}, 400)['error']
    assert error['field'] == 'state'
    tenant.call('DELETE', path, status=204)
    tenant.call('GET', path, status=404)


def test_operators_set_class_and_weight(tenant):
    tenant.place(0)
    path = f'/v1/coflows/{tenant.coflow()["id"]}'
    found = tenant.call('PATCH', path, {'priority_class': -1, 'weight': 2.5})
    assert (found['priority_class'], found['weight']) == (-1, 2.5)
    assert tenant.call('PATCH', path, {'weight': 0}, 400)


def test_operators_set_class_and_weight_of_a_project(tenant):
    """Of its coflows in flight and of those to come, of no others."""
    tenant.place(0)
    path = f'/v1/projects/{tenant.project}'
    default = {'project_id': tenant.project, 'priority_class': 0,
               'weight': 1.0, 'debt_bytes': 0.0}
    assert tenant.call('GET', path) == default
    found = tenant.call('PATCH', path, {'priority_class': -7})
    assert found == default | {'priority_class': -7}
    tenant.call('PATCH', path, {'weight': 3})
    tenant.place(10, 'later')
    other = tenant.controller.tenant()
    other.place(0)

    def given(project):
        return {(c['name'], c['priority_class'], c['weight'])
                for c in project.coflows()}

    assert given(tenant) == {('a', -7, 3.0), ('later', -7, 3.0)}
    assert given(other) == {('a', 0, 1.0)}
    tenant.call('PATCH', f'/v1/coflows/{tenant.coflow()["id"]}',
                {'priority_class': 5})
    assert given(tenant) == {('a', 5, 3.0), ('later', -7, 3.0)}
    assert default | {'priority_class': -7, 'weight': 3.0} in tenant.call(
        'GET', '/v1/projects')['projects']


def test_releasing_a_placement(tenant):
    tenant.place(0)
    tenant.call('DELETE', f'/v1/placements/{tenant.instance(0)}', status=204)
    assert tenant.coflow()['state'] == 'retired'


def test_health_and_metrics(shared, tenant):
    assert shared.call('GET', '/health')['parts'] == {
        'planner': True, 'scheduler': True, 'keeper': True,
        'distributor': True, 'database': True}
    before = shared.metrics()
    tenant.place(0)
    metrics = shared.metrics()
    grown = {name: metrics[name] - before[name] for name in (
        'virtco_placement_seconds_count', 'virtco_placement_seconds_sum')}
    assert grown['virtco_placement_seconds_count'] == 1
    assert grown['virtco_placement_seconds_sum'] > 0
    for state in ('registered', 'planned', 'active', 'done', 'retired'):
        assert f'virtco_coflows{{state="{state}"}}' in metrics
