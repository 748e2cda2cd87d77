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
