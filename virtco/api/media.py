# SPDX-License-Identifier: Apache-2.0

"""Strict JSON, and bodies that keep to their schema."""

from collections.abc import Callable
import functools
import json
from typing import Any
from typing import TypeVar

import falcon
import fastjsonschema
import jsonschema
from jsonschema import exceptions as schema_exceptions

from virtco import decoding
from virtco import exception

_T = TypeVar('_T')


def json_handler() -> falcon.media.JSONHandler:
    return falcon.media.JSONHandler(
        loads=decoding.loads,
        dumps=functools.partial(json.dumps, allow_nan=False))


def read(request: falcon.Request, schema: dict[str, Any]) -> Any:
    """The body, valid by ``schema``.

    :raises virtco.exception.Invalid: naming field, value and limit.
    """
    media = request.get_media()
    error = _first_error(media, json.dumps(schema))
    if error is not None:
        raise exception.Invalid(**decoding.described(error))
    return media


def decode(request: falcon.Request, decoder: decoding.Decoder[_T]) -> _T:
    """Read the body as a value of the decoder's type.

    :raises virtco.exception.Invalid: naming field, value and limit.
    """
    if not (request.content_type or '').startswith(falcon.MEDIA_JSON):
        request.get_media()  # which says what is wrong
    raw = request.bounded_stream.read()
    if not raw:
        raise falcon.MediaNotFoundError('JSON')
    try:
        return decoder.decode(raw)
    except ValueError as error:
        raise falcon.MediaMalformedError('JSON') from error


def check(field: str, value: Any, schema: dict[str, Any]) -> None:
    """A value that is not in the body, such as a part of the path.

    :raises virtco.exception.Invalid: naming field, value and limit.
    """
    error = _first_error(value, json.dumps(schema))
    if error is not None:
        raise exception.Invalid(**decoding.described(error) | {
            'field': field})


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
        raise exception.Invalid(field=name, value=decoding.shown(text),
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
