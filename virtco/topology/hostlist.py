# SPDX-License-Identifier: Apache-2.0

"""Slurm's host lists, such as ``tux[0-3,12],gpu[01-16]``. Pure."""

from collections.abc import Iterable
from collections.abc import Iterator
import itertools
import re

_NUMBERED = re.compile(r'(.*?)([0-9]{1,9})', re.ASCII | re.DOTALL)
_BRACKETED = re.compile(r'(?:[^\[\]]++|\[[^\[\]]*+\])*+')
_WORD = re.compile(r'(?:[^\[\],]++|\[[^\[\]]*+\])++')
_PART = re.compile(r'[^\[\],\s]+|\[([0-9,\s-]*)\]', re.ASCII)
_RANGE = re.compile(r'\s*([0-9]{1,9})\s*(?:-\s*([0-9]{1,9})\s*)?', re.ASCII)


def expand(text: str, limit: int) -> tuple[str, ...]:
    """Expand a list to its hosts, in its order.

    :param limit: more hosts are refused before they are made.
    :raises ValueError: saying what is wrong with the text.
    """
    found: list[str] = []
    for word in _words(text):
        parts, size = [], 1
        for part in _parts(word):
            parts.append(part)
            size *= len(part)
            if size > limit - len(found):
                raise ValueError(f'more than {limit} names')
        found += map(''.join, itertools.product(*parts))
    return tuple(found)


def _words(text: str) -> Iterator[str]:
    """Split at the commas outside brackets."""
    if not _BRACKETED.fullmatch(text):
        raise ValueError('brackets do not match')
    for match in _WORD.finditer(text):
        if word := match[0].strip():
            yield word


def _parts(word: str) -> Iterator['_Numbers | list[str]']:
    """Split a word into texts and bracketed ranges."""
    end = 0
    for match in _PART.finditer(word):
        if match.start() != end:
            break
        end = match.end()
        yield [match[0]] if match[1] is None else _Numbers(match[1])
    if end != len(word):
        raise ValueError(f'{word!r} is not a host list')


class _Numbers:
    """Numbers in brackets; counted without listing them."""

    def __init__(self, text: str):
        #: The numbers of each range, and how many digits they have.
        self._ranges = [self._range(part) for part in text.split(',')]

    @staticmethod
    def _range(text: str) -> tuple[range, int]:
        match = _RANGE.fullmatch(text)
        if match is None:
            raise ValueError(f'[{text}] is not a range')
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f'[{text}] is a range that ends before it '
                             'begins')
        return range(first, last + 1), len(match[1])

    def __len__(self) -> int:
        return sum(len(numbers) for numbers, _width in self._ranges)

    def __iter__(self) -> Iterator[str]:
        return (f'{number:0{width}d}' for numbers, width in self._ranges
                for number in numbers)


def compress(hosts: Iterable[str]) -> str:
    """Write the shortest list that expands to these hosts in order."""
    runs: list[tuple[str, list[tuple[str, str]]]] = []
    for host in hosts:
        match = _NUMBERED.fullmatch(host)
        if match is None:
            runs.append((host, []))
            continue
        prefix, digits = match.groups()
        if not runs or runs[-1][0] != prefix or not runs[-1][1]:
            runs.append((prefix, []))
        ranges = runs[-1][1]
        if ranges and digits == _next(*ranges[-1]):
            ranges[-1] = ranges[-1][0], digits
        else:
            ranges.append((digits, digits))
    return ','.join(map(_written, runs))


def _next(first: str, last: str) -> str:
    return f'{int(last) + 1:0{len(first)}d}'


def _written(run: tuple[str, list[tuple[str, str]]]) -> str:
    prefix, ranges = run
    if not ranges:
        return prefix
    texts = [first if first == last else f'{first}-{last}'
             for first, last in ranges]
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return prefix + texts[0]
    return f'{prefix}[{",".join(texts)}]'
