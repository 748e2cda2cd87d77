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


@pytest.mark.parametrize(('kind', 'begin'), [
    (exception.Invalid, ''), (exception.HintInvalid, 'Hint '),
    (exception.QuotaExceeded, 'Quota of '),
    (exception.InputInvalid, 'm.csv, line 2: '),
    (exception.PolicyInvalid, 'Policy '),
    (exception.TopologyInvalid, 'Topology ')])
def test_bad_input_is_told_with_what_was_expected(kind, begin):
    fields = {'field': 'vms', 'limit': 'at most 64 VMs', 'value': 65}
    found = kind(where='m.csv, line 2', **fields)
    assert str(found) == f'{begin}vms: expected at most 64 VMs, got 65.'
    assert found.kwargs.items() >= fields.items()
    # Another process worded it.
    assert str(kind('from afar', **fields)) == 'from afar'


def test_a_missing_value_is_nothing():
    found = exception.Invalid(field='a', limit='a name', value=None)
    assert str(found) == 'a: expected a name, got nothing.'
    assert found.kwargs['value'] is None


@pytest.mark.parametrize(('length', 'is_cut'), [(160, False), (161, True)])
def test_long_fields_and_values_are_cut(length, is_cut):
    text = 'x' * length
    shown = 'x' * 159 + '…' if is_cut else text
    found = exception.Invalid(field=text, limit='a name', value=text)
    assert str(found) == f'{shown}: expected a name, got {shown}.'
    assert found.kwargs == {'field': shown, 'limit': 'a name', 'value': shown}
    lists = exception.Invalid(field='a', limit='a name', value=[text])
    assert len(str(lists)) <= 200 and lists.kwargs['value'] == [text]
