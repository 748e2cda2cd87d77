# SPDX-License-Identifier: Apache-2.0

"""Every answer names its request."""

from oslo_middleware import request_id
import pytest

from virtco.api import request_ids

GLOBAL = 'req-' + '-'.join('0' * n for n in (8, 4, 4, 4, 12))


def ask(environ):
    """The environment as the application sees it, and the headers."""
    seen, started = {}, []

    def app(environ, start_response):
        seen.update(environ)
        start_response('200 OK', [('X', 'y')])
        return [b'body']

    found = request_ids.identified(app)(
        environ, lambda status, headers: started.append((status, headers)))
    assert list(found) == [b'body']
    (status, headers), = started
    assert status == '200 OK'
    return seen, headers


def test_the_id_is_in_the_environment_and_in_the_answer():
    seen, headers = ask({})
    own = seen[request_id.ENV_REQUEST_ID]
    assert headers == [('X', 'y'),
                       (request_id.HTTP_RESP_HEADER_REQUEST_ID, own)]
    assert own != ask({})[0][request_id.ENV_REQUEST_ID]


@pytest.mark.parametrize('given, taken', [
    (GLOBAL, True), (GLOBAL + 'x', False), ('', False)])
def test_the_id_of_the_caller_is_taken_over_if_it_is_one(given, taken):
    seen, _ = ask({'HTTP_X_OPENSTACK_REQUEST_ID': given})
    assert seen.get(request_id.GLOBAL_REQ_ID) == (given if taken else None)
