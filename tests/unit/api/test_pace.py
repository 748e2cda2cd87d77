# SPDX-License-Identifier: Apache-2.0

"""What a caller of the API may cost."""

import falcon
from falcon import testing
import pytest

from virtco.api import pace


class Api:
    """A limiter, and requests that take a known time.

    :ivar held_s: for which refused requests were held.
    """

    def __init__(self, is_keystone=True):
        self.now_s = 100.0
        self.cpu_s = 7.0
        self.held_s = []
        self._is_keystone = is_keystone
        self._limiter = pace.Limiter(
            is_keystone, 3, lambda: self.now_s, lambda: self.cpu_s,
            self.held_s.append)

    def begin(self):
        """Begin a request, and return it."""
        request = falcon.Request(testing.create_environ('/v1/coflows') | {
            'HTTP_X_PROJECT_ID': 'p', 'HTTP_X_ROLES': 'member',
            'REMOTE_ADDR': '192.0.2.1', **(
                {pace.TOKEN: object()} if self._is_keystone else {})})
        self._limiter.process_request(request, None)
        return request

    def ask(self, took_s=0.0, project='p', roles='member', *, method='GET',
            path='/v1/coflows', address='192.0.2.1', user='u'):
        """Seconds to wait where the request is refused, else 0."""
        request = falcon.Request(testing.create_environ(
            path, method=method) | {
                'REMOTE_ADDR': address, 'HTTP_X_PROJECT_ID': project,
                'HTTP_X_USER_ID': user, 'HTTP_X_ROLES': roles, **(
                    {pace.TOKEN: object()} if self._is_keystone
                    and path not in pace.OPEN_PATHS else {})})
        try:
            self._limiter.process_request(request, None)
        except falcon.HTTPTooManyRequests as error:
            self._limiter.process_response(request, None, None, False)
            assert (project if address == '192.0.2.1' else address
                    ) in error.description
            return int(error.headers['Retry-After'])
        self.cpu_s += took_s
        self._limiter.process_response(request, None, None, True)
        return 0


def test_a_project_pays_for_the_time_that_its_requests_take():
    api = Api()
    assert api.ask(pace.BURST_CPU_S - 2 * pace.TOKEN_CPU_S) == 0
    assert api.ask(10 * pace.CPU_PER_S) == 0
    # It owes ten seconds of its pace.
    assert [api.ask() for _ in range(3)] == [11] * 3
    assert api.held_s == [pace.HELD_S] * 3
    assert api.ask(project='other') == 0
    api.now_s += 10 - pace.HELD_S - 0.1
    assert api.ask() == 2
    api.held_s.clear()
    api.now_s += 0.2
    assert api.ask() == 0
    assert api.held_s == [pytest.approx(pace.HELD_S - 0.1)]


def test_requests_under_way_are_charged_before_they_are_over():
    api = Api()
    n = int(pace.BURST_CPU_S / pace.AHEAD_CPU_S)
    requests = [api.begin() for _ in range(n + 1)]
    assert not api.held_s
    # The next one is held until there is room, one after it is refused.
    requests.append(api.begin())
    assert api.held_s == [pytest.approx(pace.AHEAD_CPU_S / pace.CPU_PER_S)]
    with pytest.raises(falcon.HTTPTooManyRequests):
        api.begin()
    for request in requests:
        api._limiter.process_response(request, None, None, True)
    api.held_s.clear()
    assert api.ask() == 0 and not api.held_s


def test_without_keystone_many_may_be_under_way():
    api = Api(is_keystone=False)
    for _ in range(100):
        api.begin()
    assert not api.held_s


def test_a_request_that_takes_no_time_had_its_token_checked():
    api = Api()
    for _ in range(int(pace.BURST_CPU_S / pace.TOKEN_CPU_S) + 1):
        assert api.ask() == 0
    assert not api.held_s
    assert api.ask() == 0
    assert api.held_s == [pytest.approx(pace.TOKEN_CPU_S / pace.CPU_PER_S)]


@pytest.mark.parametrize('who', [
    {'roles': 'member,Admin'}, {'roles': 'service'}])
def test_those_who_answer_for_the_cloud_pay_nothing(who):
    api = Api()
    assert [api.ask(100, **who) for _ in range(4)] == [0] * 4


def test_a_token_without_a_project_is_charged_to_its_user():
    api = Api()
    assert api.ask(100, project='', user='one') == 0
    assert api.ask(project='', user='one') > 1000
    assert api.ask(project='', user='two') == api.ask(user='one') == 0


@pytest.mark.parametrize('is_keystone', [True, False])
def test_open_paths_are_counted_by_address(is_keystone):
    api = Api(is_keystone)
    for _ in range(pace.OPEN_BURST + 1):
        assert api.ask(path='/health', roles='admin') == 0
    assert not api.held_s
    assert api.ask(path='/v1', address='192.0.2.2') == 0
    assert api.ask() == 0
    assert not api.held_s
    assert api.ask(path='/v1') == 0
    assert api.held_s == [pytest.approx(1 / pace.OPEN_PER_S)]
    api.now_s += 2 / pace.OPEN_PER_S
    assert api.ask(path='/metrics') == 0
    assert len(api.held_s) == 1
    for _ in range(pace.OPEN_PER_S):
        assert api.ask(path='/') == 0
    assert api.ask(path='/', project='192.0.2.1') == 2


def test_without_keystone_reading_is_charged_to_the_address():
    api = Api(is_keystone=False)
    assert api.ask(100, method='PUT', address='192.0.2.2') == 0
    assert api.ask(100, address='192.0.2.2', roles='admin') == 0
    assert api.ask(address='192.0.2.2', project='another') > 1000
    assert api.ask(method='PUT', address='192.0.2.2') == 0
    assert api.ask(address='192.0.2.3') == 0


def test_what_was_not_charged_costs_nothing():
    api = Api()
    request = falcon.Request(testing.create_environ('/v1'))
    api.cpu_s += 100
    api._limiter.process_response(request, None, None, True)
    assert api.ask() == 0


def test_few_refused_requests_are_held_at_a_time():
    held = []

    def sleep(_):
        held.append(None)
        # Another one comes meanwhile.
        api.ask()

    api = Api()
    api.ask(100)
    api._limiter._sleep = sleep
    assert api.ask() > 0
    assert len(held) == 3
    held.clear()
    assert api.ask() > 0
    assert len(held) == 3


def test_who_waits_no_longer_than_allowed_is_served():
    held_s = []
    limiter = pace.Limiter(True, 3, lambda: 0.0, lambda: 0.0, held_s.append)
    limiter._hold(pace.HELD_S, 'it asks too often')
    assert held_s == [pace.HELD_S]
    with pytest.raises(falcon.HTTPTooManyRequests):
        limiter._hold(1.001 * pace.HELD_S, 'it asks too often')


class Tokens:
    """An application in front of which one token is good.

    :ivar meanwhile: is called while a token is checked.
    """

    def __init__(self, most=2):
        self.good, self.checked = {'good'}, []
        self.meanwhile = lambda: None
        self._app = pace.Strangers(self._check, most)

    def _check(self, environ, start_response):
        token = environ['HTTP_X_AUTH_TOKEN']
        self.checked.append(token)
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        is_good = token in self.good
        if is_good:
            environ[pace.TOKEN] = object()
        # A good one may be shown beside another service's bad one.
        is_good &= environ.get('HTTP_X_SERVICE_TOKEN', '') != 'bad'
        start_response('200 OK' if is_good else '401 Unauthorized', [])
        return []

    def ask(self, token, address='192.0.2.1', **others):
        found = []
        environ = testing.create_environ('/v1/coflows') | {
            'HTTP_X_AUTH_TOKEN': token, 'REMOTE_ADDR': address, **others}
        list(self._app(environ, lambda status, _headers: found.append(
            int(status[:3]))))
        return found[0]

    def ask_during(self, n_checks, *args, **others):
        """Ask while so many other tokens of the address are checked."""
        if not n_checks:
            return self.ask(*args, **others)
        found = []
        self.meanwhile = lambda: found.append(
            self.ask_during(n_checks - 1, *args, **others))
        self.ask(f'bad-{n_checks}')
        return found[0]


def test_an_address_has_a_few_unknown_tokens_checked_at_a_time():
    tokens = Tokens()
    assert tokens.ask('good') == 200
    for n_checks, new in ((0, 401), (1, 401), (2, 429)):
        assert tokens.ask_during(n_checks, 'new') == new
        # Who was known, or is elsewhere, is answered as ever.
        assert tokens.ask_during(n_checks, 'good') == 200
        assert tokens.ask_during(n_checks, 'new', '192.0.2.2') == 401
        assert tokens.ask_during(
            n_checks, 'good', HTTP_X_SERVICE_TOKEN='bad') == new
    assert tokens._app._checking == {}
    n_checked = len(tokens.checked)
    assert tokens.ask_during(2, 'new') == 429
    assert tokens.checked[n_checked:] == ['bad-2', 'bad-1']


def test_a_token_that_expired_is_as_unknown_as_any():
    tokens = Tokens()
    assert tokens.ask('good') == 200
    tokens.good.clear()
    assert tokens.ask_during(2, 'good') == 401
    assert tokens.ask_during(2, 'good') == 429


def test_a_check_that_fails_is_over():
    def fail():
        raise OSError('keystone is away')

    tokens = Tokens(1)
    for _ in range(2):
        tokens.meanwhile = fail
        with pytest.raises(OSError, match='away'):
            tokens.ask('new')
    assert tokens.ask('new') == 401
