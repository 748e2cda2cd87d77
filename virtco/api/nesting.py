# SPDX-License-Identifier: Apache-2.0

"""Refuses bodies that are nested deeper than anything sensible."""

from collections.abc import Iterable
import io
from typing import Any

import falcon

from virtco import exception
from virtco.api import errors
from virtco.api import listeners

MOST_DEPTH = 64
_NEITHER_BRACKET_NOR_QUOTE = bytes(set(range(256)) - set(b'[]{}"'))
_AS_BRACKETS = bytes.maketrans(b'{}', b'[]')


def is_deeper(body: bytes, most: int = MOST_DEPTH) -> bool:
    """Tell whether objects and lists are nested deeper than ``most`` levels.

    Without parsing, which is recursive: brackets outside of strings are kept,
    and the innermost pairs removed level by level. Strings without a bracket
    go first, so that there are few left to be told apart. For what is no JSON
    the answer means nothing.
    """
    unescaped = body.replace(rb'\\', b'').replace(rb'\"', b'')
    kept = unescaped.translate(
        _AS_BRACKETS, _NEITHER_BRACKET_NOR_QUOTE).replace(b'""', b'')
    brackets = b''.join(kept.split(b'"')[::2])
    for _ in range(most):
        shorter = brackets.replace(b'[]', b'')
        if len(shorter) == len(brackets):
            return False
        brackets = shorter
    return bool(brackets)


def checked(app: listeners.Wsgi) -> listeners.Wsgi:
    """Wrap an application to refuse bodies that are nested too deeply."""
    def check(environ: dict[str, Any], start_response: Any
              ) -> Iterable[bytes]:
        length = environ.get('CONTENT_LENGTH') or '0'
        if not length.isdecimal() or int(length) == 0:
            return app(environ, start_response)
        body = environ['wsgi.input'].read(int(length))
        if is_deeper(body):
            return _refuse(start_response)
        return app(environ | {'wsgi.input': io.BytesIO(body)},
                   start_response)
    return check


def _refuse(start_response: Any) -> list[bytes]:
    error = exception.Invalid(field='body', value='deep nesting',
                              limit=f'at most {MOST_DEPTH} levels')
    return listeners.answer(start_response, falcon.HTTP_400, errors.document(
        'virtco.invalid', 'Invalid input', str(error), error.kwargs))
