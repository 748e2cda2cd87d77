# SPDX-License-Identifier: Apache-2.0

"""How deep a body may be, and how often a project may ask."""

import io
import json

from hypothesis import given
from hypothesis import strategies as st
import pytest

from virtco.api import nesting
from virtco.api import pace

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


def test_a_project_asks_in_bursts_and_then_at_its_pace():
    now_s = 100.0
    found = pace.Pace(per_s=2, burst=3, clock=lambda: now_s)
    assert [found.wait_s('a') for _ in range(4)] == [0, 0, 0, 0.5]
    assert found.wait_s('b') == 0
    now_s += 0.5
    assert [found.wait_s('a') for _ in range(2)] == [0, 0.5]
    now_s += 100
    assert [found.wait_s('a') for _ in range(4)] == [0, 0, 0, 0.5]


def test_what_is_remembered_of_projects_is_bounded(monkeypatch):
    monkeypatch.setattr(pace, 'MOST_PROJECTS', 10)
    now_s = 100.0
    found = pace.Pace(per_s=1, burst=1, clock=lambda: now_s)
    for number in range(50):
        assert found.wait_s(f'p{number}') == 0
        now_s += 0.2
    assert len(found._full_s) <= 10


def test_no_limit():
    found = pace.Pace(0, 1)
    assert [found.wait_s('a') for _ in range(1000)] == [0] * 1000


@pytest.mark.parametrize('length', ['', '0', '00', 'x', '-1'])
def test_a_body_without_a_length_is_not_read(length):
    found = nesting.checked(lambda environ, _: [environ['wsgi.input']])(
        {'CONTENT_LENGTH': length, 'wsgi.input': 'untouched'}, None)
    assert found == ['untouched']
