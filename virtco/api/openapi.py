# SPDX-License-Identifier: Apache-2.0

"""The API as OpenAPI 3.1, derived from the types of :mod:`virtco.wire`.

``python -m virtco.api.openapi`` prints it; ``doc/source/api/openapi.json`` is
what it printed last.
"""

from collections.abc import Iterator
import inspect
import json
import re
import sys
from typing import Any

import msgspec

from virtco.api import routes
from virtco.api import versions
from virtco.wire import error
from virtco.wire import operation as wire

_TEMPLATE = '#/components/schemas/{name}'
_IVAR = re.compile(r'(?ms)^:ivar (\w+): (.*?)(?=^:ivar |\Z)')


def document() -> dict[str, Any]:
    kinds = [error.Failure, *(
        kind for one in routes.OPERATIONS for kind in (
            one.body, one.query, one.answer)
        if kind not in (None, wire.NOTHING, str))]
    schemas, components = msgspec.json.schema_components(
        kinds, ref_template=_TEMPLATE)
    names = dict(zip(kinds, schemas, strict=True))
    inherited = {kind.__name__: [
        inspect.getdoc(parent) or '' for parent in kind.__mro__[-1:0:-1]
        if issubclass(parent, base)]
        for base in (wire.Response, wire.Query) for kind in _below(base)}
    for name, schema in components.items():
        _describe(schema, inherited.get(name, []))
    paths: dict[str, dict[str, Any]] = {}
    for one in routes.OPERATIONS:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(
            one, names, components)
    for one in routes.OPERATIONS:
        if one.query is not None:
            components.pop(_name(names[one.query]), None)
    return {
        'openapi': '3.1.0',
        'info': {'title': 'VirtCO', 'version': versions.VERSIONS[-1]},
        'paths': paths, 'components': {'schemas': components}}


def _below(kind: type) -> Iterator[type]:
    one: type
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)


def _name(schema: dict[str, Any]) -> str:
    return str(schema['$ref'].rpartition('/')[2])


def _describe(schema: dict[str, Any], inherited: list[str]) -> None:
    """Move what a docstring tells of fields to their properties.

    :param inherited: docstrings of its bases, the first of all first.
    """
    # Python 3.13 keeps docstrings without their indentation.
    text = inspect.cleandoc(schema.pop('description', ''))
    properties = schema.get('properties', {})
    for name, told in (pair for document in (*inherited, text)
                       for pair in _IVAR.findall(document)):
        if name in properties:
            properties[name] = {**properties[name],
                                'description': _sentence(told)}
    if rest := _IVAR.sub('', text).strip():
        schema['description'] = rest


def _sentence(text: str) -> str:
    text = ' '.join(text.split())
    return text[:1].upper() + text[1:]


def _operation(one: wire.Operation[Any], names: dict[Any, dict[str, Any]],
               components: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        'operationId': one.name, 'summary': one.summary,
        'responses': {
            str(one.status): _response(one, names),
            'default': {'description': 'An error.', 'content': _content(
                names[error.Failure])}}}
    parameters = list(_parameters(one, {} if one.query is None else
                                  components[_name(names[one.query])]))
    if parameters:
        found['parameters'] = parameters
    if one.body is not None:
        found['requestBody'] = {'required': True, 'content': _content(
            names[one.body], one.example)}
    return found


def _parameters(one: wire.Operation[Any], query: dict[str, Any]
                ) -> Iterator[dict[str, Any]]:
    in_path = re.findall(r'{(\w+)}', one.path)
    properties = query.get('properties', {})
    for name in dict.fromkeys([*in_path, *properties]):
        schema = dict(properties.get(name, {'type': 'string'}))
        described = ({'description': told} if (
            told := schema.pop('description', None)) else {})
        if schema.get('default', ...) is None:
            # A parameter that is not given has no value, not null.
            del schema['default']
            schema['anyOf'] = [kind for kind in schema['anyOf']
                               if kind != {'type': 'null'}]
            if len(schema['anyOf']) == 1:
                schema |= schema.pop('anyOf')[0]
        yield {'name': name, **described,
               'in': 'path' if name in in_path else 'query',
               'required': name in in_path, 'schema': schema}


def _response(one: wire.Operation[Any], names: dict[Any, dict[str, Any]]
              ) -> dict[str, Any]:
    if one.answer is wire.NOTHING:
        return {'description': 'Done.'}
    if one.answer is str:
        return {'description': 'Text.', 'content': {
            'text/plain': {'schema': {'type': 'string'}}}}
    return {'description': 'The answer.',
            'content': _content(names[one.answer])}


def _content(schema: dict[str, Any], example: Any = None) -> dict[str, Any]:
    found = {'schema': schema}
    if example is not None:
        found['example'] = json.loads(msgspec.json.encode(example))
    return {'application/json': found}


def render() -> str:
    return json.dumps(document(), indent=1, sort_keys=True) + '\n'


if __name__ == '__main__':
    sys.stdout.write(render())
