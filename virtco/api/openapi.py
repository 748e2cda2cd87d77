# SPDX-License-Identifier: Apache-2.0

"""The API as OpenAPI 3.1, derived from the types of :mod:`virtco.wire` and the
rules of :mod:`virtco.api.policies`.

``python -m virtco.api.openapi SAMPLES`` prints it with the requests and
answers of a file; ``doc/source/api/openapi.json`` is what it printed last.
"""

from collections.abc import Iterator
from collections.abc import Mapping
import inspect
import json
import pathlib
import re
import sys
from typing import Any

import msgspec

from virtco.api import policies
from virtco.api import versions
from virtco.wire import error
from virtco.wire import fields
from virtco.wire import operation as wire
from virtco.wire import operations

_TEMPLATE = '#/components/schemas/{name}'
_IVAR = re.compile(r'(?ms)^:ivar (\w+): (.*?)(?=^:ivar |\Z)')


#: Request, status, response, and failures by status, of each operation.
Samples = Mapping[str, Mapping[str, Any]]

#: Failures that operations have in common: status, name and description.
_COMMON = (
    (400, 'Invalid', 'A field or parameter is not valid.'),
    (403, 'Forbidden', 'No rule allows it to the caller, or a quota is full.'),
    (404, 'NotFound', 'Nothing has this name or id.'),
    (406, 'VersionNotServed', 'The API has no such version.'),
    (409, 'Overtaken', wire.OVERTAKEN),
    (429, 'TooManyRequests', 'The caller asks too often; Retry-After has the '
     'time to wait, in seconds.'),
    (503, 'Unavailable', 'The controller starts, or has no database.'))


def document(samples: Samples) -> dict[str, Any]:
    """Describe the API in OpenAPI, with samples of requests and answers."""
    kinds = [error.Failure, fields.Path, *(
        kind for one in operations.OPERATIONS for kind in (
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
    told = {status: body for sample in samples.values()
            for status, body in sample.get('failures', {}).items()}
    common = {name: {'description': text, 'content': _content(
        names[error.Failure], told.get(str(status)))}
        for status, name, text in _COMMON}
    paths: dict[str, dict[str, Any]] = {}
    for one in operations.OPERATIONS:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(
            one, names, components, samples.get(one.name, {}))
    for kind in {fields.Path, *(one.query for one in operations.OPERATIONS)}:
        if kind is not None:
            components.pop(_name(names[kind]))
    return {
        'openapi': '3.1.0',
        'info': {'title': 'VirtCO', 'version': versions.VERSIONS[-1]},
        'paths': paths,
        'components': {'schemas': components, 'responses': common}}


def _below(kind: type) -> Iterator[type]:
    one: type
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)


def _name(schema: dict[str, Any]) -> str:
    return str(schema['$ref'].rpartition('/')[2])


def _describe(schema: dict[str, Any], inherited: list[str]) -> None:
    """Move the texts of fields from a docstring to their properties.

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
               components: dict[str, Any], sample: Mapping[str, Any]
               ) -> dict[str, Any]:
    rules = policies.rules_of(one)
    failure = {'content': _content(names[error.Failure])}
    is_possible = {400: bool(one.parameters), 403: bool(rules),
                   404: '{' in one.path, 409: bool(one.conflict)}
    # Keystone's middleware answers so, with a text of its own.
    unauthorized = {'401': {'description': 'There is no valid token.'}}
    found: dict[str, Any] = {
        'operationId': one.name, 'summary': one.summary,
        'x-rules': {rule.name: {'check': rule.check_str, 'roles': roles}
                    for rule, roles in rules},
        'responses': {
            str(one.status): _response(one, names, sample.get('response')),
            **(unauthorized if rules else {}),
            **{str(status): {'$ref': f'#/components/responses/{name}'}
               for status, name, _text in _COMMON
               if is_possible.get(status, True)},
            'default': {'description': 'An error.', **failure}}}
    if one.conflict not in ('', wire.OVERTAKEN):
        found['responses']['409'] = {
            'description': one.conflict, 'content': _content(
                names[error.Failure], sample.get('failures', {}).get('409'))}
    in_paths, in_query = (
        {} if kind is None else components[_name(names[kind])]['properties']
        for kind in (fields.Path, one.query))
    if one.failed_status is not None:
        found['responses'][str(one.failed_status)] = _response(one, names)
    parameters = list(_parameters(one, in_paths, in_query))
    if parameters:
        found['parameters'] = parameters
    if one.body is not None:
        found['requestBody'] = {'required': True, 'content': _content(
            names[one.body], sample.get('request', {}).get('body'))}
    return found


def _parameters(one: wire.Operation[Any], in_paths: dict[str, Any],
                in_query: dict[str, Any]) -> Iterator[dict[str, Any]]:
    in_path = re.findall(r'{(\w+)}', one.path)
    properties = in_query | {
        name: in_paths[name] for name in in_path if name in in_paths}
    for name in dict.fromkeys([*in_path, *in_query]):
        schema = dict(properties[name])
        told = schema.pop('description')
        if schema.get('default', ...) is None:
            # A parameter that is not given has no value, not null.
            del schema['default']
            schema['anyOf'] = [kind for kind in schema['anyOf']
                               if kind != {'type': 'null'}]
            if len(schema['anyOf']) == 1:
                schema |= schema.pop('anyOf')[0]
        yield {'name': name, 'description': told,
               'in': 'path' if name in in_path else 'query',
               'required': name in in_path, 'schema': schema}


def _response(one: wire.Operation[Any], names: dict[Any, dict[str, Any]],
              sample: Any = None) -> dict[str, Any]:
    if one.answer is wire.NOTHING:
        return {'description': 'Done.'}
    if one.answer is str:
        return {'description': 'Text.', 'content': {'text/plain': {
            'schema': {'type': 'string'}, 'example': sample}}}
    return {'description': 'The answer.',
            'content': _content(names[one.answer], sample)}


def _content(schema: dict[str, Any], sample: Any = None) -> dict[str, Any]:
    return {'application/json': {'schema': schema} | (
        {} if sample is None else {'example': sample})}


def render(samples: Samples) -> str:
    """Return :func:`document` as indented JSON with sorted keys."""
    return json.dumps(document(samples), indent=1, sort_keys=True) + '\n'


if __name__ == '__main__':
    sys.stdout.write(render(json.loads(
        pathlib.Path(sys.argv[1]).read_text(encoding='utf-8'))))
