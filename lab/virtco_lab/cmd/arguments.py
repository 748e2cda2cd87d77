# SPDX-License-Identifier: Apache-2.0

"""Types of command line arguments, whose errors take one line."""

import argparse
from collections.abc import Callable
import pathlib
import re
import runpy
import tempfile
from typing import Any
from typing import NoReturn

from virtco import exception
from virtco import units
from virtco.scheduling import policies

#: Longest workload: milliseconds of it are counted.
_MOST_S = 1e9
_LEAST_THETA_S = 0.01
_MIN_UPLINK_BPS = 5e6
_MAX_UPLINK_BPS = 1e9


class Parser(argparse.ArgumentParser):
    """Tells an error in one line, which names the option.

    :param later: adds the arguments when the parser is used, for an action
        whose modules take seconds to import.
    """

    def __init__(self, *, later: Callable[[Any], None] | None = None,
                 **options: Any):
        super().__init__(**options)
        self._later = later

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments, after the late ones were added."""
        later, self._later = self._later, None
        if later is not None:
            later(self)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f'{self.prog}: {message}\n')


def only(args: argparse.Namespace, is_used: bool, where: str,
         **defaults: Any) -> None:
    """Refuse options that would be ignored; others get their defaults.

    :param args: options that were not given are None.
    :param where: ending of the limit in an error.
    :param defaults: options, by the names that they have in args.
    :raises virtco.exception.Invalid: for an option that was given and is not
        used.
    """
    for name, default in defaults.items():
        value = getattr(args, name)
        if value is None:
            setattr(args, name, default)
        elif not is_used:
            raise exception.Invalid(
                field=f'--{name.replace("_", "-")}', value=value,
                limit=f'nothing {where}')


def between(low: int, high: int) -> Callable[[str], int]:
    """Make a parser of whole numbers from low to high."""
    def parse(text: str) -> int:
        number = int(text) if text.isascii() and text.isdecimal() else None
        if number is None or not low <= number <= high:
            raise _wrong(f'a number between {low} and {high}', text)
        return number
    return parse


def positive(text: str) -> float:
    """Parse a number above 0."""
    value = float(text)
    if not value > 0:
        raise _wrong('a number above 0', text)
    return value


def theta(text: str) -> float:
    """Parse the longest wait; its tenth is how long a coflow is served."""
    value = positive(text)
    if value < _LEAST_THETA_S:
        raise _wrong(f'at least {_LEAST_THETA_S} seconds', text)
    return value


def seconds(text: str) -> float:
    """Parse the length of a workload, above 0 and at most 30 years."""
    value = positive(text)
    if value > _MOST_S:
        raise _wrong(f'at most {_MOST_S:.0e} seconds', text)
    return value


def own_policy(text: str) -> tuple[str, policies.Policy]:
    """Load a policy of one's own, a class in a file: ``mine.py:Mine``."""
    path, _, name = text.rpartition(':')
    try:
        return text, policies.of(runpy.run_path(path)[name]())
    except Exception as error:
        raise _wrong(f'FILE:CLASS that can be loaded ({error!r})',
                     text) from None


count = between(1, 1000)
seed = between(0, 2 ** 32 - 1)


def seeds(text: str) -> tuple[int, ...]:
    """Parse seeds: ``8`` is 0 to 7, ``100-115`` those from 100 to 115."""
    first, dash, last = text.rpartition('-')
    found = range(seed(first), seed(last) + 1) if dash else range(
        count(last))
    if not 1 <= len(found) <= 1000:
        raise _wrong('1 to 1000 seeds in ascending order', text)
    return tuple(found)


def names(text: str) -> tuple[str, ...]:
    """Parse names with commas between them."""
    found = tuple(dict.fromkeys(name.strip() for name in text.split(',')
                                if name.strip()))
    if not found:
        raise _wrong('at least one name', text)
    return found


def rate_bps(text: str) -> float:
    """Parse a rate such as 50Mbit, in bit/s."""
    try:
        return units.parse_rate_bps(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def uplink_bps(text: str) -> float:
    """Parse a rate with a unit, within the limits of the testbed, in bit/s.
    """
    if re.fullmatch(r'\s*[0-9]+\s*', text):
        raise _wrong(f'a rate with a unit, such as {text.strip()}Mbit', text)
    found_bps = rate_bps(text)
    if not _MIN_UPLINK_BPS <= found_bps <= _MAX_UPLINK_BPS:
        raise _wrong(f'a rate between {units.format_rate(_MIN_UPLINK_BPS)} '
                     f'and {units.format_rate(_MAX_UPLINK_BPS)}', text)
    return found_bps


def directory(text: str) -> pathlib.Path:
    """Parse the path of a writable directory; make it if need be."""
    path = pathlib.Path(text)
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        raise _cannot_write(path, error) from error
    return path


def file(text: str) -> pathlib.Path:
    """Parse the path of a writable file."""
    path = pathlib.Path(text)
    try:
        if path.exists():
            path.open('ab').close()
        else:
            tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise _cannot_write(path, error) from error
    return path


def _wrong(limit: str, text: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(exception.expected(limit, repr(text)))


def _cannot_write(path: pathlib.Path, error: OSError
                  ) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(
        f'cannot write to {path}: {error.strerror}')
