# SPDX-License-Identifier: Apache-2.0

"""JSON of others as typed values; what is wrong is told in one line. Pure.

The one decoder of REST bodies and of the frames that edge modules send.
"""

import json
import typing
from typing import Any
from typing import Generic
from typing import NoReturn
from typing import TypeVar

import jsonschema
from jsonschema import exceptions as schema_exceptions
import msgspec

from virtco import exception

SHOWN_CHARS = 80
_LIMITS = {
    'minimum': 'at least {}', 'maximum': 'at most {}',
    'exclusiveMinimum': 'more than {}',
    'maxLength': 'at most {} characters',
    'minLength': 'at least {} characters',
    'maxItems': 'at most {} entries', 'minItems': 'at least {} entries',
    'maxProperties': 'at most {} fields',
    'minProperties': 'at least {} field',
    'type': 'of type {}', 'enum': 'one of {}', 'const': '{}',
    'pattern': 'matching {}'}
_T = TypeVar('_T')


class Decoder(Generic[_T]):
    """Decoder of one type, for a constant of a module.

    msgspec describes a Struct when a decoder first needs it, shows that
    description to other threads before it is complete, and crashes in a
    thread that uses it. An import is made by one thread.

    :param kind: a type, or a union of tagged Structs.
    :param named: of the whole, where an error tells of no single field.
    """

    def __init__(self, kind: Any, named: str = 'body'):
        self._named = named
        self._decoder = msgspec.json.Decoder(kind)
        members = typing.get_args(kind) or (kind,)
        # Schemas of each tag, for errors only.
        self._validators = {
            str(member.__struct_config__.tag):
                jsonschema.Draft202012Validator(msgspec.json.schema(member))
            for member in members}
        self._tag_field = members[0].__struct_config__.tag_field

    def decode(self, raw: bytes) -> _T:
        """
        :raises virtco.exception.Invalid: naming field, value and limit.
        :raises ValueError: for what is no JSON.
        """
        try:
            # Databases take neither lone surrogates nor NUL.
            if b'\\u' in raw:
                loads(raw.decode())
            found: _T = self._decoder.decode(raw)
            return found
        except msgspec.ValidationError as error:
            # A wrong type is found before the rest is read, which may be no
            # JSON.
            self._refuse(loads(raw.decode()), str(error))
        except RecursionError:
            raise _too_deep() from None

    def _refuse(self, value: Any, why: str) -> NoReturn:
        """Only what is wrong is worth the time that a good message takes."""
        tag = 'None'
        if self._tag_field is not None:
            if not isinstance(value, dict):
                raise exception.Invalid(
                    field=self._named, value=shown(value),
                    limit=f'an object with a {self._tag_field}')
            tag = str(value.get(self._tag_field))
        if tag not in self._validators:
            raise exception.Invalid(
                field=self._tag_field, value=shown(tag),
                limit=f'one of {", ".join(self._validators)}')
        first = schema_exceptions.best_match(
            self._validators[tag].iter_errors(value))
        raise exception.Invalid(**(
            described(first, self._named) if first is not None else
            {'field': self._named, 'value': '…', 'limit': why})) from None


def _refuse_constant(text: str) -> NoReturn:
    raise exception.Invalid(field='body', value=text,
                            limit='JSON without NaN or Infinity')


_PLAIN = json.JSONDecoder(parse_constant=_refuse_constant)


def loads(text: str) -> Any:
    """Values without a type, for what is described by a schema only.

    :raises virtco.exception.Invalid:
    :raises ValueError: for what is no JSON.
    """
    try:
        value = _PLAIN.decode(text)
    except RecursionError:
        raise _too_deep() from None
    if '\\u' in text:
        flat = json.dumps(value, ensure_ascii=False)
        if '\\u0000' in flat or any('\ud800' <= c <= '\udfff' for c in flat):
            raise exception.Invalid(field='body', value='an escape',
                                    limit='valid Unicode text without NUL')
    return value


def _too_deep() -> exception.Invalid:
    return exception.Invalid(field='body', value='deep nesting',
                             limit='JSON that is less deeply nested')


def shown(value: Any) -> str:
    """As an error can hold it."""
    text = json.dumps(value)
    return text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS] + '…'


def described(error: jsonschema.ValidationError, named: str = 'body'
              ) -> dict[str, Any]:
    """Field, value and limit."""
    path = ''.join(f'[{part}]' if isinstance(part, int) else f'.{part}'
                   for part in error.absolute_path).lstrip('.')
    value: Any = error.instance
    limit = str(error.message)
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
    elif str(error.validator) in _LIMITS:
        limit = _LIMITS[str(error.validator)].format(rule)
    return {'field': path or named, 'value': shown(value), 'limit': limit}
