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
    kind = next(one for one in wire.KINDS if isinstance(error, one.raised))
    media.answer(response, document(kind.code, kind.title, str(error),
                                    error.kwargs), kind.status)


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
