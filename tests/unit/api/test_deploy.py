# SPDX-License-Identifier: Apache-2.0

"""Errors as documents, open paths, and a process that is only monitored."""

import falcon
from falcon import testing
import pytest

from tests.unit.api import service
from virtco import exception
from virtco import metrics
from virtco.api import deploy
from virtco.api import errors
from virtco.api import pace


class Process:
    def __init__(self):
        self.metrics, self.is_well, self.gauged = metrics.Metrics(), True, 0

    def health(self):
        return self.is_well, {'status': str(self.is_well)}

    def gauge(self):
        self.gauged += 1


def test_a_process_tells_how_it_is():
    process = Process()
    client = testing.TestClient(deploy.monitoring(process))
    assert client.simulate_get('/health').status_code == 200
    process.is_well = False
    found = client.simulate_get('/health')
    assert (found.status_code, found.json) == (503, {'status': 'False'})
    assert 'virtco_' in client.simulate_get('/metrics').text
    assert process.gauged == 1
    missing = client.simulate_get('/v1')
    assert missing.json['error']['code'] == 'virtco.not_found'


@pytest.mark.parametrize('path, is_open', [
    ('/', True), ('/v1', True), ('/health', True), ('/metrics', True),
    ('/v1/hosts', False), ('', False)])
def test_some_paths_want_no_token(path, is_open):
    chosen = deploy._except_open(lambda *_: 'open', lambda *_: 'guarded',
                                 pace.OPEN_PATHS)
    assert chosen({'PATH_INFO': path}, None) == (
        'open' if is_open else 'guarded')


@pytest.mark.parametrize('threads, most_held', [(4, 1), (16, 2)])
def test_without_keystone_callers_are_paced_by_address(
        monkeypatch, threads, most_held):
    made, limiter = [], pace.Limiter

    def make(*values):
        made.append(values)
        return limiter(*values)

    monkeypatch.setattr(pace, 'Limiter', make)
    found = service.Service()
    found.conf.set_override('auth_strategy', 'noauth', 'api')
    found.conf.set_override('threads', threads, 'api')
    client = testing.TestClient(deploy.application(found.conf, found.rooms))
    assert client.simulate_get('/v1/coflows').status_code == 200
    assert made == [(False, most_held)]
    found.rooms.database.dispose()


def test_a_version_that_is_not_served_is_paid_for(monkeypatch):
    charged = []
    monkeypatch.setattr(
        pace.Limiter, 'process_response',
        lambda _limiter, request, *_: charged.append(request.context.charged))
    found = service.Service()
    found.conf.set_override('auth_strategy', 'noauth', 'api')
    client = testing.TestClient(deploy.application(found.conf, found.rooms))
    assert client.simulate_get('/v1/coflows', headers={
        'OpenStack-API-Version': 'virtco 9.9'}).status_code == 406
    assert charged[0][0] == '127.0.0.1'
    found.rooms.database.dispose()


def test_unknown_tokens_take_half_the_threads_at_most(monkeypatch):
    made = []

    def make(guarded, most):
        made.append(most)
        return guarded

    monkeypatch.setattr(pace, 'Strangers', make)
    found = service.Service()
    found.conf.set_override('auth_strategy', 'keystone', 'api')
    found.conf.set_override('threads', 10, 'api')
    deploy.application(found.conf, found.rooms)
    assert made == [5]
    found.rooms.database.dispose()


def test_errors_of_the_application_are_documents():
    found = service.Service()
    found.conf.set_override('auth_strategy', 'noauth', 'api')
    client = testing.TestClient(deploy.application(found.conf, found.rooms))
    for path, title in (('/v1/nothing', '404 Not Found'),
                        ('/v1/coflows/none', 'Not found')):
        missing = client.simulate_get(path)
        assert missing.status_code == 404
        error = missing.json['error']
        assert (error['code'], error['title']) == ('virtco.not_found', title)
        assert error['detail']
    found.rooms.database.dispose()


class Failing:
    def __init__(self, error):
        self._error = error

    def on_get(self, request, response):
        raise self._error


@pytest.mark.parametrize('error, status, code', [
    (exception.QuotaExceeded(field='f', value=2, limit='l'), 403,
     'virtco.quota_exceeded'),
    (exception.Invalid(field='f', value='v', limit='l'), 400,
     'virtco.invalid'),
    (exception.NotFound(what='w', id='i'), 404, 'virtco.not_found'),
    (exception.Forbidden(what='w'), 403, 'virtco.forbidden'),
    (exception.Deposed(epoch=1), 503, 'virtco.deposed'),
    (exception.DatabaseUnavailable(why='w'), 503,
     'virtco.database_unavailable'),
    (exception.KernelRefused(what='w', count=1, why='y'), 500,
     'virtco.error'),
    (RuntimeError('secret'), 500, 'virtco.error'),
    (falcon.HTTPMethodNotAllowed(['GET']), 405, 'virtco.method'),
    (falcon.HTTPGone(), 410, 'virtco.http_410'),
    (falcon.HTTPStatus(204), 204, None)])
def test_each_error_is_a_document(error, status, code):
    app = falcon.App()
    errors.add_handlers(app)
    app.add_route('/', Failing(error))
    found = testing.TestClient(app).simulate_get('/')
    assert found.status_code == status
    if code is None:
        return
    told = found.json['error']
    assert told['code'] == code and 'secret' not in told['detail']
    assert {name: told[name] for name in ('field', 'value', 'limit')
            if name in told} == {
        name: value for name, value in getattr(error, 'kwargs', {}).items()
        if name in ('field', 'value', 'limit')}
