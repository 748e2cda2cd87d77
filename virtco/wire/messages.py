# SPDX-License-Identifier: Apache-2.0

"""Messages of the stream, decoded and checked where they arrive. Pure.

Edge modules and relays speak the same protocol: a relay passes on what its
edge modules say, in envelopes (:mod:`virtco.wire.frames`), and receives
envelopes with what the leader tells them. The messages of peers, which are
relays and the other processes of the controller, have no envelope.
"""

from typing import Annotated
from typing import Any
from typing import TypeVar

import msgspec

from virtco import decoding
from virtco import exception
from virtco.wire import deltas
from virtco.wire import fields
from virtco.wire import frames
from virtco.wire import parts
from virtco.wire import probe_order
from virtco.wire import reports

_T = TypeVar('_T')


class Hello(msgspec.Struct, frozen=True, tag='hello'):
    """Introduces an edge module.

    :ivar version: version of the protocol.
    :ivar epoch: the newest that the edge module heard of.
    :ivar generation: generation of the policy that the edge has, 0 without
        one.
    :ivar ticket: ticket of this host, where the controller gave one.
    """

    version: Annotated[int, msgspec.Meta(ge=1, le=1000)]
    host: fields.Host
    epoch: fields.Generation = 0
    generation: fields.Generation = 0
    ticket: fields.Text = ''


class Peer(msgspec.Struct, frozen=True, tag='peer'):
    """Introduces another process of the controller.

    :ivar epoch: the newest that it heard of.
    :ivar ticket: ticket of this name, which proves that it can read the
        database.
    :ivar may_lead: whether it takes over when nobody leads.
    """

    version: Annotated[int, msgspec.Meta(ge=1, le=1000)]
    name: fields.Name
    epoch: fields.Generation
    ticket: fields.Text
    may_lead: bool = True


class Ack(msgspec.Struct, frozen=True, tag='ack'):
    """The edge has taken the policy over."""

    generation: fields.Generation
    epoch: fields.Generation = 0


class Nack(msgspec.Struct, frozen=True, tag='nack'):
    """The edge refuses the policy, and the one before stays."""

    generation: fields.Generation
    error: fields.LongText
    epoch: fields.Generation = 0


class Whole(msgspec.Struct, frozen=True, tag='report'):
    """Whole report of an edge module, the base of later deltas.

    The rows of the parts before it are part of it.
    """

    report: reports.Report


class Heartbeat(msgspec.Struct, frozen=True, tag='heartbeat'):
    """The last report still holds."""


class Measured(msgspec.Struct, frozen=True, tag='measurement'):
    """Result of a measurement, told by an edge module."""

    measurement: reports.Measurement


Said = (Hello | Peer | Ack | Nack | parts.Part | Whole | deltas.Delta
        | Heartbeat | Measured)


class Here(msgspec.Struct, frozen=True, tag='here'):
    """A peer is there.

    :ivar has_database: whether it could read the database lately.
    """

    has_database: bool


class Changed(msgspec.Struct, frozen=True, tag='changed'):
    """Rows of the database changed.

    :ivar groups: ids of these groups; None: anything, settings included.
    """

    groups: list[str] | None


class Forgiven(msgspec.Struct, frozen=True, tag='forgiven'):
    """The debt of a project was forgiven."""

    project_id: str


class Forgotten(msgspec.Struct, frozen=True, tag='forgotten'):
    """These hosts were forgotten."""

    hosts: list[str]


class Ask(msgspec.Struct, frozen=True, tag='ask'):
    """Asks for the policy of a host."""

    host: fields.Host


PeerSaid = Here | Changed | Forgiven | Forgotten | Ask


class Welcome(msgspec.Struct, frozen=True, tag='welcome'):
    """Answers a hello.

    :ivar alive_s: how soon the server says that it is there.
    :ivar heartbeat_s: how often an edge module says so.
    :ivar spread_s: time over which edges spread their return when they lose
        the server.
    :ivar most_bytes: largest frame.
    """

    epoch: int
    alive_s: float
    heartbeat_s: float = 0.0
    spread_s: float = 0.0
    most_bytes: int = 0


class Alive(msgspec.Struct, frozen=True, tag='alive'):
    """The server is there.

    :ivar epoch: epoch of the leader; 0 while a relay has none.
    :ivar alive_s: how soon the server says so again: later, the more edge
        modules it has.
    :ivar n_hosts: hosts with a policy.
    """

    epoch: int
    alive_s: float
    n_hosts: int = 0


class Refused(msgspec.Struct, frozen=True, tag='refused'):
    """Ends a connection.

    :ivar leader: ``host:port`` of the one that leads, empty if unknown.
    """

    why: str
    leader: str = ''


class Asked(msgspec.Struct, frozen=True, tag='asked'):
    """Answers a peer.

    :ivar policy: the document, null without one.
    """

    host: str
    policy: msgspec.Raw


class Policy(msgspec.Struct, frozen=True, tag='policy'):
    """A policy to take over.

    :ivar policy: the document.
    :ivar epoch: epoch of the leader that made it.
    """

    generation: int
    policy: Any
    epoch: int = 0


class Probe(msgspec.Struct, frozen=True, tag='probe'):
    """Orders a measurement, to either of its ends."""

    order: probe_order.Order


class Resend(msgspec.Struct, frozen=True, tag='resend'):
    """Asks for a whole report."""


class Pause(msgspec.Struct, frozen=True, tag='pause'):
    """Tells a relay to read nothing of a host for a time."""

    wait_s: float


Told = Welcome | Alive | Policy | Probe | Resend | Refused
PeerTold = Welcome | Alive | Refused | Asked
_ENCODER = msgspec.json.Encoder()
_DECODER: 'decoding.Decoder[Said]' = decoding.Decoder(Said, 'frame')
_TOLD: 'decoding.Decoder[Told]' = decoding.Decoder(Told, 'frame')
_PEERS: 'decoding.Decoder[PeerSaid]' = decoding.Decoder(PeerSaid, 'frame')
#: Peers trust the leader.
PEER_TOLD = msgspec.json.Decoder(PeerTold)


def pack(message: msgspec.Struct) -> bytes:
    """Encode a message as the payload of a frame."""
    return _ENCODER.encode(message)


def frame(message: msgspec.Struct) -> bytes:
    """Encode a message as a frame."""
    return frames.frame(pack(message))


def pack_report(report: reports.Report, most_bytes: int = frames.MOST_BYTES
                ) -> list[bytes]:
    """Encode a whole report as payloads of frames: its parts come first.

    :param most_bytes: length of a payload; a row may be longer.
    """
    payload = pack(Whole(report))
    if len(payload) <= most_bytes:
        return [payload]
    cut, rest = parts.cut(report, most_bytes)
    return [*map(pack, cut), pack(Whole(rest))]


def decode(payload: bytes) -> Said:
    """Decode a message of an edge module.

    :raises virtco.exception.Invalid: naming field, value and limit.
    """
    return _decoded(_DECODER, payload)


def decode_told(payload: bytes) -> Told:
    """Decode a message to an edge module.

    :raises virtco.exception.Invalid: naming field, value and limit.
    """
    return _decoded(_TOLD, payload)


def decode_peer(payload: bytes) -> PeerSaid:
    """Decode a message of another process of the controller.

    :raises virtco.exception.Invalid: naming field, value and limit.
    """
    return _decoded(_PEERS, payload)


def _decoded(decoder: 'decoding.Decoder[_T]', payload: bytes) -> _T:
    """Decode a frame; refuse one that is no JSON."""
    try:
        return decoder.decode(payload)
    except ValueError as error:
        raise exception.Invalid(
            field='frame', value=repr(payload[:40]),
            limit='JSON in UTF-8') from error
