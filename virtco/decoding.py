# SPDX-License-Identifier: Apache-2.0

"""Decoding of JSON from others, with errors that name field and limit. Pure.

msgspec decodes and checks in one pass. Only a refused document is parsed a
second time, to show the value at the path that msgspec's error names.
"""

from collections.abc import Iterator
import functools
import itertools
import json
import re
from typing import Any
from typing import Generic
from typing import NoReturn
from typing import TypeVar

import msgspec

from virtco import exception

_T = TypeVar('_T')
_WHERE = re.compile(r'(?s)(.*?)(?: - at `(?:key` in `)?\$(.*)`)?')
_STEP = re.compile(r'\.([^.\[]+)|\[(\d+|\.\.\.)\]')
_ANY_KEY = '...'
_NAMES = {'int': 'an integer', 'float': 'a number', 'str': 'a string',
          'bool': 'a boolean', 'array': 'an array', 'object': 'an object'}
_ENTRIES = {'str': ('character', 'characters'), 'array': ('entry', 'entries'),
            'object': ('field', 'fields')}
_BOUNDS = {'>=': 'at least', '<=': 'at most', '>': 'more than',
           '<': 'less than'}
_TYPE = re.compile(r'Expected `(.*)`, got `.*`')
_LENGTH = re.compile(r'Expected `(\w+)` of length (?:([<>]=?) )?(\d+)')
_BOUND = re.compile(r'Expected `\w+` ([<>]=?) (.*)')
_PATTERN = re.compile(r'(?s)Expected `str` matching regex (.*)')
_MISSING = re.compile('Object missing required field `(.*)`')
_UNKNOWN = re.compile('(?s)Object contains unknown field `(.*)`')


class Decoder(Generic[_T]):
    """Decoder of one type, for a constant of a module.

    msgspec describes a Struct when a decoder first needs it, shows that
    description to other threads before it is complete, and crashes in a
    thread that uses it. An import is made by one thread.

    :param kind: a type, or a union of tagged Structs.
    :param named: name of the whole, where an error tells of no single field.
    """

    def __init__(self, kind: Any, named: str = 'body'):
        self._kind = kind
        self._named = named
        self._decoder = msgspec.json.Decoder(kind)

    def decode(self, raw: bytes) -> _T:
        """Decode JSON text and check it against the type.

        :raises virtco.exception.Invalid: naming field, value and limit.
        :raises ValueError: for what is no JSON.
        """
        try:
            # Databases take neither lone surrogates nor NUL. The last escape
            # is found at once, and behind it may be thousands of hosts.
            if b'\\u' in raw[:raw.rfind(b'\\') + 2]:
                loads(raw.decode())
            found: _T = self._decoder.decode(raw)
            return found
        except msgspec.DecodeError as error:
            # The decoder stops at a wrong type, though the rest may be no
            # JSON, and does not name a NaN; ``loads`` finds both.
            self._refuse(loads(raw.decode()), str(error))
        except RecursionError:
            raise _too_deep() from None

    def convert(self, value: Any, strict: bool = True) -> _T:
        """Convert JSON values.

        :param strict: refuse text where it stands for another type, as it does
            in parameters of a path or query.
        :raises virtco.exception.Invalid: naming field, value and limit; its
            keyword ``path`` has the keys and indices of the field.
        """
        try:
            found: _T = msgspec.convert(value, self._kind, strict=strict)
            return found
        except msgspec.ValidationError as error:
            self._refuse(value, str(error))

    def _refuse(self, value: Any, error: str) -> NoReturn:
        """Raise the error that names field, value and limit.

        ``error`` is the text of msgspec's error about ``value``.
        """
        try:
            told = self._told(value, error)
        except (AttributeError, LookupError, TypeError, ValueError):
            # A field is called as the end of msgspec's text.
            told = exception.Invalid(field=self._named, value=error,
                                     limit='known names of fields')
        raise told from None

    def _told(self, value: Any, error: str) -> exception.Invalid:
        matched = _WHERE.fullmatch(error)
        assert matched is not None
        what, where = matched.group(1), matched.group(2) or ''
        steps: list[str | int] = []
        found = value
        shown: str | None
        for name, index in _STEP.findall(where):
            step: str | int = name or index
            if step == _ANY_KEY:
                step = self._key(value, found, error)
            elif index:
                step = int(index)
            found = found[step]
            steps.append(step)
        if missing := _MISSING.fullmatch(what):
            steps.append(missing.group(1))
            shown, limit = None, 'a value'
        elif unknown := _UNKNOWN.fullmatch(what):
            limit = 'one of ' + ', '.join(self._fields(steps))
            steps.append(unknown.group(1))
            shown = json.dumps(found[unknown.group(1)])
        else:
            # A large value is not encoded as a whole, to be cut.
            shown = ''.join(itertools.islice(
                json.JSONEncoder().iterencode(found), exception.SHOWN_CHARS))
            limit = (_limit(what) or ' or '.join(self._choices(steps))
                     or f'a valid value ({exception.bounded(what)})')
        field = ''.join(f'[{step}]' if isinstance(step, int) else f'.{step}'
                        for step in steps).lstrip('.')
        return exception.Invalid(
            field=field or self._named, value=shown, limit=limit,
            path=tuple(steps))

    def _key(self, whole: Any, entries: dict[str, Any], error: str) -> str:
        """Search the entry of an object that msgspec refuses without its key.

        :param entries: part of ``whole``; left as it was.
        """
        kept, keys = dict(entries), list(entries)
        while len(keys) > 1:
            first = keys[:len(keys) // 2]
            entries.clear()
            entries.update((key, kept[key]) for key in first)
            try:
                msgspec.convert(whole, self._kind)
                is_first = False
            except msgspec.ValidationError as other:
                is_first = str(other) == error
            keys = first if is_first else keys[len(first):]
        entries.update(kept)
        return keys[0]

    @functools.cached_property
    def _schema(self) -> dict[str, Any]:
        return msgspec.json.schema(self._kind)

    def _choices(self, steps: list[str | int]) -> Iterator[str]:
        """Yield the values that a field with a list of them may have."""
        for node in self._nodes(steps):
            if 'enum' in node:
                yield 'one of ' + ', '.join(map(str, node['enum']))
        for node in self._nodes(steps[:-1]) if steps else ():
            if 'discriminator' in node:
                yield 'one of ' + ', '.join(node['discriminator']['mapping'])

    def _fields(self, steps: list[str | int]) -> list[str]:
        """List the fields that an object may have."""
        return [name for node in self._nodes(steps)
                for name in node.get('properties', ())]

    def _nodes(self, steps: list[str | int]) -> list[dict[str, Any]]:
        """Find the schemas of a field, its alternatives among them."""
        nodes = [self._schema]
        for step in steps:
            below = []
            for node in self._options(nodes):
                if isinstance(step, int):
                    below += [*node.get('prefixItems', ())[step:step + 1],
                              *([node['items']] if node.get('items') else ())]
                elif step in node.get('properties', {}):
                    below.append(node['properties'][step])
                elif isinstance(node.get('additionalProperties'), dict):
                    below.append(node['additionalProperties'])
            nodes = below
        return list(self._options(nodes))

    def _options(self, nodes: list[dict[str, Any]]
                 ) -> Iterator[dict[str, Any]]:
        """Yield schemas and their alternatives, references resolved."""
        for node in nodes:
            if '$ref' in node:
                name = node['$ref'].rpartition('/')[2]
                node = self._schema['$defs'][name]
            yield node
            if 'discriminator' not in node:
                yield from self._options(node.get('anyOf', []))


def _limit(what: str) -> str:
    """Name the value that msgspec expected; empty where it does not tell."""
    if found := _TYPE.fullmatch(what):
        return ' or '.join(
            _NAMES.get(name, name) for name in found.group(1).split(' | '))
    if found := _LENGTH.fullmatch(what):
        kind, sign, number = found.groups()
        return ' '.join([*([_BOUNDS[sign]] if sign else ()), number,
                         _ENTRIES[kind][number != '1']])
    if found := _BOUND.fullmatch(what):
        return f'{_BOUNDS[found.group(1)]} {found.group(2).removesuffix(".0")}'
    if found := _PATTERN.fullmatch(what):
        return f'text matching {found.group(1)[1:-1]}'
    return ''


def _refuse_constant(text: str) -> NoReturn:
    raise exception.Invalid(field='body', value=text,
                            limit='JSON without NaN or Infinity')


_PLAIN = json.JSONDecoder(parse_constant=_refuse_constant)


def loads(text: str) -> Any:
    """Decode JSON without a type.

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
