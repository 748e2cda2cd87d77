# SPDX-License-Identifier: Apache-2.0

"""The API's description and its versions."""

import pathlib

import falcon
from falcon import testing
import pytest

from virtco.api import openapi
from virtco.api import versions

ROOT = pathlib.Path(__file__).parents[3]


def test_the_description_is_current():
    """``python -m virtco.api.openapi > doc/source/api/openapi.json``."""
    assert (ROOT / 'doc/source/api/openapi.json').read_text() == (
        openapi.render())


def test_bodies_belong_to_paths():
    paths = openapi.document()['paths']
    for method, path in openapi.BODIES:
        assert 'requestBody' in paths[path][method]
    assert {(method, path) for path, found in paths.items()
            for method in found if method in ('post', 'put', 'patch')} == (
        openapi.BODIES.keys())


@pytest.fixture
def client():
    app = falcon.App(middleware=[versions.Negotiation()])
    app.add_route('/', versions.Versions(True))
    app.add_route('/v1', versions.Versions(False))
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
