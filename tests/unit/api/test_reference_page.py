# SPDX-License-Identifier: Apache-2.0

"""The page of the API says of each operation what openapi.json has."""

import json
import runpy

import pytest

from tests.unit.api import test_openapi

PAGE = runpy.run_path(str(test_openapi.ROOT / 'doc/ext/api_reference.py'))
TEXT = '\n'.join(PAGE['lines'](test_openapi.DOCUMENT))


def _parts():
    """Text by the title of each operation or type."""
    found, title = {}, ''
    lines = TEXT.splitlines()
    for line, below in zip(lines, lines[1:], strict=False):
        if below and set(below) in ({'-'}, {'='}):
            title = line
        found[title] = f'{found.get(title, "")}\n{line}'
    return found


PARTS = _parts()


@pytest.mark.parametrize(('path', 'method', 'one'), test_openapi.OPERATIONS)
def test_an_operation_is_on_the_page(path, method, one):
    text = PARTS[f'``{method.upper()} {path}``']
    assert one['summary'] in text
    for name, rule in one['x-rules'].items():
        assert f'{", ".join(rule["roles"])} by the rule ``{name}``' in text
    for found in one.get('parameters', ()):
        assert f'``{found["name"]}`` in the {found["in"]}: ' in text
        assert found['description'] in text
    for status in one['responses']:
        assert f':Status {status}: ' in text
    samples = [content['example']
               for body in (one.get('requestBody', {}),
                            *one['responses'].values())
               for content in body.get('content', {}).values()
               if 'example' in content]
    assert text.count('.. code-block::') == len(samples)


@pytest.mark.parametrize('name', test_openapi.DOCUMENT['components'][
    'responses'])
def test_a_failure_is_on_the_page_once(name):
    assert f':ref:`{name} <api-failure-{name.lower()}>`' in TEXT
    assert TEXT.count(f'.. _api-failure-{name.lower()}:') == 1
    assert '"code": "virtco.' in PARTS[name]


def test_a_type_has_its_fields_with_limits():
    text = PARTS['CapacityRequest']
    assert '``hosts``: array of :ref:`Room <api-type-room>`' in text
    assert 'entries at most ``100000``' in text
    assert '``vms`` (optional): ' in text
    for name in test_openapi.DOCUMENT['components']['schemas']:
        assert f'.. _api-type-{name.lower()}:' in TEXT
        assert PARTS[name]


@pytest.mark.parametrize(('schema', 'text'), [
    ({'$ref': '#/components/schemas/Room'}, ':ref:`Room <api-type-room>`'),
    ({'enum': ['a', 'b']}, 'one of ``a``, ``b``'),
    ({'anyOf': [{'type': 'string'}, {'type': 'null'}]}, 'string or null'),
    ({'type': 'array', 'items': {'type': 'number'}}, 'array of number'),
    ({'type': 'array'}, 'array'), ({}, 'any value')])
def test_types_are_named(schema, text):
    assert PAGE['_kind'](schema) == text


def test_json_is_on_few_lines_and_the_same():
    value = {'a': [0.5, None], 'b': {str(n): 'x' * 20 for n in range(5)},
             'c': ['y' * 40] * 3}
    text = PAGE['_compact'](value)
    assert json.loads(text) == value
    assert max(map(len, text.splitlines())) <= 75
    assert '  "a": [0.5, null],' in text.splitlines()
