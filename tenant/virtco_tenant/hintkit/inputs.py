# SPDX-License-Identifier: Apache-2.0

"""Reading of a tenant's input; errors name its file, line and field."""

from collections.abc import Iterator
import gzip
import math
import pathlib
import re
import sys
from typing import Any
from typing import NoReturn
import zlib

from virtco import exception
from virtco import hint_matrix
from virtco import units

#: Longest line of a file; an event of Spark's log is far below it.
MAX_LINE_CHARS = 16 * 2 ** 20
OPTIONS = 'Command line'
#: Encoding of files, which may begin with a mark of their byte order.
UTF_8 = 'utf-8-sig'

_COUNT = re.compile(r'[0-9]{1,18}')
_AMOUNT = re.compile(r'([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?)'
                     r'([KMBGT]?)', re.IGNORECASE)
_AMOUNTS = {'': 1, 'K': 10 ** 3, 'M': 10 ** 6, 'B': 10 ** 9, 'G': 10 ** 9,
            'T': 10 ** 12}


def refuse(where: str, field: str, value: Any, limit: str) -> NoReturn:
    """Raise InputInvalid.

    :param where: the file with its line, or the command line.
    """
    raise exception.InputInvalid(where=where, field=field, limit=limit,
                                 value=hint_matrix.shorten(value))


def lines(path: str) -> Iterator[tuple[str, str]]:
    """Yield (place, line) of each line of a file.

    ``-`` is standard input; a name that ends in .gz is decompressed.

    :raises virtco.exception.InputInvalid: it cannot be read, or is no text.
    """
    number = 0
    try:
        with _open(path) as file:
            while line := file.readline(MAX_LINE_CHARS + 1):
                number += 1
                where = f'{path}, line {number}'
                if len(line) > MAX_LINE_CHARS:
                    refuse(where, 'line', line,
                           f'at most {MAX_LINE_CHARS} characters')
                yield where, line
    except UnicodeDecodeError:
        refuse(path, f'text after line {number}', 'other bytes',
               'UTF-8 text, or gzip in a file named *.gz')
    except (OSError, EOFError, zlib.error) as error:
        refuse(path, 'file', getattr(error, 'strerror', None) or str(error),
               'a readable file')


def _open(path: str) -> Any:
    if path == '-':
        return open(sys.stdin.fileno(), encoding=UTF_8, closefd=False)
    if path.endswith('.gz'):
        return gzip.open(path, 'rt', encoding=UTF_8)
    return open(path, encoding=UTF_8)


def text_of(given: str, limit_bytes: int) -> tuple[str, str | None]:
    """Read JSON text that is given directly or as the name of a file.

    :returns: the text, and the name of the file or None.
    """
    if given.lstrip()[:1] in ('[', '{'):
        return given, None
    path = given.removeprefix('@')
    if path != '-' and not pathlib.Path(path).is_file():
        refuse(OPTIONS, 'FILE or TEXT', given,
               'an existing file, or JSON that begins with [ or {')
    found = []
    left = 2 * limit_bytes  # room for spaces, which the compact form lacks
    for _where, line in lines(path):
        found.append(line)
        left -= len(line)
        if left < 0:
            refuse(path, 'text', line, f'at most {2 * limit_bytes} bytes')
    return ''.join(found), path


def write_text(path: str, text: str) -> None:
    """Write a text and a newline.

    :raises virtco.exception.Invalid: when the file cannot be written.
    """
    try:
        pathlib.Path(path).write_text(text + '\n', encoding='utf-8')
    except OSError as error:
        refuse(path, 'file', error.strerror, 'a writable file')


def count(where: str, field: str, value: str, least: int, most: int) -> int:
    if not _COUNT.fullmatch(value) or not least <= int(value) <= most:
        refuse(where, field, value,
               f'a whole number between {least} and {most}')
    return int(value)


def size_bytes(where: str, field: str, value: str) -> float:
    """Parse a size with or without a unit, as in a hint."""
    try:
        found = units.parse_size_bytes(value)
    except units.NotAnAmount as error:
        refuse(where, field, value, error.limit)
    most = hint_matrix.Limits().max_bytes
    if found > most:
        refuse(where, field, value, f'at most {units.format_size(most)}')
    return found


def rate_bps(where: str, field: str, value: str) -> float:
    """Parse a rate such as 10Gbit, in bit/s.

    :raises virtco.exception.Invalid: below 1 bit/s or above 1 Pbit/s.
    """
    try:
        found = units.parse_rate_bps(value)
    except units.NotAnAmount as error:
        refuse(where, field, value, error.limit)
    if not 1 <= found <= 1e15:
        refuse(where, field, value, 'a rate between 1 bit/s and 1 Pbit/s')
    return found


def amount(where: str, field: str, value: str) -> float:
    """Parse a number such as ``25.6M`` or ``7B`` (10⁹)."""
    match = _AMOUNT.fullmatch(value)
    found = (float(match[1]) * _AMOUNTS[match[2].upper()] if match
             else math.nan)
    if not 1 <= found <= 1e15:
        refuse(where, field, value,
               'a number such as 25600000, 25.6M or 7B, between 1 and 1e15')
    return found
