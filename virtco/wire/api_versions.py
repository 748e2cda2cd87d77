# SPDX-License-Identifier: Apache-2.0

"""Versions of the API."""

from virtco.wire import operation


class VersionLink(operation.Response, frozen=True):
    """Where something is found.

    :ivar rel: ``self``.
    :ivar href: path from the root of the server.
    """

    rel: str
    href: str


class Version(operation.Response, frozen=True, kw_only=True):
    """A major version.

    :ivar id: name of the version.
    :ivar min_version: oldest minor version that is served.
    :ivar max_version: newest minor version that is served.
    :ivar status: ``CURRENT``.
    :ivar links: addresses at which it is served.
    """

    id: str
    min_version: str
    max_version: str
    status: str
    links: list[VersionLink]


class Versions(operation.Response, frozen=True):
    """Versions of the API.

    :ivar versions: each major version that is served.
    """

    versions: list[Version]


class Current(operation.Response, frozen=True):
    """Version of the API below a path.

    :ivar version: the version of this path.
    """

    version: Version


LIST = operation.Operation(
    'listVersions', 'GET', '/', Versions, 'List the major versions.')
SHOW = operation.Operation(
    'showVersion', 'GET', '/v1', Current, 'Show this major version.')
