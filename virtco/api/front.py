# SPDX-License-Identifier: Apache-2.0

"""Answers from the first moment, while the API is still being loaded.

It needs little but the standard library, so the port opens at once: Nova is
answered neutrally rather than refused, and an edge is told to come back.
"""

from collections.abc import Iterable
import json
import re
from typing import Any

from virtco import startup
from virtco.api import listeners
from virtco.place import answer
from virtco.wire import error

_PLACEMENT = re.compile(r'/v1/placements/([^/]+)')
_UNAVAILABLE = '503 Service Unavailable'


class Front:
    """The WSGI application that hands over to the API once it is there."""

    def __init__(self, start: startup.Startup):
        self._startup = start
        self._api: listeners.Wsgi | None = None

    def hand_over(self, api: listeners.Wsgi) -> None:
        """Let the API answer all requests from now on."""
        self._api = api

    def __call__(self, environ: dict[str, Any],
                 start_response: Any) -> Iterable[bytes]:
        if self._api is not None:
            return self._api(environ, start_response)
        return listeners.answer(start_response, *self._answer(environ),
                                ('Retry-After', '1'))

    def _answer(self, environ: dict[str, Any]) -> tuple[str, Any]:
        """Answer a request that comes while the API is loading."""
        path = environ.get('PATH_INFO', '')
        if path == '/health':
            return _UNAVAILABLE, self._startup.document()
        why = self._startup.why() or 'the controller is starting'
        found = _PLACEMENT.fullmatch(path)
        if found and environ['REQUEST_METHOD'] == 'PUT':
            try:
                asked = json.load(environ['wsgi.input'])
                return '200 OK', answer.neutral(
                    found.group(1),
                    [offer['host'] for offer in asked['hosts']], why)
            except (ValueError, TypeError, KeyError, RecursionError):
                pass  # the API names the error
        return _UNAVAILABLE, error.Failure(error.Error(
            code='virtco.starting', title='Starting', detail=why))
