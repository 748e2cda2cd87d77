# SPDX-License-Identifier: Apache-2.0

"""The live page: who is served its files."""

import re

import falcon
from falcon import testing
import pytest

from tests.unit.api import service
from virtco import exception
from virtco.api import errors
from virtco.api import live_page


def serve(**options):
    made = service.Service()
    made.conf.set_override('ui', True, 'api')
    for name, value in options.items():
        made.conf.set_override(name, value, 'api')
    app = falcon.App()
    errors.add_handlers(app)
    live_page.add(app, made.conf)
    return made, testing.TestClient(app)


def test_the_page_is_off_unless_asked_for():
    made, _client = serve()
    made.conf.clear_override('ui', 'api')
    app = falcon.App()
    live_page.add(app, made.conf)
    assert testing.TestClient(app).simulate_get('/ui').status_code == 404
    assert live_page.open_paths(made.conf) == ()


def test_each_file_forbids_what_it_does_not_hold():
    made, client = serve()
    moved = client.simulate_get('/ui')
    assert (moved.status_code, moved.headers['location']) == (308, 'ui/')
    assert client.simulate_get('/ui/').text == client.simulate_get(
        '/ui/index.html').text
    assert client.simulate_get('/ui/..%2Flive_page.py').status_code == 404
    assert client.simulate_get('/ui/none.js').status_code == 404
    for name in live_page.files():
        found = client.simulate_get(f'/ui/{name}')
        assert found.content == live_page.files()[name]
        assert "script-src 'self'" in found.headers[
            'content-security-policy']
        assert f'/ui/{name}' in live_page.open_paths(made.conf)
    assert client.simulate_get('/ui/main.js').headers[
        'content-type'] == 'text/javascript; charset=utf-8'


def test_the_page_loads_nothing_from_elsewhere():
    for name, data in live_page.files().items():
        text = data.decode()
        assert len(text.splitlines()) <= 300, name
        if name.endswith('.html'):
            assert not re.search(r'<script>|<style|\son\w+=|style=', text)
        if name.endswith(('.html', '.css')):
            assert 'http' not in text, name
        if name.endswith('.js') and 'min' not in name:
            assert not re.search(r'innerHTML|insertAdjacent|eval\(|http',
                                 text), name


@pytest.mark.parametrize('host, is_served', [
    ('127.0.0.1', True), ('::1', True), ('10.0.0.1', False)])
def test_without_keystone_only_loopback_is_served(host, is_served):
    options = {'host': host, 'auth_strategy': 'noauth'}
    if is_served:
        assert serve(**options)[1].simulate_get('/ui/').text
        return
    with pytest.raises(exception.ConfigInvalid, match='loopback'):
        serve(**options)
    assert serve(host=host)[1].simulate_get('/ui/').text
