# SPDX-License-Identifier: Apache-2.0

"""Where edge modules connect to."""

import msgspec

from virtco.wire import fields
from virtco.wire import operation


class Server(msgspec.Struct, frozen=True):
    """A stream server.

    :ivar host: address; null: the one under which this API is known.
    :ivar port: TCP port.
    :ivar tls: whether it wants TLS.
    """

    host: str | None
    port: int
    tls: bool


class Distributor(operation.Response, frozen=True, kw_only=True):
    """Where policies come from.

    :ivar version: version of the protocol.
    :ivar servers: in the order in which to try them: the relays, shuffled,
        and the process that leads.
    :ivar ticket: ticket by which a host shows that it may connect.
    """

    version: int
    servers: list[Server]
    ticket: str | msgspec.UnsetType = msgspec.UNSET


class DistributorQuery(operation.Query, frozen=True):
    """Host that asks where to connect.

    :ivar host: name of the host that asks for a ticket.
    """

    host: fields.Host | None = None


SHOW = operation.Operation(
    'showDistributor', 'GET', '/v1/distributor', Distributor,
    'Tell edge modules where to connect.', query=DistributorQuery)
