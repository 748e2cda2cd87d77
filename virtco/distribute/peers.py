# SPDX-License-Identifier: Apache-2.0

"""What the leading scheduler and its peers say to each other.

Peers are distributors, processes that serve the API, and controllers that
stand by. Their messages are frames as those of the edges are; both ends are of
the same release.
"""

import ssl
from typing import Any

import msgspec
from oslo_config import cfg

from virtco.distribute import codec
from virtco.distribute import frames
from virtco.wire import reports

#: How often the leader says something, and after which silence it is gone.
ALIVE_S = 0.5
SILENT_S = 2.5
MOST_BYTES = 64 * 1024 * 1024


class Hello(msgspec.Struct, frozen=True, tag='hello'):
    """:ivar epoch: the newest that it heard of."""

    name: str
    epoch: int


class Follow(msgspec.Struct, frozen=True, tag='follow'):
    """:ivar hosts: whose policies it wants, and the generation of each that
    is there already.
    """

    hosts: dict[str, int]


class Leave(msgspec.Struct, frozen=True, tag='leave'):
    hosts: list[str]


class Reports(msgspec.Struct, frozen=True, tag='reports'):
    """:ivar reports: of edge modules, by host.
    :ivar heard: hosts whose last report still holds.
    """

    reports: dict[str, reports.Report]
    heard: list[str] = []


class Measured(msgspec.Struct, frozen=True, tag='measured'):
    measurement: reports.Measurement


class Changed(msgspec.Struct, frozen=True, tag='changed'):
    """:ivar groups: ids of those that changed in the database; None: any,
    and the settings.
    """

    groups: list[str] | None


class Forgiven(msgspec.Struct, frozen=True, tag='forgiven'):
    project_id: str


class Welcome(msgspec.Struct, frozen=True, tag='welcome'):
    epoch: int


class Alive(msgspec.Struct, frozen=True, tag='alive'):
    """:ivar n_hosts: that have a policy."""

    n_hosts: int


class Policy(msgspec.Struct, frozen=True, tag='policy'):
    """:ivar policy: the document as it goes to the edge module."""

    host: str
    epoch: int
    generation: int
    policy: msgspec.Raw

    def frame(self) -> bytes:
        """For the edge module."""
        return codec.edge_frame(self.epoch, self.generation,
                                bytes(self.policy))


class Train(msgspec.Struct, frozen=True, tag='train'):
    host: str
    train: dict[str, Any]


Said = Hello | Follow | Leave | Reports | Measured | Changed | Forgiven
Told = Welcome | Alive | Policy | Train
_ENCODER = msgspec.json.Encoder()
SAID = msgspec.json.Decoder(Said)
TOLD = msgspec.json.Decoder(Told)


def pack(message: Said | Told) -> bytes:
    return frames.frame(_ENCODER.encode(message))


def server_tls(conf: cfg.ConfigOpts) -> ssl.SSLContext | None:
    """:raises OSError: for a file that cannot be used."""
    return _tls(conf, ssl.PROTOCOL_TLS_SERVER)


def client_tls(conf: cfg.ConfigOpts) -> ssl.SSLContext | None:
    """:raises OSError: for a file that cannot be used."""
    return _tls(conf, ssl.PROTOCOL_TLS_CLIENT)


def _tls(conf: cfg.ConfigOpts, protocol: int) -> ssl.SSLContext | None:
    """Both ends show a certificate of the same authority, and either name
    will do: it signs nothing else.
    """
    options = conf.leadership
    if not options.cert_file:
        return None
    context = ssl.SSLContext(protocol)
    context.load_cert_chain(options.cert_file, options.key_file or None)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if options.ca_file:
        context.load_verify_locations(options.ca_file)
        context.verify_mode = ssl.CERT_REQUIRED
    return context
