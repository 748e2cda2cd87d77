# SPDX-License-Identifier: Apache-2.0

"""Every error as the same JSON document, with a code that never changes."""

from collections.abc import Mapping
import logging
from typing import Any

import falcon

from virtco import exception
from virtco.api import media
from virtco.wire import error as wire

LOG = logging.getLogger(__name__)

# (status, code, title) per exception, subclasses first.
KINDS: list[tuple[type[exception.VirtcoException], str, str, str]] = [
    (exception.QuotaExceeded, falcon.HTTP_403, 'virtco.quota_exceeded',
     'Quota exceeded'),
    (exception.HintInvalid, falcon.HTTP_400, 'virtco.hint_invalid',
     'Invalid hint'),
    (exception.Invalid, falcon.HTTP_400, 'virtco.invalid', 'Invalid input'),
    (exception.PlacementInfeasible, falcon.HTTP_409, 'virtco.infeasible',
     'No valid placement'),
    (exception.NotFound, falcon.HTTP_404, 'virtco.not_found', 'Not found'),
    (exception.Conflict, falcon.HTTP_409, 'virtco.conflict', 'Conflict'),
    (exception.Forbidden, falcon.HTTP_403, 'virtco.forbidden',
     'Not allowed'),
    (exception.Deposed, falcon.HTTP_503, 'virtco.deposed',
     'Another scheduler leads'),
    (exception.DatabaseUnavailable, falcon.HTTP_503,
     'virtco.database_unavailable', 'Database unavailable'),
    (exception.Starting, falcon.HTTP_503, 'virtco.starting', 'Starting'),
]

FALCON_CODES = {
    falcon.MediaMalformedError: 'virtco.malformed',
    falcon.MediaNotFoundError: 'virtco.no_body',
    falcon.HTTPUnsupportedMediaType: 'virtco.media_type',
    falcon.HTTPNotFound: 'virtco.not_found',
    falcon.HTTPRouteNotFound: 'virtco.not_found',
    falcon.HTTPMethodNotAllowed: 'virtco.method',
}


def document(code: str, title: str, detail: str,
             fields: Mapping[str, Any] | None = None) -> wire.Failure:
    return wire.Failure(wire.Error(code=code, title=title, detail=detail, **{
        name: value for name, value in (fields or {}).items()
        if name in ('field', 'value', 'limit')}))


def add_handlers(app: 'falcon.App[Any, Any]') -> None:
    """Answer every error in the JSON of the API."""
    app.add_error_handler(exception.VirtcoException, _ours)
    app.add_error_handler(Exception, _unexpected)
    app.set_error_serializer(_falcon)


def _ours(_request: falcon.Request, response: falcon.Response,
          error: exception.VirtcoException, _params: Any) -> None:
    for kind, status, code, title in KINDS:
        if isinstance(error, kind):
            media.answer(response, document(code, title, str(error),
                                            error.kwargs), status)
            return
    media.answer(response, document('virtco.error', 'Error', str(error)),
                 falcon.HTTP_500)


def _unexpected(request: falcon.Request, response: falcon.Response,
                error: Exception, _params: Any) -> None:
    LOG.exception('%s %s failed.', request.method, request.path)
    media.answer(response, document(
        'virtco.error', 'Internal error', 'See the log of the controller.'),
        falcon.HTTP_500)


def _falcon(_request: falcon.Request, response: falcon.Response,
            error: falcon.HTTPError) -> None:
    code = FALCON_CODES.get(type(error), f'virtco.http_{error.status_code}')
    title = error.title or ''
    media.answer(response, document(code, title, error.description or title),
                 error.status)
