# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Strict JSON, and bodies that keep to their schema."""

from collections.abc import Callable
import functools
import json
from typing import Any
from typing import NoReturn

import falcon
import fastjsonschema
import jsonschema
from jsonschema import exceptions as schema_exceptions
import msgspec

from virtco import exception

SHOWN_CHARS = 80


def _refuse_constant(text: str) -> NoReturn:
    raise exception.Invalid(field='body', value=text,
                            limit='JSON without NaN or Infinity')


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _loads(text: str) -> Any:
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise _too_deep() from None
    # Databases take neither lone surrogates nor NUL.
    if '\\u' in text:
        flat = json.dumps(value, ensure_ascii=False)
        if '\\u0000' in flat or any('\ud800' <= c <= '\udfff' for c in flat):
            raise exception.Invalid(field='body', value='an escape',
                                    limit='valid Unicode text without NUL')
    return value


def loads_bytes(body: bytes) -> Any:
    """:raises virtco.exception.Invalid:"""
    try:
        return _loads(body.decode())
    except ValueError as error:
        raise exception.Invalid(field='body', value=repr(body[:SHOWN_CHARS]),
                                limit='JSON in UTF-8') from error


def json_handler() -> falcon.media.JSONHandler:
    return falcon.media.JSONHandler(
        loads=_loads,
        dumps=functools.partial(json.dumps, allow_nan=False))


def read(request: falcon.Request, schema: dict[str, Any]) -> Any:
    """The body, valid by ``schema``.

    :raises virtco.exception.Invalid: naming field, value and limit.
    """
    media = request.get_media()
    checker(schema)(media)
    return media


def checker(schema: dict[str, Any]) -> Callable[[Any], None]:
    """What raises Invalid for a body that does not keep to the schema."""
    text = json.dumps(schema)

    def check(body: Any) -> None:
        error = _first_error(body, text)
        if error is not None:
            raise exception.Invalid(**_fields(error))

    return check


def decode(request: falcon.Request, kind: Any) -> Any:
    """The body as a value of that type.

    :raises virtco.exception.Invalid: naming field, value and limit.
    """
    if not (request.content_type or '').startswith(falcon.MEDIA_JSON):
        request.get_media()  # which says what is wrong
    raw = request.bounded_stream.read()
    if not raw:
        raise falcon.MediaNotFoundError('JSON')
    try:
        if b'\\u' in raw:
            _loads(raw.decode())
        return _decoder(kind).decode(raw)
    except msgspec.ValidationError as error:
        # A wrong type is found before the rest is read, which may be no JSON.
        first = schema_exceptions.best_match(
            _validator(kind).iter_errors(loads_bytes(raw)))
        raise exception.Invalid(**(
            _fields(first) if first is not None else
            {'field': 'body', 'value': '…', 'limit': str(error)})) from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise falcon.MediaMalformedError('JSON') from error


@functools.cache
def _decoder(kind: Any) -> 'msgspec.json.Decoder[Any]':
    return msgspec.json.Decoder(kind)


@functools.cache
def _validator(kind: Any) -> jsonschema.Draft202012Validator:
    """By the schema that is derived from the type."""
    return jsonschema.Draft202012Validator(msgspec.json.schema(kind))


def _too_deep() -> exception.Invalid:
    return exception.Invalid(field='body', value='deep nesting',
                             limit='JSON that is less deeply nested')


def check(field: str, value: Any, schema: dict[str, Any]) -> None:
    """A value that is not in the body, such as a part of the path.

    :raises virtco.exception.Invalid: naming field, value and limit.
    """
    error = _first_error(value, json.dumps(schema))
    if error is not None:
        raise exception.Invalid(**_fields(error) | {'field': field})


def number(request: falcon.Request, name: str,
           schema: dict[str, Any]) -> float | None:
    """A parameter of the query; None where it is not given.

    :raises virtco.exception.Invalid: naming field, value and limit.
    """
    text = request.get_param(name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        raise exception.Invalid(field=name, value=text[:SHOWN_CHARS],
                                limit='a number') from None
    check(name, value, schema)
    return value


def _first_error(value: Any, schema: str
                 ) -> jsonschema.ValidationError | None:
    """What is valid is found so by compiled code, twenty times as fast; what
    is not is worth the time that a good message takes.
    """
    is_valid, validator = _compiled(schema)
    try:
        is_valid(value)
    except fastjsonschema.JsonSchemaValueException:
        error: jsonschema.ValidationError | None = (
            schema_exceptions.best_match(validator.iter_errors(value)))
        return error
    return None


@functools.lru_cache(maxsize=64)
def _compiled(schema: str) -> tuple[Callable[[Any], Any],
                                    jsonschema.Draft202012Validator]:
    found = json.loads(schema)
    return (fastjsonschema.compile(found),
            jsonschema.Draft202012Validator(found))


def _fields(error: jsonschema.ValidationError) -> dict[str, Any]:
    path = ''.join(f'[{part}]' if isinstance(part, int) else f'.{part}'
                   for part in error.absolute_path).lstrip('.')
    value: Any = error.instance
    limit = str(error.message)
    limits = {
        'minimum': 'at least {}', 'maximum': 'at most {}',
        'exclusiveMinimum': 'more than {}',
        'maxLength': 'at most {} characters',
        'minLength': 'at least {} characters',
        'maxItems': 'at most {} entries', 'minItems': 'at least {} entries',
        'minProperties': 'at least {} field',
        'type': 'of type {}', 'enum': 'one of {}', 'const': '{}',
        'pattern': 'matching {}'}
    rule: Any = error.validator_value
    if error.validator == 'required':
        missing = [name for name in rule if name not in value]
        path = '.'.join(part for part in (path, missing[0]) if part)
        value, limit = None, 'it is required'
    elif error.validator == 'additionalProperties':
        schema: Any = error.schema
        unknown = [name for name in value
                   if name not in schema.get('properties', {})]
        path = '.'.join(part for part in (path, unknown[0]) if part)
        value, limit = value[unknown[0]], 'a field that is known'
    elif str(error.validator) in limits:
        limit = limits[str(error.validator)].format(rule)
    shown = json.dumps(value)
    if len(shown) > SHOWN_CHARS:
        shown = shown[:SHOWN_CHARS] + '…'
    return {'field': path or 'body', 'value': shown, 'limit': limit}
