# SPDX-License-Identifier: Apache-2.0

"""Bodies of requests and answers: strict JSON of a type."""

from typing import Any
from typing import TypeVar

import falcon
import msgspec

from virtco import decoding
from virtco import exception

_T = TypeVar('_T')
_ENCODER = msgspec.json.Encoder()


def decode(request: falcon.Request, decoder: decoding.Decoder[_T]) -> _T:
    """Read the body as a value of the decoder's type.

    :raises virtco.exception.Invalid: naming field, value and limit.
    """
    if not (request.content_type or '').startswith(falcon.MEDIA_JSON):
        request.get_media()  # raises the error that names the type
    raw = request.bounded_stream.read()
    if not raw:
        raise falcon.MediaNotFoundError('JSON')
    try:
        return decoder.decode(raw)
    except ValueError as error:
        raise falcon.MediaMalformedError('JSON') from error


def answer(response: falcon.Response, found: Any,
           status: int | str = 200) -> None:
    """Encode the value of an answer; the one place where that is done."""
    response.status = status
    if found is not None:
        response.content_type = falcon.MEDIA_JSON
        response.data = _ENCODER.encode(found)


def some(changes: msgspec.Struct) -> dict[str, Any]:
    """Name the fields that a request changes.

    :raises virtco.exception.Invalid: nothing at all.
    """
    found: dict[str, Any] = msgspec.to_builtins(changes)
    if not found:
        raise exception.Invalid(field='body', value='{}',
                                limit='at least 1 field')
    return found
