# SPDX-License-Identifier: Apache-2.0

"""Values of others: their bounds on both sides, and what is told of them."""

import ast
import json
import pathlib
from typing import Annotated
from typing import Literal

import msgspec
import pytest

from virtco import decoding
from virtco import exception
from virtco.wire import fields


@pytest.mark.parametrize(('kind', 'good', 'bad'), [
    (fields.Text, ['', 'x' * 255], ['x' * 256, 5]),
    (fields.LongText, ['x' * 4096], ['x' * 4097]),
    (fields.Name, ['x', 'x' * 255], ['', 'x' * 256]),
    (fields.Key, ['x', 'x' * 64], ['', 'x' * 65]),
    (fields.Id, ['a', 'a' * 36, 'A-b.c:d_9'], ['', 'a' * 37, 'a b', 'a\n']),
    (fields.Host, ['h', 'h' * 255, 'a@b'], ['', 'h' * 256, 'a/b']),
    (fields.Address, ['::', '10.0.0.1', 'a' * 45], [':', 'a' * 46, '1.g']),
    (fields.Mac, ['02:00:00:00:00:0a'], ['02:00:00:00:00:0A',
                                         '02:00:00:00:0a',
                                         '02:00:00:00:00:00:0a']),
    (fields.Port, [1, 65535], [0, 65536]),
    (fields.Amount, [0, 1e15], [-1e-9, 1e15 + 0.5]),
    (fields.Bytes, [0, 1e21], [-1, 1.001e21]),
    (fields.LinkRate, [8, 1e15], [7.99, 1e15 + 0.5]),
    (fields.Count, [0, 2 ** 31 - 1], [-1, 2 ** 31]),
    (fields.Generation, [0, 2 ** 62], [-1, 2 ** 62 + 1])])
def test_a_field_is_bounded_on_both_sides(kind, good, bad):
    for value in good:
        assert msgspec.convert(value, kind) == value
    for value in bad:
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(value, kind)


class Small(msgspec.Struct, forbid_unknown_fields=True):
    number: Annotated[int, msgspec.Meta(ge=2, le=4)]
    names: Annotated[tuple[Annotated[str, msgspec.Meta(max_length=3)], ...],
                     msgspec.Meta(min_length=1, max_length=2)] = ('a',)
    kind: Literal['x', 'y'] = 'x'
    inner: 'Small | None' = None


class Wide(msgspec.Struct):
    by_key: dict[str, str | Annotated[list[str], msgspec.Meta(
        max_length=1)]] = {}
    pair: tuple[int, Literal[0]] | None = None
    inner: dict[str, Small] = {}
    weight: Annotated[float, msgspec.Meta(gt=0, lt=1e6)] = 1.0
    word: Annotated[str, msgspec.Meta(pattern='^a$')] = 'a'
    grades: tuple[Literal['x', 'y'], Literal['z']] | None = None


class Cat(msgspec.Struct, tag='cat'):
    lives: fields.Count


class Dog(msgspec.Struct, tag='dog'):
    name: str


SMALL, WIDE = decoding.Decoder(Small), decoding.Decoder(Wide)
PETS = decoding.Decoder(Cat | Dog, 'frame')


def refused(decoder, raw):
    with pytest.raises(exception.Invalid) as caught:
        decoder.decode(raw)
    told = caught.value.kwargs
    return told['field'], told['value'], told['limit']


def test_what_is_right_is_decoded():
    assert SMALL.decode(b'{"number": 3, "names": ["ab"]}') == Small(
        3, ('ab',))
    assert PETS.decode(b'{"type": "dog", "name": "\\u00e9"}') == Dog('é')


@pytest.mark.parametrize(('raw', 'told'), [
    (b'{}', ('number', None, 'a value')),
    (b'{"number": 1}', ('number', '1', 'at least 2')),
    (b'{"number": 5}', ('number', '5', 'at most 4')),
    (b'{"number": "3"}', ('number', '"3"', 'an integer')),
    (b'{"number": 3, "names": []}', ('names', '[]', 'at least 1 entry')),
    (b'{"number": 3, "names": ["a", "abcd"]}',
     ('names[1]', '"abcd"', 'at most 3 characters')),
    (b'{"number": 3, "kind": "z"}', ('kind', '"z"', 'one of x, y')),
    (b'{"number": 3, "age": 7}',
     ('age', '7', 'one of number, names, kind, inner')),
    (b'[]', ('body', '[]', 'an object'))])
def test_what_is_wrong_is_told(raw, told):
    assert refused(SMALL, raw) == told


@pytest.mark.parametrize(('raw', 'told'), [
    (b'{"by_key": {"a": "b", "c": [], "d": 5, "e": "f"}}',
     ('by_key.d', '5', 'a string or an array')),
    (b'{"by_key": {"a": ["b", "c"]}}',
     ('by_key.a', '["b", "c"]', 'at most 1 entry')),
    (b'{"by_key": {"a": "b", "c": [], "d": [7]}}',
     ('by_key.d[0]', '7', 'a string')),
    (b'{"pair": [1]}', ('pair', '[1]', '2 entries')),
    (b'{"pair": [1, 2]}', ('pair[1]', '2', 'one of 0')),
    (b'{"grades": ["z", "z"]}', ('grades[0]', '"z"', 'one of x, y')),
    (b'{"grades": ["x", "y"]}', ('grades[1]', '"y"', 'one of z')),
    (b'{"inner": {"a": {"number": 2}, "b": {"number": 2, "kind": "z"}}}',
     ('inner.b.kind', '"z"', 'one of x, y')),
    (b'{"inner": {"a": {}}}', ('inner.a.number', None, 'a value')),
    (b'{"weight": 0}', ('weight', '0', 'more than 0')),
    (b'{"weight": 1e7}', ('weight', '10000000.0', 'less than 1000000')),
    (b'{"weight": 1e999}', ('weight', 'Infinity',
     'a valid value (Number out of range)')),
    (b'{"word": "b"}', ('word', '"b"', 'text matching ^a$')),
    (b'{"weight": null}', ('weight', 'null', 'a number'))])
def test_the_place_of_what_is_wrong_is_told(raw, told):
    assert refused(WIDE, raw) == told


@pytest.mark.parametrize('name', ['a` - at `$.b', 'a` - at `$[7]',
                                  'a` - at `$.number.b',
                                  'a` - at `$.names[...]'])
def test_a_field_may_be_called_as_the_end_of_an_error(name):
    assert refused(SMALL, json.dumps({
        'number': 3, 'names': ['ab'], name: 1}).encode())[2] == (
            'known names of fields')


def test_texts_of_a_query_are_read_as_numbers():
    assert SMALL.convert({'number': '3'}, strict=False) == Small(3)
    for text, limit in (('x', 'an integer'), ('5', 'at most 4')):
        with pytest.raises(exception.Invalid) as caught:
            SMALL.convert({'number': text}, strict=False)
        assert caught.value.kwargs == {
            'field': 'number', 'value': f'"{text}"', 'limit': limit,
            'path': ('number',)}
    with pytest.raises(exception.Invalid, match='more than 0'):
        WIDE.convert({'weight': 'nan'}, strict=False)


def test_text_stands_for_a_number_in_a_query_alone():
    assert SMALL.convert({'number': 3}) == Small(3)
    with pytest.raises(exception.Invalid, match='an integer'):
        SMALL.convert({'number': '3'})


def test_a_tag_tells_the_kind():
    assert refused(PETS, b'{"type": "cow"}') == (
        'type', '"cow"', 'one of cat, dog')
    assert refused(PETS, b'[]') == ('frame', '[]', 'an object')
    assert refused(PETS, b'{"type": "cat", "lives": -1}') == (
        'lives', '-1', 'at least 0')
    assert refused(PETS, b'{"type": "cat", "lives": 1.5}')[0] == 'lives'


@pytest.mark.parametrize('raw', [
    b'{"type": "dog", "name": "\\ud800"}',
    b'{"type": "dog", "name": "\\udfff"}',
    b'{"type": "dog", "name": "a\\u0000b"}'])
def test_text_that_no_database_takes_is_refused(raw):
    assert refused(PETS, raw)[2] == 'valid Unicode text without NUL'
    # A backslash of its own is none of them.
    assert decoding.loads('"\\\\u0041\\u0041"') == '\\u0041A'


@pytest.mark.parametrize('text', ['NaN', '[Infinity]', '-Infinity'])
def test_numbers_that_are_none(text):
    for read in (decoding.loads, lambda text: SMALL.decode(text.encode())):
        with pytest.raises(exception.Invalid, match='without NaN or Inf'):
            read(text)


def test_what_is_no_json_or_too_deep():
    for text in ('{', '', '[1,]'):
        with pytest.raises(ValueError):
            decoding.loads(text)
        with pytest.raises(ValueError):
            SMALL.decode(text.encode())
    deep = '[' * 100_000
    with pytest.raises(exception.Invalid, match='deep'):
        decoding.loads(deep)
    with pytest.raises(exception.Invalid, match='deep'):
        SMALL.decode(b'{"number": 3, "inner": ' * 100_000)


@pytest.mark.parametrize(('length', 'is_cut'), [(158, False), (159, True)])
def test_long_values_are_cut(length, is_cut):
    _field, shown, _limit = refused(SMALL, b'{"number": "%s"}' % (
        b'x' * length))
    assert shown.endswith('…') is is_cut
    assert len(shown) == 160


def test_decoders_are_built_at_import():
    """Two threads that build decoders of one Struct crash the process."""
    root = pathlib.Path(decoding.__file__).parent
    built = []
    for path in root.rglob('*.py'):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef | ast.Lambda):
                built += [
                    f'{path.relative_to(root)}:{node.lineno}'
                    for node in ast.walk(function)
                    if isinstance(node, ast.Call)
                    and ast.unparse(node.func).split('.')[-1] == 'Decoder']
    # The second one is called at import.
    assert sorted({place.partition(':')[0] for place in built}) == [
        'api/routes.py', 'decoding.py']
