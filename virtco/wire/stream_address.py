# SPDX-License-Identifier: Apache-2.0

"""Where edge modules connect to."""

import msgspec

from virtco.wire import fields
from virtco.wire import operation


class Distributor(operation.Response, frozen=True, kw_only=True):
    """A server of policies.

    :ivar version: of its protocol.
    :ivar endpoints: addresses of all servers, where there are several.
    :ivar host: address; null: the one under which this API is known.
    :ivar port: TCP port.
    :ivar tls: whether it wants TLS.
    :ivar ticket: by which a host shows that it may connect.
    """

    version: int
    host: str | None
    port: int
    tls: bool
    endpoints: list[str] | msgspec.UnsetType = msgspec.UNSET
    ticket: str | msgspec.UnsetType = msgspec.UNSET


class DistributorQuery(operation.Query, frozen=True):
    """:ivar host: that asks for a ticket."""

    host: fields.Host | None = None


SHOW = operation.Operation(
    'showDistributor', 'GET', '/v1/distributor', Distributor,
    'Tell edge modules where to connect.', query=DistributorQuery)
