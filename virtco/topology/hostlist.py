# SPDX-License-Identifier: Apache-2.0

"""Slurm's host lists, such as ``tux[0-3,12],gpu[01-16]``. Pure."""

from collections.abc import Iterable
import itertools
import re

_NUMBERED = re.compile(r'(.*?)([0-9]{1,9})', re.ASCII | re.DOTALL)
# No possessive quantifiers: Python 3.11.2, Debian's, matches too much by them.
_BRACKETED = re.compile(r'[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*')
_WORD = re.compile(r'(?=[^,])[^\[\],]*(?:\[[^\[\]]*\][^\[\],]*)*')
_PART = re.compile(r'[^\[\],\s]+|\[([0-9,\s-]*)\]', re.ASCII)
_RANGE = re.compile(r'\s*([0-9]{1,9})\s*(?:-\s*([0-9]{1,9})\s*)?', re.ASCII)

#: Numbers and how many digits they have, or one number that is this text.
_Numbers = tuple[range, int | str]


def expand(text: str, limit: int) -> tuple[str, ...]:
    """Expand a list to its hosts, in its order.

    :param limit: more hosts are refused before they are made.
    :raises ValueError: saying what is wrong with the text.
    """
    if not _BRACKETED.fullmatch(text):
        raise ValueError('brackets do not match')
    found: list[str] = []
    for match in _WORD.finditer(text):
        parts, size = _parts(match[0].strip()), 1
        for part in parts:
            size *= sum(len(numbers) for numbers, _form in part)
            if size > limit - len(found):
                raise ValueError(f'more than {limit} names')
        if parts:
            found += map(''.join, itertools.product(*(
                [form if isinstance(form, str) else f'{number:0{form}d}'
                 for numbers, form in part for number in numbers]
                for part in parts)))
    return tuple(found)


def _parts(word: str) -> list[list[_Numbers]]:
    """Split a word into texts and bracketed ranges."""
    found: list[list[_Numbers]] = []
    end = 0
    for match in _PART.finditer(word):
        if match.start() != end:
            break
        end = match.end()
        found.append([_range(text) for text in match[1].split(',')]
                     if match[1] is not None else [(range(1), match[0])])
    if end != len(word):
        raise ValueError(f'{word!r} is not a host list')
    return found


def _range(text: str) -> _Numbers:
    match = _RANGE.fullmatch(text)
    if match is None:
        raise ValueError(f'[{text}] is not a range')
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise ValueError(f'[{text}] is a range that ends before it begins')
    return range(first, last + 1), len(match[1])


def compress(hosts: Iterable[str]) -> str:
    """Write the shortest list that expands to these hosts in order."""
    # Prefix and ranges of digits; a name without digits has no ranges.
    runs: list[tuple[str, list[list[str]]]] = []
    for host in hosts:
        match = _NUMBERED.fullmatch(host)
        prefix, digits = match.groups() if match else (host, '')
        if not digits or not runs or runs[-1][0] != prefix or not runs[-1][1]:
            runs.append((prefix, []))
        ranges = runs[-1][1]
        if ranges and digits == _next(*ranges[-1]):
            ranges[-1][1:] = [digits]
        elif digits:
            ranges.append([digits])
    texts = []
    for prefix, ranges in runs:
        inner = ','.join(map('-'.join, ranges))
        texts.append(prefix + (inner if inner.isdigit() or not inner
                               else f'[{inner}]'))
    return ','.join(texts)


def _next(first: str, last: str = '') -> str:
    return f'{int(last or first) + 1:0{len(first)}d}'
