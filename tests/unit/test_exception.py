# SPDX-License-Identifier: Apache-2.0

"""Why a call failed, in the operating system's words."""

import socket

from keystoneauth1 import adapter
from keystoneauth1 import noauth
from keystoneauth1 import session
import pytest
import urllib3

from virtco import exception


@pytest.fixture
def closed_port():
    with socket.socket() as taken:
        taken.bind(('127.0.0.1', 0))
        yield taken.getsockname()[1]


@pytest.fixture
def silent_port():
    with socket.create_server(('127.0.0.1', 0)) as listening:
        yield listening.getsockname()[1]


def through_keystoneauth(port):
    adapter.Adapter(session.Session(auth=noauth.NoAuth()),
                    endpoint_override=f'http://127.0.0.1:{port}').get(
                        '/', timeout=0.05)


def through_a_pool(port):
    with urllib3.PoolManager(retries=False, timeout=0.05) as pool:
        pool.request('GET', f'http://127.0.0.1:{port}/')


@pytest.mark.parametrize('call', [through_keystoneauth, through_a_pool])
def test_no_repr_of_a_pool(call, closed_port, silent_port):
    for port, text in ((closed_port, 'connection refused'),
                       (silent_port, 'timed out')):
        with pytest.raises(Exception) as caught:
            call(port)
        assert exception.reason(caught.value) == text


def test_what_has_no_such_cause():
    assert exception.reason(ValueError('x' * 500)) == 'x' * 200


def caused(error, cause=None, context=None):
    error.__cause__, error.__context__ = cause, context
    return error


class PoolTimeoutError(Exception):
    """As libraries call their own."""


REFUSED = OSError(111, 'Connection refused')


@pytest.mark.parametrize(('error', 'told'), [
    (REFUSED, 'connection refused'), (OSError('odd'), 'odd'),
    (OSError(5, ''), "[Errno 5] "), (TimeoutError(), 'timed out'),
    (PoolTimeoutError(), 'timed out'),
    (caused(ValueError('x'), REFUSED), 'connection refused'),
    (caused(ValueError('x'), None, REFUSED), 'connection refused'),
    # What it was raised from tells more than what was under way.
    (caused(ValueError('x'), KeyError('y'), REFUSED), 'x'),
    (ValueError('x' * 201), 'x' * 200)])
def test_why_a_call_failed(error, told):
    assert exception.reason(error) == told


def test_an_error_has_words_of_its_own_or_of_its_kind():
    found = exception.NotFound(what='Group', id='g')
    assert str(found) == 'Group g was not found.'
    assert found.kwargs == {'what': 'Group', 'id': 'g'}
    assert str(exception.NotFound('gone')) == 'gone'
