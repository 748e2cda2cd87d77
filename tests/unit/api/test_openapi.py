# SPDX-License-Identifier: Apache-2.0

"""The API's description and its versions."""

import json
import pathlib
import re
import types

import falcon
from falcon import testing
import pytest

from virtco.api import media
from virtco.api import openapi
from virtco.api import versions
from virtco.api.handlers import operation_routes
from virtco.conf import placement_options as placement
from virtco.conf import scheduler_options as scheduler
from virtco.objects import settings

ROOT = pathlib.Path(__file__).parents[3]


#: Recorded by tests/functional/controller/test_samples.py.
SAMPLES = json.loads((ROOT / 'doc/source/api/samples.json').read_text())
DOCUMENT = openapi.document(SAMPLES)
#: Whom no rule is asked about: versions, health and metrics.
OPEN = {'listVersions', 'showVersion', 'showHealth', 'showMetrics'}


def test_the_description_is_current():
    """``python -m virtco.api.openapi doc/source/api/samples.json >
    doc/source/api/openapi.json``.
    """
    assert (ROOT / 'doc/source/api/openapi.json').read_text() == (
        openapi.render(SAMPLES))


def resolved(response):
    return DOCUMENT['components']['responses'][
        response['$ref'].rpartition('/')[2]] if '$ref' in response else (
            response)


def test_what_forbids_an_operation_is_told():
    assert {one['operationId']: resolved(one['responses']['409'])[
        'description'] for *_, one in OPERATIONS
        if '409' in one['responses']} == {
            **dict.fromkeys((
                'announceCoflow', 'changeCoflow', 'changeProject',
                'changeSettings', 'deleteCoflow', 'deletePlane', 'drainHost',
                'forgetApp', 'importTopology', 'notify', 'orderCheck',
                'orderProbes', 'registerCoflow', 'releasePlacement',
                'undrainHost'),
                'Another request changed the same meanwhile.'),
            'forgetHost': 'VMs of groups are on the host, or planned to be.',
            'plan': 'No placement is valid.'}


LIMITS = {'enum', 'maximum', 'maxLength', 'minimum', 'pattern'}
OPERATIONS = [(path, method, one)
              for path, found in DOCUMENT['paths'].items()
              for method, one in found.items()]


@pytest.mark.parametrize(('path', 'method', 'one'), OPERATIONS, ids=[
    one['operationId'] for *_, one in OPERATIONS])
def test_an_operation_is_described(path, method, one):
    """Who may, what is asked with which parameters, and what is answered."""
    success, = (code for code in one['responses'] if code[0] == '2')
    told = one['responses'][success]
    assert ('content' in told) == (success != '204')
    for body in told.get('content', {}).values():
        assert {'schema', 'example'} <= body.keys()
    assert ('requestBody' in one) == (method in ('post', 'put', 'patch'))
    if 'requestBody' in one:
        body = one['requestBody']['content']['application/json']
        assert {'schema', 'example'} <= body.keys()
    assert one['summary'].endswith('.')
    assert bool(one['x-rules']) == (one['operationId'] not in OPEN)
    assert all(rule['roles'] for rule in one['x-rules'].values())
    for status in ('401', '403'):
        assert (status in one['responses']) == bool(one['x-rules'])
    assert ('404' in one['responses']) == ('{' in path)
    assert {'406', '429', '503'} <= one['responses'].keys()
    for code, response in one['responses'].items():
        for body in resolved(response).get('content', {}).values():
            assert body['schema'], code
            # Other failures are as different as what fails.
            assert 'example' in body or code == 'default' or (
                (code, path) == ('503', '/health'))
    parameters = one.get('parameters', [])
    for found in parameters:
        assert found['description'].endswith('.')
        assert (found['schema'].keys() & LIMITS
                or found['schema']['type'] == 'boolean')
    assert {found['name'] for found in parameters
            if found['in'] == 'path'} == set(re.findall(r'{(\w+)}', path))


def test_roles_are_those_of_the_rules():
    rules = {one['operationId']: one['x-rules'] for *_, one in OPERATIONS}
    assert rules['changeCoflow'] == {
        'virtco:coflows:end': {'check': 'rule:virtco:project_member',
                               'roles': ['admin', 'member']},
        'virtco:coflows:prioritize': {'check': 'rule:virtco:admin',
                                      'roles': ['admin']}}
    assert rules['place']['virtco:placements:update']['roles'] == [
        'admin', 'service']
    assert rules['listCoflows']['virtco:coflows:list']['roles'] == [
        'admin', 'reader']


def test_fields_are_described():
    missing = [f'{kind}.{name}' for kind, schema in DOCUMENT[
        'components']['schemas'].items()
        for name, found in schema['properties'].items()
        if 'description' not in found]
    assert missing == []


def test_operations_and_types_have_names_of_their_own():
    names = [one['operationId'] for *_, one in OPERATIONS]
    assert len(set(names)) == len(names)
    assert all('.' not in name for name
               in DOCUMENT['components']['schemas'])


def test_settings_are_those_of_the_configuration():
    assert settings.CHOICES == {
        name: tuple(choice for choice, _ in choices) for name, choices in (
            ('planner', placement.PLANNERS),
            ('objective', placement.OBJECTIVES),
            ('order', scheduler.ORDERS), ('ceil', scheduler.CEILS))}


@pytest.fixture
def client():
    app = falcon.App(middleware=[versions.Negotiation()])
    for path, handler in (('/', operation_routes.list_versions),
                          ('/v1', operation_routes.show_version)):
        app.add_route(path, types.SimpleNamespace(
            on_get=lambda _request, response, handler=handler: media.answer(
                response, handler(None))))
    return testing.TestClient(app)


def test_versions_are_told(client):
    (found,) = client.simulate_get('/').json['versions']
    assert found == client.simulate_get('/v1').json['version']
    assert (found['min_version'], found['status']) == ('1.0', 'CURRENT')


@pytest.mark.parametrize(('asked', 'status'), [
    (None, 200), ('virtco 1.0', 200), ('virtco latest', 200),
    ('compute 2.90, virtco 1.0', 200), ('compute 2.90', 200),
    ('virtco 1.1', 406), ('virtco 2.0', 406)])
def test_a_version_that_is_not_served_is_refused(client, asked, status):
    found = client.simulate_get(
        '/v1', headers={versions.HEADER: asked} if asked else {})
    assert found.status_code == status
    assert found.headers[versions.HEADER] == 'virtco 1.0'
    assert versions.HEADER in found.headers['Vary']
