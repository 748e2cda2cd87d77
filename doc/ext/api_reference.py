# SPDX-License-Identifier: Apache-2.0

"""Directive ``api-reference``: the operations and types of openapi.json."""

from collections.abc import Iterator
import itertools
import json
import pathlib
from typing import Any

from docutils import nodes
from docutils import statemachine
from sphinx import application
from sphinx.util import docutils

_WIDTH = 75
#: Limits of JSON Schema, as words before the value.
_LIMITS = {'minimum': 'at least', 'exclusiveMinimum': 'more than',
           'maximum': 'at most', 'minLength': 'length at least',
           'maxLength': 'length at most', 'minItems': 'entries at least',
           'maxItems': 'entries at most', 'pattern': 'matching',
           'default': 'default'}


def lines(document: dict[str, Any]) -> Iterator[str]:
    """Yield the text of the reference: operations by path, failures, types."""
    operations = [(path, method, one)
                  for path, methods in document['paths'].items()
                  for method, one in methods.items()]
    for noun, found in itertools.groupby(sorted(
            operations, key=lambda one: _noun(one[0])),
            lambda one: _noun(one[0])):
        yield from _title(noun, '=')
        for path, method, one in found:
            yield from _title(f'``{method.upper()} {path}``', '-')
            yield from _operation(one, document['components']['responses'])
    yield from _title('Failures', '=')
    for name, response in document['components']['responses'].items():
        yield f'.. _api-failure-{name.lower()}:'
        yield from _title(name, '-')
        yield from (response['description'], '')
        yield from _sample('Answer:', response['content'])
    yield from _title('Types', '=')
    for name, schema in sorted(document['components']['schemas'].items()):
        yield f'.. _api-type-{name.lower()}:'
        yield from _title(name, '-')
        yield from (*schema.get('description', '').splitlines(), '')
        required = schema.get('required', ())
        for field, values in schema.get('properties', {}).items():
            yield from _field(f'``{field}``' + (
                '' if field in required else ' (optional)'), values)


def _noun(path: str) -> str:
    parts = path.strip('/').split('/')
    return parts[1] if len(parts) > 1 else 'service'


def _title(text: str, mark: str) -> list[str]:
    return ['', text, mark * len(text), '']


def _operation(one: dict[str, Any], common: dict[str, Any]) -> Iterator[str]:
    yield from (one['summary'], '')
    roles = ('; '.join(
        f'{", ".join(rule["roles"])} by the rule ``{name}``'
        for name, rule in one['x-rules'].items())
        or 'none, and no token')
    yield f':Operation: ``{one["operationId"]}``'
    yield f':Roles: {roles}'
    for status, response in one['responses'].items():
        if '$ref' in response:
            name = response['$ref'].rpartition('/')[2]
            yield (f':Status {status}: {common[name]["description"]} '
                   f':ref:`{name} <api-failure-{name.lower()}>`')
        else:
            yield (f':Status {status}: {response["description"]} '
                   + _kinds(response.get('content', {})))
    yield ''
    for found in one.get('parameters', ()):
        yield from _field(f'``{found["name"]}`` in the {found["in"]}', {
            **found['schema'], 'description': found['description']})
    request = one.get('requestBody', {}).get('content', {})
    yield from _sample(f'Request: {_kinds(request)}', request)
    for response in one['responses'].values():
        yield from _sample('Answer:', response.get('content', {}))


def _kinds(content: dict[str, Any]) -> str:
    return ', '.join(_kind(one['schema']) for one in content.values())


def _field(name: str, schema: dict[str, Any]) -> list[str]:
    limits = ', '.join(
        f'{words} ``{json.dumps(schema[limit])}``'
        for limit, words in _LIMITS.items() if limit in schema)
    return [f'{name}: {_kind(schema)}{limits and f", {limits}"}',
            f'   {schema.get("description", "")}', '']


def _kind(schema: dict[str, Any]) -> str:
    """Return the type of a value as text; a type of its own is a link."""
    if '$ref' in schema:
        name = schema['$ref'].rpartition('/')[2]
        return f':ref:`{name} <api-type-{name.lower()}>`'
    if 'enum' in schema:
        return 'one of ' + ', '.join(f'``{one}``' for one in schema['enum'])
    if 'anyOf' in schema:
        return ' or '.join(map(_kind, schema['anyOf']))
    if 'items' in schema and schema['items']:
        return f'array of {_kind(schema["items"])}'
    return str(schema.get('type', 'any value'))


def _sample(title: str, content: dict[str, Any]) -> Iterator[str]:
    for media, one in content.items():
        if 'example' in one:
            is_json = media.endswith('json')
            yield from (title, '', f'.. code-block:: '
                        f'{"json" if is_json else "text"}', '')
            text = _compact(one['example']) if is_json else one['example']
            yield from (f'   {line}' for line in text.splitlines())
            yield ''


def _compact(value: Any, indent: str = '') -> str:
    """Write JSON with each array and object on one line where it fits."""
    flat = json.dumps(value)
    if len(indent + flat) <= _WIDTH or not isinstance(value, dict | list):
        return flat
    below = indent + '  '
    if isinstance(value, dict):
        entries = [f'{json.dumps(name)}: {_compact(one, below)}'
                   for name, one in value.items()]
        begin, end = '{}'
    else:
        entries = [_compact(one, below) for one in value]
        begin, end = '[]'
    return (f'{begin}\n{below}' + f',\n{below}'.join(entries)
            + f'\n{indent}{end}')


class Reference(docutils.SphinxDirective):
    """Reference of the file that the argument names."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name, path = self.env.relfn2path(self.arguments[0])
        self.env.note_dependency(name)
        text = lines(json.loads(pathlib.Path(path).read_text()))
        found = nodes.section()
        found.document = self.state.document
        self.state.nested_parse(
            statemachine.StringList(list(text), name), 0, found,
            match_titles=True)
        return found.children


def setup(app: application.Sphinx) -> dict[str, bool]:
    app.add_directive('api-reference', Reference)
    return {'parallel_read_safe': True}
