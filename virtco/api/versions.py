# SPDX-License-Identifier: Apache-2.0

"""Versions of the API in the manner of placement: a header asks for one.

``OpenStack-API-Version: virtco 1.0``; without it the lowest is served, and
``latest`` is the highest.
"""

import re
from typing import Any

import falcon

from virtco import exception

#: Versions with their changes, oldest first.
VERSIONS = [
    '1.0',  # The first one.
]
HEADER = 'OpenStack-API-Version'
SERVICE = 'virtco'
_ASKED = re.compile(rf'(?:^|,)\s*{SERVICE}\s+(latest|\d+\.\d+)\s*(?:,|$)')


class Negotiation:
    """Refuses versions that are not served, and says which one is."""

    def process_request(self, request: falcon.Request,
                        _response: falcon.Response) -> None:
        asked = request.get_header(HEADER)
        found = _ASKED.search(asked) if asked else None
        if found and found.group(1) not in ('latest', *VERSIONS):
            raise falcon.HTTPNotAcceptable(
                title='Version not served', description=(
                    f'{HEADER}: ' + exception.expected(
                        f'a version between {VERSIONS[0]} and '
                        f'{VERSIONS[-1]}, or latest', found.group(1))))

    def process_response(self, _request: falcon.Request,
                         response: falcon.Response, _resource: Any,
                         _succeeded: bool) -> None:
        response.set_header(HEADER, f'{SERVICE} {VERSIONS[0]}')
        response.append_header('Vary', HEADER)
