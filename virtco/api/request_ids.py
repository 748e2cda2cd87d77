# SPDX-License-Identifier: Apache-2.0

"""The id of each request, as every OpenStack service tells it.

What oslo.middleware's own class does, without parsing the request and the
answer a second time for it.
"""

from collections.abc import Iterable
import re
from typing import Any

from oslo_context import context
from oslo_middleware import request_id

from virtco.api import listeners

_GIVEN = 'HTTP_' + request_id.INBOUND_HEADER.upper().replace('-', '_')
_FORMAT = re.compile(request_id.ID_FORMAT)


def identified(app: listeners.Wsgi) -> listeners.Wsgi:
    """Wrap an application so that log and answer name the request's id."""
    def identify(environ: dict[str, Any], start_response: Any
                 ) -> Iterable[bytes]:
        own = context.generate_request_id()
        environ[request_id.ENV_REQUEST_ID] = own
        given = environ.get(_GIVEN, '')
        if _FORMAT.match(given):
            environ[request_id.GLOBAL_REQ_ID] = given

        def start(status: str, headers: list[tuple[str, str]],
                  *error: Any) -> Any:
            return start_response(status, [
                *headers, (request_id.HTTP_RESP_HEADER_REQUEST_ID, own)],
                *error)
        return app(environ, start)
    return identify
