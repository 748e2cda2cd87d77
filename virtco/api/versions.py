# SPDX-License-Identifier: Apache-2.0

"""Versions of the API in the manner of placement: a header asks for one.

``OpenStack-API-Version: virtco 1.0``; without it the lowest is served, and
``latest`` is the highest.
"""

import re
from typing import Any

import falcon

from virtco import exception
from virtco.api import media
from virtco.wire import api_versions as wire

#: Versions with their changes, oldest first.
VERSIONS = [
    '1.0',  # The first one.
]
HEADER = 'OpenStack-API-Version'
SERVICE = 'virtco'
_ASKED = re.compile(rf'(?:^|,)\s*{SERVICE}\s+(latest|\d+\.\d+)\s*(?:,|$)')


_VERSION = wire.Version(
    id='v1.0', min_version=VERSIONS[0], max_version=VERSIONS[-1],
    status='CURRENT', links=[wire.VersionLink('self', '/v1')])


class Versions:
    """``GET /``: all major versions, ``GET /v1``: this one."""

    def __init__(self, is_root: bool):
        self._is_root = is_root

    def on_get(self, _request: falcon.Request,
               response: falcon.Response) -> None:
        media.answer(response, wire.Versions([_VERSION]) if self._is_root
                     else wire.Current(_VERSION))


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
