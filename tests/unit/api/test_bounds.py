# SPDX-License-Identifier: Apache-2.0

"""How deep a body may be, and how often a project may ask."""

import io
import json

from hypothesis import given
from hypothesis import strategies as st
import pytest

from virtco.api import nesting

VALUES = st.recursive(
    st.none() | st.text() | st.integers(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


def depth(value):
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return 0
    return 1 + max(map(depth, value), default=0)


@given(VALUES, st.booleans())
def test_depth_is_that_of_the_parsed_body(value, ascii_only):
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    levels = depth(value)
    assert not nesting.is_deeper(body, levels)
    assert levels == 0 or nesting.is_deeper(body, levels - 1)


@pytest.mark.parametrize('body', [
    b'', b'[' * 1_000_000, b']' * 1_000_000, b'"[[[[', b'{"a": "\\"[[["}'])
def test_what_is_no_json_is_left_to_the_parser(body):
    assert not nesting.is_deeper(body, 2)


def test_the_body_is_handed_on():
    def app(environ, start_response):
        return [environ['wsgi.input'].read()]

    def ask(body):
        answers = []
        body = body.encode()
        found = nesting.checked(app)(
            {'CONTENT_LENGTH': str(len(body)), 'wsgi.input': io.BytesIO(body)},
            lambda status, headers: answers.append(status))
        return answers, b''.join(found)

    assert ask('[1]') == ([], b'[1]')
    status, answer = ask('[' * 65 + ']' * 65)
    assert status == ['400 Bad Request']
    assert json.loads(answer)['error']['field'] == 'body'


@pytest.mark.parametrize('length', ['', '0', '00', 'x', '-1'])
def test_a_body_without_a_length_is_not_read(length):
    found = nesting.checked(lambda environ, _: [environ['wsgi.input']])(
        {'CONTENT_LENGTH': length, 'wsgi.input': 'untouched'}, None)
    assert found == ['untouched']
